//! Section on the parts of a step: a bar for start-up and steady state, and a table.

use maud::Markup;
use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::{PartKind, Summary};

use super::head::named;
use super::{name_in_json, recorded_parts};
use crate::chart::{Axis, Chart, Data, Rect, Unit};
use crate::present::units::{counted, decimals, fixed, ms, percent};
use crate::present::{Appearance, Cell, Look, Section, Table};
use crate::timeline::part::{self, appearance, title};

/// Largest width of the bar in characters; a wider bar would show no more.
const BAR_WIDTH_MAX: usize = 80;

/// Section on the parts of the steady steps, with a second bar for the start-up steps.
pub(super) fn section(report: &Report) -> Section<'_> {
    let section = Section::new("breakdown", "Parts of a step");
    let Some(steady) = &report.steady else {
        return section.page_text("No complete step was found, so there are no parts.");
    };
    let mut section = section
        .page(chart(report))
        .terminal(move |look| bars(&named(report), look))
        .table(table(report, steady))
        .texts(notes(report, steady));
    if let Some(startup) = &report.startup {
        section = section.folded("The parts at start-up", table(report, startup));
    }
    named(report)
        .into_iter()
        .fold(section, |section, (name, summary)| {
            section.folded(format!("Activities by phase, {name}"), phases(summary))
        })
}

/// Section on the stages of BytePS, with the share of time in which each overlaps others.
pub(super) fn stages(report: &Report) -> Section<'_> {
    let section = Section::new("stages", "Stages");
    if report.stages.is_empty() {
        return section;
    }
    let places = decimals(report.stages.iter().map(|row| row.total_ms));
    let mut table = Table::headed("<stage; rows a step; total ms; under way ms; overlap");
    for row in &report.stages {
        table.row([
            row.name.clone(),
            fixed(row.rows, 1),
            fixed(row.total_ms, places),
            fixed(row.under_way_ms, places),
            percent(row.overlap),
        ]);
    }
    section
        .table(table)
        .text("Overlap: part of the time in progress that overlaps another stage.")
}

/// One bar, or two bars whose lengths are proportional to the step times.
fn bars(summaries: &[(&str, &Summary)], look: &Look) -> Vec<String> {
    let lengths = summaries.iter().map(|(_, summary)| summary.step_ms.p50);
    let longest = lengths.fold(0.0, f64::max);
    let bar = |(name, summary): &(&str, &Summary)| {
        let name = match summaries {
            [_] => String::new(),
            _ => format!("{name:<9}"),
        };
        let room = (look.width - 2 - name.len()).min(BAR_WIDTH_MAX);
        let width = (room as f64 * summary.step_ms.p50 / longest).round() as usize;
        let parts = summary.parts.iter();
        let shares = parts.map(|part| (appearance(part.kind), part.share));
        let shares: Vec<(&Appearance, f64)> = shares.collect();
        format!("  {name}{}", Look::bar(&shares, width.clamp(1, room)))
    };
    summaries.iter().map(bar).collect()
}

/// Draws a horizontal bar for each summary, with its parts side by side.
fn chart(report: &Report) -> Markup {
    let summaries = named(report);
    let mut ends = vec![0.0; summaries.len()];
    let series = recorded_parts(report).map(|kind| {
        let rect = |(row, (name, summary)): (usize, &(&str, &Summary))| {
            let part = summary.parts.iter().find(|part| part.kind == kind)?;
            let (mean, share) = (part.exposed_ms.mean, percent(part.share));
            let from = ends[row];
            ends[row] += if mean.is_finite() { mean.max(0.0) } else { 0.0 };
            (ends[row] > from).then(|| Rect {
                x: [from, ends[row]],
                y: [row as f64 - 0.32, row as f64 + 0.32],
                colour: String::new(),
                text: format!("{name}: {}\n{}, {share} of the step", title(kind), ms(mean)),
                label: share,
            })
        };
        let boxes = summaries.iter().enumerate().filter_map(rect).collect();
        part::series(kind, Data::Boxes { boxes })
    });
    let series = series.collect();
    let lengths = summaries.iter().map(|(name, summary)| {
        let steps = counted(summary.steps, "step");
        format!("{name}: {steps}, mean {}", ms(summary.step_ms.mean))
    });
    let most = ends.iter().copied().fold(0.0, f64::max);
    let chart = Chart {
        description: "Stacked bars of mean exposed time by part; the table below has the numbers."
            .into(),
        height_px: 60 + 60 * summaries.len() as u32,
        x: Axis::linear("time a step", Unit::Ms, 0.0, most),
        y: Axis::places("", summaries.iter().map(|(name, _)| (*name).to_owned())),
        series,
        ..Chart::new("breakdown-chart", "Parts of a mean step")
    };
    chart.figure(lengths.collect::<Vec<_>>().join("; ") + ".")
}

fn table(report: &Report, summary: &Summary) -> Table {
    let places = decimals([summary.step_ms.p90]);
    let mut table = Table::headed("<; <part; median ms; p90; share; hidden ms");
    let shown = summary.parts.iter().filter(|part| part.total_ms.max > 0.0);
    for part in shown {
        let hidden = part.total_ms.mean - part.exposed_ms.mean;
        let hidden = (hidden > 0.0).then(|| fixed(hidden, places));
        table.row([
            Cell::Mark(appearance(part.kind)),
            name(report, part.kind).into(),
            fixed(part.exposed_ms.p50, places).into(),
            fixed(part.exposed_ms.p90, places).into(),
            percent(part.share).into(),
            hidden.unwrap_or_default().into(),
        ]);
    }
    let [median, p90] = [summary.step_ms.p50, summary.step_ms.p90].map(|ms| fixed(ms, places));
    table.row(["", "step", &median, &p90, "100 %", ""]);
    table
}

fn name(report: &Report, kind: PartKind) -> &'static str {
    match kind {
        PartKind::Compute if report.compute_includes_waiting => "computation and waiting",
        _ => kind.name(),
    }
}

fn phases(summary: &Summary) -> Table {
    let mut table = Table::headed("<phase; time a step with one in progress");
    for (phase, time) in &summary.phases_ms {
        table.row([name_in_json(phase).replace('_', " "), ms(*time)]);
    }
    table
}

fn notes(report: &Report, steady: &Summary) -> Vec<String> {
    let until = if steady.compute_known {
        "computation as the profiler recorded it"
    } else {
        "computation is assumed to last until the rank's last tensor is ready, or to stop during each operation if the rank waits \
         for it"
    };
    let communication = ms(steady.communication_ms.p50);
    let overlap = percent(steady.overlap);
    let mut notes = vec![format!(
        "Communication: {communication} a step, {overlap} of it overlaps computation ({until})."
    )];
    if let Some(streamed) = steady.streamed_ms {
        let [copy_in, reduce, copy_out, wait] = streamed.map(ms);
        notes.push(format!(
            "Within the collective: copying in {copy_in}, reducing {reduce}, copying out \
             {copy_out}, waiting for peers {wait}."
        ));
    }
    let negotiated = [
        ("cached tensors", &report.negotiate_cached_ms),
        ("new ones", &report.negotiate_uncached_ms),
    ];
    let negotiated = negotiated.into_iter().filter_map(|(which, quantiles)| {
        let quantiles = quantiles.as_ref().filter(|quantiles| quantiles.max > 0.0)?;
        let (median, p90) = (ms(quantiles.p50), ms(quantiles.p90));
        Some(format!("{which} {median} (p90 {p90})"))
    });
    let negotiated: Vec<String> = negotiated.collect();
    if !negotiated.is_empty() {
        let negotiated = negotiated.join(", ");
        notes.push(format!(
            "From ready on all ranks to the start of the batch, median: {negotiated}."
        ));
    }
    notes
}
