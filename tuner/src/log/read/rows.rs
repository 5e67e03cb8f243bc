//! The rows of one log.

use std::cmp::Ordering;

use csv::{ReaderBuilder, StringRecord, Trim};

use super::sections::{Section, lines};
use super::{LogContents, LogRow, best};

/// Reads one log.
pub(super) fn contents(section: &Section) -> LogContents {
    let mut reader = ReaderBuilder::new()
        .flexible(true)
        .trim(Trim::All)
        .delimiter(section.separator)
        .from_reader(section.text.as_bytes());
    let header = reader.headers().cloned().unwrap_or_default();
    let mut log = LogContents {
        columns: header.iter().map(str::to_owned).collect(),
        is_ronde: header.iter().any(|name| name == "phase"),
        ..LogContents::default()
    };
    let mut record = StringRecord::new();
    let (mut line, mut counted) = (section.lines_before + 1, 0);
    // No error is possible: the text is UTF-8, and a row may have any number of fields.
    while reader.read_record(&mut record).unwrap_or(false) {
        let start = start(&record, section);
        line += lines(&section.text[counted..start]).count() as u64;
        counted = start;
        let has_end = (reader.position().byte() as usize) < section.text.len()
            || section.text.ends_with(['\r', '\n']);
        // A spreadsheet ends each row with as many separators as its widest one has.
        if !record.iter().all(str::is_empty) {
            log.take(&header, &record, section.separator, (line, has_end));
        }
    }
    log.best = best(&log);
    log
}

impl LogContents {
    /// Adds the record, which begins on `line`, as a row, or warns. `has_end`: a line end follows.
    fn take(
        &mut self,
        header: &StringRecord,
        record: &StringRecord,
        separator: u8,
        (line, has_end): (u64, bool),
    ) {
        let (found, expected) = (record.len(), header.len());
        let problem = match found.cmp(&expected) {
            Ordering::Greater => {
                format!("has {found} fields where the header has {expected}, and is")
            }
            Ordering::Less => format!("is cut off ({found} of {expected} fields) and"),
            Ordering::Equal if has_end => String::new(),
            Ordering::Equal => "has no line end, so its last field may be cut off, and is".into(),
        };
        if !problem.is_empty() {
            return self.warn(format!("line {line} {problem} left out"));
        }
        let mut row = LogRow {
            line,
            ..LogRow::default()
        };
        for (column, value) in header.iter().zip(record) {
            // An empty field is nothing to warn of.
            if let Err(expected) = row.set(column, value, separator)
                && !value.is_empty()
            {
                let value: String = value.chars().take(40).collect();
                self.warn(format!(
                    "line {line}: {column} is {value:?}, expected {expected}"
                ));
            }
        }
        self.rows.push(row);
    }
}

impl LogRow {
    /// Sets the field of this column, to none if `value` cannot be read.
    ///
    /// # Errors
    /// The expected text.
    fn set(&mut self, column: &str, value: &str, separator: u8) -> Result<(), &'static str> {
        let flag = |field: &mut Option<bool>| {
            *field = match value {
                "0" => Some(false),
                "1" => Some(true),
                _ => None,
            };
            field.map(drop).ok_or("0 or 1")
        };
        let count = |field: &mut Option<u64>| {
            *field = value.parse().ok();
            field.map(drop).ok_or("a whole number >= 0")
        };
        let number = |field: &mut Option<f64>| {
            // Between semicolons or tabs, a number may have a decimal comma.
            let is_decimal = |symbol| symbol == ',' && separator != b',';
            let parsed = value.replacen(is_decimal, ".", 1).parse().ok();
            *field = parsed.filter(|number: &f64| number.is_finite() && *number >= 0.0);
            field.map(drop).ok_or("a number >= 0")
        };
        match column {
            "hierarchical_allreduce" => flag(&mut self.hierarchical_allreduce)?,
            "hierarchical_allgather" => flag(&mut self.hierarchical_allgather)?,
            "torus_allreduce" => flag(&mut self.torus_allreduce)?,
            "cache_enabled" => flag(&mut self.cache_enabled)?,
            "cycle_time_ms" => number(&mut self.cycle_time_ms)?,
            "tensor_fusion_threshold" => number(&mut self.fusion_mb)?,
            "score" => number(&mut self.score)?,
            "phase" => self.phase = Some(value.to_owned()).filter(|phase| !phase.is_empty()),
            "sample" => count(&mut self.sample)?,
            "steps" => count(&mut self.steps)?,
            "step_ms_p50" => number(&mut self.step_ms_p50)?,
            "step_ms_ci95" => number(&mut self.step_ms_ci95)?,
            "predicted_step_ms" => number(&mut self.predicted_step_ms)?,
            "negotiate_share" => number(&mut self.negotiate_share)?,
            "on_gpu" => flag(&mut self.on_gpu)?,
            _ => {}
        }
        Ok(())
    }
}

/// Where a record begins in the section. The parser counts empty lines before a record to it.
fn start(record: &StringRecord, section: &Section) -> usize {
    let start = record.position().map_or(0, |at| at.byte() as usize);
    let rest = section.text.get(start..).unwrap_or_default();
    start + rest.len() - rest.trim_start_matches(['\r', '\n']).len()
}
