//! `--scaling RUN…`: efficiency of runs with increasing numbers of ranks, and the part of the step
//! that limits it.

use std::path::PathBuf;
use std::process::ExitCode;

use ronde_trace::analysis::report::PartKind;
use ronde_trace::analysis::scaling::ScalingRow;
use ronde_trace::analysis::{Scaling, ScalingRun, scaling};

use super::args::Args;
use super::error::Error;
use super::input::Inputs;
use super::write_json;
use crate::present::output::{self, Output};
use crate::present::units::{decimals, percent};
use crate::present::{self, Look, Table, harmless, wrapped};

/// Reads the runs and writes how they scale.
///
/// # Errors
/// A run that cannot be read, or an output that cannot be written.
pub(super) fn run(runs: &[PathBuf], args: &Args) -> Result<ExitCode, Error> {
    let inputs: Vec<Inputs> = runs
        .iter()
        .map(|run| Inputs::find_joined(run))
        .collect::<Result<_, _>>()?;
    let files: Vec<PathBuf> = inputs.iter().flat_map(Inputs::files).cloned().collect();
    output::check_distinct(&args.outputs(), &files)?;
    let json = args.json.as_deref().map(Output::open).transpose()?;
    let read = |(path, inputs): (&PathBuf, Inputs)| {
        let label = path.display().to_string();
        match inputs {
            Inputs::Bench(_, result) => Ok(ScalingRun::from_bench(&label, &result)?),
            inputs => Ok(ScalingRun::from_report(&label, &inputs.read()?.report)?),
        }
    };
    let series: Vec<ScalingRun> = runs
        .iter()
        .zip(inputs)
        .map(read)
        .collect::<Result<_, Error>>()?;
    let scaling = scaling(series);
    let mut code = ExitCode::SUCCESS;
    if args.stdout_is_free() {
        code = super::print(&text(&scaling, &Look::of_stdout(args.tensors())));
    }
    if let Some(output) = json {
        output.finish(|sink| write_json(sink, &scaling))?;
    }
    Ok(code)
}

/// Renders the series as text.
fn text(scaling: &Scaling, look: &Look) -> String {
    let mut sections = vec![
        present::titled("Speed-up and efficiency", efficiency(scaling, look), look),
        present::titled("Time lost per step, by part", losses(scaling, look), look),
    ];
    let sentences = scaling.sentences.iter();
    sections.push(
        sentences
            .flat_map(|sentence| wrapped("", &harmless(sentence), look.width))
            .collect(),
    );
    sections.push(present::warnings(&scaling.warnings, look));
    present::page(sections, look)
}

fn efficiency(scaling: &Scaling, look: &Look) -> Vec<String> {
    let decimals = decimals(scaling.rows.iter().map(|row| row.run.step_ms.p90));
    let mut table = Table::new(&[
        "ranks",
        "step ms",
        "p90",
        "speed-up",
        "efficiency",
        "start-up",
        "largest loss",
        "|",
        "<run",
    ]);
    for row in &scaling.rows {
        let run = &row.run;
        let startup = run.startup.map_or("-".to_owned(), |(steps, ms)| {
            format!("{steps} × {ms:.decimals$} ms")
        });
        table.row([
            run.ranks.to_string(),
            format!("{:.decimals$}", run.step_ms.p50),
            format!("{:.decimals$}", run.step_ms.p90),
            format!("{:.2}", row.speedup),
            percent(row.efficiency),
            startup,
            row.eaten_by.map_or("", PartKind::name).to_owned(),
            format!("{:<10}", look.gauge(row.efficiency, 10)),
            harmless(&run.label),
        ]);
    }
    table.lines(look.width)
}

/// Table of the time lost, with a column for each part that changed in any run.
fn losses(scaling: &Scaling, look: &Look) -> Vec<String> {
    let rows: Vec<(&ScalingRow, [f64; PartKind::COUNT])> = scaling
        .rows
        .iter()
        .filter(|row| row.run.ranks != scaling.base_ranks)
        .filter_map(|row| Some((row, row.parts_lost_ms?)))
        .collect();
    let decimals = decimals(rows.iter().flat_map(|(_, parts)| parts.iter().copied()));
    // Leave out parts whose changes are not visible in these digits.
    let least = 0.5 * 10f64.powi(-(decimals as i32));
    let grown: Vec<usize> = (0..PartKind::COUNT)
        .filter(|part| rows.iter().any(|(_, parts)| parts[*part].abs() >= least))
        .collect();
    if grown.is_empty() {
        return Vec::new();
    }
    let labels = grown.iter().map(|part| PartKind::ALL[*part].name());
    let headings: Vec<&str> = ["ranks"]
        .into_iter()
        .chain(labels)
        .chain(["in all ms"])
        .collect();
    let mut table = Table::new(&headings);
    for (row, parts) in rows {
        let number = |ms: f64| format!("{ms:+.decimals$}");
        let cells = grown.iter().map(|part| number(parts[*part]));
        let ranks = std::iter::once(row.run.ranks.to_string());
        table.row(ranks.chain(cells).chain([number(parts.iter().sum())]));
    }
    table.lines(look.width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ronde_trace::analysis::report::Quantiles;

    fn row(ranks: u32, step_ms: f64, parts_lost_ms: Option<[f64; PartKind::COUNT]>) -> ScalingRow {
        let step = Quantiles {
            n: 50,
            p50: step_ms,
            p90: step_ms * 1.1,
            ..Quantiles::default()
        };
        ScalingRow {
            run: ScalingRun {
                label: format!("{ranks}.json"),
                ranks,
                step_ms: step,
                startup: (ranks == 2).then_some((4, 90.0)),
                bytes: 1 << 20,
                parts_ms: None,
                what: None,
            },
            speedup: f64::from(ranks) * 40.0 / step_ms,
            efficiency: 40.0 / step_ms,
            lost_ms: step_ms - 40.0,
            parts_lost_ms,
            eaten_by: parts_lost_ms.map(|_| PartKind::Collective),
        }
    }

    #[test]
    fn a_series_for_people() {
        let series = Scaling {
            base_ranks: 1,
            rows: vec![
                row(1, 40.0, None),
                row(
                    2,
                    50.0,
                    Some([0.0, 2.0, 0.0001, 0.0, 0.0, 8.0, 0.0, 0.0, 0.0]),
                ),
            ],
            sentences: vec!["On 2 ranks the collective eats 8 ms.".to_owned()],
            warnings: vec!["The runs are short.".to_owned()],
        };
        let look = Look {
            width: 110,
            colours: false,
            unicode: true,
            tensors: 5,
        };
        assert_eq!(
            text(&series, &look),
            "\
Speed-up and efficiency
  ranks  step ms    p90  speed-up  efficiency      start-up  largest loss              run
      1    40.00  44.00      1.00       100 %             -                ██████████  1.json
      2    50.00  55.00      1.60        80 %  4 × 90.00 ms    collective  ████████    2.json

Time lost per step, by part
  ranks  waiting for ranks  collective  in all ms
      2              +2.00       +8.00     +10.00

On 2 ranks the collective eats 8 ms.

Warnings
  ! The runs are short.
"
        );
    }
}
