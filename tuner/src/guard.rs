//! The guard: a sequential comparison of one candidate with the default, on fresh pairs of visits
//! in random order.
//!
//! A *visit* is a run of consecutive steps at one setting; a *pair* is one visit of either setting,
//! both of the same random length, in an order that a fair coin decides. Samples of the search are
//! not used: they proposed the candidate because they looked good. The compared quantity is the
//! mean step time, stalls included.
//!
//! Null hypothesis: each step under the candidate takes f ≥ 1 times what it would take under the
//! default, whatever the environment does. Given the environment, the sign of each pair difference
//! is then an independent fair coin, so autocorrelation, periods and several modes of the step time
//! cannot produce a direction. The test is Student's t on the relative pair differences, weighted
//! by the square root of the visit's length; of less than 8 pairs, with a standard error not below
//! the one of independent steps (Welch). Group-sequential looks spend the error of the contest;
//! contest m of a job gets A / (m (m + 1)), so all contests together stay below A = 0.025. The
//! interval uses the quantile of the look that decided, so it is valid at the stop.
//! `docs/ALGORITHM.md` has the theorem and the assumptions.

pub(crate) mod promise;
pub(crate) mod stall;

use std::ops::RangeInclusive;

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::center::{mean, median, squared_error};
use crate::guard::stall::Stalls;
use crate::random::generator;

/// One-sided error of all contests of a job together: the usual half of 5 %.
const ERROR_BUDGET: f64 = 0.025;
/// Pairs after which a contest is looked at, and the share of its error that each look spends;
/// [`LATE_LOOKS`] spend the rest.
const LOOKS: [(usize, f64); 5] = [(4, 0.15), (5, 0.10), (6, 0.10), (8, 0.05), (10, 0.05)];
/// Looks by active steps, at the first pair end with so many, and their shares; the first is for
/// small gains, the others for those that spikes hide. Only a candidate that looks faster gets
/// there.
const LATE_LOOKS: [(usize, f64); 4] = [(226, 0.30), (340, 0.10), (500, 0.075), (1000, 0.075)];
/// Standard errors by which a candidate must be faster before the last look, which takes as many
/// steps as all before it: of equal settings, one in forty is.
const LAST_LOOK_ERRORS: f64 = 2.0;
/// Steps are winsorized at this multiple of the pooled median. At 3, the interval would cover a
/// clipped mean only.
pub(crate) const WINSOR_FACTOR: f64 = 30.0;
/// Candidate steps times gain before an acceptance: stalls of a step's length that would cancel the
/// gain stay unseen with probability exp(−1.9) = 15 %; longer and rarer ones are mostly left to the
/// checks after the adoption. With 2, a look at 226 steps proves fewer gains of 2.5 %.
const STALL_PROTECTION: f64 = 1.9;
/// The contest ends when one standard error excludes a gain above this.
const GAIN_MIN: f64 = 0.01;
/// Pairs from which their scatter alone is the standard error, and a candidate with a larger
/// unclipped mean is dropped.
const PAIRS_MANY: usize = 8;

/// One side of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    Default,
    Candidate,
}

pub(crate) const ARMS: [Arm; 2] = [Arm::Default, Arm::Candidate];

/// Result of a look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Decision {
    Undecided,
    KeepCandidate,
    KeepDefault,
}

/// The steps of a pair, ms, by arm.
pub(crate) type Pair = [Vec<f64>; 2];

/// The steps of one arm.
pub(crate) fn steps(pairs: &[Pair], arm: Arm) -> Vec<f64> {
    let steps = pairs.iter().flat_map(|pair| &pair[arm as usize]);
    steps.copied().collect()
}

/// The pairs with each step at most the limit of its arm.
pub(crate) fn clipped(pairs: &[Pair], limits: [f64; 2]) -> Vec<Pair> {
    let mut pairs = pairs.to_vec();
    for pair in &mut pairs {
        for (steps, limit) in pair.iter_mut().zip(limits) {
            steps.iter_mut().for_each(|step| *step = step.min(limit));
        }
    }
    pairs
}

/// Weight of a pair: the square root of the length of its visits.
fn weight([visit, _]: &Pair) -> f64 {
    (visit.len() as f64).sqrt()
}

/// Sum of the weighted differences of the pairs, and sum of their weights.
fn weighted_sum(pairs: &[Pair], difference: impl Fn(&Pair) -> f64) -> (f64, f64) {
    let (mut sum, mut weights) = (0.0, 0.0);
    for pair in pairs {
        sum += weight(pair) * difference(pair);
        weights += weight(pair);
    }
    (sum, weights)
}

/// The next visits of a pair: order and length.
#[derive(Clone, Debug)]
pub(crate) struct Visits {
    order: [Arm; 2],
    length: usize,
    pair: Pair,
}

impl Visits {
    /// A pair in random order, of visits of this length.
    pub(crate) fn new(rng: &mut Xoshiro256PlusPlus, length: usize) -> Self {
        let mut order = ARMS;
        if !rng.random_bool(0.5) {
            order.reverse();
        }
        Self {
            order,
            length,
            pair: Pair::default(),
        }
    }

    /// The setting of the next step.
    pub(crate) fn arm(&self) -> Arm {
        let is_second = self.pair[self.order[0] as usize].len() == self.length;
        self.order[usize::from(is_second)]
    }

    /// Adds a step; the pair, if that completes it.
    pub(crate) fn push(&mut self, step_ms: f64) -> Option<Pair> {
        self.pair[self.arm() as usize].push(step_ms);
        let is_complete = self.pair.iter().all(|visit| visit.len() == self.length);
        is_complete.then(|| std::mem::take(&mut self.pair))
    }
}

/// The relative difference of the mean step times, candidate less default, as a share of their
/// average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Difference {
    center: f64,
    /// Half width of the interval of the look.
    half_width: f64,
    se: f64,
}

impl Difference {
    /// The candidate's gain in percent of the default's step time, [low, high].
    pub(crate) fn gain_pct(&self) -> [f64; 2] {
        let ends = [self.center + self.half_width, self.center - self.half_width];
        ends.map(|difference| {
            let half = difference.clamp(-1.99, 1.99) / 2.0;
            100.0 * (1.0 - (1.0 + half) / (1.0 - half))
        })
    }
}

/// The comparison of a candidate with the default.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    /// Error of this contest.
    error: f64,
    /// Number of looks by active steps so far.
    late_looks: usize,
    /// Whether the candidate's gain does not suffice for the last look.
    is_doubtful: bool,
    rng: Xoshiro256PlusPlus,
    pairs: Vec<Pair>,
    visits: Visits,
    /// Steps taken, those discarded after changes included.
    active: usize,
    difference: Option<Difference>,
    stalls: Stalls,
    winsorized: usize,
}

impl Guard {
    /// Contest `number` (from 1) of a job. The coins depend on seed and number alone.
    pub(crate) fn new(seed: u64, number: u32) -> Self {
        let mut rng = generator(seed, (1 << 48) | u64::from(number));
        let number = f64::from(number.max(1));
        let mut guard = Self {
            error: ERROR_BUDGET / (number * (number + 1.0)),
            late_looks: 0,
            is_doubtful: false,
            // Replaced at once; without its draw, every contest would have other coins.
            visits: Visits::new(&mut rng, 0),
            rng,
            pairs: Vec::new(),
            active: 0,
            difference: None,
            stalls: Stalls::default(),
            winsorized: 0,
        };
        guard.begin_pair();
        guard
    }

    fn begin_pair(&mut self) {
        let length = self.rng.random_range(lengths(self.pairs.len() + 1));
        self.visits = Visits::new(&mut self.rng, length);
    }

    /// The setting of the next step.
    pub(crate) fn arm(&self) -> Arm {
        self.visits.arm()
    }

    /// Complete pairs.
    pub(crate) fn rounds(&self) -> u32 {
        self.pairs.len() as u32
    }

    /// Steps of the candidate.
    pub(crate) fn candidate_steps(&self) -> usize {
        steps(&self.pairs, Arm::Candidate).len()
    }

    /// A step after a change was discarded.
    pub(crate) fn discarded(&mut self) {
        self.active += 1;
    }

    /// Adds a step, ms. At the end of a visit: what the looks so far say.
    pub(crate) fn push(&mut self, step_ms: f64) -> Option<Decision> {
        self.active += 1;
        let arm = self.arm();
        self.stalls.push(arm, step_ms);
        let Some(pair) = self.visits.push(step_ms) else {
            return (self.arm() != arm).then_some(Decision::Undecided);
        };
        self.pairs.push(pair);
        self.begin_pair();
        Some(self.look())
    }

    /// Looks at the pairs, if that is due after the latest one.
    fn look(&mut self) -> Decision {
        let late = LATE_LOOKS.get(self.late_looks);
        let late = late.filter(|(active, _)| self.active >= *active);
        let early = LOOKS.iter().find(|(pairs, _)| *pairs == self.pairs.len());
        let Some((_, share)) = late.or(early) else {
            return Decision::Undecided;
        };
        self.late_looks += usize::from(late.is_some());
        let Some(difference) = self.compare(share * self.error) else {
            return Decision::KeepDefault;
        };
        self.difference = Some(difference);
        let [default, candidate] = ARMS.map(|arm| self.mean(arm));
        let is_seen = self.candidate_steps() as f64 * -difference.center >= STALL_PROTECTION;
        if difference.center + difference.half_width < 0.0 && candidate < default && is_seen {
            return Decision::KeepCandidate;
        }
        let is_small = difference.center - difference.se > -GAIN_MIN;
        self.is_doubtful = late.is_some()
            && self.late_looks + 1 == LATE_LOOKS.len()
            && difference.center > -LAST_LOOK_ERRORS * difference.se;
        let is_last = late.is_some() && self.is_over();
        if is_last || is_small || (self.pairs.len() >= PAIRS_MANY && candidate > default) {
            return Decision::KeepDefault;
        }
        Decision::Undecided
    }

    /// The difference with a one-sided limit at this error; none before the second pair.
    fn compare(&mut self, error: f64) -> Option<Difference> {
        let count = self.pairs.len() as f64;
        let all: Vec<f64> = self.pairs.iter().flatten().flatten().copied().collect();
        let limit = WINSOR_FACTOR * median(&all);
        self.winsorized = all.iter().filter(|step| **step > limit).count();
        let pairs = clipped(&self.pairs, [limit; 2]);
        let [default, candidate] = ARMS.map(|arm| steps(&pairs, arm));
        let middle = (mean(&default) + mean(&candidate)) / 2.0;
        let difference = |[default, candidate]: &Pair| (mean(candidate) - mean(default)) / middle;
        let (sum, weights) = weighted_sum(&pairs, difference);
        let center = sum / weights;
        let deviations = pairs
            .iter()
            .map(|pair| weight(pair) * (difference(pair) - center));
        let squares: f64 = deviations.map(|deviation| deviation.powi(2)).sum();
        let paired = (squares * count / (count - 1.0)).sqrt() / weights;
        let welch = (squared_error(&default) + squared_error(&candidate)).sqrt() / middle;
        let is_few = self.pairs.len() < PAIRS_MANY;
        let se = if is_few { paired.max(welch) } else { paired };
        let student = StudentsT::new(0.0, 1.0, count - 1.0).ok()?;
        let half_width = student.inverse_cdf(1.0 - error) * se;
        (center.is_finite() && half_width.is_finite()).then_some(Difference {
            center,
            half_width,
            se,
        })
    }

    /// Whether there is no further look: the last one was taken, or is not worth its steps.
    pub(crate) fn is_over(&self) -> bool {
        self.late_looks == LATE_LOOKS.len() || self.is_doubtful
    }

    /// The difference at the last look.
    pub(crate) fn difference(&self) -> Option<Difference> {
        self.difference
    }

    /// Mean step time of an arm, ms, not winsorized; NaN before its first visit.
    pub(crate) fn mean(&self, arm: Arm) -> f64 {
        mean(&steps(&self.pairs, arm))
    }

    /// Steps that the last look winsorized.
    pub(crate) fn winsorized(&self) -> usize {
        self.winsorized
    }
}

/// Lengths of the visits of pair `number`, counted from 1. Short visits decide large gains in 45
/// steps; long ones cost fewer changes once there are pairs enough; random lengths keep the pairs
/// from aliasing with periodic jobs.
fn lengths(number: usize) -> RangeInclusive<usize> {
    match number {
        ..=5 => 3..=4,
        6..=30 => 7..=10,
        _ => 14..=20,
    }
}

/// Most steps that a contest with so many complete pairs still takes.
pub fn contest_steps_left(rounds: u32) -> u64 {
    let done = (1..=rounds.min(100) as usize).map(|number| 2 * lengths(number).start());
    // The pair that reaches the limit is completed: two visits, a change before each.
    let pair = 2 * lengths(usize::MAX).end() + 2;
    let most = LATE_LOOKS[LATE_LOOKS.len() - 1].0;
    (most.saturating_sub(done.sum()) + pair) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Job;

    /// Runs a contest of a candidate with this log step time relative to the default's.
    fn contest(seed: u64, noise: f64, difference: f64) -> (Guard, Decision) {
        let mut job = Job::new(seed, noise, 0.0);
        let mut guard = Guard::new(seed, 1);
        let mut last = None;
        loop {
            let arm = guard.arm();
            let center = if arm == Arm::Candidate {
                difference
            } else {
                0.0
            };
            if last.is_some_and(|last| last != arm) {
                job.step(center);
                guard.discarded();
            }
            last = Some(arm);
            match guard.push(100.0 * job.step(center).exp()) {
                None | Some(Decision::Undecided) => {}
                Some(decision) => return (guard, decision),
            }
        }
    }

    /// Share of candidates that are kept, median number of steps, and share of intervals that
    /// contain the true gain.
    fn table(noise: f64, gain: f64) -> (f64, usize, f64) {
        let (mut kept, mut held, mut steps) = (0, 0, Vec::new());
        for seed in 0..400 {
            let (guard, decision) = contest(seed, noise, (1.0 - gain).ln());
            kept += usize::from(decision == Decision::KeepCandidate);
            let [low, high] = guard.difference().unwrap().gain_pct();
            held += usize::from((low..=high).contains(&(100.0 * gain)));
            steps.push(guard.active);
        }
        steps.sort_unstable();
        println!(
            "noise {noise}, gain {gain}: kept {kept} of 400, median {}",
            steps[200]
        );
        (kept as f64 / 400.0, steps[200], held as f64 / 400.0)
    }

    #[test]
    fn equal_settings_are_kept_rarely_and_intervals_hold() {
        for noise in [0.01, 0.035] {
            let (kept, _, held) = table(noise, 0.0);
            assert!(kept <= 0.025 && held >= 0.95, "{kept} {held}");
        }
    }

    #[test]
    fn gains_are_found() {
        let (kept, steps, held) = table(0.035, 0.20);
        assert!(
            kept == 1.0 && steps <= 45 && held >= 0.95,
            "{kept} {steps} {held}"
        );
        let (kept, _, held) = table(0.035, 0.05);
        assert!(kept >= 0.6 && held >= 0.95, "{kept} {held}");
        let (kept, _, held) = table(0.01, 0.025);
        assert!(kept >= 0.1 && held >= 0.95, "{kept} {held}");
    }

    #[test]
    fn the_order_of_visits_is_random() {
        let first: Vec<Arm> = (0..64).map(|seed| Guard::new(seed, 1).arm()).collect();
        let count = first.iter().filter(|arm| **arm == Arm::Candidate).count();
        assert!((16..=48).contains(&count), "{count}");
    }
}
