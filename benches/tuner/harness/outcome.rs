//! Outcome of a tuner's run: losses, final setting and costs.

use serde::{Deserialize, Serialize};

use super::job::Job;
use super::truth::Setting;

/// Steps of a run of Ronde's tuner, after whose verdict the re-checks go on.
pub(crate) const STEPS: usize = 3000;
/// A run ends worse than the default if its setting is slower by more than this share.
const WORSE: f64 = 0.01;

/// Result of a run. Step times are multiples of the best setting's; losses are in steps of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) tuner: String,
    pub(crate) truth: String,
    pub(crate) surface: String,
    pub(crate) seed: u64,
    /// Step times of the setting in force at step 3,000 (or, if the run is shorter, in the end),
    /// and of the default.
    pub(crate) end: f64,
    pub(crate) default: f64,
    /// Steps until the first verdict, and changes of setting in all steps.
    pub(crate) active: usize,
    pub(crate) changes: usize,
    /// Losses in the first 500 and 2,000 steps.
    pub(crate) lost_500: f64,
    pub(crate) lost_2000: f64,
    /// Mean loss of the first 3,000 steps, as a share of the best step time.
    #[serde(default)]
    pub(crate) lost_mean: f64,
    /// Whether a search was under way at step 3,000, and whether a verdict was reverted before.
    #[serde(default)]
    pub(crate) is_searching: bool,
    #[serde(default)]
    pub(crate) reverted: bool,
    /// Intervals of the gain that verdicts gave, and those that contain the true gain.
    #[serde(default)]
    pub(crate) intervals: usize,
    #[serde(default)]
    pub(crate) covered: usize,
    /// Step from which on the tuner's best setting was within 3 % and 5 %; `None` if it was not
    /// permanently.
    pub(crate) within_3: Option<usize>,
    pub(crate) within_5: Option<usize>,
    /// Final setting, as text.
    pub(crate) setting: String,
    /// CPU time of each proposal, ms.
    #[serde(default)]
    pub(crate) asked_ms: Vec<f64>,
    /// CPU time of the job's model for each of them, ms.
    #[serde(default)]
    pub(crate) modelled_ms: Vec<f64>,
}

impl Outcome {
    /// Returns the outcome of a job that continues with `setting` forever.
    pub(crate) fn new(
        tuner: &str,
        truth: &str,
        seed: u64,
        job: &mut Job<'_>,
        setting: &Setting,
    ) -> Self {
        job.incumbent(setting);
        let surface = job.surface();
        let end = surface.relative(setting);
        let lost = |steps: usize| {
            let while_active: f64 = job.regret().iter().take(steps).sum();
            while_active + steps.saturating_sub(job.steps()) as f64 * (end - 1.0)
        };
        let within = |share: f64| {
            let mut since = None;
            for (step, incumbent) in job.incumbents() {
                if surface.relative(incumbent) > 1.0 + share {
                    since = None;
                } else {
                    since = since.or(Some(*step));
                }
            }
            since
        };
        let default_us = surface.step_us(&Setting::DEFAULT);
        let intervals: Vec<bool> = job
            .verdicts()
            .iter()
            .filter_map(|verdict| {
                let [low, high] = verdict.gain_pct?;
                let gain_pct = 100.0 * (1.0 - surface.step_us(&verdict.setting) / default_us);
                Some((low..=high).contains(&gain_pct))
            })
            .collect();
        Self {
            tuner: tuner.into(),
            truth: truth.into(),
            surface: surface.name.clone(),
            seed,
            end,
            default: surface.relative(&Setting::DEFAULT),
            active: job
                .verdicts()
                .first()
                .map_or(job.steps(), |verdict| verdict.step),
            changes: job.changes(),
            lost_500: lost(500),
            lost_2000: lost(2000),
            lost_mean: lost(STEPS) / STEPS as f64,
            is_searching: job.is_searching(),
            reverted: job.verdicts().iter().any(|verdict| verdict.reverted),
            intervals: intervals.len(),
            covered: intervals.iter().filter(|is_covered| **is_covered).count(),
            within_3: within(0.03),
            within_5: within(0.05),
            setting: format!(
                "{:.4} MB {:.4} ms h{} g{} c{}",
                setting.fusion_mb(),
                setting.cycle_ms,
                u8::from(setting.hierarchical),
                u8::from(setting.allgather),
                u8::from(setting.cache)
            ),
            asked_ms: job.asked_ms().to_vec(),
            modelled_ms: job.modelled_ms().to_vec(),
        }
    }

    /// Whether the run ended more than 1 % worse than the default.
    pub(crate) fn worse(&self) -> bool {
        self.end > self.default * (1.0 + WORSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::truth::{Truth, surfaces};

    #[test]
    fn losses_go_on_with_the_last_setting() {
        let surfaces = surfaces(Truth::Lab, 1.0, None).unwrap();
        let surface = &surfaces[4];
        let default = surface.relative(&Setting::DEFAULT);
        let best = surface.optimum().setting;
        let mut job = Job::new(surface, 1, None);
        job.run_us(&Setting::DEFAULT, 20);
        job.incumbent(&best);
        job.run_us(&Setting::DEFAULT, 20);
        job.incumbent(&Setting::DEFAULT);
        job.run_us(&best, 20);
        let outcome = Outcome::new("t", "lab", 1, &mut job, &best);
        let lost = 40.0 * (default - 1.0) + 0.25;
        assert!((outcome.lost_500 - lost).abs() < 1e-9 && (outcome.lost_2000 - lost).abs() < 1e-9);
        assert_eq!(
            (outcome.active, outcome.within_3, outcome.within_5),
            (60, Some(60), Some(60))
        );
        assert!(outcome.end == 1.0 && !outcome.worse());
        let mut job = Job::new(surface, 1, None);
        let outcome = Outcome::new("t", "lab", 1, &mut job, &Setting::DEFAULT);
        assert!((outcome.lost_2000 - 2000.0 * (default - 1.0)).abs() < 1e-9);
        assert_eq!((outcome.active, outcome.within_5), (0, None));
    }
}
