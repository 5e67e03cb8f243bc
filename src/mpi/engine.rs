//! The engine: the thread that makes all MPI calls.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use super::calls::MpiError;
use super::finalize::{self, FINALIZE_PATIENCE};
use super::library::Mpi;
use super::start::{self, FINALIZE_INTERVAL, MpiStartError};
use super::world::World;
use crate::error::Error;
use crate::sync::lock;

/// Longest sleep between two looks at the requests under way.
pub(super) const SLEEP_MAX: Duration = Duration::from_millis(5);

/// A sleep is as long as this part of the time for which nothing has happened: what it may add to a wait.
const SLEEP_SHARE: u32 = 16;

/// Shorter sleeps are not worth their system call: until then the engine yields its core.
const SLEEP_MIN: Duration = Duration::from_micros(20);

/// How often a caller that waits for the engine looks whether that still makes sense.
const GUARD_INTERVAL: Duration = Duration::from_millis(100);

/// How long the engine may take to let go of what it was asked for: it is at most inside of one MPI call.
const RELEASE_PATIENCE: Duration = Duration::from_secs(10);

/// How long tasks that are about to end may take to do so before MPI is finalized: they tell who has left.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(1);

/// Work on the engine's thread; polled until it is ready.
type Task = Pin<Box<dyn Future<Output = ()>>>;
/// Creates a task on the engine's thread.
type Work = Box<dyn FnOnce(&Rc<World>) -> Task + Send>;

enum Command {
    Run(Work),
    /// Look: something that a task reads has changed.
    Look,
    Finalize(SyncSender<()>),
}

/// The engine of this process.
#[derive(Debug)]
pub(crate) struct Engine {
    commands: Sender<Command>,
    /// Whether this process's MPI is this engine's to finalize.
    ours: bool,
}

/// MPI lives once in a process, and so does its engine.
static ENGINE: Mutex<Option<Arc<Engine>>> = Mutex::new(None);

impl Engine {
    /// The engine, which the first call starts; that may take `patience`.
    ///
    /// # Errors
    /// Any [`MpiStartError`].
    pub(crate) fn get(mpi: &'static Mpi, patience: Duration) -> Result<Arc<Self>, MpiStartError> {
        start::check(mpi)?;
        let mut engine = lock(&ENGINE);
        if let Some(engine) = &*engine {
            return Ok(Arc::clone(engine));
        }
        let (commands, received) = mpsc::channel();
        let (ready, started) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("ronde-mpi".into());
        thread
            .spawn(move || live(mpi, &received, &ready))
            .map_err(|error| MpiStartError::Thread {
                reason: error.to_string(),
            })?;
        let ours = started
            .recv_timeout(patience)
            .map_err(|_| MpiStartError::Silent {
                waited_seconds: patience.as_secs(),
            })??;
        if ours {
            start::finalize_at_exit();
        }
        let new = Arc::new(Self { commands, ours });
        *engine = Some(Arc::clone(&new));
        Ok(new)
    }

    /// Has the task that `work` makes polled until it ends, with nobody waiting for it.
    pub(super) fn spawn<F>(&self, work: impl FnOnce(Rc<World>) -> F + Send + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        let work: Work = Box::new(move |world| Box::pin(work(Rc::clone(world))));
        // The engine ends with the process alone.
        let _ = self.commands.send(Command::Run(work));
    }

    /// Whether this process's MPI was initialized here, and is finalized here.
    pub(super) fn is_ours(&self) -> bool {
        self.ours
    }

    /// Has the tasks look around at once.
    pub(super) fn look(&self) {
        let _ = self.commands.send(Command::Look);
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
        F: Future<Output = Result<T, MpiError>> + 'static,
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
        F: Future<Output = Result<T, MpiError>> + 'static,
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

    /// Finalizes MPI, if it is ours.
    pub(super) fn finalize() {
        // A process may end while a thread of it holds the lock: then it ends without.
        let Some(engine) = ENGINE.try_lock().ok().and_then(|engine| engine.clone()) else {
            return;
        };
        if engine.ours {
            let (done, finalized) = mpsc::sync_channel(2);
            if engine.commands.send(Command::Finalize(done)).is_ok() {
                // First for all ranks, of which some may go on for long; what is lost meanwhile ends it.
                while finalized.recv_timeout(FINALIZE_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    if start::is_broken() {
                        return;
                    }
                }
                if finalized.recv_timeout(FINALIZE_PATIENCE) == Err(RecvTimeoutError::Timeout) {
                    tracing::info!(
                        "MPI_Finalize does not return though all ranks are done: ending without it"
                    );
                }
            }
        }
    }
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
                    Outcome::Dropped => Err(guard.failure(&MpiError {
                        call: "the MPI thread",
                        text: "panicked; see its message above".into(),
                    })),
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
                "ronde: on host {host}: {why}; and MPI does not return from a call that waits for it: the process ends"
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

    /// What an error of MPI's is to the caller.
    fn failure(&self, error: &MpiError) -> Error;
}

/// What came of a future.
enum Outcome<T> {
    Value(T),
    Failed(MpiError),
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
async fn answered<T, F: Future<Output = Result<T, MpiError>>>(future: F, answer: Answer<T>) {
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

/// The thread's life.
fn live(mpi: &Mpi, commands: &Receiver<Command>, ready: &SyncSender<Result<bool, MpiStartError>>) {
    let world = match start::initialize(mpi) {
        Ok((world, ours)) => {
            let _ = ready.send(Ok(ours));
            Rc::new(world)
        }
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    // The kernel's default slack of 50 µs would be a large part of a short sleep.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1_000));
    let mut tasks: Vec<Task> = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    let mut quiet_since = Instant::now();
    loop {
        let mut next = match commands.try_recv() {
            Ok(command) => Some(command),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => return,
        };
        if next.is_none() {
            tasks.retain_mut(|task| task.as_mut().poll(&mut context).is_pending());
            if world.moved().take() {
                quiet_since = Instant::now();
                continue;
            }
            next = match next_command(commands, pause(quiet_since.elapsed())) {
                Ok(command) => command,
                Err(()) => return,
            };
        }
        match next {
            Some(Command::Run(work)) => tasks.push(work(&world)),
            Some(Command::Look) => {}
            Some(Command::Finalize(done)) => {
                let began = Instant::now();
                while !tasks.is_empty() && began.elapsed() < LAST_WORDS {
                    tasks.retain_mut(|task| task.as_mut().poll(&mut context).is_pending());
                    std::thread::yield_now();
                }
                tasks.clear(); // their requests are left to MPI
                let mut outcome = finalize::wait_for_all(&world);
                let _ = done.send(());
                if !start::is_broken() && outcome.is_ok() {
                    outcome = world.finalize();
                }
                if let Err(error) = outcome {
                    eprintln!("ronde: {error}");
                }
                let _ = done.send(());
                return;
            }
            None => continue,
        }
        quiet_since = Instant::now();
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
