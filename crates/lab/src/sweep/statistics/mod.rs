//! What repeated measurements of many points say when the machine drifts, and how sure that is.
//!
//! The model is that of a randomized block design: ln(step time) = point + block + noise, the noise alike for all points
//! (step times differ by factors, and so do their errors). A block is one repeat of the whole grid, or one round of the
//! confirmation, and holds what the machine was like meanwhile; a large one also has a slope in time ([`nuisance`]).
//! Points are measured in random order within blocks, so that what is left of the drift is noise to all alike. One
//! variance is pooled from all residuals: three repeats of forty points are eighty degrees of freedom, not two.
//!
//! - A stray measurement is found by the generalized extreme studentized deviate test and left out ([`strays`]): Rosner,
//!   "Percentage points for a generalized ESD many-outlier procedure", Technometrics 25 (1983).
//! - Differences from the default hold together at 95 % ([`critical`]): Dunnett, "A multiple comparison procedure for
//!   comparing several treatments with a control", JASA 50 (1955).
//! - The points that tie with the best are those of Gupta's subset, which holds the true best with at least 95 %: Gupta,
//!   "On some multiple decision (selection and ranking) rules", Technometrics 7 (1965); Hsu, "Constrained simultaneous
//!   confidence intervals for multiple comparisons with the best", Annals of Statistics 12 (1984).

mod critical;
mod fit;
mod nuisance;
mod strays;

pub(super) use critical::{Sides, critical};
pub(super) use fit::Fit;

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Observation {
    /// Index of what was measured.
    pub(super) point: usize,
    /// Index of the block, from 0.
    pub(super) block: usize,
    /// When, seconds.
    pub(super) at_s: f64,
    /// Natural logarithm of the step time.
    pub(super) ln_ms: f64,
}
