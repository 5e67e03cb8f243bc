//! Order of a sweep's measurements, determined only by the design and the rows measured so far.
//!
//! So an interrupted sweep can be resumed: the order that follows from its rows is the same.
//!
//! 1. *Blocks*: each measures the whole grid, in a random order from the seed. Ranks are started
//!    once for each number of ranks in a block. Within these measurements the default comes first,
//!    last, and about every six points, so that the drift of the machine can be
//!    separated from the differences between points. From the second block on, points that are
//!    clearly worse or failed twice are left out ([`SoFar`]).
//! 2. *Confirmation*: the points that cannot be distinguished from the best, and the default, in
//!    turns, in a random order each round: the minimum of many noisy means is biased downwards, so
//!    the gain is measured again.
//!
//! With a budget, a block or round begins only if its measurements fit into the remaining time, at
//! the speed so far and with the minimum number of steps.

use std::collections::HashMap;

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;

use super::{Design, Phase, Point, Row, SoFar, verdict};
use crate::bench::STEPS_BEFORE_CUT;
use ronde_job::point::PointKey;

/// Maximum number of points between two measurements of the default.
const DEFAULT_EVERY: usize = 6;

/// Maximum number of points that are confirmed, besides the default.
const CONFIRMED_MOST: usize = 4;

/// Expected number of confirmed points with the default, before the actual number is known.
const CONFIRMED_EXPECTED: usize = 3;

/// One measurement to be made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task {
    /// Point to measure.
    pub point: Point,
    /// Phase of the measurement.
    pub phase: Phase,
    /// Number of the block; confirmation continues the numbering of the grid.
    pub block: u32,
}

impl Design {
    /// Returns the next measurement after `rows`; `None` at the end of the sweep or its budget.
    pub fn next(&self, rows: &[Row]) -> Option<Task> {
        let fits = |agenda: &Agenda, more: usize| {
            agenda.is_begun || fits(self, rows, agenda.left.len() + more)
        };
        let has_left = |agenda: &Agenda| !agenda.left.is_empty();
        let more = self.confirm.min(1) as usize * self.confirmed_expected();
        let of_grid = self.grid_left(rows).find(has_left);
        let of_grid = of_grid.filter(|agenda| fits(agenda, more));
        let confirmation = || self.confirmation_left(rows).find(has_left);
        let agenda = of_grid.or_else(|| confirmation().filter(|agenda| fits(agenda, 0)));
        agenda?.left.first().copied()
    }

    /// Estimates the number of remaining measurements, if later blocks leave out no more points.
    pub fn left(&self, rows: &[Row]) -> usize {
        let left = |agenda: Agenda| agenda.left.len();
        match self.grid_left(rows).map(left).sum() {
            0 => self.confirmation_left(rows).map(left).sum(),
            of_grid => of_grid + self.confirm as usize * self.confirmed_expected(),
        }
    }

    /// Returns the remaining measurements that verify predictions, for which `points` take turns.
    pub fn verification_left(&self, points: &[Point], rows: &[Row]) -> Vec<Task> {
        let blocks = 0..self.confirm.max(1);
        let turns = |block| Agenda::of_turns(Phase::Verify, block, points, self.seed, rows);
        blocks.flat_map(|block| turns(block).left).collect()
    }

    fn confirmed_expected(&self) -> usize {
        self.np.len() * CONFIRMED_EXPECTED
    }

    fn grid_left(&self, rows: &[Row]) -> impl Iterator<Item = Agenda> {
        (0..self.repeats).map(move |block| Agenda::of_block(self, rows, block))
    }

    fn confirmation_left(&self, rows: &[Row]) -> impl Iterator<Item = Agenda> {
        let first = self.repeats;
        let ranks = shuffled(self.np.clone(), self.seed, first).into_iter();
        let ranks = ranks.filter(|_| self.confirm > 0);
        ranks.flat_map(move |np| {
            let points = candidates(rows, np);
            let blocks = first..first.saturating_add(self.confirm);
            blocks
                .map(move |block| Agenda::of_turns(Phase::Confirm, block, &points, self.seed, rows))
        })
    }
}

/// Returns the default and the points that cannot be distinguished from the best in the grid on
/// `np` ranks.
fn candidates(rows: &[Row], np: u32) -> Vec<Point> {
    let of_grid = rows
        .iter()
        .filter(|row| row.phase == Phase::Grid && row.point.np == np);
    let verdict = verdict(&of_grid.cloned().collect::<Vec<_>>());
    let findings = verdict.findings.iter();
    // The best point is tied, and first.
    let tied = findings.flat_map(|finding| finding.ties().map(|outcome| outcome.point));
    let others = tied.filter(|point| !point.is_default());
    let mut points: Vec<Point> = others.take(CONFIRMED_MOST).collect();
    // If the default is best, there is no gain to confirm.
    points.extend(points.first().map(|point| Point::default_of(point.np)));
    points
}

/// Remaining measurements of a block, in order.
struct Agenda {
    is_begun: bool,
    left: Vec<Task>,
}

impl Agenda {
    fn of_block(design: &Design, rows: &[Row], block: u32) -> Self {
        let is_before = |row: &&Row| row.phase == Phase::Grid && row.block < block;
        let mut sequence = Vec::new();
        for np in shuffled(design.np.clone(), design.seed, block) {
            let so_far = SoFar::new(rows.iter().filter(is_before), np);
            let mut points = design.grid(np);
            points.retain(|point| !so_far.leaves_out(point));
            let points = shuffled(points, design.seed, block);
            let default = Some(Point::default_of(np)).filter(|of| !so_far.has_failed(of));
            sequence.extend(interleaved(&points, default));
        }
        Self::new(Phase::Grid, block, sequence, rows)
    }

    fn of_turns(phase: Phase, block: u32, points: &[Point], seed: u64, rows: &[Row]) -> Self {
        let mut points = shuffled(points.to_vec(), seed, block);
        points.sort_by_key(|point| point.np); // stable: ranks are started once
        Self::new(phase, block, points, rows)
    }

    /// Removes the measurements in `rows` from `sequence`, each as often as it occurs.
    fn new(phase: Phase, block: u32, sequence: Vec<Point>, rows: &[Row]) -> Self {
        let mut have: HashMap<PointKey, usize> = HashMap::new();
        for row in rows {
            if row.phase == phase && row.block == block {
                *have.entry(row.point.key()).or_default() += 1;
            }
        }
        let mut is_begun = false;
        let mut left = Vec::new();
        for point in sequence {
            match have.get_mut(&point.key()).filter(|count| **count > 0) {
                Some(count) => (*count, is_begun) = (*count - 1, true),
                None => left.push(Task {
                    point,
                    phase,
                    block,
                }),
            }
        }
        Self { is_begun, left }
    }
}

/// Whether `count` measurements with the fewest steps fit into the budget, at the speed so far.
fn fits(design: &Design, rows: &[Row], count: usize) -> bool {
    let (Some(budget_s), Some(last)) = (design.budget_s, rows.last()) else {
        return true;
    };
    let done: u32 = rows.iter().map(|row| design.warmup + row.steps).sum();
    let seconds_per_step = last.at_s / f64::from(done.max(1));
    let steps = count * (design.warmup as usize + STEPS_BEFORE_CUT);
    last.at_s + steps as f64 * seconds_per_step <= budget_s
}

/// Random order of a block, determined by the seed and the block.
fn shuffled<T>(mut items: Vec<T>, seed: u64, block: u32) -> Vec<T> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ u64::from(block) << 32);
    items.shuffle(&mut random);
    items
}

/// Inserts `default` before, after and between `points`, at equal distances of at most
/// [`DEFAULT_EVERY`] points.
fn interleaved(points: &[Point], default: Option<Point>) -> Vec<Point> {
    let runs = points.len().div_ceil(DEFAULT_EVERY);
    let mut sequence = Vec::from_iter(default);
    for run in 0..runs {
        let (from, to) = (run * points.len() / runs, (run + 1) * points.len() / runs);
        sequence.extend_from_slice(&points[from..to]);
        sequence.extend(default);
    }
    sequence
}

#[cfg(test)]
mod tests;
