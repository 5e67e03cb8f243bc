//! The search space: parameters on a log, linear, integer or boolean scale, and the lattice of
//! settings that is searched.
//!
//! Every parameter has a finite list of levels, so that the acquisition function is maximised
//! exhaustively and ties have an order. The start setting is kept exactly as it is, on the lattice
//! or not. Each parameter maps its values to one coordinate, about 0 to 1 over its range, in which
//! the kernel measures distance.
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

pub(crate) mod parameter;

use crate::space::parameter::Scale;
use crate::{Error, Parameter};

/// The most parameters a space can have.
pub(crate) const PARAMETERS_MAX: usize = 8;
/// The most lattice points; a proposal looks at each of them.
pub(crate) const LATTICE_MAX: usize = 20_000;

/// One setting: a value per parameter, in the order of the space. Booleans are 0 and 1. Made by
/// [`Space::point`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    values: [f64; PARAMETERS_MAX],
    len: u8,
}

impl Point {
    /// Whether the values fit a space is for [`Space::point`] to say; there are at most eight.
    pub(crate) fn new(values: &[f64]) -> Self {
        let mut point = Self {
            values: [0.0; PARAMETERS_MAX],
            len: values.len() as u8,
        };
        point.values[..values.len()].copy_from_slice(values);
        point
    }

    fn with(mut self, index: usize, value: f64) -> Self {
        self.values[index] = value;
        self
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
    /// No parameter, too many, two of one name, unusable bounds or levels, a fixed value that its
    /// scale does not have, or a lattice of more than 20,000 points.
    pub fn new(parameters: Vec<Parameter>) -> Result<Self, Error> {
        if parameters.is_empty() {
            return Err(Error::EmptySpace);
        }
        if parameters.len() > PARAMETERS_MAX {
            let found = parameters.len();
            return Err(Error::TooManyParameters { found });
        }
        for (index, parameter) in parameters.iter().enumerate() {
            parameter.check()?;
            let name = parameter.name();
            if parameters[..index].iter().any(|other| other.name() == name) {
                let parameter = name.to_owned();
                return Err(Error::DuplicateParameter { parameter });
            }
        }
        let levels = parameters.iter().map(|parameter| parameter.levels().len());
        let points = levels.fold(1, usize::saturating_mul);
        if points > LATTICE_MAX {
            return Err(Error::LatticeTooLarge { points });
        }
        Ok(Self { parameters })
    }

    /// The parameters.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// The setting of these values, one per parameter. Values need not be levels, nor inside the
    /// bounds.
    ///
    /// # Errors
    /// A wrong number of values, a value that its scale cannot have, or one that contradicts a
    /// fixed parameter.
    pub fn point(&self, values: &[f64]) -> Result<Point, Error> {
        if values.len() != self.parameters.len() {
            return Err(Error::PointLength {
                expected: self.parameters.len(),
                found: values.len(),
            });
        }
        for (parameter, &value) in self.parameters.iter().zip(values) {
            parameter.check_value(value)?;
            if let Some(fixed) = parameter.fixed_value()
                && fixed != value
            {
                return Err(Error::FixedValue {
                    parameter: parameter.name().to_string(),
                    fixed,
                    value,
                });
            }
        }
        Ok(Point::new(values))
    }

    /// Every combination of levels, the last parameter fastest; then those that are missing of
    /// `start` with its booleans changed, as `start` may lie between levels, and `start` itself.
    pub fn lattice(&self, start: &Point) -> Vec<Point> {
        let mut points = vec![Point::new(&vec![0.0; self.parameters.len()])];
        let mut beside = vec![*start];
        for (index, parameter) in self.parameters.iter().enumerate() {
            let levels = parameter.levels();
            let of = |point: Point| levels.iter().map(move |&level| point.with(index, level));
            points = points.into_iter().flat_map(of).collect();
            if parameter.scale() == Scale::Boolean && parameter.fixed_value().is_none() {
                let flipped = |point: &Point| point.with(index, 1.0 - point.values[index]);
                beside.extend(beside.iter().map(flipped).collect::<Vec<_>>());
            }
        }
        for point in beside.into_iter().rev() {
            if !points.contains(&point) {
                points.push(point);
            }
        }
        points
    }

    /// The coordinates of a point of this space.
    pub fn coordinates(&self, point: &Point) -> Coordinates {
        let mut coordinates = Coordinates::default();
        let values = self.parameters.iter().zip(point.values());
        for (coordinate, (parameter, &value)) in coordinates.iter_mut().zip(values) {
            *coordinate = parameter.coordinate(value);
        }
        coordinates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fusion() -> Parameter {
        Parameter::log("fusion", 65536.0, 268435456.0, 16).with_zero()
    }

    #[test]
    fn lattice_holds_the_exact_start_once() {
        let space = Space::new(vec![fusion(), Parameter::boolean("b")]).unwrap();
        let on = space.point(&[65536.0, 1.0]).unwrap();
        let off = space.point(&[123456.0, 1.0]).unwrap();
        assert_eq!(space.lattice(&on).len(), 34);
        let lattice = space.lattice(&off);
        assert_eq!((lattice.len(), lattice[35]), (36, off));
        assert_eq!(lattice[34].values(), [123456.0, 0.0]);
        assert_eq!(lattice[0].values(), [0.0, 0.0]);
        assert_eq!(lattice[1].values(), [0.0, 1.0]);
    }

    #[test]
    fn bad_spaces_and_points_are_named() {
        assert_eq!(Space::new(vec![]), Err(Error::EmptySpace));
        let reversed = Space::new(vec![Parameter::log("cycle", 100.0, 0.1, 13)]).unwrap_err();
        assert_eq!(
            reversed.to_string(),
            "parameter \"cycle\": bounds 100..0.1 are reversed; swap them"
        );
        assert!(matches!(
            Space::new(vec![Parameter::linear("x", 0.0, f64::NAN, 3)]),
            Err(Error::Bounds { .. })
        ));
        assert!(matches!(
            Space::new(vec![Parameter::log("x", 0.0, 1.0, 3)]),
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
        let nine = (0..9)
            .map(|i| Parameter::boolean(format!("b{i}")))
            .collect();
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
        assert!(matches!(
            space.point(&[1.0, 0.0]),
            Err(Error::FixedValue { .. })
        ));
        assert!(matches!(space.point(&[0.0, 0.5]), Err(Error::Value { .. })));
        assert!(matches!(
            space.point(&[f64::NAN, 0.0]),
            Err(Error::Value { .. })
        ));
    }

    #[test]
    fn equal_bounds_are_a_fixed_value() {
        let space = Space::new(vec![
            Parameter::integer("n", 3, 3),
            Parameter::linear("x", 0.5, 0.5, 4),
            Parameter::log("c", 2.0, 2.0, 9),
        ])
        .unwrap();
        let only = space.point(&[3.0, 0.5, 2.0]).unwrap();
        assert_eq!(space.lattice(&only), [only]);
        assert!(matches!(
            space.point(&[4.0, 0.5, 2.0]),
            Err(Error::FixedValue { fixed: 3.0, .. })
        ));
        // With a zero there are two values, and a distance between them.
        let switch = Space::new(vec![Parameter::log("f", 8.0, 8.0, 9).with_zero()]).unwrap();
        let on = switch.point(&[8.0]).unwrap();
        assert_eq!(switch.lattice(&on).len(), 2);
        assert_eq!(switch.coordinates(&on)[0], 0.1);
    }
}
