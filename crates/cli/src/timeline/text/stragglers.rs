//! Text section on stragglers: how often each rank is last, and its cost.

use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::{StragglerRank, Stragglers};

use crate::present::units::{counted, decimals, ms, percent};
use crate::present::{Look, Table, harmless, titled, wrapped};

/// Largest number of ranks listed; of larger jobs, the ranks with the highest cost.
const RANKS_MAX: usize = 12;

/// Section on the ranks, and on the tensors that waited longest.
pub(super) fn section(report: &Report, look: &Look) -> Vec<String> {
    let Some(stragglers) = &report.stragglers else {
        return Vec::new();
    };
    let mut lines = ranks(stragglers, look);
    lines.extend(wrapped("  ", &verdict(stragglers), look.width));
    lines.extend(tensors(stragglers, look));
    titled("Stragglers", lines, look)
}

fn ranks(stragglers: &Stragglers, look: &Look) -> Vec<String> {
    let mut shown: Vec<&StragglerRank> = stragglers.ranks.iter().collect();
    let left_out = shown.len().saturating_sub(RANKS_MAX);
    if left_out > 0 {
        shown.sort_by(|left, right| right.cost_ms.total_cmp(&left.cost_ms));
        shown.truncate(RANKS_MAX);
        shown.sort_by_key(|rank| rank.rank);
    }
    let decimals = decimals(shown.iter().map(|rank| rank.step_ms_without));
    let headings = [
        "rank",
        "last",
        "|",
        "lag ms",
        "p90",
        "step without it",
        "cost ms",
    ];
    let mut table = Table::new(&headings);
    for rank in shown {
        let number = |ms: f64| format!("{ms:.decimals$}");
        let lag = |ms: f64| {
            if rank.last == 0 {
                "-".to_owned()
            } else {
                number(ms)
            }
        };
        let gauge = format!("{:<10}", look.gauge(rank.last_share, 10));
        table.row([
            rank.rank.to_string(),
            percent(rank.last_share),
            gauge,
            lag(rank.lag_ms.p50),
            lag(rank.lag_ms.p90),
            number(rank.step_ms_without),
            number(rank.cost_ms),
        ]);
    }
    let mut lines = table.lines(look.width);
    if left_out > 0 {
        lines.push(format!(
            "  … and {} that cost less",
            counted(left_out as u64, "rank")
        ));
    }
    lines
}

fn verdict(stragglers: &Stragglers) -> String {
    let looked_at = format!(
        "Of {} whose ready times are known on every rank",
        counted(stragglers.operations, "operation")
    );
    let slowest = stragglers
        .slowest
        .and_then(|slowest| stragglers.ranks.iter().find(|rank| rank.rank == slowest));
    match slowest {
        Some(rank) => format!(
            "{looked_at}, rank {} was last for {}: without it a step would be {} shorter.",
            rank.rank,
            percent(rank.last_share),
            ms(rank.cost_ms)
        ),
        None => format!("{looked_at}, no rank stands out."),
    }
}

fn tensors(stragglers: &Stragglers, look: &Look) -> Vec<String> {
    let rows: Vec<_> = stragglers.tensors.iter().take(look.tensors).collect();
    let decimals = decimals(rows.iter().map(|tensor| tensor.spread_ms.p90));
    let mut table = Table::new(&[
        "<tensor that waits longest",
        "first to last ms",
        "p90",
        "last rank",
        "share",
    ]);
    for tensor in rows {
        table.row([
            harmless(&tensor.name),
            format!("{:.decimals$}", tensor.spread_ms.p50),
            format!("{:.decimals$}", tensor.spread_ms.p90),
            tensor.last_rank.to_string(),
            percent(tensor.last_share),
        ]);
    }
    table.lines(look.width)
}
