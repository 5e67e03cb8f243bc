//! Parameters: a name with a list of values, parsed from a text.
//!
//! ```
//! use ronde_command::Parameter;
//! let bucket: Parameter = "bucket=1..256,log,start=25".parse()?;
//! assert_eq!(bucket.values()[..4], ["1", "2", "3", "4"]);
//! assert_eq!(bucket.value(bucket.start()), "25");
//! let algorithm: Parameter = "algo=ring|tree".parse()?;
//! assert_eq!(algorithm.values(), ["ring", "tree"]);
//! # Ok::<(), ronde_command::ParameterError>(())
//! ```
//!
//! A range whose ends have no decimal point has whole values only.

mod number;

use std::fmt;
use std::str::FromStr;

use number::Number;
use serde::{Deserialize, Serialize};

/// Number of values of a range.
const LEVELS: usize = 17;
/// Most values of a parameter.
const LEVELS_MOST: usize = 256;

/// Name of the placeholder of the configuration file's copy.
pub(crate) const RESERVED: &str = "config";

/// Relation of the values of a parameter to one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Numbers in ascending or descending order: neighbours have similar effects.
    Ordered,
    /// Names.
    Unordered,
}

/// A parameter of a command.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    name: String,
    values: Vec<String>,
    order: Order,
    start: usize,
    /// Whether the text has the start, or it is the middle of the range or the first of the list.
    start_given: bool,
}

/// A text that is not a parameter.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("--parameter {text}: {problem}; {hint}")]
pub struct ParameterError {
    text: String,
    problem: String,
    hint: &'static str,
}

/// A value of each parameter, as an index into its values.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Setting(pub Vec<usize>);

impl Parameter {
    /// Name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Values as they are passed to the command.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// Value of this index.
    ///
    /// # Panics
    /// If there is no such value.
    pub fn value(&self, index: usize) -> &str {
        &self.values[index]
    }

    /// Relation of the values to one another.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Index of the value that the search starts with.
    pub fn start(&self) -> usize {
        self.start
    }

    /// The same parameter with another start.
    ///
    /// # Panics
    /// If there is no such value.
    #[must_use]
    pub fn starting_at(self, start: usize) -> Self {
        assert!(start < self.values.len());
        Self { start, ..self }
    }

    /// Whether the user gave the start.
    pub fn start_is_given(&self) -> bool {
        self.start_given
    }

    /// The tuner's parameter over the indices of the values.
    pub(crate) fn of_tuner(&self) -> ronde_tuner::Parameter {
        let count = self.values.len();
        match (self.order, count) {
            (_, 2) => ronde_tuner::Parameter::boolean(&self.name),
            (Order::Ordered, 2..) => {
                ronde_tuner::Parameter::linear(&self.name, 0.0, (count - 1) as f64, count)
            }
            _ => ronde_tuner::Parameter::choice(&self.name, count),
        }
    }
}

impl fmt::Display for Parameter {
    /// The name and all values, which identify the parameter in a state file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, values, .. } = self;
        let start = &values[self.start];
        write!(f, "{name}={},start={start}", values.join("|"))
    }
}

/// Options after the values.
#[derive(Default)]
struct Options<'a> {
    log: bool,
    linear: bool,
    integer: bool,
    start: Option<&'a str>,
    levels: Option<usize>,
}

/// A problem, and what to try.
type Problem = (String, &'static str);

const FORMS: &str = "write NAME=LOW..HIGH with options log, linear, integer, levels=N, start=V, or \
                     NAME=A|B|C, or NAME=boolean";

impl FromStr for Parameter {
    type Err = ParameterError;

    fn from_str(text: &str) -> Result<Self, ParameterError> {
        parse(text).map_err(|(problem, hint)| ParameterError {
            text: text.to_owned(),
            problem,
            hint,
        })
    }
}

fn parse(text: &str) -> Result<Parameter, Problem> {
    let named = text.split_once('=').filter(|(name, _)| is_name(name));
    let (name, rest) = named.ok_or_else(|| ("it does not begin with NAME=".to_owned(), FORMS))?;
    if name == RESERVED {
        let problem = format!("{{{RESERVED}}} is the path of the configuration file's copy");
        return Err((problem, "give it another name"));
    }
    let mut parts = rest.split(',');
    let values = parts.next().unwrap_or_default();
    let options = options(parts)?;
    let made = match values.split_once("..") {
        Some((low, high)) => range(low, high, &options)?,
        None if options.log || options.linear || options.levels.is_some() || options.integer => {
            let problem = "log, linear, integer and levels are options of a range".to_owned();
            return Err((problem, FORMS));
        }
        None if values == "boolean" => list(&["false", "true"], options.start)?,
        None => list(&values.split('|').collect::<Vec<_>>(), options.start)?,
    };
    let (values, order, start) = made;
    Ok(Parameter {
        name: name.to_owned(),
        values,
        order,
        start,
        start_given: options.start.is_some(),
    })
}

/// Whether a text is a name that can stand in braces.
pub(crate) fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    letters
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && letters.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

fn options<'a>(parts: impl Iterator<Item = &'a str>) -> Result<Options<'a>, Problem> {
    let mut options = Options::default();
    for part in parts {
        match part.split_once('=').unwrap_or((part, "")) {
            ("log", "") => options.log = true,
            ("linear", "") => options.linear = true,
            ("integer", "") => options.integer = true,
            ("start", value) if !value.is_empty() => options.start = Some(value),
            ("levels", count) => {
                let count = count.parse().ok().filter(|n| (2..=LEVELS_MOST).contains(n));
                options.levels = Some(count.ok_or_else(|| {
                    let problem =
                        format!("{part:?} is not a number of values from 2 to {LEVELS_MOST}");
                    (problem, "write levels=9, for example")
                })?);
            }
            _ => return Err((format!("there is no option {part:?}"), FORMS)),
        }
    }
    if options.log && options.linear {
        return Err((
            "a range is either log or linear".to_owned(),
            "leave one of them out",
        ));
    }
    Ok(options)
}

type Made = (Vec<String>, Order, usize);

fn range(low: &str, high: &str, options: &Options) -> Result<Made, Problem> {
    let number = |text: &str| {
        Number::parse(text).ok_or_else(|| {
            let problem = format!("{text:?} is not a number");
            (problem, "write numbers such as 8, 0.5, 1e6 or 25MiB")
        })
    };
    let (low, high) = (number(low)?, number(high)?);
    if low.value > high.value {
        return Err((
            "its ends are reversed".to_owned(),
            "write the lower one first",
        ));
    }
    if low.value == high.value {
        let problem = "its ends are equal, so there is nothing to search".to_owned();
        return Err((problem, "write the value into the command"));
    }
    if options.log && low.value <= 0.0 {
        let hint = "begin above 0, or list the values: 0|1|4|16";
        return Err(("a log range cannot contain 0".to_owned(), hint));
    }
    let is_whole = low.is_whole && high.is_whole;
    if options.integer && !is_whole {
        let hint = "write ends without a decimal point";
        return Err(("an integer range has whole ends".to_owned(), hint));
    }
    let levels = options.levels.unwrap_or(LEVELS);
    let mut numbers = spaced(low.value, high.value, options.log, is_whole, levels);
    let start = match options.start {
        None => numbers.len() / 2,
        Some(text) => {
            let start = number(text)?;
            if !(low.value..=high.value).contains(&start.value) {
                let problem = format!("the start {text} is outside of the range");
                return Err((problem, "give a wider range, or another start"));
            }
            if is_whole && start.value.fract() != 0.0 {
                let problem = format!("the start {text} is not whole, and the ends are");
                let hint = "give a whole start, or ends with a decimal point, as in 1.0..16.0";
                return Err((problem, hint));
            }
            place(&mut numbers, start.value, options.log)
        }
    };
    let values = numbers.iter().map(|value| number::text(*value)).collect();
    Ok((values, Order::Ordered, start))
}

/// Ascending distinct values from `low` to `high`.
fn spaced(low: f64, high: f64, log: bool, is_whole: bool, levels: usize) -> Vec<f64> {
    let top = (levels - 1) as f64;
    let between = |i: usize| {
        let share = i as f64 / top;
        let value = if log {
            low * (high / low).powf(share)
        } else {
            low + (high - low) * share
        };
        let value = if is_whole {
            value.round()
        } else {
            number::rounded(value)
        };
        value.clamp(low, high)
    };
    let mut values: Vec<f64> = (0..levels)
        .map(|i| match i {
            0 => low,
            i if i + 1 == levels => high,
            i => between(i),
        })
        .collect();
    // Whole values of a short range repeat.
    values.dedup();
    values
}

/// Puts the start into the list, in the place of the nearest value that is not an end; returns its
/// index.
fn place(numbers: &mut Vec<f64>, start: f64, log: bool) -> usize {
    if let Some(index) = numbers.iter().position(|value| *value == start) {
        return index;
    }
    let distance = |value: f64| {
        if log {
            (value / start).ln().abs()
        } else {
            (value - start).abs()
        }
    };
    let inner = 1..numbers.len() - 1;
    let nearest = inner.min_by(|a, b| distance(numbers[*a]).total_cmp(&distance(numbers[*b])));
    match nearest {
        Some(index) => {
            numbers[index] = start;
            // Between two values far apart, the nearest may be on the other side of a neighbour.
            numbers.sort_by(f64::total_cmp);
        }
        None => numbers.insert(1, start),
    }
    numbers
        .iter()
        .position(|value| *value == start)
        .unwrap_or(0)
}

fn list(values: &[&str], start: Option<&str>) -> Result<Made, Problem> {
    let hint = "separate the values by |, as in ring|tree";
    if values.len() < 2 {
        let problem = match values {
            [""] | [] => "it has no values".to_owned(),
            _ => "it has one value, so there is nothing to search".to_owned(),
        };
        return Err((problem, FORMS));
    }
    if values.len() > LEVELS_MOST {
        let problem = format!(
            "it has {} values, at most {LEVELS_MOST} are searched",
            values.len()
        );
        return Err((problem, "give fewer"));
    }
    if let Some((_, value)) = (values.iter().enumerate())
        .find(|(index, value)| value.is_empty() || values[..*index].contains(value))
    {
        return Err((format!("the value {value:?} is empty or repeated"), hint));
    }
    let numbers: Option<Vec<f64>> = values
        .iter()
        .map(|value| Some(Number::parse(value)?.value))
        .collect();
    let is_ordered = numbers.is_some_and(|numbers| {
        let mut pairs = numbers.windows(2);
        pairs.clone().all(|pair| pair[0] < pair[1]) || pairs.all(|pair| pair[0] > pair[1])
    });
    let order = if is_ordered {
        Order::Ordered
    } else {
        Order::Unordered
    };
    let start = match start {
        None => 0,
        Some(start) => values
            .iter()
            .position(|value| *value == start)
            .ok_or_else(|| {
                let problem = format!("the start {start:?} is not one of the values");
                (problem, "add it to the list")
            })?,
    };
    Ok((
        values.iter().map(|value| (*value).to_owned()).collect(),
        order,
        start,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_understood_or_the_error_names_the_remedy() {
        ronde_cases::check("parameters.txt", |text| match text.parse::<Parameter>() {
            Ok(parameter) => format!("{parameter}, {:?}", parameter.order()),
            Err(error) => error.to_string(),
        });
    }

    #[test]
    fn a_start_between_levels_takes_the_place_of_the_nearest() {
        let parameter: Parameter = "b=1..256,log,start=25".parse().unwrap();
        assert_eq!(parameter.values().len(), 17 - 1, "1.4 is 1 again");
        assert!(parameter.values().contains(&"25".to_owned()));
        let pair: Parameter = "x=1..2,start=1".parse().unwrap();
        assert_eq!(
            (pair.values(), pair.start()),
            (&["1".to_owned(), "2".to_owned()][..], 0)
        );
    }
}
