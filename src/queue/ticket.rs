//! Tickets: the state of a submission, written by the cycle and read by its handle.

use std::any::Any;
use std::sync::atomic::{AtomicU8, Ordering, fence};
use std::sync::{Arc, Mutex};

use atomic_waker::AtomicWaker;

use crate::delivery::Delivery;
use crate::device::Mark;
use crate::error::Error;
use crate::sync::lock;

const PENDING: u8 = 0;
const DONE: u8 = 1;
const FAILED: u8 = 2;

/// A waker is registered.
const HAS_WAKER: u8 = 1;
/// There is a buffer to be dropped.
const HAS_ORPHAN: u8 = 2;
/// There are extras, or there were.
const HAS_EXTRAS: u8 = 4;

/// The fate of one submission: shared by the handle and the cycle. Small, and mostly of two atomics: a step has one for
/// each tensor.
#[derive(Default)]
pub(crate) struct Ticket {
    state: AtomicU8,
    /// `HAS_WAKER` and `HAS_ORPHAN`, for completion, and `HAS_EXTRAS`.
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
    /// Makes a ticket that is done a fresh one if nobody else holds it and nothing was left in it:
    /// no allocation in a steady state. Whether it has.
    pub(super) fn renew(ticket: &Arc<Self>) -> bool {
        if Arc::strong_count(ticket) != 1 {
            return false;
        }
        fence(Ordering::Acquire); // after all that its last other holder did
        let is_empty = ticket.flags.load(Ordering::Relaxed) == 0;
        if is_empty {
            ticket.state.store(PENDING, Ordering::Relaxed);
        }
        is_empty
    }

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
        self.flags.fetch_or(HAS_EXTRAS, Ordering::Relaxed);
        use_them(lock(&self.extras).get_or_insert_default())
    }

    /// Leaves what the operation brought; before [`complete`](Self::complete).
    pub(crate) fn deliver(&self, delivery: Delivery) {
        self.extras(|extras| extras.delivery = Some(delivery));
    }

    /// Takes what the operation brought; it is there once.
    pub(crate) fn take_delivery(&self) -> Option<Delivery> {
        if !self.has_extras() {
            return None;
        }
        lock(&self.extras).as_mut()?.delivery.take()
    }

    /// Notes when the result will be there; before [`complete`](Self::complete).
    pub(crate) fn expect(&self, mark: Arc<Mark>) {
        self.extras(|extras| extras.awaited = Some(mark));
    }

    /// When the result will be there, if it is still to come.
    pub(crate) fn awaited(&self) -> Option<Arc<Mark>> {
        if !self.has_extras() {
            return None;
        }
        lock(&self.extras).as_ref()?.awaited.clone()
    }

    /// Whether there may be extras. Who has seen that the ticket is done sees those that were left before.
    fn has_extras(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & HAS_EXTRAS != 0
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_renewed_if_nobody_else_holds_it_and_nothing_was_left_in_it() {
        let done = |outcome| {
            let ticket = Arc::<Ticket>::default();
            ticket.complete(outcome);
            ticket
        };
        let ticket = done(Ok(()));
        let other = Arc::clone(&ticket);
        assert!(!Ticket::renew(&ticket));
        assert!(other.is_done());
        drop(other);
        assert!(Ticket::renew(&ticket));
        assert!(!ticket.is_done() && ticket.outcome().is_none());
        ticket.complete(Ok(()));
        assert!(matches!(ticket.outcome(), Some(Ok(()))));

        assert!(!Ticket::renew(&done(Err(Error::ShutDown))));
        let ticket = Arc::<Ticket>::default();
        ticket.deliver(Delivery::default());
        ticket.complete(Ok(()));
        assert!(!Ticket::renew(&ticket));
        assert!(ticket.take_delivery().is_some() && ticket.take_delivery().is_none());
        let ticket = done(Ok(()));
        ticket.register(std::task::Waker::noop());
        assert!(!Ticket::renew(&ticket));
    }
}
