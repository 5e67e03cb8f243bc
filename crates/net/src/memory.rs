//! Memory that messages are sent from and received to.

use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::ops::Range;
use std::rc::Rc;

/// Memory of an operation, addressed by byte offset. It need not be contiguous.
///
/// An implementation may take fewer bytes than it is asked to, as a socket may; of a range that is
/// not empty it takes at least one.
pub trait Memory {
    /// Writes `before` and then `range` to `stream`, in one call; returns the number of bytes that
    /// the stream has accepted.
    ///
    /// # Errors
    /// Those of `stream`.
    fn write_to(
        &self,
        stream: &mut dyn Write,
        before: &[u8],
        range: Range<usize>,
    ) -> io::Result<usize>;

    /// Reads from `stream` to `range` and then to `behind`, in one call.
    ///
    /// # Errors
    /// Those of `stream`.
    fn read_from(
        &self,
        stream: &mut dyn Read,
        range: Range<usize>,
        behind: &mut [u8],
    ) -> io::Result<Filled>;
}

/// Result of a read to [`Memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    /// Bytes that were read.
    pub bytes: usize,
    /// Bytes that there was room for. If fewer were read, the stream has no more at present.
    pub room: usize,
}

/// A buffer that the operation owns.
pub(crate) type Buffer = Rc<RefCell<Vec<u8>>>;

impl Memory for RefCell<Vec<u8>> {
    fn write_to(
        &self,
        stream: &mut dyn Write,
        before: &[u8],
        range: Range<usize>,
    ) -> io::Result<usize> {
        stream.write_vectored(&[IoSlice::new(before), IoSlice::new(&self.borrow()[range])])
    }

    fn read_from(
        &self,
        stream: &mut dyn Read,
        range: Range<usize>,
        behind: &mut [u8],
    ) -> io::Result<Filled> {
        let room = range.len() + behind.len();
        let mut buffer = self.borrow_mut();
        let memory = IoSliceMut::new(&mut buffer[range]);
        let bytes = stream.read_vectored(&mut [memory, IoSliceMut::new(behind)])?;
        Ok(Filled { bytes, room })
    }
}

/// Part of a memory that one message reads or writes. No two receives of an operation overlap, and
/// no receive overlaps a send.
#[derive(Clone)]
pub(crate) struct Slice {
    memory: Rc<dyn Memory>,
    range: Range<usize>,
}

impl Slice {
    pub(crate) fn new(memory: Rc<dyn Memory>, range: Range<usize>) -> Self {
        Self { memory, range }
    }

    /// All of `memory`.
    pub(crate) fn whole(memory: Vec<u8>) -> Self {
        let range = 0..memory.len();
        Self::new(Rc::new(RefCell::new(memory)), range)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.range.len()
    }

    /// The bytes `range` of this slice.
    ///
    /// # Panics
    /// If it is not as long.
    pub(crate) fn part(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.bytes());
        let begin = self.range.start;
        Self::new(
            Rc::clone(&self.memory),
            begin + range.start..begin + range.end,
        )
    }

    /// See [`Memory::write_to`].
    pub(crate) fn write_to(&self, stream: &mut dyn Write, before: &[u8]) -> io::Result<usize> {
        self.memory.write_to(stream, before, self.range.clone())
    }

    /// See [`Memory::read_from`].
    pub(crate) fn read_from(&self, stream: &mut dyn Read, behind: &mut [u8]) -> io::Result<Filled> {
        self.memory.read_from(stream, self.range.clone(), behind)
    }

    /// Copies `bytes` to the beginning of this slice.
    ///
    /// # Panics
    /// If they are more.
    pub(crate) fn fill(&self, mut bytes: &[u8]) {
        let (mut at, all) = (0, bytes.len());
        while at < all {
            let filled = self.part(at..all).read_from(&mut bytes, &mut []);
            at += filled.expect("memory can be read").bytes;
        }
    }

    /// Copies this slice behind `bytes`.
    pub(crate) fn append_to(&self, bytes: &mut Vec<u8>) {
        let mut at = 0;
        while at < self.bytes() {
            let written = self.part(at..self.bytes()).write_to(bytes, &[]);
            at += written.expect("a vector accepts all");
        }
    }

    /// Whether this is a part of `memory`.
    fn is_of(&self, memory: &Rc<dyn Memory>) -> bool {
        std::ptr::addr_eq(Rc::as_ptr(&self.memory), Rc::as_ptr(memory))
    }

    /// Goes on with a copy if this is a part of `memory`.
    pub(crate) fn detach(&mut self, memory: &Rc<dyn Memory>) {
        if self.is_of(memory) {
            let mut copy = Vec::with_capacity(self.bytes());
            self.append_to(&mut copy);
            *self = Self::whole(copy);
        }
    }

    /// Goes on with other memory if this is a part of `memory`: what it receives is lost.
    pub(crate) fn discard(&mut self, memory: &Rc<dyn Memory>) {
        if self.is_of(memory) {
            *self = Self::whole(vec![0; self.bytes()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_filled_and_copied_and_go_on_without_their_memory() {
        let buffer: Buffer = Rc::new(RefCell::new(b"abcdefgh".to_vec()));
        let memory: Rc<dyn Memory> = buffer.clone();
        let mut slice = Slice::new(Rc::clone(&memory), 2..7);
        slice.part(1..4).fill(b"XY");
        assert_eq!(*buffer.borrow(), b"abcXYfgh");
        let copied = |slice: &Slice| {
            let mut bytes = b"-".to_vec();
            slice.append_to(&mut bytes);
            bytes
        };
        assert_eq!(copied(&slice.part(1..5)), b"-XYfg");
        let other: Rc<dyn Memory> = Rc::new(RefCell::new(Vec::new()));
        slice.detach(&other);
        assert_eq!(Rc::strong_count(&memory), 3);
        slice.detach(&memory);
        assert_eq!(Rc::strong_count(&memory), 2);
        buffer.borrow_mut().fill(0);
        assert_eq!(copied(&slice), b"-cXYfg");
        let mut receive = Slice::new(Rc::clone(&memory), 0..3);
        receive.discard(&memory);
        receive.fill(b"new");
        assert_eq!(*buffer.borrow(), [0; 8]);
    }
}
