//! Data of earlier runs: the state of this job or of a related one (equal model, other key), or the
//! log of any run.

use super::contest::Contest;
use super::{Session, Stage};
use crate::center::center_variance;
use crate::guard::promise::Promise;
use crate::session::verdict::Verdict;
use crate::state::{self, Match, STATE_VERSION, State, StateSample, StateVerdict};
use crate::tuner::recall::{Memory, relative_to};
use crate::{Error, Point, SessionConfig, Space, Warning};

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
    /// A session of a job that was tuned before.
    ///
    /// The state of the [same](Match::Same) job: its best setting is [in force](Self::setting) from
    /// the beginning (the caller puts it there) and is compared with the default again, on fresh
    /// pairs of visits; where the default had stayed, a sample of it is compared with the recorded
    /// one. If either fails, and with the state of a [sibling](Match::Sibling), what was measured
    /// is prior knowledge. Samples that do not fit the space are left out and named by
    /// [`take_warnings`](Self::take_warnings).
    ///
    /// # Errors
    /// As [`new`](Self::new) does; never because of the state.
    pub fn resume(
        space: Space,
        config: SessionConfig,
        start: Point,
        state: &State,
        matching: Match,
    ) -> Result<Self, Error> {
        let mut session = Self::inherit(space, config, start, state, matching)?;
        if let (Match::Same, Some(verdict)) = (matching, &state.verdict) {
            session.confirm(state, verdict);
        }
        Ok(session)
    }

    /// A session of the [same](Match::Same) job after its ranks were replaced: a verdict stays, and
    /// its setting is [in force](Self::setting) without another comparison. Drift is measured
    /// against the steps that follow, and the gain is checked again as after the verdict. Without a
    /// verdict it searches with the samples as prior knowledge and with what is left of the budget.
    ///
    /// # Errors
    /// As [`new`](Self::new) does; never because of the state.
    pub fn proceed(
        space: Space,
        config: SessionConfig,
        start: Point,
        state: &State,
    ) -> Result<Self, Error> {
        let mut session = Self::inherit(space, config, start, state, Match::Same)?;
        match &state.verdict {
            Some(verdict) => session.keep_verdict(state, verdict),
            None => session.cost_before = state.cost_steps,
        }
        Ok(session)
    }

    /// A session with the samples of `state` as prior knowledge, and its number of comparisons.
    fn inherit(
        space: Space,
        config: SessionConfig,
        start: Point,
        state: &State,
        matching: Match,
    ) -> Result<Self, Error> {
        let mut session = Self::new(space, config, start)?;
        let mut warnings = Vec::new();
        let memories = state.memories(session.space(), &mut warnings);
        for warning in warnings {
            session.warn(warning);
        }
        let doubt = if matching == Match::Same { SAME } else { OTHER };
        session.remember(&memories, doubt);
        if matching == Match::Same {
            session.inherited = state.samples.clone();
            session.contests = state.contests;
        }
        Ok(session)
    }

    /// Takes the scores of an earlier run as prior knowledge. They count by their ratios only. Rows
    /// that do not fit the space, or whose score is none, are left out and named by
    /// [`take_warnings`](Self::take_warnings).
    #[must_use]
    pub fn with_history(mut self, scores: &[Scored]) -> Self {
        let mut memories = Vec::new();
        for scored in scores {
            let score = scored.score;
            let reason = match self.space().point(&scored.values) {
                Ok(point) if score > 0.0 && score.is_finite() => {
                    memories.push(Memory {
                        point,
                        log_time: -score.ln(),
                        variance: SCORE_NOISE * SCORE_NOISE,
                    });
                    continue;
                }
                Ok(_) => format!("its score is {score}"),
                Err(error) => error.to_string(),
            };
            let row = scored.row;
            self.warn(Warning::NotRemembered { row, reason });
        }
        self.remember(&memories, OTHER);
        self
    }

    fn remember(&mut self, memories: &[Memory], doubt: f64) {
        let recalled = relative_to(self.space(), &self.tuner.start(), memories, doubt);
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
            self.contest = Some(Contest::recalled(chosen, self.config.seed, self.contests));
            Box::new(Promise::recalled(step_ms, self.config.seed, self.contests))
        });
        let verdict = Verdict {
            kept_default: verdict.kept_default,
            chosen,
            chosen_step_ms: verdict.chosen_step_ms,
            gain_pct: verdict.gain_pct,
            samples: state.samples.len() as u32,
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
        let _ = self.tuner.also_consider(chosen);
        Some(chosen)
    }

    /// Whether the default's sample, just closed, is as an earlier run recorded it, which had then
    /// found nothing better.
    pub(super) fn as_recorded(&mut self) -> Option<String> {
        let (recorded, date) = self.recorded_default.take()?;
        let sample = self.tuner.sample(&self.tuner.start())?;
        let (center, _) = self.tuner.estimate(sample);
        let se = center_variance(self.tuner.noise(), sample.log_times.len()).sqrt();
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
        let samples = estimates.map(|(sample, (center, _))| {
            StateSample::new(space, &sample.point, center, noise, sample.log_times.len())
        });
        let mut samples: Vec<StateSample> = samples.collect();
        let mut inherited = self.inherited.clone();
        inherited.retain(|old| samples.iter().all(|new| new.setting != old.setting));
        samples.extend(inherited);
        let verdict = match &self.stage {
            Stage::Finished { verdict, .. } => Some(StateVerdict::new(space, verdict)),
            _ => None,
        };
        let cost_steps = match verdict {
            Some(_) => 0.0,
            None => state::rounded(self.spent()),
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

impl StateVerdict {
    fn new(space: &Space, verdict: &Verdict) -> Self {
        Self {
            kept_default: verdict.kept_default,
            chosen: state::setting(space, &verdict.chosen),
            default_step_ms: state::rounded(verdict.default_step_ms),
            chosen_step_ms: state::rounded(verdict.chosen_step_ms),
            gain_pct: verdict.gain_pct.map(state::rounded),
            reason: verdict.reason.clone(),
        }
    }
}
