//! First text sections: the files that were read, and the steps found in them.

use ronde_trace::Format;
use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::{SourceReport, StepsFoundBy, Summary};

use crate::present::units::{count, counted, decimals, ms};
use crate::present::{Look, Table, harmless, wrapped};

/// A line for each file, followed by its warnings.
pub(super) fn files(report: &Report, look: &Look) -> Vec<String> {
    let sources = report.sources.iter();
    sources
        .flat_map(|source| self::source(source, look))
        .collect()
}

/// Number of steps, and their lengths.
pub(super) fn steps(report: &Report, look: &Look) -> Vec<String> {
    let mut lines = wrapped("", &found(report), look.width);
    lines.extend(summaries(report, look));
    lines
}

fn source(source: &SourceReport, look: &Look) -> Vec<String> {
    let rank = source
        .rank
        .map_or(String::new(), |rank| format!(", rank {rank}"));
    let recorded_at = source
        .recorded_at
        .as_ref()
        .map_or(String::new(), |at| format!(", {}", harmless(at)));
    let mut text = format!(
        "{}{rank}{recorded_at}: {}, {} on {}, {}",
        format_name(source.format),
        counted(source.events, "event"),
        counted(source.operations, "operation"),
        counted(source.tensors, "tensor"),
        ms(source.span_ms),
    );
    if let Some(clock) = source
        .clock
        .filter(|clock| clock.offset_ns != 0 || clock.error_ns != 0)
    {
        text += &format!(
            "; clock {:+.1} µs, known to {:.1} µs",
            clock.offset_ns as f64 / 1e3,
            clock.error_ns as f64 / 1e3
        );
    }
    let name = format!("{}  ", harmless(&source.path));
    // A long path gets a line of its own, because the text beside it would have no space.
    let mut lines = if name.chars().count() * 2 > look.width {
        let mut lines = vec![name.trim_end().to_owned()];
        lines.extend(wrapped("  ", &text, look.width));
        lines
    } else {
        wrapped(&name, &text, look.width)
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
fn format_name(format: Format) -> &'static str {
    match format {
        Format::Horovod => "Horovod",
        Format::Ronde => "Ronde",
        Format::Byteps => "BytePS",
        Format::Kineto => "PyTorch profiler",
    }
}

fn found(report: &Report) -> String {
    let found_by = match report.steps_found_by {
        StepsFoundBy::Marks => "marked in the file",
        StepsFoundBy::Names => "found by repeating tensor names",
        StepsFoundBy::Period => "found by a repeating sequence of types and sizes",
        StepsFoundBy::Nothing => "no repetition found, so everything is one step",
    };
    let partial = report.steps.iter().filter(|step| step.partial).count();
    let partial = match partial {
        0 => String::new(),
        partial => format!(
            "; {} skipped: other operations in between, or incomplete",
            count(partial as u64)
        ),
    };
    if report.steps.is_empty() {
        return "No step was found: the file has no operation.".to_owned();
    }
    format!(
        "{} on rank {} of {} ({found_by}{partial})",
        counted(report.steps.len() as u64, "step"),
        report.reference_rank,
        report.ranks
    )
}

/// Table of the step times at start-up and in the steady state.
fn summaries(report: &Report, look: &Look) -> Vec<String> {
    let named = [("start-up", &report.startup), ("steady", &report.steady)];
    let named: Vec<(&str, &Summary)> = named
        .into_iter()
        .filter_map(|(name, summary)| Some((name, summary.as_ref()?)))
        .collect();
    let decimals = decimals(named.iter().map(|(_, summary)| summary.step_ms.p99));
    let mut table = Table::new(&[
        "<step time",
        "from step",
        "steps",
        "median ms",
        "p10",
        "p90",
        "p99",
    ]);
    for (name, summary) in named {
        let ms = &summary.step_ms;
        let figures = [ms.p50, ms.p10, ms.p90, ms.p99].map(|ms| format!("{ms:.decimals$}"));
        let cells = [
            name.to_owned(),
            count(summary.first_step),
            count(summary.steps),
        ];
        table.row(cells.into_iter().chain(figures));
    }
    table.lines(look.width)
}
