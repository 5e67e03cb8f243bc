//! Section on the tensors with the longest time from ready to result.

use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::TensorRow;

use super::Rows;
use crate::present::units::{count, decimals, fixed};
use crate::present::{Section, Table};

/// Section with the requested number of tensors, the slowest first.
pub(super) fn section(report: &Report, rows: Rows) -> Section<'_> {
    let timed = report.tensors.iter().filter(|row| row.latency_ms.n > 0);
    let mut shown: Vec<&TensorRow> = timed.collect();
    shown.sort_by(|left, right| right.latency_ms.p50.total_cmp(&left.latency_ms.p50));
    shown.truncate(rows.tensors);
    let places = decimals(shown.iter().map(|tensor| tensor.latency_ms.p90));
    let mut table = Table::headed("<tensor; <operation; <type; elements; ready ms; takes ms; p90");
    for tensor in shown {
        let ready_us = tensor.ready_us.get(report.reference_rank as usize);
        let ready_us = ready_us.copied().flatten();
        let unknown = || "?".to_owned();
        table.row([
            tensor.name.clone(),
            super::name_in_json(&tensor.kind),
            tensor.dtype.clone().unwrap_or_else(unknown),
            tensor.elements.map_or_else(unknown, count),
            ready_us.map_or_else(unknown, |us| fixed(us / 1e3, places)),
            fixed(tensor.latency_ms.p50, places),
            fixed(tensor.latency_ms.p90, places),
        ]);
    }
    Section::new("tensors", "Tensors that take longest from ready to result").table(table)
}
