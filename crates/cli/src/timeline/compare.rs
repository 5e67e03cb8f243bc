//! `--compare A B`: differences between two runs.

use std::path::Path;
use std::process::ExitCode;

use ronde_trace::analysis::compare::{Change, ChangeGroup};
use ronde_trace::analysis::{Comparison, compare};

use super::args::Args;
use super::conclude;
use super::input::Inputs;
use crate::error::Error;
use crate::present::output;
use crate::present::units::{bytes, change as relative, decimals};
use crate::present::{self, Cell, List, Look, Section, Table, harmless};

/// Reads both runs and writes their differences.
pub(super) fn run(a: &Path, b: &Path, args: &Args) -> Result<ExitCode, Error> {
    let (a, b) = (Inputs::find_joined(a)?, Inputs::find_joined(b)?);
    let files: Vec<_> = a.files().iter().chain(b.files()).cloned().collect();
    output::check_distinct(&args.outputs(), &files)?;
    let json = output::open(&args.json)?;
    let comparison = compare(&a.report()?, &b.report()?);
    conclude(args, json, |look| text(&comparison, look), &comparison)
}

/// Renders the comparison as text: first a summary of the changes, then all values.
fn text(comparison: &Comparison, look: &Look) -> String {
    let section = |title| Section::new("", title);
    let names = [("A  ", &comparison.a), ("B  ", &comparison.b)];
    let names = names.map(|(letter, name)| format!("{letter}{}", harmless(name)));
    let first = [
        section("").untitled().terminal(move |_| names.to_vec()),
        section("").untitled().texts(&comparison.sentences),
        section("Settings that differ").table(settings(comparison)),
    ];
    let group = |(group, title)| section(title).table(changes(comparison, group, look));
    let warnings = section("Warnings").list(List::Warnings, comparison.warnings.clone());
    let sections = first.into_iter().chain(GROUPS.map(group)).chain([warnings]);
    present::text(&sections.collect::<Vec<_>>(), look)
}

/// Groups of changes, in the order of the text.
const GROUPS: [(ChangeGroup, &str); 5] = [
    (ChangeGroup::Step, "Step"),
    (ChangeGroup::Part, "Parts of the step"),
    (ChangeGroup::Fusion, "Tensor fusion"),
    (ChangeGroup::Stragglers, "Cost of each rank"),
    (ChangeGroup::Bandwidth, "Bandwidth of the collectives"),
];

fn settings(comparison: &Comparison) -> Table {
    let mut table = Table::headed("<; <A; <B");
    for setting in &comparison.settings {
        table.row([&setting.name, &setting.a, &setting.b].map(String::as_str));
    }
    table
}

fn changes(comparison: &Comparison, group: ChangeGroup, look: &Look) -> Table {
    let mut table = Table::headed("<; A; B; <; change; ; scatter; <");
    let nothing = |change: &Change| change.a == Some(0.0) && change.b == Some(0.0);
    let shown = |change: &&Change| change.group == group && !nothing(change);
    for change in comparison.changes.iter().filter(shown) {
        let decimals = decimals(change.a.into_iter().chain(change.b));
        let is_size = change.unit == "bytes";
        let number = |value: f64| match is_size {
            true => bytes(value as u64),
            false => format!("{value:.decimals$}"),
        };
        let value = |value: Option<f64>| value.map_or("-".to_owned(), number);
        let difference = change.difference.map(|difference| {
            let sign = if difference < 0.0 { '-' } else { '+' };
            format!("{sign}{}", number(difference.abs()))
        });
        table.row([
            change.name.as_str().into(),
            value(change.a).into(),
            value(change.b).into(),
            if is_size { "" } else { &change.unit }.into(),
            difference.unwrap_or_default().into(),
            change.relative.map(relative).unwrap_or_default().into(),
            change.spread.map(number).unwrap_or_default().into(),
            Cell::Styled(look.dim(remark(change))),
        ]);
    }
    table
}

/// Note on a difference that may not be significant; empty if it is.
fn remark(change: &Change) -> &'static str {
    match (change.difference, change.significant, change.margin) {
        (None, ..) => "not in both",
        (_, true, _) => "",
        (_, false, Some(_)) => "not significant",
        (_, false, None) => "at most 1 %",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::report::sample;

    #[test]
    fn the_whole_comparison() {
        let (a, mut b) = (sample::report(), sample::report());
        b.sources[0].path = "b\x1b.json".to_owned();
        b.startup = None;
        let steady = b.steady.as_mut().unwrap();
        (steady.step_ms.p50, steady.step_ms.p90) = (30.0, 33.0);
        steady.parts[0].exposed_ms.p50 = 14.0;
        let fusion = b.fusion.as_mut().unwrap();
        fusion.threshold_bytes = Some(64 << 20);
        fusion.bytes_per_batch.p50 *= 2.0;
        let look = Look {
            width: 100,
            unicode: true,
            ..Look::PLAIN
        };
        let comparison = compare(&a, &b);
        ronde_cases::document("comparison.txt", &text(&comparison, &look));
        ronde_cases::fields("TIMELINE.md", "## Fields of the JSON", &comparison, &[]);
    }
}
