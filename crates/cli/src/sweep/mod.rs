//! `ronde sweep`: measures settings against each other and against the default, or predicts them
//! from a recording.
//!
//! This process is the supervisor. It keeps the folder ([`folder`]), chooses the next measurement
//! ([`ronde_lab::sweep::order`]), launches the ranks ([`ranks`], which run [`rank`]), and reports
//! ([`report`]). Every measurement is saved in the folder, so that an interrupted sweep can be
//! resumed.

mod args;
mod channel;
mod folder;
mod heat;
mod json;
mod plan;
mod progress;
pub(crate) mod rank;
mod ranks;
mod replay;
mod replayed;
mod report;
mod supervisor;
mod table;
mod words;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::error::Error;
use crate::interrupt::Interrupt;
pub(super) use args::Args;
use folder::Folder;
use plan::Plan;
use report::About;
use supervisor::{Halt, Supervisor};

use super::bench::{LoadArgs, check_memory};
use super::present::Look;
use super::present::output::{check_distinct, given, open, save, stdout_is_free};
use super::present::units::capitalized;
use super::{fail, print};
use ronde::internal::identity::{Identity, Source};
use ronde_lab::bench::Workload;
use ronde_lab::sweep::{Design, Row, Status, Verdict, verdict};

/// Exit code of a program that was ended by a signal, without the signal's number.
const EXIT_SIGNAL: u8 = 128;

/// Runs the subcommand.
pub(super) fn main(args: &Args) -> Result<ExitCode, Error> {
    if Identity::from_env()?.source != Source::Single {
        return Err(Error::InsideJob);
    }
    let path = out(args);
    let own = folder::INPUTS.map(|name| path.join(name));
    check_output(args, &args.replay, &args.load, own)?;
    // One in the sweep's folder, which need not exist yet, is opened at the end alone.
    let is_outside = |json: &PathBuf| !json.starts_with(&path);
    drop(open(&args.json.clone().filter(is_outside))?);
    for note in plan::notes(args) {
        fail(&format!("sweep: note: {note}"), 0);
    }
    if args.resume {
        let (plan, folder, rows) = resume(args, &path)?;
        return if plan.replay.is_empty() {
            measured(args, &plan, folder, rows)
        } else {
            replayed::resume(args, plan, folder, rows)
        };
    }
    if !args.replay.is_empty() {
        return replayed::begin(args, &path);
    }
    let workload = args.load.workload()?;
    let plan = Plan::new(args, &workload)?;
    check(&plan, &workload)?;
    let folder = Folder::create(&path, &plan)?;
    measured(args, &plan, folder, Vec::new())
}

/// Folder of the sweep; by default it has the job's name.
fn out(args: &Args) -> PathBuf {
    let name = || {
        let file = args.replay.first().or(args.load.profile.as_ref());
        let stem = file.and_then(|path| path.file_stem().map(OsString::from));
        let load = args.load.resolved();
        let mut name = OsString::from("sweep-");
        let model = || load.model.map(OsString::from);
        name.push(stem.or_else(model).unwrap_or_default());
        PathBuf::from(name)
    };
    args.out.clone().unwrap_or_else(name)
}

/// Checks that the file for `--json` is none that the sweep reads: `replay`, the profile of `load`,
/// or one of `others`.
fn check_output(
    args: &Args,
    replay: &[PathBuf],
    load: &LoadArgs,
    others: impl IntoIterator<Item = PathBuf>,
) -> Result<(), Error> {
    let inputs = replay.iter().chain(&load.profile).cloned();
    let inputs: Vec<PathBuf> = inputs.chain(others).collect();
    Ok(check_distinct(&given([&args.json]), &inputs)?)
}

/// Opens the existing sweep in `path` and returns its plan, its folder and its measurements.
///
/// # Errors
/// Another sweep, another machine, invalid files.
fn resume(args: &Args, path: &Path) -> Result<(Plan, Folder, Vec<Row>), Error> {
    let (mut plan, mut folder) = Folder::open(path)?;
    check_output(args, &plan.replay, &plan.load, [])?;
    let differences = plan.differences(args)?;
    if !differences.is_empty() {
        return Err(Error::Differs {
            folder: path.to_owned(),
            differences,
        });
    }
    let changes = plan.changes_since();
    if !changes.is_empty() && !args.other_machine {
        return Err(Error::OtherMachine {
            folder: path.to_owned(),
            changes,
        });
    }
    if plan.is_measured() {
        let workload = plan.load.workload()?;
        plan.check_workload(&workload)?;
        check(&plan, &workload)?;
    }
    let rows = folder.go_on()?;
    if let Some(budget) = args.budget {
        plan.design.budget_s = Some(budget.as_secs_f64());
        folder.write_plan(&plan)?;
    }
    Ok((plan, folder, rows))
}

/// Checks that all ranks of the largest job fit into memory.
fn check(plan: &Plan, workload: &Workload) -> Result<(), Error> {
    let most = plan.design.np.iter().copied().max().unwrap_or(1);
    check_memory(workload, most as usize, 1)
}

/// Makes the remaining measurements of the grid and of its confirmation, and reports.
fn measured(
    args: &Args,
    plan: &Plan,
    mut folder: Folder,
    rows: Vec<Row>,
) -> Result<ExitCode, Error> {
    let design = &plan.design;
    say(&format!(
        "{} settings, {}, about {} measurements; folder {}",
        plan.points.len(),
        plan.job(),
        design.left(&rows),
        folder.path().display()
    ));
    let interrupt = Interrupt::watch()?;
    let (outcome, rows) = {
        let mut supervisor =
            Supervisor::new(plan, &mut folder.store, &interrupt, rows, args.hang_seconds);
        let outcome = supervisor.run(|rows| design.next(rows), |rows| design.left(rows));
        (outcome, std::mem::take(&mut supervisor.rows))
    };
    let whole = Design {
        budget_s: None,
        ..design.clone()
    };
    let missing = whole.left(&rows);
    let report = |unfinished, halt| {
        let about = about(plan, (plan.name(), plan.how()), unfinished);
        conclude(args, &about, &verdict(&rows), &rows, &folder, halt)
    };
    match outcome {
        Ok(halt) => report(unfinished(plan, &folder, halt, missing), halt),
        Err(error) => {
            // The existing measurements are reported. An error of the report is ignored (for
            // example a full disk), because the first error is returned.
            let _ = report(Some(format!("It failed: {error}")), Halt::Done);
            Err(error)
        }
    }
}

/// Reason why a sweep is incomplete, if measurements are missing.
fn unfinished(plan: &Plan, folder: &Folder, halt: Halt, missing: usize) -> Option<String> {
    let budget = words::duration(plan.design.budget_s.unwrap_or(0.0));
    let (why, more) = match halt {
        Halt::Signal(_) => ("it was interrupted".to_owned(), ""),
        Halt::Budget => (
            format!("its budget of {budget} is used up"),
            ", with a larger --budget",
        ),
        Halt::Done => (
            format!("the rest does not fit into its budget of {budget}"),
            ", with a larger --budget",
        ),
    };
    (missing > 0).then(|| {
        format!(
            "{}: about {missing} measurements are missing; to continue: ronde sweep --resume --out {}{more}",
            capitalized(&why),
            folder.path().display()
        )
    })
}

/// Context of the report for its reader; `job` and `how` describe the workload.
fn about(plan: &Plan, (job, how): (String, String), unfinished: Option<String>) -> About {
    let others = [
        ("ronde", plan.ronde.clone()),
        ("started", plan.started.clone()),
    ];
    let facts = plan.machine.facts().into_iter().chain(others);
    let changes = plan.changes_since();
    let warning = || {
        format!(
            "a part was measured elsewhere ({}): step times cannot be compared",
            changes.join("; ")
        )
    };
    About {
        job,
        how,
        command: plan.command.clone(),
        machine: facts
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        unfinished,
        warnings: (!changes.is_empty()).then(warning).into_iter().collect(),
    }
}

/// Writes the report and prints its text.
fn conclude(
    args: &Args,
    about: &About,
    verdict: &Verdict,
    rows: &[Row],
    folder: &Folder,
    halt: Halt,
) -> Result<ExitCode, Error> {
    let code = match halt {
        Halt::Signal(signal) => EXIT_SIGNAL + signal,
        Halt::Budget | Halt::Done => 0,
    };
    if rows.is_empty() {
        say("nothing was measured");
        return Ok(ExitCode::from(code.max(1)));
    }
    let text = report::report(about, verdict, folder.path(), &Look::of_stdout(0))?;
    let printed = match stdout_is_free(&given([&args.json])) {
        true => print(&text),
        false => ExitCode::SUCCESS,
    };
    let summary = folder.summary()?;
    let saved = args
        .json
        .as_ref()
        .map_or(Ok(()), |path| save(path, summary));
    if code == 0 {
        saved?;
    } else if let Err(error) = saved {
        fail(&format!("sweep: {error}"), 0); // the exit code is the signal's
    }
    let failed = |row: &Row| matches!(row.status, Status::Failed(_));
    let is_empty = rows.iter().all(failed);
    Ok(match (code, is_empty) {
        (0, true) => ExitCode::FAILURE, // nothing could be measured
        (0, false) => printed,
        (code, _) => ExitCode::from(code),
    })
}

/// Prints a message that is not part of the result.
fn say(message: &str) {
    fail(&format!("sweep: {message}"), 0);
}
