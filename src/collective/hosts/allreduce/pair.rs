//! Allreduce of two ranks over TCP: they exchange their inputs, and both combine them.
//!
//! Each rank sends as many bytes as in an allreduce of parts, but a chunk takes one message each
//! way instead of two, one after the other: it waits once for the network. Both ranks combine the
//! inputs in rank order, so they have the same bits. (For two ranks that is recursive doubling:
//! Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH",
//! 2005, §4.)

#![allow(unsafe_code)] // reduces in memory of the caller

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use ronde_net::part_range;

use super::super::lent::Lent;
use super::super::staging::copy_in;
use super::super::{Job, Pipeline};
use super::tag;
use crate::collective::Phases;
use crate::collective::kernels::Reducer;
use crate::collective::stream::{Piece, Stream};
use crate::hosts::{CommError, Pending, turn};

/// Chunks that are being sent: the second one while the first one is combined, and while this rank
/// waits for the other one's.
static PIPELINE: Pipeline = Pipeline {
    bytes_max: 512 << 10,
    flights: 2,
};

/// Number of chunks whose receives are posted: a rank that is ahead sends the next ones, and a
/// message without a receive is copied once more. ResNet-50 between two hosts without a limit took,
/// ms: no receives beyond the chunks that are being sent 100, one 48, two 43.
const RECEIVES: usize = 4;

/// Chunk that is being exchanged.
struct Flight {
    range: Range<usize>,
    receive: Pending<Vec<u8>>,
    send: Sending,
}

/// State of the send of a chunk, from the tensors or from a copy.
enum Sending {
    NotBegun,
    Lent(Pending<()>),
    Copied(Pending<Vec<u8>>),
    Complete,
}

/// State of a batch, shared by its chunks.
struct Exchange {
    job: Job,
    batch: Rc<Stream>,
    lent: Option<Lent>,
    reducer: Reducer,
    tag: u16,
}

/// Combines `batch` over both ranks.
pub(super) async fn allreduce(
    job: Job,
    batch: Rc<Stream>,
    lent: Option<Lent>,
    reducer: Reducer,
) -> Result<Phases, CommError> {
    let bytes = batch.bytes();
    let chunk = PIPELINE.chunk_bytes(bytes);
    let mut ranges = (0..bytes.div_ceil(chunk)).map(|index| part_range(index, chunk, bytes));
    let mut exchange = Exchange {
        tag: tag(job.serial, 0),
        job,
        batch,
        lent,
        reducer,
    };
    let mut flights = VecDeque::<Flight>::new();
    let mut exchanged: Option<(Range<usize>, Vec<u8>)> = None;
    loop {
        while flights.len() < RECEIVES
            && let Some(range) = ranges.next()
        {
            flights.push_back(exchange.post(range));
        }
        for flight in flights.iter_mut().take(PIPELINE.flights) {
            if let Sending::NotBegun = flight.send {
                flight.send = exchange.send(&flight.range)?;
            }
        }
        // The next chunk is sent before this one is combined.
        turn().await;
        if let Some((range, received)) = exchanged.take() {
            exchange.combine(&range, received);
        }
        let Some(first) = flights.front_mut() else {
            return Ok(exchange.job.done());
        };
        exchange.test_send(&mut first.send)?;
        if let Sending::Complete = first.send
            && let Some(received) = first.receive.test()?
        {
            let Flight { range, .. } = flights.pop_front().expect("just seen");
            exchanged = Some((range, received));
        }
    }
}

impl Exchange {
    /// Posts the receive of the other rank's inputs in `range`.
    fn post(&mut self, range: Range<usize>) -> Flight {
        let memory = self.job.staging.take(range.len());
        let comm = &self.job.comm;
        Flight {
            receive: comm.receive_from_all(memory, range.len(), self.tag),
            range,
            send: Sending::NotBegun,
        }
    }

    /// Begins to send this rank's inputs in `range`.
    fn send(&mut self, range: &Range<usize>) -> Result<Sending, CommError> {
        let Self {
            job,
            batch,
            lent,
            tag,
            ..
        } = self;
        if let Some(lent) = lent {
            return Ok(Sending::Lent(lent.send_inputs(range, *tag)));
        }
        let mut copy = job.staging.take(range.len());
        copy.truncate(range.len());
        job.lap.file(
            |phases| &mut phases.copy_in_ns,
            || copy_in(batch, range.clone(), &mut copy),
        );
        let send = job.comm.send(copy, 1 - job.comm.rank(), *tag)?;
        Ok(Sending::Copied(send))
    }

    /// Ends `send` if it is complete.
    fn test_send(&mut self, send: &mut Sending) -> Result<(), CommError> {
        let copy = match send {
            Sending::Lent(pending) => pending.test()?.map(|()| None),
            Sending::Copied(pending) => pending.test()?.map(Some),
            Sending::NotBegun | Sending::Complete => None,
        };
        if let Some(copy) = copy {
            copy.into_iter()
                .for_each(|copy| self.job.staging.give(copy));
            *send = Sending::Complete;
        }
        Ok(())
    }

    /// Combines the inputs of both ranks in `range`, of which the other rank's were `received`.
    fn combine(&mut self, range: &Range<usize>, received: Vec<u8>) {
        let rank = self.job.comm.rank();
        let Self {
            job,
            batch,
            reducer,
            ..
        } = self;
        let pieces = batch.pieces(range.clone());
        let pieces = pieces.filter(|piece| !piece.output.is_null());
        let combine = |piece: Piece| {
            let other = received[piece.at - range.start..][..piece.bytes].as_ptr();
            let sources = match rank {
                0 => [piece.input, other],
                _ => [other, piece.input],
            };
            // SAFETY: the piece is readable and writable (`Span::new`), because both ranks
            // contribute, and what was received is as long; the output may be this rank's own
            // input, otherwise they overlap nothing. The input has been sent before.
            unsafe {
                reducer.combine(&sources, piece.output, std::ptr::null_mut(), piece.bytes);
            }
        };
        job.lap
            .file(|phases| &mut phases.reduce_ns, || pieces.for_each(combine));
        job.staging.give(received);
    }
}
