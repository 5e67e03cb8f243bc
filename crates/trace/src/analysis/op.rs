//! An operation as the analysis keeps it, and operations that travelled together.

use smallvec::SmallVec;

use crate::{Activity, Kind, NameId, Operation, PhaseSums, Span, Tick};
use ronde_job::Dtype;
use ronde_job::fusion_class::{Fusible, FusionKey};

/// Times beyond this (about 73 years) are nonsense; cut off there, no sum or difference of a few of
/// them overflows.
const TIME_MOST: i64 = i64::MAX / 4;

/// A time that can be reckoned with.
pub(super) fn sane(at: i64) -> i64 {
    at.clamp(-TIME_MOST, TIME_MOST)
}

/// A span that can be reckoned with and does not end before it begins.
pub(super) fn sane_span(span: Span) -> Span {
    let began = sane(span.began);
    Span {
        began,
        ended: sane(span.ended).max(began),
    }
}

/// An operation that was executed.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) tensor: NameId,
    pub(super) kind: Kind,
    pub(super) dtype: Option<Dtype>,
    pub(super) elements: Option<u64>,
    /// Payload; none if the file does not say.
    pub(super) bytes: Option<u64>,
    /// How often the tensor had travelled before.
    pub(super) occurrence: u32,
    pub(super) negotiation: Option<Span>,
    pub(super) ticks: SmallVec<[Tick; 4]>,
    /// The execution.
    pub(super) span: Span,
    pub(super) activities: SmallVec<[Activity; 4]>,
    pub(super) sums: Option<PhaseSums>,
    /// The last cycle marker before the execution.
    pub(super) cycle: Option<i64>,
}

impl Op {
    /// `operation`, if it was executed; and whether any of its times had to be put right.
    pub(super) fn new(operation: &Operation, occurrence: u32, cycle: Option<i64>) -> Option<(Self, bool)> {
        let raw = operation.execution?;
        let span = sane_span(raw);
        let mut odd = span != raw;
        let mut ticks = operation.ticks.clone();
        for tick in &mut ticks {
            odd |= tick.at != sane(tick.at);
            tick.at = sane(tick.at);
        }
        let mut activities = operation.activities.clone();
        for activity in &mut activities {
            odd |= activity.span != sane_span(activity.span);
            activity.span = sane_span(activity.span);
        }
        activities.retain(|activity| activity.span.ended > span.began); // what came before is negotiation
        let bytes = operation.bytes.or_else(|| {
            let size = operation.dtype?.size_bytes() as u64;
            Some(operation.elements?.saturating_mul(size))
        });
        let op = Self {
            tensor: operation.tensor,
            kind: operation.kind,
            dtype: operation.dtype,
            elements: operation.elements,
            bytes,
            occurrence,
            negotiation: operation.negotiation.map(sane_span),
            ticks,
            span,
            activities,
            sums: operation.sums,
            cycle,
        };
        Some((op, odd))
    }

    /// When `rank` had it ready: its tick; without one, when the first rank had; without
    /// negotiation, when it began. Never after the execution began.
    pub(super) fn ready(&self, rank: u32) -> i64 {
        self.tick(rank)
            .or(self.negotiation.map(|span| span.began))
            .unwrap_or(self.span.began)
            .min(self.span.began)
    }

    /// When `rank` said that it had it ready.
    pub(super) fn tick(&self, rank: u32) -> Option<i64> {
        self.ticks
            .iter()
            .find(|tick| tick.rank == rank)
            .map(|tick| tick.at)
    }

    /// When all of `ranks` ranks had it ready: the last tick if they are all there, else the end of
    /// the negotiation. Never after the execution began.
    pub(super) fn all_ready(&self, ranks: u32) -> i64 {
        let last = self.ticks.iter().map(|tick| tick.at).max();
        let ended = self.negotiation.map(|span| span.ended);
        let at = if self.ticks.len() >= ranks as usize {
            last
        } else {
            ended.or(last)
        };
        at.unwrap_or(self.span.began).min(self.span.began)
    }

    /// Memory that it takes, roughly.
    pub(super) fn weight(&self) -> usize {
        let ticks = if self.ticks.spilled() {
            size_of_val(&*self.ticks)
        } else {
            0
        };
        let activities = if self.activities.spilled() {
            size_of_val(&*self.activities)
        } else {
            0
        };
        size_of::<Self>() + ticks + activities
    }

    /// What the members of its batch have in common. The file does not say how elements are
    /// combined, nor the root of a broadcast.
    pub(super) fn fusion_key(&self) -> FusionKey<'static> {
        let operation = match self.kind {
            Kind::Allreduce => Some(Fusible::Allreduce),
            Kind::Adasum => Some(Fusible::Adasum),
            Kind::Allgather => Some(Fusible::Allgather),
            Kind::Broadcast => Some(Fusible::Broadcast),
            Kind::Reducescatter => Some(Fusible::Reducescatter),
            Kind::Alltoall | Kind::Join | Kind::Barrier | Kind::PointToPoint | Kind::Other => None,
        };
        FusionKey {
            dtype: self.dtype,
            ..FusionKey::new(operation)
        }
    }

    /// Whether both may have travelled in one batch.
    pub(super) fn may_share(&self, other: &Self) -> bool {
        self.fusion_key().may_share(&other.fusion_key())
    }

    /// Beginning of its first activity, or its end.
    fn first_activity(&self) -> i64 {
        let began = self.activities.iter().map(|activity| activity.span.began).min();
        began.unwrap_or(self.span.ended)
    }
}

/// From the earlier beginning to the later end.
pub(super) fn join(a: Span, b: Span) -> Span {
    Span {
        began: a.began.min(b.began),
        ended: a.ended.max(b.ended),
    }
}

/// Groups operations, which come in order of beginning, into batches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batcher {
    /// Whether the format fuses at all: where operations are not negotiated, each travels alone and
    /// may overlap others.
    pub(super) fuses: bool,
}

impl Batcher {
    /// Whether `op` belongs to the batch whose first member is `first`. Horovod opens the bars of
    /// all members, one after another, before it does anything; so a member begins before the first
    /// activity of the first member does, and ends after it. Asynchronous backends overlap batches,
    /// but not like that.
    pub(super) fn joins(self, first: &Op, op: &Op) -> bool {
        self.fuses
            && first.may_share(op)
            && op.span.began <= first.first_activity()
            && op.span.ended >= first.first_activity()
            // Bars of no length in one microsecond of the clock: nothing to tell them apart by but
            // their size in time.
            && (op.span.began < first.span.ended || op.span == first.span)
    }

    /// The batches of `ops`, as ranges.
    pub(super) fn batches(self, ops: &[Op]) -> Vec<std::ops::Range<usize>> {
        let mut batches = Vec::new();
        let mut first = 0;
        for index in 1..=ops.len() {
            if index == ops.len() || !self.joins(&ops[first], &ops[index]) {
                batches.push(first..index);
                first = index;
            }
        }
        batches
    }
}
