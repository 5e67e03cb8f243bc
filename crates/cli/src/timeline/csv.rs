//! Steps of a report as CSV: one row each, numbers only.

use std::io::{self, Write};

use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::PartKind;

use super::report::name_in_json;

/// Writes a header and a row for each step.
pub(super) fn write(sink: &mut dyn Write, report: &Report) -> io::Result<()> {
    write!(sink, "step,began_ms,ms,tensors,batches,bytes,partial")?;
    for part in PartKind::ALL.map(|part| name_in_json(&part)) {
        write!(sink, ",{part}_ms,{part}_total_ms")?;
    }
    writeln!(sink)?;
    for step in &report.steps {
        let (index, began_ms, ms) = (step.index, step.began_ms, step.ms);
        let (tensors, batches, bytes) = (step.tensors, step.batches, step.bytes);
        let partial = u8::from(step.partial);
        write!(
            sink,
            "{index},{began_ms},{ms},{tensors},{batches},{bytes},{partial}"
        )?;
        for (exposed, total) in step.exposed_ms.iter().zip(&step.total_ms) {
            write!(sink, ",{exposed},{total}")?;
        }
        writeln!(sink)?;
    }
    Ok(())
}
