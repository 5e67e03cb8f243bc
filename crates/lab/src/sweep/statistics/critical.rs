//! How many standard errors a difference must have, where several are looked at together.
//!
//! For differences of `count` points from one, Tᵢ = (μ̂ᵢ − μ̂₀) / se, with one pooled variance of ν degrees of freedom:
//! P(max T ≤ d) = ∫ f(s) ∫ φ(z) Φ((√ρ z + s d) / √(1 − ρ))ᵏ dz ds, where f is the density of χ_ν / √ν and ρ the correlation that
//! the common point makes (½ if all were measured equally often). For two sides Φ(…) becomes Φ(…) − Φ((√ρ z − s d) / √(1 − ρ)).
//! For one difference that is Student's t, for equal ρ Dunnett's test.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};
use statrs::function::gamma::ln_gamma;

/// Steps of the integral over z, from −`Z_MOST` to `Z_MOST`: the trapezoidal rule is nearly exact for what falls off so.
const Z_STEPS: usize = 32;
const Z_MOST: f64 = 5.5;
/// Steps of the integral over s (Simpson's rule).
const S_STEPS: usize = 32;
/// Standard deviations of s to either side.
const S_MOST: f64 = 5.5;
/// Of the solution; a tenth of it, of its probability.
const PRECISION: f64 = 1e-4;

/// Which differences count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sweep) enum Sides {
    /// Those of one sign.
    One,
    /// All.
    Two,
}

/// The d that none of `count` differences exceeds with probability `level`, if all points are alike.
///
/// `freedom` is that of the pooled variance, ≥ 1; `correlation` is that of two differences, 0 to ½. A smaller one makes d
/// larger, so that the smallest is safe where they differ.
pub(in crate::sweep) fn critical(
    count: usize,
    freedom: usize,
    correlation: f64,
    level: f64,
    sides: Sides,
) -> f64 {
    let freedom = freedom.max(1) as f64;
    let tail = |level: f64| match sides {
        Sides::One => level,
        Sides::Two => (1.0 + level) / 2.0,
    };
    let student = |level: f64| {
        StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |student| student.inverse_cdf(tail(level)))
    };
    if count <= 1 {
        return student(level);
    }
    // Between the t of one difference and that of Bonferroni.
    let (mut low, mut high) = (student(level), student(1.0 - (1.0 - level) / count as f64));
    let grid = Grid::new(freedom, correlation.clamp(0.0, 0.5));
    let beyond = |d: f64| grid.probability(d, count as i32, sides) - level;
    let (mut at_low, mut at_high) = (beyond(low), beyond(high));
    // The Illinois variant of the false position.
    if at_low >= 0.0 {
        return low;
    }
    let mut previous = 0.0;
    for _ in 0..60 {
        if high - low < PRECISION || at_high <= 0.0 {
            break;
        }
        let middle = (low * at_high - high * at_low) / (at_high - at_low);
        let at_middle = beyond(middle);
        if at_middle.abs() < PRECISION * 0.1 {
            return middle;
        }
        if at_middle < 0.0 {
            (low, at_low) = (middle, at_middle);
            if previous < 0.0 {
                at_high /= 2.0;
            }
        } else {
            (high, at_high) = (middle, at_middle);
            if previous > 0.0 {
                at_low /= 2.0;
            }
        }
        previous = at_middle;
    }
    high
}

/// The nodes of the double integral.
struct Grid {
    /// √ρ z / √(1 − ρ), with weights that hold φ.
    common: Vec<(f64, f64)>,
    /// s / √(1 − ρ), with weights that hold f.
    scale: Vec<(f64, f64)>,
    normal: Normal,
}

impl Grid {
    fn new(freedom: f64, correlation: f64) -> Self {
        let own = (1.0 - correlation).sqrt();
        let step = 2.0 * Z_MOST / Z_STEPS as f64;
        let common = (0..=Z_STEPS).map(|i| {
            let z = -Z_MOST + step * i as f64;
            (correlation.sqrt() * z / own, (-z * z / 2.0).exp())
        });
        let sd = (2.0 * freedom).sqrt().recip();
        let (from, to) = ((1.0 - S_MOST * sd).max(0.0), 1.0 + S_MOST * sd);
        let step = (to - from) / S_STEPS as f64;
        let ln_norm = 2f64.ln() + freedom / 2.0 * (freedom / 2.0).ln() - ln_gamma(freedom / 2.0);
        let scale = (0..=S_STEPS).map(|i| {
            let s = from + step * i as f64;
            let simpson = match i {
                0 | S_STEPS => 1.0,
                i if i % 2 == 1 => 4.0,
                _ => 2.0,
            };
            let power = if freedom == 1.0 {
                0.0
            } else {
                (freedom - 1.0) * s.ln()
            };
            (s / own, simpson * (ln_norm + power - freedom * s * s / 2.0).exp())
        });
        Self {
            common: normalized(common.collect()),
            scale: normalized(scale.collect()),
            normal: Normal::standard(),
        }
    }

    fn probability(&self, d: f64, count: i32, sides: Sides) -> f64 {
        let inner = |s: f64| {
            let of = |&(z, weight): &(f64, f64)| {
                let below = self.normal.cdf(z + s * d);
                let within = match sides {
                    Sides::One => below,
                    Sides::Two => below - self.normal.cdf(z - s * d),
                };
                weight * within.powi(count)
            };
            self.common.iter().map(of).sum::<f64>()
        };
        self.scale.iter().map(|&(s, weight)| weight * inner(s)).sum()
    }
}

/// Weights that sum to 1: what the ends of the range cut off is spread over the rest.
fn normalized(mut nodes: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let total: f64 = nodes.iter().map(|(_, weight)| weight).sum();
    nodes.iter_mut().for_each(|(_, weight)| *weight /= total);
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(expected: f64, found: f64) -> bool {
        (expected - found).abs() <= 0.006
    }

    #[test]
    fn one_difference_is_students() {
        assert!(is(2.228, critical(1, 10, 0.5, 0.95, Sides::Two)));
        assert!(is(1.812, critical(1, 10, 0.5, 0.95, Sides::One)));
    }

    /// Dunnett, "New tables for multiple comparisons with a control", Biometrics 20 (1964), and for one side those of 1955.
    #[test]
    fn several_are_as_in_dunnetts_tables() {
        for (count, freedom, one, two) in [
            (2, 5, 2.44, 3.03),
            (3, 10, 2.34, 2.76),
            (5, 10, 2.56, 2.99),
            (2, 20, 2.03, 2.38),
            (5, 20, 2.39, 2.73),
            (9, 60, 2.48, 2.77),
        ] {
            let found = [Sides::One, Sides::Two].map(|sides| critical(count, freedom, 0.5, 0.95, sides));
            assert!(
                is(one, found[0]) && is(two, found[1]),
                "{count}, {freedom}: {found:?}"
            );
        }
    }

    #[test]
    fn differences_that_have_nothing_in_common_are_sidaks() {
        // 0.95^(1/10) = 0.99488, two-sided: the normal's 2.800.
        assert!(is(2.80, critical(10, 1_000_000, 0.0, 0.95, Sides::Two)));
    }

    #[test]
    fn it_grows_with_the_number_and_is_finite_everywhere() {
        for freedom in [1, 2, 3, 1000] {
            for correlation in [0.0, 0.1, 0.5] {
                let d = [1, 2, 10, 4000].map(|count| critical(count, freedom, correlation, 0.95, Sides::Two));
                assert!(
                    d.windows(2).all(|pair| pair[0] < pair[1] + 1e-6),
                    "{freedom}, {correlation}: {d:?}"
                );
                assert!(d[3].is_finite());
            }
        }
    }
}
