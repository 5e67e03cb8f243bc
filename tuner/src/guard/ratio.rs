//! Tests of the ratio of the candidate's mean step time to the default's, and the interval that
//! inverts them.
//!
//! If each step takes r times as long under the candidate, the difference of r times the default's
//! mean and the candidate's has a fair coin's sign in each pair, so the sign-flip test of a ratio is
//! exact for every r. Student's t of the same differences must agree.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::center::mean;
use crate::guard::{ARMS, Pair, clipped, flip, steps, weight};

/// Largest error at which Student's t must show a difference as well. The sign-flip test alone
/// would adopt on the signs of 7 noisy pairs, and give an interval that does not cover rare stalls.
const STUDENT_ERROR_MAX: f64 = 0.003;
/// Ends of an interval are at most this.
const RATIO_MAX: f64 = 10.0;
/// The low end is sought above this share of the observed ratio, and otherwise 0: the candidate's
/// steps are clipped at a multiple of the ratio, so far below it they would all be.
const LOW_SHARE: f64 = 0.25;
/// Halvings of the range that contains an end of the interval.
const HALVINGS: u32 = 24;

/// Sign of a test: whether the candidate's mean is below the ratio times the default's, or the
/// reverse.
const BELOW: f64 = 1.0;
const ABOVE: f64 = -1.0;

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Difference {
    /// Candidate's mean step time less the default's, as a share of their average.
    pub(super) center: f64,
    /// Its standard error.
    pub(super) se: f64,
    /// Whether both tests show that the candidate is faster.
    pub(super) is_proved: bool,
    /// Interval of the ratio.
    ratio: [f64; 2],
}

impl Difference {
    /// The candidate's gain in percent of the default's step time, [low, high].
    pub(crate) fn gain_pct(&self) -> [f64; 2] {
        let [low, high] = self.ratio;
        [high, low].map(|ratio| 100.0 * (1.0 - ratio))
    }
}

/// Weighted differences of the pairs, ms, times the sign of the test.
struct Weighted {
    values: Vec<f64>,
    mean: f64,
    se: f64,
}

/// One look at the pairs.
struct Look<'a> {
    pairs: &'a [Pair],
    /// Limit of the default's steps, ms; the candidate's is `ratio` times that.
    limit: f64,
    /// One-sided error.
    error: f64,
    /// Quantile of Student's t.
    quantile: f64,
}

impl<'a> Look<'a> {
    /// None before the second pair.
    fn new(pairs: &'a [Pair], limit: f64, error: f64) -> Option<Self> {
        let student = StudentsT::new(0.0, 1.0, pairs.len() as f64 - 1.0).ok()?;
        Some(Self {
            pairs,
            limit,
            error,
            quantile: student.inverse_cdf(1.0 - error.min(STUDENT_ERROR_MAX)),
        })
    }

    fn weighted(&self, sign: f64, ratio: f64) -> Weighted {
        let pairs = clipped(self.pairs, [self.limit, ratio * self.limit]);
        let weights: Vec<f64> = pairs.iter().map(weight).collect();
        let values: Vec<f64> = (pairs.iter().zip(&weights))
            .map(|([default, candidate], weight)| {
                sign * weight * (ratio * mean(default) - mean(candidate))
            })
            .collect();
        let sum: f64 = weights.iter().sum();
        let center = values.iter().sum::<f64>() / sum;
        let squares = (values.iter().zip(&weights)).map(|(value, weight)| {
            let deviation = value - weight * center;
            deviation * deviation
        });
        let count = pairs.len() as f64;
        let se = (squares.sum::<f64>() * count / (count - 1.0)).sqrt() / sum;
        Weighted {
            values,
            mean: center,
            se,
        }
    }

    /// Whether Student's t, and the sign-flip test if it is asked, show the sign of the test.
    fn shows(&self, weighted: &Weighted, asks_flip: bool) -> bool {
        weighted.mean > self.quantile * weighted.se
            && (!asks_flip || flip::is_positive(&weighted.values, self.error))
    }

    /// The ratios that the tests leave open, around the observed one. Without a proof they are
    /// those of Student's t, which exist for a few pairs as well.
    fn interval(&self, observed: f64, is_proved: bool) -> [f64; 2] {
        let end = |sign, limit: f64| {
            let shows = |ratio| self.shows(&self.weighted(sign, ratio), is_proved);
            let (mut open, mut shown) = (observed, limit);
            if !shows(limit) {
                return None;
            }
            for _ in 0..HALVINGS {
                let middle = (open + shown) / 2.0;
                if shows(middle) {
                    shown = middle;
                } else {
                    open = middle;
                }
            }
            Some(shown)
        };
        let most = if is_proved { 1.0 } else { RATIO_MAX };
        [
            end(ABOVE, LOW_SHARE * observed).unwrap_or(0.0),
            end(BELOW, most).unwrap_or(most),
        ]
    }
}

/// Compares the arms at this one-sided error, with steps of at most `limit` ms; none before the
/// second pair.
pub(super) fn compare(pairs: &[Pair], limit: f64, error: f64) -> Option<Difference> {
    let look = Look::new(pairs, limit, error)?;
    let gain = look.weighted(BELOW, 1.0);
    if !(gain.mean.is_finite() && gain.se.is_finite()) {
        return None;
    }
    let is_proved = look.shows(&gain, true);
    let pairs = clipped(pairs, [limit; 2]);
    let [default, candidate] = ARMS.map(|arm| mean(&steps(&pairs, arm)));
    let middle = (default + candidate) / 2.0;
    Some(Difference {
        center: -gain.mean / middle,
        se: gain.se / middle,
        is_proved,
        ratio: look.interval(candidate / default, is_proved),
    })
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;
    use crate::random::generator;

    /// Pairs of visits of two steps, whose step times are `level()` times the factor of the arm.
    fn pairs(count: usize, factor: f64, mut level: impl FnMut() -> f64) -> Vec<Pair> {
        let visit = |level: f64| vec![100.0 * level; 2];
        (0..count)
            .map(|_| [visit(level()), visit(factor * level())])
            .collect()
    }

    #[test]
    fn intervals_hold_for_every_ratio() {
        const RUNS: u64 = 2000;
        const ERROR: f64 = 0.05; // large, for fewer runs
        // Where each visit meets one of two levels, or noise with a heavy tail.
        for (factor, tail) in [(0.5, 0.0), (0.8, 0.0), (0.5, 1.0), (0.8, 1.0)] {
            let missed = (0..RUNS).filter(|seed| {
                let mut rng = generator(*seed, 1);
                let level = || {
                    let noise: f64 = rng.random_range(0.01..1.0);
                    f64::from(1 + u8::from(rng.random_bool(0.3))) + tail * noise.powf(-0.7)
                };
                let pairs = pairs(12, factor, level);
                let difference = compare(&pairs, f64::INFINITY, ERROR).unwrap();
                let [low, high] = difference.ratio;
                difference.is_proved && !(low..=high).contains(&factor)
            });
            let missed = missed.count() as f64 / RUNS as f64;
            assert!(missed <= 2.0 * ERROR + 0.02, "{factor}, {tail}: {missed}");
        }
    }

    #[test]
    fn the_interval_ends_where_the_tests_turn() {
        let mut rng = generator(3, 4);
        let pairs = pairs(20, 0.7, || rng.random_range(0.9..1.1));
        let error = 0.002;
        let difference = compare(&pairs, f64::INFINITY, error).unwrap();
        assert!(difference.is_proved);
        let [low, high] = difference.ratio;
        assert!(
            (0.6..0.7).contains(&low) && (0.7..0.8).contains(&high),
            "{low} {high}"
        );
        let look = Look::new(&pairs, f64::INFINITY, error).unwrap();
        let shows = |sign, ratio| look.shows(&look.weighted(sign, ratio), true);
        assert!(shows(BELOW, high));
        assert!(!shows(BELOW, high - 0.001));
        assert!(shows(ABOVE, low));
        assert!(!shows(ABOVE, low + 0.001));
    }

    #[test]
    fn pairs_that_are_alike_have_a_narrow_interval() {
        for count in [7, 17, 40] {
            let pairs = pairs(count, 0.75, || 1.0);
            let difference = compare(&pairs, 1e9, 0.008).unwrap();
            let [low, high] = difference.gain_pct();
            assert!(
                difference.is_proved && (24.9..=25.0).contains(&low),
                "{low}"
            );
            assert!((25.0..25.1).contains(&high), "{high}");
        }
    }

    #[test]
    fn few_pairs_give_an_interval_and_no_proof() {
        let mut rng = generator(5, 6);
        let pairs = pairs(4, 0.5, || rng.random_range(0.99..1.01));
        assert!(compare(&pairs[..1], 1e9, 0.01).is_none());
        let difference = compare(&pairs, 1e9, 0.01).unwrap();
        let [low, high] = difference.gain_pct();
        assert!(!difference.is_proved);
        assert!(
            (40.0..50.0).contains(&low) && (50.0..60.0).contains(&high),
            "{low} {high}"
        );
    }
}
