//! The rule by which a search stops.

/// A proposal counts as not worth a sample if its expected improvement is below the threshold. With
/// a model the first of them ends the search, without one [`patience`](Self::patience) of them in a
/// row do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StopRule {
    /// Least expected improvement with a model, in log step time; 0 turns it off. Default 0.003.
    pub improvement_min: f64,
    /// Least expected improvement without a model, or while it is doubted. Default 0.005.
    pub improvement_min_cold: f64,
    /// Proposals in a row that are not worth it before a search without a model stops, ≥ 1: the
    /// earlier ones are still sampled. Default 2.
    pub patience: u32,
}

impl Default for StopRule {
    fn default() -> Self {
        Self {
            improvement_min: 0.003,
            improvement_min_cold: 0.005,
            patience: 2,
        }
    }
}

impl StopRule {
    /// Whether the search stops after so many proposals in a row that were not worth it.
    pub(crate) fn ends(&self, small: u32, with_model: bool) -> bool {
        small >= if with_model { 1 } else { self.patience }
    }

    /// Whether a sample of this expected improvement is not worth it.
    pub(crate) fn rejects(&self, improvement: f64, with_model: bool) -> bool {
        let least = if with_model {
            self.improvement_min
        } else {
            self.improvement_min_cold
        };
        // A proposal that cannot improve anything is worth nothing, whatever the thresholds.
        improvement <= 0.0 || improvement < least
    }
}

/// Cost of a change of setting, in steps: the step after it is slower by a quarter.
pub(crate) const CHANGE_COST: f64 = 0.25;

/// Cost of a sample of `steps` steps at this log step time above the best's, and `changes` for the
/// changes of setting; all in steps of the best. A faster setting costs its changes alone.
pub(crate) fn sample_cost(slowdown: f64, steps: f64, changes: f64) -> f64 {
    steps * slowdown.exp_m1().max(0.0) + changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_and_a_patience_for_either_case() {
        let rule = StopRule::default();
        assert!(!rule.rejects(0.004, true) && rule.rejects(0.004, false));
        let off = StopRule {
            improvement_min_cold: 0.0,
            ..rule
        };
        assert!(!off.rejects(0.004, false) && off.rejects(0.0, false));
        assert!(rule.ends(1, true) && !rule.ends(1, false) && rule.ends(2, false));
    }
}
