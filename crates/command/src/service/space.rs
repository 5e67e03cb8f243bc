//! First line of `ronde tune`: parameters, setting in force, and options of the tuner.

use std::collections::BTreeMap;

use ronde_tuner::{Parameter, Point, Scale, Space};
use serde::Deserialize;
use serde_json::{Map, Number as JsonNumber, Value};

use super::request::{Number, Problem, Setting, json};

/// Default number of levels of a log or linear scale.
const LEVELS: usize = 17;

/// First line, as parsed from JSON.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SpaceLine {
    parameters: Vec<ParameterLine>,
    start: Setting,
    #[serde(default)]
    pub(super) seed: Option<u64>,
    #[serde(default)]
    pub(super) max_samples: Option<u32>,
    #[serde(default)]
    pub(super) steps_per_sample: Option<u32>,
    #[serde(default)]
    pub(super) steps: Option<u64>,
    #[serde(default)]
    pub(super) key: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ParameterLine {
    name: String,
    scale: ScaleName,
    low: Option<f64>,
    high: Option<f64>,
    levels: Option<usize>,
    #[serde(default)]
    zero: bool,
    #[serde(default)]
    rough: bool,
    fixed: Option<Number>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum ScaleName {
    Log,
    Linear,
    Integer,
    Boolean,
}

impl SpaceLine {
    pub(super) fn parse(line: &str) -> Result<Self, Problem> {
        json(line)
    }

    /// Returns the space and the start setting.
    pub(super) fn space(&self) -> Result<(Space, Point), Problem> {
        let parameters = self.parameters.iter().map(ParameterLine::parameter);
        let space = Space::new(parameters.collect::<Result<_, _>>()?)?;
        let start = point(&space, &self.start)?;
        Ok((space, start))
    }
}

impl ParameterLine {
    fn parameter(&self) -> Result<Parameter, Problem> {
        let name = &self.name;
        let problem =
            |what: &str, hint: &str| Problem::new(format!("parameter {name:?} {what}"), hint);
        let fields = [
            ("low", self.low.is_some()),
            ("high", self.high.is_some()),
            ("rough", self.rough),
            ("levels", self.levels.is_some()),
            ("zero", self.zero),
        ];
        let allowed = match self.scale {
            ScaleName::Log => 5,
            ScaleName::Linear => 4,
            ScaleName::Integer => 3,
            ScaleName::Boolean => 0,
        };
        if let Some((field, _)) = fields[allowed..].iter().find(|(_, given)| *given) {
            let what = format!("cannot have {field:?}");
            return Err(problem(&what, "its scale has none, leave it out"));
        }
        let levels = self.levels.unwrap_or(LEVELS);
        let mut parameter = match (self.scale, self.low, self.high) {
            (ScaleName::Boolean, ..) => Parameter::boolean(name),
            (_, None, _) | (_, _, None) => {
                return Err(problem(
                    "needs low and high",
                    "give the bounds of its values",
                ));
            }
            (ScaleName::Log, Some(low), Some(high)) => Parameter::log(name, low, high, levels),
            (ScaleName::Linear, Some(low), Some(high)) => {
                Parameter::linear(name, low, high, levels)
            }
            (ScaleName::Integer, Some(low), Some(high)) => {
                if low.fract() != 0.0 || high.fract() != 0.0 {
                    let what = "has bounds that are not whole";
                    return Err(problem(what, "use the scale linear"));
                }
                // Values beyond 64 bits saturate, and are then rejected as too large.
                Parameter::integer(name, low as i64, high as i64)
            }
        };
        if self.zero {
            parameter = parameter.with_zero();
        }
        if self.rough {
            parameter = parameter.rough();
        }
        if let Some(value) = self.fixed {
            parameter = parameter.fixed(value.value());
        }
        Ok(parameter)
    }
}

/// Whether a value is within the bounds of its parameter, or is the zero of a log scale or the
/// fixed value.
pub(super) fn is_within(parameter: &Parameter, value: f64) -> bool {
    let [low, high] = parameter.bounds();
    // Levels are computed, so the last one may exceed the bound by a rounding error.
    let slack = 1e-9 * (low.abs() + high.abs());
    let zero = parameter.has_zero() && value == 0.0;
    zero || parameter.fixed_value() == Some(value) || (low - slack..=high + slack).contains(&value)
}

/// Converts a setting by name to a point within the bounds. A fixed parameter may be omitted.
pub(super) fn point(space: &Space, setting: &Setting) -> Result<Point, Problem> {
    let parameters = space.parameters();
    if let Some(name) = setting
        .keys()
        .find(|name| parameters.iter().all(|p| p.name() != *name))
    {
        let names: Vec<&str> = parameters.iter().map(Parameter::name).collect();
        return Err(Problem::new(
            format!("the space has no parameter {name:?}"),
            format!("it has {}", names.join(", ")),
        ));
    }
    let value = |parameter: &Parameter| {
        let given = setting.get(parameter.name()).map(|number| number.value());
        given.or(parameter.fixed_value()).ok_or_else(|| {
            Problem::new(
                format!("the setting lacks {:?}", parameter.name()),
                "give every parameter that is not fixed a value",
            )
        })
    };
    let values: Result<Vec<f64>, Problem> = parameters.iter().map(value).collect();
    let point = space.point(&values?)?;
    for (parameter, &value) in parameters.iter().zip(point.values()) {
        if !is_within(parameter, value) {
            let [low, high] = parameter.bounds();
            return Err(Problem::new(
                format!(
                    "parameter {:?} cannot be {value}: its bounds are {low} to {high}",
                    parameter.name()
                ),
                "give a value within the bounds, or wider bounds on the first line",
            ));
        }
    }
    Ok(point)
}

/// Formats a setting as JSON: booleans as true and false, whole numbers without a fraction.
pub(super) fn setting(space: &Space, point: &Point) -> Value {
    let mut entries = Map::new();
    for (parameter, &value) in space.parameters().iter().zip(point.values()) {
        let value = match parameter.scale() {
            Scale::Boolean => Value::Bool(value != 0.0),
            Scale::Integer | Scale::Choice => Value::from(value as i64),
            Scale::Log | Scale::Linear => {
                JsonNumber::from_f64(value).map_or(Value::Null, Value::Number)
            }
        };
        entries.insert(parameter.name().to_owned(), value);
    }
    Value::Object(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answer to a first line: the number of settings and the start, then each setting that follows
    /// on a line of its own; or the error.
    fn answer(input: &str) -> Result<String, Problem> {
        let mut lines = input.lines();
        let (space, start) = SpaceLine::parse(lines.next().unwrap())?.space()?;
        let rough = space.parameters().iter().filter(|one| one.is_rough());
        let (settings, rough) = (space.lattice(&start).len(), rough.count());
        let start = setting(&space, &start);
        let mut answer = format!("{settings} settings, {rough} rough, start {start}");
        for line in lines {
            let found = point(&space, &json(line)?);
            let found = found.map(|point| setting(&space, &point).to_string());
            answer += &format!("\n{}", found.unwrap_or_else(|problem| problem.to_string()));
        }
        Ok(answer)
    }

    #[test]
    fn spaces_and_settings_are_understood_or_the_error_names_the_remedy() {
        ronde_cases::check("tune_spaces.txt", |input| {
            answer(input).unwrap_or_else(|problem| problem.to_string())
        });
    }
}
