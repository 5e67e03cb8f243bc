//! Rounds of a batch, with a few of them in flight.

use std::collections::VecDeque;

use super::{CHUNK_BYTES, Job, LAG, PART_ALIGN};
use crate::hosts::{CommError, Pending};

/// Bytes that one rank sends to another in a round of `size` ranks: all together send one chunk.
pub(super) fn piece_bytes(size: usize) -> usize {
    (CHUNK_BYTES / size).next_multiple_of(PART_ALIGN)
}

/// Calls `begin` for each of `rounds` rounds in order, and `end` with the received data of each,
/// [`LAG`] rounds later.
pub(super) async fn rounds<B>(
    job: &mut Job,
    rounds: usize,
    mut begin: impl FnMut(&mut Job, usize) -> Result<Pending<B>, CommError>,
    mut end: impl FnMut(&mut Job, usize, B),
) -> Result<(), CommError> {
    let mut flights = VecDeque::new();
    for turn in 0..rounds + LAG {
        if turn < rounds {
            flights.push_back(begin(job, turn)?);
        }
        if turn >= LAG {
            let memory = flights.pop_front().expect("as many as turns").await?;
            end(job, turn - LAG, memory);
        }
    }
    Ok(())
}
