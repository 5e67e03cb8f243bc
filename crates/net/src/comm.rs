//! Communicator: nonblocking messages and collective operations of some ranks of a mesh.
//!
//! The operations have the meaning of MPI's of the same name, on bytes. The ranks of a
//! communicator begin the same collective operations in the same order; they may complete in any
//! order. Every rank exchanges its parts with each of the others directly.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use crate::error::NetError;
use crate::inbox::Receive;
use crate::memory::{Buffer, Memory, Slice};
use crate::mesh::Mesh;
use crate::pending::{Op, Pending};

/// Tags of collective operations have this bit; those of messages have not.
const COLLECTIVE: u32 = 1 << 31;

/// Lengths of the parts of a buffer, one per rank, one after another. They are 32-bit integers, as
/// MPI takes them: what is sent at once is far shorter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    counts: Vec<i32>,
    begins: Vec<i32>,
    bytes: usize,
}

impl Parts {
    /// Parts of these lengths, bytes.
    ///
    /// # Panics
    /// If they have 2 GiB or more together.
    pub fn of(lengths: impl IntoIterator<Item = usize>) -> Self {
        let number = |bytes: usize| i32::try_from(bytes).expect("parts have less than 2 GiB");
        let mut parts = Self::default();
        for length in lengths {
            parts.counts.push(number(length));
            parts.begins.push(number(parts.bytes));
            parts.bytes += length;
        }
        parts
    }

    /// Number of parts.
    fn count(&self) -> usize {
        self.counts.len()
    }

    /// Length of all parts together.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Length of each part.
    pub fn counts(&self) -> &[i32] {
        &self.counts
    }

    /// Where each part begins.
    pub fn begins(&self) -> &[i32] {
        &self.begins
    }

    /// Range of part `index` in the buffer.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn range(&self, index: usize) -> Range<usize> {
        let begin = self.begins[index] as usize;
        begin..begin + self.counts[index] as usize
    }
}

/// Range of part `index` of a chunk of `bytes` bytes that is cut into parts of `part` bytes; the
/// last ones may be shorter.
pub fn part_range(index: usize, part: usize, bytes: usize) -> Range<usize> {
    let begin = (index * part).min(bytes);
    begin..(begin + part).min(bytes)
}

/// Carrier of the messages of one rank: a mesh, or a simulated network.
pub(crate) trait Carrier {
    /// Begins to send `slice` to rank `to`.
    fn send(&self, to: usize, channel: u64, tag: u32, slice: Slice, op: &Rc<Op>);

    /// Begins to receive.
    fn receive(&self, channel: u64, receive: Receive);

    /// See [`Comm::detach`].
    fn detach(&self, memory: &Rc<dyn Memory>);
}

/// Communicator of some ranks of a mesh.
#[derive(Clone)]
pub struct Comm {
    carrier: Rc<dyn Carrier>,
    channel: u64,
    /// Ranks of the mesh.
    members: Rc<[usize]>,
    /// This rank, as an index into `members`.
    rank: usize,
    /// Collective operations so far.
    collectives: Rc<Cell<u32>>,
}

/// Messages of one operation.
struct Messages<'a> {
    comm: &'a Comm,
    tag: u32,
    op: Rc<Op>,
}

impl Messages<'_> {
    fn send(&self, memory: Rc<dyn Memory>, range: Range<usize>, to: usize) {
        if range.is_empty() {
            return; // no rank expects it
        }
        let slice = Slice::new(memory, range);
        let Comm {
            carrier,
            channel,
            members,
            ..
        } = self.comm;
        carrier.send(members[to], *channel, self.tag, slice, &self.op);
    }

    fn receive(&self, memory: Rc<dyn Memory>, range: Range<usize>, from: Option<usize>) {
        if range.is_empty() {
            return;
        }
        let receive = Receive {
            from: from.map(|from| self.comm.members[from]),
            tag: self.tag,
            slice: Slice::new(memory, range),
            op: Rc::clone(&self.op),
        };
        self.comm.carrier.receive(self.comm.channel, receive);
    }

    /// Receives from all other ranks, `bytes` bytes each, to `received`, in rank order.
    fn receive_from_all(&self, received: &Buffer, bytes: usize) {
        assert!(bytes * (self.comm.size() - 1) <= received.borrow().len());
        for (_, from) in self.comm.others() {
            let place = from - usize::from(from > self.comm.rank);
            let place = place * bytes..(place + 1) * bytes;
            self.receive(received.clone(), place, Some(from));
        }
    }

    /// Sends each other rank its part of `chunk`.
    fn send_parts(&self, memory: &Rc<dyn Memory>, chunk: &Range<usize>, part: usize) {
        assert!(part * self.comm.size() >= chunk.len());
        for (to, _) in self.comm.others() {
            self.send(memory.clone(), part_of(chunk, to, part), to);
        }
    }

    /// Receives the parts of `chunk` of all other ranks from these.
    fn receive_parts(&self, memory: &Rc<dyn Memory>, chunk: &Range<usize>, part: usize) {
        assert!(part * self.comm.size() >= chunk.len());
        for (_, from) in self.comm.others() {
            self.receive(memory.clone(), part_of(chunk, from, part), Some(from));
        }
    }

    /// Sends the bytes `range` to all other ranks.
    fn send_to_all(&self, memory: &Rc<dyn Memory>, range: &Range<usize>) {
        for (to, _) in self.comm.others() {
            self.send(memory.clone(), range.clone(), to);
        }
    }

    fn pending<B>(self, finish: impl FnOnce() -> B + 'static) -> Pending<B> {
        Pending::new(self.op, finish)
    }
}

/// Range of part `index` of `chunk`, a part of a memory; see [`part_range`].
fn part_of(chunk: &Range<usize>, index: usize, part: usize) -> Range<usize> {
    let range = part_range(index, part, chunk.len());
    chunk.start + range.start..chunk.start + range.end
}

/// The memory that `buffer` is.
fn memory(buffer: &Buffer) -> Rc<dyn Memory> {
    buffer.clone()
}

/// Makes the memory of an operation.
fn buffer(memory: Vec<u8>) -> Buffer {
    Rc::new(RefCell::new(memory))
}

impl Comm {
    /// Creates a communicator of the ranks `members` of `mesh`, which all make this call; connects
    /// them. `channel` is a number that no other communicator of the mesh has, and that all
    /// members give.
    ///
    /// # Errors
    /// Those of [`Mesh::connect`].
    ///
    /// # Panics
    /// If this rank is not in `members`.
    pub fn new(mesh: &Rc<Mesh>, channel: u64, members: &[usize]) -> Result<Self, NetError> {
        let rank = members.iter().position(|member| *member == mesh.rank());
        let rank = rank.expect("a rank creates communicators that it is in");
        mesh.connect(members)?;
        Ok(Self::over(
            Rc::clone(mesh) as Rc<dyn Carrier>,
            channel,
            members,
            rank,
        ))
    }

    /// The communicator of member `rank` of `members` over `carrier`.
    pub(crate) fn over(
        carrier: Rc<dyn Carrier>,
        channel: u64,
        members: &[usize],
        rank: usize,
    ) -> Self {
        Self {
            carrier,
            channel,
            members: members.into(),
            rank,
            collectives: Rc::default(),
        }
    }

    /// This rank, `0..size`.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.members.len()
    }

    fn messages(&self, tag: u32) -> Messages<'_> {
        Messages {
            comm: self,
            tag,
            op: Rc::default(),
        }
    }

    /// Messages of the next collective operation.
    fn collective(&self) -> Messages<'_> {
        let number = self.collectives.get();
        self.collectives.set(number.wrapping_add(1));
        self.messages(COLLECTIVE | number)
    }

    /// The other ranks: the one to send to and the one to receive from. If all ranks take them in
    /// this order, each receives from one at a time.
    fn others(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (rank, size) = (self.rank, self.size());
        (1..size).map(move |distance| ((rank + distance) % size, (rank + size - distance) % size))
    }

    /// Sends `memory` to rank `to`.
    ///
    /// # Panics
    /// If that is this rank.
    pub fn send(&self, memory: Vec<u8>, to: usize, tag: u16) -> Pending<Vec<u8>> {
        assert_ne!(to, self.rank, "a rank sends no message to itself");
        let messages = self.messages(u32::from(tag));
        let memory = buffer(memory);
        let all = 0..memory.borrow().len();
        messages.send(memory.clone(), all, to);
        messages.pending(move || memory.take())
    }

    /// Receives `memory.len()` bytes from rank `from`, or from any rank.
    pub fn receive(&self, memory: Vec<u8>, from: Option<usize>, tag: u16) -> Pending<Vec<u8>> {
        let messages = self.messages(u32::from(tag));
        let memory = buffer(memory);
        let all = 0..memory.borrow().len();
        messages.receive(memory.clone(), all, from);
        messages.pending(move || memory.take())
    }

    /// Sends each rank its part of `chunk`, where rank *r*'s begins at *r* · `part`, and receives
    /// the other ranks' contributions to its own part: to `received`, in rank order, without this
    /// rank's. The chunk has `bytes` bytes.
    ///
    /// # Panics
    /// If the memory is too short.
    pub fn scatter(
        &self,
        chunk: Vec<u8>,
        received: Vec<u8>,
        part: usize,
        bytes: usize,
        tag: u16,
    ) -> Pending<(Vec<u8>, Vec<u8>)> {
        assert!(bytes <= chunk.len());
        let messages = self.messages(u32::from(tag));
        let (chunk, received) = (buffer(chunk), buffer(received));
        messages.receive_from_all(&received, part_range(self.rank, part, bytes).len());
        messages.send_parts(&memory(&chunk), &(0..bytes), part);
        messages.pending(move || (chunk.take(), received.take()))
    }

    /// Sends this rank's part of `chunk` to the other ranks, and receives theirs in their places.
    ///
    /// # Panics
    /// If the memory is too short.
    pub fn gather_parts_of(
        &self,
        chunk: Vec<u8>,
        part: usize,
        bytes: usize,
        tag: u16,
    ) -> Pending<Vec<u8>> {
        assert!(bytes <= chunk.len());
        let messages = self.messages(u32::from(tag));
        let chunk = buffer(chunk);
        let lent = memory(&chunk);
        messages.receive_parts(&lent, &(0..bytes), part);
        messages.send_to_all(&lent, &part_range(self.rank, part, bytes));
        messages.pending(move || chunk.take())
    }

    /// Receives `bytes` bytes from each of the other ranks to `received`, in rank order.
    ///
    /// # Panics
    /// If the memory is too short.
    pub fn receive_from_all(&self, received: Vec<u8>, bytes: usize, tag: u16) -> Pending<Vec<u8>> {
        let messages = self.messages(u32::from(tag));
        let received = buffer(received);
        messages.receive_from_all(&received, bytes);
        messages.pending(move || received.take())
    }

    /// Sends each other rank its part of `chunk`, a range of `memory`, which is cut as by
    /// [`part_range`]. The operation borrows `memory` until it completes or
    /// [`detach`](Self::detach) is called.
    ///
    /// # Panics
    /// If the parts are too short.
    pub fn send_parts(
        &self,
        memory: &Rc<dyn Memory>,
        chunk: &Range<usize>,
        part: usize,
        tag: u16,
    ) -> Pending<()> {
        let messages = self.messages(u32::from(tag));
        messages.send_parts(memory, chunk, part);
        messages.pending(|| ())
    }

    /// Receives from each other rank its part of `chunk`, a range of `memory`, which is borrowed as
    /// by [`send_parts`](Self::send_parts).
    ///
    /// # Panics
    /// If the parts are too short.
    pub fn receive_parts(
        &self,
        memory: &Rc<dyn Memory>,
        chunk: &Range<usize>,
        part: usize,
        tag: u16,
    ) -> Pending<()> {
        let messages = self.messages(u32::from(tag));
        messages.receive_parts(memory, chunk, part);
        messages.pending(|| ())
    }

    /// Sends `range` of `memory`, which is borrowed as by [`send_parts`](Self::send_parts), to all
    /// other ranks.
    pub fn send_to_all(
        &self,
        memory: &Rc<dyn Memory>,
        range: &Range<usize>,
        tag: u16,
    ) -> Pending<()> {
        let messages = self.messages(u32::from(tag));
        messages.send_to_all(memory, range);
        messages.pending(|| ())
    }

    /// Ends all use of `memory` by messages: those that are still to be sent go on with copies, and
    /// what is still received to it is lost. Nothing else of the mesh holds it afterwards.
    pub fn detach(&self, memory: &Rc<dyn Memory>) {
        self.carrier.detach(memory);
    }

    /// Sends the first `bytes` bytes of rank `root`'s `memory` to all ranks.
    ///
    /// # Panics
    /// If the memory is too short.
    pub fn broadcast(&self, memory: Vec<u8>, bytes: usize, root: usize) -> Pending<Vec<u8>> {
        assert!(bytes <= memory.len());
        let messages = self.collective();
        let memory = buffer(memory);
        if self.rank == root {
            let others = self.others();
            others.for_each(|(next, _)| messages.send(memory.clone(), 0..bytes, next));
        } else {
            messages.receive(memory.clone(), 0..bytes, Some(root));
        }
        messages.pending(move || memory.take())
    }

    /// Sends the first `bytes` bytes of every rank's `send` to all ranks' `receive`, in rank order.
    ///
    /// # Panics
    /// If the memory is too short.
    pub fn allgather(
        &self,
        send: Vec<u8>,
        receive: Vec<u8>,
        bytes: usize,
    ) -> Pending<(Vec<u8>, Vec<u8>)> {
        let parts = Parts::of(std::iter::repeat_n(bytes, self.size()));
        let (messages, send, receive) = self.begin_allgather(send, receive, &parts);
        messages.pending(move || (send.take(), receive.take()))
    }

    /// Sends every rank's `send` to all ranks' `receive`, to the places in `parts`.
    ///
    /// # Panics
    /// If the memory is too short.
    pub fn allgather_parts(
        &self,
        send: Vec<u8>,
        receive: Vec<u8>,
        parts: Parts,
    ) -> Pending<(Vec<u8>, Vec<u8>, Parts)> {
        let (messages, send, receive) = self.begin_allgather(send, receive, &parts);
        messages.pending(move || (send.take(), receive.take(), parts))
    }

    fn begin_allgather(
        &self,
        send: Vec<u8>,
        mut receive: Vec<u8>,
        parts: &Parts,
    ) -> (Messages<'_>, Buffer, Buffer) {
        assert!(parts.bytes() <= receive.len() && parts.count() == self.size());
        let own = parts.range(self.rank);
        let bytes = own.len();
        receive[own].copy_from_slice(&send[..bytes]);
        let messages = self.collective();
        let (send, receive) = (buffer(send), buffer(receive));
        for (next, previous) in self.others() {
            messages.receive(receive.clone(), parts.range(previous), Some(previous));
            messages.send(send.clone(), 0..bytes, next);
        }
        (messages, send, receive)
    }

    /// Sends the first `bytes` bytes of every rank's `send` to rank `root`'s `receive`, in rank
    /// order; the other ranks' `receive` stays as it is.
    ///
    /// # Panics
    /// If the memory is too short.
    pub fn gather(
        &self,
        send: Vec<u8>,
        mut receive: Vec<u8>,
        bytes: usize,
        root: usize,
    ) -> Pending<(Vec<u8>, Vec<u8>)> {
        let messages = self.collective();
        let place = |rank: usize| rank * bytes..(rank + 1) * bytes;
        if self.rank == root {
            assert!(self.size() * bytes <= receive.len());
            receive[place(root)].copy_from_slice(&send[..bytes]);
        }
        let (send, receive) = (buffer(send), buffer(receive));
        if self.rank == root {
            for (_, previous) in self.others() {
                messages.receive(receive.clone(), place(previous), Some(previous));
            }
        } else {
            messages.send(send.clone(), 0..bytes, root);
        }
        messages.pending(move || (send.take(), receive.take()))
    }

    /// Sends each rank its part of `send`, and receives from each rank a part of `receive`.
    ///
    /// # Panics
    /// If the memory is too short.
    pub fn alltoall_parts(
        &self,
        send: (Vec<u8>, Parts),
        mut receive: (Vec<u8>, Parts),
    ) -> Pending<[(Vec<u8>, Parts); 2]> {
        for (memory, parts) in [&send, &receive] {
            assert!(parts.bytes() <= memory.len() && parts.count() == self.size());
        }
        let own = &send.0[send.1.range(self.rank)];
        receive.0[receive.1.range(self.rank)].copy_from_slice(own);
        let messages = self.collective();
        let (sent, received) = (buffer(send.0), buffer(receive.0));
        for (next, previous) in self.others() {
            messages.receive(received.clone(), receive.1.range(previous), Some(previous));
            messages.send(sent.clone(), send.1.range(next), next);
        }
        let (sent_parts, received_parts) = (send.1, receive.1);
        messages.pending(move || [(sent.take(), sent_parts), (received.take(), received_parts)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_one_after_another() {
        let parts = Parts::of([3, 0, 4]);
        assert_eq!((parts.count(), parts.bytes()), (3, 7));
        assert_eq!(
            [parts.range(0), parts.range(1), parts.range(2)],
            [0..3, 3..3, 3..7]
        );
        assert_eq!(Parts::of([]).bytes(), 0);
        assert_eq!(part_range(2, 4, 10), 8..10);
        assert_eq!(part_range(3, 4, 10), 10..10);
    }
}
