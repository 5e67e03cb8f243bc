//! Requests of `ronde tune`: parser of the lines after the first.

use std::collections::BTreeMap;
use std::fmt;

use ronde_tuner::Observation;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::answer::Answer;

/// Names of the requests, for messages.
const REQUESTS: [&str; 4] = ["step_ms", "ask", "tell", "report"];

/// Error in a line, with a hint for the user.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Problem {
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

/// Line after the first.
#[derive(Debug)]
pub(super) enum Request {
    /// Time of a step, in ms.
    Step(f64),
    /// Requests the next setting to measure.
    Ask,
    /// Reports a measurement.
    Tell(Tell),
    /// Requests the state of the search.
    Report,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

impl Request {
    pub(super) fn parse(line: &str) -> Result<Self, Problem> {
        let object: BTreeMap<String, Value> = json(line)?;
        let mut entries = object.into_iter();
        let (Some((name, value)), None) = (entries.next(), entries.next()) else {
            return Err(Problem::new(
                "a request has one name",
                format!("write one of {}", REQUESTS.join(", ")),
            ));
        };
        match name.as_str() {
            "step_ms" => match value.as_f64() {
                Some(step_ms) if step_ms > 0.0 && step_ms.is_finite() => Ok(Self::Step(step_ms)),
                _ => Err(Problem::new(
                    format!("step_ms cannot be {value}, expected a number > 0"),
                    "leave out steps that were not timed",
                )),
            },
            "ask" => typed::<Nothing>(&name, value).map(|_| Self::Ask),
            "tell" => typed(&name, value).map(Self::Tell),
            "report" => typed::<Nothing>(&name, value).map(|_| Self::Report),
            "parameters" => Err(Problem::new(
                "the parameters were given before",
                "start another ronde tune for another space",
            )),
            _ => Err(Problem::new(
                format!("no request is named {name:?}"),
                format!("write one of {}", REQUESTS.join(", ")),
            )),
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
        let text = error.to_string();
        // The parser gets one line at a time, so its line number is always 1.
        let text = text.replace(" at line 1 column ", ", column ");
        let hint = if error.is_data() {
            "see docs/TUNE.md for the fields"
        } else {
            "write each request as one JSON object on a line of its own"
        };
        Problem::new(text, hint)
    })
}

fn typed<T: DeserializeOwned>(name: &str, value: Value) -> Result<T, Problem> {
    serde_json::from_value(value).map_err(|error| {
        Problem::new(
            format!("{name}: {error}"),
            "see docs/TUNE.md for the fields",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(line: &str) -> String {
        Request::parse(line).unwrap_err().to_string()
    }

    #[test]
    fn requests_by_name() {
        assert!(matches!(
            Request::parse(r#"{"step_ms": 4}"#),
            Ok(Request::Step(4.0))
        ));
        assert!(matches!(Request::parse(r#"{"ask":{}}"#), Ok(Request::Ask)));
        let tell = Request::parse(r#"{"tell":{"setting":{"a":1.5,"b":true},"value":3}}"#);
        let Ok(Request::Tell(tell)) = tell else {
            panic!()
        };
        assert_eq!(tell.observation(), Observation::of(3.0));
        assert_eq!(
            (tell.setting["a"].value(), tell.setting["b"].value()),
            (1.5, 1.0)
        );
    }

    #[test]
    fn problems_say_what_to_try() {
        assert_eq!(
            problem(r#"{"stepms": 4}"#),
            "no request is named \"stepms\"; write one of step_ms, ask, tell, report"
        );
        assert!(problem("{}").starts_with("a request has one name; write one of"));
        for value in ["0", "-1", "null", "\"4\""] {
            let text = problem(&format!(r#"{{"step_ms": {value}}}"#));
            assert!(text.contains("expected a number > 0; leave out"), "{text}");
        }
        assert!(
            problem(r#"{"step_ms": 1e999}"#).contains("number out of range"),
            "{}",
            problem(r#"{"step_ms": 1e999}"#)
        );
        for none in ["[]", "null", "3", r#"["ask"]"#] {
            assert!(
                problem(none).starts_with("a request is a JSON object"),
                "{none}"
            );
        }
        for broken in [r#"{"ask""#, "ask"] {
            let text = problem(broken);
            assert!(text.contains("one JSON object on a line"), "{text}");
        }
        assert!(problem(r#"{"tell":{"value":3}}"#).contains("tell: missing field `setting`"));
        assert!(
            problem(r#"{"tell":{"setting":{"a":"x"},"value":3}}"#)
                .contains("a number, true or false")
        );
        assert!(problem(r#"{"ask":{"n":2}}"#).contains("ask: unknown field `n`"));
    }
}
