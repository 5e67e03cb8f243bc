//! Section on the input files, for the page: their contents, warnings and activities.

use maud::html;
use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::SourceReport;

use super::head::format_name;
use super::name_in_json;
use crate::html::text::Foreign;
use crate::present::units::{NONE, count, counted, digits, ms};
use crate::present::{Section, Table};

/// Largest number of files, and of warnings of one file.
const MOST_LISTED: usize = 100;

pub(super) fn section(report: &Report) -> Section<'_> {
    let all = report.sources.len();
    let sources = &report.sources[..all.min(MOST_LISTED)];
    let warned = sources.iter().filter(|source| !source.warnings.is_empty());
    let mut section = Section::new("sources", "Files")
        .page(html! {
            @for source in warned {
                details open {
                    summary {
                        (Foreign(&source.path)) ": "
                        (counted(source.warnings.len() as u64, "warning"))
                    }
                    ul {
                        @for warning in source.warnings.iter().take(MOST_LISTED) {
                            li { (Foreign(warning)) }
                        }
                    }
                }
            }
        })
        .page_table(table(sources));
    if sources.len() < all {
        section = section.page_text(&format!("The first {MOST_LISTED} of {all} files."));
    }
    let acted = sources
        .iter()
        .filter(|source| !source.activities.is_empty());
    acted.fold(section, |section, source| {
        section.folded(format!("Activities in {}", source.path), activities(source))
    })
}

fn table(sources: &[SourceReport]) -> Table {
    let mut table = Table::headed(
        "<file; <format; rank; span; events; operations; tensors; cycles; dropped; clock",
    );
    for source in sources {
        let error_us = |error_ns| format!("± {} µs", digits(error_ns as f64 / 1e3));
        let clock = source.clock.map(|clock| error_us(clock.error_ns));
        table.row([
            source.path.clone(),
            format_name(source.format).to_owned(),
            source.rank.map_or(NONE.to_owned(), |rank| rank.to_string()),
            ms(source.span_ms),
            count(source.events),
            count(source.operations),
            count(source.tensors),
            count(source.cycles),
            count(source.dropped_cycles),
            clock.unwrap_or_else(|| NONE.to_owned()),
        ]);
    }
    table
}

/// Table of the activities of a file, then of its operations by type.
fn activities(source: &SourceReport) -> Table {
    let mut table = Table::headed("<activity; number; in all");
    for row in &source.activities {
        table.row([row.name.clone(), count(row.count), ms(row.total_ms)]);
    }
    for (kind, n) in &source.kinds {
        table.row([name_in_json(kind), count(*n), String::new()]);
    }
    table
}
