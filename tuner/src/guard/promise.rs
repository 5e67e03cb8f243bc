//! Checks after an adoption: the candidate in force is compared with the default for the rest of
//! the job.
//!
//! Two quantities. The *body* is the relative difference of the mean step times with each step
//! clipped at 1.25 times its own setting's median; pairs of visits update it. The *stalls* are what
//! single steps take beyond that, summed over all steps of either setting. Their sum is the net
//! difference. The default needs no proof: as soon as the net difference is above zero it is in
//! force again. Two kinds of looks keep the body up to date: one pair of visits near the ages 100,
//! 300, 1,000, …, with six more if that pair is slower, and six pairs where the mean of a block of
//! steps exceeds the default's mean, with twice the block length after each.
//!
//! An effect of a setting may build up over many steps, so that short visits do not show it. If the
//! candidate is faster in such a check although its steps in force were slower than the default in
//! the same check, longer visits follow, of which only the second halves count.
//!
//! After a reversion for stalls alone the default stays until it has as many steps; the candidate
//! returns if the stalls were the environment's.

use std::ops::{Range, RangeInclusive};

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;

use crate::center::{mean, median};
use crate::guard::stall::{STALL_FREE, Stalls};
use crate::guard::{ARMS, Arm, Guard, Pair, Visits, clipped, steps, weight};
use crate::random::generator;

/// Ages of the scheduled looks: these two, then ten times each.
const LOOK_AGES: [f64; 2] = [100.0, 300.0];
/// Steps of their visits, one pair each: at most 0.4 % of 3,000 steps.
const LOOK_LENGTHS: RangeInclusive<usize> = 3..=4;
/// A scheduled look comes at its age times a random factor in this range.
const LOOK_SPREAD: Range<f64> = 0.9..1.1;
/// Steps of the first block that is compared with the default's mean.
const BLOCK_STEPS: u64 = 100;
/// Pairs, and steps of their visits, where a block suggests a loss.
const CHECK_PAIRS: usize = 6;
const CHECK_LENGTH: usize = 10;
/// After a reversion for stalls, the candidate returns if this share of its gain is left.
const RETURN_SHARE: f64 = 0.25;

/// Change of the setting in force.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    /// The default is in force from now on; the net difference and whether stalls alone are the
    /// reason.
    Revert { net: f64, stalls_only: bool },
    /// The candidate is in force again: the default has the same stalls.
    Return { net: f64 },
}

/// Result of a check: the candidate was compared with the default again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recheck {
    /// Mean step time at the default, ms.
    pub default_ms: f64,
    /// Mean step time at the candidate, ms.
    pub chosen_ms: f64,
    /// Whether the candidate stays in force.
    pub is_confirmed: bool,
}

/// Reason for a check.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cause {
    /// The age of the adoption.
    Schedule,
    /// The pair of a scheduled look was slower.
    Look,
    /// A block of steps, with this mean in ms, suggested a loss.
    Block(f64),
    /// The check after a block contradicts it.
    Contradiction,
}

/// Pairs under way.
#[derive(Clone, Debug)]
struct Check {
    visits: Visits,
    pairs: Vec<Pair>,
    wanted: usize,
    cause: Cause,
}

/// Comparison of the adopted candidate with the default for the rest of the job.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    rng: Xoshiro256PlusPlus,
    stalls: Stalls,
    /// Sums over pairs: weight times clipped difference, weight.
    body: (f64, f64),
    default_ms: f64,
    age: u64,
    look: (u64, usize),
    /// Sum and steps of the block under way, and the length of a block.
    block: (f64, u64),
    gap: u64,
    /// Steps of the visits of the next check after a contradiction: half a block, then twice as
    /// many each.
    settled_length: usize,
    check: Option<Check>,
    /// The check that ended with the last step.
    pub(crate) recheck: Option<Recheck>,
    /// The default is in force until it has as many steps.
    suspended: bool,
    /// No further step can change anything.
    pub(crate) is_over: bool,
}

impl Promise {
    /// Of the candidate that `guard` kept.
    pub(crate) fn new(guard: &Guard, seed: u64, number: u32) -> Self {
        let rng = generator(seed, (3 << 48) | u64::from(number));
        let mut promise = Self::with(rng, guard.mean(Arm::Default));
        promise.stalls = guard.stalls.clone();
        promise.update(&guard.pairs);
        promise.plan();
        promise
    }

    /// Of a candidate that was kept before a reset of the job, with the step times of then, which
    /// count as one pair of a check.
    pub(crate) fn recalled([default_ms, candidate_ms]: [f64; 2], seed: u64, number: u32) -> Self {
        let rng = generator(seed, (4 << 48) | u64::from(number));
        let mut promise = Self::with(rng, default_ms);
        let weight = (CHECK_LENGTH as f64).sqrt();
        promise.body = (weight * (candidate_ms / default_ms - 1.0), weight);
        promise.plan();
        promise
    }

    /// Knows no steps yet.
    fn with(rng: Xoshiro256PlusPlus, default_ms: f64) -> Self {
        Self {
            rng,
            stalls: Stalls::default(),
            body: (0.0, 0.0),
            default_ms,
            age: 0,
            look: (0, 0),
            block: (0.0, 0),
            gap: BLOCK_STEPS,
            settled_length: BLOCK_STEPS as usize / 2,
            check: None,
            recheck: None,
            suspended: false,
            is_over: false,
        }
    }

    /// Whether a check is under way: its steps are of two settings.
    pub(crate) fn is_checking(&self) -> bool {
        self.check.is_some()
    }

    /// The setting of the next step.
    pub(crate) fn arm(&self) -> Arm {
        match &self.check {
            Some(check) => check.visits.arm(),
            None if self.suspended || self.is_over => Arm::Default,
            None => Arm::Candidate,
        }
    }

    fn plan(&mut self) {
        let (_, index) = self.look;
        let age = LOOK_AGES[index % 2] * 10f64.powi((index / 2) as i32);
        self.look = ((age * self.rng.random_range(LOOK_SPREAD)) as u64, index + 1);
    }

    /// Adds `pairs` to the body, each step clipped; returns their mean relative difference.
    fn update(&mut self, pairs: &[Pair]) -> f64 {
        let limits = ARMS.map(|arm| STALL_FREE * median(&steps(pairs, arm)));
        let (mut sum, mut weights) = (0.0, 0.0);
        for pair in clipped(pairs, limits) {
            let [default, candidate] = &pair;
            sum += weight(&pair) * (mean(candidate) / mean(default) - 1.0);
            weights += weight(&pair);
        }
        self.body = (self.body.0 + sum, self.body.1 + weights);
        sum / weights
    }

    fn body(&self) -> f64 {
        self.body.0 / self.body.1
    }

    /// Candidate less default, as a share of the default's step time, stalls included.
    fn net(&self) -> f64 {
        let stalls = self.stalls.rate(Arm::Candidate) - self.stalls.rate(Arm::Default);
        self.body() + stalls / self.default_ms
    }

    /// Takes a step, ms.
    pub(crate) fn push(&mut self, step_ms: f64) -> Option<Change> {
        self.stalls.push(self.arm(), step_ms);
        self.age += 1;
        if self.suspended {
            return self.end_of_suspension();
        }
        if let Some(check) = &mut self.check {
            if let Some(pair) = check.visits.push(step_ms) {
                check.pairs.push(pair);
                if check.pairs.len() == check.wanted {
                    return self.end_of_check();
                }
                check.visits = Visits::new(&mut self.rng, check.visits.length);
            }
            return self.revert_if(None);
        }
        self.block = (self.block.0 + step_ms, self.block.1 + 1);
        let revert = self.revert_if(None);
        if revert.is_some() {
            return revert;
        }
        if self.block.1 >= self.gap {
            let block_ms = self.block.0 / self.block.1 as f64;
            self.block = (0.0, 0);
            if block_ms > self.default_ms {
                self.begin_check(CHECK_PAIRS, CHECK_LENGTH, Cause::Block(block_ms));
                return None;
            }
        }
        if self.age >= self.look.0 {
            self.plan();
            let length = self.rng.random_range(LOOK_LENGTHS);
            self.begin_check(1, length, Cause::Schedule);
        }
        None
    }

    fn begin_check(&mut self, wanted: usize, length: usize, cause: Cause) {
        self.check = Some(Check {
            visits: Visits::new(&mut self.rng, length),
            pairs: Vec::new(),
            wanted,
            cause,
        });
    }

    fn end_of_check(&mut self) -> Option<Change> {
        let check = self.check.take()?;
        let (mut pairs, cause) = (check.pairs, check.cause);
        if cause == Cause::Contradiction {
            // The second half of either visit.
            pairs.iter_mut().flatten().for_each(|steps| {
                steps.drain(..steps.len() / 2);
            });
        }
        let [default_ms, chosen_ms] = ARMS.map(|arm| mean(&steps(&pairs, arm)));
        let slower = Some(self.update(&pairs)).filter(|difference| *difference > 0.0);
        self.block = (0.0, 0);
        // One pair shows too little.
        let is_look = cause == Cause::Schedule;
        if !is_look {
            self.default_ms = default_ms;
        }
        let revert = self.revert_if(slower.filter(|_| !is_look));
        self.recheck = Some(Recheck {
            default_ms,
            chosen_ms,
            is_confirmed: revert.is_none(),
        });
        if revert.is_some() {
            return revert;
        }
        match cause {
            Cause::Schedule if slower.is_some() => {
                self.begin_check(CHECK_PAIRS, CHECK_LENGTH, Cause::Look);
            }
            Cause::Schedule | Cause::Look => {}
            Cause::Block(block_ms) if block_ms > default_ms => {
                self.begin_check(CHECK_PAIRS / 2, self.settled_length, Cause::Contradiction);
                self.settled_length = self.settled_length.saturating_mul(2);
            }
            Cause::Block(_) | Cause::Contradiction => self.gap = self.gap.saturating_mul(2),
        }
        None
    }

    /// Reverts if the pairs of a check were slower by this, or if the net difference is above zero.
    fn revert_if(&mut self, slower: Option<f64>) -> Option<Change> {
        let net = slower.unwrap_or_else(|| self.net());
        if net <= 0.0 {
            return None;
        }
        let stalls_only = slower.is_none() && self.body() < 0.0;
        self.check = None;
        self.suspended = stalls_only;
        self.is_over = !stalls_only;
        Some(Change::Revert { net, stalls_only })
    }

    fn end_of_suspension(&mut self) -> Option<Change> {
        let [default, candidate] = self.stalls.steps;
        if default < candidate {
            return None;
        }
        self.suspended = false;
        let net = self.net();
        let returns = net < RETURN_SHARE * self.body();
        self.is_over = !returns;
        self.block = (0.0, 0);
        returns.then_some(Change::Return { net })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Decision;

    /// A step of 100 ms under the default.
    fn step_ms(arm: Arm, candidate_ms: f64) -> f64 {
        match arm {
            Arm::Default => 100.0,
            Arm::Candidate => candidate_ms,
        }
    }

    /// A guard that has kept a candidate faster by 10 %.
    fn kept() -> Guard {
        let mut guard = Guard::new(7, 1);
        loop {
            match guard.push(step_ms(guard.arm(), 90.0)) {
                None | Some(Decision::Undecided) => {}
                decision => {
                    assert_eq!(decision, Some(Decision::KeepCandidate));
                    return guard;
                }
            }
        }
    }

    #[test]
    fn looks_are_rare() {
        let (mut promise, mut default, mut looks) = (Promise::new(&kept(), 7, 1), 0, 0);
        for _ in 0..3000 {
            default += u32::from(promise.arm() == Arm::Default);
            let step = step_ms(promise.arm(), 90.0);
            let before = promise.is_checking();
            assert_eq!(promise.push(step), None);
            looks += u32::from(!before && promise.is_checking());
        }
        assert_eq!(looks, 3, "near 100, 300 and 1,000");
        assert!(default <= 12, "{default} of 3,000 steps: 0.4 %");
    }

    #[test]
    fn a_candidate_that_becomes_slower_is_reverted() {
        let mut promise = Promise::new(&kept(), 7, 1);
        let reverted = (0..2000).find(|age| {
            let candidate = if *age < 1000 { 90.0 } else { 105.0 };
            let step = step_ms(promise.arm(), candidate);
            matches!(promise.push(step), Some(Change::Revert { .. }))
        });
        assert!((1000..1300).contains(&reverted.unwrap()), "{reverted:?}");
        assert_eq!(promise.arm(), Arm::Default);
        assert!(promise.is_over);
    }

    #[test]
    fn a_candidate_that_becomes_slower_while_all_steps_get_shorter_is_reverted_at_a_look() {
        let mut promise = Promise::new(&kept(), 7, 1);
        let reverted = (0..2000).find(|age| {
            let (candidate, factor) = if *age < 500 {
                (90.0, 1.0)
            } else {
                (110.0, 0.7)
            };
            let step = factor * step_ms(promise.arm(), candidate);
            matches!(promise.push(step), Some(Change::Revert { .. }))
        });
        assert!((900..1300).contains(&reverted.unwrap()), "{reverted:?}");
    }

    #[test]
    fn an_effect_that_builds_up_over_many_steps_is_reverted() {
        let mut promise = Promise::new(&kept(), 7, 1);
        let (mut stay, mut last) = (0, Arm::Default);
        let reverted = (0..3000).find_map(|age| {
            let arm = promise.arm();
            stay = if arm == last { stay + 1 } else { 0 };
            last = arm;
            let candidate_ms = if stay < 20 { 90.0 } else { 104.0 };
            match promise.push(step_ms(arm, candidate_ms)) {
                Some(Change::Revert { net, .. }) => Some((age, net)),
                _ => None,
            }
        });
        let (age, net) = reverted.unwrap();
        assert!((200..800).contains(&age), "{age}");
        assert!((net - 0.04).abs() < 1e-9, "{net}");
    }

    #[test]
    fn an_environment_that_becomes_slower_takes_one_check() {
        let (mut promise, mut default) = (Promise::new(&kept(), 7, 1), 0);
        for age in 0..3000 {
            default += u32::from(promise.arm() == Arm::Default);
            let factor = if age < 500 { 1.0 } else { 1.2 };
            let step = factor * step_ms(promise.arm(), 90.0);
            assert_eq!(promise.push(step), None);
        }
        assert!(default <= 12 + 60, "{default}");
    }

    #[test]
    fn stalls_of_the_environment_bring_the_candidate_back_and_its_own_do_not() {
        for everywhere in [true, false] {
            let mut promise = Promise::new(&kept(), 7, 1);
            let (mut reverted, mut returned) = (false, false);
            for age in 0u32..4000 {
                let is_candidate = promise.arm() == Arm::Candidate;
                let stall = if age % 8 == 4 && (everywhere || is_candidate) {
                    200.0
                } else {
                    0.0
                };
                match promise.push(step_ms(promise.arm(), 90.0) + stall) {
                    Some(Change::Revert { stalls_only, .. }) => reverted |= stalls_only,
                    Some(Change::Return { .. }) => returned = true,
                    None => {}
                }
            }
            assert!(reverted);
            assert_eq!(returned, everywhere);
        }
    }
}
