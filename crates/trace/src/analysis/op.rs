//! Executed operations of the analysis, and their grouping into batches.

use smallvec::SmallVec;

use crate::{Activity, Kind, NameId, Operation, PhaseSums, Span, Tick};
use ronde_job::Dtype;
use ronde_job::fusion_class::{Fusible, FusionKey};

/// Limit on times (about 73 years): larger ones are clamped, so that sums and differences of a few
/// of them do not overflow.
const TIME_MOST: i64 = i64::MAX / 4;

/// Clamps a time.
pub(super) fn sane(at: i64) -> i64 {
    at.clamp(-TIME_MOST, TIME_MOST)
}

/// Clamps a span; its end is never before its start.
pub(super) fn sane_span(span: Span) -> Span {
    let began = sane(span.began);
    Span {
        began,
        ended: sane(span.ended).max(began),
    }
}

/// An executed operation.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) tensor: NameId,
    pub(super) kind: Kind,
    pub(super) dtype: Option<Dtype>,
    pub(super) elements: Option<u64>,
    /// Payload; `None` if the file does not state it.
    pub(super) bytes: Option<u64>,
    /// Number of earlier operations on the tensor.
    pub(super) occurrence: u32,
    pub(super) negotiation: Option<Span>,
    pub(super) ticks: SmallVec<[Tick; 4]>,
    /// Execution.
    pub(super) span: Span,
    pub(super) activities: SmallVec<[Activity; 4]>,
    /// Activities that end before the execution: BytePS's `COORDINATE_*`, part of the negotiation.
    pub(super) earlier: Box<[Activity]>,
    pub(super) sums: Option<PhaseSums>,
    /// Last cycle marker before the execution.
    pub(super) cycle: Option<i64>,
}

impl Op {
    /// Converts `operation`, if it was executed. The flag is whether any of its times had to be
    /// corrected.
    pub(super) fn new(
        operation: &Operation,
        occurrence: u32,
        cycle: Option<i64>,
    ) -> Option<(Self, bool)> {
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
        let is_earlier = |activity: &Activity| activity.span.ended <= span.began;
        let earlier = activities.iter().copied().filter(is_earlier).collect();
        activities.retain(|activity| !is_earlier(activity));
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
            earlier,
            sums: operation.sums,
            cycle,
        };
        Some((op, odd))
    }

    /// Ready time on `rank`: its tick; without a tick, the start of the negotiation (the first
    /// rank's); without a negotiation, the start of the execution. Never after that.
    pub(super) fn ready(&self, rank: u32) -> i64 {
        self.tick(rank)
            .or(self.negotiation.map(|span| span.began))
            .unwrap_or(self.span.began)
            .min(self.span.began)
    }

    /// Tick of `rank`.
    pub(super) fn tick(&self, rank: u32) -> Option<i64> {
        self.ticks
            .iter()
            .find(|tick| tick.rank == rank)
            .map(|tick| tick.at)
    }

    /// Ready time on all of `ranks` ranks: the last tick if all ranks have one, otherwise the end
    /// of the negotiation. Never after the start of the execution.
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

    /// Approximate memory, bytes.
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
        size_of::<Self>() + ticks + activities + size_of_val(&*self.earlier)
    }

    /// Properties that all members of a batch share. The file has neither the reduction operation
    /// nor the root of a broadcast.
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

    /// Whether both can be in one batch.
    pub(super) fn may_share(&self, other: &Self) -> bool {
        self.fusion_key().may_share(&other.fusion_key())
    }

    /// Start of the first activity; the operation's end if there is none.
    fn first_activity(&self) -> i64 {
        let began = self
            .activities
            .iter()
            .map(|activity| activity.span.began)
            .min();
        began.unwrap_or(self.span.ended)
    }
}

/// Span from the earlier start to the later end.
pub(super) fn join(a: Span, b: Span) -> Span {
    Span {
        began: a.began.min(b.began),
        ended: a.ended.max(b.ended),
    }
}

/// Groups operations, given in order of start, into batches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batcher {
    /// Whether the format fuses tensors. Otherwise operations are not negotiated: each is a batch
    /// of its own and may overlap others.
    pub(super) fuses: bool,
}

impl Batcher {
    /// Whether `op` belongs to the batch whose first member is `first`. Horovod opens the bars of
    /// all members, one after another, before any activity; so a member begins before the first
    /// activity of the first member, and ends after it. Batches of asynchronous backends overlap,
    /// but not in this way.
    pub(super) fn joins(self, first: &Op, op: &Op) -> bool {
        self.fuses
            && first.may_share(op)
            && op.span.began <= first.first_activity()
            && op.span.ended >= first.first_activity()
            // Empty bars in the same microsecond can only be distinguished by their spans.
            && (op.span.began < first.span.ended || op.span == first.span)
    }

    /// Batches of `ops`, as index ranges.
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
