//! Handles: what a caller holds while a tensor is in flight.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use super::buffer::{Buffer, Failed};
use super::fork;
use crate::drive::Engine;
use crate::error::Error;
use crate::queue::Ticket;

/// A tensor in flight, without its memory: for front ends that keep it themselves.
#[must_use = "the tensor's memory is in use until the handle has been waited for"]
pub struct RawHandle {
    pub(super) engine: Arc<Engine>,
    pub(super) ticket: Arc<Ticket>,
}

impl RawHandle {
    /// Whether the outcome is known; never blocks.
    pub fn is_done(&self) -> bool {
        self.ticket.is_done()
    }

    /// Sleeps until the outcome is known.
    ///
    /// # Errors
    /// Why the operation failed.
    pub fn wait(&self) -> Result<(), Error> {
        if fork::forked() {
            return Err(Error::Forked);
        }
        self.engine.wait(&self.ticket, None);
        self.ticket.outcome().unwrap_or(Err(Error::ShutDown))
    }

    /// Like [`wait`](Self::wait), for at most `timeout`; `None` if the outcome is still not known.
    pub fn wait_timeout(&self, timeout: Duration) -> Option<Result<(), Error>> {
        if fork::forked() {
            return Some(Err(Error::Forked));
        }
        let deadline = self.engine.front.clock.now() + timeout;
        self.engine.wait(&self.ticket, Some(deadline));
        self.ticket.outcome()
    }

    pub(super) fn poll_with(&self, waker: &Waker) -> Option<Result<(), Error>> {
        self.ticket.outcome().or_else(|| {
            self.ticket.register(waker);
            self.ticket.outcome() // it may have come meanwhile
        })
    }
}

/// A tensor in flight that owns its memory. Wait for it, or `.await` it, to get the buffer back with the result
/// in it; dropped before, the operation still runs and the buffer is freed when it is over.
#[must_use = "the result comes from `wait` or `.await`"]
pub struct Handle<B: Buffer> {
    pub(super) raw: RawHandle,
    /// Taken when the outcome is handed out.
    pub(super) buffer: Option<B>,
}

impl<B: Buffer> Handle<B> {
    /// The handle of a submission that may have been refused: then the buffer goes back at once.
    pub(super) fn over(buffer: B, submitted: Result<RawHandle, Error>) -> Result<Self, Failed<B>> {
        match submitted {
            Ok(raw) => Ok(Self {
                raw,
                buffer: Some(buffer),
            }),
            Err(error) => Err(Failed { error, buffer }),
        }
    }

    /// Whether the outcome is known; never blocks.
    pub fn is_done(&self) -> bool {
        self.raw.is_done()
    }

    /// Sleeps until the operation is over and gives the buffer back.
    ///
    /// # Errors
    /// Why it failed, and the buffer.
    pub fn wait(mut self) -> Result<B, Failed<B>> {
        // Refused in a forked child, the buffer is the caller's again: the parent's cycle never touches its memory.
        let outcome = self.raw.wait();
        self.hand_out(outcome)
    }

    fn hand_out(&mut self, outcome: Result<(), Error>) -> Result<B, Failed<B>> {
        let Some(buffer) = self.buffer.take() else {
            unreachable!(
                "a handle hands its buffer out once: `wait` consumes it and a finished future is not polled"
            );
        };
        match outcome {
            Ok(()) => Ok(buffer),
            Err(error) => Err(Failed { error, buffer }),
        }
    }
}

impl<B: Buffer + Unpin> Future for Handle<B> {
    type Output = Result<B, Failed<B>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        match self.raw.poll_with(cx.waker()) {
            Some(outcome) => Poll::Ready(self.hand_out(outcome)),
            None => Poll::Pending,
        }
    }
}

impl<B: Buffer> Drop for Handle<B> {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take()
            && !self.raw.is_done()
        {
            if fork::forked() {
                return drop(buffer); // a copy of the parent's; nobody writes into it here
            }
            self.raw.ticket.adopt(Box::new(buffer));
        }
    }
}
