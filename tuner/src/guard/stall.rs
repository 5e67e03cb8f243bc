//! Stalls: the part of single steps beyond the usual step time, by setting.
//!
//! [`Stalls`] sums them over the steps of a comparison and after it. [`Ledger`] bounds their cost
//! before an adoption.

use crate::center::median;
use crate::guard::{Arm, WINSOR_FACTOR};

/// The usual step time is the median of at most this many latest steps, of both settings or of the
/// step's own.
const LATEST_STEPS: usize = 15;
/// A step's stall is its part beyond this multiple of the usual, at most [`WINSOR_FACTOR`]
/// multiples.
pub(crate) const STALL_FREE: f64 = 1.25;
/// Steps that the stalls of other settings may cost beyond those of the default and the start
/// before the start is in force for a while. A simulation bounds the cost of stalls before an
/// adoption to 0.33 % of 3,000 steps and one stall.
const LEDGER_MAX: f64 = 10.0;
/// Largest number of rests after which a search resumes: the end of the next one ends it.
const RESTS_MAX: u32 = 3;

/// Number of steps and sum of stalls, for the default and for the other settings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stalls {
    /// The latest steps of both settings, of the default, and of the others.
    latest: [Vec<f64>; 3],
    stalls: [f64; 2],
    pub(super) steps: [f64; 2],
}

impl Stalls {
    /// Takes a step, ms. The usual step time is that of the latest steps, or that of the latest
    /// ones of its setting if it is larger: an ordinary step of the slower setting is no stall.
    pub(crate) fn push(&mut self, arm: Arm, step_ms: f64) {
        let series = [0, 1 + arm as usize];
        let [both, own] = series.map(|of| match self.latest[of].as_slice() {
            [] => 0.0,
            latest => median(latest),
        });
        let usual = if both == 0.0 { step_ms } else { both.max(own) };
        self.add(arm, step_ms, usual);
        for of in series {
            let latest = &mut self.latest[of];
            if latest.len() == LATEST_STEPS {
                latest.remove(0);
            }
            latest.push(step_ms);
        }
    }

    /// Takes a step and the usual step time, in any unit.
    fn add(&mut self, arm: Arm, step: f64, usual: f64) {
        let stall = (step - STALL_FREE * usual).clamp(0.0, WINSOR_FACTOR * usual);
        self.stalls[arm as usize] += stall;
        self.steps[arm as usize] += 1.0;
    }

    /// Stalls per step.
    pub(crate) fn rate(&self, arm: Arm) -> f64 {
        self.stalls[arm as usize] / self.steps[arm as usize].max(1.0)
    }
}

/// Cost of the stalls of a search and its comparisons, in steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    stalls: Stalls,
    rests: u32,
}

impl Ledger {
    /// Takes a step, relative to the usual step time of its setting or of the start, whichever is
    /// longer.
    pub(crate) fn push(&mut self, arm: Arm, relative: f64) {
        self.stalls.add(arm, relative, 1.0);
    }

    /// Stalls of other settings beyond those of the default and the start in as many steps.
    fn cost(&self) -> f64 {
        let Stalls { stalls, steps, .. } = &self.stalls;
        let other = Arm::Candidate as usize;
        stalls[other] - steps[other] * self.stalls.rate(Arm::Default)
    }

    /// Whether the start is to be in force, until its stalls are known as well.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.cost() > LEDGER_MAX
    }

    /// Whether the search resumes: the stalls are the environment's. `None` if that is not known
    /// yet.
    pub(crate) fn resumes(&mut self) -> Option<bool> {
        if self.cost() <= LEDGER_MAX / 2.0 {
            self.rests += 1;
            return Some(self.rests <= RESTS_MAX);
        }
        let [default, other] = self.stalls.steps;
        (default >= 2.0 * other).then_some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_step_of_a_slower_setting_is_no_stall() {
        let mut stalls = Stalls::default();
        for step in 0..200 {
            // Visits to the default among many steps of a setting that is faster by 40 %.
            let (arm, step_ms) = match step % 20 {
                0..4 => (Arm::Default, 100.0),
                _ => (Arm::Candidate, 60.0),
            };
            stalls.push(arm, step_ms);
        }
        assert_eq!(stalls.rate(Arm::Default), 0.0);
        let before = stalls.stalls;
        stalls.push(Arm::Candidate, 300.0);
        assert_eq!(stalls.stalls[0], before[0]);
        assert!(stalls.stalls[1] - before[1] > 200.0);
    }
}
