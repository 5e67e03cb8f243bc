//! Comparison of the search's winner with the start, in pairs of runs in random order.
//!
//! As in the tuner's guard (`docs/ALGORITHM.md`), with single runs as visits: runs of the search do
//! not count, because they proposed the winner since they looked good. The compared quantity is
//! ln(candidate / start) of each pair. There are too few pairs for the guard's sign-flip test, so
//! two tests have to agree: Student's t on the differences of the pairs, and on the runs as two
//! independent samples. The first is right if the figures drift from pair to pair; the second
//! prevents a decision on a few differences that happen to be alike. Looks share an error of 2.5 %,
//! one-sided.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::statistics::squares;

/// One-sided error of the comparison: the guard's.
const ERROR: f64 = 0.025;
/// Pairs after which the comparison may end early, and the share of the error that each look
/// spends; the last look has the rest.
const LOOKS: [(usize, f64); 3] = [(3, 0.2), (5, 0.2), (8, 0.2)];
/// Pairs from which a candidate that does not look faster is dropped.
const PAIRS_FOR_FUTILITY: usize = 2;
/// The comparison ends when one standard error excludes a gain above this.
const GAIN_MIN: f64 = 0.01;

/// Decision after the pairs so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// Another pair is needed.
    Undecided,
    /// The candidate is faster.
    Candidate,
    /// The candidate was not shown to be faster.
    Start,
}

/// Comparison of a candidate with the start.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// ln(figure) of start and candidate, of each complete pair.
    pairs: Vec<[f64; 2]>,
    pairs_most: usize,
}

impl Comparison {
    /// Comparison of at most `pairs_most` pairs, with these figures of start and candidate so far.
    pub fn new(pairs: &[[f64; 2]], pairs_most: usize) -> Self {
        Self {
            pairs: pairs.iter().map(|pair| pair.map(f64::ln)).collect(),
            pairs_most,
        }
    }

    /// The comparison without further pairs: the latest one has the last look.
    #[must_use]
    pub fn ended(self) -> Self {
        let pairs_most = self.pairs.len();
        Self { pairs_most, ..self }
    }

    /// Whether the candidate comes first in this pair, counted from 0: a coin of the seed.
    pub fn candidate_is_first(seed: u64, pair: usize) -> bool {
        // The golden ratio spreads neighbouring pairs over the seeds.
        let stream = (pair as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_add(stream)).random_bool(0.5)
    }

    /// Number of complete pairs.
    pub fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// Decides by the pairs so far.
    pub fn decision(&self) -> Decision {
        let count = self.pairs.len();
        let is_last = count >= self.pairs_most;
        let Some(Difference { mean, se }) = self.difference() else {
            return if is_last {
                Decision::Start
            } else {
                Decision::Undecided
            };
        };
        let half = self.error().and_then(|error| self.half_width(error));
        if half.is_some_and(|half| mean + half < 0.0) && -mean >= GAIN_MIN {
            return Decision::Candidate;
        }
        let is_futile = count >= PAIRS_FOR_FUTILITY && mean - se > -GAIN_MIN;
        match is_last || is_futile {
            true => Decision::Start,
            false => Decision::Undecided,
        }
    }

    /// Gain of the candidate as a share of the start's figure, and the ends of its interval; `None`
    /// before the second pair.
    pub fn gain(&self) -> Option<[f64; 3]> {
        let Difference { mean, .. } = self.difference()?;
        // Between looks there is no decision; the interval is then the usual one of 95 %.
        let half = self.half_width(self.error().unwrap_or(ERROR))?;
        Some([mean, mean + half, mean - half].map(|difference| -difference.exp_m1()))
    }

    /// Error that the look after the latest pair may spend, if there is one.
    fn error(&self) -> Option<f64> {
        let count = self.pairs.len();
        let early = LOOKS.iter().filter(|(pairs, _)| *pairs < self.pairs_most);
        if count >= self.pairs_most {
            let spent: f64 = early.map(|(_, share)| share).sum();
            return Some(ERROR * (1.0 - spent));
        }
        let due = early.clone().find(|(pairs, _)| *pairs == count);
        due.map(|(_, share)| ERROR * share)
    }

    /// Half width of the interval at this one-sided error: the wider one of both tests.
    fn half_width(&self, error: f64) -> Option<f64> {
        let freedom = self
            .pairs
            .len()
            .checked_sub(1)
            .filter(|freedom| *freedom > 0)? as f64;
        let quantile = |freedom: f64| {
            let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
            Some(t.inverse_cdf(1.0 - error))
        };
        let [paired, independent] = self.squared_errors();
        let paired = quantile(freedom)? * paired.sqrt();
        let independent = quantile(2.0 * freedom)? * independent.sqrt();
        Some(paired.max(independent))
    }

    /// Difference of candidate and start, from the second pair on.
    fn difference(&self) -> Option<Difference> {
        let count = self.pairs.len();
        (count >= 2).then(|| {
            let sum: f64 = self.pairs.iter().map(|[start, own]| own - start).sum();
            let [paired, independent] = self.squared_errors();
            Difference {
                mean: sum / count as f64,
                se: paired.max(independent).sqrt(),
            }
        })
    }

    /// Squared standard errors of the mean difference: of pairs, and of independent runs.
    fn squared_errors(&self) -> [f64; 2] {
        let of = |value: fn(&[f64; 2]) -> f64| {
            squared_error(&self.pairs.iter().map(value).collect::<Vec<_>>())
        };
        [
            of(|[start, own]| own - start),
            of(|pair| pair[0]) + of(|pair| pair[1]),
        ]
    }
}

/// Mean of ln(candidate / start), and its standard error.
struct Difference {
    mean: f64,
    se: f64,
}

/// Squared standard error of the mean.
fn squared_error(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    squares(values) / (count * (count - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_gain_is_proved_and_a_small_one_is_not() {
        let pairs = |candidate: f64| {
            [
                [100.0, candidate],
                [102.0, candidate * 0.99],
                [99.0, candidate * 1.01],
            ]
        };
        let decision = |candidate| Comparison::new(&pairs(candidate), 4).decision();
        assert_eq!(decision(60.0), Decision::Candidate);
        assert_eq!(decision(97.0), Decision::Undecided);
        assert_eq!(decision(105.0), Decision::Start);
        assert_eq!(Comparison::new(&pairs(97.0), 3).decision(), Decision::Start);
        assert_eq!(
            Comparison::new(&pairs(60.0)[..1], 4).decision(),
            Decision::Undecided
        );
        assert_eq!(Comparison::new(&pairs(60.0)[..1], 4).gain(), None);
    }

    #[test]
    fn the_interval_by_hand() {
        // Differences ln 0.8 each; the arms scatter by ln 1.1: the runs' own test counts.
        let pairs = [[100.0, 80.0], [110.0, 88.0], [100.0, 80.0], [110.0, 88.0]];
        let [gain, low, high] = Comparison::new(&pairs, 4).gain().unwrap();
        assert!((gain - 0.2).abs() < 1e-12);
        // se² = 2 · 4 (ln 1.1 / 2)² / 12; t(6) at the last look's 0.02 is 2.6122.
        let half = 2.6122 * (2.0 * (1.1f64.ln() / 2.0).powi(2) / 3.0).sqrt();
        assert!((low - (1.0 - 0.8 * half.exp())).abs() < 1e-4, "{low}");
        assert!((high - (1.0 - 0.8 * (-half).exp())).abs() < 1e-4, "{high}");
    }

    #[test]
    fn coins_are_fair_and_repeatable() {
        let heads = (0..1000)
            .filter(|seed| Comparison::candidate_is_first(*seed, 2))
            .count();
        assert!((430..570).contains(&heads), "{heads}");
        assert_eq!(
            Comparison::candidate_is_first(7, 1),
            Comparison::candidate_is_first(7, 1)
        );
    }
}
