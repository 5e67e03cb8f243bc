//! Calls of MPI through the plug-in's table, with return codes as values, on bytes.
//!
//! Lengths are C integers in MPI; nothing here moves more than a chunk at a time, so they fit.

#![allow(unsafe_code)] // calls to MPI

use std::ffi::{CStr, c_char, c_int};
use std::mem::ManuallyDrop;

use ronde_mpi_table::{ANY_RANK, Comm as RawComm, NO_REQUEST, Request, SHORT_MESSAGE, Table};
use ronde_net::{Parts, part_range};
use smallvec::{SmallVec, smallvec};

use super::pending::Pending;

/// A call that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {text}")]
pub(crate) struct MpiError {
    /// Name of the function in the MPI standard.
    pub(crate) call: &'static str,
    /// MPI's error text.
    pub(crate) text: String,
}

/// Capacity for the text of an error; longer ones are cut.
const ERROR_TEXT_BYTES: usize = 4096;

/// Result of starting a call over memory `B`.
type Started<B> = Result<Pending<B>, MpiError>;

/// The return code of `call` as a value.
pub(super) fn check(table: &Table, call: &'static str, code: c_int) -> Result<(), MpiError> {
    if code == 0 {
        return Ok(());
    }
    let failed = |text: String| Err(MpiError { call, text });
    if code == SHORT_MESSAGE {
        return failed("a message is shorter than those that ranks of this version send".into());
    }
    let mut text = [0 as c_char; ERROR_TEXT_BYTES];
    // SAFETY: the buffer has this capacity.
    let known = unsafe { (table.error_text)(code, text.as_mut_ptr(), ERROR_TEXT_BYTES) } == 0;
    text[ERROR_TEXT_BYTES - 1] = 0;
    // SAFETY: zero-terminated by the line above.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy();
    failed(if known {
        text.into_owned()
    } else {
        format!("error {code}")
    })
}

/// Converts a length, or a rank, to MPI's integer type.
///
/// # Panics
/// If it is 2 GiB or more: chunks are far smaller.
fn count(bytes: usize) -> c_int {
    c_int::try_from(bytes).expect("a chunk is smaller than 2 GiB")
}

/// Address of a buffer's bytes; null if it is empty, because the address of an empty vector may be a
/// special value of MPI (`MPI_IN_PLACE` is 1 in Open MPI).
fn address(buffer: &[u8]) -> *const u8 {
    if buffer.is_empty() {
        std::ptr::null()
    } else {
        buffer.as_ptr()
    }
}

/// Like [`address`], writable.
fn address_mut(buffer: &mut [u8]) -> *mut u8 {
    if buffer.is_empty() {
        std::ptr::null_mut()
    } else {
        buffer.as_mut_ptr()
    }
}

/// Messages that are begun together. If one of them cannot be begun, MPI may still use the memory of
/// those before it: it must not be freed then.
struct Messages<'a> {
    comm: &'a Comm,
    tag: c_int,
    requests: SmallVec<[Request; 4]>,
}

impl<'a> Messages<'a> {
    fn new(comm: &'a Comm, tag: u16) -> Self {
        Self {
            comm,
            tag: c_int::from(tag & 0x7fff),
            requests: SmallVec::new(),
        }
    }

    fn add(
        &mut self,
        call: &'static str,
        start: impl FnOnce(*mut Request) -> c_int,
    ) -> Result<(), MpiError> {
        let mut request = NO_REQUEST;
        check(self.comm.table, call, start(&mut request))?;
        self.requests.push(request);
        Ok(())
    }

    /// # Safety
    /// `from` must stay readable for `bytes` bytes until the message is sent, even after an error.
    unsafe fn send(&mut self, from: *const u8, bytes: usize, to: usize) -> Result<(), MpiError> {
        let (table, raw, tag) = (self.comm.table, self.comm.raw, self.tag);
        if bytes == 0 {
            return Ok(()); // the other rank posts no receive either
        }
        // SAFETY: the caller's promise.
        self.add("MPI_Isend", |request| unsafe {
            (table.send)(from, count(bytes), count(to), tag, raw, request)
        })
    }

    /// # Safety
    /// `to` must stay writable for `bytes` bytes until the message is received, even after an error,
    /// and must not be accessed otherwise.
    unsafe fn receive(&mut self, to: *mut u8, bytes: usize, from: usize) -> Result<(), MpiError> {
        let (table, raw, tag) = (self.comm.table, self.comm.raw, self.tag);
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        self.add("MPI_Irecv", |request| unsafe {
            (table.receive)(to, count(bytes), count(from), tag, raw, request)
        })
    }

    /// All of them, over `memory`.
    fn pending<B>(self, memory: B) -> Pending<B> {
        Pending::new(
            self.requests,
            "MPI_Testall of an allreduce",
            memory,
            self.comm,
        )
    }
}

/// A communicator. Its calls are collective: every rank makes them in the same order.
#[derive(Clone, Debug)]
pub(crate) struct Comm {
    table: &'static Table,
    raw: RawComm,
    rank: usize,
    size: usize,
}

impl Comm {
    /// Wraps a communicator that only this engine uses; its errors are returned from now on.
    ///
    /// # Safety
    /// `raw` is a live communicator of this process, which is never freed.
    ///
    /// # Errors
    /// MPI's.
    pub(super) unsafe fn new(table: &'static Table, raw: RawComm) -> Result<Self, MpiError> {
        // SAFETY: a live communicator, for the call and by the caller's promise.
        unsafe {
            let set = (table.return_errors)(raw);
            check(table, "MPI_Comm_set_errhandler", set)?;
            Self::as_it_is(table, raw)
        }
    }

    /// Wraps a communicator that other libraries use too; its error handler is not changed.
    ///
    /// # Safety
    /// As for [`new`](Self::new).
    ///
    /// # Errors
    /// MPI's.
    pub(super) unsafe fn as_it_is(table: &'static Table, raw: RawComm) -> Result<Self, MpiError> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: a live communicator; the results are two integers.
        unsafe {
            check(table, "MPI_Comm_rank", (table.rank)(raw, &mut rank))?;
            check(table, "MPI_Comm_size", (table.size)(raw, &mut size))?;
        }
        assert!(0 <= rank && rank < size, "rank {rank} of {size}");
        Ok(Self {
            table,
            raw,
            rank: rank as usize,
            size: size as usize,
        })
    }

    /// The functions by which its calls are made.
    pub(super) fn table(&self) -> &'static Table {
        self.table
    }

    /// This process's rank in it.
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// Ranks in it.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// `start` begins the request `call`, which touches `memory` and nothing else.
    fn pending<B>(
        &self,
        call: &'static str,
        memory: B,
        start: impl FnOnce(*mut Request) -> c_int,
    ) -> Started<B> {
        let mut request = NO_REQUEST;
        check(self.table, call, start(&mut request))?;
        Ok(Pending::new(smallvec![request], call, memory, self))
    }

    /// Sends each rank its part of `chunk`, of which rank `r`'s begins at `r * part`, and receives
    /// its own part from all: in `received`, in rank order, this rank's left out, each as long as
    /// its own part of `bytes` bytes.
    pub(crate) fn scatter(
        &self,
        chunk: Vec<u8>,
        received: Vec<u8>,
        part: usize,
        bytes: usize,
        tag: u16,
    ) -> Started<(Vec<u8>, Vec<u8>)> {
        assert!(bytes <= chunk.len() && part * self.size >= bytes);
        let own = part_range(self.rank, part, bytes).len();
        assert!(own * (self.size - 1) <= received.len());
        let mut memory = ManuallyDrop::new((chunk, received)); // see `Messages`
        let (from, to) = (memory.0.as_ptr(), memory.1.as_mut_ptr());
        let mut messages = Messages::new(self, tag);
        for (next, previous) in self.others() {
            let place = if previous < self.rank {
                previous
            } else {
                previous - 1
            };
            let range = part_range(next, part, bytes);
            // SAFETY: both places lie in the vectors (asserted), which the requests keep; after an
            // error they are not freed.
            unsafe {
                messages.receive(to.add(place * own), own, previous)?;
                messages.send(from.add(range.start), range.len(), next)?;
            }
        }
        Ok(messages.pending(ManuallyDrop::into_inner(memory)))
    }

    /// Sends this rank's part of `chunk` to all others, and receives theirs in their places.
    pub(crate) fn gather_parts_of(
        &self,
        chunk: Vec<u8>,
        part: usize,
        bytes: usize,
        tag: u16,
    ) -> Started<Vec<u8>> {
        assert!(bytes <= chunk.len() && part * self.size >= bytes);
        let mut chunk = ManuallyDrop::new(chunk); // see `Messages`
        let memory = chunk.as_mut_ptr();
        let own = part_range(self.rank, part, bytes);
        let mut messages = Messages::new(self, tag);
        for (next, previous) in self.others() {
            let range = part_range(previous, part, bytes);
            // SAFETY: parts lie in the vector (asserted) and do not overlap; the requests keep it,
            // and after an error it is not freed.
            unsafe {
                messages.receive(memory.add(range.start), range.len(), previous)?;
                messages.send(memory.add(own.start), own.len(), next)?;
            }
        }
        Ok(messages.pending(ManuallyDrop::into_inner(chunk)))
    }

    /// The other ranks, twice: from the next one on upwards, and from the one before on downwards.
    /// If all ranks send to the first and receive from the second of each pair, everyone is sent to
    /// once at a time.
    fn others(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (rank, size) = (self.rank, self.size);
        (1..size).map(move |distance| ((rank + distance) % size, (rank + size - distance) % size))
    }

    /// Completes when all ranks have come to it.
    pub(crate) fn barrier(&self) -> Started<()> {
        // SAFETY: a live communicator; no memory.
        self.pending("MPI_Ibarrier", (), |request| unsafe {
            (self.table.barrier)(self.raw, request)
        })
    }

    /// The same communicator once more, with messages of its own.
    pub(crate) fn duplicate(&self) -> Started<Vec<RawComm>> {
        // Not a `Box`, which may not move while MPI has a pointer to its memory.
        let mut copy = vec![RawComm(0)];
        let place = copy.as_mut_ptr();
        // SAFETY: the vector is kept by the request.
        self.pending("MPI_Comm_idup", copy, |request| unsafe {
            (self.table.duplicate)(self.raw, place, request)
        })
    }

    /// A communicator of `members`, who all make this call now: it blocks until they have.
    pub(crate) fn of_members(&self, members: &[usize], tag: u16) -> Result<RawComm, MpiError> {
        let ranks: Vec<c_int> = members.iter().map(|&rank| count(rank)).collect();
        let mut created = RawComm(0);
        // SAFETY: a live communicator; `ranks` are distinct ranks of it.
        let code = unsafe {
            let tag = c_int::from(tag & 0x7fff);
            let (ranks, members) = (ranks.as_ptr(), count(ranks.len()));
            (self.table.of_members)(self.raw, ranks, members, tag, &mut created)
        };
        check(self.table, "MPI_Comm_create_group", code)?;
        Ok(created)
    }

    /// Sends `memory` to rank `to`.
    pub(crate) fn send(&self, memory: Vec<u8>, to: usize, tag: u16) -> Started<Vec<u8>> {
        let (from, bytes, tag) = (
            address(&memory),
            count(memory.len()),
            c_int::from(tag & 0x7fff),
        );
        // SAFETY: the vector is kept by the request.
        self.pending("MPI_Isend", memory, |request| unsafe {
            (self.table.send)(from, bytes, count(to), tag, self.raw, request)
        })
    }

    /// Receives a message of `memory.len()` bytes from rank `from`, or from any.
    pub(crate) fn receive(
        &self,
        mut memory: Vec<u8>,
        from: Option<usize>,
        tag: u16,
    ) -> Started<Vec<u8>> {
        let (to, bytes, tag) = (
            address_mut(&mut memory),
            count(memory.len()),
            c_int::from(tag & 0x7fff),
        );
        let from = from.map_or(ANY_RANK, count);
        // SAFETY: the vector is kept by the request.
        self.pending("MPI_Irecv", memory, |request| unsafe {
            (self.table.receive)(to, bytes, from, tag, self.raw, request)
        })
    }

    /// The first `bytes` bytes of `memory`, from rank `root` to all.
    pub(crate) fn broadcast(
        &self,
        mut memory: Vec<u8>,
        bytes: usize,
        root: usize,
    ) -> Started<Vec<u8>> {
        assert!(bytes <= memory.len());
        let place = address_mut(&mut memory);
        // SAFETY: the vector is as long and is kept by the request.
        self.pending("MPI_Ibcast", memory, |request| unsafe {
            (self.table.broadcast)(place, count(bytes), count(root), self.raw, request)
        })
    }

    /// Every rank's `bytes` first bytes of `send`, in rank order, into everyone's `receive`.
    pub(crate) fn allgather(
        &self,
        send: Vec<u8>,
        mut receive: Vec<u8>,
        bytes: usize,
    ) -> Started<(Vec<u8>, Vec<u8>)> {
        assert!(bytes <= send.len() && bytes * self.size <= receive.len());
        let (from, to) = (address(&send), address_mut(&mut receive));
        // SAFETY: both vectors are as long and are kept by the request.
        self.pending("MPI_Iallgather", (send, receive), |request| unsafe {
            let bytes = count(bytes);
            (self.table.allgather)(from, to, bytes, self.raw, request)
        })
    }

    /// Every rank's `send` into everyone's `receive`, where `parts` says they go.
    pub(crate) fn allgather_parts(
        &self,
        send: Vec<u8>,
        mut receive: Vec<u8>,
        parts: Parts,
    ) -> Started<(Vec<u8>, Vec<u8>, Parts)> {
        assert!(parts.bytes() <= receive.len() && parts.counts().len() == self.size);
        let bytes = parts.counts()[self.rank];
        assert!(bytes as usize <= send.len());
        let (from, to) = (address(&send), address_mut(&mut receive));
        let (counts, begins) = (parts.counts().as_ptr(), parts.begins().as_ptr());
        // SAFETY: the vectors are as long and are kept by the request.
        self.pending(
            "MPI_Iallgatherv",
            (send, receive, parts),
            |request| unsafe {
                (self.table.allgather_parts)(from, bytes, to, counts, begins, self.raw, request)
            },
        )
    }

    /// Every rank's `bytes` first bytes of `send`, in rank order, into rank `root`'s `receive`; the
    /// others' stays as it is.
    pub(crate) fn gather(
        &self,
        send: Vec<u8>,
        mut receive: Vec<u8>,
        bytes: usize,
        root: usize,
    ) -> Started<(Vec<u8>, Vec<u8>)> {
        assert!(bytes <= send.len());
        assert!(self.rank != root || bytes * self.size <= receive.len());
        let (from, to) = (address(&send), address_mut(&mut receive));
        // SAFETY: both vectors are as long and are kept by the request.
        self.pending("MPI_Igather", (send, receive), |request| unsafe {
            let (bytes, root) = (count(bytes), count(root));
            (self.table.gather)(from, to, bytes, root, self.raw, request)
        })
    }

    /// What this rank has for each, and each for this one.
    pub(crate) fn alltoall_parts(
        &self,
        send: (Vec<u8>, Parts),
        mut receive: (Vec<u8>, Parts),
    ) -> Started<[(Vec<u8>, Parts); 2]> {
        for (memory, parts) in [&send, &receive] {
            assert!(parts.bytes() <= memory.len() && parts.counts().len() == self.size);
        }
        let (from, to) = (address(&send.0), address_mut(&mut receive.0));
        let lists = |parts: &Parts| (parts.counts().as_ptr(), parts.begins().as_ptr());
        let ((sent, sent_at), (received, received_at)) = (lists(&send.1), lists(&receive.1));
        // SAFETY: the vectors are as long and are kept by the request.
        self.pending("MPI_Ialltoallv", [send, receive], |request| unsafe {
            (self.table.alltoall_parts)(
                from,
                sent,
                sent_at,
                to,
                received,
                received_at,
                self.raw,
                request,
            )
        })
    }
}
