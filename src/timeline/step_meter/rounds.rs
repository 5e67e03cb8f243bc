//! Rounds of marked steps of alternating kinds: the two optimizers of a GAN, or three micro-batches
//! without operations and one with them. Settings apply to all of them, so a sample is a whole
//! round.
//!
//! A round is the shortest sequence of several signatures that has repeated [`REPEATS`] times in a
//! row. From then on a round ends after each such number of steps that equal the steps one round
//! before, wherever in the sequence it begins: after a step that does not fit, the next round
//! begins with the following step.
//!
//! If most steps are equal and each of the others has slightly more bytes, such as a loss that is
//! averaged every tenth step, there are no rounds: with samples of ten steps, a tuner would take
//! ten times as long. The other steps have another signature and are skipped.

use std::collections::VecDeque;

/// Most steps in a round: micro-batches of one optimizer step.
const STEPS_MAX: usize = 32;
/// Number of repetitions that establish a round.
const REPEATS: usize = 4;
/// Number of rounds' worth of consecutive steps without a fit after which the round is discarded:
/// one inserted step takes one round and a step.
const MISSES_MOST: usize = 3;

/// Largest share of a step's bytes by which another one may exceed it and still count as slightly
/// larger …
const SLIGHTLY_MORE: f64 = 0.02;
/// … and number of steps out of three that must be equal for "most steps are equal".
const MOST_OF_THREE: usize = 2;

/// Contents of a marked step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    /// As in [`StepSample`](super::StepSample).
    pub(super) signature: u64,
    pub(super) bytes: u64,
}

impl Contents {
    /// Returns the difference from `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self {
            signature: self.signature.wrapping_sub(earlier.signature),
            bytes: self.bytes - earlier.bytes,
        }
    }

    fn is_slightly_larger_than(&self, other: &Self) -> bool {
        let most = other.bytes as f64 * (1.0 + SLIGHTLY_MORE);
        self.bytes > other.bytes && self.bytes as f64 <= most
    }
}

/// Relation of a step to the current round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Step of the round.
    Within,
    /// Last step of the round.
    Ends,
    /// Step that does not fit: the round is not complete.
    Breaks,
}

/// Detects rounds and follows them.
#[derive(Debug)]
pub(super) struct Rounds {
    /// Last steps.
    steps: VecDeque<Contents>,
    /// Number of steps of a round.
    length: usize,
    /// Sum of its steps' signatures.
    signature: u64,
    /// Number of steps of the current round so far.
    done: usize,
    /// Steps since the last complete round that did not fit.
    misses: usize,
}

impl Default for Rounds {
    /// Every step is a round.
    fn default() -> Self {
        Self {
            steps: VecDeque::new(),
            length: 1,
            signature: 0,
            done: 0,
            misses: 0,
        }
    }
}

impl Rounds {
    /// Number of steps of a round.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Adds a step.
    pub(super) fn push(&mut self, step: Contents) -> Turn {
        let fits = self.length == 1 || self.back(self.length) == Some(step.signature);
        if self.steps.len() == STEPS_MAX * REPEATS {
            self.steps.pop_front();
        }
        self.steps.push_back(step);
        if !fits {
            return self.breaks();
        }
        self.done += 1;
        if self.done < self.length {
            return Turn::Within;
        }
        if self.length > 1 && self.last(self.length) != self.signature {
            // Other steps, which repeat with the same period.
            self.length = 1;
            return self.breaks();
        }
        (self.done, self.misses) = (0, 0);
        if self.length == 1
            && let Some(length) = self.found()
        {
            (self.length, self.signature) = (length, self.last(length));
        }
        Turn::Ends
    }

    fn breaks(&mut self) -> Turn {
        self.done = 0;
        self.misses += 1;
        if self.misses > MISSES_MOST * self.length {
            (self.length, self.misses) = (1, 0);
        }
        Turn::Breaks
    }

    fn back(&self, distance: usize) -> Option<u64> {
        let index = self.steps.len().checked_sub(distance)?;
        self.steps.get(index).map(|step| step.signature)
    }

    /// Sum of the last steps' signatures.
    fn last(&self, steps: usize) -> u64 {
        let last = self.steps.iter().rev().take(steps);
        last.fold(0, |sum, step| sum.wrapping_add(step.signature))
    }

    /// Returns the length of the shortest sequence of several steps that has repeated often enough,
    /// unless its steps are alike.
    fn found(&self) -> Option<usize> {
        let repeats = |length: usize, times: usize| {
            let count = length * times;
            let newest = |distance: usize| self.back(distance);
            self.steps.len() >= count
                && (1..=count - length).all(|i| newest(i) == newest(i + length))
        };
        let length = (2..=STEPS_MAX).find(|&length| repeats(length, REPEATS))?;
        (!self.are_alike(length)).then_some(length)
    }

    /// Whether most of the last steps are equal and the others are slightly larger, or all are
    /// equal.
    fn are_alike(&self, steps: usize) -> bool {
        let last = || self.steps.iter().rev().take(steps);
        let alike = |step: &Contents| {
            last()
                .filter(|other| other.signature == step.signature)
                .count()
        };
        let Some(usual) = last().max_by_key(|step| alike(step)) else {
            return true;
        };
        let is_most = 3 * alike(usual) >= MOST_OF_THREE * steps;
        let fits = |step: &Contents| {
            step.signature == usual.signature || step.is_slightly_larger_than(usual)
        };
        is_most && last().all(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(signature: char, bytes: u64) -> Contents {
        let signature = u64::from(signature);
        Contents { signature, bytes }
    }

    /// Returns the turns of steps of these signatures, one character each: within, ends, breaks.
    fn turns(rounds: &mut Rounds, signatures: &str) -> String {
        let turn = |signature: char| match rounds.push(of(signature, 1000)) {
            Turn::Within => '.',
            Turn::Ends => '|',
            Turn::Breaks => 'x',
        };
        signatures.chars().map(turn).collect()
    }

    #[test]
    fn equal_steps_are_rounds_of_one() {
        assert_eq!(
            turns(&mut Rounds::default(), "aaaaaaaaaaaa"),
            "||||||||||||"
        );
    }

    #[test]
    fn two_that_alternate_become_a_round_and_find_their_feet_after_another() {
        let mut rounds = Rounds::default();
        assert_eq!(turns(&mut rounds, "dgdgdgdg"), "||||||||");
        assert_eq!(rounds.length(), 2);
        assert_eq!(turns(&mut rounds, "dgdgdg"), ".|.|.|");
        // One step inserted or missing: the rounds after it begin with the other half.
        assert_eq!(turns(&mut rounds, "dvgdgdgdg"), ".xxx.|.|.");
        assert_eq!(turns(&mut rounds, "ddgdg"), "|xx.|");
    }

    #[test]
    fn micro_batches_without_traffic_belong_to_the_step_that_has_it() {
        let mut rounds = Rounds::default();
        turns(&mut rounds, &"...x".repeat(4));
        assert_eq!(rounds.length(), 4);
        assert_eq!(turns(&mut rounds, "...x...x"), "...|...|");
        let mut critic = Rounds::default();
        turns(&mut critic, &"dddddg".repeat(4));
        assert_eq!((critic.length(), critic.signature), (6, 5 * 100 + 103));
    }

    #[test]
    fn a_loss_averaged_now_and_then_makes_no_round() {
        let length = |every: usize, odd: Contents| {
            let mut rounds = Rounds::default();
            for step in 0..every * REPEATS {
                let is_odd = step % every == every - 1;
                rounds.push(if is_odd { odd } else { of('a', 1000) });
            }
            rounds.length()
        };
        assert_eq!(length(10, of('b', 1020)), 1);
        assert_eq!(length(3, of('b', 1004)), 1);
        // Half of the steps; more than slightly larger; smaller.
        assert_eq!(length(2, of('b', 1004)), 2);
        assert_eq!(length(10, of('b', 1021)), 10);
        assert_eq!(length(10, of('b', 1000)), 10);
    }

    #[test]
    fn when_turns_end_every_step_is_one_again() {
        let mut rounds = Rounds::default();
        turns(&mut rounds, "dgdgdgdg");
        // Four of one kind: two that do not fit, and one round that is incomplete.
        let after = turns(&mut rounds, "ddddddd");
        assert_eq!(
            (rounds.length(), after.ends_with("|||")),
            (1, true),
            "{after}"
        );
        assert_eq!(turns(&mut rounds, "aaa"), "|||");
    }

    #[test]
    fn without_order_there_are_no_rounds() {
        let mut seed = 7u64;
        let mut rounds = Rounds::default();
        let mut single = 0;
        for _ in 0..10_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let signature = seed >> 62; // one of four values
            rounds.push(Contents {
                signature,
                bytes: 1000,
            });
            single += usize::from(rounds.length() == 1);
            assert!(rounds.steps.len() <= STEPS_MAX * REPEATS);
        }
        // Occasionally, chance creates a round for a few steps.
        assert!(single > 9_900, "{single}");
    }
}
