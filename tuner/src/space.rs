//! The search space: parameters on a log, linear, integer or boolean scale, and the lattice of settings that is searched.
//!
//! Every parameter has a finite list of levels, so that the acquisition function is maximised exhaustively and ties have an
//! order. The start setting is kept exactly as it is, on the lattice or not. Each parameter maps its values to one coordinate,
//! about 0 to 1 over its range, in which the kernel measures distance.
//!
//! ```
//! use ronde_tuner::{Parameter, Space};
//! let space = Space::new(vec![
//!     Parameter::log("fusion_threshold_bytes", 65536.0, 268435456.0, 16).with_zero(),
//!     Parameter::log("cycle_time_ms", 0.1, 100.0, 13),
//! ])?;
//! let start = space.point(&[134217728.0, 1.0])?;
//! assert_eq!(space.lattice(&start).len(), 17 * 13 + 1);
//! # Ok::<(), ronde_tuner::Error>(())
//! ```

use serde::{Deserialize, Serialize};

use crate::Error;

/// The most parameters a space can have.
pub const PARAMETERS_MAX: usize = 8;
/// The most levels of one parameter.
pub const LEVELS_MAX: usize = 256;
/// The most lattice points; a proposal looks at each of them.
pub const LATTICE_MAX: usize = 20_000;
/// The coordinate of the smallest non-zero level of a scale that also has a zero: far enough from 0 to be another regime.
const ZERO_GAP: f64 = 0.1;

/// The scale of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Levels in geometric progression from `low` to `high`, with an extra level 0 if `zero`.
    Log {
        /// Lowest non-zero level, > 0.
        low: f64,
        /// Highest level.
        high: f64,
        /// Number of non-zero levels.
        levels: usize,
        /// Whether 0 is a level too (for instance "no fusion").
        zero: bool,
    },
    /// Evenly spaced levels from `low` to `high`.
    Linear {
        /// Lowest level.
        low: f64,
        /// Highest level.
        high: f64,
        /// Number of levels.
        levels: usize,
    },
    /// Whole numbers from `low` to `high`, all of them or 17 evenly spaced.
    Integer {
        /// Lowest level.
        low: i64,
        /// Highest level.
        high: i64,
    },
    /// Off (0) and on (1).
    Boolean,
}

/// The most levels that an integer parameter is given.
pub(crate) const INTEGER_LEVELS: usize = 17;

/// One knob: a name, a scale, and the value it is fixed at, if it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    name: String,
    scale: Scale,
    fixed: Option<f64>,
}

impl Parameter {
    /// A parameter of `levels` levels in geometric progression from `low` to `high`.
    pub fn log(name: impl Into<String>, low: f64, high: f64, levels: usize) -> Self {
        Self::new(
            name,
            Scale::Log {
                low,
                high,
                levels,
                zero: false,
            },
        )
    }

    /// A parameter of `levels` evenly spaced levels from `low` to `high`.
    pub fn linear(name: impl Into<String>, low: f64, high: f64, levels: usize) -> Self {
        Self::new(name, Scale::Linear { low, high, levels })
    }

    /// A parameter of whole numbers from `low` to `high`.
    pub fn integer(name: impl Into<String>, low: i64, high: i64) -> Self {
        Self::new(name, Scale::Integer { low, high })
    }

    /// A parameter that is off (0) or on (1).
    pub fn boolean(name: impl Into<String>) -> Self {
        Self::new(name, Scale::Boolean)
    }

    fn new(name: impl Into<String>, scale: Scale) -> Self {
        Self {
            name: name.into(),
            scale,
            fixed: None,
        }
    }

    /// Adds the level 0 to a log scale; other scales are left as they are.
    #[must_use]
    pub fn with_zero(mut self) -> Self {
        if let Scale::Log { zero, .. } = &mut self.scale {
            *zero = true;
        }
        self
    }

    /// Fixes the parameter at `value`, on its levels or not; it is then not searched.
    #[must_use]
    pub fn fixed(mut self, value: f64) -> Self {
        self.fixed = Some(value);
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The scale.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// The value that the parameter is fixed at.
    pub fn fixed_value(&self) -> Option<f64> {
        self.fixed
    }

    /// Every level in ascending order; the fixed value alone if there is one. Meaningful once a [`Space`] has accepted the bounds.
    pub fn levels(&self) -> Vec<f64> {
        if let Some(value) = self.fixed {
            return vec![value];
        }
        match self.scale {
            Scale::Log {
                low,
                high,
                levels,
                zero,
            } => {
                let ratio = (high / low).ln();
                let top = levels.saturating_sub(1).max(1) as f64;
                // The ends are exact; between them rounding differs by an ulp or two and nobody minds.
                let inner = (0..levels).map(|i| match i {
                    0 => low,
                    i if i + 1 == levels => high,
                    i => low * (ratio * i as f64 / top).exp(),
                });
                zero.then_some(0.0).into_iter().chain(inner).collect()
            }
            Scale::Linear { low, high, levels } => {
                let top = levels.saturating_sub(1).max(1) as f64;
                (0..levels).map(|i| low + (high - low) * i as f64 / top).collect()
            }
            Scale::Integer { low, high } => {
                let count = high.saturating_sub(low).max(0) as usize + 1;
                if count <= INTEGER_LEVELS {
                    return (low..=high).map(|v| v as f64).collect();
                }
                let span = (high - low) as f64 / (INTEGER_LEVELS - 1) as f64;
                (0..INTEGER_LEVELS)
                    .map(|i| (low as f64 + span * i as f64).round())
                    .collect()
            }
            Scale::Boolean => vec![0.0, 1.0],
        }
    }

    /// The coordinate of `value`: 0 to 1 over the levels. With a zero level, 0 is at 0 and the rest at 0.1 to 1. A value
    /// outside the levels gets a coordinate outside, but never below 0 where there is a zero level.
    pub fn coordinate(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Log { zero: true, .. } if value <= 0.0 => 0.0,
            Scale::Log { low, high, zero, .. } => {
                let u = (value / low).ln() / (high / low).ln();
                if zero {
                    (ZERO_GAP + (1.0 - ZERO_GAP) * u).max(0.0)
                } else {
                    u
                }
            }
            Scale::Linear { low, high, .. } => (value - low) / (high - low),
            Scale::Integer { low, high } => (value - low as f64) / (high - low) as f64,
            Scale::Boolean => value,
        }
    }

    /// The value at a coordinate: the inverse of [`coordinate`](Self::coordinate), without rounding to a level.
    pub fn value_at(&self, coordinate: f64) -> f64 {
        match self.scale {
            Scale::Log { zero: true, .. } if coordinate <= 0.0 => 0.0,
            Scale::Log { low, high, zero, .. } => {
                let u = if zero {
                    (coordinate - ZERO_GAP) / (1.0 - ZERO_GAP)
                } else {
                    coordinate
                };
                low * ((high / low).ln() * u).exp()
            }
            Scale::Linear { low, high, .. } => low + (high - low) * coordinate,
            Scale::Integer { low, high } => low as f64 + (high - low) as f64 * coordinate,
            Scale::Boolean => coordinate,
        }
    }

    /// Whether `value` is one that the parameter can take, inside its bounds or (for a start setting) outside.
    fn check_value(&self, value: f64) -> Result<(), Error> {
        let (ok, expected) = match self.scale {
            Scale::Log { zero: true, .. } => (value >= 0.0, "a finite number >= 0"),
            Scale::Log { zero: false, .. } => (value > 0.0, "a finite number > 0"),
            Scale::Linear { .. } => (true, "a finite number"),
            Scale::Integer { .. } => (value.fract() == 0.0, "a whole number"),
            Scale::Boolean => (value == 0.0 || value == 1.0, "0 or 1"),
        };
        if ok && value.is_finite() {
            return Ok(());
        }
        Err(Error::Value {
            parameter: self.name.clone(),
            value,
            expected,
        })
    }

    fn check(&self) -> Result<(), Error> {
        let bounds = |low, high, expected| {
            Err(Error::Bounds {
                parameter: self.name.clone(),
                low,
                high,
                expected,
            })
        };
        let levels = match self.scale {
            Scale::Log {
                low, high, levels, ..
            } => {
                if !(low > 0.0 && high > low && high.is_finite()) {
                    return bounds(low, high, "0 < low < high, both finite");
                }
                levels
            }
            Scale::Linear { low, high, levels } => {
                if !(high > low && low.is_finite() && high.is_finite()) {
                    return bounds(low, high, "low < high, both finite");
                }
                levels
            }
            Scale::Integer { low, high } => {
                // Above 2^53 neighbouring whole numbers share one f64.
                if high <= low || low < -(1 << 53) || high > 1 << 53 {
                    return bounds(low as f64, high as f64, "low < high, both within +-2^53");
                }
                2
            }
            Scale::Boolean => 2,
        };
        if !(2..=LEVELS_MAX).contains(&levels) {
            return Err(Error::Levels {
                parameter: self.name.clone(),
                levels,
                limit: LEVELS_MAX,
            });
        }
        self.fixed.map_or(Ok(()), |value| self.check_value(value))
    }
}

/// One setting: a value per parameter, in the order of the space. Booleans are 0 and 1. Made by [`Space::point`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "Vec<f64>", try_from = "Vec<f64>")]
pub struct Point {
    values: [f64; PARAMETERS_MAX],
    len: u8,
}

impl Point {
    fn new(values: &[f64]) -> Self {
        let mut point = Self {
            values: [0.0; PARAMETERS_MAX],
            len: values.len() as u8,
        };
        point.values[..values.len()].copy_from_slice(values);
        point
    }

    /// The values, one per parameter.
    pub fn values(&self) -> &[f64] {
        &self.values[..self.len as usize]
    }

    /// The value of parameter `index`, in that parameter's own unit.
    ///
    /// # Panics
    /// If the space has no parameter of that index.
    pub fn value(&self, index: usize) -> f64 {
        self.values()[index]
    }

    /// The boolean parameter `index`.
    ///
    /// # Panics
    /// If the space has no parameter of that index.
    pub fn flag(&self, index: usize) -> bool {
        self.value(index) != 0.0
    }
}

impl From<Point> for Vec<f64> {
    fn from(point: Point) -> Self {
        point.values().to_vec()
    }
}

impl TryFrom<Vec<f64>> for Point {
    type Error = Error;

    /// Takes the values as they are; whether they fit a space is for [`Space::point`] to say.
    fn try_from(values: Vec<f64>) -> Result<Self, Error> {
        if values.len() > PARAMETERS_MAX {
            return Err(Error::TooManyParameters {
                found: values.len(),
                limit: PARAMETERS_MAX,
            });
        }
        Ok(Self::new(&values))
    }
}

/// A point's coordinates, one per parameter; unused places are 0.
pub(crate) type Coordinates = [f64; PARAMETERS_MAX];

/// The parameters, in the order in which points list their values.
#[derive(Clone, Debug, PartialEq)]
pub struct Space {
    parameters: Vec<Parameter>,
}

impl Space {
    /// A space of these parameters.
    ///
    /// # Errors
    /// No parameter, too many, two of one name, unusable bounds or levels, a fixed value that its scale does not have, or a
    /// lattice of more than [`LATTICE_MAX`] points.
    pub fn new(parameters: Vec<Parameter>) -> Result<Self, Error> {
        if parameters.is_empty() {
            return Err(Error::EmptySpace);
        }
        if parameters.len() > PARAMETERS_MAX {
            return Err(Error::TooManyParameters {
                found: parameters.len(),
                limit: PARAMETERS_MAX,
            });
        }
        for (index, parameter) in parameters.iter().enumerate() {
            parameter.check()?;
            if parameters[..index]
                .iter()
                .any(|other| other.name == parameter.name)
            {
                return Err(Error::DuplicateParameter {
                    parameter: parameter.name.clone(),
                });
            }
        }
        let points = parameters
            .iter()
            .map(|p| p.levels().len())
            .fold(1, usize::saturating_mul);
        if points > LATTICE_MAX {
            return Err(Error::LatticeTooLarge {
                points,
                limit: LATTICE_MAX,
            });
        }
        Ok(Self { parameters })
    }

    /// The parameters.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// The setting of these values, one per parameter. Values need not be levels, nor inside the bounds.
    ///
    /// # Errors
    /// A wrong number of values, a value that its scale cannot have, or one that contradicts a fixed parameter.
    pub fn point(&self, values: &[f64]) -> Result<Point, Error> {
        if values.len() != self.parameters.len() {
            return Err(Error::PointLength {
                expected: self.parameters.len(),
                found: values.len(),
            });
        }
        for (parameter, &value) in self.parameters.iter().zip(values) {
            parameter.check_value(value)?;
            if let Some(fixed) = parameter.fixed
                && fixed != value
            {
                return Err(Error::FixedValue {
                    parameter: parameter.name.clone(),
                    fixed,
                    value,
                });
            }
        }
        Ok(Point::new(values))
    }

    /// Every combination of levels, the last parameter fastest, and `start` at the end unless it is one of them.
    pub fn lattice(&self, start: &Point) -> Vec<Point> {
        let mut points = vec![Point::new(&vec![0.0; self.parameters.len()])];
        for (index, parameter) in self.parameters.iter().enumerate() {
            let levels = parameter.levels();
            points = points
                .iter()
                .flat_map(|point| {
                    levels.iter().map(|&level| {
                        let mut point = *point;
                        point.values[index] = level;
                        point
                    })
                })
                .collect();
        }
        if !points.contains(start) {
            points.push(*start);
        }
        points
    }

    /// The coordinates of a point of this space.
    pub fn coordinates(&self, point: &Point) -> Coordinates {
        let mut coordinates = Coordinates::default();
        for ((coordinate, parameter), &value) in
            coordinates.iter_mut().zip(&self.parameters).zip(point.values())
        {
            *coordinate = parameter.coordinate(value);
        }
        coordinates
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fusion() -> Parameter {
        Parameter::log("fusion", 65536.0, 268435456.0, 16).with_zero()
    }

    #[test]
    fn levels_and_coordinates_by_hand() {
        let levels = fusion().levels();
        assert_eq!(
            (levels.len(), levels[0], levels[1], levels[16]),
            (17, 0.0, 65536.0, 268435456.0)
        );
        // Half way between 64 KiB and 256 MiB, geometrically: 4 MiB; 0.1 + 0.9/2.
        assert!((fusion().coordinate(4194304.0) - 0.55).abs() < 1e-12);
        assert_eq!(fusion().coordinate(0.0), 0.0);
        assert_eq!(
            fusion().coordinate(1.0),
            0.0,
            "a threshold below every tensor is as good as none"
        );
        let cycle = Parameter::log("cycle", 0.1, 100.0, 13);
        assert!((cycle.coordinate(1.0) - 1.0 / 3.0).abs() < 1e-12);
        assert!((cycle.levels()[4] - 1.0).abs() < 1e-12);
        assert_eq!(Parameter::integer("n", 1, 4).levels(), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(Parameter::integer("n", 0, 1000).levels().len(), INTEGER_LEVELS);
        assert_eq!(Parameter::linear("x", -1.0, 1.0, 3).levels(), [-1.0, 0.0, 1.0]);
        assert_eq!(Parameter::boolean("b").fixed(1.0).levels(), [1.0]);
    }

    #[test]
    fn lattice_holds_the_exact_start_once() {
        let space = Space::new(vec![fusion(), Parameter::boolean("b")]).unwrap();
        let on = space.point(&[65536.0, 1.0]).unwrap();
        let off = space.point(&[123456.0, 1.0]).unwrap();
        assert_eq!(space.lattice(&on).len(), 34);
        let lattice = space.lattice(&off);
        assert_eq!((lattice.len(), lattice[34]), (35, off));
        assert_eq!(lattice[0].values(), [0.0, 0.0]);
        assert_eq!(lattice[1].values(), [0.0, 1.0]);
    }

    #[test]
    fn bad_spaces_and_points_are_named() {
        assert_eq!(Space::new(vec![]), Err(Error::EmptySpace));
        let reversed = Space::new(vec![Parameter::log("cycle", 100.0, 0.1, 13)]).unwrap_err();
        assert_eq!(
            reversed.to_string(),
            "parameter \"cycle\": bounds 100..0.1 are not usable, expected 0 < low < high, both finite"
        );
        assert!(matches!(
            Space::new(vec![Parameter::linear("x", 0.0, f64::NAN, 3)]),
            Err(Error::Bounds { .. })
        ));
        assert!(matches!(
            Space::new(vec![Parameter::integer("x", 3, 3)]),
            Err(Error::Bounds { .. })
        ));
        assert!(matches!(
            Space::new(vec![Parameter::linear("x", 0.0, 1.0, 1)]),
            Err(Error::Levels { .. })
        ));
        assert!(matches!(
            Space::new(vec![fusion(), fusion()]),
            Err(Error::DuplicateParameter { .. })
        ));
        let wide = |name| Parameter::linear(name, 0.0, 1.0, 200);
        assert!(matches!(
            Space::new(vec![wide("a"), wide("b")]),
            Err(Error::LatticeTooLarge { points: 40_000, .. })
        ));
        let nine = (0..9).map(|i| Parameter::boolean(format!("b{i}"))).collect();
        assert!(matches!(
            Space::new(nine),
            Err(Error::TooManyParameters { found: 9, .. })
        ));
        let space = Space::new(vec![fusion().fixed(0.0), Parameter::boolean("b")]).unwrap();
        assert!(matches!(
            space.point(&[0.0]),
            Err(Error::PointLength {
                expected: 2,
                found: 1
            })
        ));
        assert!(matches!(space.point(&[1.0, 0.0]), Err(Error::FixedValue { .. })));
        assert!(matches!(space.point(&[0.0, 0.5]), Err(Error::Value { .. })));
        assert!(matches!(space.point(&[f64::NAN, 0.0]), Err(Error::Value { .. })));
    }

    proptest! {
        #[test]
        fn value_to_coordinate_and_back(
            low in 1e-3..1e3f64, factor in 1.01..1e6f64, levels in 2usize..40, zero: bool, pick in 0.0..1.0f64,
        ) {
            let mut log = Parameter::log("p", low, low * factor, levels);
            if zero { log = log.with_zero(); }
            let linear = Parameter::linear("p", -low, low * factor, levels);
            let integer = Parameter::integer("p", -5, 5 + (factor as i64));
            for parameter in [log, linear, integer, Parameter::boolean("p")] {
                let values = parameter.levels();
                let value = values[(pick * values.len() as f64) as usize];
                let coordinate = parameter.coordinate(value);
                prop_assert!((-1e-9..=1.0 + 1e-9).contains(&coordinate));
                let back = parameter.value_at(coordinate);
                prop_assert!((back - value).abs() <= 1e-9 * (1.0 + value.abs()), "{back} {value}");
                prop_assert!(values.windows(2).all(|w| w[0] < w[1]));
            }
        }

        #[test]
        fn points_survive_json(values in prop::collection::vec(-1e9..1e9f64, 1..=PARAMETERS_MAX)) {
            let point = Point::new(&values);
            let text = serde_json::to_string(&point).unwrap();
            prop_assert_eq!(serde_json::from_str::<Point>(&text).unwrap(), point);
        }
    }
}
