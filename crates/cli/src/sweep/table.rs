//! Sections of a finding, for the terminal and for Markdown: the best settings, the effect of each
//! knob, and the accuracy of the measurements.

use super::words;
use crate::present::units::{NONE, digits};
use crate::present::{Cell, List, Section, Table};
use ronde_lab::sweep::{Finding, Outcome};

/// Number of rows, not counting the default if it is not among the best.
const ROWS: usize = 10;
/// Width of a full bar in characters.
const BAR: usize = 20;

/// Section of the best settings; titles end with `on`.
pub(super) fn best_settings(finding: &Finding, on: &str) -> Section<'static> {
    Section::new("best", format!("Best settings{on}")).table(best(finding))
}

/// Sections below the conclusion.
pub(super) fn evidence(finding: &Finding, on: &str) -> [Section<'static>; 3] {
    let effects = Section::new("knobs", format!("Effect of each knob{on}"));
    let noise = Section::new("noise", format!("Noise{on}"));
    let incomplete = Section::new("incomplete", format!("Cut short or failed{on}"));
    [
        match finding.knobs.is_empty() || words::knobs_tell(finding) {
            true => effects.table(knobs(finding)),
            false => effects.text("No significant difference."),
        },
        noise.list(List::Dashes, words::noise(finding)),
        incomplete.list(List::Dashes, words::incomplete(finding)),
    ]
}

/// Table of the best settings of `finding` and the default.
fn best(finding: &Finding) -> Table {
    let naming = words::naming(finding);
    let complete = |outcome: &&Outcome| outcome.is_complete();
    let points = finding.points.iter().filter(complete);
    let mut shown: Vec<&Outcome> = points.take(ROWS).collect();
    let default = finding.default().filter(complete);
    let is_shown = |one: &Outcome| shown.iter().any(|other| other.point == one.point);
    shown.extend(default.filter(|default| !is_shown(default)));
    let headings = format!(
        "<; fusion MiB; cycle ms; cache; hier.; step ms; predicted ms (80 %); error; above best; \
         against default ({}); n",
        words::percent(words::level(finding))
    );
    let mut table = Table::headed(&headings).with_keys(5);
    for outcome in shown {
        let [fusion, cycle, cache, hierarchical] = naming.cells(&outcome.point);
        let known = |cell: Option<String>| cell.unwrap_or_else(|| NONE.to_owned());
        let predicted = outcome.predicted_ms.map(|predicted| {
            let interval = predicted.interval.map_or_else(String::new, |[low, high]| {
                format!(" ({} to {})", digits(low), digits(high))
            });
            digits(predicted.value) + &interval
        });
        let error = outcome.predicted_ms.zip(outcome.step_ms);
        let error = error.map(|(predicted, ms)| words::signed(predicted.value / ms - 1.0));
        let n = outcome.measurements;
        table.row([
            mark(finding, outcome),
            fusion,
            cycle,
            cache,
            hierarchical,
            known(outcome.step_ms.map(digits)),
            known(predicted),
            known(error),
            known(outcome.above_best.map(words::signed)),
            words::change(outcome.against_default),
            known((n > 0).then(|| n.to_string())),
        ]);
    }
    table.without_empty()
}

/// Table of each knob's share of the differences.
fn knobs(finding: &Finding) -> Table {
    let mut table = Table::headed("<knob; share; |; <effect").with_bars(BAR);
    let mut row = |name: &str, share: f64, effect: String| {
        let percent = words::percent(share);
        table.row([name.into(), percent.into(), Cell::Bar(share), effect.into()]);
    };
    for effect in &finding.knobs {
        row(effect.knob.name(), effect.share, words::effect(effect));
    }
    if finding.knobs.len() > 1 {
        row(
            "together",
            finding.interaction,
            "only in combination".to_owned(),
        );
    }
    table
}

fn mark(finding: &Finding, outcome: &Outcome) -> String {
    let is = |other: Option<&Outcome>| other.is_some_and(|other| other.point == outcome.point);
    let mut words = Vec::new();
    if is(finding.best()) {
        words.push("best");
    } else if outcome.tied {
        words.push("ties");
    }
    if is(finding.default()) {
        words.push("default");
    }
    // At most twelve columns wide, because a longer text would be cut.
    words.join("/")
}
