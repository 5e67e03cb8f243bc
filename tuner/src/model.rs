//! What is believed of the surface beside what is measured on it: an expected log step time for each setting, and the ways in
//! which it may be wrong.
//!
//! The Gaussian process explains what the model leaves over: with mean m(x) and features φ(x), its prior covariance is
//! φ(x)·φ(x') plus the kernel. The features of an ensemble of E models are (f_e − m) / √(E − 1), so that
//! one measurement teaches all settings that the same models place alike.

use std::fmt;

use crate::Point;

/// A measured setting, summed up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The setting.
    pub point: Point,
    /// Centre of ln(step time in ms).
    pub log_time: f64,
    /// Variance of that centre.
    pub variance: f64,
    /// Steps it rests on.
    pub steps: usize,
}

/// What a model expects at some settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Belief {
    /// Expected ln(step time) less the reference's, one per setting.
    pub mean: Vec<f64>,
    /// For each setting the same number of features, in log step time and zero at the reference; empty lists if the mean is all
    /// that is believed.
    pub features: Vec<Vec<f64>>,
}

/// A source of beliefs.
pub trait Model: fmt::Debug + Send + Sync {
    /// What is expected at `points`, after what was `measured`; the first of that is the reference, at which the mean and every
    /// feature are zero. None if the model has nothing to say; the search then goes on without it.
    fn belief(&self, points: &[Point], measured: &[Estimate]) -> Option<Belief>;
}
