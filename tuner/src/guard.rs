//! The guard: a sequential comparison of one candidate with the default, on fresh pairs of visits in random order.
//!
//! A *visit* is a run of consecutive steps at one setting; a *pair* is one visit of either setting, both of the same random
//! length, in an order that a fair coin decides. Samples of the search are not used: they proposed the candidate because they
//! looked good. The compared quantity is the mean step time, stalls included.
//!
//! Null hypothesis: each step under the candidate takes f ≥ 1 times what it would take under the default, whatever the
//! environment does. Given the environment, the sign of each pair difference is then an independent fair coin, so
//! autocorrelation, periods and several modes of the step time cannot produce a direction. The test is Student's t on the
//! relative pair differences, weighted by the square root of the visit's length, with a standard error not below the one of
//! independent steps (Welch). Group-sequential looks spend the error of the contest; contest m of a job gets
//! A / (m (m + 1)), so all contests together stay below A = 0.025. The interval uses the quantile of the look that decided, so
//! it is valid at the stop. `docs/ALGORITHM.md` has the theorem and the assumptions.

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::center::median;
use crate::design::generator;
use crate::stall::Stalls;

/// One-sided error of all contests of a job together: the usual half of 5 %.
const ERROR_BUDGET: f64 = 0.025;
/// Pairs after which a contest is looked at, and the share of its error that each look spends; the rest is the last look's.
const LOOKS: [(usize, f64); 6] = [
    (4, 0.20),
    (5, 0.15),
    (6, 0.15),
    (8, 0.15),
    (10, 0.10),
    (12, 0.10),
];
/// The last look is at the first pair end with this many active steps. A simulation found 2.5 % at 3.5 % noise in 96 % of runs.
const ACTIVE_STEPS_MAX: usize = 222;
/// Visit lengths: pairs up to the first number draw from the range after it. Short visits decide large gains in 41 steps; random
/// lengths keep the pairs from aliasing with periodic jobs.
const LENGTHS: [(usize, std::ops::RangeInclusive<usize>); 3] =
    [(5, 3..=4), (8, 6..=10), (usize::MAX, 10..=16)];
/// Steps are winsorized at this multiple of the pooled median. At 3, the interval would cover a clipped mean only.
const WINSOR_FACTOR: f64 = 30.0;
/// Candidate steps times gain before an acceptance: a stall that would cancel the gain stays unseen with probability exp(-K).
const STALL_PROTECTION: f64 = 2.0;
/// Measured steps before a gain below [`GAIN_LARGE`] is accepted.
const STEPS_MIN: usize = 40;
const GAIN_LARGE: f64 = 0.10;
/// The contest ends when one standard error excludes a gain above this.
const GAIN_MIN: f64 = 0.01;
/// Pairs from which a candidate with a larger unclipped mean is dropped.
const PAIRS_FOR_RAW: usize = 5;
/// Steps of the default by which the candidate's stalls may exceed the default's before the default rests, and resumes.
const LEDGER_MAX: f64 = 10.0;
const LEDGER_RESUME: f64 = 5.0;
const RESTS_MAX: u32 = 3;
/// A step costs the ledger what it takes beyond this multiple of the default's median: the change of setting itself is free.
const LEDGER_FREE: f64 = 1.25;

/// One side of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    Default,
    Candidate,
}

/// What a look found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Decision {
    Undecided,
    KeepCandidate,
    KeepDefault,
}

/// The steps of a pair, ms.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pair {
    pub(crate) default: Vec<f64>,
    pub(crate) candidate: Vec<f64>,
}

/// The next visits of a pair: order and length.
#[derive(Clone, Debug)]
pub(crate) struct Visits {
    order: [Arm; 2],
    length: usize,
    second: bool,
    pair: Pair,
}

impl Visits {
    /// A pair in random order, of visits of this length.
    pub(crate) fn new(rng: &mut Xoshiro256PlusPlus, length: usize) -> Self {
        let order = if rng.random_bool(0.5) {
            [Arm::Default, Arm::Candidate]
        } else {
            [Arm::Candidate, Arm::Default]
        };
        Self {
            order,
            length,
            second: false,
            pair: Pair::default(),
        }
    }

    /// The setting of the next step.
    pub(crate) fn arm(&self) -> Arm {
        self.order[usize::from(self.second)]
    }

    /// Adds a step; whether its visit is over, and with it the pair.
    pub(crate) fn push(&mut self, step_ms: f64) -> (bool, Option<Pair>) {
        let visit = match self.arm() {
            Arm::Default => &mut self.pair.default,
            Arm::Candidate => &mut self.pair.candidate,
        };
        visit.push(step_ms);
        if visit.len() < self.length {
            return (false, None);
        }
        let pair = self.second.then(|| std::mem::take(&mut self.pair));
        self.second = true;
        (true, pair)
    }
}

/// The relative difference of the mean step times, candidate less default, as a share of their average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Difference {
    pub(crate) mean: f64,
    /// Half width of the interval of the look.
    half_width: f64,
    se: f64,
}

impl Difference {
    /// The candidate's gain in percent of the default's step time, [low, high].
    pub(crate) fn gain_pct(&self) -> [f64; 2] {
        let gain = |difference: f64| {
            let difference = difference.clamp(-1.99, 1.99);
            100.0 * (1.0 - (1.0 + difference / 2.0) / (1.0 - difference / 2.0))
        };
        [
            gain(self.mean + self.half_width),
            gain(self.mean - self.half_width),
        ]
    }
}

/// The comparison of a candidate with the default.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    /// Error of this contest, and the share of it that is spent.
    error: f64,
    spent: f64,
    rng: Xoshiro256PlusPlus,
    pairs: Vec<Pair>,
    visits: Visits,
    /// The default is in force until its stalls are known as well: steps of such rests, and how many there were.
    rest: Option<Vec<f64>>,
    rested: Vec<f64>,
    rests: u32,
    /// Steps taken, those discarded after changes included.
    active: usize,
    difference: Option<Difference>,
    pub(crate) stalls: Stalls,
    winsorized: usize,
}

impl Guard {
    /// Contest `number` (from 1) of a job. The coins depend on seed and number alone.
    pub(crate) fn new(seed: u64, number: u32) -> Self {
        let mut rng = generator(seed, (1 << 48) | u64::from(number));
        let number = f64::from(number.max(1));
        let visits = Visits::new(&mut rng, 3);
        let mut guard = Self {
            error: ERROR_BUDGET / (number * (number + 1.0)),
            spent: 0.0,
            rng,
            pairs: Vec::new(),
            visits,
            rest: None,
            rested: Vec::new(),
            rests: 0,
            active: 0,
            difference: None,
            stalls: Stalls::default(),
            winsorized: 0,
        };
        guard.begin_pair();
        guard
    }

    fn begin_pair(&mut self) {
        let number = self.pairs.len() + 1;
        let lengths = LENGTHS.iter().find(|(last, _)| number <= *last);
        let range = lengths.map_or(10..=16, |(_, range)| range.clone());
        let length = self.rng.random_range(range);
        self.visits = Visits::new(&mut self.rng, length);
    }

    /// The setting of the next step.
    pub(crate) fn arm(&self) -> Arm {
        match self.rest {
            Some(_) => Arm::Default,
            None => self.visits.arm(),
        }
    }

    /// Complete pairs.
    pub(crate) fn rounds(&self) -> u32 {
        self.pairs.len() as u32
    }

    /// Steps of the candidate.
    pub(crate) fn candidate_steps(&self) -> usize {
        self.pairs.iter().map(|pair| pair.candidate.len()).sum()
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
        if let Some(rest) = &mut self.rest {
            rest.push(step_ms);
            return self.end_of_rest();
        }
        let (over, pair) = self.visits.push(step_ms);
        let Some(pair) = pair else {
            return over.then_some(Decision::Undecided);
        };
        self.pairs.push(pair);
        let decision = self.look();
        if decision == Decision::Undecided {
            if self.ledger() > LEDGER_MAX {
                if self.rests == RESTS_MAX {
                    return Some(Decision::KeepDefault);
                }
                self.rests += 1;
                self.rest = Some(Vec::new());
            } else {
                self.begin_pair();
            }
        }
        Some(decision)
    }

    /// The rest ends when the default has shown stalls as well; a longer one shows that they are the candidate's.
    fn end_of_rest(&mut self) -> Option<Decision> {
        let rest = self.rest.as_ref().map_or(0, Vec::len);
        let ledger = self.ledger();
        if ledger > LEDGER_RESUME {
            return (rest >= 2 * self.candidate_steps()).then_some(Decision::KeepDefault);
        }
        self.rested.extend(self.rest.take().unwrap_or_default());
        self.begin_pair();
        Some(Decision::Undecided)
    }

    /// What the candidate's stalls have cost beyond the default's, in steps of the default.
    fn ledger(&self) -> f64 {
        let paired = self.pairs.iter().flat_map(|pair| &pair.default);
        let default: Vec<f64> = paired
            .chain(&self.rested)
            .chain(self.rest.iter().flatten())
            .copied()
            .collect();
        let reference = median(&default);
        let excess = |step: &f64| (step / reference - LEDGER_FREE).max(0.0);
        let candidate = self.pairs.iter().flat_map(|pair| &pair.candidate);
        let (count, sum) = candidate.fold((0.0, 0.0), |(count, sum), step| {
            (count + 1.0, sum + excess(step))
        });
        sum - count * default.iter().map(excess).sum::<f64>() / default.len().max(1) as f64
    }

    /// The error that the look after the latest pair may spend; none if no look is due.
    fn share(&self) -> Option<(f64, bool)> {
        if self.active >= ACTIVE_STEPS_MAX {
            return Some((1.0 - self.spent, true));
        }
        let due = LOOKS.iter().find(|(pairs, _)| *pairs == self.pairs.len());
        due.map(|(_, share)| (*share, false))
    }

    fn look(&mut self) -> Decision {
        let Some((share, last)) = self.share() else {
            return Decision::Undecided;
        };
        self.spent += share;
        let Some(difference) = self.compare(share * self.error) else {
            return Decision::KeepDefault;
        };
        self.difference = Some(difference);
        let (default, candidate) = (self.mean(Arm::Default), self.mean(Arm::Candidate));
        let is_slower = candidate > default;
        let gain = -difference.mean;
        let steps = self.candidate_steps();
        let is_seen = steps as f64 * gain >= STALL_PROTECTION
            && (2 * steps >= STEPS_MIN || gain >= GAIN_LARGE);
        if difference.mean + difference.half_width < 0.0 && candidate < default && is_seen {
            return Decision::KeepCandidate;
        }
        let is_small = difference.mean - difference.se > -GAIN_MIN;
        if last || is_small || (self.pairs.len() >= PAIRS_FOR_RAW && is_slower) {
            return Decision::KeepDefault;
        }
        Decision::Undecided
    }

    /// The difference with a one-sided limit at this error; none before the second pair.
    fn compare(&mut self, error: f64) -> Option<Difference> {
        let count = self.pairs.len();
        let all: Vec<f64> = (self.pairs.iter())
            .flat_map(|pair| pair.default.iter().chain(&pair.candidate))
            .copied()
            .collect();
        let limit = WINSOR_FACTOR * median(&all);
        self.winsorized = all.iter().filter(|step| **step > limit).count();
        let clipped =
            |steps: &[f64]| -> Vec<f64> { steps.iter().map(|step| step.min(limit)).collect() };
        let arms: Vec<[Vec<f64>; 2]> = (self.pairs.iter())
            .map(|pair| [clipped(&pair.default), clipped(&pair.candidate)])
            .collect();
        let [default, candidate] = [0, 1].map(|arm| {
            arms.iter()
                .flat_map(|pair| pair[arm].clone())
                .collect::<Vec<_>>()
        });
        let middle = (mean(&default) + mean(&candidate)) / 2.0;
        let differences: Vec<(f64, f64)> = arms
            .iter()
            .map(|[default, candidate]| {
                let weight = (default.len() as f64).sqrt();
                (weight, (mean(candidate) - mean(default)) / middle)
            })
            .collect();
        let weights: f64 = differences.iter().map(|(weight, _)| weight).sum();
        let center = differences
            .iter()
            .map(|(weight, d)| weight * d)
            .sum::<f64>()
            / weights;
        let squares: f64 = differences
            .iter()
            .map(|(weight, d)| (weight * (d - center)).powi(2))
            .sum();
        let freedom = count.checked_sub(1).filter(|freedom| *freedom > 0)? as f64;
        let paired = (squares * count as f64 / freedom).sqrt() / weights;
        let welch = (squared_error(&default) + squared_error(&candidate)).sqrt() / middle;
        let se = paired.max(welch);
        let quantile = StudentsT::new(0.0, 1.0, freedom)
            .ok()?
            .inverse_cdf(1.0 - error);
        let difference = Difference {
            mean: center,
            half_width: quantile * se,
            se,
        };
        (center.is_finite() && difference.half_width.is_finite()).then_some(difference)
    }

    /// The difference at the last look.
    pub(crate) fn difference(&self) -> Option<Difference> {
        self.difference
    }

    /// Mean step time of an arm, ms, not winsorized; NaN before its first visit.
    pub(crate) fn mean(&self, arm: Arm) -> f64 {
        let steps: Vec<f64> = self
            .pairs
            .iter()
            .flat_map(|pair| pair.of(arm))
            .copied()
            .collect();
        mean(&steps)
    }

    /// Steps that the last look winsorized.
    pub(crate) fn winsorized(&self) -> usize {
        self.winsorized
    }

    /// The complete pairs.
    pub(crate) fn pairs(&self) -> &[Pair] {
        &self.pairs
    }
}

impl Pair {
    /// The steps of one arm.
    pub(crate) fn of(&self, arm: Arm) -> &[f64] {
        match arm {
            Arm::Default => &self.default,
            Arm::Candidate => &self.candidate,
        }
    }
}

/// Most steps that a contest with so many complete pairs still takes.
pub fn contest_steps_left(rounds: u32) -> u64 {
    let lengths = |pair: usize| LENGTHS.iter().find(|(last, _)| pair <= *last);
    let done = (1..=rounds.min(100) as usize).filter_map(lengths);
    let done: usize = done.map(|(_, range)| 2 * range.start()).sum();
    // The pair that reaches the limit is completed: two visits, a change before each.
    let pair = lengths(usize::MAX).map_or(0, |(_, range)| 2 * range.end() + 2);
    (ACTIVE_STEPS_MAX.saturating_sub(done) + pair) as u64
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Squared standard error of the mean of independent steps.
fn squared_error(steps: &[f64]) -> f64 {
    let (count, center) = (steps.len() as f64, mean(steps));
    let squares: f64 = steps.iter().map(|step| (step - center).powi(2)).sum();
    squares / (count * (count - 1.0))
}
