//! Analysis as one self-contained HTML page: advice first, then charts with their tables.
//!
//! A section without data states the reason in a sentence, or is left out.

mod bandwidth;
mod breakdown;
mod fusion;
mod gather;
mod guide;
mod head;
mod lanes;
mod parts;
#[cfg(test)]
mod sample;
mod sources;
mod steps;
mod stragglers;
#[cfg(test)]
mod tests;

use maud::{Markup, html};

use crate::html::{Document, section};
use ronde_trace::analysis::Report;

const STYLE: &str = include_str!("timeline.css");

/// Renders the page.
pub(crate) fn page(report: &Report) -> String {
    let style = format!("{}{}", parts::style(), STYLE);
    Document {
        title: &head::title(report),
        style: &style,
        body: body(report),
    }
    .render()
}

fn body(report: &Report) -> Markup {
    let sections = [
        ("advice", "What to change", Some(head::advice(report))),
        ("figures", "Key figures", head::figures(report)),
        (
            "breakdown",
            "Where a step’s time goes",
            Some(breakdown::show(report)),
        ),
        (
            "steps",
            "Steps over time",
            steps::show(
                &report.steps,
                report.steady.as_ref(),
                report.startup.is_some(),
            ),
        ),
        (
            "stragglers",
            "Who is late",
            Some(stragglers::show(report.stragglers.as_ref())),
        ),
        (
            "fusion",
            "How tensors travel together",
            Some(fusion::show(report.fusion.as_ref())),
        ),
        (
            "bandwidth",
            "Bandwidth against size",
            bandwidth::show(&report.bandwidth),
        ),
        (
            "lanes",
            "A few steps in full",
            Some(lanes::show(&report.lanes)),
        ),
        ("sources", "Files and warnings", Some(sources::show(report))),
        ("guide", "How to read this page", Some(guide::show())),
    ];
    let shown: Vec<_> = sections
        .into_iter()
        .filter_map(|(id, name, body)| Some((id, name, body?)))
        .collect();
    html! {
        (parts::patterns())
        (head::summary(report))
        nav aria-label="Sections" {
            @for (id, name, _) in &shown { a href={ "#" (id) } { (name) } " " }
        }
        @for (id, name, body) in &shown { (section(id, name, body)) }
    }
}
