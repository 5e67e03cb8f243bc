//! Rows grouped by point: measurements, predictions and failures of each point.

use super::{Ending, Estimate, Outcome, Tally};
use crate::sweep::statistics::Observation;
use crate::sweep::{Phase, Row, Status, StepSummary};
use ronde_job::percentile::percentile_of;

/// Rows of one number of ranks, grouped by point.
#[derive(Default)]
pub(super) struct Gathered<'a> {
    /// Outcome of each point, without comparisons and measured step times.
    pub(super) points: Vec<Outcome>,
    /// Valid measurements of all measuring phases.
    pub(super) observations: Vec<Observation>,
    pub(super) rows: Vec<&'a Row>,
}

pub(super) fn gather(np: u32, rows: &[Row]) -> Gathered<'_> {
    let mut gathered = Gathered::default();
    let (mut points, mut blocks) = (Vec::new(), Vec::new());
    let mut of_points: Vec<Vec<&Row>> = Vec::new();
    for row in rows.iter().filter(|row| row.point.np == np) {
        let point = index_of(&mut points, row.point);
        of_points.resize(points.len(), Vec::new());
        of_points[point].push(row);
    }
    for (point, rows) in of_points.into_iter().enumerate() {
        let outcome = outcome(&rows);
        let is_measured = outcome.ending == Ending::Measured;
        let rows = rows.into_iter().filter(|_| is_measured);
        for (row, times) in rows.filter_map(|row| Some((row, measured(row)?))) {
            gathered.observations.push(Observation {
                point,
                block: index_of(&mut blocks, (row.phase, row.block)),
                ln_ms: times.p50.ln(),
            });
            gathered.rows.push(row);
        }
        gathered.points.push(outcome);
    }
    gathered
}

/// Index of `item` in `known`, to which it is added if it is new.
fn index_of<T: PartialEq>(known: &mut Vec<T>, item: T) -> usize {
    let found = known.iter().position(|other| *other == item);
    found.unwrap_or_else(|| {
        known.push(item);
        known.len() - 1
    })
}

/// Outcome of the point of these rows, of which there is at least one.
fn outcome(rows: &[&Row]) -> Outcome {
    let predictions = rows.iter().filter(|row| row.phase == Phase::Predicted);
    let predicted = predictions.filter_map(|row| times_of(row)).next_back();
    let failures = rows.iter().filter(|row| times_of(row).is_none());
    let reason = failures.clone().next().map(|row| match &row.status {
        Status::Failed(reason) => reason.clone(),
        Status::Done | Status::Cut => "it has no step time".to_owned(),
    });
    // Measurements that were cut short count if the point also has complete ones: otherwise only
    // its fast measurements would count, which would bias its mean.
    let is_done = |row: &&Row| row.status == Status::Done && measured(row).is_some();
    let cut = rows.iter().filter_map(|row| Some(measured(row)?.p50));
    let cut_ms = percentile_of(cut.collect(), 0.5);
    let ending = match &reason {
        _ if rows.iter().any(is_done) => Ending::Measured,
        _ if cut_ms.is_some() => Ending::Cut,
        Some(_) => Ending::Failed,
        None => Ending::Predicted,
    };
    Outcome {
        point: rows[0].point,
        ending,
        reason: reason.filter(|_| ending == Ending::Failed),
        measurements: 0,
        failures: failures.count() as u32,
        step_ms: cut_ms.filter(|_| ending == Ending::Cut),
        predicted_ms: predicted.map(prediction),
        above_best: None,
        against_default: None,
        tied: false,
    }
}

pub(super) fn tally(rows: &[Row]) -> Tally {
    let mut tally = Tally::default();
    for row in rows.iter().filter(|row| row.phase != Phase::Predicted) {
        *match (times_of(row), &row.status) {
            (None, _) => &mut tally.failed,
            (_, Status::Cut) => &mut tally.cut,
            _ => &mut tally.done,
        } += 1;
    }
    tally
}

fn measured(row: &Row) -> Option<&StepSummary> {
    times_of(row).filter(|_| row.phase != Phase::Predicted)
}

/// Times of a row, if they are valid.
fn times_of(row: &Row) -> Option<&StepSummary> {
    let failed = matches!(row.status, Status::Failed(_));
    let is_valid = |times: &&StepSummary| !failed && times.p50.is_finite() && times.p50 > 0.0;
    row.times.as_ref().filter(is_valid)
}

fn prediction(times: &StepSummary) -> Estimate {
    let sound = times.p10.is_finite() && times.p90.is_finite() && times.p10 <= times.p90;
    Estimate {
        value: times.p50,
        interval: sound.then_some([times.p10, times.p90]),
    }
}
