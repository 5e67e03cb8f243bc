//! Section on stragglers: how often each rank is last, its cost, and the tensors that wait longest.

use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::{StragglerRank, StragglerTensor, Stragglers};

use super::Rows;
use crate::present::units::{counted, decimals, fixed, ms, percent};
use crate::present::{Cell, Section, Table};

pub(super) fn section(report: &Report, rows: Rows) -> Section<'_> {
    let section = Section::new("stragglers", "Stragglers");
    let Some(stragglers) = &report.stragglers else {
        return section.page_text(
            "The ready times of at least two ranks are needed to find late ranks, and these files \
             have those of one. Horovod’s rank 0 file has them as ticks inside the negotiation; \
             Ronde writes a file for every rank with RONDE_TIMELINE_ALL_RANKS=1.",
        );
    };
    let mut section = section.table(ranks(&stragglers.ranks, rows.ranks));
    let left_out = stragglers.ranks.len().saturating_sub(rows.ranks);
    if left_out > 0 {
        let others = counted(left_out as u64, "rank");
        section = section.text(format!("… and {others} that cost less"));
    }
    let tensors = &stragglers.tensors[..stragglers.tensors.len().min(rows.tensors)];
    section
        .text(verdict(stragglers))
        .table(self::tensors(tensors))
}

fn ranks(ranks: &[StragglerRank], most: usize) -> Table {
    let mut shown: Vec<&StragglerRank> = ranks.iter().collect();
    if shown.len() > most {
        shown.sort_by(|left, right| right.cost_ms.total_cmp(&left.cost_ms));
        shown.truncate(most);
        shown.sort_by_key(|rank| rank.rank);
    }
    let places = decimals(shown.iter().map(|rank| rank.step_ms_without));
    let mut table =
        Table::headed("rank; last; |; lag ms; p90; step without it; cost ms").with_bars(10);
    for rank in shown {
        let lag = |ms: f64| match rank.last {
            0 => "-".to_owned(),
            _ => fixed(ms, places),
        };
        table.row([
            rank.rank.to_string().into(),
            percent(rank.last_share).into(),
            Cell::Bar(rank.last_share),
            lag(rank.lag_ms.p50).into(),
            lag(rank.lag_ms.p90).into(),
            fixed(rank.step_ms_without, places).into(),
            fixed(rank.cost_ms, places).into(),
        ]);
    }
    table
}

fn verdict(stragglers: &Stragglers) -> String {
    let looked_at = format!(
        "Of {} whose ready times are known on every rank",
        counted(stragglers.operations, "operation")
    );
    match (stragglers.slowest_rank(), &stragglers.slowest_group) {
        (Some(rank), _) => format!(
            "{looked_at}, rank {} was last for {}: without it a step would be {} shorter.",
            rank.rank,
            percent(rank.last_share),
            ms(rank.cost_ms)
        ),
        (None, Some(group)) => format!(
            "{looked_at}, ranks {} were the last {} for {}: without them a step would be {} shorter.",
            group.ranks_text(),
            group.ranks.len(),
            percent(group.last_share),
            ms(group.cost_ms)
        ),
        (None, None) => format!("{looked_at}, no rank stands out."),
    }
}

fn tensors(tensors: &[StragglerTensor]) -> Table {
    let places = decimals(tensors.iter().map(|tensor| tensor.spread_ms.p90));
    let mut table =
        Table::headed("<tensor that waits longest; first to last ms; p90; last rank; share");
    for tensor in tensors {
        table.row([
            tensor.name.clone(),
            fixed(tensor.spread_ms.p50, places),
            fixed(tensor.spread_ms.p90, places),
            tensor.last_rank.to_string(),
            percent(tensor.last_share),
        ]);
    }
    table
}
