//! Reads autotune logs: Horovod's in every variant that was ever written, and Ronde's, which begins with the same columns.
//!
//! Horovod's rows are trials in the order in which they ended, `score` in bytes/µs (the higher the better), the threshold in MiB. Its
//! header is without spaces, but a blank stands before the fourth field; old versions lack the torus column, older ones the cache or
//! the hierarchical columns; and only a search that ran to its end repeats the best trial as the last row. Columns are taken by their
//! names, so each of these is just a log of other columns. A job that was killed leaves a last line without its end.
//!
//! ```
//! let log = "hierarchical_allreduce,hierarchical_allgather,cache_enabled,cycle_time_ms,tensor_fusion_threshold,score
//! 0,0,0, 5,4,424.129
//! 0,0,0, 50,32,491.156
//! 0,0,0, 50,32,491.156
//! 0,0,0, 2";
//! let log = ronde_tuner::read_log(log)?;
//! assert_eq!((log.rows.len(), log.best, log.is_ronde), (3, Some(2), false));
//! assert_eq!((log.rows[0].fusion_mb, log.rows[0].score), (Some(4.0), Some(424.129)));
//! assert_eq!(log.warnings[0].to_string(), "line 5 is cut off (4 of 6 fields) and left out");
//! # Ok::<(), ronde_tuner::LogError>(())
//! ```

use csv::{ReaderBuilder, StringRecord, Trim};
use thiserror::Error;

/// The columns that a log must have for its rows to mean anything.
const REQUIRED: [&str; 3] = ["cycle_time_ms", "tensor_fusion_threshold", "score"];
/// Warnings that are kept; a file of another kind would give one per line.
const WARNINGS_MAX: usize = 100;

/// A log as it was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogContents {
    /// The columns' names, in the file's order.
    pub columns: Vec<String>,
    /// The rows, in the file's order.
    pub rows: Vec<LogRow>,
    /// Index of the last row that says what is best, instead of being a trial: Horovod's repetition of the best trial at the end of
    /// a finished search, our trailing row.
    pub best: Option<usize>,
    /// Whether Ronde wrote it (it has a column `phase`).
    pub is_ronde: bool,
    /// What was left out and why.
    pub warnings: Vec<LogWarning>,
}

/// A row. Fields that the log does not have, or that are empty, are none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogRow {
    /// Line in the file, from 1.
    pub line: u64,
    /// Whether allreduce was hierarchical.
    pub hierarchical_allreduce: Option<bool>,
    /// Whether allgather was.
    pub hierarchical_allgather: Option<bool>,
    /// Whether allreduce used a torus.
    pub torus_allreduce: Option<bool>,
    /// Whether the response cache was on.
    pub cache_enabled: Option<bool>,
    /// Cycle time, ms.
    pub cycle_time_ms: Option<f64>,
    /// Fusion threshold, MiB.
    pub fusion_mb: Option<f64>,
    /// Bytes/µs.
    pub score: Option<f64>,
    /// Ronde: `default`, `sample`, `ab`, `best` or `final`.
    pub phase: Option<String>,
    /// Ronde: index of the sample or round.
    pub sample: Option<u64>,
    /// Ronde: steps that it rests on.
    pub steps: Option<u64>,
    /// Ronde: median step time, ms.
    pub step_ms_p50: Option<f64>,
    /// Ronde: half width of the 95 % interval of the step time, ms.
    pub step_ms_ci95: Option<f64>,
    /// Ronde: the step time that was predicted, ms.
    pub predicted_step_ms: Option<f64>,
    /// Ronde: share of the step spent in negotiation.
    pub negotiate_share: Option<f64>,
    /// Columns that are none of these, by name, with what stands there.
    pub other: Vec<(String, String)>,
}

/// A line that was left out, or a field that was.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum LogWarning {
    /// A line with too few fields.
    #[error("line {line} is cut off ({found} of {expected} fields) and left out")]
    CutOff {
        /// Line, from 1.
        line: u64,
        /// Fields found.
        found: usize,
        /// Columns of the log.
        expected: usize,
    },
    /// A last line whose last field may have lost its end.
    #[error("line {line} has no line end, so its last field may be cut off, and is left out")]
    NoEnd {
        /// Line, from 1.
        line: u64,
    },
    /// A line with too many fields.
    #[error("line {line} has {found} fields where the header has {expected}, and is left out")]
    TooLong {
        /// Line, from 1.
        line: u64,
        /// Fields found.
        found: usize,
        /// Columns of the log.
        expected: usize,
    },
    /// A field that cannot be read; the rest of the row can.
    #[error("line {line}: {column} is {value:?}, expected {expected}")]
    Field {
        /// Line, from 1.
        line: u64,
        /// The column.
        column: String,
        /// What stands there.
        value: String,
        /// What should.
        expected: &'static str,
    },
    /// A line that is no CSV, or no UTF-8.
    #[error("line {line} cannot be read and is left out: {message}")]
    Unreadable {
        /// Line, from 1.
        line: u64,
        /// What the parser says.
        message: String,
    },
}

/// A text that is no autotune log.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum LogError {
    /// No line at all.
    #[error("the log is empty: the job ended before its header was written")]
    Empty,
    /// A header without the columns that every log has.
    #[error("not an autotune log: column {missing:?} is missing from the header (line 1: {header:?})")]
    Header {
        /// The first column that is missing.
        missing: &'static str,
        /// The first line.
        header: String,
    },
}

impl LogContents {
    /// The rows that are trials: all but those that say what is best.
    pub fn trials(&self) -> impl Iterator<Item = &LogRow> {
        let last = self.best.filter(|_| !self.is_ronde);
        self.rows.iter().enumerate().filter_map(move |(index, row)| {
            let sums_up = matches!(row.phase.as_deref(), Some("best" | "final"));
            (Some(index) != last && !sums_up).then_some(row)
        })
    }

    fn warn(&mut self, warning: LogWarning) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(warning);
        }
    }
}

/// Reads the text of an autotune log.
///
/// # Errors
/// An empty text, or one whose header is not that of an autotune log. Rows that cannot be read are warnings.
pub fn read_log(text: &str) -> Result<LogContents, LogError> {
    // A file that went through an editor on Windows begins with a mark that is no part of the first column's name.
    let text = text.trim_start_matches('\u{feff}');
    let mut reader = ReaderBuilder::new()
        .flexible(true)
        .trim(Trim::All)
        .from_reader(text.as_bytes());
    let header = reader.headers().cloned().unwrap_or_default();
    if header.iter().all(str::is_empty) {
        return Err(LogError::Empty);
    }
    if let Some(missing) = REQUIRED
        .into_iter()
        .find(|name| !header.iter().any(|h| h == *name))
    {
        let header = text
            .lines()
            .next()
            .unwrap_or_default()
            .chars()
            .take(200)
            .collect();
        return Err(LogError::Header { missing, header });
    }
    let mut log = LogContents {
        columns: header.iter().map(str::to_owned).collect(),
        is_ronde: header.iter().any(|name| name == "phase"),
        ..LogContents::default()
    };
    let mut record = StringRecord::new();
    loop {
        match reader.read_record(&mut record) {
            Ok(false) => break,
            Ok(true) => log.take(&record, text),
            Err(error) => {
                let line = error.position().map_or(0, csv::Position::line);
                let message = error.to_string();
                log.warn(LogWarning::Unreadable { line, message });
                // The reader goes on after bad UTF-8, which text cannot have, and after nothing else.
                break;
            }
        }
    }
    log.best = best(&log);
    Ok(log)
}

impl LogContents {
    fn take(&mut self, record: &StringRecord, text: &str) {
        let (line, ends) = place(record, text);
        let (found, expected) = (record.len(), self.columns.len());
        if found > expected {
            return self.warn(LogWarning::TooLong {
                line,
                found,
                expected,
            });
        }
        if found < expected {
            return self.warn(LogWarning::CutOff {
                line,
                found,
                expected,
            });
        }
        if !ends {
            return self.warn(LogWarning::NoEnd { line });
        }
        let mut fields = Fields {
            line,
            warnings: Vec::new(),
        };
        let mut row = LogRow {
            line,
            ..LogRow::default()
        };
        for (column, value) in self.columns.iter().zip(record) {
            match column.as_str() {
                "hierarchical_allreduce" => row.hierarchical_allreduce = fields.flag(column, value),
                "hierarchical_allgather" => row.hierarchical_allgather = fields.flag(column, value),
                "torus_allreduce" => row.torus_allreduce = fields.flag(column, value),
                "cache_enabled" => row.cache_enabled = fields.flag(column, value),
                "cycle_time_ms" => row.cycle_time_ms = fields.number(column, value),
                "tensor_fusion_threshold" => row.fusion_mb = fields.number(column, value),
                "score" => row.score = fields.number(column, value),
                "phase" => row.phase = Some(value.to_owned()).filter(|phase| !phase.is_empty()),
                "sample" => row.sample = fields.count(column, value),
                "steps" => row.steps = fields.count(column, value),
                "step_ms_p50" => row.step_ms_p50 = fields.number(column, value),
                "step_ms_ci95" => row.step_ms_ci95 = fields.number(column, value),
                "predicted_step_ms" => row.predicted_step_ms = fields.number(column, value),
                "negotiate_share" => row.negotiate_share = fields.number(column, value),
                _ => row.other.push((column.clone(), value.to_owned())),
            }
        }
        fields.warnings.into_iter().for_each(|warning| self.warn(warning));
        self.rows.push(row);
    }
}

/// The line of a record, and whether that line has its end.
fn place(record: &StringRecord, text: &str) -> (u64, bool) {
    let Some(position) = record.position() else {
        return (0, true);
    };
    let from = usize::try_from(position.byte()).unwrap_or(usize::MAX);
    let rest = text.get(from..).unwrap_or_default();
    // The parser counts empty lines before a record to it.
    let record = rest.trim_start_matches(['\r', '\n']);
    let skipped = rest[..rest.len() - record.len()].matches('\n').count();
    (position.line() + skipped as u64, record.contains('\n'))
}

/// Reads the fields of one line.
struct Fields {
    line: u64,
    warnings: Vec<LogWarning>,
}

impl Fields {
    fn flag(&mut self, column: &str, value: &str) -> Option<bool> {
        match value {
            "0" => Some(false),
            "1" => Some(true),
            _ => self.bad(column, value, "0 or 1"),
        }
    }

    fn number(&mut self, column: &str, value: &str) -> Option<f64> {
        let number = value
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite() && *number >= 0.0);
        number.or_else(|| self.bad(column, value, "a number >= 0"))
    }

    fn count(&mut self, column: &str, value: &str) -> Option<u64> {
        value
            .parse()
            .ok()
            .or_else(|| self.bad(column, value, "a whole number >= 0"))
    }

    /// An empty field is nothing to warn of.
    fn bad<T>(&mut self, column: &str, value: &str, expected: &'static str) -> Option<T> {
        if !value.is_empty() {
            let (column, value) = (column.to_owned(), value.chars().take(40).collect());
            self.warnings.push(LogWarning::Field {
                line: self.line,
                column,
                value,
                expected,
            });
        }
        None
    }
}

/// Index of the row that says what is best.
fn best(log: &LogContents) -> Option<usize> {
    if log.is_ronde {
        return log
            .rows
            .iter()
            .rposition(|row| row.phase.as_deref() == Some("best"));
    }
    // Horovod repeats the trial of the highest score; a trial that happens to come last does not repeat another one.
    let (last, trials) = log.rows.split_last()?;
    let same = |row: &LogRow| {
        LogRow {
            line: last.line,
            ..row.clone()
        } == *last
    };
    let highest = trials.iter().all(|row| row.score <= last.score);
    (highest && trials.iter().any(same)).then_some(log.rows.len() - 1)
}

#[cfg(test)]
mod tests;
