//! Tickets: the fate of a submission, from the cycle to its handle.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use atomic_waker::AtomicWaker;

use super::lock;
use crate::delivery::Delivery;
use crate::error::Error;
use crate::gpu::Mark;

const PENDING: u8 = 0;
const DONE: u8 = 1;
const FAILED: u8 = 2;

/// The fate of one submission: shared by the handle and the cycle.
#[derive(Default)]
pub(crate) struct Ticket {
    state: AtomicU8,
    error: Mutex<Option<Box<Error>>>,
    /// What the operation brought beside what it wrote to where the caller said.
    delivery: Mutex<Option<Box<Delivery>>>,
    /// When the result will be there, where the caller wanted its answer before.
    awaited: Mutex<Option<Arc<Mark>>>,
    waker: AtomicWaker,
    orphaned: AtomicBool,
    orphan: Mutex<Option<Box<dyn Any + Send>>>,
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
            _ => Some(Err(lock(&self.error)
                .as_deref()
                .map_or(Error::ShutDown, Clone::clone))),
        }
    }

    /// Has `waker` woken when the outcome is known.
    pub(crate) fn register(&self, waker: &std::task::Waker) {
        self.waker.register(waker);
    }

    /// Keeps a buffer whose handle was dropped until nobody writes into it any more.
    pub(crate) fn adopt(&self, buffer: Box<dyn Any + Send>) {
        *lock(&self.orphan) = Some(buffer);
        self.orphaned.store(true, Ordering::SeqCst);
        if self.state.load(Ordering::SeqCst) != PENDING {
            lock(&self.orphan).take();
        }
    }

    /// Leaves what the operation brought; before [`complete`](Self::complete).
    pub(crate) fn deliver(&self, delivery: Delivery) {
        *lock(&self.delivery) = Some(Box::new(delivery));
    }

    /// Takes what the operation brought; it is there once.
    pub(crate) fn take_delivery(&self) -> Option<Delivery> {
        lock(&self.delivery).take().map(|delivery| *delivery)
    }

    /// Notes when the result will be there; before [`complete`](Self::complete).
    pub(crate) fn expect(&self, mark: Arc<Mark>) {
        *lock(&self.awaited) = Some(mark);
    }

    /// When the result will be there, if it is still to come.
    pub(crate) fn awaited(&self) -> Option<Arc<Mark>> {
        lock(&self.awaited).clone()
    }

    pub(crate) fn complete(&self, outcome: Result<(), Error>) {
        let state = match outcome {
            Ok(()) => DONE,
            Err(error) => {
                *lock(&self.error) = Some(Box::new(error));
                FAILED
            }
        };
        self.state.store(state, Ordering::SeqCst);
        self.waker.wake();
        if self.orphaned.load(Ordering::SeqCst) {
            lock(&self.orphan).take();
        }
    }
}
