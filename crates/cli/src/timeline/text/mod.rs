//! The report for people: where the time goes, who is late, how tensors travel, and last what to change.

mod fusion;
mod head;
mod look;
mod numbers;
mod parts;
mod stragglers;
mod table;
mod tensors;

#[cfg(test)]
pub(super) mod sample;
#[cfg(test)]
mod tests;

pub(crate) use look::{Look, capitalized, harmless};
pub(crate) use numbers::{binary_bytes, bytes, change, count, decimals, duration, ms, percent, plural};
pub(crate) use table::{Table, wrapped};

use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::Advice;

/// The report as text that ends with a line end.
pub(super) fn report(report: &Report, look: &Look) -> String {
    let sections = [
        head::files(report, look),
        head::steps(report, look),
        parts::section(report, look),
        parts::stages(report, look),
        stragglers::section(report, look),
        fusion::section(report, look),
        fusion::bandwidth(report, look),
        tensors::section(report, look),
        warnings(&report.warnings, look),
        advice(&report.advice, look),
    ];
    page(sections, look)
}

/// Sections of lines, those with something in them, as text that ends with a line end.
pub(crate) fn page(sections: impl IntoIterator<Item = Vec<String>>, look: &Look) -> String {
    let sections: Vec<String> = sections
        .into_iter()
        .filter(|section| !section.is_empty())
        .map(|section| section.join("\n"))
        .collect();
    look.shown(&(sections.join("\n\n") + "\n"))
}

/// Lines about what the reader should know before believing the numbers.
pub(crate) fn warnings(warnings: &[String], look: &Look) -> Vec<String> {
    let lines = warnings
        .iter()
        .flat_map(|warning| wrapped("  ! ", &harmless(warning), look.width));
    let lines: Vec<String> = lines.map(|line| look.warn(&line)).collect();
    titled("Before you believe this", lines, look)
}

fn advice(advice: &[Advice], look: &Look) -> Vec<String> {
    if advice.is_empty() {
        return Vec::new();
    }
    let lines = advice
        .iter()
        .enumerate()
        .flat_map(|(index, advice)| {
            wrapped(
                &format!("  {}. ", index + 1),
                &harmless(&advice.sentence),
                look.width,
            )
        })
        .collect();
    titled("Advice", lines, look)
}

/// `lines` under a title; nothing if there are none.
pub(crate) fn titled(title: &str, lines: Vec<String>, look: &Look) -> Vec<String> {
    if lines.is_empty() {
        return lines;
    }
    std::iter::once(look.title(title)).chain(lines).collect()
}
