//! Text section on the parts of a step: a bar and a table.

use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::{PartKind, Summary};

use crate::present::units::{decimals, ms, percent};
use crate::present::{Look, Table, harmless, key, titled, wrapped};

/// Largest width of the bar in characters; a wider bar would show no more.
const BAR_WIDTH_MAX: usize = 80;

/// Section on the parts of the steady steps, with a second bar for the start-up steps.
pub(super) fn section(report: &Report, look: &Look) -> Vec<String> {
    let Some(steady) = &report.steady else {
        return Vec::new();
    };
    let mut lines = bars(report.startup.as_ref(), steady, look);
    lines.extend(table(steady, look));
    lines.extend(notes(report, steady, look));
    titled("Parts of a step", lines, look)
}

/// Section on the stages of BytePS, with the share of time in which each overlaps others.
pub(super) fn stages(report: &Report, look: &Look) -> Vec<String> {
    if report.stages.is_empty() {
        return Vec::new();
    }
    let decimals = decimals(report.stages.iter().map(|row| row.total_ms));
    let mut table = Table::new(&[
        "<stage",
        "rows a step",
        "total ms",
        "under way ms",
        "overlap",
    ]);
    for row in &report.stages {
        table.row([
            harmless(&row.name),
            format!("{:.1}", row.rows),
            format!("{:.decimals$}", row.total_ms),
            format!("{:.decimals$}", row.under_way_ms),
            percent(row.overlap),
        ]);
    }
    let mut lines = table.lines(look.width);
    let note = "Overlap: part of the time under way with another stage under way too.";
    lines.extend(wrapped("  ", note, look.width));
    titled("Stages", lines, look)
}

/// One bar, or two bars whose lengths are proportional to the step times.
fn bars(startup: Option<&Summary>, steady: &Summary, look: &Look) -> Vec<String> {
    let named: Vec<(&str, &Summary)> = match startup {
        Some(startup) => vec![("start-up ", startup), ("steady   ", steady)],
        None => vec![("", steady)],
    };
    let longest = named
        .iter()
        .map(|(_, summary)| summary.step_ms.p50)
        .fold(0.0, f64::max);
    let bar = |(name, summary): &(&str, &Summary)| {
        let room = (look.width - 2 - name.len()).min(BAR_WIDTH_MAX);
        let width = (room as f64 * summary.step_ms.p50 / longest).round() as usize;
        let shares: Vec<(PartKind, f64)> = summary
            .parts
            .iter()
            .map(|part| (part.kind, part.share))
            .collect();
        format!("  {name}{}", look.bar(&shares, width.clamp(1, room)))
    };
    named.iter().map(bar).collect()
}

fn table(steady: &Summary, look: &Look) -> Vec<String> {
    let decimals = decimals([steady.step_ms.p90]);
    let number = |ms: f64| format!("{ms:.decimals$}");
    let mut table = Table::new(&["<", "<part", "median ms", "p90", "share", "hidden ms"]);
    for part in steady.parts.iter().filter(|part| part.total_ms.max > 0.0) {
        let hidden = (part.total_ms.mean - part.exposed_ms.mean).max(0.0);
        table.row([
            look.part(part.kind, &key(part.kind)),
            part.kind.name().to_owned(),
            number(part.exposed_ms.p50),
            number(part.exposed_ms.p90),
            percent(part.share),
            if hidden > 0.0 {
                number(hidden)
            } else {
                String::new()
            },
        ]);
    }
    table.row([
        String::new(),
        "step".to_owned(),
        number(steady.step_ms.p50),
        number(steady.step_ms.p90),
        "100 %".to_owned(),
        String::new(),
    ]);
    table.lines(look.width)
}

fn notes(report: &Report, steady: &Summary, look: &Look) -> Vec<String> {
    let until = if steady.compute_known {
        "computation as the profiler recorded it"
    } else {
        "computation is assumed to last until the rank's last tensor is ready"
    };
    let mut notes = vec![format!(
        "Communication: {} a step, {} of it overlaps computation ({until}).",
        ms(steady.communication_ms.p50),
        percent(steady.overlap)
    )];
    if let Some([copy_in, reduce, copy_out, wait]) = steady.streamed_ms {
        notes.push(format!(
            "Within the collective: copying in {}, reducing {}, copying out {}, waiting for peers {}.",
            ms(copy_in),
            ms(reduce),
            ms(copy_out),
            ms(wait)
        ));
    }
    let negotiated = [
        ("cached tensors", &report.negotiate_cached_ms),
        ("new ones", &report.negotiate_uncached_ms),
    ];
    let negotiated: Vec<String> = negotiated
        .into_iter()
        .filter_map(|(which, quantiles)| {
            let quantiles = quantiles.as_ref().filter(|quantiles| quantiles.max > 0.0)?;
            Some(format!(
                "{which} {} (p90 {})",
                ms(quantiles.p50),
                ms(quantiles.p90)
            ))
        })
        .collect();
    if !negotiated.is_empty() {
        let negotiated = negotiated.join(", ");
        notes.push(format!(
            "From ready on all ranks to the start of the batch, median: {negotiated}."
        ));
    }
    notes
        .iter()
        .flat_map(|note| wrapped("  ", note, look.width))
        .collect()
}
