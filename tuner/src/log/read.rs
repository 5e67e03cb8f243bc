//! Reads autotune logs: Horovod's in every variant that was ever written, and Ronde's, which begins
//! with the same columns.
//!
//! Horovod's rows are trials in the order in which they ended, `score` in bytes/µs (the higher the
//! better), the threshold in MiB. Its header is without spaces, but a blank stands before the
//! fourth field; old versions lack the torus column, older ones the cache or the hierarchical
//! columns; and only a search that ran to its end repeats the best trial as the last row. Columns
//! are taken by their names, so each of these is just a log of other columns. A job that was killed
//! leaves a last line without its end. What a spreadsheet has made of a log (semicolons and decimal
//! commas, tabs, line ends of other systems) is read too, and several logs one after the other in
//! one file ([`read_logs`]).
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
//! assert_eq!(log.warnings[0], "line 5 is cut off (4 of 6 fields) and left out");
//! # Ok::<(), ronde_tuner::LogError>(())
//! ```

mod rows;
mod sections;

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
    /// Index of the last row that says what is best, instead of being a trial: Horovod's repetition
    /// of the best trial at the end of a finished search, our trailing row.
    pub best: Option<usize>,
    /// Whether Ronde wrote it (it has a column `phase`).
    pub is_ronde: bool,
    /// Omitted lines and fields with the reasons: the first hundred.
    pub warnings: Vec<String>,
    /// Warnings beyond these.
    pub warnings_more: u64,
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
    /// Ronde: `default`, `sample`, `ab`, `best`, `final`, `reverted` or `reset`.
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
    /// Ronde: whether the tensors are on GPUs; the fusion threshold is then that of GPUs.
    pub on_gpu: Option<bool>,
}

/// A text that is no autotune log.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum LogError {
    /// No line at all.
    #[error("the log is empty: the job ended before its header was written")]
    Empty,
    /// A header without the columns that every log has.
    #[error("not an autotune log: the header (line {line}) has no {}; it is {header:?}", missing.join(", "))]
    Header {
        /// The header's line, from 1.
        line: u64,
        /// The columns that are missing.
        missing: Vec<&'static str>,
        /// Text found there, at most 200 characters of it.
        header: String,
    },
}

impl LogContents {
    /// The rows that are trials: all but those that say what is best, or that the ranks have changed.
    pub fn trials(&self) -> impl Iterator<Item = &LogRow> {
        let sums_up = |row: &LogRow| {
            let phase = row.phase.as_deref();
            matches!(phase, Some("best" | "final" | "reverted" | "reset"))
        };
        let rows = self.rows.iter().enumerate();
        let trials = rows.filter(move |&(index, row)| Some(index) != self.best && !sums_up(row));
        trials.map(|(_, row)| row)
    }

    fn warn(&mut self, warning: String) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(warning);
        } else {
            self.warnings_more += 1;
        }
    }
}

/// Reads the text of an autotune log; of several, the last one that has rows.
///
/// # Errors
/// An empty text, or one whose header is not that of an autotune log. Rows that cannot be read are
/// warnings.
pub fn read_log(text: &str) -> Result<LogContents, LogError> {
    let mut logs = read_logs(text)?;
    let last = logs
        .iter()
        .rposition(|log| !log.rows.is_empty())
        .unwrap_or(0);
    Ok(logs.swap_remove(last))
}

/// Reads a text that holds one autotune log or several, one after the other: a header in the middle
/// begins another one. There is at least one.
///
/// # Errors
/// As [`read_log`].
pub fn read_logs(text: &str) -> Result<Vec<LogContents>, LogError> {
    // A file that went through an editor on Windows begins with a mark that is no part of the first
    // column's name.
    let text = text.trim_start_matches('\u{feff}');
    let sections = sections::sections(text)?;
    Ok(sections.iter().map(rows::contents).collect())
}

/// Index of the row that says what is best.
fn best(log: &LogContents) -> Option<usize> {
    if log.is_ronde {
        let is_best = |row: &LogRow| row.phase.as_deref() == Some("best");
        return log.rows.iter().rposition(is_best);
    }
    // Horovod repeats the trial of the highest score; a trial that happens to come last does not
    // repeat another one.
    let (last, trials) = log.rows.split_last()?;
    let line = last.line;
    let same = |row: &LogRow| {
        LogRow {
            line,
            ..row.clone()
        } == *last
    };
    let highest = trials.iter().all(|row| row.score <= last.score);
    (highest && trials.iter().any(same)).then_some(log.rows.len() - 1)
}

#[cfg(test)]
mod tests;
