//! First section: the files that were read, the steps found in them, and the key figures.

use maud::{Markup, html};
use ronde_trace::Format;
use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::{SourceReport, StepsFoundBy, Summary};

use crate::html::text::shortened;
use crate::html::tile;
use crate::present::units::{bytes, count, counted, decimals, fixed, ms, percent};
use crate::present::{Look, Section, Table, harmless, wrapped};

/// Largest number of characters of a file name in the title of the page.
const TITLE_CHARS: usize = 60;

/// Title of the page: the first file, and the number of other files.
pub(super) fn title(report: &Report) -> String {
    let Some(first) = report.sources.first() else {
        return "Timeline".to_owned();
    };
    let mut parts = first.path.rsplit('/').filter(|part| !part.is_empty());
    let file = shortened(parts.next().unwrap_or(&first.path), TITLE_CHARS);
    match report.sources.len() {
        1 => format!("Timeline {file}"),
        n => format!("Timeline {file} and {} more", n - 1),
    }
}

/// Files on the terminal, key figures on the page, and the number and lengths of the steps.
pub(super) fn section(report: &Report) -> Section<'_> {
    let files = |look: &Look| {
        let files = report.sources.iter().flat_map(|one| source(one, look));
        let mut lines: Vec<String> = files.collect();
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines
    };
    let section = Section::new("figures", "Key figures")
        .untitled()
        .terminal(files)
        .text(found(report));
    match &report.steady {
        Some(steady) => section
            .page(figures(report, steady))
            .table(summaries(report)),
        None => section,
    }
}

fn source(source: &SourceReport, look: &Look) -> Vec<String> {
    let mut text = format_name(source.format).to_owned();
    if let Some(rank) = source.rank {
        text += &format!(", rank {rank}");
    }
    if let Some(at) = &source.recorded_at {
        text += &format!(", {at}");
    }
    text += &format!(
        ": {}, {} on {}, {}",
        counted(source.events, "event"),
        counted(source.operations, "operation"),
        counted(source.tensors, "tensor"),
        ms(source.span_ms),
    );
    let clock = source.clock.as_ref();
    if let Some(clock) = clock.filter(|clock| clock.offset_ns != 0 || clock.error_ns != 0) {
        let [offset, error] = [clock.offset_ns as f64, clock.error_ns as f64].map(|ns| ns / 1e3);
        text += &format!("; clock {offset:+.1} µs, error at most {error:.1} µs");
    }
    let (name, text) = (harmless(&source.path), harmless(&text));
    // A long path gets a line of its own, because the text beside it would have no space.
    let mut lines = if (name.chars().count() + 2) * 2 > look.width {
        let text = wrapped("  ", &text, look.width);
        [name].into_iter().chain(text).collect()
    } else {
        wrapped(&format!("{name}  "), &text, look.width)
    };
    let dropped = (source.dropped_cycles > 0).then(|| {
        let cycles = counted(source.dropped_cycles, "cycle");
        format!("the recorder dropped {cycles} for lack of space")
    });
    for warning in source.warnings.iter().chain(&dropped) {
        let warning = wrapped("  ! ", &harmless(warning), look.width);
        lines.extend(warning.iter().map(|line| look.warn(line)));
    }
    lines
}

/// Name of the software that wrote a file.
pub(super) fn format_name(format: Format) -> &'static str {
    match format {
        Format::Kineto => "PyTorch profiler",
        other => other.name(),
    }
}

fn found(report: &Report) -> String {
    if report.steps.is_empty() {
        return "No step was found: the file has no operation.".to_owned();
    }
    let found_by = match report.steps_found_by {
        StepsFoundBy::Marks => "marked in the file",
        StepsFoundBy::Names => "found by repeating tensor names",
        StepsFoundBy::Period => "found by a repeating sequence of types and sizes",
        StepsFoundBy::Nothing => "no repetition found, so everything is one step",
    };
    let partial = report.steps.iter().filter(|step| step.partial).count();
    let partial = match partial as u64 {
        0 => String::new(),
        partial => format!(
            "; {} skipped: other operations in between, or incomplete",
            count(partial)
        ),
    };
    let steps = counted(report.steps.len() as u64, "step");
    format!("{steps} {} ({found_by}{partial})", place(report))
}

/// Rank whose steps are reported, and the number of ranks, as far as they are known.
fn place(report: &Report) -> String {
    let rank = match report.sources.first().and_then(|source| source.rank) {
        Some(_) => format!("on rank {}", report.reference_rank),
        None => "on an unknown rank".to_owned(),
    };
    match report.ranks_unknown {
        true => format!("{rank}, number of ranks unknown"),
        false => format!("{rank} of {}", report.ranks),
    }
}

/// Summaries that the report has, with their names.
pub(super) fn named(report: &Report) -> Vec<(&'static str, &Summary)> {
    let startup = report.startup.iter().map(|summary| ("start-up", summary));
    let steady = report.steady.iter().map(|summary| ("steady", summary));
    startup.chain(steady).collect()
}

/// Table of the step times at start-up and in the steady state.
fn summaries(report: &Report) -> Table {
    let named = named(report);
    let places = decimals(named.iter().map(|(_, summary)| summary.step_ms.p99));
    let mut table = Table::headed("<step time; from step; steps; median ms; p10; p90; p99");
    for (name, summary) in named {
        let ms = &summary.step_ms;
        let figures = [ms.p50, ms.p10, ms.p90, ms.p99].map(|ms| fixed(ms, places));
        let steps = [summary.first_step, summary.steps].map(count);
        table.row([name.to_owned()].into_iter().chain(steps).chain(figures));
    }
    table
}

/// Tiles with the step time, communication, the slowest rank and others.
fn figures(report: &Report, steady: &Summary) -> Markup {
    let exposed = steady.exposed_ms();
    let stragglers = report.stragglers.as_ref();
    let slowest = stragglers.map(|known| (known.slowest_rank(), &known.slowest_group));
    let (slowest, slow) = match slowest {
        None => ("not known".into(), "ready times of one rank only".into()),
        Some((None, None)) => ("none".into(), "no rank stands out".into()),
        Some((Some(rank), _)) => {
            let cost = format!("costs {} a step", ms(rank.cost_ms));
            (rank.rank.to_string(), cost)
        }
        Some((None, Some(group))) => {
            let cost = format!("together cost {} a step", ms(group.cost_ms));
            (group.ranks_text(), cost)
        }
    };
    let mut tiles = vec![
        (
            "Median step",
            ms(steady.step_ms.p50),
            format!("of {}", counted(steady.steps, "steady step")),
        ),
        (
            "One step in ten is longer than",
            ms(steady.step_ms.p90),
            format!("longest {}", ms(steady.step_ms.max)),
        ),
        (
            "Exposed communication",
            ms(exposed),
            format!("{} of a mean step", percent(exposed / steady.step_ms.mean)),
        ),
        (
            "Overlap",
            percent(steady.overlap),
            format!(
                "of {} hidden behind computation",
                ms(steady.communication_ms.p50)
            ),
        ),
        ("Slowest rank", slowest, slow),
    ];
    if steady.bytes > 0 {
        let tensors = counted(report.tensors.len() as u64, "tensor");
        tiles.push((
            "Payload a step",
            bytes(steady.bytes),
            format!("in {tensors}"),
        ));
    }
    if let Some(startup) = &report.startup {
        let steps = format!("median of the first {}", counted(startup.steps, "step"));
        tiles.push(("Start-up", ms(startup.step_ms.p50), steps));
    }
    html! {
        dl.tiles { @for (name, value, detail) in &tiles { (tile(name, value, detail)) } }
    }
}
