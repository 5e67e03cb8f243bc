//! Stragglers section: late ranks, and the tensors that wait longest.

use maud::{Markup, html};

use crate::html::text::Foreign;
use crate::html::{cell_bar, folded, wide};
use crate::present::units::{count, counted, decimals, fixed, ms, percent};
use ronde_trace::analysis::report::{StragglerRank, StragglerTensor, Stragglers};

/// Largest number of ranks shown; a job may have thousands.
const MOST_RANKS: usize = 64;
/// Number of tensors that are not folded.
const TENSORS: usize = 10;

pub(super) fn show(stragglers: Option<&Stragglers>) -> Markup {
    let Some(stragglers) = stragglers else {
        return html! {
            p {
                "The ready times of at least two ranks are needed to say who is late, and these files have those of one. "
                "Horovod’s rank 0 file has them as ticks inside the negotiation; Ronde writes a file for every rank with "
                code { "RONDE_TIMELINE_ALL_RANKS=1" } "."
            }
        };
    };
    html! {
        p {
            "Of " (counted(stragglers.operations, "operation")) " in steady steps, "
            @match stragglers.ranks.iter().find(|rank| Some(rank.rank) == stragglers.slowest) {
                Some(rank) => {
                    "rank " (rank.rank) " was last in " (percent(rank.last_share)) ", by " (ms(rank.lag_ms.p50))
                    " in the median. Without it the median step would take " (ms(rank.step_ms_without)) ", "
                    (ms(rank.cost_ms)) " less."
                }
                None => { "no rank was last so often, and by so much, that it stands out." }
            }
        }
        (ranks(stragglers))
        @if !stragglers.tensors.is_empty() {
            h3 { "Tensors that wait longest for their last rank" }
            @let shown = stragglers.tensors.len().min(TENSORS);
            (wide("Tensors that wait longest", &tensors(&stragglers.tensors[..shown])))
            @if shown < stragglers.tensors.len() {
                (folded(&format!("The next {}", stragglers.tensors.len() - shown),
                    &wide("More tensors that wait", &tensors(&stragglers.tensors[shown..]))))
            }
        }
    }
}

fn ranks(stragglers: &Stragglers) -> Markup {
    let mut ranks: Vec<&StragglerRank> = stragglers.ranks.iter().collect();
    let left_out = ranks.len().saturating_sub(MOST_RANKS);
    if left_out > 0 {
        ranks.sort_by(|a, b| b.cost_ms.total_cmp(&a.cost_ms));
        ranks.truncate(MOST_RANKS);
    }
    let places = decimals(ranks.iter().map(|rank| rank.step_ms_without));
    let lag_places = decimals(ranks.iter().map(|rank| rank.lag_ms.p90));
    let table = html! {
        table {
            thead {
                tr {
                    th scope="col" { "Rank" } th.n scope="col" { "last" } th.n scope="col" { "share" } th scope="col" {}
                    th.n scope="col" { "late by, ms" } th.n scope="col" { "p90, ms" }
                    th.n scope="col" { "step without it, ms" } th.n scope="col" { "costs, ms" } th scope="col" {}
                }
            }
            tbody {
                @for rank in ranks {
                    @let slowest = Some(rank.rank) == stragglers.slowest;
                    tr {
                        th scope="row" { (rank.rank) @if slowest { span.badge { "slowest" } } }
                        td.n { (count(rank.last)) }
                        td.n { (percent(rank.last_share)) }
                        td.bar { (cell_bar(rank.last_share, "plain")) }
                        td.n { (fixed(rank.lag_ms.p50, lag_places)) }
                        td.n { (fixed(rank.lag_ms.p90, lag_places)) }
                        td.n { (fixed(rank.step_ms_without, places)) }
                        td.n { (fixed(rank.cost_ms, places)) }
                        td.bar { (cell_bar(rank.cost_ms / (rank.step_ms_without + rank.cost_ms), "part-wait")) }
                    }
                }
            }
        }
    };
    html! {
        @if left_out > 0 {
            p.note { "The " (MOST_RANKS) " ranks that cost most; " (counted(left_out as u64, "other")) " not shown." }
        }
        (wide("Ranks", &table))
        p.note { "Bars: share of the operations in which the rank was last; share of the median step that it costs." }
    }
}

fn tensors(tensors: &[StragglerTensor]) -> Markup {
    let places = decimals(tensors.iter().map(|tensor| tensor.spread_ms.p90));
    html! {
        table {
            thead {
                tr {
                    th scope="col" { "Tensor" } th.n scope="col" { "waits, ms" } th.n scope="col" { "p90, ms" }
                    th.n scope="col" { "last rank" } th.n scope="col" { "last in" } th.n scope="col" { "times" }
                }
            }
            tbody {
                @for tensor in tensors {
                    tr {
                        td.name { (Foreign(&tensor.name)) }
                        td.n { (fixed(tensor.spread_ms.p50, places)) } td.n { (fixed(tensor.spread_ms.p90, places)) }
                        td.n { (tensor.last_rank) } td.n { (percent(tensor.last_share)) } td.n { (count(tensor.n)) }
                    }
                }
            }
        }
    }
}
