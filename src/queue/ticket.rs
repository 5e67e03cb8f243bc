//! Tickets: the state of a submission, written by the cycle and read by its handle.

use std::any::Any;
use std::sync::atomic::{AtomicU8, Ordering, fence};
use std::sync::{Arc, Mutex};

use atomic_waker::AtomicWaker;

use crate::delivery::Delivery;
use crate::error::Error;
use crate::gpu::Mark;
use crate::sync::lock;

const PENDING: u8 = 0;
const DONE: u8 = 1;
const FAILED: u8 = 2;

/// A waker is registered.
const HAS_WAKER: u8 = 1;
/// There is a buffer to be dropped.
const HAS_ORPHAN: u8 = 2;

/// The fate of one submission: shared by the handle and the cycle. Small, and mostly of two atomics: a step has one for
/// each tensor.
#[derive(Default)]
pub(crate) struct Ticket {
    state: AtomicU8,
    /// Flags for completion: `HAS_WAKER`, `HAS_ORPHAN`.
    flags: AtomicU8,
    /// Most operations have none of these.
    extras: Mutex<Option<Box<Extras>>>,
    waker: AtomicWaker,
}

/// State that few operations have.
#[derive(Default)]
struct Extras {
    error: Option<Error>,
    /// What the operation brought beside what it wrote to where the caller said.
    delivery: Option<Delivery>,
    /// When the result will be there, where the caller wanted its answer before.
    awaited: Option<Arc<Mark>>,
    orphan: Option<Box<dyn Any + Send>>,
}

impl Ticket {
    /// Whether the outcome is known.
    pub(crate) fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) != PENDING
    }

    /// The outcome, once known.
    pub(crate) fn outcome(&self) -> Option<Result<(), Error>> {
        match self.state.load(Ordering::Acquire) {
            PENDING => None,
            DONE => Some(Ok(())),
            _ => Some(Err(lock(&self.extras)
                .as_deref()
                .and_then(|extras| extras.error.clone())
                .unwrap_or(Error::ShutDown))),
        }
    }

    /// Has `waker` woken when the outcome is known; the caller looks for the outcome once more afterwards.
    pub(crate) fn register(&self, waker: &std::task::Waker) {
        self.waker.register(waker);
        // Pairs with `complete`: either that sees the flag, or the caller's look sees the outcome.
        self.flags.fetch_or(HAS_WAKER, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Keeps a buffer whose handle was dropped until nobody writes into it any more.
    pub(crate) fn adopt(&self, buffer: Box<dyn Any + Send>) {
        self.extras(|extras| extras.orphan = Some(buffer));
        self.flags.fetch_or(HAS_ORPHAN, Ordering::SeqCst);
        if self.state.load(Ordering::SeqCst) != PENDING {
            self.drop_orphan();
        }
    }

    /// Drops the buffer, not under the lock.
    fn drop_orphan(&self) {
        let orphan = self.extras(|extras| extras.orphan.take());
        drop(orphan);
    }

    fn extras<R>(&self, use_them: impl FnOnce(&mut Extras) -> R) -> R {
        use_them(lock(&self.extras).get_or_insert_default())
    }

    /// Leaves what the operation brought; before [`complete`](Self::complete).
    pub(crate) fn deliver(&self, delivery: Delivery) {
        self.extras(|extras| extras.delivery = Some(delivery));
    }

    /// Takes what the operation brought; it is there once.
    pub(crate) fn take_delivery(&self) -> Option<Delivery> {
        lock(&self.extras).as_mut()?.delivery.take()
    }

    /// Notes when the result will be there; before [`complete`](Self::complete).
    pub(crate) fn expect(&self, mark: Arc<Mark>) {
        self.extras(|extras| extras.awaited = Some(mark));
    }

    /// When the result will be there, if it is still to come.
    pub(crate) fn awaited(&self) -> Option<Arc<Mark>> {
        lock(&self.extras).as_ref()?.awaited.clone()
    }

    pub(crate) fn complete(&self, outcome: Result<(), Error>) {
        let state = match outcome {
            Ok(()) => DONE,
            Err(error) => {
                self.extras(|extras| extras.error = Some(error));
                FAILED
            }
        };
        self.state.store(state, Ordering::SeqCst);
        let flags = self.flags.load(Ordering::SeqCst);
        if flags & HAS_WAKER != 0 {
            self.waker.wake();
        }
        if flags & HAS_ORPHAN != 0 {
            self.drop_orphan();
        }
    }
}
