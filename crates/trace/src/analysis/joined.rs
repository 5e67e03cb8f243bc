//! Measures the steps of the reference rank again, with the ready times of all ranks.
//!
//! A file that has the ready times of its own rank only cannot tell waiting for ranks from
//! communication. With the files of all ranks, both are known for the steps whose operations are
//! kept.

use super::collect::{Facts, RankRecord};
use super::join::Readiness;
use super::op::Op;
use super::parts::{self, Parts};
use super::report::Summary;
use super::summary::summarize;

/// Steps of the reference rank.
#[derive(Debug)]
pub(super) struct Measured {
    /// All steps; if there are files of all ranks, the kept ones have parts that were measured
    /// with them.
    pub(super) steps: Vec<Facts>,
    /// Indices of the kept steps, in order, if these were measured again.
    again: Option<Vec<usize>>,
    compute_known: bool,
}

impl Measured {
    pub(super) fn new(record: &RankRecord, readiness: &Readiness) -> Self {
        let mut steps = record.steps.clone();
        let again = readiness.joins_all().then(|| {
            let kept = record.kept.iter().filter_map(|kept| {
                let facts = steps.get_mut(kept.index)?;
                facts.parts = parts(record, facts, &kept.ops, readiness);
                Some(kept.index)
            });
            kept.collect()
        });
        Self {
            steps,
            again,
            compute_known: record.work.is_known(),
        }
    }

    /// Summary of the steps `indices`, the complete ones from step `first` on. None without steps.
    pub(super) fn summary(&self, first: usize, indices: &[usize]) -> Option<Summary> {
        let steps = |indices: &mut dyn Iterator<Item = usize>| {
            let steps: Vec<&Facts> = indices.map(|index| &self.steps[index]).collect();
            summarize(first, &steps, self.compute_known)
        };
        let all = steps(&mut indices.iter().copied())?;
        let Some(again) = &self.again else {
            return Some(all);
        };
        // Parts that were measured in two ways are not mixed.
        let is_again = |index: &usize| again.binary_search(index).is_ok();
        match steps(&mut indices.iter().copied().filter(is_again)) {
            Some(measured) => Some(Summary {
                steps: all.steps,
                step_ms: all.step_ms,
                bytes: all.bytes,
                ..measured
            }),
            None => Some(all),
        }
    }
}

fn parts(record: &RankRecord, step: &Facts, ops: &[Op], readiness: &Readiness) -> Parts {
    let all_ready = |op: &Op| readiness.all_ready(op, &readiness.of(op));
    let computing = record.work.computing(record.waits);
    parts::sweep(step.span, ops, record.rank(), all_ready, computing)
}
