//! Report as one self-contained HTML page.

use maud::html;
use ronde_command::Reason;

use super::report::Report;
use crate::html::text::Foreign;
use crate::html::{Document, tile};
use crate::present::markup;
use crate::present::units::{counted, duration, percent, short};

/// Renders the page.
pub(super) fn page(report: &Report) -> String {
    let verdict = &report.verdict;
    let name = report.job.metric.name();
    let figure = |setting| {
        let cost = report.cost_of(setting);
        cost.map_or(crate::present::units::NONE.to_owned(), |cost| {
            short(report.job.figure(cost))
        })
    };
    let start = report.job.plan.start();
    let spent: f64 = report.rows.iter().map(|row| row.seconds).sum();
    let mut tiles = vec![
        ("Start", figure(&start), name.clone()),
        ("Runs", report.rows.len().to_string(), duration(spent)),
    ];
    if verdict.reason == Reason::Faster {
        tiles.insert(0, ("Chosen", figure(&verdict.chosen), name));
    }
    if let Some([mean, low, high]) = verdict.gain {
        let pairs = counted(verdict.pairs as u64, "pair");
        let interval = format!("{} to {}, {pairs}", percent(low), percent(high));
        tiles.push(("Gain of the best setting", percent(mean), interval));
    }
    let title = report.title();
    let document = Document {
        title: &title,
        style: "",
        body: html! {
            p.answer { strong { @for sentence in report.answer() { (Foreign(&sentence)) " " } } }
            dl.tiles { @for (name, value, detail) in &tiles { (tile(name, value, detail)) } }
            (markup(&report.sections()))
        },
    };
    document.render()
}
