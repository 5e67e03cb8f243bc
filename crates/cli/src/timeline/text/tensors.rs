//! Text section on the tensors with the longest time from ready to result.

use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::TensorRow;

use crate::present::units::{count, decimals};
use crate::present::{Look, Table, harmless, titled};

/// Section with the requested number of tensors, the slowest first.
pub(super) fn section(report: &Report, look: &Look) -> Vec<String> {
    let mut rows: Vec<&TensorRow> = report
        .tensors
        .iter()
        .filter(|tensor| tensor.latency_ms.n > 0)
        .collect();
    let slower = |left: &&TensorRow, right: &&TensorRow| {
        right.latency_ms.p50.total_cmp(&left.latency_ms.p50)
    };
    rows.sort_by(slower);
    rows.truncate(look.tensors);
    let decimals = decimals(rows.iter().map(|tensor| tensor.latency_ms.p90));
    let mut table = Table::new(&[
        "<tensor",
        "<operation",
        "<type",
        "elements",
        "ready ms",
        "takes ms",
        "p90",
    ]);
    for tensor in rows {
        let ready = ready_us(tensor, report.reference_rank);
        table.row([
            harmless(&tensor.name),
            format!("{:?}", tensor.kind).to_ascii_lowercase(),
            tensor
                .dtype
                .as_deref()
                .map_or_else(|| "?".to_owned(), harmless),
            tensor.elements.map_or_else(|| "?".to_owned(), count),
            ready.map_or_else(|| "?".to_owned(), |us| format!("{:.decimals$}", us / 1e3)),
            format!("{:.decimals$}", tensor.latency_ms.p50),
            format!("{:.decimals$}", tensor.latency_ms.p90),
        ]);
    }
    let lines = table.lines(look.width);
    titled(
        "Tensors that take longest from ready to result",
        lines,
        look,
    )
}

/// Time in µs at which the tensor was ready on a rank, if known.
fn ready_us(tensor: &TensorRow, rank: u32) -> Option<f64> {
    tensor.ready_us.get(rank as usize).copied().flatten()
}
