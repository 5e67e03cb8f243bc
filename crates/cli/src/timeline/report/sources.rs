//! Section on the input files, for the page: their contents, warnings and activities.

use serde::Serialize;

use super::head::format_name;
use crate::html::text::Foreign;
use crate::present::units::{count, counted, digits, ms};
use crate::present::{Section, Table};
use maud::html;
use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::SourceReport;

/// Largest number of files, and of warnings of one file.
const MOST_LISTED: usize = 100;

pub(super) fn section(report: &Report) -> Section<'_> {
    let sources = &report.sources[..report.sources.len().min(MOST_LISTED)];
    let mut section = Section::new("sources", "Files").page(html! {
        @for source in sources.iter().filter(|source| !source.warnings.is_empty()) {
            details open {
                summary { (Foreign(&source.path)) ": " (counted(source.warnings.len() as u64, "warning")) }
                ul { @for warning in source.warnings.iter().take(MOST_LISTED) { li { (Foreign(warning)) } } }
            }
        }
    });
    section = section.page_table(table(sources));
    if sources.len() < report.sources.len() {
        let all = report.sources.len();
        section =
            section.page(html! { p.note { "The first " (MOST_LISTED) " of " (all) " files." } });
    }
    for source in sources
        .iter()
        .filter(|source| !source.activities.is_empty())
    {
        section = section.folded(format!("Activities in {}", source.path), activities(source));
    }
    section
}

/// Name of a value in JSON, with spaces instead of underscores.
pub(super) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name.replace('_', " "),
        _ => String::new(),
    }
}

fn table(sources: &[SourceReport]) -> Table {
    let mut table = Table::new(&[
        "<file",
        "<format",
        "rank",
        "span",
        "events",
        "operations",
        "tensors",
        "cycles",
        "dropped",
        "clock",
    ]);
    for source in sources {
        let clock = source.clock.as_ref();
        table.row([
            source.path.clone(),
            format_name(source.format).to_owned(),
            source
                .rank
                .map_or_else(|| "–".to_owned(), |rank| rank.to_string()),
            ms(source.span_ms),
            count(source.events),
            count(source.operations),
            count(source.tensors),
            count(source.cycles),
            count(source.dropped_cycles),
            clock.map_or_else(
                || "–".to_owned(),
                |clock| format!("± {} µs", digits(clock.error_ns as f64 / 1e3)),
            ),
        ]);
    }
    table
}

/// Table of the activities of a file, then of its operations by type.
fn activities(source: &SourceReport) -> Table {
    let mut table = Table::new(&["<activity", "number", "in all"]);
    for row in &source.activities {
        table.row([row.name.clone(), count(row.count), ms(row.total_ms)]);
    }
    for (kind, n) in &source.kinds {
        table.row([word(kind), count(*n), String::new()]);
    }
    table
}
