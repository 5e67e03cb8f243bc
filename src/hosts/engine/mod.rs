//! The engine: carries out all operations between hosts, over MPI or TCP.
//!
//! Each request is a future: a few nonblocking operations, awaited one after another. A thread
//! drives the engine: it polls all futures in turn. Over MPI that is always the engine's own
//! thread. MPI reports nothing, so this thread sleeps the longer the longer nothing has happened, 5
//! ms at most. Over TCP a caller that waits drives the engine itself (`shared`), and sleeps until
//! the operating system reports that bytes can be sent or received.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::comm::CommError;
use super::world::{Carrier, World};
use crate::error::Error;

mod promise;
mod shared;
mod tasks;

pub(crate) use promise::{Guard, Promise};
use promise::{Outcome, Reply, answered};
use shared::Shared;
use tasks::{Command, Tasks};

/// Longest sleep between two looks at MPI's requests.
pub(super) const SLEEP_MAX: Duration = Duration::from_millis(5);

/// A sleep is as long as this part of the time for which nothing has happened: what it may add to a
/// wait.
const SLEEP_SHARE: u32 = 16;

/// Shorter sleeps are not worth their system call: until then the engine yields its core.
const SLEEP_MIN: Duration = Duration::from_micros(20);

/// Interval of what a caller does while it waits for an engine's thread to start.
const START_INTERVAL: Duration = Duration::from_secs(1);

/// Time limit for the last messages of tasks that are about to end: they tell which rank has left.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(1);

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
    Tcp(Arc<Shared>),
}

impl Engine {
    /// Starts the thread `name`, on which `open` creates the world; waits for it for `patience`,
    /// and calls `waiting` every second meanwhile.
    ///
    /// # Errors
    /// Those of `open`.
    pub(super) fn start<T: Send + 'static, E: Send + 'static>(
        name: &str,
        patience: Duration,
        waiting: &dyn Fn(),
        open: impl FnOnce() -> Result<(World, T), E> + Send + 'static,
    ) -> Result<(Arc<Self>, T), NotStarted<E>> {
        let (commands, received) = mpsc::channel();
        let (ready, started) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name(name.into());
        let thread = thread.spawn(move || match open() {
            Ok((world, found)) => {
                // The kernel's default slack of 50 µs would be a large part of a short sleep.
                let slack = std::num::NonZeroU64::new(1_000);
                let _ = rustix::thread::set_current_timer_slack(slack);
                match world.carrier() {
                    Carrier::Mpi(session) => {
                        let ours = session.is_ours();
                        let tasks = Tasks::new(world, received);
                        let _ = ready.send(Ok((EngineCarrier::Mpi { ours }, found)));
                        live(tasks);
                    }
                    Carrier::Tcp(_) => {
                        let shared = Arc::new(Shared::new(Tasks::new(world, received)));
                        let carrier = EngineCarrier::Tcp(Arc::clone(&shared));
                        let _ = ready.send(Ok((carrier, found)));
                        shared.live();
                    }
                }
            }
            Err(error) => {
                let _ = ready.send(Err(error));
            }
        });
        let thread = thread.map_err(NotStarted::Thread)?;
        let began = Instant::now();
        let answer = loop {
            let left = patience.saturating_sub(began.elapsed());
            match started.recv_timeout(left.min(START_INTERVAL)) {
                Err(RecvTimeoutError::Timeout) if left > START_INTERVAL => waiting(),
                answer => break answer,
            }
        };
        let (carrier, found) = answer
            .map_err(|_| NotStarted::Silent)?
            .map_err(NotStarted::Failed)?;
        let engine = Arc::new(Self {
            commands,
            thread: matches!(carrier, EngineCarrier::Tcp(_)).then_some(thread),
            carrier,
        });
        Ok((engine, found))
    }

    /// Sends a command, which is carried out when a thread drives next.
    fn send(&self, command: Command) {
        // The engine may have ended, after its last call or with a panic.
        let _ = self.commands.send(command);
    }

    fn command(&self, command: Command) {
        self.send(command);
        if let EngineCarrier::Tcp(shared) = &self.carrier {
            shared.command();
        }
    }

    /// Has the task that `work` makes polled until it ends; nothing waits for it.
    pub(super) fn spawn<F>(&self, work: impl FnOnce(Rc<World>) -> F + Send + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        self.command(task(work));
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

    /// Notes that the job has failed: its other ranks may not come to finalize MPI.
    pub(super) fn set_failed(&self) {
        if let EngineCarrier::Mpi { .. } = self.carrier {
            crate::mpi::set_failed(true);
        }
    }

    /// Has the tasks polled at once.
    pub(super) fn look(&self) {
        self.command(Command::Look);
    }

    /// Has the tasks polled soon: at once, or by a caller that is about to wait.
    pub(super) fn look_soon(&self) {
        match &self.carrier {
            EngineCarrier::Mpi { .. } => self.look(),
            EngineCarrier::Tcp(shared) => shared.hint(),
        }
    }

    /// Ends the thread, with `last` as its last call, when its tasks have ended or have had
    /// [`LAST_WORDS`] for it.
    pub(super) fn end(&self, last: impl FnOnce(&World) + Send + 'static) {
        self.command(Command::End(Box::new(last)));
    }

    /// Runs the future that `work` makes and waits for its result, as [`Promise::keep`] does.
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
        let (promise, answer) = Promise::new(self);
        self.send(task(move |world| {
            answered(work(Rc::clone(&world)), world, answer)
        }));
        promise.keep(spin, guard)
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
        let (promise, answer) = Promise::new(self);
        self.command(task(move |world| {
            answered(work(Rc::clone(&world)), world, answer)
        }));
        promise
    }

    /// Waits for the result of a future for at most `patience`, after spinning for `spin`.
    fn wait<T>(&self, reply: &Reply<T>, spin: Duration, patience: Duration) -> Option<Outcome<T>> {
        match &self.carrier {
            EngineCarrier::Mpi { .. } => {
                let began = Instant::now();
                while !reply.is_there() && began.elapsed() < spin {
                    std::hint::spin_loop();
                }
                reply.wait(patience)
            }
            EngineCarrier::Tcp(shared) => {
                shared.wait(&|| reply.is_there(), spin, patience);
                reply.take()
            }
        }
    }

    /// Whether operations fail by themselves if a rank that they need has left or is silent: over TCP,
    /// but not over MPI.
    pub(super) fn reports_peers(&self) -> bool {
        matches!(self.carrier, EngineCarrier::Tcp(_))
    }

    /// Whether the calling thread drives this engine.
    fn is_driven_here(&self) -> bool {
        match &self.carrier {
            EngineCarrier::Mpi { .. } => false,
            EngineCarrier::Tcp(shared) => shared.is_driven_here(),
        }
    }
}

/// The command to run the task that `work` makes.
fn task<F>(work: impl FnOnce(Rc<World>) -> F + Send + 'static) -> Command
where
    F: Future<Output = ()> + 'static,
{
    Command::Run(Box::new(move |world| Box::pin(work(Rc::clone(world)))))
}

impl Drop for Engine {
    /// Ends the thread of an engine over TCP: its connections are closed in order.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.end(|_| {});
            // A task's memory may have held the last engine: then the thread ends after this one
            // has stopped driving.
            if !self.is_driven_here() && thread.join().is_err() {
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

/// Lets the other tasks have their turn.
pub(crate) async fn turn() {
    let mut waited = false;
    std::future::poll_fn(|_| match std::mem::replace(&mut waited, true) {
        true => std::task::Poll::Ready(()),
        false => std::task::Poll::Pending,
    })
    .await;
}

/// Loop of the engine's thread over MPI.
fn live(mut tasks: Tasks) {
    let mut quiet_since = Instant::now();
    loop {
        if tasks.take_commands() {
            quiet_since = Instant::now();
        }
        if tasks.ends() {
            return tasks.end();
        }
        tasks.poll();
        if tasks.world().take_moved() {
            quiet_since = Instant::now();
            continue;
        }
        match next_command(tasks.commands(), pause(quiet_since.elapsed())) {
            Ok(None) => {}
            Ok(Some(command)) => {
                tasks.take(command);
                quiet_since = Instant::now();
            }
            Err(()) => return,
        }
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
