//! When another sample is not worth its cost.

/// The rule by which a search stops. A proposal counts as not worth it if its expected improvement is below the threshold, or if
/// [`worth`](Self::worth) says so. With a model the first of them ends the search, without one [`patience`](Self::patience) of them in
/// a row do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StopRule {
    /// Least expected improvement with a model, in log step time; 0 turns it off. Default 0.003.
    pub improvement_min: f64,
    /// The same without a model, or once it has lost its weight. Default 0.005.
    pub improvement_min_cold: f64,
    /// Proposals in a row that are not worth it before a search without a model stops, ≥ 1: the earlier ones are still sampled.
    /// Default 2.
    pub patience: u32,
    /// What a sample costs and what its improvement earns, in steps. Default none.
    pub worth: Option<Worth>,
}

/// A sample's cost against what it earns: it is worth it while expected improvement × remaining steps exceeds steps per sample ×
/// expected slow-down + the change's cost. All in steps of the setting that is best so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worth {
    /// Steps that the training still has when the search begins. Default 2,000.
    pub horizon_steps: f64,
    /// Steps that a sample takes, those after the change that are discarded among them. Default 9.
    pub sample_steps: f64,
    /// What a change of setting costs by itself. Default 0.25.
    pub change_steps: f64,
}

impl Default for StopRule {
    fn default() -> Self {
        Self {
            improvement_min: 0.003,
            improvement_min_cold: 0.005,
            patience: 2,
            worth: None,
        }
    }
}

impl Default for Worth {
    fn default() -> Self {
        Self {
            horizon_steps: 2000.0,
            sample_steps: 9.0,
            change_steps: 0.25,
        }
    }
}

/// A proposal as the stop rule sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prospect {
    /// Expected improvement on the incumbent, in log step time: with a model, of what one sample teaches.
    pub(crate) improvement: f64,
    /// Predicted log step time less the incumbent's.
    pub(crate) slowdown: f64,
    /// Steps that the search has taken.
    pub(crate) steps: f64,
    /// Whether a model has its say.
    pub(crate) with_model: bool,
}

impl StopRule {
    /// Whether the search stops after so many proposals in a row that were not worth it.
    pub(crate) fn ends(&self, small: u32, with_model: bool) -> bool {
        small >= if with_model { 1 } else { self.patience }
    }

    /// Whether a sample there is not worth it.
    pub(crate) fn rejects(&self, prospect: &Prospect) -> bool {
        let least = if prospect.with_model {
            self.improvement_min
        } else {
            self.improvement_min_cold
        };
        // A proposal that cannot improve anything is worth nothing, whatever the thresholds.
        prospect.improvement <= 0.0
            || prospect.improvement < least
            || self.worth.is_some_and(|worth| worth.rejects(prospect))
    }
}

impl Worth {
    fn rejects(&self, prospect: &Prospect) -> bool {
        let earned = prospect.improvement * (self.horizon_steps - prospect.steps).max(0.0);
        earned < sample_cost(prospect.slowdown, self.sample_steps, self.change_steps)
    }
}

/// Cost of a change of setting, in steps: the step after it is slower by a quarter.
pub(crate) const CHANGE_COST: f64 = 0.25;

/// What a sample costs that takes `steps` at this log step time above the best's, and `changes` for the changes of setting; all in steps
/// of the best. A faster setting costs its changes alone.
pub(crate) fn sample_cost(slowdown: f64, steps: f64, changes: f64) -> f64 {
    steps * slowdown.exp_m1().max(0.0) + changes
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROSPECT: Prospect = Prospect {
        improvement: 0.006,
        slowdown: 0.0,
        steps: 100.0,
        with_model: true,
    };

    #[test]
    fn a_threshold_for_either_case() {
        let rule = StopRule::default();
        let small = Prospect {
            improvement: 0.004,
            ..PROSPECT
        };
        assert!(!rule.rejects(&small));
        let cold = Prospect {
            with_model: false,
            ..small
        };
        assert!(rule.rejects(&cold));
        let off = StopRule {
            improvement_min_cold: 0.0,
            ..rule
        };
        assert!(!off.rejects(&cold));
        let nothing = Prospect {
            improvement: 0.0,
            ..cold
        };
        assert!(off.rejects(&nothing));
    }

    #[test]
    fn patience_is_for_searches_without_a_model() {
        let rule = StopRule::default();
        assert!(rule.ends(1, true) && !rule.ends(1, false) && rule.ends(2, false));
    }

    #[test]
    fn worth_by_hand() {
        let rule = |horizon_steps| StopRule {
            improvement_min: 0.0,
            worth: Some(Worth {
                horizon_steps,
                ..Worth::default()
            }),
            ..StopRule::default()
        };
        // Twice as slow: 9 steps lost and 0.25 for the change; 0.006 of each remaining step earned: 1,542 of them pay for it.
        let dear = Prospect {
            slowdown: std::f64::consts::LN_2,
            ..PROSPECT
        };
        assert!(rule(1640.0).rejects(&dear));
        assert!(!rule(1645.0).rejects(&dear));
        // A faster one costs its change alone: 42 steps.
        assert!(rule(140.0).rejects(&PROSPECT));
        assert!(!rule(145.0).rejects(&PROSPECT));
        assert!(
            rule(50.0).rejects(&PROSPECT),
            "a search that outlasts the training"
        );
    }
}
