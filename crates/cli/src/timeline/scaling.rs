//! `--scaling RUN…`: efficiency of runs with increasing numbers of ranks, and the part of the step
//! that limits it.

use std::path::PathBuf;
use std::process::ExitCode;

use ronde_trace::analysis::report::PartKind;
use ronde_trace::analysis::scaling::ScalingRow;
use ronde_trace::analysis::{Scaling, ScalingRun, scaling};

use super::args::Args;
use super::conclude;
use super::input::Inputs;
use crate::error::Error;
use crate::present::output;
use crate::present::units::{decimals, fixed, percent};
use crate::present::{self, Cell, List, Look, Section, Table};

/// Reads the runs and writes how they scale.
pub(super) fn run(runs: &[PathBuf], args: &Args) -> Result<ExitCode, Error> {
    let inputs = runs.iter().map(|run| Inputs::find_joined(run));
    let inputs: Vec<Inputs> = inputs.collect::<Result<_, _>>()?;
    let files: Vec<PathBuf> = inputs.iter().flat_map(Inputs::files).cloned().collect();
    output::check_distinct(&args.outputs(), &files)?;
    let json = output::open(&args.json)?;
    let read = |(path, inputs): (&PathBuf, Inputs)| {
        let label = path.display().to_string();
        match inputs {
            Inputs::Bench(_, result) => Ok(ScalingRun::from_bench(&label, &result)?),
            inputs => Ok(ScalingRun::from_report(&label, &inputs.report()?)?),
        }
    };
    let series = runs.iter().zip(inputs).map(read);
    let scaling = scaling(series.collect::<Result<_, Error>>()?);
    conclude(args, json, |look| text(&scaling, look), &scaling)
}

/// Renders the series as text.
fn text(scaling: &Scaling, look: &Look) -> String {
    let section = |title| Section::new("", title);
    let sections = [
        section("Speed-up and efficiency").table(efficiency(scaling)),
        section("Time lost per step, by part").table(losses(scaling)),
        section("").untitled().texts(&scaling.sentences),
        section("Warnings").list(List::Warnings, scaling.warnings.clone()),
    ];
    present::text(&sections, look)
}

fn efficiency(scaling: &Scaling) -> Table {
    let decimals = decimals(scaling.rows.iter().map(|row| row.run.step_ms.p90));
    let mut table =
        Table::headed("ranks; step ms; p90; speed-up; efficiency; start-up; largest loss; |; <run")
            .with_bars(10);
    for row in &scaling.rows {
        let run = &row.run;
        let startup = run.startup.map_or("-".to_owned(), |(steps, ms)| {
            format!("{steps} × {ms:.decimals$} ms")
        });
        table.row([
            run.ranks.to_string().into(),
            fixed(run.step_ms.p50, decimals).into(),
            fixed(run.step_ms.p90, decimals).into(),
            fixed(row.speedup, 2).into(),
            percent(row.efficiency).into(),
            startup.into(),
            row.eaten_by.map_or("", PartKind::name).into(),
            Cell::Bar(row.efficiency),
            run.label.as_str().into(),
        ]);
    }
    table
}

/// Table of the time lost, with a column for each part that changed in any run.
fn losses(scaling: &Scaling) -> Table {
    let rows = scaling.rows.iter();
    let compared = rows.filter(|row| row.run.ranks != scaling.base_ranks);
    let rows: Vec<(&ScalingRow, [f64; PartKind::COUNT])> = compared
        .filter_map(|row| Some((row, row.parts_lost_ms?)))
        .collect();
    let decimals = decimals(rows.iter().flat_map(|(_, parts)| parts.iter().copied()));
    // Leave out parts whose changes are not visible in these digits.
    let least = 0.5 * 10f64.powi(-(decimals as i32));
    let grown: Vec<usize> = (0..PartKind::COUNT)
        .filter(|part| rows.iter().any(|(_, parts)| parts[*part].abs() >= least))
        .collect();
    let labels = grown.iter().map(|part| PartKind::ALL[*part].name());
    let headings = ["ranks"].into_iter().chain(labels).chain(["in all ms"]);
    let mut table = Table::new(headings);
    for (row, parts) in rows.into_iter().filter(|_| !grown.is_empty()) {
        let number = |ms: f64| format!("{ms:+.decimals$}");
        let cells = grown.iter().map(|part| number(parts[*part]));
        let ranks = std::iter::once(row.run.ranks.to_string());
        table.row(ranks.chain(cells).chain([number(parts.iter().sum())]));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::report::sample;

    #[test]
    fn the_whole_series() {
        let two = sample::report();
        let mut one = two.clone();
        (one.ranks, one.startup) = (1, None);
        let steady = one.steady.as_mut().unwrap();
        (steady.step_ms.p50, steady.step_ms.p90) = (32.0, 35.0);
        for part in &mut steady.parts[1..] {
            part.exposed_ms.mean = 0.0;
        }
        let runs = [("2.json", &two), ("1.json", &one)]
            .map(|(label, report)| ScalingRun::from_report(label, report).unwrap());
        let look = Look {
            width: 110,
            unicode: true,
            ..Look::PLAIN
        };
        let scaling = scaling(runs.into());
        ronde_cases::document("scaling.txt", &text(&scaling, &look));
        ronde_cases::fields("TIMELINE.md", "## Fields of the JSON", &scaling, &[]);
    }
}
