//! Rows grouped by point: measurements, predictions and failures of each point.

use super::{Estimate, Tally};
use crate::sweep::statistics::Observation;
use crate::sweep::{Phase, Point, Row, Status, StepTimes};
use ronde_job::percentile::percentile_of;

/// Rows of one number of ranks, grouped by point.
#[derive(Clone, Debug)]
pub(super) struct Gathered {
    /// Distinct points, in the order of their first row.
    pub(super) points: Vec<Point>,
    /// Valid measurements of all measuring phases.
    pub(super) observations: Vec<Observation>,
    /// For each observation: whether it belongs to a phase after the choice was narrowed.
    pub(super) narrowed: Vec<bool>,
    /// For each point: the prediction of replay, ms.
    pub(super) predicted: Vec<Option<Estimate>>,
    /// For each point without a complete measurement: its step time until it was cut short, ms.
    pub(super) cut_ms: Vec<Option<f64>>,
    /// For each point: reasons of its failed measurements.
    pub(super) failures: Vec<Vec<String>>,
    /// Whether any row belongs to [`Phase::Verify`].
    pub(super) verified: bool,
}

/// Failure reason of a row without a usable step time.
const NO_TIME: &str = "it has no step time";

pub(super) fn gather(np: u32, rows: &[Row]) -> Gathered {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.point.np == np).collect();
    let mut points: Vec<Point> = Vec::new();
    let indices: Vec<usize> = rows
        .iter()
        .map(|row| index_of(&mut points, row.point))
        .collect();
    let count = points.len();
    let mut gathered = Gathered {
        points,
        observations: Vec::new(),
        narrowed: Vec::new(),
        predicted: vec![None; count],
        cut_ms: vec![None; count],
        failures: vec![Vec::new(); count],
        verified: rows.iter().any(|row| row.phase == Phase::Verify),
    };
    // Measurements that were cut short count if the point also has complete ones: otherwise only
    // its fast measurements would count, which would bias its mean.
    let mut whole = vec![false; count];
    for (row, &point) in rows.iter().zip(&indices) {
        whole[point] |=
            row.phase != Phase::Predicted && row.status == Status::Done && time_of(row).is_some();
    }
    let mut cut: Vec<Vec<f64>> = vec![Vec::new(); count];
    let mut blocks: Vec<(Phase, u32)> = Vec::new();
    for (row, &point) in rows.iter().zip(&indices) {
        let Some(times) = time_of(row) else {
            let why = match &row.status {
                Status::Failed(why) => why,
                Status::Done | Status::Cut => NO_TIME,
            };
            gathered.failures[point].push(why.to_owned());
            continue;
        };
        if row.phase == Phase::Predicted {
            gathered.predicted[point] = Some(prediction(times));
        } else if !whole[point] {
            cut[point].push(times.p50);
        } else {
            let block = index_of(&mut blocks, (row.phase, row.block));
            gathered.observations.push(Observation {
                point,
                block,
                at_s: if row.at_s.is_finite() { row.at_s } else { 0.0 },
                ln_ms: times.p50.ln(),
            });
            gathered
                .narrowed
                .push(matches!(row.phase, Phase::Confirm | Phase::Verify));
        }
    }
    for (cut_ms, seen) in gathered.cut_ms.iter_mut().zip(cut) {
        *cut_ms = percentile_of(seen, 0.5);
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

pub(super) fn tally(rows: &[Row]) -> Tally {
    let mut tally = Tally::default();
    for row in rows.iter().filter(|row| row.phase != Phase::Predicted) {
        match (&row.status, time_of(row)) {
            (Status::Failed(_), _) | (_, None) => tally.failed += 1,
            (Status::Done, Some(_)) => tally.done += 1,
            (Status::Cut, Some(_)) => tally.cut += 1,
        }
    }
    tally
}

/// Times of a row, if they are valid.
fn time_of(row: &Row) -> Option<&StepTimes> {
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
