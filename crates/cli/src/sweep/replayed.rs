//! Sweep from a recording: predicts the grid and, if requested, measures the best settings.

use std::path::Path;
use std::process::ExitCode;

use super::folder::Folder;
use super::plan::Plan;
use super::replay::{self, Predictions, Reenacted};
use super::supervisor::{Halt, Supervisor};
use super::{Args, about, check, conclude, say, unfinished};
use crate::bench::LoadArgs;
use crate::error::Error;
use crate::interrupt::Interrupt;
use ronde_lab::bench::schedule::ComputeKind;
use ronde_lab::sweep::{Phase, Row};

/// Predicts a grid, and measures the best predictions if requested.
///
/// # Errors
/// The recording cannot be replayed, the folder cannot be used, or the job cannot be measured.
pub(super) fn begin(args: &Args, path: &Path) -> Result<ExitCode, Error> {
    let job = replay::read(&args.replay)?;
    let mut plan = Plan::of_recording(args, job.fit.place.ranks)?;
    let predictions = Predictions::new(job, plan.points.clone())?;
    let mut folder = Folder::create(path, &plan)?;
    let reenacted = match prepare(&mut plan, &predictions, &folder) {
        Ok(reenacted) => reenacted,
        Err(error) => {
            folder.discard();
            return Err(error);
        }
    };
    let rows = predictions.rows().to_vec();
    rows.iter().try_for_each(|row| folder.store.append(row))?;
    verify(args, &plan, &predictions, reenacted, folder, rows)
}

/// Completes the plan with what is measured, if anything is, and checks that it can be.
fn prepare(
    plan: &mut Plan,
    predictions: &Predictions,
    folder: &Folder,
) -> Result<Option<Reenacted>, Error> {
    let reenacted = reenacted(plan, predictions, folder)?;
    if let Some(reenacted) = &reenacted {
        plan.load = LoadArgs {
            profile: Some(reenacted.profile.clone()),
            compute_ms: Some(reenacted.compute_ms),
            compute_kind: Some(ComputeKind::Sleep),
            ..LoadArgs::default()
        }
        .resolved();
        if let Some(link) = reenacted.link {
            let shaped = || format!("{},{}", link.alpha_us, link.gb_per_s);
            plan.settings
                .entry("RONDE_LINK".to_owned())
                .or_insert_with(shaped);
        }
    }
    if plan.is_measured() {
        let workload = plan.load.workload()?;
        plan.describe(&workload);
        check(plan, &workload)?;
        folder.write_plan(plan)?;
    }
    Ok(reenacted)
}

/// Resumes a sweep from a recording.
pub(super) fn resume(
    args: &Args,
    plan: Plan,
    mut folder: Folder,
    mut rows: Vec<Row>,
) -> Result<ExitCode, Error> {
    let predictions = Predictions::new(replay::read(&plan.replay)?, plan.points.clone())?;
    let missing = predictions.rows().iter().skip(rows.len());
    if rows.iter().all(|row| row.phase == Phase::Predicted) {
        // The sweep was interrupted while it wrote the predictions.
        for row in missing {
            folder.store.append(row)?;
            rows.push(row.clone());
        }
    }
    let reenacted = reenacted(&plan, &predictions, &folder)?;
    verify(args, &plan, &predictions, reenacted, folder, rows)
}

/// Returns the recorded job for the benchmark, if it is to be measured.
fn reenacted(
    plan: &Plan,
    predictions: &Predictions,
    folder: &Folder,
) -> Result<Option<Reenacted>, Error> {
    let reenacted = || predictions.reenacted(folder.path());
    plan.reenacted.then(reenacted).transpose()
}

/// Makes the remaining measurements, and reports.
fn verify(
    args: &Args,
    plan: &Plan,
    predictions: &Predictions,
    reenacted: Option<Reenacted>,
    mut folder: Folder,
    mut rows: Vec<Row>,
) -> Result<ExitCode, Error> {
    let mut how = predictions.how();
    let (mut outcome, mut missing) = (Ok(Halt::Done), 0);
    if let Some(most) = plan.verify {
        let design = &plan.design;
        let points = predictions.candidates(most as usize);
        let words = reenacted.as_ref().map(|job| job.words.clone());
        let with = words.unwrap_or_else(|| plan.job());
        say(&format!(
            "measuring the best {most} and the default {} times each, with {with}; folder {}",
            design.confirm.max(1),
            folder.path().display()
        ));
        how += &format!("; measured with {with}");
        let left = |rows: &[Row]| design.verification_left(&points, rows);
        let interrupt = Interrupt::watch()?;
        let mut supervisor =
            Supervisor::new(plan, &mut folder.store, &interrupt, rows, args.hang_seconds);
        outcome = supervisor.run(|rows| left(rows).first().copied(), |rows| left(rows).len());
        rows = std::mem::take(&mut supervisor.rows);
        missing = left(&rows).len();
    }
    let unfinished = match &outcome {
        Ok(halt) => unfinished(plan, &folder, *halt, missing),
        Err(error) => Some(format!("It failed: {error}")),
    };
    let mut about = about(plan, (predictions.name(), how), unfinished);
    about.warnings.extend_from_slice(predictions.warnings());
    let of_benchmark = reenacted.into_iter().flat_map(|job| job.warnings);
    about.warnings.extend(of_benchmark);
    let verdict = predictions.verdict(&rows);
    let report = |halt| conclude(args, &about, &verdict, &rows, &folder, halt);
    match outcome {
        Ok(halt) => report(halt),
        Err(error) => {
            let _ = report(Halt::Done); // the predictions; the first error is returned
            Err(error)
        }
    }
}
