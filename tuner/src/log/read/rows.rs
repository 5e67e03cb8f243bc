//! The rows of one log.

use csv::{ReaderBuilder, StringRecord, Trim};

use super::sections::Section;
use super::{LogContents, LogRow, LogWarning, best};

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
    loop {
        match reader.read_record(&mut record) {
            Ok(false) => break,
            Ok(true) => log.take(&record, section),
            Err(error) => {
                let line = error.position().map_or(0, csv::Position::line) + section.lines_before;
                let message = error.to_string();
                log.warn(LogWarning::Unreadable { line, message });
                // The reader goes on after bad UTF-8, which text cannot have, and after nothing else.
                break;
            }
        }
    }
    log.best = best(&log);
    log
}

impl LogContents {
    fn take(&mut self, record: &StringRecord, section: &Section) {
        // A spreadsheet ends each row with as many separators as its widest one has.
        if record.iter().all(str::is_empty) {
            return;
        }
        let (line, ends) = place(record, section);
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
            decimal_commas: section.separator != b',',
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
        fields
            .warnings
            .into_iter()
            .for_each(|warning| self.warn(warning));
        self.rows.push(row);
    }
}

/// The line of a record, and whether that line has its end.
fn place(record: &StringRecord, section: &Section) -> (u64, bool) {
    let Some(position) = record.position() else {
        return (0, true);
    };
    let from = usize::try_from(position.byte()).unwrap_or(usize::MAX);
    let rest = section.text.get(from..).unwrap_or_default();
    // The parser counts empty lines before a record to it.
    let record = rest.trim_start_matches(['\r', '\n']);
    let skipped = rest[..rest.len() - record.len()].matches('\n').count();
    let line = section.lines_before + position.line() + skipped as u64;
    (line, record.contains(['\r', '\n']))
}

/// Reads the fields of one line.
struct Fields {
    line: u64,
    /// Whether 1,5 may be one and a half.
    decimal_commas: bool,
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
        let with_point = if self.decimal_commas {
            value.replacen(',', ".", 1)
        } else {
            value.to_owned()
        };
        let number = with_point.parse().ok();
        let number = number.filter(|number: &f64| number.is_finite() && *number >= 0.0);
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
