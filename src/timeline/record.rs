//! Records as 64-bit words, the form in which they cross the ring from the cycle to the writer
//! thread.
//!
//! A record is a header word and a tail whose length is in the header. Times are nanoseconds on
//! this rank's clock, except the ticks of ranks, which come from negotiation and are on rank 0's
//! clock. Header, from the lowest bit: kind (8 bits), operation (8), number of ticks or activities
//! (16), tensor, number of members or number of the step (32). Names of activities are sent once,
//! beside the ring; a record contains their [`NameId`].

use super::event::{BatchRecord, Member, TensorId};
use crate::clock::Nanos;
use crate::collective::Phases;
use crate::negotiation::OpKind;
use crate::settings::Settings;
use crate::tensor::Dtype;

/// Number of the name of an activity, from 0 in the order in which they were sent to the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NameId(pub(super) u8);

/// Words appended by the cycle.
pub(super) type Words = Vec<u64>;

const CYCLE: u64 = 1;
const NEGOTIATED: u64 = 2;
const ERROR: u64 = 3;
const EXECUTED: u64 = 4;
const STEP: u64 = 5;
const EPOCH: u64 = 6;
const SETTINGS: u64 = 7;

/// Bits of the time in a tick, which is one word: rank above, microseconds below (2^52 µs = 142
/// years).
const TICK_TIME_BITS: u32 = 52;
const RANK_MAX: u64 = (1 << (64 - TICK_TIME_BITS)) - 1;
const TICK_TIME_MAX: u64 = (1 << TICK_TIME_BITS) - 1;
/// Bit in the word of an activity's name: the batch's phases were measured in this activity.
const MEASURED: u64 = 1 << 8;
/// Element type of a member without an output; no element type has a number this high.
const NO_OUTPUT: u64 = 0xff;
/// Time of submission of a member that this rank has not submitted.
const NOT_SUBMITTED: u64 = u64::MAX;

const OPS: [OpKind; 8] = [
    OpKind::Allreduce,
    OpKind::Allgather,
    OpKind::Broadcast,
    OpKind::Join,
    OpKind::Alltoall,
    OpKind::Barrier,
    OpKind::Reducescatter,
    OpKind::Agree,
];

/// Record, as the writer reads it.
#[derive(Debug)]
pub(super) enum Record<'a> {
    Cycle {
        at: Nanos,
    },
    /// The program marked the end of a step or epoch, its `number`-th.
    Step {
        number: u64,
        at: Nanos,
    },
    Epoch {
        number: u64,
        at: Nanos,
    },
    Settings {
        settings: Settings,
        at: Nanos,
    },
    Negotiated {
        tensor: TensorId,
        op: OpKind,
        ended: Nanos,
        ticks: &'a [u64],
    },
    Error {
        tensor: TensorId,
        began: Nanos,
        ended: Nanos,
    },
    Executed(Executed<'a>),
}

/// Batch, still in words.
#[derive(Clone, Debug)]
pub(super) struct Executed<'a> {
    pub(super) op: OpKind,
    pub(super) agreed: Nanos,
    pub(super) began: Nanos,
    pub(super) ended: Nanos,
    pub(super) phases: Phases,
    activities: &'a [u64],
    pub(super) members: Members<'a>,
}

fn header(kind: u64, low: u64, count: usize, high: u64) -> u64 {
    kind | low << 8 | (count as u64) << 16 | high << 32
}

pub(super) fn put_cycle(words: &mut Words, at: Nanos) {
    words.extend_from_slice(&[CYCLE, at.0]);
}

/// Inserts the mark of a step before the existing words: later records of the cycle may belong to
/// the next step.
pub(super) fn put_step_first(words: &mut Words, number: u64, at: Nanos) {
    let record = [header(STEP, 0, 0, number), at.0];
    words.splice(0..0, record);
}

pub(super) fn put_epoch(words: &mut Words, number: u64, at: Nanos) {
    words.extend_from_slice(&[header(EPOCH, 0, 0, number), at.0]);
}

pub(super) fn put_settings(words: &mut Words, settings: &Settings, at: Nanos) {
    let Settings {
        fusion_threshold_bytes,
        gpu_fusion_threshold_bytes,
        cycle_time_ns,
        ..
    } = *settings;
    let head = header(SETTINGS, 0, 0, settings.switches());
    words.extend_from_slice(&[
        head,
        at.0,
        fusion_threshold_bytes,
        gpu_fusion_threshold_bytes,
        cycle_time_ns,
    ]);
}

pub(super) fn put_error(words: &mut Words, tensor: TensorId, began: Nanos, ended: Nanos) {
    words.extend_from_slice(&[header(ERROR, 0, 0, tensor.0.into()), began.0, ended.0]);
}

/// Appends the record of a tensor that is ready on all ranks; `ticks` in microseconds on rank 0's
/// clock.
pub(super) fn put_negotiated(
    words: &mut Words,
    tensor: TensorId,
    op: OpKind,
    ended: Nanos,
    ticks: impl Iterator<Item = (usize, u64)>,
) {
    let at = words.len();
    words.extend_from_slice(&[0, ended.0]);
    words.extend(ticks.take(usize::from(u16::MAX)).map(|(rank, at_us)| {
        (rank as u64).min(RANK_MAX) << TICK_TIME_BITS | at_us.min(TICK_TIME_MAX)
    }));
    let ticks = words.len() - at - 2;
    words[at] = header(NEGOTIATED, op as u64, ticks, tensor.0.into());
}

/// Appends the record of a batch; `name_of` returns the number of a name.
pub(super) fn put_executed<'m>(
    words: &mut Words,
    batch: &BatchRecord<'_>,
    members: impl Iterator<Item = Member<'m>>,
    mut name_of: impl FnMut(&'static str) -> NameId,
) {
    let at = words.len();
    let phases = &batch.phases;
    words.extend_from_slice(&[
        0,
        batch.agreed.0,
        batch.began.0,
        batch.ended.0,
        phases.copy_in_ns,
        phases.reduce_ns,
        phases.copy_out_ns,
        phases.wait_ns,
        phases.lead_in_ns,
        phases.tail_out_ns,
    ]);
    let activities = &batch.activities[..batch.activities.len().min(usize::from(u16::MAX))];
    for activity in activities {
        let measured = if activity.measured { MEASURED } else { 0 };
        words.extend_from_slice(&[
            u64::from(name_of(activity.name).0) | measured,
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
        words.push(member.submitted.map_or(NOT_SUBMITTED, |at| at.0));
        words.extend(shape.iter().map(|&dimension| dimension as u64));
        count += 1;
    }
    words[at] = header(EXECUTED, batch.op as u64, activities.len(), count);
}

/// Members of an executed batch, still in words.
#[derive(Clone, Debug)]
pub(super) struct Members<'a> {
    words: &'a [u64],
    left: usize,
}

/// One member of a batch, still in words.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemberWords<'a> {
    pub(super) tensor: TensorId,
    pub(super) submitted: Option<Nanos>,
    pub(super) output: Option<(Dtype, &'a [u64])>,
}

impl<'a> Iterator for Members<'a> {
    type Item = MemberWords<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let (&[head, submitted], rest) = self.words.split_first_chunk::<2>()?;
        let (shape, rest) = rest.split_at_checked((head >> 16 & 0xffff) as usize)?;
        self.words = rest;
        Some(MemberWords {
            tensor: TensorId((head >> 32) as u32),
            submitted: (submitted != NOT_SUBMITTED).then_some(Nanos(submitted)),
            output: Dtype::from_wire(head as u8).map(|dtype| (dtype, shape)),
        })
    }
}

/// Removes the first record from `words`; returns `None` at the end.
pub(super) fn take<'a>(words: &mut &'a [u64]) -> Option<Record<'a>> {
    let (&head, rest) = words.split_first()?;
    let op = OPS.into_iter().find(|op| *op as u64 == head >> 8 & 0xff);
    let count = (head >> 16 & 0xffff) as usize;
    let high = head >> 32;
    let tensor = TensorId(high as u32);
    let (&at, rest) = rest.split_first()?;
    let at = Nanos(at);
    let (record, rest) = match head & 0xff {
        CYCLE => (Record::Cycle { at }, rest),
        STEP => (Record::Step { number: high, at }, rest),
        EPOCH => (Record::Epoch { number: high, at }, rest),
        SETTINGS => {
            let (&numbers, rest) = rest.split_first_chunk()?;
            let [
                fusion_threshold_bytes,
                gpu_fusion_threshold_bytes,
                cycle_time_ns,
            ] = numbers;
            let settings = Settings {
                fusion_threshold_bytes,
                gpu_fusion_threshold_bytes,
                cycle_time_ns,
                ..Settings::default()
            }
            .with_switches(high);
            (Record::Settings { settings, at }, rest)
        }
        ERROR => {
            let (&ended, rest) = rest.split_first()?;
            let ended = Nanos(ended);
            (
                Record::Error {
                    tensor,
                    began: at,
                    ended,
                },
                rest,
            )
        }
        NEGOTIATED => {
            let (ticks, rest) = rest.split_at_checked(count)?;
            let op = op?;
            (
                Record::Negotiated {
                    tensor,
                    op,
                    ended: at,
                    ticks,
                },
                rest,
            )
        }
        EXECUTED => {
            let (fixed, rest) = rest.split_first_chunk::<8>()?;
            let &[
                began,
                ended,
                copy_in_ns,
                reduce_ns,
                copy_out_ns,
                wait_ns,
                lead_in_ns,
                tail_out_ns,
            ] = fixed;
            let (activities, rest) = rest.split_at_checked(3 * count)?;
            let members = Members {
                words: rest,
                left: high as usize,
            };
            let mut after = members.clone();
            after.by_ref().for_each(drop);
            let rest = after.words;
            let executed = Executed {
                op: op?,
                agreed: at,
                began: Nanos(began),
                ended: Nanos(ended),
                phases: Phases {
                    copy_in_ns,
                    reduce_ns,
                    copy_out_ns,
                    wait_ns,
                    lead_in_ns,
                    tail_out_ns,
                    ..Phases::default()
                },
                activities,
                members,
            };
            (Record::Executed(executed), rest)
        }
        _ => return None,
    };
    *words = rest;
    Some(record)
}

/// Returns the rank of a tick word, and its microseconds on rank 0's clock.
pub(super) fn tick(word: u64) -> (u64, u64) {
    (word >> TICK_TIME_BITS, word & TICK_TIME_MAX)
}

impl Executed<'_> {
    /// Returns name, start and end of each activity, and whether the phases were measured in it.
    pub(super) fn activities(&self) -> impl Iterator<Item = (NameId, Nanos, Nanos, bool)> {
        let (activities, _) = self.activities.as_chunks::<3>();
        activities.iter().map(|&[name, began, ended]| {
            (
                NameId(name as u8),
                Nanos(began),
                Nanos(ended),
                name & MEASURED != 0,
            )
        })
    }
}
