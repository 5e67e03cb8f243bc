//! Steady steps that are kept in full, as batches with the ready times of all ranks: input of the
//! analyses of stragglers, fusion, bandwidth and advice.

use super::collect::{Facts, RankRecord};
use super::join::{Readiness, Ready};
use super::op::{Op, join};
use crate::Span;

/// One steady step.
#[derive(Debug)]
pub(super) struct SteadyStep<'a> {
    pub(super) index: usize,
    pub(super) span: Span,
    /// Batches in order of start.
    pub(super) batches: Vec<Batch<'a>>,
}

/// Tensors that one collective operation processed together.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    pub(super) members: &'a [Op],
    pub(super) ready: Vec<Ready>,
    pub(super) span: Span,
    /// Payload; `None` if a member's size is unknown.
    pub(super) bytes: Option<u64>,
    /// Time at which all ranks had all members ready. Never after the start, unless operations are
    /// not negotiated: then the bars of early ranks begin before it.
    pub(super) all_ready: i64,
}

impl Batch<'_> {
    /// Time from the earliest possible start of the transfer to its end, nanoseconds.
    pub(super) fn moving_ns(&self) -> i64 {
        self.span.ended - self.began()
    }

    /// Earliest possible start of the transfer: the batch has begun on this rank and all ranks are
    /// ready.
    pub(super) fn began(&self) -> i64 {
        self.span.began.max(self.all_ready).min(self.span.ended)
    }

    /// Ready time if `ranks` are not waited for; unchanged if the ready times are not all known.
    pub(super) fn ready_without(&self, ranks: &[u32]) -> i64 {
        let mut last = None;
        for (op, ready) in self.members.iter().zip(&self.ready) {
            let known = ready.all().is_some();
            let at = if known {
                ready.last_without(ranks)
            } else {
                None
            };
            last = last.max(Some(at.unwrap_or(self.all_ready).min(op.span.ended)));
        }
        last.unwrap_or(self.all_ready).min(self.all_ready)
    }
}

/// Steps of the reference rank among `whole` whose operations are kept.
pub(super) fn steps<'a>(
    record: &'a RankRecord,
    whole: impl Fn(usize, &Facts) -> bool,
    readiness: &Readiness,
) -> Vec<SteadyStep<'a>> {
    let kept = record.kept.iter().filter_map(|kept| {
        let facts = record.steps.get(kept.index)?;
        whole(kept.index, facts).then(|| SteadyStep {
            index: kept.index,
            span: facts.span,
            batches: batches(record, &kept.ops, readiness),
        })
    });
    kept.collect()
}

fn batches<'a>(record: &RankRecord, ops: &'a [Op], readiness: &Readiness) -> Vec<Batch<'a>> {
    let ranges = record.batcher.batches(ops).into_iter();
    let batches = ranges.map(|range| {
        let members = &ops[range];
        let ready: Vec<Ready> = members.iter().map(|op| readiness.of(op)).collect();
        let span = members
            .iter()
            .skip(1)
            .fold(members[0].span, |span, op| join(span, op.span));
        let all_ready = members.iter().zip(&ready);
        let all_ready = all_ready.map(|(op, ready)| readiness.all_ready(op, ready));
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
