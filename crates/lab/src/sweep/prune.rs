//! Pruning: points that need not be measured again, and measurements that may end early.
//!
//! The *bound* is [`CLEARLY`] times the slow-step time of the best point: the median over its
//! measurements of the 90th percentile of its steps. The best point is the one with the lowest
//! median. A point is clearly worse if even the fast steps of its fastest measurement (the 10th
//! percentile) are above the bound. The default is always measured.

use std::collections::BTreeMap;

use super::{Point, Row, Status, StepSummary};
use ronde_job::percentile::percentile_of;
use ronde_job::point::PointKey;

/// Ratio to the best from which a point is clearly worse.
const CLEARLY: f64 = 1.5;

/// Failed measurements after which a point is left out: one repetition.
const FAILURES_MOST: usize = 2;

/// Measurements so far on one number of ranks.
pub struct SoFar<'a> {
    of_points: BTreeMap<PointKey, Vec<&'a Row>>,
    /// Point with the lowest median step time, and that time in ms; of equal points, the first in
    /// the order of their values. `None` before the first complete measurement.
    pub best: Option<(Point, f64)>,
    bound_ms: Option<f64>,
}

impl<'a> SoFar<'a> {
    /// Groups those of `rows` that are on `np` ranks.
    pub fn new(rows: impl Iterator<Item = &'a Row>, np: u32) -> Self {
        let mut of_points: BTreeMap<PointKey, Vec<&Row>> = BTreeMap::new();
        for row in rows.filter(|row| row.point.np == np) {
            of_points.entry(row.point.key()).or_default().push(row);
        }
        let median = |rows: &[&Row], of| percentile_of(complete(rows, of), 0.5);
        let points = of_points.values();
        let timed = points.filter_map(|rows| Some((rows, median(rows, |of| of.p50)?)));
        let best = timed.min_by(|(_, left), (_, right)| left.total_cmp(right));
        let p90 = best.and_then(|(rows, _)| median(rows, |of| of.p90));
        Self {
            best: best.map(|(rows, ms)| (rows[0].point, ms)),
            bound_ms: p90.map(|p90| CLEARLY * p90),
            of_points,
        }
    }

    /// Returns the step time, in ms, above which a measurement may end early; `None` before the
    /// first complete measurement.
    ///
    /// If the machine has become slower, the bound rises by the ratio of the default's last
    /// measurement to its median.
    pub fn stop_above_ms(&self) -> Option<f64> {
        let (best, _) = self.best?;
        let default = complete(self.rows(&Point::default_of(best.np)), |times| times.p50);
        let last_ms = default.last().copied();
        let slowed = last_ms.zip(percentile_of(default, 0.5));
        let slowed = slowed.map_or(1.0, |(last_ms, median_ms)| last_ms / median_ms);
        Some(self.bound_ms? * slowed.max(1.0))
    }

    /// Whether the point need not be measured again.
    pub(super) fn leaves_out(&self, point: &Point) -> bool {
        let times = self.rows(point).iter().filter_map(|row| row.times);
        let least_ms = times.map(|times| times.p10).reduce(f64::min);
        let bounds = least_ms.zip(self.bound_ms);
        let is_worse = bounds.is_some_and(|(least_ms, bound_ms)| least_ms > bound_ms);
        !point.is_default() && (is_worse || self.has_failed(point))
    }

    /// Whether the point has reached the maximum number of failures.
    pub(super) fn has_failed(&self, point: &Point) -> bool {
        let rows = self.rows(point).iter();
        let failed = rows.filter(|row| matches!(row.status, Status::Failed(_)));
        failed.count() >= FAILURES_MOST
    }

    fn rows(&self, point: &Point) -> &[&'a Row] {
        self.of_points.get(&point.key()).map_or(&[], Vec::as_slice)
    }
}

fn complete(rows: &[&Row], of: fn(&StepSummary) -> f64) -> Vec<f64> {
    let complete = rows.iter().filter(|row| row.status == Status::Done);
    let times = complete.filter_map(|row| row.times.as_ref());
    times.map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::testing::{point, row};

    #[test]
    fn the_bound_is_half_above_the_slower_steps_of_the_best() {
        let default = Point::default_of(2);
        // In `row` the 10th percentile is 10 % below the median, the 90th 20 % above.
        let of = |cells: &[(Point, f64)], np| {
            let rows: Vec<Row> = cells.iter().map(|&(point, ms)| row(point, ms)).collect();
            SoFar::new(rows.iter(), np).stop_above_ms()
        };
        // Best: 10 and 12, so 11; 90th percentiles 12 and 14.4, so 13.2.
        let cells = [(point(1), 10.0), (point(2), 20.0), (point(1), 12.0)];
        assert!((of(&cells, 2).unwrap() - 1.5 * 13.2).abs() < 1e-9);
        // Measurements on other numbers of ranks do not count.
        assert_eq!((of(&[], 2), of(&cells, 4)), (None, None));
        // A machine that has become slower by a factor of 2 raises the bound.
        let slowed = of(&[(default, 10.0), (default, 10.0), (default, 20.0)], 2).unwrap();
        assert!((slowed - 1.5 * 12.0 * 2.0).abs() < 1e-9);
    }
}
