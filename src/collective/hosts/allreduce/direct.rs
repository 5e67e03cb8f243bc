//! Allreduce of parts that are sent from the tensors and received to them.
//!
//! Receives are posted before the messages come, because a message without a receive is copied once
//! more: contributions to this rank's part some chunks ahead, and results when the chunk begins.
//! These may replace inputs that are still to be sent, as far as this rank knows: an owner sends a
//! result when it has the contributions of all ranks.

#![allow(unsafe_code)] // reduces in memory of the caller

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use ronde_net::part_range;

use super::super::Job;
use super::super::lent::Lent;
use super::cut::Cut;
use super::{chunk_bytes, tag};
use crate::collective::Phases;
use crate::collective::kernels::Reducer;
use crate::collective::stream::Stream;
use crate::hosts::{CommError, Pending, turn};

/// Number of chunks, beyond those in flight, for which receives are posted.
const RECEIVES_AHEAD: usize = 2;

/// An operation of a chunk.
enum Step {
    NotBegun,
    Begun(Pending<()>),
    Complete,
}

impl Step {
    /// Whether the operation is complete.
    fn test(&mut self) -> Result<bool, CommError> {
        if let Self::Begun(pending) = self
            && pending.test()?.is_some()
        {
            *self = Self::Complete;
        }
        Ok(matches!(self, Self::Complete))
    }
}

/// Chunk on its way.
struct Flight {
    cut: Cut,
    /// What the other ranks contribute to this rank's part.
    contributions: Pending<Vec<u8>>,
    /// This rank's contributions to the other parts.
    sent: Step,
    /// The results of the other parts.
    results: Step,
    /// The result of this rank's part.
    own: Step,
}

impl Flight {
    fn is_complete(&mut self) -> Result<bool, CommError> {
        Ok(self.own.test()? && self.results.test()? && self.sent.test()?)
    }
}

/// State of a batch, shared by its chunks.
struct Work {
    job: Job,
    batch: Rc<Stream>,
    lent: Lent,
    reducer: Reducer,
    /// Ranks that contribute, in order.
    present: Vec<usize>,
}

/// Combines `batch`, which is `lent`, over the ranks `present`.
pub(super) async fn allreduce(
    job: Job,
    batch: Rc<Stream>,
    lent: Lent,
    reducer: Reducer,
    present: Vec<usize>,
) -> Result<Phases, CommError> {
    let (bytes, in_flight) = (batch.bytes(), job.pipeline.flights);
    let chunk = chunk_bytes(&job, bytes);
    let mut ranges = (0..bytes.div_ceil(chunk)).map(|index| part_range(index, chunk, bytes));
    let mut work = Work {
        job,
        batch,
        lent,
        reducer,
        present,
    };
    let mut flights = VecDeque::<Flight>::new();
    loop {
        while flights.len() < in_flight + RECEIVES_AHEAD
            && let Some(range) = ranges.next()
        {
            flights.push_back(work.post(range));
        }
        for flight in flights.iter_mut().take(in_flight) {
            if let Step::NotBegun = flight.sent {
                work.begin(flight);
            }
        }
        turn().await;
        let Some(first) = flights.front_mut() else {
            return Ok(work.job.done());
        };
        if first.is_complete()? {
            flights.pop_front();
            continue;
        }
        let mut begun = flights.iter_mut().take(in_flight);
        let next = begun.find(|flight| matches!(flight.own, Step::NotBegun));
        if let Some(flight) = next
            && let Some(received) = flight.contributions.test()?
        {
            flight.own = work.combine(&flight.cut, received);
        }
    }
}

impl Work {
    /// Posts the receives of the contributions to this rank's part of the chunk `range`.
    fn post(&mut self, range: Range<usize>) -> Flight {
        let (rank, size) = (self.job.comm.rank(), self.job.comm.size());
        let cut = Cut::new(range, rank, size);
        let bytes = cut.own.len();
        let memory = self.job.staging.take(bytes * (size - 1));
        let tag = tag(self.job.serial, 0);
        Flight {
            cut,
            contributions: self.job.comm.receive_from_all(memory, bytes, tag),
            sent: Step::NotBegun,
            results: Step::NotBegun,
            own: Step::NotBegun,
        }
    }

    /// Begins to send the other ranks' parts of a chunk, and to receive their results.
    fn begin(&self, flight: &mut Flight) {
        let Cut { range, part, .. } = &flight.cut;
        let [there, back] = [0, 1].map(|way| tag(self.job.serial, way));
        flight.results = Step::Begun(self.lent.receive_parts(range, *part, back));
        flight.sent = Step::Begun(self.lent.send_parts(range, *part, there));
    }

    /// Combines this rank's part of a chunk and begins to send the result to all. `received` holds
    /// the other ranks' contributions.
    fn combine(&mut self, cut: &Cut, received: Vec<u8>) -> Step {
        let Self {
            job,
            batch,
            lent,
            reducer,
            present,
        } = self;
        let (rank, own) = (job.comm.rank(), cut.own_of_batch());
        job.lap.file(
            |phases| &mut phases.reduce_ns,
            || {
                for piece in batch.pieces(own.clone()) {
                    let sources = cut.contributions(&piece, &received, rank, present);
                    // SAFETY: the piece is readable and writable (`Span::new`), because the batch
                    // is whole (`Lent`), and what was received is as long; the output may be this
                    // rank's own input, otherwise they overlap nothing. This rank is present.
                    unsafe {
                        reducer.combine(&sources, piece.output, std::ptr::null_mut(), piece.bytes);
                    }
                }
            },
        );
        job.staging.give(received);
        Step::Begun(lent.send_outputs(&own, tag(job.serial, 1)))
    }
}
