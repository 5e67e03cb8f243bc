//! Requests of `ronde tune`: parser of the lines after the first.

use std::collections::BTreeMap;
use std::fmt;

use ronde_tuner::Observation;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::answer::Answer;

/// Error in a line, with a hint for the user.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    message: String,
    hint: String,
}

impl Problem {
    pub(super) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: hint.into(),
        }
    }

    pub(super) fn answer(&self, line: u64) -> Answer {
        Answer::Error {
            line,
            message: self.message.clone(),
            hint: self.hint.clone(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.hint)
    }
}

impl From<ronde_tuner::Error> for Problem {
    fn from(error: ronde_tuner::Error) -> Self {
        // These messages contain the expected value or a hint themselves.
        let text = error.to_string();
        match text.split_once("; ") {
            Some((message, hint)) => Self::new(message, hint),
            None => Self::new(text, "see docs/TUNE.md for what each field takes"),
        }
    }
}

/// Number, or true and false for 1 and 0.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(untagged, expecting = "expected a number, true or false")]
pub(super) enum Number {
    /// A JSON number.
    Value(f64),
    /// Value of a boolean parameter.
    Flag(bool),
}

impl Number {
    pub(super) fn value(self) -> f64 {
        match self {
            Self::Value(value) => value,
            Self::Flag(flag) => f64::from(u8::from(flag)),
        }
    }
}

/// Setting by parameter name.
pub(super) type Setting = BTreeMap<String, Number>;

/// Measurement at a setting.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tell {
    pub(super) setting: Setting,
    value: f64,
    #[serde(default)]
    spread: f64,
    #[serde(default = "one")]
    steps: u32,
}

fn one() -> u32 {
    1
}

impl Tell {
    pub(super) fn observation(&self) -> Observation {
        Observation {
            value: self.value,
            spread: self.spread,
            steps: self.steps,
        }
    }
}

/// Line after the first: an object with one of these names.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// Time of a step, in ms.
    StepMs(f64),
    /// Requests the next setting to measure.
    Ask(Nothing),
    /// Reports a measurement.
    Tell(Tell),
    /// Requests the state of the search.
    Report(Nothing),
}

/// An object without fields.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

impl Request {
    pub(super) fn parse(line: &str) -> Result<Self, Problem> {
        if let Ok(Value::Object(object)) = serde_json::from_str(line)
            && object.len() != 1
        {
            let hint = "write one of step_ms, ask, tell, report";
            return Err(Problem::new("a request has one name", hint));
        }
        match json(line)? {
            Self::StepMs(ms) if ms <= 0.0 => Err(Problem::new(
                format!("step_ms cannot be {ms}, expected a number > 0"),
                "leave out steps that were not timed",
            )),
            request => Ok(request),
        }
    }
}

/// Parses a line that holds a JSON object.
pub(super) fn json<T: DeserializeOwned>(line: &str) -> Result<T, Problem> {
    // serde would assign the elements of an array to the fields by their order.
    if serde_json::from_str::<Value>(line).is_ok_and(|value| !value.is_object()) {
        return Err(Problem::new(
            "a request is a JSON object",
            "write it as {\"name\":…}, and see docs/TUNE.md for the names",
        ));
    }
    serde_json::from_str(line).map_err(|error| {
        // The parser gets one line at a time, so its line number is always 1.
        let text = error.to_string().replace(" at line 1 column ", ", column ");
        let hint = if error.is_data() {
            "see docs/TUNE.md for the fields"
        } else {
            "write each request as one JSON object on a line of its own"
        };
        Problem::new(text, hint)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_understood_or_the_error_names_the_remedy() {
        ronde_cases::check("tune_requests.txt", |line| match Request::parse(line) {
            Ok(Request::Tell(tell)) => format!("{:?} at {:?}", tell.observation(), tell.setting),
            Ok(request) => format!("{request:?}"),
            Err(problem) => problem.to_string(),
        });
    }
}
