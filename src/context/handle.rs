//! Handles of tensors in flight: they wait for the outcome of an operation and return its result.

#![allow(unsafe_code)] // a stream of the caller

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use super::fork;
use super::gathered::Returned;
use crate::buffer::{Buffer, Failed};
use crate::cycle::engine::Engine;
use crate::delivery::Delivery;
use crate::device::Stream;
use crate::error::{DeviceError, Error};
use crate::queue::Ticket;
use crate::tensor::Device;

/// Handle of a tensor in flight, without its memory: for front ends that own the memory themselves.
#[must_use = "the tensor's memory is in use until the handle has been waited for"]
pub struct RawHandle {
    pub(crate) engine: Arc<Engine>,
    pub(crate) ticket: Arc<Ticket>,
}

impl fmt::Debug for RawHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawHandle")
            .field("is_done", &self.is_done())
            .finish_non_exhaustive()
    }
}

impl RawHandle {
    /// Whether the outcome is known; never blocks.
    pub fn is_done(&self) -> bool {
        self.ticket.is_done()
    }

    /// Sleeps until the outcome is known; later calls return the same outcome.
    ///
    /// # Errors
    /// The error of the operation.
    pub fn wait(&self) -> Result<(), Error> {
        wait(&self.engine, &self.ticket)
    }

    /// Like [`wait`](Self::wait), for at most `timeout`; `None` if the outcome is still unknown. A
    /// thread that takes part in a step, in place of the background thread, returns when the step has
    /// ended, which a stopped rank delays.
    pub fn wait_timeout(&self, timeout: Duration) -> Option<Result<(), Error>> {
        if self.ticket.is_done() {
            return self.ticket.outcome();
        }
        if fork::forked() {
            return Some(Err(Error::Forked));
        }
        let deadline = self.engine.queue.clock.now() + timeout;
        self.engine.wait(&self.ticket, Some(deadline));
        self.ticket.outcome()
    }

    /// Whether the operation may complete before its result is written on the GPU; see
    /// [`put_before`](Self::put_before).
    pub fn is_ahead(&self) -> bool {
        self.ticket.awaited().is_some()
    }

    /// Makes later work on the CUDA stream `stream` (a `CUstream`) wait for the result. With
    /// `HOROVOD_ENABLE_ASYNC_COMPLETION`, an operation on a GPU completes on the host as soon as it
    /// is queued on the device, before its result is written. In other cases, and before the
    /// operation completes, the call has no effect.
    ///
    /// # Errors
    /// An error of the device.
    ///
    /// # Safety
    /// `stream` is 0, or a stream of the tensor's device that has not been destroyed.
    pub unsafe fn put_before(&self, stream: u64) -> Result<(), Error> {
        let Some(mark) = self.ticket.awaited() else {
            return Ok(());
        };
        let put = mark.precede(Stream(stream));
        put.map_err(|error| DeviceError::of_rank(self.engine.rank, error).into())
    }

    /// Takes the output data of a completed operation: shape, received splits, and memory that the
    /// runtime allocated. `None` on later calls, and for an allreduce or broadcast into given
    /// memory.
    pub fn take_delivery(&self) -> Option<Delivery> {
        self.ticket.take_delivery()
    }

    pub(super) fn poll_with(&self, waker: &Waker) -> Option<Result<(), Error>> {
        self.ticket.outcome().or_else(|| {
            if fork::forked() {
                return Some(Err(Error::Forked));
            }
            self.ticket.register(waker);
            self.ticket.outcome() // it may have completed meanwhile
        })
    }
}

/// The outcome, as from [`wait`](RawHandle::wait).
impl Future for RawHandle {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        self.poll_with(cx.waker())
            .map_or(Poll::Pending, Poll::Ready)
    }
}

/// Sleeps until the outcome of `ticket` is known.
pub(super) fn wait(engine: &Engine, ticket: &Ticket) -> Result<(), Error> {
    if !ticket.is_done() {
        if fork::forked() {
            return Err(Error::Forked);
        }
        engine.wait(ticket, None);
    }
    ticket.outcome().unwrap_or(Err(Error::ShutDown))
}

/// Handle of a tensor in flight that owns its memory. Wait for it, or `.await` it, to get the
/// result: the buffer itself for operations in place, [`Gathered`](super::Gathered) for the others.
/// If the handle is dropped, the operation still runs, and the buffer is freed when it completes.
#[must_use = "the result comes from `wait` or `.await`"]
pub struct Handle<B: Buffer, R: Returned<B> = B> {
    raw: RawHandle,
    /// Taken when the outcome is returned.
    buffer: Option<B>,
    result: PhantomData<fn() -> R>,
}

impl<B: Buffer, R: Returned<B>> fmt::Debug for Handle<B, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the buffer: other threads write it while the operation runs.
        f.debug_struct("Handle")
            .field("is_done", &self.is_done())
            .finish_non_exhaustive()
    }
}

impl<B: Buffer, R: Returned<B>> Handle<B, R> {
    pub(super) fn new(buffer: B, raw: RawHandle) -> Self {
        Self {
            raw,
            buffer: Some(buffer),
            result: PhantomData,
        }
    }

    /// Returns the handle of a submission. If the submission failed, returns the buffer with the
    /// error.
    pub(super) fn over(buffer: B, submitted: Result<RawHandle, Error>) -> Result<Self, Failed<B>> {
        match submitted {
            Ok(raw) => Ok(Self::new(buffer, raw)),
            Err(error) => Err(Failed { error, buffer }),
        }
    }

    /// Whether the outcome is known; never blocks.
    pub fn is_done(&self) -> bool {
        self.raw.is_done()
    }

    /// Sleeps until the operation is over and returns the result.
    ///
    /// # Errors
    /// The error of the operation, with the buffer.
    pub fn wait(mut self) -> Result<R, Failed<B>> {
        // In a forked child the wait fails and the buffer is returned: the parent's cycle never
        // accesses the child's memory.
        let outcome = self.raw.wait();
        self.hand_out(outcome)
    }

    fn hand_out(&mut self, outcome: Result<(), Error>) -> Result<R, Failed<B>> {
        let Some(buffer) = self.buffer.take() else {
            unreachable!(
                "a handle hands its buffer out once: `wait` consumes it and a finished future is not polled"
            );
        };
        match outcome {
            Ok(()) => {
                let returned = R::returned(buffer, || self.raw.take_delivery());
                returned.map_err(|(buffer, error)| Failed {
                    error: DeviceError::of_rank(self.raw.engine.rank, error).into(),
                    buffer,
                })
            }
            Err(error) => Err(Failed { error, buffer }),
        }
    }
}

impl<B: Buffer + Unpin, R: Returned<B>> Future for Handle<B, R> {
    type Output = Result<R, Failed<B>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        match self.raw.poll_with(cx.waker()) {
            Some(outcome) => Poll::Ready(self.hand_out(outcome)),
            None => Poll::Pending,
        }
    }
}

impl<B: Buffer, R: Returned<B>> Drop for Handle<B, R> {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take()
            && !self.raw.is_done()
        {
            if fork::forked() {
                return drop(buffer); // a copy of the parent's buffer: no thread writes into it here
            }
            self.raw.ticket.adopt(match buffer.device() {
                Device::Cpu => Box::new(buffer),
                Device::Cuda { .. } => Box::new(FreedElsewhere(Some(buffer))),
            });
        }
    }
}

/// Buffer on a GPU that is freed by a thread of its own. Freeing waits until the device is idle,
/// and if a rank is lost, only the thread that completes tickets can end what is on the device.
struct FreedElsewhere<B: Send + 'static>(Option<B>);

impl<B: Send + 'static> Drop for FreedElsewhere<B> {
    fn drop(&mut self) {
        let buffer = self.0.take();
        let thread = std::thread::Builder::new().name("ronde-free".to_owned());
        let _ = thread.spawn(move || drop(buffer)); // without a thread, it is freed here
    }
}

/// Handle of a group of tensors in flight: submitted at once, fused together, returned together.
#[must_use = "the results come from `wait` or `.await`"]
pub struct GroupHandle<B: Buffer, R: Returned<B> = B> {
    handles: Vec<Handle<B, R>>,
}

impl<B: Buffer, R: Returned<B>> fmt::Debug for GroupHandle<B, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupHandle")
            .field("tensors", &self.handles.len())
            .field("is_done", &self.is_done())
            .finish_non_exhaustive()
    }
}

impl<B: Buffer, R: Returned<B>> GroupHandle<B, R> {
    pub(super) fn new(handles: Vec<Handle<B, R>>) -> Self {
        Self { handles }
    }

    /// Whether all outcomes are known; never blocks.
    pub fn is_done(&self) -> bool {
        self.handles.iter().all(Handle::is_done)
    }

    /// Sleeps until all operations are over and returns the results, in the order of submission.
    ///
    /// # Errors
    /// The first failure in that order, with its buffer. The other buffers are freed.
    pub fn wait(self) -> Result<Vec<R>, Failed<B>> {
        // Waits for all handles, also after a failure: no tensor of a group is in flight when this
        // returns.
        let outcomes: Vec<_> = self.handles.into_iter().map(Handle::wait).collect();
        outcomes.into_iter().collect()
    }

    /// Returns the handles of the tensors, in the order of submission.
    pub fn into_handles(self) -> Vec<Handle<B, R>> {
        self.handles
    }
}

impl<B: Buffer + Unpin, R: Returned<B>> Future for GroupHandle<B, R> {
    type Output = Result<Vec<R>, Failed<B>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        // `any` stops at the first pending handle, which keeps the waker; the others are polled
        // when it completes.
        let pending = |handle: &&Handle<B, R>| handle.raw.poll_with(cx.waker()).is_none();
        if self.handles.iter().any(|handle| pending(&handle)) {
            return Poll::Pending;
        }
        let outcomes: Vec<_> = std::mem::take(&mut self.handles)
            .into_iter()
            .map(Handle::wait)
            .collect();
        Poll::Ready(outcomes.into_iter().collect())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::thread::{self, ThreadId};

    use super::*;

    struct Probe(Sender<ThreadId>);

    impl Drop for Probe {
        fn drop(&mut self) {
            let _ = self.0.send(thread::current().id()); // the test waits for it
        }
    }

    #[test]
    fn a_buffer_that_is_freed_elsewhere_does_not_hold_up_who_drops_it() {
        let (sender, receiver) = channel();
        drop(FreedElsewhere(Some(Probe(sender))));
        let freed_by = receiver.recv_timeout(Duration::from_secs(20));
        assert_ne!(freed_by.expect("it is freed"), thread::current().id());
    }
}
