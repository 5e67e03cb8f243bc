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

/// Bounds of a parameter's values; `None` for a boolean.
fn bounds(parameter: &Parameter) -> Option<[f64; 2]> {
    match parameter.scale() {
        Scale::Log { low, high, .. } | Scale::Linear { low, high, .. } => Some([low, high]),
        Scale::Integer { low, high } => Some([low as f64, high as f64]),
        Scale::Boolean => None,
    }
}

/// Whether a value is within the bounds of its parameter, or is the zero of a log scale or the
/// fixed value.
pub(super) fn is_within(parameter: &Parameter, value: f64) -> bool {
    let Some([low, high]) = bounds(parameter) else {
        return true;
    };
    // Levels are computed, so the last one may exceed the bound by a rounding error.
    let slack = 1e-9 * (low.abs() + high.abs());
    let zero = matches!(parameter.scale(), Scale::Log { zero: true, .. }) && value == 0.0;
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
        if let Some([low, high]) = bounds(parameter)
            && !is_within(parameter, value)
        {
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
            Scale::Integer { .. } => Value::from(value as i64),
            Scale::Log { .. } | Scale::Linear { .. } => {
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

    #[test]
    fn settings_outside_of_the_bounds_are_refused() {
        let (space, _) = SpaceLine::parse(LINE).unwrap().space().unwrap();
        let found = |mb: f64, n: f64| {
            let of = |name: &str, value| (name.to_owned(), Number::Value(value));
            let setting = Setting::from([of("mb", mb), of("n", n), of("b", 0.0)]);
            point(&space, &setting).map(|point| point.value(0))
        };
        for inside in [0.0, 1.0, 17.3, 256.0, 256.0 * (1.0 + 1e-12)] {
            assert_eq!(found(inside, 1.0), Ok(inside));
        }
        for outside in [0.5, 257.0, 1e9] {
            let error = found(outside, 1.0).unwrap_err().to_string();
            let part =
                format!("parameter \"mb\" cannot be {outside}: its bounds are 1 to 256; give");
            assert!(error.starts_with(&part), "{error}");
        }
        assert!(found(2.0, 5.0).is_err() && found(2.0, 0.0).is_err());
        let start = LINE.replace("\"mb\":25", "\"mb\":512");
        assert!(SpaceLine::parse(&start).unwrap().space().is_err());
    }

    const LINE: &str = r#"{"parameters":[
        {"name":"mb","scale":"log","low":1,"high":256,"levels":9,"zero":true,"rough":true},
        {"name":"n","scale":"integer","low":1,"high":4},{"name":"b","scale":"boolean"},
        {"name":"x","scale":"linear","low":0,"high":1,"fixed":0.5}],
        "start":{"mb":25,"n":2,"b":false}}"#;

    #[test]
    fn a_space_with_everything() {
        let (space, start) = SpaceLine::parse(LINE).unwrap().space().unwrap();
        assert_eq!(space.lattice(&start).len(), 10 * 4 * 2 + 2);
        assert_eq!(start.values(), [25.0, 2.0, 0.0, 0.5]);
        let rough = space.parameters().iter().map(Parameter::is_rough);
        assert_eq!(rough.collect::<Vec<_>>(), [true, false, false, false]);
        assert_eq!(
            setting(&space, &start).to_string(),
            r#"{"b":false,"mb":25.0,"n":2,"x":0.5}"#
        );
    }

    #[test]
    fn problems_of_a_space_name_the_remedy() {
        let problem = |line: &str| {
            let space = SpaceLine::parse(line).and_then(|line| line.space());
            space.unwrap_err().to_string()
        };
        let missing = problem(r#"{"start":{}}"#);
        assert!(missing.contains("missing field `parameters`"), "{missing}");
        for (parameter, part) in [
            ("", "no parameters; add at least one"),
            (
                r#"{"name":"x","scale":"log","low":4,"high":1}"#,
                "4..1 are reversed; swap them",
            ),
            (
                r#"{"name":"x","scale":"log","low":4}"#,
                "needs low and high; give the bounds",
            ),
            (
                r#"{"name":"x","scale":"lin","low":4,"high":1}"#,
                "unknown variant `lin`, expected one of",
            ),
            (
                r#"{"name":"x","scale":"integer","low":0.5,"high":4}"#,
                "not whole; use the scale linear",
            ),
            (
                r#"{"name":"x","scale":"integer","low":-1e300,"high":4}"#,
                "within +-2^53",
            ),
            (
                r#"{"name":"x","scale":"boolean","low":0,"high":1}"#,
                "cannot have \"low\"",
            ),
            (
                r#"{"name":"x","scale":"boolean"}"#,
                "cannot be 2, expected 0 or 1",
            ),
            (
                r#"{"name":"y","scale":"boolean"}"#,
                "no parameter \"x\"; it has y",
            ),
            (
                r#"{"name":"x","scale":"integer","low":1,"high":4,"levels":3}"#,
                "cannot have \"levels\"",
            ),
            (
                r#"{"name":"x","scale":"boolean","rough":true}"#,
                "cannot have \"rough\"",
            ),
            (
                r#"{"name":"x","scale":"linear","low":1,"high":4,"fixed":3}"#,
                "fixed at 3",
            ),
        ] {
            let line = format!(r#"{{"parameters":[{parameter}],"start":{{"x":2}}}}"#);
            let text = problem(&line);
            assert!(text.contains(part), "{parameter}: {text}");
        }
    }
}
