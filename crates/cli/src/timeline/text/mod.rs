//! Report as text for a terminal: parts of a step, stragglers, tensor fusion, tensors, and advice
//! at the end.

mod fusion;
mod head;
mod parts;
mod stragglers;
mod tensors;

#[cfg(test)]
pub(super) mod sample;
#[cfg(test)]
mod tests;

use crate::present::{Look, harmless, page, titled, warnings, wrapped};
use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::Advice;

/// Returns the report as text that ends with a newline.
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
