//! A few steps in full: every bar of every rank, on a canvas that can be zoomed.
//!
//! The bars travel as one compact JSON object; `lanes.js` draws them. Without a script the table of the longest bars
//! remains.

use std::collections::HashMap;

use maud::{Markup, PreEscaped, html};
use serde::Serialize;

use super::gather::gathered;
use super::parts::{for_script, look, series, title};
use crate::html::chart::{legend, swatch};
use crate::html::number::{count, counted, digits, ms};
use crate::html::text::{Foreign, embedded_json, shortened, visible};
use crate::html::{folded, wide};
use ronde_trace::analysis::report::{LaneBar, RankBars};

pub(super) const STYLE: &str = include_str!("lanes.css");
pub(super) const SCRIPT: &str = include_str!("lanes.js");

/// Ranks that are drawn.
const MOST_LANES: usize = 32;
/// Bytes of data, about: a page should open at once, on a phone too.
const MOST_BYTES: usize = 800_000;
/// Characters of a label: enough for a tooltip.
const LABEL_CHARS: usize = 120;
/// Rows of the table that stands in for the picture.
const LONGEST: usize = 15;
/// Rows of one rank that are drawn; more than the eye follows.
const MOST_ROWS: u32 = 96;
/// Ticks in a millisecond: times travel as whole numbers of 100 ns.
const TICKS: f64 = 1e4;

/// What the script draws.
#[derive(Serialize)]
struct Data<'a> {
    /// Name, colour variable, pattern of each part.
    parts: Vec<[String; 3]>,
    labels: Vec<String>,
    lanes: Vec<LaneData<'a>>,
    /// Ticks in a millisecond.
    ticks: f64,
}

#[derive(Serialize)]
struct LaneData<'a> {
    rank: u32,
    rows: u32,
    ends_ms: &'a [f64],
    /// Five numbers a bar: label, part, row, ticks since the bar before began, ticks long.
    bars: Vec<i64>,
}

pub(super) fn show(lanes: &[RankBars]) -> Markup {
    let shown = &gathered(&lanes[..lanes.len().min(MOST_LANES)])[..];
    let total = bars(shown).count();
    if total == 0 {
        return html! { p { "There is no whole steady step to draw." } };
    }
    let until_ms = until_ms(shown);
    let crowded = bars(shown).filter(|(_, bar)| bar.row >= MOST_ROWS).count() as u64;
    let left_out = bars(shown).filter(|(_, bar)| bar.began_ms >= until_ms).count() as u64;
    html! {
        p.screen-only {
            "Zoom with the buttons, two fingers, " kbd { "+" } " " kbd { "−" } " or, once it is clicked, the wheel; drag or "
            kbd { "←" } " " kbd { "→" } " to move; " kbd { "n" } " and " kbd { "p" } " go from bar to bar. Point at a bar to read it."
        }
        figure #lane-view {
            (legend(&series()))
            div.lane-buttons.screen-only role="group" aria-label="Zoom" {
                button type="button" data-do="in" aria-label="Zoom in" { "+" }
                button type="button" data-do="out" aria-label="Zoom out" { "−" }
                button type="button" data-do="left" aria-label="Move left" { "←" }
                button type="button" data-do="right" aria-label="Move right" { "→" }
                button type="button" data-do="step" { "one step" }
                button type="button" data-do="all" { "all" }
            }
            div.lane-scroll {
                canvas tabindex="0" role="img" aria-describedby="lane-status"
                    aria-label="One lane for each rank, time from left to right; the longest bars are in the table below." {}
                div.lane-tip hidden {}
            }
            p #lane-status.note role="status" aria-live="polite" {}
        }
        noscript { p { "The lanes are drawn by a script, which is switched off here. The table has the longest bars." } }
        p.note {
            "Tensors of one batch share a bar. Times count from the beginning of the first step drawn, on the clock of the rank whose steps these are; dashed lines are where steps end. "
            @if shown.len() < lanes.len() { "The first " (MOST_LANES) " of " (lanes.len()) " ranks. " }
            @if crowded > 0 { (counted(crowded, "bar")) " below row " (MOST_ROWS) " of a rank left out. " }
            @if left_out > 0 {
                (counted(left_out, "bar")) " from " (ms(until_ms)) " on left out, to keep this page small. "
            }
        }
        (folded("The longest bars as a table", &wide("Longest bars", &longest(shown))))
        script #lane-data type="application/json" { (PreEscaped(embedded_json(&data(shown, until_ms)))) }
    }
}

fn bars(lanes: &[RankBars]) -> impl Iterator<Item = (u32, &LaneBar)> {
    lanes
        .iter()
        .flat_map(|lane| lane.bars.iter().map(|bar| (lane.rank, bar)))
}

/// From when on bars are left out so that the data stays small: at the end of a step if one fits, else anywhere.
fn until_ms(lanes: &[RankBars]) -> f64 {
    let mut all: Vec<(f64, &str)> = bars(lanes)
        .map(|(_, bar)| (bar.began_ms, bar.label.as_str()))
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut bytes, mut seen) = (0, std::collections::HashSet::new());
    let full = all.iter().find(|(_, label)| {
        // About twenty characters a bar, and each label once.
        bytes += 20
            + if seen.insert(*label) {
                label.len().min(4 * LABEL_CHARS) + 3
            } else {
                0
            };
        bytes > MOST_BYTES
    });
    let Some((full_ms, _)) = full else {
        return f64::INFINITY;
    };
    let ends = lanes
        .first()
        .into_iter()
        .flat_map(|lane| &lane.step_ends_ms)
        .copied();
    ends.filter(|end| *end > 0.0 && end <= full_ms)
        .fold(None, |_, end| Some(end))
        .unwrap_or(*full_ms)
}

fn data(lanes: &[RankBars], until_ms: f64) -> Data<'_> {
    let mut labels = Vec::new();
    let mut numbers = HashMap::new();
    let lanes = lanes
        .iter()
        .map(|lane| {
            let mut last = 0;
            let mut rows = 1;
            let mut flat = Vec::new();
            for (_, bar) in bars(std::slice::from_ref(lane))
                .filter(|(_, bar)| bar.began_ms < until_ms && bar.row < MOST_ROWS)
            {
                let label = *numbers.entry(bar.label.as_str()).or_insert_with(|| {
                    labels.push(visible(&shortened(&bar.label, LABEL_CHARS)));
                    labels.len() - 1
                });
                let began = (bar.began_ms * TICKS).round() as i64;
                let length = ((bar.ended_ms - bar.began_ms) * TICKS).round().max(0.0) as i64;
                flat.extend([
                    label as i64,
                    bar.part as i64,
                    i64::from(bar.row),
                    began - last,
                    length,
                ]);
                last = began;
                rows = rows.max(bar.row + 1);
            }
            LaneData {
                rank: lane.rank,
                rows,
                ends_ms: &lane.step_ends_ms,
                bars: flat,
            }
        })
        .collect();
    Data {
        parts: for_script(),
        labels,
        lanes,
        ticks: TICKS,
    }
}

fn longest(lanes: &[RankBars]) -> Markup {
    let mut all: Vec<(u32, &LaneBar)> = bars(lanes).collect();
    let length = |bar: &LaneBar| bar.ended_ms - bar.began_ms;
    all.sort_by(|a, b| length(b.1).total_cmp(&length(a.1)));
    html! {
        table {
            thead {
                tr {
                    th scope="col" { "Bar" } th scope="col" { "part" } th.n scope="col" { "rank" }
                    th.n scope="col" { "begins, ms" } th.n scope="col" { "lasts" }
                }
            }
            tbody {
                @for (rank, bar) in all.into_iter().take(LONGEST) {
                    tr {
                        td.name { (Foreign(&shortened(&bar.label, LABEL_CHARS))) }
                        td { (swatch(&look(bar.part).class())) " " (title(bar.part)) }
                        td.n { (count(u64::from(rank))) } td.n { (digits(bar.began_ms)) } td.n { (ms(length(bar))) }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ronde_trace::analysis::report::PartKind;

    fn bar(label: &str, row: u32, began_ms: f64, ended_ms: f64) -> LaneBar {
        LaneBar {
            label: label.into(),
            part: PartKind::CopyIn,
            row,
            began_ms,
            ended_ms,
        }
    }

    #[test]
    fn bars_travel_as_differences() {
        let lane = RankBars {
            rank: 3,
            step_ends_ms: vec![10.0],
            bars: vec![
                bar("a", 0, 1.0, 2.5),
                bar("b", 1, 2.0, 1.0),
                bar("a", 0, 4.0, 4.5),
            ],
        };
        let data = data(std::slice::from_ref(&lane), f64::INFINITY);
        assert_eq!(data.labels, ["a", "b"]);
        assert_eq!((data.lanes[0].rank, data.lanes[0].rows), (3, 2));
        assert_eq!(
            data.lanes[0].bars,
            [
                0, 4, 0, 10_000, 15_000, 1, 4, 1, 10_000, 0, 0, 4, 0, 20_000, 5_000
            ]
        );
    }

    #[test]
    fn too_many_bars_end_with_a_step() {
        let bars = (0..100_000)
            .map(|i| bar("a", 0, f64::from(i), f64::from(i) + 0.5))
            .collect();
        let lane = RankBars {
            rank: 0,
            step_ends_ms: vec![10_000.0, 30_000.0, 70_000.0],
            bars,
        };
        let until = until_ms(std::slice::from_ref(&lane));
        assert_eq!(until, 30_000.0);
        let page = show(&[lane]).into_string();
        assert!(
            page.contains("70,000 bars from 30.0 s on left out"),
            "{}",
            &page[..3000]
        );
        assert!(page.len() < 2 * MOST_BYTES, "{}", page.len());
    }
}
