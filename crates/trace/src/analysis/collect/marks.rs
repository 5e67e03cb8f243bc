//! Points in time that mean something: cycles, steps, epochs, settings.

use std::collections::VecDeque;

use crate::analysis::quantiles::{Sample, median};

/// Settings in force from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::analysis) struct InForce {
    pub(in crate::analysis) at: i64,
    pub(in crate::analysis) fusion_threshold_bytes: u64,
    pub(in crate::analysis) cycle_time_ns: u64,
}

/// The beginning or the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepMark {
    pub(super) at: i64,
    pub(super) begins: bool,
}

/// A file's marks.
#[derive(Clone, Debug)]
pub(in crate::analysis) struct Marks {
    pub(in crate::analysis) cycles: u64,
    /// Where steps begin and end, in order.
    pub(super) steps: Vec<StepMark>,
    pub(in crate::analysis) epochs: u64,
    /// Each as it comes into force; the same again is not kept.
    pub(in crate::analysis) settings: Vec<InForce>,
    recent: VecDeque<i64>,
    /// Nanoseconds between one cycle marker and the next.
    distances: Sample<f64>,
}

/// Cycle markers looked back at: an operation comes at its end, and some cycles may have passed since its beginning.
const RECENT_MOST: usize = 4_096;
/// Tuning changes settings some dozen times; more than this is not looked at.
const SETTINGS_MOST: usize = 10_000;

impl Default for Marks {
    fn default() -> Self {
        Self {
            cycles: 0,
            steps: Vec::new(),
            epochs: 0,
            settings: Vec::new(),
            recent: VecDeque::new(),
            distances: Sample::new(1 << 14),
        }
    }
}

impl Marks {
    pub(super) fn cycle(&mut self, at: i64) {
        self.cycles += 1;
        if let Some(&last) = self.recent.back() {
            if at < last {
                return; // the clock went back
            }
            self.distances.push((at - last) as f64);
        }
        if self.recent.len() == RECENT_MOST {
            self.recent.pop_front();
        }
        self.recent.push_back(at);
    }

    pub(super) fn step(&mut self, at: i64, begins: bool) {
        // Never back, so that steps have a length.
        let at = self.steps.last().map_or(at, |last| last.at.max(at));
        self.steps.push(StepMark { at, begins });
    }

    pub(super) fn settings(&mut self, at: i64, fusion_threshold_bytes: u64, cycle_time_ns: u64) {
        let new = InForce {
            at,
            fusion_threshold_bytes,
            cycle_time_ns,
        };
        let same = |last: &InForce| InForce { at, ..*last } == new;
        if !self.settings.last().is_some_and(same) && self.settings.len() < SETTINGS_MOST {
            self.settings.push(new);
        }
    }

    /// The last cycle marker at or before `at`.
    pub(super) fn cycle_before(&self, at: i64) -> Option<i64> {
        let after = self.recent.partition_point(|&cycle| cycle <= at);
        after.checked_sub(1).map(|index| self.recent[index])
    }

    /// Median distance of cycle markers, nanoseconds; none with fewer than ten.
    pub(in crate::analysis) fn cycle_distance_ns(&self) -> Option<f64> {
        let kept = self.distances.kept();
        (kept.len() >= 10).then(|| median(&mut kept.to_vec()))
    }

    /// Takes in those of a later segment.
    pub(in crate::analysis) fn append(&mut self, later: Self, shift_ns: i64) {
        self.cycles += later.cycles;
        self.epochs += later.epochs;
        for set in later.settings {
            self.settings(
                set.at.saturating_add(shift_ns),
                set.fusion_threshold_bytes,
                set.cycle_time_ns,
            );
        }
        later
            .distances
            .into_kept()
            .into_iter()
            .for_each(|distance| self.distances.push(distance));
    }
}
