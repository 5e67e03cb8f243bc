//! Section of lanes, for the page: ready ticks, batches and cycles of every rank over a few steps, in a chart with
//! zoom.
//!
//! The bars are embedded as compact JSON; `html/charts.js` draws those in view. Without JavaScript,
//! only the table of the longest bars is shown.

use std::collections::HashMap;

use maud::{Markup, html};
use serde::Serialize;

use super::gather::{BAND_ROWS, MOST_ROWS, gathered};
use crate::chart::{Axis, Unit, page};
use crate::html::text::{shortened, visible};
use crate::present::part::{appearance, title};
use crate::present::units::{counted, digits, ms};
use crate::present::{Cell, Section, Table};
use ronde_trace::analysis::report::{LaneBar, PartKind, RankBars};

/// Largest number of ranks drawn.
const MOST_LANES: usize = 32;
/// Approximate limit of the data in bytes: the page must open fast, also on a phone.
const MOST_BYTES: usize = 800_000;
/// Largest number of characters of a label; it must fit into a tooltip.
const LABEL_CHARS: usize = 120;
/// Number of rows of the table of the longest bars.
const LONGEST: usize = 15;
/// Ticks per millisecond: times are embedded as integers in units of 100 ns.
const TICKS: f64 = 1e4;

/// Data that `html/charts.js` draws.
#[derive(Serialize)]
struct Data<'a> {
    x: Axis,
    y: Axis,
    zoom: bool,
    parts: Vec<Part>,
    labels: Vec<String>,
    lanes: Vec<LaneData<'a>>,
    /// Ticks per millisecond.
    ticks: f64,
}

#[derive(Serialize)]
struct Part {
    name: String,
    colour: &'static str,
    hatch: &'static str,
}

#[derive(Serialize)]
struct LaneData<'a> {
    rank: u32,
    rows: u32,
    ends_ms: &'a [f64],
    /// Five numbers per bar: label, part, row, ticks since the beginning of the bar before, length
    /// in ticks.
    bars: Vec<i64>,
    /// Two numbers per ready tick: label, ticks since the ready tick before.
    ready: Vec<i64>,
    cycles_ms: &'a [f64],
}

pub(super) fn section(lanes: &[RankBars]) -> Section<'_> {
    let shown = &gathered(&lanes[..lanes.len().min(MOST_LANES)])[..];
    let section = Section::new("lanes", "A few steps in full");
    if bars(shown).next().is_none() {
        return section.page(html! { p { "There is no complete steady step to draw." } });
    }
    section
        .page(figure(shown, lanes.len()))
        .folded("The longest bars as a table", longest(shown))
}

fn figure(shown: &[RankBars], ranks: usize) -> Markup {
    let until_ms = until_ms(shown);
    let crowded = bars(shown).filter(|(_, bar)| bar.row >= MOST_ROWS).count() as u64;
    let left_out = bars(shown)
        .filter(|(_, bar)| bar.began_ms >= until_ms)
        .count() as u64;
    html! {
        p.screen-only {
            "Zoom with the buttons, the slider, two fingers, or the wheel with " kbd { "Ctrl" } "; drag to move. "
            "Point at a bar to read it; click a name to hide it."
        }
        figure {
            (page::frame(
                "lane-chart",
                "Ready ticks, batches and cycles of every rank",
                "One lane for each rank, time from left to right; the longest bars are in the table below.",
                height_px(shown),
                &data(shown, until_ms),
            ))
        }
        p.note {
            "Tensors of one batch share a bar. The upper row of a rank has a tick for every tensor that it reported ready. Times count from the beginning of the first step drawn, on the clock of the rank whose steps these are; dashed lines are where steps end. "
            @if shown.len() < ranks { "The first " (MOST_LANES) " of " (ranks) " ranks. " }
            @if crowded > 0 { (counted(crowded, "bar")) " left out where more than " (BAND_ROWS) " of a kind overlap on a rank. " }
            @if left_out > 0 {
                (counted(left_out, "bar")) " from " (ms(until_ms)) " on left out, to keep this page small. "
            }
        }
    }
}

fn bars(lanes: &[RankBars]) -> impl Iterator<Item = (u32, &LaneBar)> {
    lanes
        .iter()
        .flat_map(|lane| lane.bars.iter().map(|bar| (lane.rank, bar)))
}

/// Time from which bars are left out to limit the size of the data: the end of a step if one fits,
/// else the beginning of the first bar that does not fit.
fn until_ms(lanes: &[RankBars]) -> f64 {
    let mut all: Vec<(f64, &str)> = bars(lanes)
        .map(|(_, bar)| (bar.began_ms, bar.label.as_str()))
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut bytes, mut seen) = (0, std::collections::HashSet::new());
    let full = all.iter().find(|(_, label)| {
        // About twenty characters per bar, and each label once.
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

/// Height of the chart in pixels: enough to read the bars, but not much more than a screen.
fn height_px(lanes: &[RankBars]) -> u32 {
    let rows: u32 = lanes.iter().map(|lane| rows(lane) + 2).sum();
    90 + (rows * 14).clamp(140, 900)
}

fn rows(lane: &RankBars) -> u32 {
    let last = lane
        .bars
        .iter()
        .map(|bar| bar.row)
        .filter(|row| *row < MOST_ROWS)
        .max();
    last.map_or(0, |row| row + 1)
}

fn data(lanes: &[RankBars], until_ms: f64) -> Data<'_> {
    let ends = lanes.iter().flat_map(|lane| &lane.step_ends_ms).copied();
    let to = bars(lanes)
        .map(|(_, bar)| bar.ended_ms)
        .chain(ends)
        .fold(0.0, f64::max)
        .min(until_ms);
    let from = bars(lanes).map(|(_, bar)| bar.began_ms).fold(0.0, f64::min);
    let mut labels = Vec::new();
    let mut numbers = HashMap::new();
    let mut number = |label| {
        *numbers.entry(label).or_insert_with(|| {
            labels.push(visible(&shortened(label, LABEL_CHARS)));
            labels.len() as i64 - 1
        })
    };
    let ticks = |ms: f64| (ms * TICKS).round() as i64;
    let lanes = lanes
        .iter()
        .map(|lane| {
            let (mut drawn, mut last) = (Vec::new(), 0);
            let shown = lane.bars.iter().filter(|bar| bar.began_ms < until_ms);
            for bar in shown.filter(|bar| bar.row < MOST_ROWS) {
                let (label, row) = (number(bar.label.as_str()), i64::from(bar.row));
                let began = ticks(bar.began_ms);
                let length = ticks(bar.ended_ms - bar.began_ms).max(0);
                drawn.extend([label, bar.part as i64, row, began - last, length]);
                last = began;
            }
            let (mut ready, mut last) = (Vec::new(), 0);
            for tick in lane.ready.iter().filter(|tick| tick.at_ms < until_ms) {
                let at = ticks(tick.at_ms);
                ready.extend([number(tick.tensor.as_str()), at - last]);
                last = at;
            }
            LaneData {
                rank: lane.rank,
                rows: rows(lane),
                ends_ms: &lane.step_ends_ms,
                bars: drawn,
                ready,
                cycles_ms: &lane.cycles_ms,
            }
        })
        .collect();
    Data {
        x: Axis::linear("time since the first step drawn began", Unit::Ms, from, to),
        y: Axis::places("", []),
        zoom: true,
        parts: PartKind::ALL
            .map(|kind| Part {
                name: title(kind),
                colour: appearance(kind).colour,
                hatch: appearance(kind).hatch,
            })
            .into(),
        labels,
        lanes,
        ticks: TICKS,
    }
}

fn longest(lanes: &[RankBars]) -> Table {
    let mut all: Vec<(u32, &LaneBar)> = bars(lanes).collect();
    let length = |bar: &LaneBar| bar.ended_ms - bar.began_ms;
    all.sort_by(|a, b| length(b.1).total_cmp(&length(a.1)));
    let mut table = Table::new(&["<bar", "<", "<part", "rank", "begins, ms", "lasts"]);
    for (rank, bar) in all.into_iter().take(LONGEST) {
        table.row([
            shortened(&bar.label, LABEL_CHARS).into(),
            Cell::Part(bar.part),
            title(bar.part).into(),
            rank.to_string().into(),
            digits(bar.began_ms).into(),
            ms(length(bar)).into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use ronde_trace::analysis::report::LaneTick;

    fn bar(label: &str, row: u32, began_ms: f64, ended_ms: f64) -> LaneBar {
        LaneBar {
            label: label.into(),
            part: PartKind::CopyIn,
            row,
            began_ms,
            ended_ms,
        }
    }

    fn tick(tensor: &str, at_ms: f64) -> LaneTick {
        LaneTick {
            tensor: tensor.into(),
            at_ms,
        }
    }

    #[test]
    fn bars_travel_as_differences() {
        let lane = RankBars {
            rank: 3,
            ready: vec![tick("b", 0.5), tick("c", 0.75)],
            cycles_ms: vec![],
            step_ends_ms: vec![10.0],
            bars: vec![
                bar("a", 0, 1.0, 2.5),
                bar("b", 1, 2.0, 1.0),
                bar("a", 0, 4.0, 4.5),
            ],
        };
        let data = data(std::slice::from_ref(&lane), f64::INFINITY);
        assert_eq!(data.labels, ["a", "b", "c"]);
        assert_eq!(data.lanes[0].ready, [1, 5_000, 2, 2_500]);
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
            ready: vec![],
            cycles_ms: vec![],
            step_ends_ms: vec![10_000.0, 30_000.0, 70_000.0],
            bars,
        };
        let until = until_ms(std::slice::from_ref(&lane));
        assert_eq!(until, 30_000.0);
        let page = figure(&gathered(&[lane]), 1).into_string();
        assert!(
            page.contains("70,000 bars from 30.0 s on left out"),
            "{}",
            &page[..3000]
        );
        assert!(page.len() < 2 * MOST_BYTES, "{}", page.len());
    }
}
