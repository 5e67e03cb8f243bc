//! Search for the settings of steps of one signature: its session and its state.

use ronde_tuner::{Phase, Point, Session, SessionConfig, Verdict};

use super::report::{AutotuneReport, AutotuneVerdict, NotTuned};
use super::space::Tunable;
use super::trace::Steps;
use super::worker::Asked;
use crate::knobs::Knobs;
use crate::settings::Settings;

/// Least noise of a sample that can be requested. Horovod takes 0; the tuner needs some.
const NOISE_MIN: f64 = 1e-3;

/// A search and its session.
pub(super) struct Search {
    /// Signature of its steps, if it is known.
    pub(super) signature: Option<u64>,
    pub(super) tunable: Tunable,
    pub(super) session: Session,
    /// Number of its steps so far.
    pub(super) steps: u64,
    /// Proposal that is being computed.
    pub(super) asked: Option<Asked>,
    /// Step time of the last measurement, ms.
    pub(super) last_ms: Option<f64>,
    /// Verdict of the last search, until another begins.
    pub(super) verdict: Option<AutotuneVerdict>,
    /// Traced steps, kept while steps of another signature occur.
    pub(super) traces: Steps,
}

impl Search {
    /// Makes a search for steps of `signature`, by `session` in the space of `tunable`.
    pub(super) fn new(signature: Option<u64>, tunable: Tunable, session: Session) -> Self {
        let mut search = Self {
            signature,
            tunable,
            session,
            steps: 0,
            asked: None,
            last_ms: None,
            verdict: None,
            traces: Steps::default(),
        };
        search.verdict = search.standing_verdict();
        search
    }

    /// Returns the settings for its next step.
    pub(super) fn settings(&self) -> Settings {
        self.tunable.settings(&self.session.setting())
    }

    /// Returns the settings with which it compares all others.
    pub(super) fn reference(&self) -> Settings {
        self.tunable.settings(&self.session.reference())
    }

    /// Logs the knobs that are not tuned, if there are any.
    pub(super) fn log_not_tuned(&self) {
        let not_tuned = NotTuned::line(&self.tunable.not_tuned);
        if !not_tuned.is_empty() {
            tracing::info!("autotune: not tuned: {not_tuned}");
        }
    }

    /// Returns the verdict that the session had before a reset of the job, if it stands.
    fn standing_verdict(&self) -> Option<AutotuneVerdict> {
        let is_final = self.session.progress().phase == Phase::Final;
        let verdict = self.session.verdict_if_stopped().filter(|_| is_final)?;
        Some(self.to_report(&verdict))
    }

    /// Returns its progress.
    pub(super) fn report(&self) -> AutotuneReport {
        let progress = self.session.progress();
        let settings = |point: &Point| self.tunable.settings(point);
        let best = self.session.best_so_far();
        AutotuneReport {
            phase: progress.phase,
            sample: progress.sample,
            settings: settings(&self.session.setting()),
            step_ms: progress.step_ms,
            best: best.map(|best| (settings(&best.setting), best.step_ms)),
            steps_left: progress.steps_left,
            verdict: self.verdict.clone(),
            not_tuned: self.tunable.not_tuned.clone(),
        }
    }

    /// Converts the session's verdict for the program.
    pub(super) fn to_report(&self, verdict: &Verdict) -> AutotuneVerdict {
        AutotuneVerdict {
            kept_default: verdict.kept_default,
            reverted: verdict.reverted,
            settings: self.tunable.settings(&verdict.chosen),
            default_step_ms: verdict.default_step_ms,
            chosen_step_ms: verdict.chosen_step_ms,
            gain_pct: verdict.gain_pct,
            steps_active: verdict.steps_active,
            steps_lost: verdict.steps_lost,
            budget_steps: verdict.budget_steps,
            budget_kept: verdict.budget_kept,
            retuned: verdict.retuned.clone(),
            payback_step: verdict.payback_step,
            reason: verdict.reason.clone(),
        }
    }
}

/// Makes a session that begins with the start settings.
///
/// # Errors
/// The configuration is invalid.
pub(super) fn new_session(knobs: &Knobs, tunable: &Tunable) -> Result<Session, ronde_tuner::Error> {
    Session::new(tunable.space.clone(), config(knobs), tunable.start)
}

/// Returns the session's configuration from the knobs.
fn config(knobs: &Knobs) -> SessionConfig {
    let config = SessionConfig::default();
    let config = match knobs.autotune_steps {
        Some(steps) => config.with_horizon(steps),
        None => config,
    };
    SessionConfig {
        budget_steps: knobs.autotune_budget.unwrap_or(config.budget_steps),
        recheck: knobs.autotune_recheck,
        seed: knobs.autotune_seed.unwrap_or(config.seed),
        warmup_samples: knobs.autotune_warmup_samples,
        steps_per_sample: knobs
            .autotune_steps_per_sample
            .unwrap_or(config.steps_per_sample),
        adaptive: knobs.autotune_steps_per_sample.is_none(),
        max_samples: knobs.autotune_max_samples,
        fixed_noise: knobs.autotune_noise.map(|noise| noise.max(NOISE_MIN)),
        ..config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config_of(variables: &[(&str, &str)]) -> SessionConfig {
        config(&Knobs::of(variables))
    }

    #[test]
    fn every_knob_of_the_search_reaches_the_session() {
        let default = SessionConfig::default();
        assert_eq!(config_of(&[]), default);
        let cases = [
            (
                ("RONDE_AUTOTUNE_BUDGET", "7.5"),
                SessionConfig {
                    budget_steps: 7.5,
                    ..default.clone()
                },
            ),
            (
                ("RONDE_AUTOTUNE_STEPS", "5000"),
                SessionConfig {
                    budget_steps: 100.0, // 2 %
                    ..default.clone()
                },
            ),
            (
                ("RONDE_AUTOTUNE_RECHECK", "0"),
                SessionConfig {
                    recheck: false,
                    ..default.clone()
                },
            ),
            (
                ("RONDE_AUTOTUNE_SEED", "11"),
                SessionConfig {
                    seed: 11,
                    ..default.clone()
                },
            ),
            (
                ("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "3"),
                SessionConfig {
                    warmup_samples: Some(3),
                    ..default.clone()
                },
            ),
            (
                ("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "25"),
                SessionConfig {
                    steps_per_sample: 25,
                    adaptive: false,
                    ..default.clone()
                },
            ),
            (
                ("HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "12"),
                SessionConfig {
                    max_samples: 12,
                    ..default.clone()
                },
            ),
            (
                ("HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "0.25"),
                SessionConfig {
                    fixed_noise: Some(0.25),
                    ..default.clone()
                },
            ),
            (
                ("HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "0"),
                SessionConfig {
                    fixed_noise: Some(NOISE_MIN),
                    ..default.clone()
                },
            ),
        ];
        for (variable, expected) in cases {
            assert_eq!(config_of(&[variable]), expected, "{variable:?}");
        }
        // A budget that is set is not replaced by that of the number of steps.
        let both = [
            ("RONDE_AUTOTUNE_BUDGET", "7.5"),
            ("RONDE_AUTOTUNE_STEPS", "5000"),
        ];
        assert_eq!(config_of(&both).budget_steps, 7.5);
    }
}
