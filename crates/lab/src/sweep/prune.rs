//! Pruning: points that need not be measured again, and measurements that may end early.
//!
//! The *bound* is [`CLEARLY`] times the slow-step time of the best point: the median over its
//! measurements of the 90th percentile of its steps. The best point is the one with the lowest
//! median. A point is clearly worse if even the fast steps of its fastest measurement (the 10th
//! percentile) are above the bound. The default is always measured.

use std::collections::HashMap;

use super::design::Key;
use super::{Point, Row, Status};
use ronde_job::percentile::percentile_of;

/// Ratio to the best from which a point is clearly worse.
pub const CLEARLY: f64 = 1.5;

/// Failed measurements after which a point is left out: one repetition.
const FAILURES_MOST: usize = 2;

/// Summary of the measurements on one number of ranks.
pub(super) struct Prune {
    bound_ms: Option<f64>,
    of_points: HashMap<Key, OfPoint>,
}

#[derive(Default)]
struct OfPoint {
    failures: usize,
    /// Lowest 10th percentile.
    least_ms: Option<f64>,
}

impl Prune {
    pub(super) fn new<'a>(rows: impl Iterator<Item = &'a Row> + Clone, np: u32) -> Self {
        let rows = rows.filter(|row| row.point.np == np);
        let mut of_points: HashMap<Key, OfPoint> = HashMap::new();
        for row in rows.clone() {
            let of_point = of_points.entry(row.point.key()).or_default();
            if let Status::Failed(_) = row.status {
                of_point.failures += 1;
            }
            if let Some(times) = row.times {
                let least = of_point.least_ms.unwrap_or(f64::INFINITY);
                of_point.least_ms = Some(least.min(times.p10));
            }
        }
        Self {
            bound_ms: bound_ms(rows, np),
            of_points,
        }
    }

    /// Whether the point need not be measured again.
    pub(super) fn leaves_out(&self, point: &Point) -> bool {
        let least_ms = self
            .of_points
            .get(&point.key())
            .and_then(|of_point| of_point.least_ms);
        let is_worse = match (least_ms, self.bound_ms) {
            (Some(least_ms), Some(bound_ms)) => least_ms > bound_ms,
            _ => false,
        };
        !point.is_default() && (is_worse || self.has_failed(point))
    }

    /// Whether the point has reached the maximum number of failures.
    pub(super) fn has_failed(&self, point: &Point) -> bool {
        let of_point = self.of_points.get(&point.key());
        of_point.is_some_and(|of_point| of_point.failures >= FAILURES_MOST)
    }
}

/// Step time, in ms, above which a measurement on `np` ranks may end early; `None` before the first
/// measurement.
///
/// If the machine has become slower, the bound rises by the ratio of the default's last measurement
/// to its median.
pub fn stop_above_ms<'a>(rows: impl Iterator<Item = &'a Row> + Clone, np: u32) -> Option<f64> {
    let of_default = rows
        .clone()
        .filter(|row| row.point == Point::default_of(np) && row.status == Status::Done);
    let defaults: Vec<f64> = of_default
        .filter_map(|row| row.times)
        .map(|times| times.p50)
        .collect();
    let slowed = match (defaults.last().copied(), percentile_of(defaults, 0.5)) {
        (Some(last), Some(median)) => (last / median).max(1.0),
        _ => 1.0,
    };
    bound_ms(rows, np).map(|bound_ms| bound_ms * slowed)
}

/// Returns the point with the lowest median step time on `np` ranks, and that time in ms.
pub fn best_so_far<'a>(rows: impl Iterator<Item = &'a Row>, np: u32) -> Option<(Point, f64)> {
    best(rows, np).map(|best| (best.point, best.p50_ms))
}

fn bound_ms<'a>(rows: impl Iterator<Item = &'a Row>, np: u32) -> Option<f64> {
    best(rows, np).map(|best| CLEARLY * best.p90_ms)
}

/// A point with the percentiles of its steps, each the median over its measurements.
struct Best {
    point: Point,
    p50_ms: f64,
    p90_ms: f64,
}

fn best<'a>(rows: impl Iterator<Item = &'a Row>, np: u32) -> Option<Best> {
    let mut of_points: HashMap<Key, (Point, Vec<f64>, Vec<f64>)> = HashMap::new();
    for row in rows.filter(|row| row.point.np == np && row.status == Status::Done) {
        if let Some(times) = row.times {
            let entry = of_points.entry(row.point.key());
            let (_, p50, p90) = entry.or_insert((row.point, Vec::new(), Vec::new()));
            p50.push(times.p50);
            p90.push(times.p90);
        }
    }
    let summaries = of_points.into_values().filter_map(|(point, p50, p90)| {
        Some(Best {
            point,
            p50_ms: percentile_of(p50, 0.5)?,
            p90_ms: percentile_of(p90, 0.5)?,
        })
    });
    // Ties are broken by the point's own values, since the hash map has no order.
    summaries.min_by(|left, right| {
        let by_time = left.p50_ms.total_cmp(&right.p50_ms);
        by_time.then_with(|| left.point.key().cmp(&right.point.key()))
    })
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
