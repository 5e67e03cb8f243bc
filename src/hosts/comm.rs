//! Communicator: nonblocking messages of bytes and collective operations among ranks, over MPI or
//! TCP.
//!
//! The operations have the meaning of MPI's of the same name. The ranks of a communicator begin the
//! same collective operations in the same order; they may complete in any order.

use std::cell::Cell;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use ronde_net::{Memory, NetError, Parts, part_range};

use super::traffic::{count_collective, count_message};
use crate::mpi::{self, MpiError};

/// Error of an operation between hosts.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum CommError {
    /// Over MPI.
    #[error(transparent)]
    Mpi(#[from] MpiError),
    /// Over TCP.
    #[error(transparent)]
    Tcp(#[from] NetError),
    /// The thread that carries out operations has ended.
    #[error("the thread for messages between hosts panicked; see its message above")]
    Panicked,
}

impl CommError {
    /// Whether the reason is a rank that has left in order.
    pub(super) fn is_left(&self) -> bool {
        matches!(self, Self::Tcp(NetError::Left { .. }))
    }
}

/// Operations that have completed.
#[derive(Debug, Default)]
pub(super) struct Moved {
    count: Cell<u64>,
    /// Those at the engine's last look.
    seen: Cell<u64>,
}

impl Moved {
    /// Whether any operation has completed since the last call: while some do, the engine does not
    /// sleep.
    pub(super) fn take(&self) -> bool {
        self.seen.replace(self.count.get()) != self.count.get()
    }

    pub(super) fn count(&self) -> u64 {
        self.count.get()
    }
}

/// Operations that have begun, and the memory that they read and write, which is returned when all
/// have completed. If it is dropped before, the memory stays allocated as long as it is needed.
pub(crate) struct Pending<B> {
    operation: Operation<B>,
    moved: Rc<Moved>,
}

enum Operation<B> {
    Mpi(mpi::Pending<B>),
    Tcp(ronde_net::Pending<B>),
}

impl<B> Pending<B> {
    /// Returns the memory if the operations have completed.
    ///
    /// # Errors
    /// Those of the operations.
    ///
    /// # Panics
    /// If it has returned the memory before.
    pub(crate) fn test(&mut self) -> Result<Option<B>, CommError> {
        let memory = match &mut self.operation {
            Operation::Mpi(pending) => pending.test()?,
            Operation::Tcp(pending) => pending.test()?,
        };
        if memory.is_some() {
            self.moved.count.set(self.moved.count.get() + 1);
        }
        Ok(memory)
    }

    /// Ends a receive, whether a message has come or not.
    ///
    /// # Errors
    /// MPI's.
    pub(super) fn cancel(self) -> Result<(), CommError> {
        match self.operation {
            Operation::Mpi(pending) => Ok(pending.cancel()?),
            Operation::Tcp(_) => Ok(()),
        }
    }
}

// Nothing in it is pinned: messages have the addresses of the memory, not of its owner.
impl<B> Unpin for Pending<B> {}

impl<B> Future for Pending<B> {
    type Output = Result<B, CommError>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        match self.test() {
            Ok(Some(memory)) => Poll::Ready(Ok(memory)),
            Ok(None) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

/// Result of beginning an operation over memory `B`.
type Started<B> = Result<Pending<B>, CommError>;

/// Communicator.
#[derive(Clone)]
pub(crate) struct Comm {
    carrier: Carrier,
    moved: Rc<Moved>,
}

#[derive(Clone)]
enum Carrier {
    Mpi(mpi::Comm),
    Tcp(ronde_net::Comm),
}

/// Begins an operation of the communicator.
macro_rules! begin {
    ($comm:ident . $call:ident ( $($argument:expr),* )) => {{
        let operation = match &$comm.carrier {
            Carrier::Mpi(comm) => Operation::Mpi(comm.$call($($argument),*)?),
            Carrier::Tcp(comm) => Operation::Tcp(comm.$call($($argument),*)),
        };
        let moved = Rc::clone(&$comm.moved);
        Ok(Pending { operation, moved })
    }};
}

impl Comm {
    pub(super) fn over_mpi(comm: mpi::Comm, moved: &Rc<Moved>) -> Self {
        Self {
            carrier: Carrier::Mpi(comm),
            moved: Rc::clone(moved),
        }
    }

    /// A communicator of a simulated network.
    #[cfg(test)]
    pub(crate) fn simulated(comm: ronde_net::Comm) -> Self {
        Self::over_tcp(comm, &Rc::default())
    }

    pub(super) fn over_tcp(comm: ronde_net::Comm, moved: &Rc<Moved>) -> Self {
        Self {
            carrier: Carrier::Tcp(comm),
            moved: Rc::clone(moved),
        }
    }

    /// Returns MPI's communicator.
    ///
    /// # Panics
    /// If this is none of MPI's.
    pub(super) fn as_mpi(&self) -> &mpi::Comm {
        match &self.carrier {
            Carrier::Mpi(comm) => comm,
            Carrier::Tcp(_) => unreachable!("a communicator of a world over MPI"),
        }
    }

    /// Returns TCP's communicator, if this is one.
    fn as_tcp(&self) -> Option<&ronde_net::Comm> {
        match &self.carrier {
            Carrier::Mpi(_) => None,
            Carrier::Tcp(comm) => Some(comm),
        }
    }

    /// This rank, `0..size`.
    pub(crate) fn rank(&self) -> usize {
        match &self.carrier {
            Carrier::Mpi(comm) => comm.rank(),
            Carrier::Tcp(comm) => comm.rank(),
        }
    }

    /// Number of ranks.
    pub(crate) fn size(&self) -> usize {
        match &self.carrier {
            Carrier::Mpi(comm) => comm.size(),
            Carrier::Tcp(comm) => comm.size(),
        }
    }

    /// Sends `memory` to rank `to`.
    pub(crate) fn send(&self, memory: Vec<u8>, to: usize, tag: u16) -> Started<Vec<u8>> {
        count_message(memory.len());
        begin!(self.send(memory, to, tag))
    }

    /// Receives a message of `memory.len()` bytes from rank `from`, or from any rank.
    pub(crate) fn receive(
        &self,
        memory: Vec<u8>,
        from: Option<usize>,
        tag: u16,
    ) -> Started<Vec<u8>> {
        begin!(self.receive(memory, from, tag))
    }

    /// Sends each rank its part of `chunk`, where rank *r*'s begins at *r* · `part`, and receives
    /// the other ranks' contributions to its own part: to `received`, in rank order, without this
    /// rank's. The chunk has `bytes` bytes.
    pub(crate) fn scatter(
        &self,
        chunk: Vec<u8>,
        received: Vec<u8>,
        part: usize,
        bytes: usize,
        tag: u16,
    ) -> Started<(Vec<u8>, Vec<u8>)> {
        self.count_parts(part, bytes);
        begin!(self.scatter(chunk, received, part, bytes, tag))
    }

    /// Counts a message to each other rank, of its part of a chunk of `bytes` bytes.
    fn count_parts(&self, part: usize, bytes: usize) {
        let others = (0..self.size()).filter(|rank| *rank != self.rank());
        others.for_each(|rank| count_message(part_range(rank, part, bytes).len()));
    }

    /// Sends this rank's part of `chunk` to the other ranks, and receives theirs in their places.
    pub(crate) fn gather_parts_of(
        &self,
        chunk: Vec<u8>,
        part: usize,
        bytes: usize,
        tag: u16,
    ) -> Started<Vec<u8>> {
        self.count_to_all(part_range(self.rank(), part, bytes).len());
        begin!(self.gather_parts_of(chunk, part, bytes, tag))
    }

    /// Counts a message of `bytes` bytes to each other rank.
    fn count_to_all(&self, bytes: usize) {
        (1..self.size()).for_each(|_| count_message(bytes));
    }

    /// Whether messages can be sent from memory that they borrow, and received to it: those over
    /// TCP. They borrow it until the operation completes or [`detach`](Self::detach) is called.
    pub(crate) fn borrows(&self) -> bool {
        self.as_tcp().is_some()
    }

    /// Receives `bytes` bytes from each of the other ranks to `received`, in rank order.
    ///
    /// # Panics
    /// If this communicator does not [borrow](Self::borrows).
    pub(crate) fn receive_from_all(
        &self,
        received: Vec<u8>,
        bytes: usize,
        tag: u16,
    ) -> Pending<Vec<u8>> {
        self.begin(|comm| comm.receive_from_all(received, bytes, tag))
    }

    /// Sends each other rank its part of `chunk`, a range of `memory`.
    ///
    /// # Panics
    /// As [`receive_from_all`](Self::receive_from_all).
    pub(crate) fn send_parts(
        &self,
        memory: &Rc<dyn Memory>,
        chunk: &Range<usize>,
        part: usize,
        tag: u16,
    ) -> Pending<()> {
        self.count_parts(part, chunk.len());
        self.begin(|comm| comm.send_parts(memory, chunk, part, tag))
    }

    /// Receives from each other rank its part of `chunk`, a range of `memory`.
    ///
    /// # Panics
    /// As [`receive_from_all`](Self::receive_from_all).
    pub(crate) fn receive_parts(
        &self,
        memory: &Rc<dyn Memory>,
        chunk: &Range<usize>,
        part: usize,
        tag: u16,
    ) -> Pending<()> {
        self.begin(|comm| comm.receive_parts(memory, chunk, part, tag))
    }

    /// Sends `range` of `memory` to all other ranks.
    ///
    /// # Panics
    /// As [`receive_from_all`](Self::receive_from_all).
    pub(crate) fn send_to_all(
        &self,
        memory: &Rc<dyn Memory>,
        range: &Range<usize>,
        tag: u16,
    ) -> Pending<()> {
        self.count_to_all(range.len());
        self.begin(|comm| comm.send_to_all(memory, range, tag))
    }

    /// Ends all use of `memory` by messages.
    pub(crate) fn detach(&self, memory: &Rc<dyn Memory>) {
        if let Some(comm) = self.as_tcp() {
            comm.detach(memory);
        }
    }

    fn begin<B>(
        &self,
        operation: impl FnOnce(&ronde_net::Comm) -> ronde_net::Pending<B>,
    ) -> Pending<B> {
        let comm = self.as_tcp().expect("a communicator that borrows");
        Pending {
            operation: Operation::Tcp(operation(comm)),
            moved: Rc::clone(&self.moved),
        }
    }

    /// Sends the first `bytes` bytes of rank `root`'s `memory` to all ranks.
    pub(crate) fn broadcast(&self, memory: Vec<u8>, bytes: usize, root: usize) -> Started<Vec<u8>> {
        count_collective();
        begin!(self.broadcast(memory, bytes, root))
    }

    /// Sends the first `bytes` bytes of every rank's `send` to all ranks' `receive`, in rank order.
    pub(crate) fn allgather(
        &self,
        send: Vec<u8>,
        receive: Vec<u8>,
        bytes: usize,
    ) -> Started<(Vec<u8>, Vec<u8>)> {
        count_collective();
        begin!(self.allgather(send, receive, bytes))
    }

    /// Sends every rank's `send` to all ranks' `receive`, to the places in `parts`.
    pub(crate) fn allgather_parts(
        &self,
        send: Vec<u8>,
        receive: Vec<u8>,
        parts: Parts,
    ) -> Started<(Vec<u8>, Vec<u8>, Parts)> {
        count_collective();
        begin!(self.allgather_parts(send, receive, parts))
    }

    /// Sends the first `bytes` bytes of every rank's `send` to rank `root`'s `receive`, in rank
    /// order; the other ranks' `receive` stays as it is.
    pub(crate) fn gather(
        &self,
        send: Vec<u8>,
        receive: Vec<u8>,
        bytes: usize,
        root: usize,
    ) -> Started<(Vec<u8>, Vec<u8>)> {
        count_collective();
        begin!(self.gather(send, receive, bytes, root))
    }

    /// Sends each rank its part of `send`, and receives from each rank a part of `receive`.
    pub(crate) fn alltoall_parts(
        &self,
        send: (Vec<u8>, Parts),
        receive: (Vec<u8>, Parts),
    ) -> Started<[(Vec<u8>, Parts); 2]> {
        count_collective();
        begin!(self.alltoall_parts(send, receive))
    }
}
