//! The promise after an adoption: the candidate in force is compared with the default for the rest of the job.
//!
//! Two quantities. The *body* is the relative difference of the mean step times with each step clipped at 1.25 times its own
//! setting's median; pairs of visits update it. The *stalls* are what single steps take beyond that, summed over all steps of
//! either setting. Their sum is the net difference. The default needs no proof: as soon as the net difference is above zero it
//! is in force again. Two kinds of looks keep the body up to date: one pair of visits near the ages 100, 300, 1,000, …, and six
//! pairs where the mean of a block of steps exceeds the default's mean, with twice the block length after each.
//!
//! An effect of a setting may build up over many steps, so that short visits do not show it. If the candidate is faster in
//! such a check although its steps in force were slower than the default in the same check, longer visits follow, of which
//! only the second halves count.
//!
//! After a reversion for stalls alone the default stays until it has as many steps; the candidate returns if the stalls were
//! the environment's.

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;

use crate::center::median;
use crate::design::generator;
use crate::guard::{ARMS, Arm, Guard, Pair, Visits, clipped, mean, steps};
use crate::stall::{STALL_FREE, Stalls};

/// Ages of the scheduled looks: the first two, then times ten each. A pair of at most four steps: under 0.4 % of 3,000 steps.
const LOOK_AGES: [u64; 2] = [100, 300];
const LOOK_LENGTHS: std::ops::RangeInclusive<usize> = 3..=4;
/// A scheduled look comes at its age times a random factor in this range.
const LOOK_SPREAD: std::ops::Range<f64> = 0.9..1.1;
/// Steps of the first block that is compared with the default's mean.
const BLOCK_STEPS: u64 = 100;
/// Pairs, and steps of their visits, where a block suggests a loss.
const CHECK_PAIRS: usize = 6;
const CHECK_LENGTH: usize = 10;
/// After a reversion for stalls, the candidate returns if this share of its gain is left.
const RETURN_SHARE: f64 = 0.25;

/// Consequence of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// Nothing.
    Hold,
    /// The other setting is measured, or the one in force again.
    Visit,
    /// The default is in force from now on; the net difference and whether stalls alone are the reason.
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
    length: usize,
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
    /// Steps of the visits of the next check after a contradiction: half a block, then twice as many each.
    settled_length: usize,
    check: Option<Check>,
    /// Means of the check that has just ended, ms: default and candidate.
    checked: Option<(f64, f64)>,
    /// The default is in force until it has as many steps.
    suspended: bool,
    over: bool,
}

impl Promise {
    /// Of the candidate that `guard` kept.
    pub(crate) fn new(guard: &Guard, seed: u64, number: u32) -> Self {
        let mut promise = Self {
            rng: generator(seed, (3 << 48) | u64::from(number)),
            stalls: guard.stalls.clone(),
            body: (0.0, 0.0),
            default_ms: guard.mean(Arm::Default),
            age: 0,
            look: (0, 0),
            block: (0.0, 0),
            gap: BLOCK_STEPS,
            settled_length: BLOCK_STEPS as usize / 2,
            check: None,
            checked: None,
            suspended: false,
            over: false,
        };
        promise.update(guard.pairs());
        promise.plan();
        promise
    }

    /// Whether no further step can change anything.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Whether a check is under way: its steps are of two settings.
    pub(crate) fn is_checking(&self) -> bool {
        self.check.is_some()
    }

    /// The check that ended with the last step, whose consequence was `outcome`.
    pub(crate) fn take_recheck(&mut self, outcome: &Outcome) -> Option<Recheck> {
        let (default_ms, chosen_ms) = self.checked.take()?;
        Some(Recheck {
            default_ms,
            chosen_ms,
            is_confirmed: !matches!(outcome, Outcome::Revert { .. }),
        })
    }

    /// The setting of the next step.
    pub(crate) fn arm(&self) -> Arm {
        match &self.check {
            Some(check) => check.visits.arm(),
            None if self.suspended || self.over => Arm::Default,
            None => Arm::Candidate,
        }
    }

    fn plan(&mut self) {
        let (_, index) = self.look;
        let decades = u32::try_from(index / 2).unwrap_or(u32::MAX);
        let age = LOOK_AGES[index % 2].saturating_mul(10u64.saturating_pow(decades));
        let age = age as f64 * self.rng.random_range(LOOK_SPREAD);
        self.look = (age as u64, index + 1);
    }

    /// The relative difference of the clipped means of `pairs`, weighted, and its weight.
    fn difference(pairs: &[Pair]) -> (f64, f64) {
        let limits = ARMS.map(|arm| STALL_FREE * median(&steps(pairs, arm)));
        let pairs = clipped(pairs, limits);
        let of = pairs.iter().map(|[default, candidate]| {
            let weight = (default.len() as f64).sqrt();
            (weight, mean(candidate) / mean(default) - 1.0)
        });
        of.fold((0.0, 0.0), |(sum, weights), (weight, d)| {
            (sum + weight * d, weights + weight)
        })
    }

    fn update(&mut self, pairs: &[Pair]) -> f64 {
        let (sum, weight) = Self::difference(pairs);
        self.body = (self.body.0 + sum, self.body.1 + weight);
        sum / weight
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
    pub(crate) fn push(&mut self, step_ms: f64) -> Outcome {
        let arm = self.arm();
        self.stalls.push(arm, step_ms);
        self.age += 1;
        if self.suspended {
            return self.end_of_suspension();
        }
        if let Some(check) = &mut self.check {
            let (over, pair) = check.visits.push(step_ms);
            if let Some(pair) = pair {
                check.pairs.push(pair);
                if check.pairs.len() < check.wanted {
                    check.visits = Visits::new(&mut self.rng, check.length);
                } else {
                    return self.end_of_check();
                }
            }
            let otherwise = if over { Outcome::Visit } else { Outcome::Hold };
            return self.revert_if(None).unwrap_or(otherwise);
        }
        self.block = (self.block.0 + step_ms, self.block.1 + 1);
        if let Some(outcome) = self.revert_if(None) {
            return outcome;
        }
        if self.block.1 >= self.gap {
            let block_ms = self.block.0 / self.block.1 as f64;
            self.block = (0.0, 0);
            if block_ms > self.default_ms {
                return self.begin_check(CHECK_PAIRS, CHECK_LENGTH, Cause::Block(block_ms));
            }
        }
        if self.age >= self.look.0 {
            self.plan();
            let length = self.rng.random_range(LOOK_LENGTHS);
            return self.begin_check(1, length, Cause::Schedule);
        }
        Outcome::Hold
    }

    fn begin_check(&mut self, wanted: usize, length: usize, cause: Cause) -> Outcome {
        let visits = Visits::new(&mut self.rng, length);
        self.check = Some(Check {
            visits,
            pairs: Vec::new(),
            wanted,
            length,
            cause,
        });
        Outcome::Visit
    }

    fn end_of_check(&mut self) -> Outcome {
        let Some(Check {
            mut pairs, cause, ..
        }) = self.check.take()
        else {
            return Outcome::Hold;
        };
        if cause == Cause::Contradiction {
            // The second half of either visit.
            pairs.iter_mut().flatten().for_each(|steps| {
                steps.drain(..steps.len() / 2);
            });
        }
        let [default_ms, chosen_ms] = ARMS.map(|arm| mean(&steps(&pairs, arm)));
        self.checked = Some((default_ms, chosen_ms));
        let fresh = self.update(&pairs);
        self.block = (0.0, 0);
        if cause == Cause::Schedule {
            return self.revert_if(None).unwrap_or(Outcome::Visit);
        }
        self.default_ms = default_ms;
        if let Some(outcome) = self.revert_if(Some(fresh).filter(|fresh| *fresh > 0.0)) {
            return outcome;
        }
        if matches!(cause, Cause::Block(block_ms) if block_ms > self.default_ms) {
            let length = self.settled_length;
            self.settled_length = length.saturating_mul(2);
            return self.begin_check(CHECK_PAIRS / 2, length, Cause::Contradiction);
        }
        self.gap = self.gap.saturating_mul(2);
        Outcome::Visit
    }

    /// Reverts if the pairs of a check were slower by this, or if the net difference is above zero.
    fn revert_if(&mut self, slower: Option<f64>) -> Option<Outcome> {
        let net = slower.unwrap_or_else(|| self.net());
        if net <= 0.0 {
            return None;
        }
        let stalls_only = slower.is_none() && self.body() < 0.0;
        self.check = None;
        self.suspended = stalls_only;
        self.over = !stalls_only;
        Some(Outcome::Revert { net, stalls_only })
    }

    fn end_of_suspension(&mut self) -> Outcome {
        if self.stalls.steps(Arm::Default) < self.stalls.steps(Arm::Candidate) {
            return Outcome::Hold;
        }
        self.suspended = false;
        let net = self.net();
        if net < RETURN_SHARE * self.body() {
            self.block = (0.0, 0);
            return Outcome::Return { net };
        }
        self.over = true;
        Outcome::Hold
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
    fn looks_are_rare_and_random() {
        let (mut promise, mut default, mut looks) = (Promise::new(&kept(), 7, 1), 0, 0);
        for _ in 0..3000 {
            default += u32::from(promise.arm() == Arm::Default);
            let step = step_ms(promise.arm(), 90.0);
            let before = promise.is_checking();
            assert!(matches!(promise.push(step), Outcome::Hold | Outcome::Visit));
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
            matches!(promise.push(step), Outcome::Revert { .. })
        });
        assert!((1000..1300).contains(&reverted.unwrap()), "{reverted:?}");
        assert_eq!(promise.arm(), Arm::Default);
        assert!(promise.is_over());
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
                Outcome::Revert { net, .. } => Some((age, net)),
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
            assert!(matches!(promise.push(step), Outcome::Hold | Outcome::Visit));
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
                let stall = if age % 40 == 20 && (everywhere || is_candidate) {
                    900.0
                } else {
                    0.0
                };
                match promise.push(step_ms(promise.arm(), 90.0) + stall) {
                    Outcome::Revert { stalls_only, .. } => reverted |= stalls_only,
                    Outcome::Return { .. } => returned = true,
                    Outcome::Hold | Outcome::Visit => {}
                }
            }
            assert!(reverted);
            assert_eq!(returned, everywhere);
        }
    }
}
