//! Store of completed steps: measurements of all of them, and operations of as many as fit.

use crate::Span;
use crate::analysis::op::{Batcher, Op};
use crate::analysis::parts::Parts;
use crate::analysis::quantiles::Sample;

/// A completed step with its operations.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) span: Span,
    /// Operations in order of start.
    pub(super) ops: Vec<Op>,
    /// Hash of the operations, independent of their order.
    pub(super) signature: u64,
    /// Whether the step is cut off by the file's start or end, or by a limit.
    pub(super) cut: Cut,
}

/// Completeness of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::analysis) enum Cut {
    Whole,
    /// The file begins within the step.
    Begun,
    /// The file ends within the step, or the step was too long to be kept.
    Ended,
}

/// Measurements of a step.
#[derive(Clone, Debug)]
pub(in crate::analysis) struct Facts {
    pub(in crate::analysis) span: Span,
    pub(in crate::analysis) parts: Parts,
    pub(in crate::analysis) tensors: u32,
    pub(in crate::analysis) batches: u32,
    pub(in crate::analysis) bytes: u64,
    pub(in crate::analysis) signature: u64,
    pub(in crate::analysis) cut: Cut,
    /// Copy in, reduce, copy out, wait: sums over its batches, nanoseconds; `None` if not measured.
    pub(in crate::analysis) sums: Option<[u64; 4]>,
}

/// A step with its operations.
#[derive(Debug)]
pub(in crate::analysis) struct KeptStep {
    pub(in crate::analysis) index: usize,
    pub(in crate::analysis) ops: Vec<Op>,
}

/// All steps so far.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) facts: Vec<Facts>,
    pub(super) kept: Vec<KeptStep>,
    /// Step and negotiation time of batches of cached tensors, and of other batches.
    pub(super) cached: Sample<(usize, f64)>,
    pub(super) uncached: Sample<(usize, f64)>,
    kept_bytes: usize,
    kept_bytes_most: usize,
    stride: usize,
    /// End of the last batch.
    idle_since: i64,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            facts: Vec::new(),
            kept: Vec::new(),
            cached: Sample::new(1 << 16),
            uncached: Sample::new(1 << 16),
            kept_bytes: 0,
            kept_bytes_most: usize::MAX,
            stride: 1,
            idle_since: i64::MIN / 2,
        }
    }
}

impl Store {
    /// Limits the operations to `bytes`.
    pub(super) fn limit(&mut self, bytes: usize) {
        self.kept_bytes_most = bytes;
    }

    /// Stores a step of a job with `ranks` ranks.
    pub(super) fn put(&mut self, step: Closed, parts: Parts, batcher: Batcher, ranks: u32) {
        let mut batches = 0;
        let mut sums: Option<[u64; 4]> = None;
        for range in batcher.batches(&step.ops) {
            let members = &step.ops[range];
            batches += 1;
            if let Some(measured) = members.iter().find_map(|op| op.sums) {
                let all = sums.get_or_insert_default();
                let parts = [
                    measured.copy_in_ns,
                    measured.reduce_ns,
                    measured.copy_out_ns,
                    measured.wait_ns,
                ];
                all.iter_mut()
                    .zip(parts)
                    .for_each(|(sum, ns)| *sum = sum.saturating_add(ns));
            }
            if batcher.fuses {
                self.negotiated(members, ranks);
            }
        }
        let index = self.facts.len();
        self.facts.push(Facts {
            span: step.span,
            parts,
            tensors: step.ops.len() as u32,
            batches,
            bytes: step
                .ops
                .iter()
                .fold(0, |sum, op| op.bytes.unwrap_or(0).saturating_add(sum)),
            signature: step.signature,
            cut: step.cut,
            sums,
        });
        if index.is_multiple_of(self.stride) && !step.ops.is_empty() {
            self.kept_bytes += step.ops.iter().map(Op::weight).sum::<usize>();
            self.kept.push(KeptStep {
                index,
                ops: step.ops,
            });
            while self.kept_bytes > self.kept_bytes_most && self.kept.len() > 1 {
                self.stride *= 2;
                let stride = self.stride;
                self.kept.retain(|step| step.index.is_multiple_of(stride));
                let weights = self.kept.iter().flat_map(|step| &step.ops).map(Op::weight);
                self.kept_bytes = weights.sum();
            }
        }
    }

    /// Adds the negotiation time of a batch of the next step: from ready on all ranks to its start,
    /// while no other batch is moved.
    fn negotiated(&mut self, members: &[Op], ranks: u32) {
        let began = members.iter().map(|op| op.span.began).min().unwrap_or(0);
        let ended = members.iter().map(|op| op.span.ended).max().unwrap_or(0);
        let idle_since = self.idle_since;
        self.idle_since = idle_since.max(ended);
        if members
            .iter()
            .all(|op| op.negotiation.is_none() && op.ticks.is_empty())
        {
            return;
        }
        let ready = members
            .iter()
            .map(|op| op.all_ready(ranks))
            .max()
            .unwrap_or(began);
        let ns = (began - ready.max(idle_since)).max(0) as f64;
        let sample = (self.facts.len(), ns);
        if members.iter().any(|op| op.occurrence == 0) {
            self.uncached.push(sample);
        } else {
            self.cached.push(sample);
        }
    }
}
