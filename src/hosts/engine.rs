//! The engine: the thread that carries out all operations between hosts, over MPI or TCP.
//!
//! Each request is a future: a few nonblocking operations, awaited one after another. The engine polls
//! all futures in turn. Over TCP it sleeps until the operating system reports that
//! bytes can be sent or received; over MPI, which reports nothing, it sleeps the longer the longer
//! nothing has happened, 5 ms at most.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::comm::CommError;
use super::world::{Carrier, World};
use crate::error::Error;
use crate::sync::lock;

/// Longest sleep between two looks at MPI's requests.
pub(super) const SLEEP_MAX: Duration = Duration::from_millis(5);

/// Longest sleep over TCP, where bytes and commands end it: heartbeats are due once a second.
const TURN_MAX: Duration = Duration::from_millis(500);

/// A sleep is as long as this part of the time for which nothing has happened: what it may add to a
/// wait.
const SLEEP_SHARE: u32 = 16;

/// Shorter sleeps are not worth their system call: until then the engine yields its core.
const SLEEP_MIN: Duration = Duration::from_micros(20);

/// Interval of the checks whether a wait for the engine still makes sense.
const GUARD_INTERVAL: Duration = Duration::from_millis(100);

/// Time limit for the engine to drop a future: it is at most inside of one call of MPI.
const RELEASE_PATIENCE: Duration = Duration::from_secs(10);

/// Time limit for the last messages of tasks that are about to end: they tell which rank has left.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(1);

/// Task on the engine's thread; polled until it is ready.
type Task = Pin<Box<dyn Future<Output = ()>>>;
/// Creates a task on the engine's thread.
type Work = Box<dyn FnOnce(&Rc<World>) -> Task + Send>;
/// Last call on the engine's thread.
type Last = Box<dyn FnOnce(&World) + Send>;

enum Command {
    Run(Work),
    /// Poll the tasks: something that a task reads has changed.
    Look,
    End(Last),
}

/// Engine of one context over TCP, or of the process over MPI. It ends when it is dropped.
pub(crate) struct Engine {
    commands: Sender<Command>,
    carrier: EngineCarrier,
    /// Joined when the engine is dropped, over TCP.
    thread: Option<JoinHandle<()>>,
}

/// The engine's carrier, as far as other threads use it.
enum EngineCarrier {
    /// `ours`: MPI was initialized by the engine, and is finalized by it when the process ends.
    Mpi {
        ours: bool,
    },
    Tcp(ronde_net::Waker),
}

impl Engine {
    /// Starts the thread `name`, on which `open` creates the world; waits for it for `patience`.
    ///
    /// # Errors
    /// Those of `open`.
    pub(super) fn start<T: Send + 'static, E: Send + 'static>(
        name: &str,
        patience: Duration,
        open: impl FnOnce() -> Result<(World, T), E> + Send + 'static,
    ) -> Result<(Arc<Self>, T), NotStarted<E>> {
        let (commands, received) = mpsc::channel();
        let (ready, started) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name(name.into());
        let thread = thread.spawn(move || match open() {
            Ok((world, found)) => {
                let carrier = match world.carrier() {
                    Carrier::Mpi(session) => EngineCarrier::Mpi {
                        ours: session.is_ours(),
                    },
                    Carrier::Tcp(mesh) => EngineCarrier::Tcp(mesh.waker()),
                };
                let _ = ready.send(Ok((carrier, found)));
                live(&Rc::new(world), &received);
            }
            Err(error) => {
                let _ = ready.send(Err(error));
            }
        });
        let thread = thread.map_err(NotStarted::Thread)?;
        let (carrier, found) = started
            .recv_timeout(patience)
            .map_err(|_| NotStarted::Silent)?
            .map_err(NotStarted::Failed)?;
        let engine = Arc::new(Self {
            commands,
            thread: matches!(carrier, EngineCarrier::Tcp(_)).then_some(thread),
            carrier,
        });
        Ok((engine, found))
    }

    fn command(&self, command: Command) {
        // The engine's thread ends after this, or with a panic of its own.
        let _ = self.commands.send(command);
        if let EngineCarrier::Tcp(waker) = &self.carrier {
            waker.wake();
        }
    }

    /// Has the task that `work` makes polled until it ends; nothing waits for it.
    pub(super) fn spawn<F>(&self, work: impl FnOnce(Rc<World>) -> F + Send + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        let work: Work = Box::new(move |world| Box::pin(work(Rc::clone(world))));
        self.command(Command::Run(work));
    }

    /// Whether the end of this rank's part in the job must be announced before `shutdown` returns.
    /// (MPI that the engine has initialized is finalized when the process ends.)
    pub(super) fn ends_with_context(&self) -> bool {
        !matches!(self.carrier, EngineCarrier::Mpi { ours: true })
    }

    /// Whether messages are sent over TCP, and not over MPI.
    pub(crate) fn is_over_tcp(&self) -> bool {
        matches!(self.carrier, EngineCarrier::Tcp(_))
    }

    /// Notes that a rank was lost: MPI cannot be finalized any more.
    pub(super) fn set_broken(&self) {
        if let EngineCarrier::Mpi { .. } = self.carrier {
            crate::mpi::set_broken();
        }
    }

    /// Has the tasks polled at once.
    pub(super) fn look(&self) {
        self.command(Command::Look);
    }

    /// Ends the thread, with `last` as its last call, when its tasks have ended or have had
    /// [`LAST_WORDS`] for it.
    pub(super) fn end(&self, last: impl FnOnce(&World) + Send + 'static) {
        self.command(Command::End(Box::new(last)));
    }

    /// Runs the future that `work` makes and waits for what it gives, as [`Promise::keep`] does.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn run<T, F>(
        self: &Arc<Self>,
        spin: Duration,
        guard: &dyn Guard,
        work: impl FnOnce(Rc<World>) -> F + Send + 'static,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, CommError>> + 'static,
    {
        self.begin(work).keep(spin, guard)
    }

    /// Begins to run the future that `work` makes.
    pub(crate) fn begin<T, F>(
        self: &Arc<Self>,
        work: impl FnOnce(Rc<World>) -> F + Send + 'static,
    ) -> Promise<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, CommError>> + 'static,
    {
        let reply = Arc::new(Reply::default());
        let answer = Answer(Arc::clone(&reply));
        self.spawn(move |world| {
            let future = work(world);
            answered(future, answer)
        });
        Promise {
            engine: Arc::clone(self),
            reply,
            kept: false,
            given_up: None,
        }
    }
}

impl Drop for Engine {
    /// Ends the thread of an engine over TCP: its connections are closed in order.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.end(|_| {});
            // A task's memory may have held the last engine.
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                tracing::error!("the thread for messages between hosts panicked");
            }
        }
    }
}

/// Why an engine has not started.
pub(super) enum NotStarted<E> {
    Failed(E),
    /// It has not answered in time.
    Silent,
    /// The operating system has no thread.
    Thread(std::io::Error),
}

/// What the engine will give. While there is one, memory that its future was lent belongs to the engine.
pub(crate) struct Promise<T> {
    engine: Arc<Engine>,
    reply: Arc<Reply<T>>,
    /// The future is no more.
    kept: bool,
    /// Why nobody waits for it any longer.
    given_up: Option<String>,
}

impl<T> Promise<T> {
    /// Waits for it, asking `guard` now and then whether that still makes sense; spins for `spin` before it sleeps. When
    /// this returns, the future is no more.
    ///
    /// # Errors
    /// What `guard` says, or the future's as it puts it.
    pub(crate) fn keep(mut self, spin: Duration, guard: &dyn Guard) -> Result<T, Error> {
        let began = Instant::now();
        while !self.reply.is_there() && began.elapsed() < spin {
            std::hint::spin_loop();
        }
        loop {
            if let Some(outcome) = self.reply.wait(GUARD_INTERVAL) {
                self.kept = true;
                return match outcome {
                    Outcome::Value(value) => Ok(value),
                    Outcome::Failed(error) => Err(guard.failure(&error)),
                    Outcome::Dropped => Err(guard.failure(&CommError::Panicked)),
                };
            }
            if let Err(error) = guard.check(began.elapsed()) {
                self.given_up = Some(error.to_string());
                return Err(error); // dropping the promise has the engine let go
            }
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        self.reply.abandoned.store(true, Ordering::Release);
        self.engine.look();
        if self.reply.wait(RELEASE_PATIENCE).is_none() {
            // The engine may be about to touch memory that the caller would go on with.
            let why = self
                .given_up
                .as_deref()
                .unwrap_or("an operation was given up");
            let host = rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned();
            eprintln!(
                "ronde: on host {host}: {why}; and the thread for messages between hosts does not return from a call: the process ends"
            );
            std::process::abort();
        }
    }
}

/// Decides while a caller waits for the engine.
pub(crate) trait Guard {
    /// Called about every 100 ms.
    ///
    /// # Errors
    /// The reason to give up.
    fn check(&self, waited: Duration) -> Result<(), Error>;

    /// Converts an error of an operation.
    fn failure(&self, error: &CommError) -> Error;
}

/// What came of a future.
enum Outcome<T> {
    Value(T),
    Failed(CommError),
    /// It was let go of.
    Dropped,
}

/// Where the caller waits.
struct Reply<T> {
    outcome: Mutex<Option<Outcome<T>>>,
    there: AtomicBool,
    came: Condvar,
    abandoned: AtomicBool,
}

impl<T> Default for Reply<T> {
    fn default() -> Self {
        Self {
            outcome: Mutex::new(None),
            there: AtomicBool::new(false),
            came: Condvar::new(),
            abandoned: AtomicBool::new(false),
        }
    }
}

impl<T> Reply<T> {
    fn is_there(&self) -> bool {
        self.there.load(Ordering::Acquire)
    }

    fn set(&self, outcome: Outcome<T>) {
        *lock(&self.outcome) = Some(outcome);
        self.there.store(true, Ordering::Release);
        self.came.notify_one();
    }

    fn wait(&self, patience: Duration) -> Option<Outcome<T>> {
        let outcome = lock(&self.outcome);
        let waited = self
            .came
            .wait_timeout_while(outcome, patience, |outcome| outcome.is_none());
        let (mut outcome, _) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        outcome.take()
    }
}

/// The engine's end of a [`Reply`]: answers in any case, when it is dropped at the latest.
struct Answer<T>(Arc<Reply<T>>);

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        if !self.0.is_there() {
            self.0.set(Outcome::Dropped);
        }
    }
}

/// Polls `future` until it is ready or nobody wants it any more; answers when it is gone.
async fn answered<T, F: Future<Output = Result<T, CommError>>>(future: F, answer: Answer<T>) {
    let mut future = Box::pin(future);
    let outcome = std::future::poll_fn(|context| match future.as_mut().poll(context) {
        std::task::Poll::Ready(outcome) => std::task::Poll::Ready(Some(outcome)),
        std::task::Poll::Pending if answer.0.abandoned.load(Ordering::Acquire) => {
            std::task::Poll::Ready(None)
        }
        std::task::Poll::Pending => std::task::Poll::Pending,
    })
    .await;
    drop(future);
    match outcome {
        Some(Ok(value)) => answer.0.set(Outcome::Value(value)),
        Some(Err(error)) => answer.0.set(Outcome::Failed(error)),
        None => {} // the answer's drop tells
    }
}

/// Lets the other tasks have their turn.
pub(crate) async fn turn() {
    let mut waited = false;
    std::future::poll_fn(|_| match std::mem::replace(&mut waited, true) {
        true => std::task::Poll::Ready(()),
        false => std::task::Poll::Pending,
    })
    .await;
}

/// Polls the tasks until there is no engine any more.
fn live(world: &Rc<World>, commands: &Receiver<Command>) {
    // The kernel's default slack of 50 µs would be a large part of a short sleep.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1_000));
    let mut tasks: Vec<Task> = Vec::new();
    let mut quiet_since = Instant::now();
    loop {
        let mut next = match commands.try_recv() {
            Ok(command) => Some(command),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => return,
        };
        if next.is_none() {
            poll(&mut tasks);
            if world.take_moved() {
                quiet_since = Instant::now();
                turn_mesh(world, Duration::ZERO);
                continue;
            }
            next = match world.carrier() {
                Carrier::Mpi(_) => match next_command(commands, pause(quiet_since.elapsed())) {
                    Ok(command) => command,
                    Err(()) => return,
                },
                Carrier::Tcp(_) => {
                    turn_mesh(world, TURN_MAX);
                    continue;
                }
            };
        }
        match next {
            Some(Command::Run(work)) => tasks.push(work(world)),
            Some(Command::Look) => {}
            Some(Command::End(last)) => {
                let began = Instant::now();
                while !tasks.is_empty() && began.elapsed() < LAST_WORDS {
                    turn_mesh(world, SLEEP_MIN);
                    poll(&mut tasks);
                    std::thread::yield_now();
                }
                tasks.clear(); // requests of MPI go on
                return last(world);
            }
            None => continue,
        }
        quiet_since = Instant::now();
    }
}

fn poll(tasks: &mut Vec<Task>) {
    let mut context = Context::from_waker(Waker::noop());
    tasks.retain_mut(|task| task.as_mut().poll(&mut context).is_pending());
}

/// Sends and receives over TCP, after waiting for at most `timeout`.
fn turn_mesh(world: &World, timeout: Duration) {
    if let Carrier::Tcp(mesh) = world.carrier()
        && let Err(ronde_net::NetError::System { .. }) = mesh.turn(Some(timeout))
    {
        // Other errors are errors of the operations. This one may come back at once.
        std::thread::sleep(SLEEP_MAX);
    }
}

/// How long to sleep after `quiet` without anything having happened.
fn pause(quiet: Duration) -> Duration {
    let pause = (quiet / SLEEP_SHARE).min(SLEEP_MAX);
    if pause < SLEEP_MIN {
        Duration::ZERO
    } else {
        pause
    }
}

/// The next command within `pause`, if one comes.
fn next_command(commands: &Receiver<Command>, pause: Duration) -> Result<Option<Command>, ()> {
    if pause.is_zero() {
        std::thread::yield_now();
        return Ok(None);
    }
    match commands.recv_timeout(pause) {
        Ok(command) => Ok(Some(command)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_the_quiet_and_end_at_the_longest() {
        let micros = Duration::from_micros;
        assert_eq!(pause(micros(300)), Duration::ZERO); // 18.75 µs is less than the shortest
        assert_eq!(pause(micros(1_600)), micros(100));
        assert_eq!(pause(Duration::from_secs(1)), SLEEP_MAX);
    }
}
