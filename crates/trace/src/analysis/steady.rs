//! The steady steps that are kept in full, as batches with the ready times of all ranks: what stragglers, fusion,
//! bandwidth and advice look at.

use super::collect::{Facts, RankRecord};
use super::join::{Readiness, Ready};
use super::op::{Op, join};
use crate::Span;

/// One step.
#[derive(Debug)]
pub(super) struct SteadyStep<'a> {
    pub(super) index: usize,
    pub(super) span: Span,
    /// In order of beginning.
    pub(super) batches: Vec<Batch<'a>>,
}

/// Tensors that travelled together.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    pub(super) members: &'a [Op],
    pub(super) ready: Vec<Ready>,
    pub(super) span: Span,
    /// Payload; none if a member's is unknown.
    pub(super) bytes: Option<u64>,
    /// When all ranks had all members ready; never after the beginning, unless operations are not negotiated: then the
    /// early ranks' bars begin before.
    pub(super) all_ready: i64,
}

impl Batch<'_> {
    /// Time from when it could be moved to its end, nanoseconds.
    pub(super) fn moving_ns(&self) -> i64 {
        self.span.ended - self.began()
    }

    /// When it could be moved: its beginning, or when the last rank had begun too.
    pub(super) fn began(&self) -> i64 {
        self.span.began.max(self.all_ready).min(self.span.ended)
    }

    /// What it was ready to wait for if `rank` is not waited for. The same as with it, where its time is not known.
    pub(super) fn ready_without(&self, rank: u32) -> i64 {
        let mut last = None;
        for (op, ready) in self.members.iter().zip(&self.ready) {
            let known = ready.all().is_some();
            let at = if known { ready.last_without(rank) } else { None };
            last = last.max(Some(at.unwrap_or(self.all_ready).min(op.span.ended)));
        }
        last.unwrap_or(self.all_ready).min(self.all_ready)
    }
}

/// The steps of the reference rank among `whole` that are kept.
pub(super) fn steps<'a>(
    record: &'a RankRecord,
    whole: impl Fn(usize, &Facts) -> bool,
    readiness: &Readiness,
    ranks: u32,
) -> Vec<SteadyStep<'a>> {
    let kept = record.kept.iter().filter_map(|kept| {
        let facts = record.steps.get(kept.index)?;
        whole(kept.index, facts).then(|| SteadyStep {
            index: kept.index,
            span: facts.span,
            batches: batches(record, &kept.ops, readiness, ranks),
        })
    });
    kept.collect()
}

fn batches<'a>(record: &RankRecord, ops: &'a [Op], readiness: &Readiness, ranks: u32) -> Vec<Batch<'a>> {
    let ranges = record.batcher.batches(ops).into_iter();
    let batches = ranges.map(|range| {
        let members = &ops[range];
        let ready: Vec<Ready> = members.iter().map(|op| readiness.of(op)).collect();
        let span = members
            .iter()
            .skip(1)
            .fold(members[0].span, |span, op| join(span, op.span));
        let all_ready = members.iter().zip(&ready).map(|(op, ready)| {
            let known = if !record.batcher.fuses {
                ready.all().and_then(|all| all.map(|(_, at)| at).max())
            } else {
                None
            };
            known.unwrap_or_else(|| op.all_ready(ranks)).min(op.span.ended)
        });
        let all_ready = all_ready.max().unwrap_or(span.began);
        let bytes = members
            .iter()
            .try_fold(0u64, |sum, op| Some(sum.saturating_add(op.bytes?)));
        Batch {
            members,
            ready,
            span,
            bytes,
            all_ready,
        }
    });
    batches.collect()
}
