//! Pruning: points that need not be measured again, and measurements that may end early.
//!
//! The *bound* is [`CLEARLY`] times the slow-step time of the best point: the median over its
//! measurements of the 90th percentile of its steps. The best point is the one with the lowest
//! median. A point is clearly worse if even the fast steps of its fastest measurement (the 10th
//! percentile) are above the bound. The default is always measured.

use std::collections::BTreeMap;

use super::design::Key;
use super::{Point, Row, Status, StepTimes};
use ronde_job::percentile::percentile_of;

/// Ratio to the best from which a point is clearly worse.
pub const CLEARLY: f64 = 1.5;

/// Failed measurements after which a point is left out: one repetition.
const FAILURES_MOST: usize = 2;

/// Measurements on one number of ranks, by point.
type OfPoints<'a> = BTreeMap<Key, Vec<&'a Row>>;

fn of_points<'a>(rows: impl Iterator<Item = &'a Row>, np: u32) -> OfPoints<'a> {
    let mut of_points = OfPoints::new();
    for row in rows.filter(|row| row.point.np == np) {
        of_points.entry(row.point.key()).or_default().push(row);
    }
    of_points
}

/// Points to measure in a block, by the measurements before it.
pub(super) struct Prune<'a> {
    bound_ms: Option<f64>,
    of_points: OfPoints<'a>,
}

impl<'a> Prune<'a> {
    pub(super) fn new(rows: impl Iterator<Item = &'a Row>, np: u32) -> Self {
        let of_points = of_points(rows, np);
        Self {
            bound_ms: bound_ms(&of_points),
            of_points,
        }
    }

    /// Whether the point need not be measured again.
    pub(super) fn leaves_out(&self, point: &Point) -> bool {
        let p10 = self.rows(point).filter_map(|row| Some(row.times?.p10));
        let bounds = p10.reduce(f64::min).zip(self.bound_ms);
        let is_worse = bounds.is_some_and(|(least_ms, bound_ms)| least_ms > bound_ms);
        !point.is_default() && (is_worse || self.has_failed(point))
    }

    /// Whether the point has reached the maximum number of failures.
    pub(super) fn has_failed(&self, point: &Point) -> bool {
        let rows = self.rows(point);
        let failed = rows.filter(|row| matches!(row.status, Status::Failed(_)));
        failed.count() >= FAILURES_MOST
    }

    fn rows(&self, point: &Point) -> impl Iterator<Item = &'a Row> {
        let rows = self.of_points.get(&point.key());
        rows.into_iter().flatten().copied()
    }
}

/// Step time, in ms, above which a measurement on `np` ranks may end early; `None` before the first
/// measurement.
///
/// If the machine has become slower, the bound rises by the ratio of the default's last measurement
/// to its median.
pub fn stop_above_ms<'a>(rows: impl Iterator<Item = &'a Row>, np: u32) -> Option<f64> {
    let of_points = of_points(rows, np);
    let default = of_points.get(&Point::default_of(np).key());
    let slowed = default.and_then(|default| {
        let p50 = complete(default, |times| times.p50);
        Some(p50.last()? / percentile_of(p50.clone(), 0.5)?)
    });
    Some(bound_ms(&of_points)? * slowed.unwrap_or(1.0).max(1.0))
}

/// Returns the point with the lowest median step time on `np` ranks, and that time in ms.
pub fn best_so_far<'a>(rows: impl Iterator<Item = &'a Row>, np: u32) -> Option<(Point, f64)> {
    let of_points = of_points(rows, np);
    best(&of_points).map(|(rows, ms)| (rows[0].point, ms))
}

fn bound_ms(of_points: &OfPoints) -> Option<f64> {
    let (best, _) = best(of_points)?;
    let p90 = percentile_of(complete(best, |times| times.p90), 0.5);
    p90.map(|p90| CLEARLY * p90)
}

/// Measurements of the point with the lowest median, and that median; of equal points, the first in
/// the order of their values.
fn best<'a>(of_points: &'a OfPoints) -> Option<(&'a Vec<&'a Row>, f64)> {
    let medians = of_points.values().filter_map(|rows| {
        let median = percentile_of(complete(rows, |times| times.p50), 0.5)?;
        Some((rows, median))
    });
    medians.min_by(|(_, left), (_, right)| left.total_cmp(right))
}

/// Step times of the complete measurements in `rows`.
fn complete(rows: &[&Row], of: fn(&StepTimes) -> f64) -> Vec<f64> {
    let complete = rows.iter().filter(|row| row.status == Status::Done);
    complete
        .filter_map(|row| row.times.as_ref().map(of))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::testing::{failed, point, row};

    #[test]
    fn the_bound_is_half_above_the_slower_steps_of_the_best() {
        let default = Point::default_of(2);
        // In `row` the 10th percentile is 10 % below the median, the 90th 20 % above.
        let of = |cells: &[(Point, f64)], np| {
            let rows: Vec<Row> = cells.iter().map(|&(point, ms)| row(point, ms)).collect();
            stop_above_ms(rows.iter(), np)
        };
        // Best: 10 and 12, so 11; 90th percentiles 12 and 14.4, so 13.2.
        let cells = [(point(1), 10.0), (point(2), 20.0), (point(1), 12.0)];
        assert!((of(&cells, 2).unwrap() - 1.5 * 13.2).abs() < 1e-9);
        assert_eq!(
            (of(&[], 2), of(&cells, 4)),
            (None, None),
            "other ranks, other steps"
        );
        // A machine that has become slower by a factor of 2 raises the bound.
        let slowed = of(&[(default, 10.0), (default, 10.0), (default, 20.0)], 2).unwrap();
        assert!((slowed - 1.5 * 12.0 * 2.0).abs() < 1e-9);
    }

    #[test]
    fn points_that_are_clearly_worse_or_failed_twice_are_left_out() {
        // Bound: 1.5 · 12 = 18. 10th percentiles: 17.1 of 19, 18.9 of 21.
        let default = Point::default_of(2);
        let rows = [
            row(point(1), 10.0),
            row(point(2), 19.0),
            row(point(3), 21.0),
            row(default, 50.0), // the reference
            failed(point(5)),
            failed(point(6)),
            failed(point(6)),
        ];
        let prune = Prune::new(rows.iter(), 2);
        let left_out = |fusion_mb: &u64| prune.leaves_out(&point(*fusion_mb));
        assert_eq!((1..=6).filter(left_out).collect::<Vec<_>>(), [3, 6]);
        assert!(!prune.leaves_out(&default) && prune.has_failed(&point(6)));
    }
}
