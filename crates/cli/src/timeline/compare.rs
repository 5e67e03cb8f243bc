//! `--compare A B`: what changed from one run to another.

use std::path::Path;
use std::process::ExitCode;

use ronde_trace::analysis::compare::{Change, ChangeGroup};
use ronde_trace::analysis::{Comparison, compare};

use super::args::Args;
use super::error::Error;
use super::input::Inputs;
use super::output::{self, Output};
use super::text::{self, Look, Table, harmless, wrapped};
use super::write_json;

/// Reads both runs and shows what differs.
///
/// # Errors
/// A run that cannot be read, an output that cannot be written.
pub(super) fn run(a: &Path, b: &Path, args: &Args) -> Result<ExitCode, Error> {
    let (a, b) = (Inputs::find_joined(a)?, Inputs::find_joined(b)?);
    let files: Vec<_> = a.files().iter().chain(b.files()).cloned().collect();
    output::check_distinct(&args.outputs(), &files)?;
    let json = args.json.as_deref().map(Output::open).transpose()?;
    let comparison = compare(&a.read()?.report, &b.read()?.report);
    let mut code = ExitCode::SUCCESS;
    if args.stdout_is_free() {
        code = super::print(&text(&comparison, &Look::of_stdout(args.tensors())));
    }
    if let Some(output) = json {
        output.finish(|sink| write_json(sink, &comparison))?;
    }
    Ok(code)
}

/// The comparison for people: what changed first, then everything.
fn text(comparison: &Comparison, look: &Look) -> String {
    let mut sections = vec![vec![
        format!("A  {}", harmless(&comparison.a)),
        format!("B  {}", harmless(&comparison.b)),
    ]];
    let sentences = comparison.sentences.iter();
    sections.push(
        sentences
            .flat_map(|sentence| wrapped("", &harmless(sentence), look.width))
            .collect(),
    );
    sections.push(text::titled(
        "What is not the same",
        settings(comparison, look),
        look,
    ));
    for (group, title) in GROUPS {
        sections.push(text::titled(title, changes(comparison, group, look), look));
    }
    sections.push(text::warnings(&comparison.warnings, look));
    text::page(sections, look)
}

/// The groups of changes, in order.
const GROUPS: [(ChangeGroup, &str); 5] = [
    (ChangeGroup::Step, "Step"),
    (ChangeGroup::Part, "Where its time goes"),
    (ChangeGroup::Fusion, "How tensors travel together"),
    (ChangeGroup::Stragglers, "What each rank costs"),
    (ChangeGroup::Bandwidth, "How fast the collectives are"),
];

fn settings(comparison: &Comparison, look: &Look) -> Vec<String> {
    if comparison.settings.is_empty() {
        return Vec::new();
    }
    let mut table = Table::new(&["<", "<A", "<B"]);
    for setting in &comparison.settings {
        table.row([&setting.name, &setting.a, &setting.b].map(|text| harmless(text)));
    }
    table.lines(look.width)
}

fn changes(comparison: &Comparison, group: ChangeGroup, look: &Look) -> Vec<String> {
    let mut table = Table::new(&["<", "A", "B", "<", "change", "", "<"]);
    let nothing = |change: &&Change| change.a == Some(0.0) && change.b == Some(0.0);
    let of_group = comparison.changes.iter().filter(|change| change.group == group);
    for change in of_group.filter(|change| !nothing(change)) {
        let decimals = text::decimals(change.a.unwrap_or(0.0).abs().max(change.b.unwrap_or(0.0).abs()));
        let value = |value: Option<f64>| match value {
            None => "-".to_owned(),
            Some(bytes) if change.unit == "bytes" => text::bytes(bytes),
            Some(value) => format!("{value:.decimals$}"),
        };
        let difference = match change.difference {
            None => String::new(),
            Some(bytes) if change.unit == "bytes" => {
                let sign = if bytes < 0.0 { '-' } else { '+' };
                format!("{sign}{}", text::bytes(bytes.abs()))
            }
            Some(difference) => format!("{difference:+.decimals$}"),
        };
        table.row([
            harmless(&change.name),
            value(change.a),
            value(change.b),
            if change.unit == "bytes" {
                String::new()
            } else {
                harmless(&change.unit)
            },
            difference,
            change.relative.map(text::change).unwrap_or_default(),
            look.dim(remark(change)),
        ]);
    }
    if table.is_empty() {
        Vec::new()
    } else {
        table.lines(look.width)
    }
}

/// Whether a difference means anything.
fn remark(change: &Change) -> &'static str {
    match (change.difference, change.beyond_spread, change.spread) {
        (None, ..) => "not in both",
        (_, true, _) => "",
        (_, false, Some(_)) => "within what the runs vary",
        (_, false, None) => "no more than a hundredth",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ronde_trace::analysis::compare::SettingChange;

    fn change(group: ChangeGroup, name: &str, unit: &str, a: Option<f64>, b: Option<f64>) -> Change {
        let difference = a.zip(b).map(|(a, b)| b - a);
        Change {
            group,
            name: name.to_owned(),
            unit: unit.to_owned(),
            a,
            b,
            difference,
            relative: a.zip(b).map(|(a, b)| b / a - 1.0),
            spread: Some(1.0),
            beyond_spread: difference.is_some_and(|difference| difference.abs() > 1.0),
        }
    }

    #[test]
    fn what_changed_for_people() {
        let comparison = Comparison {
            a: "a.json".to_owned(),
            b: "b\x1b.json".to_owned(),
            changes: vec![
                change(ChangeGroup::Step, "step", "ms", Some(40.0), Some(30.0)),
                change(ChangeGroup::Step, "start-up", "ms", Some(80.0), None),
                change(ChangeGroup::Part, "collective", "ms", Some(10.0), Some(10.5)),
                change(ChangeGroup::Part, "copying in", "ms", Some(0.0), Some(0.0)),
                change(ChangeGroup::Fusion, "batch", "bytes", Some(4e6), Some(8e6)),
            ],
            settings: vec![SettingChange {
                name: "fusion threshold".to_owned(),
                a: "1 MiB".to_owned(),
                b: "64 MiB".to_owned(),
            }],
            sentences: vec!["The step is 10.0 ms shorter.".to_owned()],
            warnings: Vec::new(),
        };
        let look = Look {
            width: 80,
            colours: false,
            unicode: true,
            tensors: 5,
        };
        assert_eq!(
            text(&comparison, &look),
            "\
A  a.json
B  b\u{fffd}.json

The step is 10.0 ms shorter.

What is not the same
                    A      B
  fusion threshold  1 MiB  64 MiB

Step
                A      B      change
  step      40.00  30.00  ms  -10.00  -25 %
  start-up  80.00      -  ms                 not in both

Where its time goes
                  A      B      change
  collective  10.00  10.50  ms   +0.50  +5.0 %  within what the runs vary

How tensors travel together
              A       B     change
  batch  4.0 MB  8.0 MB    +4.0 MB  +100 %
"
        );
    }
}
