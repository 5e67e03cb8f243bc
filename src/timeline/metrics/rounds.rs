//! Marked steps that come in turns: a GAN's two optimizers, three micro-batches without traffic and one with it. The
//! settings hold for all of them, so what is measured is a whole round.
//!
//! A round is the shortest sequence of shapes, of several, that has come [`REPEATS`] times in a row. From then on a round ends
//! with every so many steps each of which is like the one a round before, wherever in the sequence that begins: after a
//! step that does not fit, the next round begins with the step that follows it.

use std::collections::VecDeque;

/// Most steps in a round: micro-batches of one optimizer step.
const STEPS_MAX: usize = 32;
/// Times that a round must have come.
const REPEATS: usize = 4;
/// Steps in a row that fit no round, in rounds, after which there are none any more: a step put in between takes one round and a step.
const MISSES_MOST: usize = 3;

/// What a step is to the round under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// One of its steps.
    Within,
    /// Its last one.
    Ends,
    /// None of its steps: the round is not whole.
    Breaks,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Rounds {
    /// Of the last steps.
    shapes: VecDeque<u64>,
    /// Steps of a round.
    length: usize,
    /// Shapes of its steps, added up.
    shape: u64,
    /// Steps of the round under way.
    done: usize,
    /// Steps since the last whole round that fitted none.
    misses: usize,
}

impl Default for Rounds {
    /// Every step is a round.
    fn default() -> Self {
        Self {
            shapes: VecDeque::new(),
            length: 1,
            shape: 0,
            done: 0,
            misses: 0,
        }
    }
}

impl Rounds {
    /// Steps of a round.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Takes in a step of this shape.
    pub(super) fn push(&mut self, shape: u64) -> Turn {
        let fits = self.length == 1 || self.back(self.length) == Some(shape);
        if self.shapes.len() == STEPS_MAX * REPEATS {
            self.shapes.pop_front();
        }
        self.shapes.push_back(shape);
        if !fits {
            return self.breaks();
        }
        self.done += 1;
        if self.done < self.length {
            return Turn::Within;
        }
        if self.length > 1 && self.last(self.length) != self.shape {
            // Other steps, which repeat themselves over the same distance.
            self.length = 1;
            return self.breaks();
        }
        (self.done, self.misses) = (0, 0);
        if self.length == 1
            && let Some(length) = self.found()
        {
            (self.length, self.shape) = (length, self.last(length));
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
        let index = self.shapes.len().checked_sub(distance)?;
        self.shapes.get(index).copied()
    }

    /// The shapes of the last steps, added up.
    fn last(&self, steps: usize) -> u64 {
        let last = self.shapes.iter().rev().take(steps);
        last.fold(0, |sum, &shape| sum.wrapping_add(shape))
    }

    /// The shortest sequence of several steps that has come often enough, if not all of them are alike.
    fn found(&self) -> Option<usize> {
        let repeats = |length: usize, times: usize| {
            let count = length * times;
            let newest = |distance: usize| self.back(distance);
            self.shapes.len() >= count && (1..=count - length).all(|i| newest(i) == newest(i + length))
        };
        let length = (2..=STEPS_MAX).find(|&length| repeats(length, REPEATS))?;
        let differ = (1..length).any(|i| self.back(i) != self.back(i + 1));
        differ.then_some(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What steps of these shapes are, a letter each: within, ends, breaks.
    fn turns(rounds: &mut Rounds, shapes: &str) -> String {
        let turn = |shape: char| match rounds.push(u64::from(shape)) {
            Turn::Within => '.',
            Turn::Ends => '|',
            Turn::Breaks => 'x',
        };
        shapes.chars().map(turn).collect()
    }

    #[test]
    fn equal_steps_are_rounds_of_one() {
        assert_eq!(turns(&mut Rounds::default(), "aaaaaaaaaaaa"), "||||||||||||");
    }

    #[test]
    fn two_that_alternate_become_a_round_and_find_their_feet_after_another() {
        let mut rounds = Rounds::default();
        assert_eq!(turns(&mut rounds, "dgdgdgdg"), "||||||||");
        assert_eq!(rounds.length(), 2);
        assert_eq!(turns(&mut rounds, "dgdgdg"), ".|.|.|");
        // A step between, or one left out: the rounds after it begin with the other half.
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
        assert_eq!((critic.length(), critic.shape), (6, 5 * 100 + 103));
    }

    #[test]
    fn when_turns_end_every_step_is_one_again() {
        let mut rounds = Rounds::default();
        turns(&mut rounds, "dgdgdgdg");
        // Four of one kind: two that fit none, and a round that is none.
        let after = turns(&mut rounds, "ddddddd");
        assert_eq!((rounds.length(), after.ends_with("|||")), (1, true), "{after}");
        assert_eq!(turns(&mut rounds, "aaa"), "|||");
    }

    #[test]
    fn without_order_there_are_no_rounds() {
        let mut seed = 7u64;
        let mut rounds = Rounds::default();
        let mut single = 0;
        for _ in 0..10_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            rounds.push(seed >> 62); // one of four
            single += usize::from(rounds.length() == 1);
            assert!(rounds.shapes.len() <= STEPS_MAX * REPEATS);
        }
        // Now and then chance makes one, for a few steps.
        assert!(single > 9_900, "{single}");
    }
}
