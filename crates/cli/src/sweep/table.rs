//! Sections of a finding, for the terminal and for Markdown: the best settings, the effect of each
//! knob, and the accuracy of the measurements.

use super::words;
use crate::present::units::{NONE, digits};
use crate::present::{Cell, List, Section, Table};
use ronde_lab::sweep::{Basis, Ending, Finding, Outcome, Point};

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
            false => effects.text("No difference beyond chance."),
        },
        noise.list(List::Dashes, words::noise(finding)),
        incomplete.list(List::Dashes, words::incomplete(finding)),
    ]
}

/// Table of the best settings of `finding` and the default.
fn best(finding: &Finding) -> Table {
    let naming = words::naming(finding);
    let timed = |outcome: &&Outcome| matches!(outcome.ending, Ending::Measured | Ending::Predicted);
    let mut shown: Vec<&Outcome> = finding.points.iter().filter(timed).take(ROWS).collect();
    let default = finding.default().filter(timed);
    shown.extend(
        default.filter(|default| !shown.iter().any(|outcome| outcome.point == default.point)),
    );
    let measured = finding.basis != Basis::Predicted;
    let predicted = shown.iter().any(|outcome| outcome.predicted_ms.is_some());
    let against = format!("against default ({} %)", words::level(finding));
    let columns = [
        (measured, "step ms"),
        (predicted, "predicted ms (80 %)"),
        (measured && predicted, "error"),
        (true, "above best"),
        (true, against.as_str()),
        (measured, "n"),
    ];
    let settings = naming.columns(&Point::default_of(finding.np));
    let others = columns
        .iter()
        .filter(|(is_shown, _)| *is_shown)
        .map(|(_, heading)| *heading);
    let settings = settings.into_iter().map(|(heading, _)| heading);
    let headings: Vec<&str> = ["<"]
        .into_iter()
        .chain(settings.clone())
        .chain(others)
        .collect();
    let mut table = Table::new(&headings).with_keys(1 + settings.count());
    for outcome in shown {
        let dash = || NONE.to_owned();
        let both = outcome.step_ms.zip(outcome.predicted_ms);
        let cells = [
            outcome.step_ms.map_or_else(dash, digits),
            outcome.predicted_ms.map_or_else(dash, |predicted| {
                let interval = predicted
                    .interval
                    .map(|[low, high]| format!(" ({} to {})", digits(low), digits(high)));
                digits(predicted.value) + &interval.unwrap_or_default()
            }),
            both.map_or_else(dash, |(ms, predicted)| {
                words::signed(predicted.value / ms - 1.0)
            }),
            outcome.above_best.map_or_else(dash, words::signed),
            words::change(outcome.against_default),
            outcome.measurements.to_string(),
        ];
        let others = columns
            .iter()
            .zip(cells)
            .filter(|((is_shown, _), _)| *is_shown);
        let settings = naming
            .columns(&outcome.point)
            .into_iter()
            .map(|(_, cell)| cell);
        let mark = [mark(finding, outcome)].into_iter();
        table.row(mark.chain(settings).chain(others.map(|(_, cell)| cell)));
    }
    table
}

/// Table of each knob's share of the differences.
fn knobs(finding: &Finding) -> Table {
    let mut table = Table::new(&["<knob", "share", "|", "<effect"]).with_bars(BAR);
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
