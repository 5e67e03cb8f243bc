//! Sources section: the input files, their contents, and their warnings.

use maud::{Markup, html};
use serde::Serialize;

use crate::html::text::Foreign;
use crate::html::{folded, wide};
use crate::present::units::{count, counted, digits, ms};
use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::SourceReport;

/// Largest number of files and warnings listed.
const MOST_LISTED: usize = 100;
/// Largest number of activities listed for one file.
const MOST_ACTIVITIES: usize = 40;

pub(super) fn show(report: &Report) -> Markup {
    html! {
        @if !report.warnings.is_empty() { (warnings("Before you believe the numbers", &report.warnings)) }
        @for source in report.sources.iter().filter(|s| !s.warnings.is_empty()).take(MOST_LISTED) {
            (warnings(&source.path, &source.warnings))
        }
        (wide("Files", &table(&report.sources)))
        @if report.sources.len() > MOST_LISTED { p.note { "The first " (MOST_LISTED) " of " (report.sources.len()) " files." } }
        @for source in report.sources.iter().take(MOST_LISTED) {
            @if !source.activities.is_empty() {
                (folded(&format!("Activities in {}", source.path), &activities(source)))
            }
        }
    }
}

/// Name of a value in JSON, with spaces instead of underscores.
pub(super) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name.replace('_', " "),
        _ => String::new(),
    }
}

fn warnings(of: &str, warnings: &[String]) -> Markup {
    html! {
        details open {
            summary { (Foreign(of)) ": " (counted(warnings.len() as u64, "warning")) }
            ul {
                @for warning in warnings.iter().take(MOST_LISTED) { li { (Foreign(warning)) } }
                @if warnings.len() > MOST_LISTED { li { "and " (warnings.len() - MOST_LISTED) " more." } }
            }
        }
    }
}

fn table(sources: &[SourceReport]) -> Markup {
    html! {
        table {
            thead {
                tr {
                    th scope="col" { "File" } th scope="col" { "format" } th.n scope="col" { "rank" }
                    th.n scope="col" { "span" } th.n scope="col" { "events" } th.n scope="col" { "operations" }
                    th.n scope="col" { "tensors" } th.n scope="col" { "cycles" } th.n scope="col" { "dropped" } th.n scope="col" { "clock" }
                }
            }
            tbody {
                @for source in sources.iter().take(MOST_LISTED) {
                    tr {
                        td.name { (Foreign(&source.path)) }
                        td { (word(&source.format)) }
                        td.n { @if let Some(rank) = source.rank { (rank) } @else { "–" } }
                        td.n { (ms(source.span_ms)) }
                        td.n { (count(source.events)) } td.n { (count(source.operations)) } td.n { (count(source.tensors)) }
                        td.n { (count(source.cycles)) } td.n { (count(source.dropped_cycles)) }
                        td.n { @if let Some(clock) = &source.clock { "± " (digits(clock.error_ns as f64 / 1e3)) " µs" } @else { "–" } }
                    }
                }
            }
        }
    }
}

fn activities(source: &SourceReport) -> Markup {
    html! {
        @if !source.kinds.is_empty() {
            p {
                @for (i, (kind, n)) in source.kinds.iter().enumerate() { @if i > 0 { ", " } (count(*n)) " × " (word(kind)) }
                "."
            }
        }
        (wide("Activities", &html! {
            table {
                thead { tr { th scope="col" { "Activity" } th.n scope="col" { "bars" } th.n scope="col" { "added up" } } }
                tbody {
                    @for row in source.activities.iter().take(MOST_ACTIVITIES) {
                        tr { td.name { (Foreign(&row.name)) } td.n { (count(row.count)) } td.n { (ms(row.total_ms)) } }
                    }
                }
            }
        }))
        @if source.activities.len() > MOST_ACTIVITIES {
            p.note { "The first " (MOST_ACTIVITIES) " of " (source.activities.len()) " activities." }
        }
    }
}
