//! A parameter: its name, its scale, the levels that are searched, and the coordinate in which
//! distance is measured.

use crate::Error;

/// The most levels of one parameter.
pub(crate) const LEVELS_MAX: usize = 256;
/// The coordinate of the smallest non-zero level of a scale that also has a zero: far enough from 0
/// to be another regime.
const ZERO_GAP: f64 = 0.1;
/// The most levels that an integer parameter is given.
const INTEGER_LEVELS: usize = 17;

/// The scale of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Levels in geometric progression.
    Log,
    /// Evenly spaced levels.
    Linear,
    /// Whole numbers.
    Integer,
    /// Off (0) and on (1).
    Boolean,
    /// Names without an order, numbered from 0.
    Choice,
}

/// One knob: a name, a scale with its levels, and the value it is fixed at, if it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    name: String,
    scale: Scale,
    /// Lowest and highest level, and number of levels between unequal bounds; all apart from a zero.
    low: f64,
    high: f64,
    count: usize,
    /// Whether 0 is a level, too.
    zero: bool,
    fixed: Option<f64>,
    rough: bool,
}

impl Parameter {
    /// A parameter of `levels` levels in geometric progression from `low` to `high`, both > 0.
    pub fn log(name: impl Into<String>, low: f64, high: f64, levels: usize) -> Self {
        Self::new(name, Scale::Log, [low, high], levels)
    }

    /// A parameter of `levels` evenly spaced levels from `low` to `high`.
    pub fn linear(name: impl Into<String>, low: f64, high: f64, levels: usize) -> Self {
        Self::new(name, Scale::Linear, [low, high], levels)
    }

    /// A parameter of whole numbers from `low` to `high`, all of them or 17 evenly spaced.
    pub fn integer(name: impl Into<String>, low: i64, high: i64) -> Self {
        let levels = (high.saturating_sub(low) as usize).min(INTEGER_LEVELS - 1) + 1;
        Self::new(name, Scale::Integer, [low as f64, high as f64], levels)
    }

    /// A parameter that is off (0) or on (1).
    pub fn boolean(name: impl Into<String>) -> Self {
        Self::new(name, Scale::Boolean, [0.0, 1.0], 2)
    }

    /// A parameter of `count` names without an order, numbered from 0.
    pub fn choice(name: impl Into<String>, count: usize) -> Self {
        Self::new(name, Scale::Choice, [0.0, count as f64 - 1.0], count)
    }

    fn new(name: impl Into<String>, scale: Scale, [low, high]: [f64; 2], count: usize) -> Self {
        Self {
            name: name.into(),
            scale,
            low,
            high,
            count,
            zero: false,
            fixed: None,
            rough: false,
        }
    }

    /// Adds the level 0 to a log scale (for instance "no fusion"); other scales are left as they
    /// are.
    #[must_use]
    pub fn with_zero(mut self) -> Self {
        self.zero = self.scale == Scale::Log;
        self
    }

    /// Says that neighbouring levels may differ by more than a smooth surface would have it, as
    /// thresholds do that decide what is packed with what: the search then looks at more of them.
    /// Nothing changes for a boolean.
    #[must_use]
    pub fn rough(mut self) -> Self {
        self.rough = true;
        self
    }

    /// Fixes the parameter at `value`, on its levels or not; it is then not searched.
    #[must_use]
    pub fn fixed(mut self, value: f64) -> Self {
        self.fixed = Some(value);
        self
    }

    /// Whether neighbouring levels may differ by more than a smooth surface would have it.
    pub fn is_rough(&self) -> bool {
        self.rough
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The scale.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// The lowest and the highest value, apart from the zero of a log scale.
    pub fn bounds(&self) -> [f64; 2] {
        [self.low, self.high]
    }

    /// Whether 0 is a level of a log scale.
    pub fn has_zero(&self) -> bool {
        self.zero
    }

    /// Whether the values are equal or differ, without an order.
    pub(crate) fn is_switch(&self) -> bool {
        matches!(self.scale, Scale::Boolean | Scale::Choice)
    }

    /// The only value that the parameter can have: the one it is fixed at, or that of bounds that
    /// are equal.
    pub fn fixed_value(&self) -> Option<f64> {
        let only = (self.low == self.high && !self.zero).then_some(self.low);
        self.fixed.or(only)
    }

    /// Every level in ascending order; the fixed value alone if there is one. Meaningful once a
    /// [`Space`](crate::Space) has accepted the bounds.
    pub fn levels(&self) -> Vec<f64> {
        if let Some(value) = self.fixed_value() {
            return vec![value];
        }
        let [low, high] = self.bounds();
        let count = if low == high { 1 } else { self.count };
        let top = count.saturating_sub(1).max(1) as f64;
        let level = |i: usize| match self.scale {
            // The ends are exact; between them rounding may differ by an ulp or two, which has no
            // effect.
            Scale::Log if i == 0 => low,
            Scale::Log if i + 1 == count => high,
            Scale::Log => low * ((high / low).ln() * i as f64 / top).exp(),
            Scale::Linear => low + (high - low) * i as f64 / top,
            _ => (low + (high - low) * i as f64 / top).round(),
        };
        let zero = self.zero.then_some(0.0);
        zero.into_iter().chain((0..count).map(level)).collect()
    }

    /// The coordinate of `value`: 0 to 1 over the levels, or the number of a name. With a zero
    /// level, 0 is at 0 and the rest at 0.1 to 1. A value outside the levels gets a coordinate
    /// outside, but never below 0 where there is a zero level.
    pub fn coordinate(&self, value: f64) -> f64 {
        let [low, high] = self.bounds();
        // With equal bounds any distance will do.
        let span = |span: f64| if low == high { 1.0 } else { span };
        let u = || (value / low).ln() / span((high / low).ln());
        match self.scale {
            Scale::Log if !self.zero => u(),
            Scale::Log if value <= 0.0 => 0.0,
            Scale::Log => (ZERO_GAP + (1.0 - ZERO_GAP) * u()).max(0.0),
            Scale::Linear | Scale::Integer => (value - low) / span(high - low),
            Scale::Boolean | Scale::Choice => value,
        }
    }

    /// Whether `value` is one that the parameter can take, inside its bounds or (for a start
    /// setting) outside.
    pub(crate) fn check_value(&self, value: f64) -> Result<(), Error> {
        let (ok, expected) = match self.scale {
            Scale::Log if self.zero => (value >= 0.0, "a finite number >= 0"),
            Scale::Log => (value > 0.0, "a finite number > 0"),
            Scale::Linear => (true, "a finite number"),
            Scale::Integer => (value.fract() == 0.0, "a whole number"),
            Scale::Boolean => (value == 0.0 || value == 1.0, "0 or 1"),
            Scale::Choice => (
                value.fract() == 0.0 && (0.0..=self.high).contains(&value),
                "the number of one of its names, from 0",
            ),
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

    pub(crate) fn check(&self) -> Result<(), Error> {
        let ([low, high], levels) = (self.bounds(), self.count);
        let are_finite = low.is_finite() && high.is_finite();
        // Beyond, neighbouring whole numbers share one f64.
        let are_exact = low.abs().max(high.abs()) < 2f64.powi(53);
        let problem = match self.scale {
            Scale::Log if !(are_finite && low > 0.0 && high > 0.0) => {
                Some("not usable, expected 0 < low <= high, both finite")
            }
            Scale::Linear if !are_finite => Some("not usable, expected low <= high, both finite"),
            Scale::Integer if !are_exact => {
                Some("not usable, expected low <= high, both within +-2^53")
            }
            _ if low > high && levels > 0 => Some("reversed; swap them"),
            _ => None,
        };
        let parameter = self.name.clone();
        if let Some(problem) = problem {
            return Err(Error::Bounds {
                parameter,
                low,
                high,
                problem,
            });
        }
        // Equal bounds are one value, whatever the number of levels.
        if low != high && !(2..=LEVELS_MAX).contains(&levels) {
            return Err(Error::Levels { parameter, levels });
        }
        self.fixed.map_or(Ok(()), |value| self.check_value(value))
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
        assert_eq!(
            Parameter::integer("n", 0, 1000).levels().len(),
            INTEGER_LEVELS
        );
        assert_eq!(
            Parameter::linear("x", -1.0, 1.0, 3).levels(),
            [-1.0, 0.0, 1.0]
        );
        assert_eq!(Parameter::boolean("b").fixed(1.0).levels(), [1.0]);
        assert_eq!(Parameter::choice("c", 3).levels(), [0.0, 1.0, 2.0]);
        assert_eq!(Parameter::choice("c", 1).fixed_value(), Some(0.0));
        assert!(Parameter::choice("c", 3).check_value(3.0).is_err());
        assert!(Parameter::choice("c", 0).check().is_err());
    }

    proptest! {
        #[test]
        fn coordinates_of_levels_ascend_from_0_to_1(
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
                prop_assert!(values.windows(2).all(|w| w[0] < w[1]));
                let ascends = |w: &[f64]| parameter.coordinate(w[0]) < parameter.coordinate(w[1]);
                prop_assert!(values.windows(2).all(ascends));
            }
        }
    }
}
