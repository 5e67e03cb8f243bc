//! Expected improvement of the difference to the incumbent.
//!
//! The incumbent is itself uncertain, and correlated with its neighbours. So the improvement is
//! that of the difference d ~ N(μ_inc − μ_x, v_x + v_inc − 2 cov(x, inc)), with EI = sd (z Φ(z) +
//! φ(z)), z = mean/sd (Jones, Schonlau, Welch 1998, eq. 15, for the difference). A point that is
//! sure to equal the incumbent is worth nothing, however uncertain both are.

use statrs::distribution::{Continuous, ContinuousCDF, Normal};

/// Cost of a change of setting, in steps: the step after it is slower by a quarter.
pub(crate) const CHANGE_COST: f64 = 0.25;

/// Below this variance two settings are the same setting.
const VARIANCE_MIN: f64 = 1e-12;

/// The expected improvement E[max(d, 0)] of a normal difference of this mean and variance.
pub(crate) fn expected_improvement(mean: f64, variance: f64) -> f64 {
    if variance.is_nan() || variance <= VARIANCE_MIN {
        return 0.0;
    }
    let sd = variance.sqrt();
    let z = mean / sd;
    let normal = Normal::standard();
    (sd * (z * normal.cdf(z) + normal.pdf(z))).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        assert!((expected_improvement(0.0, 1.0) - 0.398_942_280_4).abs() < 1e-9);
        // BoTorch's documented case: mean 0.5 below the best at sd 1.
        assert!((expected_improvement(-0.5, 1.0) - 0.19780).abs() < 5e-6);
        // Scales with the standard deviation.
        assert!((expected_improvement(-0.05, 0.01) - 0.019780).abs() < 5e-7);
        // A sure improvement is worth its mean.
        assert!((expected_improvement(1.0, 1e-4) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn extremes_are_not_negative_nor_nan() {
        for (mean, variance) in [
            (-50.0, 1.0),
            (-1e9, 1e-9),
            (0.0, 0.0),
            (0.3, -1e-9),
            (0.0, f64::NAN),
        ] {
            let value = expected_improvement(mean, variance);
            assert!((0.0..1e-12).contains(&value), "{mean} {variance}: {value}");
        }
    }
}
