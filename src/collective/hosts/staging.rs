//! Staging buffers between the tensors and MPI or TCP, and the time spent on copies.

#![allow(unsafe_code)] // copies from and to memory of the caller

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::collective::Phases;
use crate::collective::stream::Stream;
use crate::sync::lock;

/// Buffers that are reused by the operations of one collective, several of which may be under way: as
/// many as were in use at once. A copy has the same buffers.
#[derive(Clone, Debug, Default)]
pub(super) struct Staging {
    free: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Staging {
    /// Takes a buffer of at least `bytes` bytes.
    pub(super) fn take(&self, bytes: usize) -> Vec<u8> {
        let mut buffer = lock(&self.free).pop().unwrap_or_default();
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        buffer
    }

    /// Returns a buffer for reuse.
    pub(super) fn give(&self, buffer: Vec<u8>) {
        lock(&self.free).push(buffer);
    }
}

/// Copies `range` of the inputs of `stream` to the beginning of `buffer`; bytes without an input
/// stay unchanged.
pub(super) fn copy_in(stream: &Stream, range: Range<usize>, buffer: &mut [u8]) {
    let begin = range.start;
    for piece in stream.pieces(range).filter(|piece| !piece.input.is_null()) {
        let place = &mut buffer[piece.at - begin..][..piece.bytes];
        // SAFETY: the caller of the collective keeps the input readable until the operation is over
        // (`Span::new`), and waits for it (`Engine::run`); the buffer belongs to this rank.
        unsafe { std::ptr::copy_nonoverlapping(piece.input, place.as_mut_ptr(), piece.bytes) };
    }
}

/// Copies the beginning of `buffer` to `range` of the outputs of `stream`; bytes without an output
/// are skipped.
pub(super) fn copy_out(stream: &Stream, range: Range<usize>, buffer: &[u8]) {
    let begin = range.start;
    for piece in stream.pieces(range).filter(|piece| !piece.output.is_null()) {
        let place = &buffer[piece.at - begin..][..piece.bytes];
        // SAFETY: as in `copy_in`, for the output.
        unsafe { std::ptr::copy_nonoverlapping(place.as_ptr(), piece.output, piece.bytes) };
    }
}

/// Stopwatch that adds the time since its last reading to a phase; the remaining time was spent
/// waiting.
pub(super) struct Lap {
    began: Instant,
    phases: Phases,
}

impl Lap {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            phases: Phases::default(),
        }
    }

    /// Runs `body` and adds its time to the phase that `phase` selects.
    pub(super) fn file<T>(
        &mut self,
        phase: impl FnOnce(&mut Phases) -> &mut u64,
        body: impl FnOnce() -> T,
    ) -> T {
        let began = Instant::now();
        let value = body();
        *phase(&mut self.phases) += began.elapsed().as_nanos() as u64;
        value
    }

    /// Returns the phases measured so far.
    pub(super) fn phases(&self) -> Phases {
        let all = self.began.elapsed().as_nanos() as u64;
        let filed = self.phases.copy_in_ns + self.phases.reduce_ns + self.phases.copy_out_ns;
        Phases {
            wait_ns: all.saturating_sub(filed),
            ..self.phases
        }
    }
}
