//! Records as 64-bit words, the form in which they cross the ring from the cycle to the writer thread.
//!
//! A record is a header word, two times, and a tail whose length the header gives. Times are nanoseconds on the
//! job's clock. Header, from the lowest bit: kind (8 bits), name (8), number of ticks or activities (16),
//! tensor or number of members (32). Names of operations and activities travel once, beside the ring; a record
//! has their [`NameId`].

use super::event::{BatchRecord, Member, TensorId};
use crate::clock::Nanos;
use crate::tensor::Dtype;

/// Number of a name of an operation or activity, counted from 0 in the order in which the writer learnt them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NameId(pub(super) u8);

/// Words appended by the cycle.
pub(super) type Words = Vec<u64>;

const CYCLE: u64 = 1;
const NEGOTIATED: u64 = 2;
const ERROR: u64 = 3;
const EXECUTED: u64 = 4;

/// A tick is one word: rank above, microseconds since the recorder's start below (2^44 µs = 203 days).
const TICK_TIME_BITS: u32 = 44;
const RANK_MAX: u64 = (1 << (64 - TICK_TIME_BITS)) - 1;
const TICK_TIME_MAX: u64 = (1 << TICK_TIME_BITS) - 1;
/// Element type of a member without an output; no wire number comes near.
const NO_OUTPUT: u64 = 0xff;

/// A record as the writer reads it back.
#[derive(Debug)]
pub(super) enum Record<'a> {
    Cycle {
        at: Nanos,
    },
    Negotiated {
        tensor: TensorId,
        name: NameId,
        began: Nanos,
        ended: Nanos,
        ticks: &'a [u64],
    },
    Error {
        tensor: TensorId,
        began: Nanos,
        ended: Nanos,
    },
    Executed {
        name: NameId,
        began: Nanos,
        ended: Nanos,
        activities: &'a [u64],
        members: Members<'a>,
    },
}

fn header(kind: u64, NameId(name): NameId, count: usize, tensor: u64) -> u64 {
    kind | u64::from(name) << 8 | (count as u64) << 16 | tensor << 32
}

pub(super) fn put_cycle(words: &mut Words, at: Nanos) {
    words.extend_from_slice(&[CYCLE, at.0]);
}

pub(super) fn put_error(words: &mut Words, tensor: TensorId, began: Nanos, ended: Nanos) {
    words.extend_from_slice(&[header(ERROR, NameId(0), 0, tensor.0.into()), began.0, ended.0]);
}

pub(super) fn put_negotiated(
    words: &mut Words,
    tensor: TensorId,
    name: NameId,
    (began, ended): (Nanos, Nanos),
    start: Nanos,
    ticks: impl Iterator<Item = (usize, Nanos)>,
) {
    let at = words.len();
    words.extend_from_slice(&[0, began.0, ended.0]);
    words.extend(ticks.take(usize::from(u16::MAX)).map(|(rank, at)| {
        let at_us = (at.0.saturating_sub(start.0) / 1_000).min(TICK_TIME_MAX);
        (rank as u64).min(RANK_MAX) << TICK_TIME_BITS | at_us
    }));
    let ticks = words.len() - at - 3;
    words[at] = header(NEGOTIATED, name, ticks, tensor.0.into());
}

/// Appends a batch; `name_of` gives the number under which the writer knows a name.
pub(super) fn put_executed<'m>(
    words: &mut Words,
    batch: &BatchRecord<'_>,
    members: impl Iterator<Item = Member<'m>>,
    mut name_of: impl FnMut(&'static str) -> NameId,
) {
    let at = words.len();
    words.extend_from_slice(&[0, batch.began.0, batch.ended.0]);
    let activities = &batch.activities[..batch.activities.len().min(usize::from(u16::MAX))];
    for activity in activities {
        words.extend_from_slice(&[
            u64::from(name_of(activity.name).0),
            activity.began.0,
            activity.ended.0,
        ]);
    }
    let mut count = 0u64;
    for member in members {
        let (dtype, shape) = member
            .output
            .map_or((NO_OUTPUT, &[][..]), |(dtype, shape)| (dtype as u64, shape));
        let shape = &shape[..shape.len().min(usize::from(u16::MAX))];
        words.push(dtype | (shape.len() as u64) << 16 | u64::from(member.tensor.0) << 32);
        words.extend(shape.iter().map(|&dimension| dimension as u64));
        count += 1;
    }
    words[at] = header(EXECUTED, name_of(batch.op.name()), activities.len(), count);
}

/// The members of an executed batch, still in words.
#[derive(Clone, Debug)]
pub(super) struct Members<'a> {
    words: &'a [u64],
    left: usize,
}

impl<'a> Iterator for Members<'a> {
    type Item = (TensorId, Option<(Dtype, &'a [u64])>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let (&head, rest) = self.words.split_first()?;
        let (shape, rest) = rest.split_at_checked((head >> 16 & 0xffff) as usize)?;
        self.words = rest;
        let output = Dtype::from_wire(head as u8).map(|dtype| (dtype, shape));
        Some((TensorId((head >> 32) as u32), output))
    }
}

/// Takes the first record off `words`; `None` at the end.
pub(super) fn take<'a>(words: &mut &'a [u64]) -> Option<Record<'a>> {
    let (&head, rest) = words.split_first()?;
    let (name, count) = (NameId((head >> 8) as u8), (head >> 16 & 0xffff) as usize);
    let tensor = TensorId((head >> 32) as u32);
    if head & 0xff == CYCLE {
        let (&at, rest) = rest.split_first()?;
        *words = rest;
        return Some(Record::Cycle { at: Nanos(at) });
    }
    let (times, rest) = rest.split_first_chunk::<2>()?;
    let [began, ended] = times.map(Nanos);
    let (record, rest) = match head & 0xff {
        ERROR => (Record::Error { tensor, began, ended }, rest),
        NEGOTIATED => {
            let (ticks, rest) = rest.split_at_checked(count)?;
            (
                Record::Negotiated {
                    tensor,
                    name,
                    began,
                    ended,
                    ticks,
                },
                rest,
            )
        }
        EXECUTED => {
            let (activities, rest) = rest.split_at_checked(3 * count)?;
            let members = Members {
                words: rest,
                left: tensor.0 as usize,
            };
            let mut after = members.clone();
            after.by_ref().for_each(drop);
            let rest = after.words;
            (
                Record::Executed {
                    name,
                    began,
                    ended,
                    activities,
                    members,
                },
                rest,
            )
        }
        _ => return None,
    };
    *words = rest;
    Some(record)
}

/// Rank and microseconds since the start of a tick word.
pub(super) fn tick(word: u64) -> (u64, u64) {
    (word >> TICK_TIME_BITS, word & TICK_TIME_MAX)
}

/// Name, beginning and end of each activity in an executed batch's words.
pub(super) fn activities(words: &[u64]) -> impl Iterator<Item = (NameId, Nanos, Nanos)> {
    let (activities, _) = words.as_chunks::<3>();
    activities
        .iter()
        .map(|&[name, began, ended]| (NameId(name as u8), Nanos(began), Nanos(ended)))
}
