//! The crate's errors and warnings. An error is an invalid request of the caller; a warning is an
//! internal failure after which the search continues.

use thiserror::Error;

use crate::space::{LATTICE_MAX, PARAMETERS_MAX, parameter::LEVELS_MAX};

/// A space, point or configuration that cannot be used.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// The space has no parameter at all.
    #[error(
        "the search space has no parameters; add at least one (a fixed one is enough to measure the default)"
    )]
    EmptySpace,
    /// More parameters than a [`Point`](crate::Point) holds.
    #[error(
        "the search space has {found} parameters, at most {PARAMETERS_MAX} are supported; fix or drop some"
    )]
    TooManyParameters {
        /// Number of parameters given.
        found: usize,
    },
    /// Two parameters share one name.
    #[error("two parameters are named {parameter:?}; names must differ")]
    DuplicateParameter {
        /// The name.
        parameter: String,
    },
    /// Bounds that are reversed, not finite, too large, or not positive on a logarithmic scale.
    #[error("parameter {parameter:?}: bounds {low}..{high} are {problem}")]
    Bounds {
        /// Name of the parameter.
        parameter: String,
        /// Lower bound as given.
        low: f64,
        /// Upper bound as given.
        high: f64,
        /// Error in the bounds, and the condition on those of this kind of parameter or the remedy.
        problem: &'static str,
    },
    /// Fewer than two levels on a scale that is to be searched.
    #[error(
        "parameter {parameter:?}: {levels} levels, expected 2 to {LEVELS_MAX}; to keep one value, fix the parameter"
    )]
    Levels {
        /// Name of the parameter.
        parameter: String,
        /// Levels as given.
        levels: usize,
    },
    /// The lattice would be too large to be searched exhaustively.
    #[error(
        "the lattice has {points} points, at most {LATTICE_MAX} are searched; use fewer levels or fix a parameter"
    )]
    LatticeTooLarge {
        /// Number of lattice points.
        points: usize,
    },
    /// A point with the wrong number of values.
    #[error("a point of {found} values for a space of {expected} parameters")]
    PointLength {
        /// Number of parameters of the space.
        expected: usize,
        /// Number of values given.
        found: usize,
    },
    /// A value that its parameter cannot take.
    #[error("parameter {parameter:?} cannot be {value}, expected {expected}")]
    Value {
        /// Name of the parameter.
        parameter: String,
        /// The value given.
        value: f64,
        /// Values of this kind of parameter.
        expected: &'static str,
    },
    /// A start point that contradicts a fixed parameter.
    #[error(
        "parameter {parameter:?} is fixed at {fixed} but the start point has {value}; start there or do not fix it"
    )]
    FixedValue {
        /// Name of the parameter.
        parameter: String,
        /// The value it is fixed at.
        fixed: f64,
        /// The start point's value.
        value: f64,
    },
    /// An observation that is no measurement.
    #[error("an observation cannot have {field} = {value}, expected {expected}")]
    Observation {
        /// Name of the field.
        field: &'static str,
        /// The value given.
        value: f64,
        /// Condition on the value, and the remedy.
        expected: &'static str,
    },
    /// A configuration field out of its range.
    #[error("{field} = {value} is out of range, expected {expected}")]
    Config {
        /// Name of the field.
        field: &'static str,
        /// The value given.
        value: f64,
        /// The range.
        expected: &'static str,
    },
}

/// Checks a field of a configuration.
pub(crate) fn in_range(
    field: &'static str,
    value: f64,
    is_in_range: bool,
    expected: &'static str,
) -> Result<(), Error> {
    is_in_range.then_some(()).ok_or(Error::Config {
        field,
        value,
        expected,
    })
}

/// An internal failure of the optimizer. The search continues with the fallback that the text names.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum Warning {
    /// The predictions of the model cannot be used.
    #[error(
        "the predictions of the model cannot be used ({reason}); the search continues without them"
    )]
    ModelUnusable {
        /// Error in it.
        reason: String,
    },
    /// The measurements contradict the model.
    #[error(
        "predictions did not match the first {observations} measurements; continuing mostly on measurements (weight of the model: {weight_percent} %)"
    )]
    ModelDoubted {
        /// Number of settings observed so far.
        observations: usize,
        /// Posterior probability that the model is of use, in percent.
        weight_percent: u32,
    },
    /// No hyper-parameter draw gave a usable surrogate.
    #[error(
        "no usable surrogate at {observations} settings (singular or not finite); the search ends with the best of them"
    )]
    SurrogateFailed {
        /// Number of settings observed so far.
        observations: usize,
    },
    /// Steps of a comparison were winsorized.
    #[error(
        "{steps} steps of the comparison took more than 30 times the median; they count as that in the test"
    )]
    Winsorized {
        /// How many.
        steps: usize,
    },
    /// A row of an earlier run that cannot be taken as prior knowledge.
    #[error("row {row} of the earlier run is left out: {reason}")]
    NotRemembered {
        /// Index of the sample, or line of the log.
        row: usize,
        /// Why.
        reason: String,
    },
}
