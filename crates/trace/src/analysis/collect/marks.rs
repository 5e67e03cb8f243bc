//! Marks of a file: cycles, steps, epochs, settings.

use std::collections::VecDeque;

use crate::analysis::quantiles::{Sample, median};

/// Settings in force from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::analysis) struct InForce {
    pub(in crate::analysis) at: i64,
    pub(in crate::analysis) fusion_threshold_bytes: u64,
    pub(in crate::analysis) cycle_time_ns: u64,
    /// Limit of batches on GPUs, once it has changed.
    pub(in crate::analysis) gpu_fusion_threshold_bytes: Option<u64>,
}

/// Start or end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepMark {
    pub(super) at: i64,
    pub(super) begins: bool,
}

/// Marks of a file.
#[derive(Clone, Debug)]
pub(in crate::analysis) struct Marks {
    pub(in crate::analysis) cycles: u64,
    /// Starts and ends of steps, in order.
    pub(super) steps: Vec<StepMark>,
    pub(in crate::analysis) epochs: u64,
    /// Settings in order of time; repetitions are not kept.
    pub(in crate::analysis) settings: Vec<InForce>,
    recent: VecDeque<i64>,
    /// Distances of successive cycle markers, nanoseconds.
    distances: Sample<f64>,
}

/// Number of recent cycle markers kept: an operation is read at its end, when later cycles may have
/// begun.
const RECENT_MOST: usize = 4_096;
/// Minimum number of distances for an estimate of the cycle time.
const DISTANCES_LEAST: usize = 10;
/// Minimum ratio of the first quartile of the distances to their median for that estimate.
const ALIKE_LEAST: f64 = 0.8;
/// Maximum number of changes of settings; tuning makes some dozens.
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
        // Times never go back, so that no step has a negative length.
        let at = self.steps.last().map_or(at, |last| last.at.max(at));
        self.steps.push(StepMark { at, begins });
    }

    /// Adds settings with these thresholds of host memory and of GPUs; the latter, if it has
    /// changed.
    pub(super) fn settings(
        &mut self,
        at: i64,
        (fusion_threshold_bytes, of_gpus): (u64, Option<u64>),
        cycle_time_ns: u64,
    ) {
        let before = self.settings.last();
        let new = InForce {
            at,
            fusion_threshold_bytes,
            gpu_fusion_threshold_bytes: of_gpus
                .or_else(|| before.and_then(|before| before.gpu_fusion_threshold_bytes)),
            cycle_time_ns,
        };
        let same = |last: &InForce| InForce { at, ..*last } == new;
        if !self.settings.last().is_some_and(same) && self.settings.len() < SETTINGS_MOST {
            self.settings.push(new);
        }
    }

    /// Time of the last cycle marker at or before `at`.
    pub(super) fn cycle_before(&self, at: i64) -> Option<i64> {
        let after = self.recent.partition_point(|&cycle| cycle <= at);
        after.checked_sub(1).map(|index| self.recent[index])
    }

    /// Estimate of the cycle time: the median distance of cycle markers, nanoseconds.
    ///
    /// Idle cycles are one cycle time apart, cycles with operations further. `None` with fewer than
    /// ten distances, or if most of them are not alike, so that few cycles were idle.
    pub(in crate::analysis) fn cycle_distance_ns(&self) -> Option<f64> {
        let mut kept = self.distances.kept().to_vec();
        if kept.len() < DISTANCES_LEAST {
            return None;
        }
        let middle = median(&mut kept);
        kept.sort_unstable_by(f64::total_cmp);
        let alike = kept[kept.len() / 4] >= ALIKE_LEAST * middle;
        alike.then_some(middle)
    }

    /// Adds the marks of a later segment.
    pub(in crate::analysis) fn append(&mut self, later: Self, shift_ns: i64) {
        self.cycles += later.cycles;
        self.epochs += later.epochs;
        for set in later.settings {
            self.settings(
                set.at.saturating_add(shift_ns),
                (set.fusion_threshold_bytes, set.gpu_fusion_threshold_bytes),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(distances_us: &[i64]) -> Option<f64> {
        let mut marks = Marks::default();
        let mut at = 0;
        marks.cycle(at);
        for us in distances_us {
            at += us * 1_000;
            marks.cycle(at);
        }
        marks.cycle_distance_ns().map(|ns| ns / 1e6)
    }

    #[test]
    fn the_cycle_time_is_the_distance_of_idle_cycles() {
        let idle = [&[5_000; 20][..], &[90_000; 5]].concat();
        assert_eq!(estimate(&idle), Some(5.0));
        let busy = [&[5_000; 8][..], &[90_000; 9]].concat();
        assert_eq!(estimate(&busy), None, "most cycles execute operations");
        assert_eq!(estimate(&[5_000; 9]), None);
    }
}
