//! Data of earlier runs: the state of this job or of a related one (equal model, other key), or the
//! log of any run.

use super::{Session, Stage};
use crate::center::center_variance;
use crate::guard::promise::Promise;
use crate::session::verdict::Verdict;
use crate::state::{self, Match, STATE_VERSION, State, StateSample, StateVerdict, rounded};
use crate::tuner::recall::relative_to;
use crate::tuner::sample::Seen;
use crate::{Point, Warning};

/// Standard deviations, in log step time, by which differences between settings may have changed:
/// since the same job's last run, and in another one (other ranks, another network, a run of which
/// only scores are known).
const SAME: f64 = 0.02;
const OTHER: f64 = 0.10;
/// Noise of a logged score, as a fraction of it: Horovod's, of one setting, lie 5 to 14 % apart.
const SCORE_NOISE: f64 = 0.07;
/// How far the default's step time may be from the recorded one, in log step time, for the recorded
/// verdict to hold: this, and no more than three standard errors of the new sample where those are
/// larger.
const AS_RECORDED: f64 = 0.10;

/// A setting of an earlier run with its score: inversely proportional to the step time, like the
/// bytes per µs of Horovod's log and of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// Where it stood, for a warning: a line of the log.
    pub row: usize,
    /// A value for each parameter of the space.
    pub values: Vec<f64>,
    /// The score, > 0.
    pub score: f64,
}

impl Session {
    /// The session of a job that was tuned before; call it before the first step.
    ///
    /// The state of the [same](Match::Same) job: its best setting is [in force](Self::setting) from
    /// the beginning (the caller puts it there) and is compared with the default again, on fresh
    /// pairs of visits; where the default had stayed, a sample of it is compared with the recorded
    /// one. If either fails, and with the state of a [sibling](Match::Sibling), what was measured
    /// is prior knowledge. Samples that do not fit the space are left out and named by
    /// [`take_warnings`](Self::take_warnings).
    #[must_use]
    pub fn resume(mut self, state: &State, matching: Match) -> Self {
        self.inherit(state, matching);
        if let (Match::Same, Some(verdict)) = (matching, &state.verdict) {
            self.confirm(state, verdict);
        }
        self
    }

    /// The session of the [same](Match::Same) job after its ranks were replaced; call it before the
    /// first step. A verdict stays, and its setting is [in force](Self::setting) without another
    /// comparison. Drift is measured against the steps that follow, and the gain is checked again as
    /// after the verdict. Without a verdict it searches with the samples as prior knowledge and with
    /// what is left of the budget.
    #[must_use]
    pub fn proceed(mut self, state: &State) -> Self {
        self.inherit(state, Match::Same);
        match &state.verdict {
            Some(verdict) => self.keep_verdict(state, verdict),
            None => self.cost_before = state.cost_steps,
        }
        self
    }

    /// Takes the samples of `state` as prior knowledge, and its number of comparisons.
    fn inherit(&mut self, state: &State, matching: Match) {
        let doubt = if matching == Match::Same { SAME } else { OTHER };
        self.remember(state.seen(self.space()), doubt);
        if matching == Match::Same {
            self.inherited = state.samples.clone();
            self.contests = state.contests;
        }
    }

    /// Takes the scores of an earlier run as prior knowledge. They count by their ratios only. Rows
    /// that do not fit the space, or whose score is none, are left out and named by
    /// [`take_warnings`](Self::take_warnings).
    #[must_use]
    pub fn with_history(mut self, scores: &[Scored]) -> Self {
        let seen = |Scored { row, values, score }: &Scored| {
            let point = self.space().point(values);
            let seen = match point {
                Ok(point) if *score > 0.0 && score.is_finite() => Ok(Seen {
                    point,
                    log_time: -score.ln(),
                    variance: SCORE_NOISE * SCORE_NOISE,
                }),
                Ok(_) => Err(format!("its score is {score}")),
                Err(error) => Err(error.to_string()),
            };
            (*row, seen)
        };
        let rows: Vec<_> = scores.iter().map(seen).collect();
        self.remember(rows, OTHER);
        self
    }

    /// Takes the rows of another run as prior knowledge, and warns of those that are none.
    fn remember(&mut self, rows: Vec<(usize, Result<Seen, String>)>, doubt: f64) {
        let mut all = Vec::new();
        for (row, seen) in rows {
            match seen {
                Ok(seen) => all.push(seen),
                Err(reason) => self.warn(Warning::NotRemembered { row, reason }),
            }
        }
        let recalled = relative_to(self.space(), &self.tuner.start(), &all, doubt);
        self.tuner.recall(recalled);
    }

    /// Ends the search with the verdict that it had before the reset.
    fn keep_verdict(&mut self, state: &State, verdict: &StateVerdict) {
        let Some(chosen) = self.recorded(state, verdict) else {
            return;
        };
        (self.setting, self.incumbent) = (chosen, chosen);
        let step_ms = [verdict.default_step_ms, verdict.chosen_step_ms];
        let promise = (self.config.recheck && !verdict.kept_default).then(|| {
            // The pairs of the comparison are not known.
            self.open_contest(chosen, true);
            Box::new(Promise::recalled(step_ms, self.config.seed, self.contests))
        });
        let verdict = Verdict {
            kept_default: verdict.kept_default,
            chosen,
            chosen_step_ms: verdict.chosen_step_ms,
            gain_pct: verdict.gain_pct,
            ..self.default_kept(verdict.default_step_ms, 0.0, verdict.reason.clone())
        };
        self.stage = Stage::Finished {
            verdict: Box::new(verdict),
            watch: Box::default(),
            promise,
        };
    }

    /// Begins with the verdict of the same job's last run.
    fn confirm(&mut self, state: &State, verdict: &StateVerdict) {
        let Some(winner) = self.recorded(state, verdict) else {
            return;
        };
        if winner == self.tuner.start() {
            // The centre of its sample, as it will be compared: a verdict has means, with stalls.
            let of_start = |sample: &&StateSample| {
                state::point(self.space(), &sample.setting).is_ok_and(|point| point == winner)
            };
            let sample = state.samples.iter().find(of_start);
            let recorded_ms = sample.map_or(verdict.chosen_step_ms, |sample| sample.step_ms);
            self.recorded_default = Some((recorded_ms.ln(), state.date.clone()));
            return;
        }
        // The first visit follows the start-up.
        self.contests = self.contests.saturating_add(1);
        self.open_contest(winner, true);
        (self.setting, self.incumbent) = (winner, winner);
        if !matches!(self.stage, Stage::Warmup { .. }) {
            self.stage = Stage::Ab;
        }
    }

    /// The recorded setting, if it fits the space.
    fn recorded(&mut self, state: &State, verdict: &StateVerdict) -> Option<Point> {
        let row = state.samples.len();
        let chosen = state::point(self.space(), &verdict.chosen)
            .map_err(|reason| self.warn(Warning::NotRemembered { row, reason }))
            .ok()?;
        // A setting that was not on the lattice of its time is one of this session, too.
        self.tuner.also_consider(chosen);
        Some(chosen)
    }

    /// Whether the default's sample, just closed, is as an earlier run recorded it, which had then
    /// found nothing better.
    pub(super) fn as_recorded(&mut self) -> Option<String> {
        let (recorded, date) = self.recorded_default.take()?;
        let start = self.tuner.start();
        let center = self.tuner.estimate(&start)?.log_time;
        let steps = self.tuner.sample(&start)?.log_times.len();
        let se = center_variance(self.tuner.noise(), steps).sqrt();
        if (center - recorded).abs() > AS_RECORDED.max(3.0 * se) {
            return None;
        }
        let (now, then) = (center.exp(), recorded.exp());
        Some(format!(
            "default kept: as of {date} nothing is faster, and its step time is what it was ({now:.2} ms, then {then:.2} ms)"
        ))
    }

    /// State of this session for a file: `key` identifies the job, `date` is the present one.
    pub fn state(&self, key: std::collections::BTreeMap<String, String>, date: &str) -> State {
        let space = self.space();
        let noise = self.tuner.noise();
        let estimates = self.tuner.estimates().into_iter();
        let samples = estimates.map(|(sample, seen)| StateSample {
            setting: state::setting(space, &seen.point),
            step_ms: rounded(seen.log_time.exp()),
            spread: rounded(noise),
            steps: sample.log_times.len(),
        });
        let mut samples: Vec<StateSample> = samples.collect();
        let mut inherited = self.inherited.clone();
        inherited.retain(|old| samples.iter().all(|new| new.setting != old.setting));
        samples.extend(inherited);
        let verdict = match &self.stage {
            Stage::Finished { verdict, .. } => Some(StateVerdict {
                kept_default: verdict.kept_default,
                chosen: state::setting(space, &verdict.chosen),
                default_step_ms: rounded(verdict.default_step_ms),
                chosen_step_ms: rounded(verdict.chosen_step_ms),
                gain_pct: verdict.gain_pct.map(rounded),
                reason: verdict.reason.clone(),
            }),
            _ => None,
        };
        let cost_steps = match verdict {
            Some(_) => 0.0,
            None => rounded(self.cost()),
        };
        State {
            ronde_tuner_state: STATE_VERSION,
            contests: self.contests,
            cost_steps,
            date: date.to_owned(),
            key,
            start: state::setting(space, &self.tuner.start()),
            samples,
            verdict,
        }
    }
}
