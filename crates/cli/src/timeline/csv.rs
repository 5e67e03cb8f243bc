//! Steps of a report as CSV: one row each, numbers only.

use std::io::{self, Write};

use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::PartKind;

/// Columns before the columns of the parts.
const COLUMNS: &str = "step,began_ms,ms,tensors,batches,bytes,partial";

/// Writes a header and a row for each step.
///
/// # Errors
/// An error of the sink.
pub(super) fn write(sink: &mut dyn Write, report: &Report) -> io::Result<()> {
    write!(sink, "{COLUMNS}")?;
    for part in PartKind::ALL.map(column) {
        write!(sink, ",{part}_ms,{part}_total_ms")?;
    }
    writeln!(sink)?;
    for step in &report.steps {
        write!(
            sink,
            "{},{},{},{},{},{},{}",
            step.index,
            step.began_ms,
            step.ms,
            step.tensors,
            step.batches,
            step.bytes,
            u8::from(step.partial)
        )?;
        for (exposed, total) in step.exposed_ms.iter().zip(&step.total_ms) {
            write!(sink, ",{exposed},{total}")?;
        }
        writeln!(sink)?;
    }
    Ok(())
}

/// Prefix of a part's column names: its name in the JSON report.
fn column(part: PartKind) -> String {
    match serde_json::to_value(part) {
        Ok(serde_json::Value::String(name)) => name,
        _ => unreachable!("a part is serialized as its name"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::report::sample;

    #[test]
    fn a_row_for_each_step_adds_up() {
        let report = sample::report();
        let mut bytes = Vec::new();
        write(&mut bytes, &report).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let mut lines = text.lines();
        let heading: Vec<&str> = lines.next().unwrap().split(',').collect();
        assert_eq!(heading.len(), 7 + 2 * PartKind::COUNT);
        assert_eq!(heading[7..9], ["compute_ms", "compute_total_ms"]);
        let rows: Vec<Vec<f64>> = lines
            .map(|line| line.split(',').map(|cell| cell.parse().unwrap()).collect())
            .collect();
        assert_eq!(rows.len(), report.steps.len());
        for row in rows {
            assert_eq!(row.len(), heading.len());
            let exposed: f64 = row[7..].iter().step_by(2).sum();
            assert!((exposed - row[2]).abs() < 1e-9, "{row:?}");
        }
    }
}
