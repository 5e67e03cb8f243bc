//! The next run after those so far, and the verdict on all of them.
//!
//! The start is measured first. Then the tuner's surrogate chooses settings by expected
//! improvement. It repeats a setting if another run of it is more informative than a new setting.
//! When the runs of the search are used up, or no setting promises an improvement, its best setting
//! is compared with the start in pairs ([`Comparison`]).

use ronde_tuner::{Next, Observation, Point, Proposal, Space, Tuner, TunerConfig};

use crate::comparison::{Comparison, Decision};
use crate::limit::Limit;
use crate::parameter::{Parameter, Setting};
use crate::run::{Outcome, Phase, Row, by_setting, seconds};
use crate::statistics::{geometric_mean, scatter};

/// Share of all runs that the comparison may take, and the pairs that it has at least and at most.
const COMPARISON_SHARE: f64 = 0.5;
const PAIRS: [usize; 2] = [3, 10];
/// The search stops below this expected improvement of ln(figure), once it has this many runs.
const IMPROVEMENT_MIN: f64 = 0.005;
const SEARCH_MIN: usize = 8;
/// Prior of a run's noise, as a share of its figure, and its degrees of freedom.
const NOISE: f64 = 0.02;
const NOISE_FREEDOM: f64 = 3.0;
/// Noise of the estimate of a stopped run.
const NOISE_STOPPED: f64 = 0.1;
/// A run that failed counts as so many times the best figure.
const FAILED_FACTOR: f64 = 4.0;
/// Accepted probability that a setting is three times slower than the best: such a run is stopped.
const RISK_MAX: f64 = 0.3;
/// Runs of the comparison that may fail: such a run is repeated. One failure can be an accident of
/// the machine, and without a repetition it would end a search of hours.
const FAILED_MOST: usize = 1;
/// Beyond the budget of time, a run of the comparison may take this multiple of the longest run.
const OVERRUN_FACTOR: f64 = 2.0;
/// Seed of all choices.
const SEED: u64 = 7;

/// Next task of a search.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// Run the command with this setting.
    Run {
        /// Purpose.
        phase: Phase,
        /// Setting.
        setting: Setting,
        /// When to stop the run.
        limit: Limit,
    },
    /// No further run is needed, or none fits into the budget.
    Done,
}

/// Parameters of a search.
#[derive(Clone, Debug)]
pub struct Plan {
    parameters: Vec<Parameter>,
    space: Space,
    start: Point,
    runs: usize,
    /// Time of all runs together, s.
    budget_s: Option<f64>,
    /// Largest relative difference of the check values of two settings.
    check_tolerance: Option<f64>,
    seed: u64,
    /// Whether the metric is the wall time, which bounds a run while it runs.
    by_wall: bool,
    /// Most pairs of a comparison that has begun under a plan of perhaps other limits.
    pairs: Option<usize>,
}

/// A search that cannot be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The parameters span no space, or a too large one.
    #[error(transparent)]
    Space(#[from] ronde_tuner::Error),
    /// Too few runs.
    #[error(
        "--runs {runs} are too few: the start, another setting and {} pairs of runs need {}",
        PAIRS[0], RUNS_MIN
    )]
    Runs {
        /// Runs that the user gave.
        runs: usize,
    },
}

/// Least number of runs: the start, another setting, and the shortest comparison.
const RUNS_MIN: usize = 2 + 2 * PAIRS[0];

/// Result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Setting to use: the start, unless another one was shown to be better.
    pub chosen: Setting,
    /// Best setting of the search, which was compared with the start.
    pub candidate: Option<Setting>,
    /// Gain of the candidate as a share of the start's figure, and its interval.
    pub gain: Option<[f64; 3]>,
    /// Complete pairs of the comparison.
    pub pairs: usize,
    /// Why.
    pub reason: Reason,
}

/// Reason of a verdict.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// The candidate was faster.
    Faster,
    /// The candidate was not shown to be faster.
    NotShown,
    /// No setting looked better than the start.
    NoneBetter,
    /// Only the start was run: the budget has no room for another setting.
    NoRoom {
        /// Budget of time for all runs, s.
        budget_s: f64,
        /// Time of the runs so far, of another setting and of the shortest comparison, s.
        needed_s: f64,
    },
    /// The candidate failed during the comparison.
    CandidateFailed(String),
    /// The start failed during the comparison.
    StartFailed(String),
    /// The check values of candidate and start differ.
    CheckDiffers {
        /// Medians of start and candidate.
        values: [f64; 2],
    },
    /// The comparison is not complete.
    Unfinished,
}

impl Plan {
    /// Plan of at most `runs` runs of these parameters.
    ///
    /// # Errors
    /// No parameters, too many, or too few runs.
    pub fn new(parameters: Vec<Parameter>, runs: usize) -> Result<Self, PlanError> {
        if runs < RUNS_MIN {
            return Err(PlanError::Runs { runs });
        }
        let space = Space::new(parameters.iter().map(Parameter::of_tuner).collect())?;
        let start: Vec<f64> = parameters.iter().map(|p| p.start() as f64).collect();
        let start = space.point(&start)?;
        Ok(Self {
            parameters,
            space,
            start,
            runs,
            budget_s: None,
            check_tolerance: None,
            seed: SEED,
            by_wall: false,
            pairs: None,
        })
    }

    /// Returns the plan with a budget of time for all runs together, s.
    #[must_use]
    pub fn within(self, budget_s: Option<f64>) -> Self {
        Self { budget_s, ..self }
    }

    /// Returns the plan with a limit of the relative difference of check values.
    #[must_use]
    pub fn checked(self, check_tolerance: Option<f64>) -> Self {
        Self {
            check_tolerance,
            ..self
        }
    }

    /// Returns the plan with another seed.
    #[must_use]
    pub fn seeded(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Returns the plan for a metric that is the wall time, or another one.
    #[must_use]
    pub fn by_wall(self, by_wall: bool) -> Self {
        Self { by_wall, ..self }
    }

    /// Returns the plan with the length of a comparison that has begun: [`Plan::pairs`] of the plan
    /// that began it.
    ///
    /// The looks at a comparison share one error, so its length cannot change once it has begun, and
    /// one that has ended is not taken up again.
    #[must_use]
    pub fn comparing(self, pairs: Option<usize>) -> Self {
        let pairs = pairs.map(|pairs| pairs.min(PAIRS[1]));
        Self { pairs, ..self }
    }

    /// Most pairs of the comparison, if it has begun: those that it has, if runs or budget ended it.
    pub fn pairs(&self, rows: &[Row]) -> Option<usize> {
        if !rows.iter().any(|row| row.phase == Phase::Compare) {
            return None;
        }
        let compared = measured_of_comparison(rows);
        let proposal = self.proposal(rows);
        let is_done = self.next_by(rows, proposal.as_ref()) == Task::Done;
        let candidate = proposal.and_then(|proposal| self.candidate(&proposal))?;
        let decision = self.comparison(rows, &candidate).decision();
        Some(match is_done && decision == Decision::Undecided {
            true => compared / 2,
            false => self.pairs_of(rows),
        })
    }

    /// Parameters.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Number of settings.
    pub fn settings(&self) -> usize {
        self.space.lattice(&self.start).len()
    }

    /// Largest number of runs.
    pub fn runs(&self) -> usize {
        self.runs
    }

    /// The setting to begin with.
    pub fn start(&self) -> Setting {
        self.setting(&self.start)
    }

    fn setting(&self, point: &Point) -> Setting {
        Setting(point.values().iter().map(|value| *value as usize).collect())
    }

    fn point(&self, setting: &Setting) -> Option<Point> {
        let values: Vec<f64> = setting.0.iter().map(|index| *index as f64).collect();
        self.space.point(&values).ok()
    }

    /// Most pairs of the comparison.
    fn pairs_most(&self) -> usize {
        let pairs = (COMPARISON_SHARE * self.runs as f64 / 2.0).round() as usize;
        pairs.clamp(PAIRS[0], PAIRS[1])
    }

    /// The limit of a run before the first one, which does not count for the budget: without it, a
    /// hang there would have none.
    pub fn limit_of_warmup(&self) -> Limit {
        Limit::NONE.within(self.budget_s)
    }

    /// The next run after these.
    pub fn next(&self, rows: &[Row]) -> Task {
        self.next_by(rows, self.proposal(rows).as_ref())
    }

    /// The next run, by the proposal after the runs of the search.
    fn next_by(&self, rows: &[Row], proposal: Option<&Proposal>) -> Task {
        if rows.len() >= self.runs {
            return Task::Done;
        }
        let is_comparing = rows.iter().any(|row| row.phase == Phase::Compare);
        if !is_comparing && self.may_search(rows) {
            let setting = match proposal.map(|proposal| &proposal.next) {
                None => Some(self.start()),
                Some(Next::Sample(point)) => Some(self.setting(point)),
                Some(Next::Stop) => None,
            };
            if let Some(setting) = setting {
                let budget_s = self.budget_left(rows, median_seconds(rows));
                let limit = self.limit(rows, &setting).within(budget_s);
                let phase = Phase::Search;
                return Task::Run {
                    phase,
                    setting,
                    limit,
                };
            }
        }
        match self.next_of_comparison(rows, proposal) {
            Some(setting) => {
                let measured = rows.iter().filter(|row| row.outcome.value().is_some());
                let longest = measured.map(|row| row.seconds).fold(0.0, f64::max);
                let budget_s = self.budget_left(rows, OVERRUN_FACTOR * longest);
                Task::Run {
                    phase: Phase::Compare,
                    setting,
                    limit: Limit::NONE.within(budget_s),
                }
            }
            None => Task::Done,
        }
    }

    /// Time that the budget leaves after these runs, s, and an overrun that is accepted: a run that
    /// is nearly complete is worth more than its time.
    fn budget_left(&self, rows: &[Row], overrun_s: f64) -> Option<f64> {
        let left = (self.budget_s? - seconds(rows)).max(0.0);
        // There is no typical duration before the first run.
        Some(left + if rows.is_empty() { 0.0 } else { overrun_s })
    }

    /// Whether another run of the search leaves enough for the comparison.
    fn may_search(&self, rows: &[Row]) -> bool {
        let reserved = 2 * self.pairs_most();
        let in_time = self
            .budget_s
            .is_none_or(|budget_s| needed_seconds(rows) <= budget_s);
        rows.len() < self.runs - reserved && (in_time || rows.is_empty())
    }

    /// The limit of a run of the search: none for the start, which all others are compared with.
    fn limit(&self, rows: &[Row], setting: &Setting) -> Limit {
        let start_check = check_of(rows, &self.start());
        let valid = rows.iter().filter(|row| !self.is_refused(row, start_check));
        let measured = valid.filter_map(|row| match &row.outcome {
            Outcome::Measured { value, figures, .. } => Some((*value, figures)),
            _ => None,
        });
        let best = measured.min_by(|a, b| a.0.total_cmp(&b.0));
        match best {
            Some(_) if *setting == self.start() => Limit::NONE,
            Some((value, _)) if self.by_wall => Limit::by_wall(value),
            Some((value, figures)) if !figures.is_empty() => Limit::by_figures(figures, value),
            _ => Limit::NONE,
        }
    }

    /// The tuner's proposal after the runs of the search; `None` before the start is measured.
    fn proposal(&self, rows: &[Row]) -> Option<Proposal> {
        // The comparison's runs must not change what is compared.
        let rows: Vec<&Row> = rows
            .iter()
            .filter(|row| row.phase == Phase::Search)
            .collect();
        let start = self.start();
        rows.iter().find(|row| row.setting == start)?;
        let config = TunerConfig {
            seed: self.seed,
            max_samples: u32::MAX,
            risk_max: RISK_MAX,
            improvement_min: match rows.len() >= SEARCH_MIN {
                true => IMPROVEMENT_MIN,
                false => 0.0,
            },
            // A setting is run again until its figure is known well enough.
            sample_steps: None,
            ..TunerConfig::default()
        };
        let mut tuner = Tuner::new(self.space.clone(), config, self.start).ok()?;
        for (setting, observation) in self.observations(&rows) {
            if let Some(point) = self.point(&setting) {
                tuner.tell(point, observation).ok()?;
            }
        }
        Some(tuner.ask())
    }

    /// One observation of each setting that the search has run, in the order of the first runs.
    fn observations(&self, rows: &[&Row]) -> Vec<(Setting, Observation)> {
        let groups = by_setting(rows.iter().copied());
        let start_check = check_of(rows.iter().copied(), &self.start());
        let valid = rows.iter().filter(|row| !self.is_refused(row, start_check));
        let best = valid
            .filter_map(|row| row.outcome.value())
            .fold(f64::INFINITY, f64::min);
        let noise = noise(&groups);
        let of = |own: &[&Row]| {
            let is_refused = own.iter().any(|row| self.is_refused(row, start_check));
            let values: Vec<f64> = own.iter().filter_map(|row| row.outcome.value()).collect();
            let is_stopped = own.iter().any(|row| row.outcome.is_stopped());
            if is_refused || values.len() < own.len() {
                let value = FAILED_FACTOR * best;
                return Observation {
                    value,
                    spread: NOISE_STOPPED * value,
                    steps: 1,
                };
            }
            let value = geometric_mean(&values);
            let noise = if is_stopped { NOISE_STOPPED } else { noise };
            Observation {
                value,
                spread: noise * value,
                steps: values.len() as u32,
            }
        };
        let groups = groups.iter();
        groups
            .map(|(setting, own)| ((*setting).clone(), of(own)))
            .collect()
    }

    /// Whether a run computes something else than the start.
    fn is_refused(&self, row: &Row, start_check: f64) -> bool {
        let check = row.outcome.check();
        check.is_some_and(|check| self.differs(start_check, check))
    }

    /// Whether a check value differs from the start's by more than the tolerance. An unknown value,
    /// NaN, does not differ.
    fn differs(&self, start: f64, other: f64) -> bool {
        self.check_tolerance
            .is_some_and(|tolerance| (other - start).abs() > tolerance * start.abs())
    }

    /// The setting that the search found, if it is not the start.
    fn candidate(&self, proposal: &Proposal) -> Option<Setting> {
        let candidate = self.setting(&proposal.contender);
        (candidate != self.start()).then_some(candidate)
    }

    /// The comparison so far, of a candidate.
    fn comparison(&self, rows: &[Row], candidate: &Setting) -> Comparison {
        let start = self.start();
        let of = |setting: &Setting| -> Vec<f64> {
            let compared = rows.iter().filter(|row| row.phase == Phase::Compare);
            let own = compared.filter(|row| row.setting == *setting);
            own.filter_map(|row| row.outcome.value()).collect()
        };
        let pairs = of(&start).into_iter().zip(of(candidate));
        let pairs: Vec<[f64; 2]> = pairs.map(|(start, candidate)| [start, candidate]).collect();
        Comparison::new(&pairs, self.pairs_of(rows))
    }

    /// Most pairs of the comparison after a search of these runs.
    fn pairs_of(&self, rows: &[Row]) -> usize {
        if let Some(pairs) = self.pairs {
            return pairs;
        }
        let searched = rows.iter().filter(|row| row.phase == Phase::Search).count();
        // The comparison gets all runs that the search left.
        let left = self.runs.saturating_sub(searched) / 2;
        left.clamp(PAIRS[0].min(left), PAIRS[1])
    }

    /// The next run of the comparison.
    fn next_of_comparison(&self, rows: &[Row], proposal: Option<&Proposal>) -> Option<Setting> {
        if failed_of_comparison(rows).count() > FAILED_MOST {
            return None;
        }
        // A failed run does not count, so the next one repeats it.
        let compared = measured_of_comparison(rows);
        let candidate = self.candidate(proposal?)?;
        let comparison = self.comparison(rows, &candidate);
        let (pair, is_second) = (compared / 2, compared % 2 == 1);
        let in_time = self.budget_s.is_none_or(|budget_s| {
            seconds(rows) + 2.0 * median_seconds(rows) <= budget_s || compared < 4
        });
        // After a repeated run, one run may be left, which is no pair.
        let pair_fits = in_time && rows.len() + 2 <= self.runs;
        let ends = comparison.decision() != Decision::Undecided || !pair_fits;
        if !is_second && (pair >= self.pairs_of(rows) || ends) {
            return None;
        }
        let candidate_first = Comparison::candidate_is_first(self.seed, pair);
        match candidate_first != is_second {
            true => Some(candidate),
            false => Some(self.start()),
        }
    }

    /// Verdict on the runs so far.
    pub fn verdict(&self, rows: &[Row]) -> Verdict {
        let start = self.start();
        let proposal = self.proposal(rows);
        let is_done = self.next_by(rows, proposal.as_ref()) == Task::Done;
        let Some(candidate) = proposal.and_then(|proposal| self.candidate(&proposal)) else {
            return Verdict {
                chosen: start,
                candidate: None,
                gain: None,
                pairs: 0,
                reason: match is_done {
                    true => self.no_room(rows).unwrap_or(Reason::NoneBetter),
                    false => Reason::Unfinished,
                },
            };
        };
        let mut comparison = self.comparison(rows, &candidate);
        if is_done && comparison.decision() == Decision::Undecided {
            // The budget of time is used up.
            comparison = comparison.ended();
        }
        let reason = self.reason(rows, &candidate, &comparison);
        let chosen = if reason == Reason::Faster {
            candidate.clone()
        } else {
            start
        };
        Verdict {
            chosen,
            candidate: Some(candidate),
            gain: comparison.gain(),
            pairs: comparison.pairs(),
            reason,
        }
    }

    /// The budget as the reason why only the start was run.
    fn no_room(&self, rows: &[Row]) -> Option<Reason> {
        let (start, needed_s) = (self.start(), needed_seconds(rows));
        let budget_s = self.budget_s.filter(|budget_s| needed_s > *budget_s)?;
        let is_alone = rows.iter().all(|row| row.setting == start);
        is_alone.then_some(Reason::NoRoom { budget_s, needed_s })
    }

    fn reason(&self, rows: &[Row], candidate: &Setting, comparison: &Comparison) -> Reason {
        if let Some((row, reason)) = failed_of_comparison(rows).nth(FAILED_MOST) {
            let reason = reason.to_owned();
            return match row.setting == *candidate {
                true => Reason::CandidateFailed(reason),
                false => Reason::StartFailed(reason),
            };
        }
        let values = [&self.start(), candidate].map(|setting| check_of(rows, setting));
        if self.differs(values[0], values[1]) {
            return Reason::CheckDiffers { values };
        }
        match comparison.decision() {
            Decision::Candidate => Reason::Faster,
            Decision::Start => Reason::NotShown,
            Decision::Undecided => Reason::Unfinished,
        }
    }
}

/// Median of a setting's check values; NaN without one.
fn check_of<'a>(rows: impl IntoIterator<Item = &'a Row>, setting: &Setting) -> f64 {
    let own = rows.into_iter().filter(|row| row.setting == *setting);
    ronde_tuner::median(
        &own.filter_map(|row| row.outcome.check())
            .collect::<Vec<_>>(),
    )
}

/// Number of runs of the comparison that have a figure.
fn measured_of_comparison(rows: &[Row]) -> usize {
    let compared = rows.iter().filter(|row| row.phase == Phase::Compare);
    compared.filter(|row| row.outcome.value().is_some()).count()
}

/// Runs of the comparison that failed, with their reasons.
fn failed_of_comparison(rows: &[Row]) -> impl Iterator<Item = (&Row, &str)> {
    rows.iter()
        .filter_map(|row| match (&row.outcome, row.phase) {
            (Outcome::Failed { reason }, Phase::Compare) => Some((row, reason.as_str())),
            _ => None,
        })
}

/// Time of these runs, of another one and of the shortest comparison, s; NaN without runs.
fn needed_seconds(rows: &[Row]) -> f64 {
    seconds(rows) + median_seconds(rows) * (1 + 2 * PAIRS[0]) as f64
}

/// Median duration of a run, s; NaN without runs.
fn median_seconds(rows: &[Row]) -> f64 {
    ronde_tuner::median(&rows.iter().map(|row| row.seconds).collect::<Vec<_>>())
}

/// Noise of a run, as a share of its figure: pooled over repeated settings, with a prior.
fn noise(groups: &[(&Setting, Vec<&Row>)]) -> f64 {
    let measured = |row: &&Row| !row.outcome.is_stopped();
    let logs = groups.iter().map(|(_, own)| {
        let values = own.iter().copied().filter(measured);
        let values = values.filter_map(|row| row.outcome.value());
        values.map(f64::ln).collect()
    });
    scatter((NOISE_FREEDOM * NOISE * NOISE, NOISE_FREEDOM), logs)
}

#[cfg(test)]
mod tests;
