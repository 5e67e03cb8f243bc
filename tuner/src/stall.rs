//! Stalls by setting: what single steps take beyond the usual, summed over all steps of a comparison and after it.

use std::collections::VecDeque;

use crate::center::median;
use crate::guard::Arm;

/// The usual step time is the median of at most this many latest steps, of either setting.
const LATEST_STEPS: usize = 15;
/// A step's stall is what it takes beyond this multiple of the usual, at most [`STALL_MAX`] multiples.
pub(crate) const STALL_FREE: f64 = 1.25;
const STALL_MAX: f64 = 30.0;

/// Stalls of either setting, in usual steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stalls {
    latest: VecDeque<f64>,
    sums: [f64; 2],
    steps: [f64; 2],
}

impl Stalls {
    /// Takes a step, ms.
    pub(crate) fn push(&mut self, arm: Arm, step_ms: f64) {
        let latest: Vec<f64> = self.latest.iter().copied().collect();
        if !latest.is_empty() {
            let excess = step_ms / median(&latest) - STALL_FREE;
            self.sums[arm as usize] += excess.clamp(0.0, STALL_MAX);
        }
        self.steps[arm as usize] += 1.0;
        if self.latest.len() == LATEST_STEPS {
            self.latest.pop_front();
        }
        self.latest.push_back(step_ms);
    }

    /// Stalls per step.
    pub(crate) fn rate(&self, arm: Arm) -> f64 {
        self.sums[arm as usize] / self.steps[arm as usize].max(1.0)
    }

    /// Steps taken.
    pub(crate) fn steps(&self, arm: Arm) -> f64 {
        self.steps[arm as usize]
    }
}
