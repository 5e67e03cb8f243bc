//! Robust fit of a cost with two positive parts: y = exp(θ₀) x₀ + exp(θ₁) x₁.
//!
//! The objective is Huber's loss of the residuals of ln y (delayed messages must not have much
//! weight) plus a normal prior on θ: a part that no observation determines keeps its prior
//! uncertainty. The minimum is found by argmin's Nelder–Mead; the covariance is Laplace's
//! approximation with the Gauss–Newton curvature.

use argmin::core::{CostFunction, Executor, State};
use argmin::solver::neldermead::NelderMead;
use argmin_math::{ArgminAdd, ArgminMul, ArgminSub};
use serde::{Deserialize, Serialize};

/// Residuals beyond this many spreads count linearly.
const HUBER: f64 = 1.5;
/// Initial spread of ln y, and its minimum: durations have a resolution of µs.
const SPREAD_FIRST: f64 = 0.2;
const SPREAD_MIN: f64 = 0.02;
/// Number of refits with the updated spread.
const ROUNDS: usize = 2;
const ITERATIONS_MAX: u64 = 120;
/// Bound of θ in ln µs: exp(±40) is beyond any clock, and finite.
const LN_MOST: f64 = 40.0;

/// Observations of one kind of event with equal x, combined.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) x: [f64; 2],
    /// Median, µs, > 0.
    pub(super) us: f64,
    /// Number of observations.
    pub(super) weight: f64,
}

/// Prior of the two parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Prior {
    /// Medians of the two parts, µs per unit of x.
    pub(super) median: [f64; 2],
    /// Standard deviations of their logarithms.
    pub(super) sd: [f64; 2],
}

/// Fitted cost: the logarithms of its parts, with their covariance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Linear {
    /// θ, ln µs per unit of x.
    pub ln: [f64; 2],
    /// Covariance of θ.
    pub covariance: [[f64; 2]; 2],
    /// Huber's loss at the minimum, including the prior; a smaller loss is better among fits of the
    /// same points.
    pub loss: f64,
}

impl Linear {
    /// Returns the two parts, µs per unit of x.
    pub fn parts(&self) -> [f64; 2] {
        self.ln.map(f64::exp)
    }

    /// Returns the parts at standard-normal scores `z`.
    pub(super) fn draw(&self, z: [f64; 2]) -> [f64; 2] {
        let [[a, b], [_, d]] = self.covariance;
        let first = a.max(0.0).sqrt();
        let cross = if first > 0.0 { b / first } else { 0.0 };
        let rest = (d - cross * cross).max(0.0).sqrt();
        [
            (self.ln[0] + first * z[0]).exp(),
            (self.ln[1] + cross * z[0] + rest * z[1]).exp(),
        ]
    }

    /// Returns the prior as a fit.
    pub(super) fn of(prior: &Prior) -> Self {
        let [a, d] = prior.sd.map(|sd| sd * sd);
        Self {
            ln: prior.median.map(f64::ln),
            covariance: [[a, 0.0], [0.0, d]],
            loss: 0.0,
        }
    }
}

/// Combines observations with equal x.
pub(super) fn gather(mut seen: Vec<([f64; 2], f64)>) -> Vec<Point> {
    seen.retain(|(x, us)| {
        *us > 0.0 && us.is_finite() && x.iter().all(|x| x.is_finite() && *x >= 0.0)
    });
    seen.sort_by(|a, b| {
        a.0[1]
            .total_cmp(&b.0[1])
            .then(a.0[0].total_cmp(&b.0[0]))
            .then(a.1.total_cmp(&b.1))
    });
    let same = seen.chunk_by(|a, b| a.0 == b.0);
    same.map(|equal| Point {
        x: equal[0].0,
        us: equal[equal.len() / 2].1,
        weight: equal.len() as f64,
    })
    .collect()
}

/// Fits `points` under `prior`; without points, returns the prior.
pub(super) fn fit(points: &[Point], prior: &Prior) -> Linear {
    let mut fitted = Linear::of(prior);
    if points.is_empty() {
        return fitted;
    }
    let mut spread = SPREAD_FIRST;
    for _ in 0..ROUNDS {
        let objective = Objective {
            points,
            prior,
            spread,
        };
        fitted.ln = minimise(&objective, fitted.ln);
        spread = objective.spread_seen(fitted.ln).max(SPREAD_MIN);
    }
    let objective = Objective {
        points,
        prior,
        spread,
    };
    fitted.loss = objective.loss(fitted.ln);
    fitted.covariance = objective.covariance(fitted.ln);
    fitted
}

#[derive(Clone, Copy)]
struct Objective<'a> {
    points: &'a [Point],
    prior: &'a Prior,
    spread: f64,
}

impl Objective<'_> {
    fn loss(&self, ln: [f64; 2]) -> f64 {
        let parts = ln.map(|ln| ln.clamp(-LN_MOST, LN_MOST).exp());
        let of_points: f64 = self
            .points
            .iter()
            .map(|point| point.weight * huber(self.residual(point, parts)))
            .sum();
        let of_prior =
            (0..2).map(|i| 0.5 * ((ln[i] - self.prior.median[i].ln()) / self.prior.sd[i]).powi(2));
        of_points + of_prior.sum::<f64>()
    }

    /// Residual, in spreads.
    fn residual(&self, point: &Point, parts: [f64; 2]) -> f64 {
        let expected = parts[0] * point.x[0] + parts[1] * point.x[1];
        (point.us.ln() - expected.max(f64::MIN_POSITIVE).ln()) / self.spread
    }

    /// Spread: 1.4826 times the weighted median of the absolute residuals of ln y.
    fn spread_seen(&self, ln: [f64; 2]) -> f64 {
        let parts = ln.map(f64::exp);
        let size = |point: &Point| {
            (
                self.residual(point, parts).abs() * self.spread,
                point.weight,
            )
        };
        let mut sizes: Vec<(f64, f64)> = self.points.iter().map(size).collect();
        sizes.sort_by(|a, b| a.0.total_cmp(&b.0));
        let half = 0.5 * sizes.iter().map(|size| size.1).sum::<f64>();
        let mut below = 0.0;
        let middle = sizes.iter().find(|size| {
            below += size.1;
            below >= half
        });
        1.4826 * middle.map_or(0.0, |size| size.0)
    }

    fn covariance(&self, ln: [f64; 2]) -> [[f64; 2]; 2] {
        let parts = ln.map(f64::exp);
        let mut curvature = [[0.0; 2]; 2];
        for (i, row) in curvature.iter_mut().enumerate() {
            row[i] = self.prior.sd[i].powi(-2);
        }
        for point in self.points {
            let terms = [parts[0] * point.x[0], parts[1] * point.x[1]];
            let slope =
                terms.map(|term| term / (terms[0] + terms[1]).max(f64::MIN_POSITIVE) / self.spread);
            for i in 0..2 {
                for j in 0..2 {
                    curvature[i][j] += point.weight * slope[i] * slope[j];
                }
            }
        }
        let [[a, b], [_, d]] = curvature;
        let determinant = a * d - b * b;
        [
            [d / determinant, -b / determinant],
            [-b / determinant, a / determinant],
        ]
    }
}

fn huber(residual: f64) -> f64 {
    let size = residual.abs();
    if size <= HUBER {
        0.5 * size * size
    } else {
        HUBER * (size - 0.5 * HUBER)
    }
}

fn minimise(objective: &Objective<'_>, from: [f64; 2]) -> [f64; 2] {
    let corner = |i: usize| {
        let mut theta = from;
        theta[i] += 1.0;
        Theta(theta)
    };
    let simplex = vec![Theta(from), corner(0), corner(1)];
    let run = NelderMead::new(simplex)
        .with_sd_tolerance(1e-6)
        .ok()
        .and_then(|solver| {
            let executor = Executor::new(*objective, solver)
                .configure(|state| state.max_iters(ITERATIONS_MAX));
            executor.timer(false).run().ok()
        });
    // A failed fit returns the prior.
    let best = run.and_then(|run| run.state().get_best_param().map(|theta| theta.0));
    best.filter(|theta| theta.iter().all(|ln| ln.abs() < LN_MOST))
        .unwrap_or(from)
}

impl CostFunction for Objective<'_> {
    type Param = Theta;
    type Output = f64;

    fn cost(&self, theta: &Theta) -> Result<f64, argmin::core::Error> {
        Ok(self.loss(theta.0))
    }
}

/// θ with the three operations that the simplex needs: argmin's implementation for `Vec` depends on
/// a second version of `rand`.
#[derive(Clone, Copy, Debug)]
struct Theta([f64; 2]);

impl ArgminAdd<Theta, Theta> for Theta {
    fn add(&self, other: &Theta) -> Theta {
        Theta([self.0[0] + other.0[0], self.0[1] + other.0[1]])
    }
}

impl ArgminSub<Theta, Theta> for Theta {
    fn sub(&self, other: &Theta) -> Theta {
        Theta([self.0[0] - other.0[0], self.0[1] - other.0[1]])
    }
}

impl ArgminMul<f64, Theta> for Theta {
    fn mul(&self, factor: &f64) -> Theta {
        Theta(self.0.map(|theta| theta * factor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Prior = Prior {
        median: [50.0, 2e-4],
        sd: [2.0, 2.0],
    };

    #[test]
    fn a_line_is_found_whatever_one_message_in_ten_suffered() {
        // 30 µs + 1 ms/MB, sizes from 1 kB to 100 MB, every tenth three times as slow.
        let seen = (0..60).map(|i| {
            let bytes = 1e3 * 1.21f64.powi(i);
            let us = 30.0 + 1e-3 * bytes;
            (
                [1.0, bytes],
                if i % 10 == 7 {
                    3.0 * us
                } else {
                    us * (1.0 + 0.02 * f64::from(i % 3 - 1))
                },
            )
        });
        let fitted = fit(&gather(seen.collect()), &WIDE);
        let [alpha, beta] = fitted.parts();
        assert!((alpha / 30.0 - 1.0).abs() < 0.05, "{alpha}");
        assert!((beta / 1e-3 - 1.0).abs() < 0.03, "{beta}");
        assert!(fitted.covariance[0][0].sqrt() < 0.1);
    }

    #[test]
    fn what_one_size_does_not_tell_stays_as_wide_as_believed() {
        // 100 µs for 1 MB: α and β are not determined separately, but their sum is.
        let fitted = fit(&gather(vec![([1.0, 1e6], 100.0); 40]), &WIDE);
        let [alpha, beta] = fitted.parts();
        assert!((alpha + 1e6 * beta - 100.0).abs() < 1.0, "{alpha} {beta}");
        let sds = [
            fitted.covariance[0][0].sqrt(),
            fitted.covariance[1][1].sqrt(),
        ];
        assert!(sds.iter().any(|sd| *sd > 0.5), "{sds:?}");
        assert!(fitted.covariance[0][1] < 0.0);
    }

    #[test]
    fn nothing_seen_leaves_the_prior_and_bad_numbers_are_not_seen() {
        let points = gather(vec![
            ([1.0, 2.0], f64::NAN),
            ([1.0, 2.0], 0.0),
            ([f64::INFINITY, 1.0], 1.0),
        ]);
        assert!(points.is_empty());
        let fitted = fit(&points, &WIDE);
        assert_eq!(fitted.covariance, [[4.0, 0.0], [0.0, 4.0]]);
        assert!((fitted.parts()[0] - 50.0).abs() < 1e-9);
    }

    #[test]
    fn draws_have_the_covariance() {
        let fitted = Linear {
            ln: [0.0, 0.0],
            covariance: [[4.0, -1.0], [-1.0, 1.0]],
            loss: 0.0,
        };
        // z = (1, 0): ln = (2, −½); z = (0, 1): ln = (0, √(1 − ¼)).
        let [a, b] = fitted.draw([1.0, 0.0]);
        assert!((a.ln() - 2.0).abs() < 1e-12 && (b.ln() + 0.5).abs() < 1e-12);
        let [a, b] = fitted.draw([0.0, 1.0]);
        assert!(a.ln().abs() < 1e-12 && (b.ln() - 0.75f64.sqrt()).abs() < 1e-12);
    }
}
