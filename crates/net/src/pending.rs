//! Operations that have begun: messages on their way, and the memory that they read or write.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::error::NetError;

/// State of an operation, shared with its messages.
#[derive(Debug, Default)]
pub(crate) struct Op {
    /// Messages that are not complete.
    open: Cell<usize>,
    error: RefCell<Option<NetError>>,
    /// Nobody waits for it: receives that have not begun are removed.
    abandoned: Cell<bool>,
}

impl Op {
    /// Counts one more message.
    pub(crate) fn open(&self) {
        self.open.set(self.open.get() + 1);
    }

    /// A message is complete.
    pub(crate) fn done(&self) {
        self.open.set(self.open.get() - 1);
    }

    /// A message fails, and the operation with it; the first error remains.
    pub(crate) fn fail(&self, error: &NetError) {
        self.error.borrow_mut().get_or_insert_with(|| error.clone());
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.get()
    }
}

/// Operation that has begun. Its memory `B` is returned when all of its messages are complete: a
/// sent message when the operating system has accepted it, a received one when it is here.
///
/// A dropped operation keeps its memory until its messages have been sent, and receives no more
/// messages.
pub struct Pending<B> {
    op: Rc<Op>,
    /// Collects the memory; taken on completion.
    finish: Option<Box<dyn FnOnce() -> B>>,
}

impl<B> Pending<B> {
    pub(crate) fn new(op: Rc<Op>, finish: impl FnOnce() -> B + 'static) -> Self {
        Self {
            op,
            finish: Some(Box::new(finish)),
        }
    }

    /// Returns the memory if the operation is complete. It makes progress only while its mesh
    /// [turns](crate::Mesh::turn).
    ///
    /// # Errors
    /// A rank of the operation that is lost or has left, any lost rank of the mesh, and invalid
    /// data.
    ///
    /// # Panics
    /// If it has returned the memory before.
    pub fn test(&mut self) -> Result<Option<B>, NetError> {
        if let Some(error) = &*self.op.error.borrow() {
            return Err(error.clone());
        }
        if self.op.open.get() > 0 {
            return Ok(None);
        }
        let finish = self.finish.take().expect("an operation completes once");
        Ok(Some(finish()))
    }
}

impl<B> Drop for Pending<B> {
    fn drop(&mut self) {
        self.op.abandoned.set(true);
    }
}

// Nothing in it is pinned.
impl<B> Unpin for Pending<B> {}

/// Polled after each turn of the mesh; no waker is called.
impl<B> Future for Pending<B> {
    type Output = Result<B, NetError>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        match self.test() {
            Ok(Some(memory)) => Poll::Ready(Ok(memory)),
            Ok(None) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}
