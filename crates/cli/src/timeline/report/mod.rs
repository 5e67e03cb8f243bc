//! Report on one run as sections of sentences, tables and charts, for the terminal and for one
//! self-contained HTML page.
//!
//! A section without data is left out on the terminal; on the page, it states the reason.

mod bandwidth;
mod fusion;
mod gather;
mod head;
mod lanes;
mod parts;
mod sources;
mod steps;
mod stragglers;
mod tensors;

#[cfg(test)]
mod page_tests;
#[cfg(test)]
pub(super) mod sample;
#[cfg(test)]
mod tests;

use maud::{Markup, html};
use serde::Serialize;

use crate::html::{Document, swatch};
use crate::present::{self, List, Look, Section};
use crate::timeline::part::{self, appearance};
use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::{Advice, PartKind};

const STYLE: &str = include_str!("timeline.css");

/// Largest numbers of rows of tables.
#[derive(Clone, Copy, Debug)]
struct Rows {
    /// Rows of the tables of tensors.
    tensors: usize,
    /// Rows of the table of ranks; of larger jobs, the ranks with the highest cost.
    ranks: usize,
}

/// Returns the report as text that ends with a newline.
pub(super) fn text(report: &Report, look: &Look) -> String {
    let rows = Rows {
        tensors: look.tensors,
        ranks: 12,
    };
    let mut sections = sections(report, rows);
    // The end of a text stays in view, and the beginning of a page.
    sections.rotate_left(1);
    present::text(&sections, look)
}

/// Renders the page.
pub(super) fn page(report: &Report) -> String {
    let rows = Rows {
        tensors: 30,
        ranks: 64,
    };
    Document {
        title: &head::title(report),
        style: &(present::style(&part::all()) + STYLE),
        body: html! {
            (present::patterns(&part::all()))
            (present::markup(&sections(report, rows)))
        },
    }
    .render()
}

/// Sections in the order of the page.
fn sections(report: &Report, rows: Rows) -> Vec<Section<'_>> {
    vec![
        advice(&report.advice),
        head::section(report),
        parts::section(report),
        parts::stages(report),
        steps::section(report),
        stragglers::section(report, rows),
        fusion::section(report),
        bandwidth::section(report),
        tensors::section(report, rows),
        lanes::section(&report.lanes),
        sources::section(report),
        Section::new("warnings", "Warnings").list(List::Warnings, report.warnings.clone()),
        Section::new("guide", "How to read this page").page(guide(report)),
    ]
}

/// Parts that the steps of the report have, in order.
fn recorded_parts(report: &Report) -> impl Iterator<Item = PartKind> {
    let mut has = [false; PartKind::COUNT];
    for step in &report.steps {
        let times = has.iter_mut().zip(step.total_ms);
        times.for_each(|(has, ms)| *has |= ms > 0.0);
    }
    PartKind::ALL
        .into_iter()
        .filter(move |kind| has[*kind as usize])
}

/// Name of a unit variant in JSON.
pub(super) fn name_in_json(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => unreachable!("unit variants are serialized as their names"),
    }
}

fn advice(advice: &[Advice]) -> Section<'_> {
    let item = |advice: &Advice| {
        let setting = advice.variable.as_ref().zip(advice.value.as_ref());
        let setting = setting.map(|(variable, value)| format!("{variable}={value}"));
        // Do not repeat a setting that the sentence contains.
        match setting.filter(|setting| !advice.sentence.contains(setting)) {
            Some(setting) => format!("{} Set {setting}.", advice.sentence),
            None => advice.sentence.clone(),
        }
    };
    let section = Section::new("advice", "Advice");
    match advice {
        [] => section.page_text("No advice: these files do not show a gain from other settings."),
        advice => section.list(List::Numbered, advice.iter().map(item).collect()),
    }
}

/// Definitions of the terms of the page.
fn guide(report: &Report) -> Markup {
    html! {
        dl.guide {
            dt { "A step" }
            dd {
                "lasts from the last result of the previous step to its own last result, on the rank "
                "named at the top."
            }
            @for kind in recorded_parts(report) {
                dt { (swatch(appearance(kind).class())) " " (part::title(kind)) }
                dd { (appearance(kind).meaning) "." }
            }
            dt { "Share and hidden" }
            dd {
                "A part makes the step longer by its exposed time; its hidden time overlaps "
                "computation."
            }
            dt { "Overlap" }
            dd { "is the part of all communication that is hidden." }
            dt { "Step without a rank" }
            dd {
                "is simulated from the ready times of the other ranks, with the batches that they "
                "would form; if that does not reproduce the recorded steps, with the recorded "
                "batches, each as early as these ranks allow."
            }
            dt { "Time of a message" }
            dd {
                "has a part that does not depend on the size, and a part per MiB. For small "
                "batches the first part dominates: fuse more tensors."
            }
            dt { "Median, p10, p90" }
            dd { "are the median and the 10th and 90th percentiles." }
        }
    }
}
