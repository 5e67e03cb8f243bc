//! Memory of a batch that is lent to messages over TCP: they are sent from the tensors and received
//! to them, without staging.

#![allow(unsafe_code)] // reads and writes memory of the caller

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::ops::Range;
use std::rc::Rc;

use ronde_net::{Filled, Memory};
use smallvec::SmallVec;

use crate::collective::stream::{Piece, Stream};
use crate::hosts::{Comm, Pending};

/// Shortest pieces, on average, of a batch that is lent: shorter ones are copied, so that a call of
/// the operating system does not have many of them.
const PIECE_BYTES_MIN: usize = 4 << 10;

/// Most pieces that one call of the operating system is given.
const PIECES_MAX: usize = 64;

/// Memory of a batch that is lent to the messages of one operation, until this is dropped.
pub(super) struct Lent {
    comm: Comm,
    inputs: Rc<dyn Memory>,
    outputs: Rc<dyn Memory>,
}

impl Lent {
    /// Lends `batch` to messages of `comm`, if they can borrow it and that is faster than copies.
    pub(super) fn of(comm: &Comm, batch: &Rc<Stream>) -> Option<Self> {
        let is_lent =
            comm.borrows() && batch.is_whole() && batch.bytes() >= batch.count() * PIECE_BYTES_MIN;
        let memory = |sent| {
            let batch = Rc::clone(batch);
            Rc::new(Tensors { batch, sent }) as Rc<dyn Memory>
        };
        is_lent.then(|| Self {
            comm: comm.clone(),
            inputs: memory(|piece| piece.input),
            outputs: memory(|piece| piece.output.cast_const()),
        })
    }

    /// Begins to send each other rank its part of the inputs of a chunk.
    pub(super) fn send_parts(&self, chunk: &Range<usize>, part: usize, tag: u16) -> Pending<()> {
        self.comm.send_parts(&self.inputs, chunk, part, tag)
    }

    /// Begins to receive the other ranks' parts of the outputs of a chunk.
    pub(super) fn receive_parts(&self, chunk: &Range<usize>, part: usize, tag: u16) -> Pending<()> {
        self.comm.receive_parts(&self.outputs, chunk, part, tag)
    }

    /// Begins to send the inputs in `range` to all other ranks.
    pub(super) fn send_inputs(&self, range: &Range<usize>, tag: u16) -> Pending<()> {
        self.comm.send_to_all(&self.inputs, range, tag)
    }

    /// Begins to send the outputs in `range` to all other ranks.
    pub(super) fn send_outputs(&self, range: &Range<usize>, tag: u16) -> Pending<()> {
        self.comm.send_to_all(&self.outputs, range, tag)
    }
}

impl Drop for Lent {
    /// Takes the memory back. After an error, messages may still use it.
    fn drop(&mut self) {
        for memory in [&self.inputs, &self.outputs] {
            if Rc::strong_count(memory) > 1 {
                self.comm.detach(memory);
            }
            assert_eq!(Rc::strong_count(memory), 1, "no message uses it any longer");
        }
    }
}

/// Memory of a batch. Messages are sent from its inputs or from its outputs, as `sent` selects, and
/// received to its outputs.
struct Tensors {
    batch: Rc<Stream>,
    sent: fn(&Piece) -> *const u8,
}

/// Slices of some memory, in order.
type Slices<S> = SmallVec<[S; PIECES_MAX]>;

impl Memory for Tensors {
    fn write_to(
        &self,
        stream: &mut dyn Write,
        before: &[u8],
        range: Range<usize>,
    ) -> io::Result<usize> {
        let mut slices: Slices<IoSlice<'_>> = SmallVec::new();
        slices.push(IoSlice::new(before));
        for piece in self.batch.pieces(range).take(PIECES_MAX - 1) {
            // SAFETY: the batch is whole, so its pieces have addresses; they are readable until the
            // operation is over (`Span::new`), and `Lent` takes them back before. Nothing is
            // written to them during this call: it is on the thread that drives the engine.
            slices.push(IoSlice::new(unsafe {
                std::slice::from_raw_parts((self.sent)(&piece), piece.bytes)
            }));
        }
        stream.write_vectored(&slices)
    }

    fn read_from(
        &self,
        stream: &mut dyn Read,
        range: Range<usize>,
        behind: &mut [u8],
    ) -> io::Result<Filled> {
        let bytes = range.len();
        let mut slices: Slices<IoSliceMut<'_>> = SmallVec::new();
        let mut room = 0;
        for piece in self.batch.pieces(range).take(PIECES_MAX - 1) {
            // SAFETY: as in `write_to`, for outputs, which are writable, and which nothing else
            // reads or writes during this call.
            slices.push(IoSliceMut::new(unsafe {
                std::slice::from_raw_parts_mut(piece.output, piece.bytes)
            }));
            room += piece.bytes;
        }
        if room == bytes {
            room += behind.len();
            slices.push(IoSliceMut::new(behind));
        }
        let bytes = stream.read_vectored(&mut slices)?;
        Ok(Filled { bytes, room })
    }
}
