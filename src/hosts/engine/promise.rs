//! Operation that an engine carries out for a caller, who waits for its result.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use super::Engine;
use crate::error::Error;
use crate::hosts::comm::CommError;
use crate::hosts::world::World;
use crate::sync::lock;

/// Interval of the checks whether a wait for the engine still makes sense.
const GUARD_INTERVAL: Duration = Duration::from_millis(100);

/// Time limit for the engine to drop a future: it is at most inside of one call of MPI.
const RELEASE_PATIENCE: Duration = Duration::from_secs(10);

/// Result of a future that an engine runs. While the promise exists, memory that was lent to the
/// future belongs to the engine.
pub(crate) struct Promise<T> {
    engine: Arc<Engine>,
    reply: Arc<Reply<T>>,
    /// The future has been dropped.
    kept: bool,
    /// Why nobody waits for it any longer.
    given_up: Option<String>,
}

impl<T> Promise<T> {
    pub(super) fn new(engine: &Arc<Engine>) -> (Self, Answer<T>) {
        let reply = Arc::new(Reply::default());
        let promise = Self {
            engine: Arc::clone(engine),
            reply: Arc::clone(&reply),
            kept: false,
            given_up: None,
        };
        (promise, Answer(reply))
    }

    /// Waits for the result and checks regularly with `guard` whether to go on; spins for `spin`
    /// before it sleeps. When this returns, the future has been dropped.
    ///
    /// # Errors
    /// Those of `guard`, which also converts the future's.
    pub(crate) fn keep(mut self, spin: Duration, guard: &dyn Guard) -> Result<T, Error> {
        let began = Instant::now();
        let (mut moves, mut moved) = (0, began);
        loop {
            if let Some(outcome) = self.engine.wait(&self.reply, spin, GUARD_INTERVAL) {
                return self.settle(outcome, guard);
            }
            let now_moves = self.reply.moves.load(Ordering::Relaxed);
            if now_moves != moves {
                (moves, moved) = (now_moves, Instant::now());
            }
            if let Err(error) = guard.check(began.elapsed(), moved.elapsed()) {
                if let Some(outcome) = self.reply.take() {
                    return self.settle(outcome, guard); // it came meanwhile
                }
                self.given_up = Some(error.to_string());
                return Err(error); // the drop waits until the engine has dropped the future
            }
        }
    }

    fn settle(&mut self, outcome: Outcome<T>, guard: &dyn Guard) -> Result<T, Error> {
        self.kept = true;
        match outcome {
            Outcome::Value(value) => Ok(value),
            Outcome::Failed(error) => Err(guard.failure(&error)),
            Outcome::Dropped => Err(guard.failure(&CommError::Panicked)),
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
        let outcome = self
            .engine
            .wait(&self.reply, Duration::ZERO, RELEASE_PATIENCE);
        if outcome.is_none() {
            // The engine may be about to touch memory that the caller would go on with.
            let why = self
                .given_up
                .as_deref()
                .unwrap_or("an operation was given up");
            let host = rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned();
            crate::logging::tell(format_args!(
                "on host {host}: {why}; and the thread for messages between hosts does not return \
                 from a call: the process ends"
            ));
            std::process::abort();
        }
    }
}

/// Decides while a caller waits for the engine.
pub(crate) trait Guard {
    /// Called about every 100 ms. `quiet` is the time since a part of the operation has completed,
    /// or since the beginning.
    ///
    /// # Errors
    /// The reason to give up.
    fn check(&self, waited: Duration, quiet: Duration) -> Result<(), Error>;

    /// Converts an error of an operation.
    fn failure(&self, error: &CommError) -> Error;
}

/// Result of a future.
pub(super) enum Outcome<T> {
    Value(T),
    Failed(CommError),
    /// It was dropped before it was ready.
    Dropped,
}

/// Place of the result.
pub(super) struct Reply<T> {
    outcome: Mutex<Option<Outcome<T>>>,
    there: AtomicBool,
    came: Condvar,
    /// A thread sleeps until it is there. Changed under the lock of the outcome.
    has_sleeper: AtomicBool,
    abandoned: AtomicBool,
    /// How often a part of the operation has completed.
    moves: AtomicU64,
}

impl<T> Default for Reply<T> {
    fn default() -> Self {
        Self {
            outcome: Mutex::new(None),
            there: AtomicBool::new(false),
            came: Condvar::new(),
            has_sleeper: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            moves: AtomicU64::new(0),
        }
    }
}

impl<T> Reply<T> {
    pub(super) fn is_there(&self) -> bool {
        self.there.load(Ordering::Acquire)
    }

    fn set(&self, outcome: Outcome<T>) {
        *lock(&self.outcome) = Some(outcome);
        self.there.store(true, Ordering::Release);
        // A notification is a system call, even if nobody waits for it.
        if self.has_sleeper.load(Ordering::Relaxed) {
            self.came.notify_one();
        }
    }

    /// Takes the result, if there is one.
    pub(super) fn take(&self) -> Option<Outcome<T>> {
        lock(&self.outcome).take()
    }

    /// Sleeps until there is a result, or for `patience`; takes it.
    pub(super) fn wait(&self, patience: Duration) -> Option<Outcome<T>> {
        let outcome = lock(&self.outcome);
        self.has_sleeper.store(true, Ordering::Relaxed);
        let waited = self
            .came
            .wait_timeout_while(outcome, patience, |outcome| outcome.is_none());
        let (mut outcome, _) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        self.has_sleeper.store(false, Ordering::Relaxed);
        outcome.take()
    }
}

/// The engine's end of a [`Reply`]: answers in any case, when it is dropped at the latest.
pub(super) struct Answer<T>(Arc<Reply<T>>);

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        if !self.0.is_there() {
            self.0.set(Outcome::Dropped);
        }
    }
}

/// Polls `future` until it is ready or its promise was dropped; answers when it has been dropped.
pub(super) async fn answered<T, F: Future<Output = Result<T, CommError>>>(
    future: F,
    world: Rc<World>,
    answer: Answer<T>,
) {
    // The future is dropped at the end of this block.
    let outcome = {
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(|context| {
            let before = world.completed();
            let polled = future.as_mut().poll(context);
            if world.completed() != before {
                answer.0.moves.fetch_add(1, Ordering::Relaxed);
            }
            match polled {
                Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
                Poll::Pending if answer.0.abandoned.load(Ordering::Acquire) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    };
    match outcome {
        Some(Ok(value)) => answer.0.set(Outcome::Value(value)),
        Some(Err(error)) => answer.0.set(Outcome::Failed(error)),
        None => {} // the answer's drop tells
    }
}
