//! The guard: interleaved A/B windows of the winner against the default, and the rule by which the winner is kept.
//!
//! A search ends at the setting that looked best, and what looks best among many was also lucky. So the winner has to beat the
//! default again, in alternating windows (order reversed each round: default, winner, winner, default, …) that a drift of the
//! machine hits alike. With d the difference of the log step times (winner − default) and se its standard error, it is kept only if
//!
//! - P(it is more than 1 % slower than the default | all samples of both) = Φ((d − 0.01) / se) is far enough below 0.002 that all
//!   looks together stay below it, and
//! - it is faster: P(d > 0) = Φ(d / se) is below 0.03.
//!
//! "All samples" are three estimates of d, weighed by their variances, each with the variance that it deserves:
//!
//! - the windows: noise of the steps, or what the rounds scatter if that is more;
//! - the search's samples of both. The winner's was chosen for being low, so it counts as if it had been the luckiest of all that
//!   were sampled, were they equal: plus E[max of n normals] standard deviations. The two lie many steps apart, so a drift of the
//!   machine between them counts too: 1 %, or as much as the windows differ from the samples where that is more;
//! - the verdict of an earlier run, if there is one, which may have aged ([`RECORD_AGE`]). That run has shown already that the winner is
//!   not just as fast: unless the windows contradict it, the mean is to be better, and no more is asked of P(d > 0).
//!
//! A search that goes on after a winner was kept compares its next one with that: the *champion* takes the default's place in the
//! windows. The first of the two conditions is still about the default, by both differences together; the second is relaxed
//! ([`FASTER_DOUBT_CHAMPION`]), since whichever of the two stays has beaten the default.
//!
//! After each round it is asked whether further ones pay: the chance of an acceptance times the gain over the remaining steps
//! against what the rounds cost. If not, the default stays. The guard is the one protection that depends on no model being right.

use statrs::distribution::{Continuous, ContinuousCDF, Normal};

use crate::center::{center_variance, known_noise_center, step_noise};

/// Rounds, each one window of either setting, after which an undecided winner is dropped.
pub const ROUNDS_MAX: u32 = 12;
/// The same for a winner that an earlier run has proved: with both changes and a short start-up they are done within 30 steps.
const CONFIRM_ROUNDS: u32 = 2;
/// Steps measured in a window of one of the first rounds.
pub(crate) const WINDOW_STEPS: u32 = 5;
/// The same in the very first one: a large gain needs no more, and while the default runs it is not had.
const WINDOW_STEPS_FIRST: u32 = 3;
/// The same in the rounds after these many: a gain of a percent, which is what is left then, takes a hundred steps or two of either
/// setting to prove. They cost next to nothing, since the two are that close, but each change does.
const WINDOW_STEPS_LATE: u32 = 20;
const ROUNDS_EARLY: u32 = 4;

/// Steps measured in each window of round `round`, from 0.
pub fn window_steps(round: u32) -> u32 {
    match round {
        0 => WINDOW_STEPS_FIRST,
        1..ROUNDS_EARLY => WINDOW_STEPS,
        _ => WINDOW_STEPS_LATE,
    }
}

/// Variance that the machine's drift adds to the mean difference of the rounds from `from` to before `to`, by their steps: the longer
/// a window, the further apart the two.
fn round_drift(from: u32, to: u32) -> f64 {
    let steps = f64::from(steps_between(from, to));
    let squares = (from..to).map(|round| f64::from(window_steps(round)).powi(3));
    ROUND_DRIFT * ROUND_DRIFT * squares.sum::<f64>() / (f64::from(WINDOW_STEPS) * steps * steps)
}

/// Steps of either arm in the rounds from `from` to before `to`.
fn steps_between(from: u32, to: u32) -> u32 {
    (from..to).map(window_steps).sum()
}
/// Steps over which a gain counts where nobody says how long the job will run.
pub(crate) const HORIZON_STEPS: u64 = 2000;
/// Rounds from which the scatter between rounds is believed.
const ROUNDS_FOR_SCATTER: usize = 4;
/// A slow-down, in log step time, that must be all but excluded.
const SLOWDOWN: f64 = 0.01;
/// Accepted P(more than that slow-down) at one look, and at the last. All looks together stay below 0.002: they depend on one another,
/// the standard error is a wide one, and a setting that is no better is dropped long before the last (the test
/// `a_setting_of_1_1_pct_slower_is_not_kept` counts). Most is left to the last look, since what comes so far has a chance
/// (P. O'Brien and T. Fleming, A Multiple Testing Procedure for Clinical Trials, 1979).
const SLOWER_MAX: f64 = 0.000_7;
const SLOWER_MAX_LAST: f64 = 0.002;
/// Accepted P(no faster at all) at one look, of the first winner of a search: once a percent can be told, of equal settings every second
/// looks faster. Of the n-th it is an n-th of this.
const FASTER_DOUBT: f64 = 0.03;
/// The same of a winner for which an earlier run has found so: its mean is to be better.
const FASTER_DOUBT_PROVED: f64 = 0.5;
/// The same of one that is compared with a champion.
const FASTER_DOUBT_CHAMPION: f64 = 0.2;
/// Standard deviation of the machine's own drift between two samples of a search, in log step time: that of the tuner lab's jobs.
pub(crate) const SEARCH_DRIFT: f64 = 0.01;
/// The same between the two windows of a round, some 6 steps apart.
const ROUND_DRIFT: f64 = 0.003;
/// Standard deviation by which an earlier run's difference may have changed since, in log step time.
pub(crate) const RECORD_AGE: f64 = 0.005;
/// Standard deviations from the windows beyond which an earlier run's difference is another job's.
const RECORD_DOUBT: f64 = 3.0;
/// Standard deviations from the search's sample beyond which a short window is not of the same level.
const MOVED: f64 = 3.0;
/// Excess of the variance of a difference whose noise is estimated, times the steps of the estimate: the median absolute deviation
/// of n steps is worth about n / 3 of a standard deviation's.
const IGNORANCE: f64 = 20.0;
/// Standard deviation of the difference that is left when a search has ended, in log step time, as far as going on with the windows
/// is concerned: this, or as many standard deviations of a step where these are more, for what the noise hid from the search is still
/// there. The rule of acceptance has no such prior.
const GAIN_PRIOR: f64 = 0.02;
const GAIN_PRIOR_NOISE: f64 = 0.3;
/// The same of the difference to a champion: most of the gain is had.
const GAIN_PRIOR_CHAMPION: f64 = 0.01;
/// What a change of setting costs, in steps: one that is slower by a quarter.
pub(crate) const CHANGE_COST: f64 = 0.25;
/// Standard errors to either side in a 95 % interval.
const INTERVAL_95: f64 = 1.96;

/// One side of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// The default setting.
    Default,
    /// The setting that the search chose.
    Winner,
}

impl Arm {
    fn other(self) -> Self {
        match self {
            Self::Default => Self::Winner,
            Self::Winner => Self::Default,
        }
    }
}

/// What the windows so far say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Another window is needed.
    Undecided,
    /// The winner passed the rule.
    KeepWinner,
    /// It did not, and further rounds would not pay or are not left.
    KeepDefault,
}

/// The difference between the arms, in log step time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Log step time of the winner minus that of the default; negative if the winner is faster.
    pub mean: f64,
    /// Standard error of `mean`.
    pub se: f64,
}

impl Difference {
    /// The winner's gain in percent of the default's step time, as a 95 % interval [low, high].
    pub fn gain_pct(&self) -> [f64; 2] {
        let percent = |d: f64| 100.0 * (1.0 - d.exp());
        [
            percent(self.mean + INTERVAL_95 * self.se),
            percent(self.mean - INTERVAL_95 * self.se),
        ]
    }

    /// P(the true difference is above `bound`).
    fn above(&self, bound: f64) -> f64 {
        Normal::standard().cdf((self.mean - bound) / self.se)
    }

    /// This difference and one that is counted from there.
    pub(crate) fn then(self, other: Self) -> Self {
        Self {
            mean: self.mean + other.mean,
            se: self.se.hypot(other.se),
        }
    }

    /// Both estimates of one difference, weighed by their variances.
    fn and(self, other: Self) -> Self {
        let (weight, other_weight) = (self.se.powi(-2), other.se.powi(-2));
        let sum = weight + other_weight;
        Self {
            mean: (weight * self.mean + other_weight * other.mean) / sum,
            se: sum.powf(-0.5),
        }
    }
}

/// What the search measured of one arm.
#[derive(Clone, Copy, Debug)]
struct Searched {
    center: f64,
    variance: f64,
}

/// The comparison of a winner with the default.
#[derive(Clone, Debug)]
pub struct Guard {
    /// Noise of a step as the search saw it; the windows' own noise counts if it is larger.
    noise: f64,
    /// Steps that it rests on.
    noise_steps: usize,
    /// The search's samples: default, winner.
    searched: Option<[Searched; 2]>,
    /// The search's sample of the default, where the winner was not sampled.
    default_before: Option<Searched>,
    recorded: Option<Difference>,
    /// The champion's difference to the default, if a champion stands in the default's place.
    ahead: Option<Difference>,
    rounds_max: u32,
    /// Winners of the same search that lost before.
    losers: usize,
    /// Steps over which a gain counts.
    remaining_steps: f64,
    /// Whose window comes first in the first round: that of the one in force.
    first: Arm,
    default: Vec<Vec<f64>>,
    winner: Vec<Vec<f64>>,
}

impl Guard {
    /// A comparison, with the noise of a single step (as a fraction) known from `noise_steps` steps of the search. A gain counts over
    /// 2,000 steps.
    pub fn new(noise: f64, noise_steps: usize) -> Self {
        Self {
            noise,
            noise_steps,
            searched: None,
            default_before: None,
            recorded: None,
            ahead: None,
            rounds_max: ROUNDS_MAX,
            losers: 0,
            remaining_steps: HORIZON_STEPS as f64,
            first: Arm::Default,
            default: Vec::new(),
            winner: Vec::new(),
        }
    }

    /// Counts what the search measured: ln(step time in ms) of the default and of the winner, which was the best of `settings`
    /// that were sampled beside the default. Empty samples count nothing.
    #[must_use]
    pub fn with_search(mut self, default: &[f64], winner: &[f64], settings: usize) -> Self {
        if default.is_empty() {
            return self;
        }
        let searched = |log_times: &[f64]| Searched {
            center: known_noise_center(log_times, self.noise),
            variance: center_variance(self.noise, log_times.len()),
        };
        if winner.is_empty() {
            self.default_before = Some(searched(default));
            return self;
        }
        let (default, mut winner) = (searched(default), searched(winner));
        winner.center += expected_maximum(settings + 1) * winner.variance.sqrt();
        self.searched = Some([default, winner]);
        self
    }

    /// Confirms the winner of an earlier run of the same job, which is in force: within two rounds, its window first. What that run
    /// `recorded` of the two counts, if it compared them.
    #[must_use]
    pub fn confirming(mut self, recorded: Option<Difference>) -> Self {
        self.rounds_max = CONFIRM_ROUNDS;
        self.first = Arm::Winner;
        self.recorded = recorded.and_then(|Difference { mean, se }| {
            let se = se.hypot(RECORD_AGE);
            (mean.is_finite() && se.is_finite()).then_some(Difference { mean, se })
        });
        self
    }

    /// In the default's place stands a champion, which has beaten the default by `ahead`.
    #[must_use]
    pub(crate) fn against_champion(mut self, ahead: Difference) -> Self {
        self.ahead = Some(ahead);
        self
    }

    /// So many winners of the same search have lost already: the more are tried, the sooner one is only lucky.
    #[must_use]
    pub fn after_losers(mut self, losers: usize) -> Self {
        self.losers = losers;
        self
    }

    /// Counts a gain over this many steps, and no others.
    #[must_use]
    pub fn with_remaining_steps(mut self, steps: f64) -> Self {
        self.remaining_steps = steps.max(0.0);
        self
    }

    /// The arm whose window comes next.
    pub fn next_arm(&self) -> Arm {
        // The order is reversed each round: only every second window needs a change of setting.
        let complete = self.default.len() == self.winner.len();
        if self.rounds().is_multiple_of(2) == complete {
            self.first
        } else {
            self.first.other()
        }
    }

    /// Complete rounds.
    pub fn rounds(&self) -> u32 {
        self.default.len().min(self.winner.len()) as u32
    }

    /// Adds a window of the arm that was next: ln(step time in ms), [`window_steps`] values.
    pub fn push(&mut self, log_times: Vec<f64>) {
        match self.next_arm() {
            Arm::Default => self.default.push(log_times),
            Arm::Winner => self.winner.push(log_times),
        }
    }

    /// The Huber centre of one arm's log step times, NaN before its first window.
    pub fn center(&self, arm: Arm) -> f64 {
        known_noise_center(&self.windows(arm).concat(), self.window_noise())
    }

    /// Steps in one arm's windows.
    pub(crate) fn steps(&self, arm: Arm) -> usize {
        self.windows(arm).iter().map(Vec::len).sum()
    }

    fn windows(&self, arm: Arm) -> &[Vec<f64>] {
        match arm {
            Arm::Default => &self.default,
            Arm::Winner => &self.winner,
        }
    }

    fn window_noise(&self) -> f64 {
        let (default, winner) = (self.default.concat(), self.winner.concat());
        // Two windows alone say little of the noise, and too often too much.
        if self.rounds() < 2 {
            return self.noise;
        }
        step_noise([default.as_slice(), winner.as_slice()].into_iter()).max(self.noise)
    }

    /// The difference by all samples, once each arm has a window.
    pub fn difference(&self) -> Option<Difference> {
        let windows = self.windows_difference()?;
        let searched = self
            .searched
            .map(|searched| self.search_difference(searched));
        let estimates = searched.into_iter().chain(self.record_beside(&windows));
        let Difference { mean, se } = estimates.fold(windows, Difference::and);
        let steps = self.noise_steps + self.steps(Arm::Default) + self.steps(Arm::Winner);
        Some(Difference {
            mean,
            se: se * ignorance(steps).sqrt(),
        })
    }

    /// What an earlier run found, unless the windows say that it was another job's.
    fn record_beside(&self, windows: &Difference) -> Option<Difference> {
        self.recorded.filter(|recorded| {
            let sd = recorded.se.hypot(windows.se);
            (recorded.mean - windows.mean).abs() <= RECORD_DOUBT * sd
        })
    }

    fn windows_difference(&self) -> Option<Difference> {
        if self.rounds() == 0 {
            return None;
        }
        let noise = self.window_noise();
        let within = center_variance(noise, self.steps(Arm::Default))
            + center_variance(noise, self.steps(Arm::Winner));
        let drift = round_drift(0, self.rounds());
        Some(Difference {
            mean: self.center(Arm::Winner) - self.center(Arm::Default),
            se: (within + drift).sqrt().max(self.scatter()),
        })
    }

    fn search_difference(&self, [default, winner]: [Searched; 2]) -> Difference {
        // The default was measured in both: what it moved by, the machine did.
        let moved = self.center(Arm::Default) - default.center;
        let drift = (2.0 * SEARCH_DRIFT * SEARCH_DRIFT).max(moved * moved);
        Difference {
            mean: winner.center - default.center,
            se: (default.variance + winner.variance + drift).sqrt(),
        }
    }

    /// The standard error that the rounds' own differences show: larger than that of the steps where steps are correlated.
    fn scatter(&self) -> f64 {
        let center = |log_times: &[f64]| known_noise_center(log_times, self.noise);
        let pairs = self.default.iter().zip(&self.winner);
        let differences: Vec<(f64, f64)> = pairs
            .map(|(d, w)| (d.len().min(w.len()) as f64, center(w) - center(d)))
            .collect();
        let count = differences.len();
        if count < ROUNDS_FOR_SCATTER {
            return 0.0;
        }
        let steps: f64 = differences.iter().map(|(steps, _)| steps).sum();
        let mean = differences.iter().map(|(steps, d)| steps * d).sum::<f64>() / steps;
        let squares: f64 = differences
            .iter()
            .map(|(steps, d)| (steps * (d - mean)).powi(2))
            .sum();
        (squares * count as f64 / (count - 1) as f64).sqrt() / steps
    }

    /// What the complete rounds say; `Undecided` inside a round.
    pub fn decision(&self) -> Decision {
        let complete = self.default.len() == self.winner.len();
        let Some(difference) = self.difference().filter(|_| complete && self.is_credible()) else {
            return Decision::Undecided;
        };
        let to_default = self
            .ahead
            .map_or(difference, |ahead| ahead.then(difference));
        if to_default.above(SLOWDOWN) < self.slower_max(self.rounds())
            && difference.above(0.0) < self.faster_doubt()
        {
            return Decision::KeepWinner;
        }
        let left = self.rounds_max.saturating_sub(self.rounds());
        if (1..=left).any(|rounds| self.pays(&difference, rounds)) {
            Decision::Undecided
        } else {
            Decision::KeepDefault
        }
    }

    /// See [`SLOWER_MAX`].
    fn slower_max(&self, rounds: u32) -> f64 {
        if rounds < self.rounds_max {
            SLOWER_MAX
        } else {
            SLOWER_MAX_LAST
        }
    }

    /// See [`FASTER_DOUBT`]. An earlier run has excluded that already where its verdict still counts.
    fn faster_doubt(&self) -> f64 {
        if self.ahead.is_some() {
            return FASTER_DOUBT_CHAMPION;
        }
        let is_proved = self
            .windows_difference()
            .is_some_and(|windows| self.record_beside(&windows).is_some());
        if is_proved {
            FASTER_DOUBT_PROVED
        } else {
            FASTER_DOUBT / (1 + self.losers) as f64
        }
    }

    /// See [`GAIN_PRIOR`].
    fn gain_prior(&self) -> f64 {
        match self.ahead {
            Some(_) => GAIN_PRIOR_CHAMPION,
            None => GAIN_PRIOR.max(GAIN_PRIOR_NOISE * self.window_noise()),
        }
    }

    /// Whether the windows can be decided by. Two spikes among three steps are a level of their own, so a short first round counts
    /// only where the search saw the same levels.
    fn is_credible(&self) -> bool {
        let is_short = |arm| self.steps(arm) < WINDOW_STEPS as usize;
        let is_same = |(arm, searched): (Arm, Searched)| {
            let own = center_variance(self.window_noise(), self.steps(arm));
            let sd = (own + searched.variance + SEARCH_DRIFT * SEARCH_DRIFT).sqrt();
            (self.center(arm) - searched.center).abs() <= MOVED * sd
        };
        if !is_short(Arm::Default) && !is_short(Arm::Winner) {
            return true;
        }
        match (self.default_before, self.searched) {
            (_, Some([default, winner])) => {
                is_same((Arm::Default, default)) && is_same((Arm::Winner, winner))
            }
            (Some(default), None) => is_same((Arm::Default, default)),
            (None, None) => false,
        }
    }

    /// Whether `rounds` more of them promise more than they cost: the winner is accepted if the difference, known better then,
    /// is below the limit, and the gain counts from there on. What is left to gain is taken for small until shown
    /// ([`GAIN_PRIOR`]): a difference that only looks large would have every round paid for.
    fn pays(&self, difference: &Difference, rounds: u32) -> bool {
        let normal = Normal::standard();
        let steps = steps_between(self.rounds(), self.rounds() + rounds) as usize;
        let news = 2.0 * center_variance(self.window_noise(), steps)
            + round_drift(self.rounds(), self.rounds() + rounds);
        let now = difference.se * difference.se;
        let then = 1.0 / (1.0 / now + 1.0 / news);
        let quantile = |share: f64| normal.inverse_cdf(share) * then.sqrt();
        let (ahead, ahead_se) = self
            .ahead
            .map_or((0.0, 0.0), |ahead| (ahead.mean, ahead.se));
        let slower = normal.inverse_cdf(self.slower_max(self.rounds() + rounds))
            * then.sqrt().hypot(ahead_se);
        let limit = (SLOWDOWN - ahead + slower).min(quantile(self.faster_doubt()));
        // The true difference, as believed now.
        let prior = self.gain_prior().powi(2);
        let (truth, doubt) = (
            difference.mean * prior / (prior + now),
            now * prior / (prior + now),
        );
        // The mean then is the present one and the rounds' own, weighed; the latter is the truth and noise.
        let share = then / news;
        let mean = (1.0 - share) * difference.mean + share * truth;
        let sd = share * (doubt + news).sqrt();
        let z = (limit - mean) / sd;
        // E[-truth; mean then < limit], of two correlated normals.
        let gain = share * doubt / sd * normal.pdf(z) - truth * normal.cdf(z);
        let cost = f64::from(rounds) * CHANGE_COST + steps as f64 * truth.exp_m1().max(0.0);
        gain * (self.remaining_steps - 2.0 * steps as f64) > cost
    }
}

/// The noise is itself an estimate, from `steps` steps, and a low one is a false certainty: the factor on a variance that rests on it,
/// as Student's distribution is wider than the normal one.
pub(crate) fn ignorance(steps: usize) -> f64 {
    1.0 + IGNORANCE / steps as f64
}

/// Expected maximum of `count` independent standard normals (Blom's approximation; 0 of one or none).
fn expected_maximum(count: usize) -> f64 {
    let count = count.max(1) as f64;
    Normal::standard().inverse_cdf((count - 0.375) / (count + 0.25))
}

#[cfg(test)]
mod tests;
