//! Figure of a run: from the command's output, from a JSON file, or its wall time.

use std::path::PathBuf;

use regex_lite::Regex;

/// Choice of the figure among several matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Use {
    /// The median, which the slower first steps of a training do not move.
    #[default]
    Median,
    /// The last one, of a program that prints a summary or a running mean.
    Last,
}

/// Longest name of a figure, in characters.
const NAME_MOST: usize = 40;

/// A regular expression whose first group is a number.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

/// Source of a run's figure.
#[derive(Clone, Debug)]
pub enum Metric {
    /// Matches in the output.
    Output(Pattern, Use),
    /// Value of a JSON file that the command writes, at this JSON pointer.
    File(PathBuf, String),
    /// Duration of the run in seconds.
    Wall,
}

/// A metric that cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MetricError {
    /// The regular expression is invalid.
    #[error("{option} {text}: {problem}")]
    Pattern {
        /// Option that has it.
        option: &'static str,
        /// Text of the option.
        text: String,
        /// Error text of the library, on one line.
        problem: String,
    },
    /// The regular expression has no group.
    #[error(
        "{option} {text}: it has no group around the number; write parentheses, as in \
         step_ms=([0-9.]+)"
    )]
    NoGroup {
        /// Option that has it.
        option: &'static str,
        /// Text of the option.
        text: String,
    },
    /// The text is not a file with a pointer.
    #[error("--metric-file {text}: write FILE:POINTER, as in result.json:/step_ms")]
    File {
        /// Text of the option.
        text: String,
    },
}

impl Pattern {
    /// Compiles the expression of an option.
    ///
    /// # Errors
    /// It is invalid, or has no group.
    pub fn new(option: &'static str, text: &str) -> Result<Self, MetricError> {
        let regex = Regex::new(text).map_err(|error| MetricError::Pattern {
            option,
            text: text.to_owned(),
            problem: error.to_string(),
        })?;
        if regex.captures_len() < 2 {
            let text = text.to_owned();
            return Err(MetricError::NoGroup { option, text });
        }
        Ok(Self(regex))
    }

    /// Text of the expression.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Texts of the first group of each match in a line.
    pub fn matches<'a>(&'a self, line: &'a str) -> impl Iterator<Item = &'a str> {
        let captures = self.0.captures_iter(line);
        captures.filter_map(|captures| Some(captures.get(1)?.as_str()))
    }

    /// Name of the figure: the text before the group, as `step_ms` in `step_ms=(\d+)`; `None` if
    /// that is not plain text.
    fn name(&self) -> Option<String> {
        let text = self.as_str();
        let mut name = String::new();
        let mut letters = text.chars();
        loop {
            match letters.next()? {
                '(' => break,
                '\\' => name.push(letters.next().filter(|c| !c.is_alphanumeric())?),
                '^' if name.is_empty() => {}
                c if ".*+?[]{}|$".contains(c) => return None,
                c => name.push(c),
            }
        }
        let name = name.trim_matches(|c: char| " =:\"'-".contains(c));
        let is_name = name.chars().any(char::is_alphabetic) && name.chars().count() <= NAME_MOST;
        is_name.then(|| name.to_owned())
    }
}

impl Metric {
    /// Parses `FILE:POINTER` of `--metric-file`.
    ///
    /// # Errors
    /// A text of another form.
    pub fn file(text: &str) -> Result<Self, MetricError> {
        let parts = text
            .rsplit_once(':')
            .filter(|(file, pointer)| !file.is_empty() && !pointer.is_empty());
        let (file, pointer) = parts.ok_or_else(|| MetricError::File {
            text: text.to_owned(),
        })?;
        // The dots of jq and the slashes of RFC 6901 both name a path.
        let pointer = match pointer.starts_with('/') {
            true => pointer.to_owned(),
            false => format!("/{}", pointer.trim_start_matches('.').replace('.', "/")),
        };
        Ok(Self::File(file.into(), pointer))
    }

    /// Name of the figure, with its unit if the name has it.
    pub fn name(&self) -> String {
        match self {
            Self::Output(pattern, _) => pattern.name().unwrap_or_else(|| "metric".to_owned()),
            Self::File(_, pointer) => pointer.rsplit('/').next().unwrap_or("metric").to_owned(),
            Self::Wall => "wall time, s".to_owned(),
        }
    }

    /// Text that identifies the metric in a state file.
    pub fn identity(&self) -> String {
        match self {
            Self::Output(pattern, Use::Last) => format!("last of {}", pattern.as_str()),
            Self::Output(pattern, Use::Median) => format!("median of {}", pattern.as_str()),
            Self::File(path, pointer) => format!("{}:{pointer}", path.display()),
            Self::Wall => "wall time".to_owned(),
        }
    }
}

/// Parses a finite number of a program's output.
pub(crate) fn number(text: &str) -> Option<f64> {
    let text = text.trim().trim_end_matches(',');
    // Programs group the thousands of large numbers. A comma elsewhere is the decimal point of
    // another language: the text is refused, since the value would be ten or a hundred times
    // larger.
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let (first, groups) = whole.split_once(',').unwrap_or((whole, "000"));
    let is_group = |group: &str| group.len() == 3 && group.bytes().all(|b| b.is_ascii_digit());
    let is_grouped = groups.split(',').all(is_group) && !fraction.contains(',');
    let is_decimal = whole.contains(',') && first.trim_start_matches(['-', '+']) == "0";
    if !is_grouped || is_decimal {
        return None;
    }
    let plain = text.replace([',', '_'], "");
    plain.parse::<f64>().ok().filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_checked_and_named() {
        let pattern = |text| Pattern::new("--metric", text);
        let error = |text| pattern(text).unwrap_err().to_string();
        assert_eq!(
            error("a(b"),
            "--metric a(b: found open group without closing ')'"
        );
        assert!(error(r"step_ms=\d+").contains("it has no group around the number"));
        for (text, name) in [
            (r"step_ms=(\d+\.\d+)", "step_ms"),
            (
                r"elapsed time per iteration \(ms\): ([0-9.]+)",
                "elapsed time per iteration (ms)",
            ),
            (r"step\s+(\d+)", "metric"),
            (r"([0-9.]+) img/s", "metric"),
        ] {
            let metric = Metric::Output(pattern(text).unwrap(), Use::Last);
            assert_eq!(metric.name(), name, "{text}");
        }
        let found = pattern(r"ms=([^ ]+)").unwrap();
        assert_eq!(
            found.matches("ms=1.5 ms=x").collect::<Vec<_>>(),
            ["1.5", "x"]
        );
    }

    #[test]
    fn files_have_pointers() {
        let file = |text| match Metric::file(text).unwrap() {
            Metric::File(path, pointer) => format!("{} {pointer}", path.display()),
            _ => String::new(),
        };
        assert_eq!(file("a/r.json:/x/0"), "a/r.json /x/0");
        assert_eq!(file("r.json:x.step_ms"), "r.json /x/step_ms");
        for text in ["r.json", "r.json:", ":x"] {
            assert!(Metric::file(text).is_err(), "{text}");
        }
    }

    #[test]
    fn commas_group_thousands_and_are_no_decimal_points() {
        for (text, value) in [
            ("1,234.5", 1234.5),
            ("12,345,678", 12_345_678.0),
            ("-1,000", -1000.0),
            ("1_000", 1000.0),
            (" 3.5, ", 3.5),
            ("7,", 7.0),
        ] {
            assert_eq!(number(text), Some(value), "{text}");
        }
        for text in [
            "nan",
            "0,45",
            "0,455",
            "1,5",
            "1.234,5",
            "1,2345",
            "12,34,567",
            ",5",
        ] {
            assert_eq!(number(text), None, "{text}");
        }
    }
}
