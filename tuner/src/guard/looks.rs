//! Plan of a comparison: after which pairs it is looked at, what error each look may spend, and how
//! long the visits are.
//!
//! With n pairs the smallest p of a sign-flip test is 2⁻ⁿ. The first look is at the least n for which
//! this is within the look's error, so visits are short until then.

use std::f64::consts::PI;
use std::ops::RangeInclusive;

/// One-sided error of all contests of a job together: the usual half of 5 %.
const ERROR_BUDGET: f64 = 0.025;
/// Share of the first look: at 7 pairs in the first contest, 9 in the second.
const FIRST_SHARE: f64 = 0.516;
/// Further looks: pairs after the first one, shares. A few small differences of the other sign do
/// not prevent an adoption there.
const FURTHER_LOOKS: [(usize, f64); 2] = [(4, 0.09), (7, 0.054)];
/// Looks by active steps, at the first pair end with so many, and their shares; the first is for
/// small gains, the others for those that spikes hide. Only a candidate that looks faster gets
/// there.
const LATE_LOOKS: [(usize, f64); 4] = [(230, 0.20), (340, 0.05), (500, 0.05), (1000, 0.04)];

/// Steps of the first visits, and of the last ones.
const SHORT: usize = 2;
const LONG: RangeInclusive<usize> = 14..=20;

/// The looks of one contest.
#[derive(Clone, Debug)]
pub(super) struct Looks {
    /// Error of the contest.
    error: f64,
    /// Pairs of the first look.
    first: usize,
    /// Number of looks by active steps so far.
    late: usize,
}

/// A look that is due.
pub(super) struct Look {
    /// One-sided error.
    pub(super) error: f64,
    /// Whether it is one by active steps.
    pub(super) is_late: bool,
}

impl Looks {
    /// Those of contest m = `number` (from 1) of a job, which may spend 6 A / (π m)² of the error A.
    pub(super) fn new(number: u32) -> Self {
        let error = 6.0 * ERROR_BUDGET / (PI * f64::from(number.max(1))).powi(2);
        Self {
            error,
            first: (-(FIRST_SHARE * error).log2()).ceil() as usize,
            late: 0,
        }
    }

    /// Lengths of the visits of pair `number`, counted from 1.
    pub(super) fn lengths(&self, number: usize) -> RangeInclusive<usize> {
        lengths(self.first, number)
    }

    /// The look after so many pairs and active steps.
    pub(super) fn due(&mut self, pairs: usize, active: usize) -> Option<Look> {
        let late = LATE_LOOKS.get(self.late);
        let late = late.filter(|(steps, _)| active >= *steps);
        let [second, third] = FURTHER_LOOKS.map(|(after, share)| (self.first + after, share));
        let by_pairs = [(self.first, FIRST_SHARE), second, third];
        let by_pairs = by_pairs.iter().find(|(number, _)| *number == pairs);
        let (_, share) = late.or(by_pairs)?;
        self.late += usize::from(late.is_some());
        Some(Look {
            error: share * self.error,
            is_late: late.is_some(),
        })
    }

    /// Whether the next look is the last.
    pub(super) fn is_one_left(&self) -> bool {
        self.late + 1 == LATE_LOOKS.len()
    }

    /// Whether the last look was taken.
    pub(super) fn are_over(&self) -> bool {
        self.late == LATE_LOOKS.len()
    }
}

/// Lengths of the visits of pair `number`, counted from 1, if the first look is after `first` pairs.
/// Short ones decide large gains in 42 steps; long ones need fewer changes for as many steps.
fn lengths(first: usize, number: usize) -> RangeInclusive<usize> {
    match number {
        ..=30 if number <= first + 1 => SHORT..=SHORT,
        ..=30 => 7..=10,
        _ => LONG,
    }
}

/// Pairs before the first look of a contest after many others, which has more short visits.
const FIRST_LATE: usize = 14;

/// Most steps that a contest with so many complete pairs still takes.
pub fn contest_steps_left(rounds: u32) -> u64 {
    let done = (1..=rounds.min(100) as usize).map(|number| 2 * lengths(FIRST_LATE, number).start());
    // The pair that reaches the limit is completed: two visits, a change before each.
    let pair = 2 * LONG.end() + 2;
    let most = LATE_LOOKS[LATE_LOOKS.len() - 1].0;
    (most.saturating_sub(done.sum()) + pair) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_spend_the_error_of_a_contest_and_contests_that_of_a_job() {
        let further = FURTHER_LOOKS.iter().chain(&LATE_LOOKS);
        let sum = FIRST_SHARE + further.map(|(_, share)| share).sum::<f64>();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        let all: f64 = (1..10_000).map(|number| Looks::new(number).error).sum();
        assert!((0.0249..0.025).contains(&all), "{all}");
    }

    #[test]
    fn the_first_look_that_can_adopt_has_pairs_enough() {
        assert_eq!([1, 2, 3].map(|number| Looks::new(number).first), [7, 9, 11]);
        for number in 1..100 {
            let mut looks = Looks::new(number);
            let first = looks.first;
            let least = 0.5f64.powi(first as i32);
            let look = looks.due(first, 0).unwrap();
            assert!(!look.is_late && look.error >= least && look.error < 2.0 * least);
        }
    }
}
