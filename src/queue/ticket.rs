//! Tickets: state of a submission, written by the cycle and read by the handle.

use std::any::Any;
use std::panic::AssertUnwindSafe;
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
/// The ticket owns the buffer of a dropped handle.
const HAS_ORPHAN: u8 = 2;
/// The ticket has or had extras.
const HAS_EXTRAS: u8 = 4;

/// Outcome of one submission, shared by the handle and the cycle. It is small, mostly two atomics,
/// because a step has one for each tensor.
#[derive(Default)]
pub(crate) struct Ticket {
    state: AtomicU8,
    /// `HAS_WAKER` and `HAS_ORPHAN`, for completion, and `HAS_EXTRAS`.
    flags: AtomicU8,
    /// Data that most operations do not have.
    extras: Mutex<Option<Box<Extras>>>,
    waker: AtomicWaker,
}

/// State that few operations have.
#[derive(Default)]
struct Extras {
    error: Option<Error>,
    /// Output that the caller did not provide memory for, and its shape.
    delivery: Option<Delivery>,
    /// Event after which the result is ready, if the operation completed before that.
    awaited: Option<Arc<Mark>>,
    orphan: Option<Box<dyn Any + Send>>,
}

impl Ticket {
    /// Resets a completed ticket if it has no other owner and no data: no allocation in a steady
    /// state. Returns whether it did.
    pub(super) fn renew(ticket: &Arc<Self>) -> bool {
        if Arc::strong_count(ticket) != 1 {
            return false;
        }
        fence(Ordering::Acquire); // after all accesses of its last other owner
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

    /// Registers `waker`, which is woken when the outcome is known. The caller must check for the
    /// outcome again afterwards.
    pub(crate) fn register(&self, waker: &std::task::Waker) {
        self.waker.register(waker);
        // Pairs with `complete`: either that sees the flag, or the caller's check sees the outcome.
        self.flags.fetch_or(HAS_WAKER, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Keeps a buffer whose handle was dropped until the operation has completed.
    pub(crate) fn adopt(&self, buffer: Box<dyn Any + Send>) {
        self.extras(|extras| extras.orphan = Some(buffer));
        self.flags.fetch_or(HAS_ORPHAN, Ordering::SeqCst);
        if self.state.load(Ordering::SeqCst) != PENDING {
            self.drop_orphan();
        }
    }

    /// Drops the buffer, without holding the lock.
    fn drop_orphan(&self) {
        let orphan = self.extras(|extras| extras.orphan.take());
        drop(orphan);
    }

    fn extras<R>(&self, use_them: impl FnOnce(&mut Extras) -> R) -> R {
        self.flags.fetch_or(HAS_EXTRAS, Ordering::Relaxed);
        use_them(lock(&self.extras).get_or_insert_default())
    }

    /// Stores the output data; called before [`complete`](Self::complete).
    pub(crate) fn deliver(&self, delivery: Delivery) {
        self.extras(|extras| extras.delivery = Some(delivery));
    }

    /// Takes the output data; `None` on later calls.
    pub(crate) fn take_delivery(&self) -> Option<Delivery> {
        if !self.has_extras() {
            return None;
        }
        lock(&self.extras).as_mut()?.delivery.take()
    }

    /// Stores the event after which the result is ready; called before
    /// [`complete`](Self::complete).
    pub(crate) fn expect(&self, mark: Arc<Mark>) {
        self.extras(|extras| extras.awaited = Some(mark));
    }

    /// Returns the event after which the result is ready, if it has not occurred yet.
    pub(crate) fn awaited(&self) -> Option<Arc<Mark>> {
        if !self.has_extras() {
            return None;
        }
        lock(&self.extras).as_ref()?.awaited.clone()
    }

    /// Whether there may be extras. A caller that has seen the ticket complete sees the extras that
    /// were stored before.
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
            catching(|| self.waker.wake());
        }
        if flags & HAS_ORPHAN != 0 {
            catching(|| self.drop_orphan());
        }
    }
}

/// Calls code of the program. A panic in it, which the panic hook reports, does not end the job.
fn catching(call: impl FnOnce()) {
    let _ = std::panic::catch_unwind(AssertUnwindSafe(call));
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct PanicsWhenDropped;

    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            panic!("as the test wants");
        }
    }

    #[test]
    fn a_buffer_that_panics_does_not_stop_who_completes_its_ticket() {
        let ticket = Ticket::default();
        ticket.adopt(Box::new(PanicsWhenDropped));
        ticket.complete(Ok(()));
        assert!(matches!(ticket.outcome(), Some(Ok(()))));
    }

    #[test]
    fn a_ticket_is_renewed_if_it_has_no_other_owner_and_no_data() {
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
