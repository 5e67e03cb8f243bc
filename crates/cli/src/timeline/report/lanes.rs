//! Section of lanes, for the page: ready ticks, batches and cycles of every rank over a few steps,
//! in a chart with zoom.
//!
//! The bars are embedded as compact JSON; `charts.js` of `ronde-charts` draws those in view.
//! Without JavaScript, only the table of the longest bars is shown.

use std::collections::{HashMap, HashSet};

use maud::{Markup, html};
use serde::Serialize;

use super::gather::{BAND_ROWS, MOST_ROWS, gathered};
use crate::chart::{Axis, Unit, page};
use crate::html::text::{shortened, visible};
use crate::present::units::{counted, digits, ms};
use crate::present::{Cell, Section, Table};
use crate::timeline::part::{appearance, title};
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

/// Data that `charts.js` of `ronde-charts` draws.
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
        return section.page_text("There is no complete steady step to draw.");
    }
    section
        .page(figure(shown, lanes.len()))
        .folded("The longest bars as a table", longest(shown))
}

fn figure(shown: &[RankBars], ranks: usize) -> Markup {
    let until_ms = until_ms(shown);
    let crowded = bars(shown).filter(|(_, bar)| bar.row >= MOST_ROWS).count();
    let left_out = bars(shown).filter(|(_, bar)| bar.began_ms >= until_ms);
    let left_out = left_out.count();
    html! {
        p.screen-only {
            "Zoom with the buttons, the slider, two fingers or the wheel with " kbd { "Ctrl" }
            "; drag to move. Point at a bar to read it; click a name to hide it."
        }
        figure {
            (page::frame(
                "lane-chart",
                "Ready ticks, batches and cycles of every rank",
                "One lane for each rank, time from left to right; the longest bars are in the \
                 table below.",
                height_px(shown),
                &data(shown, until_ms),
            ))
        }
        p.note {
            "Tensors of one batch share a bar. The upper row of a rank has a tick for every tensor "
            "that it reported ready. Times count from the beginning of the first step drawn, on "
            "the clock of the rank whose steps these are; dashed lines are where steps end. "
            @if shown.len() < ranks { "The first " (MOST_LANES) " of " (ranks) " ranks. " }
            @if crowded > 0 {
                (counted(crowded as u64, "bar")) " left out where more than " (BAND_ROWS)
                " of a kind overlap on a rank. "
            }
            @if left_out > 0 {
                (counted(left_out as u64, "bar")) " from " (ms(until_ms))
                " on left out, to keep this page small. "
            }
        }
    }
}

fn bars(lanes: &[RankBars]) -> impl Iterator<Item = (u32, &LaneBar)> {
    lanes
        .iter()
        .flat_map(|lane| std::iter::repeat(lane.rank).zip(&lane.bars))
}

/// Time from which bars are left out to limit the size of the data: the end of a step if one fits,
/// else the beginning of the first bar that does not fit.
fn until_ms(lanes: &[RankBars]) -> f64 {
    let mut all: Vec<&LaneBar> = bars(lanes).map(|(_, bar)| bar).collect();
    all.sort_by(|a, b| a.began_ms.total_cmp(&b.began_ms));
    let (mut bytes, mut seen) = (0, HashSet::new());
    let full = all.iter().find(|bar| {
        // About twenty characters per bar, and each label once.
        bytes += 20;
        if seen.insert(&bar.label) {
            bytes += bar.label.len().min(4 * LABEL_CHARS) + 3;
        }
        bytes > MOST_BYTES
    });
    let Some(full) = full else {
        return f64::INFINITY;
    };
    let ends = lanes.first().map_or(&[][..], |lane| &lane.step_ends_ms);
    let fitting = ends
        .iter()
        .rfind(|end| **end > 0.0 && **end <= full.began_ms);
    *fitting.unwrap_or(&full.began_ms)
}

/// Height of the chart in pixels: enough to read the bars, but not much more than a screen.
fn height_px(lanes: &[RankBars]) -> u32 {
    let rows: u32 = lanes.iter().map(|lane| rows(lane) + 2).sum();
    90 + (rows * 14).clamp(140, 900)
}

fn rows(lane: &RankBars) -> u32 {
    let rows = lane.bars.iter().map(|bar| bar.row + 1);
    rows.filter(|row| *row <= MOST_ROWS).max().unwrap_or(0)
}

fn data(lanes: &[RankBars], until_ms: f64) -> Data<'_> {
    let step_ends = lanes.iter().flat_map(|lane| &lane.step_ends_ms).copied();
    let ends = bars(lanes).map(|(_, bar)| bar.ended_ms).chain(step_ends);
    let to = ends.fold(0.0, f64::max).min(until_ms);
    let from = bars(lanes).map(|(_, bar)| bar.began_ms).fold(0.0, f64::min);
    let drawn = |bar: &&LaneBar| bar.began_ms < until_ms && bar.row < MOST_ROWS;
    let has = |kind: &PartKind| bars(lanes).any(|(_, bar)| bar.part == *kind && drawn(&bar));
    let parts: Vec<PartKind> = PartKind::ALL.into_iter().filter(has).collect();
    let mut labels = Vec::new();
    let mut numbers = HashMap::new();
    let mut number = |label| {
        *numbers.entry(label).or_insert_with(|| {
            labels.push(visible(&shortened(label, LABEL_CHARS)));
            labels.len() as i64 - 1
        })
    };
    let ticks = |ms: f64| (ms * TICKS).round() as i64;
    let lanes = lanes.iter().map(|lane| {
        let (mut bars, mut last) = (Vec::new(), 0);
        for bar in lane.bars.iter().filter(drawn) {
            let part = parts.iter().position(|part| *part == bar.part);
            let (label, part) = (number(bar.label.as_str()), part.unwrap_or(0) as i64);
            let began = ticks(bar.began_ms);
            let length = ticks(bar.ended_ms - bar.began_ms).max(0);
            bars.extend([label, part, i64::from(bar.row), began - last, length]);
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
            bars,
            ready,
            cycles_ms: &lane.cycles_ms,
        }
    });
    let lanes = lanes.collect();
    let part = |kind: PartKind| Part {
        name: title(kind),
        colour: appearance(kind).colour,
        hatch: appearance(kind).hatch,
    };
    Data {
        x: Axis::linear("time since the first step drawn began", Unit::Ms, from, to),
        y: Axis::places("", []),
        zoom: true,
        parts: parts.iter().copied().map(part).collect(),
        labels,
        lanes,
        ticks: TICKS,
    }
}

fn longest(lanes: &[RankBars]) -> Table {
    let mut all: Vec<(u32, &LaneBar)> = bars(lanes).collect();
    let length = |bar: &LaneBar| bar.ended_ms - bar.began_ms;
    all.sort_by(|a, b| length(b.1).total_cmp(&length(a.1)));
    let mut table = Table::headed("<bar; <; <part; rank; begins, ms; lasts");
    for (rank, bar) in all.into_iter().take(LONGEST) {
        table.row([
            shortened(&bar.label, LABEL_CHARS).into(),
            Cell::Mark(appearance(bar.part)),
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

    fn lane(bars: impl IntoIterator<Item = (&'static str, u32, f64, f64)>) -> RankBars {
        let bar = |(label, row, began_ms, ended_ms): (&str, u32, f64, f64)| LaneBar {
            label: label.into(),
            part: PartKind::CopyIn,
            row,
            began_ms,
            ended_ms,
        };
        RankBars {
            rank: 3,
            ready: vec![],
            cycles_ms: vec![],
            step_ends_ms: vec![10_000.0, 30_000.0, 70_000.0],
            bars: bars.into_iter().map(bar).collect(),
        }
    }

    #[test]
    fn bars_are_embedded_as_differences() {
        let bars = [("a", 0, 1.0, 2.5), ("b", 1, 2.0, 1.0), ("a", 0, 4.0, 4.5)];
        let tick = |tensor: &str, at_ms| LaneTick {
            tensor: tensor.into(),
            at_ms,
        };
        let lane = RankBars {
            ready: vec![tick("b", 0.5), tick("c", 0.75)],
            ..lane(bars)
        };
        let data = data(std::slice::from_ref(&lane), f64::INFINITY);
        assert_eq!(data.labels, ["a", "b", "c"]);
        let names: Vec<&str> = data.parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["Copying in"]);
        let lane = &data.lanes[0];
        assert_eq!((lane.rank, lane.rows), (3, 2));
        assert_eq!(lane.ready, [1, 5_000, 2, 2_500]);
        let first_two = [0, 0, 0, 10_000, 15_000, 1, 0, 1, 10_000, 0];
        assert_eq!(lane.bars[..10], first_two);
        assert_eq!(lane.bars[10..], [0, 0, 0, 20_000, 5_000]);
    }

    #[test]
    fn too_many_bars_end_with_a_step() {
        let bars = (0..100_000).map(|i| ("a", 0, f64::from(i), f64::from(i) + 0.5));
        let lane = lane(bars);
        assert_eq!(until_ms(std::slice::from_ref(&lane)), 30_000.0);
        let page = figure(&gathered(&[lane]), 1).into_string();
        let note = "70,000 bars from 30.0 s on left out";
        assert!(page.contains(note), "{}", &page[..3000]);
        assert!(page.len() < 2 * MOST_BYTES, "{}", page.len());
    }
}
