//! Paired comparison of points that were measured in the same blocks.
//!
//! A block is one repeat of the grid or one round of the confirmation; the state of the machine is
//! common to it: ln(step time) = point + block + trend within the block + residual ([`additive`]).
//! For points that were measured in the same blocks, their difference is the mean of the
//! differences within blocks; the state of the machine cancels ([`Fit`]). One variance of a
//! measurement is pooled from all residuals: three repeats of forty points give eighty degrees of
//! freedom, not two.
//!
//! If several differences are examined, the levels are divided by their number: intervals by
//! Bonferroni's rule, tests by Holm's ([`holm`]): Holm, "A simple sequentially rejective multiple
//! test procedure", Scandinavian Journal of Statistics 6 (1979).
//!
//! Measurements that deviate strongly from all others of their point are left out
//! ([`Fit::strays`]).

mod additive;
mod fit;
mod holm;

pub(super) use additive::{Center, shift};
pub(super) use fit::Fit;
pub(super) use holm::{critical, rejected};

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Observation {
    /// Index of the measured point.
    pub(super) point: usize,
    /// Index of the block, from 0.
    pub(super) block: usize,
    /// Time since the sweep began, seconds.
    pub(super) at_s: f64,
    /// Natural logarithm of the step time.
    pub(super) ln_ms: f64,
}
