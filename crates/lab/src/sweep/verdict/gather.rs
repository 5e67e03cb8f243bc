//! Rows grouped by point: measurements, predictions and failures of each point.

use super::{Ending, Estimate, Outcome, Tally};
use crate::sweep::statistics::Observation;
use crate::sweep::{Phase, Point, Row, Status, StepTimes};
use ronde_job::percentile::percentile_of;

/// Failure reason of a row without a usable step time.
const NO_TIME: &str = "it has no step time";

/// Rows of one number of ranks, grouped by point.
#[derive(Default)]
pub(super) struct Gathered {
    /// Outcome of each point, in the order of their first row: without comparisons, and without
    /// the measured step time.
    pub(super) points: Vec<Outcome>,
    /// Valid measurements of all measuring phases.
    pub(super) observations: Vec<Observation>,
    /// For each observation: whether the choice had been narrowed before.
    pub(super) narrowed: Vec<bool>,
    /// For each observation: seconds since the sweep began.
    pub(super) at_s: Vec<f64>,
    /// Whether any row belongs to [`Phase::Verify`].
    pub(super) verified: bool,
}

pub(super) fn gather(np: u32, rows: &[Row]) -> Gathered {
    let rows = || rows.iter().filter(|row| row.point.np == np);
    let mut points: Vec<Point> = Vec::new();
    let mut of_points: Vec<Vec<&Row>> = Vec::new();
    let mut blocks: Vec<(Phase, u32)> = Vec::new();
    for row in rows() {
        index_of(&mut blocks, (row.phase, row.block));
        let point = index_of(&mut points, row.point);
        of_points.resize(points.len(), Vec::new());
        of_points[point].push(row);
    }
    let mut gathered = Gathered {
        verified: rows().any(|row| row.phase == Phase::Verify),
        ..Gathered::default()
    };
    for (index, (point, rows)) in points.into_iter().zip(of_points).enumerate() {
        let outcome = outcome(point, &rows);
        if outcome.ending == Ending::Measured {
            for (row, times) in rows.iter().filter_map(|row| Some((row, measured(row)?))) {
                gathered.observations.push(Observation {
                    point: index,
                    block: index_of(&mut blocks, (row.phase, row.block)),
                    ln_ms: times.p50.ln(),
                });
                let narrowed = matches!(row.phase, Phase::Confirm | Phase::Verify);
                gathered.narrowed.push(narrowed);
                let at_s = Some(row.at_s).filter(|at_s| at_s.is_finite());
                gathered.at_s.push(at_s.unwrap_or(0.0));
            }
        }
        gathered.points.push(outcome);
    }
    gathered
}

/// Outcome of a point with these rows.
fn outcome(point: Point, rows: &[&Row]) -> Outcome {
    let predictions = rows.iter().filter(|row| row.phase == Phase::Predicted);
    let mut predictions = predictions.filter_map(|row| times_of(row));
    let failures = rows.iter().filter(|row| times_of(row).is_none());
    let why = |row: &&Row| match &row.status {
        Status::Failed(why) => why.clone(),
        Status::Done | Status::Cut => NO_TIME.to_owned(),
    };
    // Measurements that were cut short count if the point also has complete ones: otherwise only
    // its fast measurements would count, which would bias its mean.
    let is_done = |row: &&Row| row.status == Status::Done && measured(row).is_some();
    let cut = rows.iter().filter_map(|row| Some(measured(row)?.p50));
    let cut_ms = percentile_of(cut.collect(), 0.5);
    let ending = match failures.clone().next() {
        _ if rows.iter().any(is_done) => Ending::Measured,
        _ if cut_ms.is_some() => Ending::Cut,
        Some(row) => Ending::Failed(why(row)),
        None => Ending::Predicted,
    };
    Outcome {
        point,
        step_ms: cut_ms.filter(|_| ending == Ending::Cut),
        ending,
        measurements: 0,
        failures: failures.count() as u32,
        predicted_ms: predictions.next_back().map(prediction),
        above_best: None,
        against_default: None,
        tied: false,
    }
}

/// Index of `item` in `known`, to which it is added if it is new.
fn index_of<T: PartialEq>(known: &mut Vec<T>, item: T) -> usize {
    let found = known.iter().position(|other| *other == item);
    found.unwrap_or_else(|| {
        known.push(item);
        known.len() - 1
    })
}

pub(super) fn tally(rows: &[Row]) -> Tally {
    let mut tally = Tally::default();
    for row in rows.iter().filter(|row| row.phase != Phase::Predicted) {
        match (&row.status, times_of(row)) {
            (Status::Failed(_), _) | (_, None) => tally.failed += 1,
            (Status::Done, Some(_)) => tally.done += 1,
            (Status::Cut, Some(_)) => tally.cut += 1,
        }
    }
    tally
}

/// Times of a measurement, if they are valid.
fn measured(row: &Row) -> Option<&StepTimes> {
    times_of(row).filter(|_| row.phase != Phase::Predicted)
}

/// Times of a row, if they are valid.
fn times_of(row: &Row) -> Option<&StepTimes> {
    let usable = |times: &&StepTimes| times.p50.is_finite() && times.p50 > 0.0;
    match row.status {
        Status::Failed(_) => None,
        Status::Done | Status::Cut => row.times.as_ref().filter(usable),
    }
}

fn prediction(times: &StepTimes) -> Estimate {
    let sound = times.p10.is_finite() && times.p90.is_finite() && times.p10 <= times.p90;
    Estimate {
        value: times.p50,
        interval: sound.then_some([times.p10, times.p90]),
    }
}
