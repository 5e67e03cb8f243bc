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
pub(super) mod input;
mod part;
mod progress;
mod report;
mod scaling;

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::process::ExitCode;

use ronde_trace::analysis::{Replayable, profile};
use ronde_trace::{MergeError, Source};
use serde::Serialize;

use crate::error::Error;
use crate::present::output::{self, Output, stdout_is_free};
use crate::present::{Look, warn};
pub(super) use args::Args;
use args::Task;
pub(super) use args::parse_steps;
use input::Run;
use progress::Progress;

pub(super) use crate::present::output::write_json;

use super::print;

/// Runs the subcommand.
pub(super) fn main(args: &Args) -> Result<ExitCode, Error> {
    match args.task() {
        Task::Compare([a, b]) => compare::run(a, b, args),
        Task::Scaling(runs) => scaling::run(runs, args),
        Task::Analyse => analyse(args),
    }
}

/// Analyses the files of one run and writes the requested outputs.
fn analyse(args: &Args) -> Result<ExitCode, Error> {
    let inputs = input::Inputs::find(&args.paths)?;
    output::check_distinct(&args.outputs(), inputs.files())?;
    if args.merge.is_some() {
        check_no_pipe(inputs.files())?;
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
        return Err(Error::NeedsTraces {
            flag: "--merge",
            given: "report",
        });
    }

    if !stdout_is_free(&args.outputs()) {
        let of_files = report.sources.iter().flat_map(|source| &source.warnings);
        warn_all(of_files.chain(&report.warnings));
    }
    let code = conclude(args, json, |look| report::text(&report, look), &report)?;
    output::write(csv, |sink| csv::write(sink, &report))?;
    output::write(html, |sink| {
        sink.write_all(report::page(&report).as_bytes())
    })?;
    if let Some(output) = profile {
        let fit = replayable.as_ref().and_then(Replayable::fit);
        let is_hierarchical = replayable.as_ref().is_some_and(|it| it.is_hierarchical);
        let (profile, warnings) = profile::extract(&report, fit, is_hierarchical)?;
        warn_all(&warnings);
        output.finish(|sink| write_json(sink, &profile))?;
    }
    if let Some(output) = merge {
        warn_all(&write_merged(output, &sources)?);
    }
    Ok(code)
}

/// Rejects inputs of `--merge` that cannot be read a second time: opening a pipe again would wait
/// for a writer that has ended.
fn check_no_pipe(files: &[PathBuf]) -> Result<(), Error> {
    let is_pipe = |file: &&PathBuf| file.metadata().is_ok_and(|file| file.file_type().is_fifo());
    match files.iter().find(is_pipe) {
        Some(path) => Err(Error::MergeOfPipe { path: path.clone() }),
        None => Ok(()),
    }
}

/// Writes the merged trace of `sources` and returns warnings.
fn write_merged(output: Output, sources: &[Source]) -> Result<Vec<String>, Error> {
    let progress = Progress::new("merging", sources.iter().map(|source| &*source.path));
    let (mut warnings, mut unread) = (Vec::new(), None);
    let written = output.finish(|sink| {
        match ronde_trace::merge(sources, sink, &mut |file, bytes| progress.show(file, bytes)) {
            Ok(found) => warnings = found,
            Err(MergeError::Write(error)) => return Err(error),
            Err(MergeError::Read(error)) => {
                unread = Some(error);
                return Err(io::ErrorKind::Other.into());
            }
        }
        Ok(())
    });
    match unread {
        Some(error) => Err(error.into()),
        None => Ok(written.map(|()| warnings)?),
    }
}

/// Prints a text, unless an output goes to standard output, and writes the same as JSON.
fn conclude(
    args: &Args,
    json: Option<Output>,
    text: impl FnOnce(&Look) -> String,
    value: &impl Serialize,
) -> Result<ExitCode, Error> {
    // Print the text first, so that a later output error does not suppress it.
    let mut code = ExitCode::SUCCESS;
    if stdout_is_free(&args.outputs()) {
        code = print(&text(&Look::of_stdout(args.tensors())));
    }
    output::write(json, |sink| write_json(sink, value))?;
    Ok(code)
}

fn warn_all<'a>(warnings: impl IntoIterator<Item = &'a String>) {
    warnings
        .into_iter()
        .for_each(|warning| warn("timeline", warning));
}
