//! `ronde timeline`: shows the parts of a recorded job's steps and late ranks, and recommends
//! settings.
//!
//! Reads the files of a run's ranks with [`ronde_trace`], evaluates them with
//! [`ronde_trace::analysis`], and writes the result as text, JSON, CSV or one HTML page, or writes
//! a profile or one merged trace. `--compare` compares two runs; `--scaling` compares runs with
//! increasing numbers of ranks.

mod args;
mod compare;
mod csv;
pub(super) mod error;
pub(super) mod input;
mod merge;
pub(super) mod profile;
mod progress;
mod report;
mod scaling;

use std::process::ExitCode;

use ronde_job::replay::{self, Fit};
use ronde_trace::analysis::Replayable;

use crate::present::output;
use crate::present::{Look, warn};
pub(super) use args::Args;
use args::Task;
pub(super) use args::parse_steps;
use error::Error;
use input::Run;

pub(super) use crate::present::output::write_json;

use super::{fail, print};

/// Runs the subcommand.
pub(super) fn main(args: &Args) -> ExitCode {
    let outcome = match args.task() {
        Task::Compare([a, b]) => compare::run(a, b, args),
        Task::Scaling(runs) => scaling::run(runs, args),
        Task::Analyse => analyse(args),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => fail(&format!("timeline: {error}"), error.exit_code()),
    }
}

/// Analyses the files of one run and writes the requested outputs.
fn analyse(args: &Args) -> Result<ExitCode, Error> {
    let inputs = input::Inputs::find(&args.paths)?;
    output::check_distinct(&args.outputs(), inputs.files())?;
    if args.merge.is_some() {
        merge::check_inputs(inputs.files())?;
    }
    let (json, csv, html) = (
        output::open(&args.json)?,
        output::open(&args.csv)?,
        output::open(&args.html)?,
    );
    let (profile, merge) = (output::open(&args.profile)?, output::open(&args.merge)?);
    let Run {
        report,
        sources,
        replayable,
    } = inputs.read_steps(args.steps.clone())?;
    if merge.is_some() && sources.is_empty() {
        return Err(Error::NeedsTraces { flag: "--merge" });
    }

    // Print the text first, so that a later output error does not suppress it.
    let mut code = ExitCode::SUCCESS;
    if args.stdout_is_free() {
        code = print(&report::text(&report, &Look::of_stdout(args.tensors())));
    } else {
        for warning in report
            .sources
            .iter()
            .flat_map(|source| &source.warnings)
            .chain(&report.warnings)
        {
            warn("timeline", warning);
        }
    }
    output::write(json, |sink| write_json(sink, &report))?;
    output::write(csv, |sink| csv::write(sink, &report))?;
    output::write(html, |sink| {
        sink.write_all(report::page(&report).as_bytes())
    })?;
    if let Some(output) = profile {
        let (profile, warnings) = profile::extract(&report, replayable.as_ref().and_then(fitted))?;
        warnings
            .iter()
            .for_each(|warning| warn("timeline", warning));
        output.finish(|sink| write_json(sink, &profile))?;
    }
    if let Some(output) = merge {
        merge::write(output, &sources)?
            .iter()
            .for_each(|warning| warn("timeline", warning));
    }
    Ok(code)
}

/// Fits the replay to a recording.
pub(super) fn fitted(replayable: &Replayable) -> Option<Fit> {
    let Replayable {
        trace,
        rules,
        place,
    } = replayable;
    replay::fit(std::slice::from_ref(trace), *rules, *place)
}
