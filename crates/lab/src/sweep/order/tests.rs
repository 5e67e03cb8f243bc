//! Tests of the order of measurements, and of resuming without loss.

use proptest::prelude::*;

use super::*;
use crate::sweep::testing::{self, design, failed, row};

/// Measures until the end; `step_ms` returns the step time of a task, or `None` if it fails.
fn measured(
    design: &Design,
    mut rows: Vec<Row>,
    step_ms: impl Fn(&Task) -> Option<f64>,
) -> Vec<Row> {
    let order = SweepOrder::new(design);
    while let Some(task) = order.next(&rows) {
        assert!(rows.len() < 10_000, "there is no end");
        let mut row = match step_ms(&task) {
            Some(ms) => row(task.point, ms),
            None => failed(task.point),
        };
        (row.phase, row.block) = (task.phase, task.block);
        row.at_s = rows.len() as f64 + 1.0;
        rows.push(row);
    }
    rows
}

/// A distinct step time for each point: 10 ms to 13.3 ms.
fn of_point(task: &Task) -> Option<f64> {
    let Point {
        np,
        fusion_threshold_bytes,
        cycle_time_ms,
        ..
    } = task.point;
    let mixed =
        (fusion_threshold_bytes >> 18) as f64 * 0.618 + cycle_time_ms * 0.377 + f64::from(np) * 0.1;
    Some(10.0 + 3.0 * mixed.fract())
}

fn of_block(rows: &[Row], phase: Phase, block: u32) -> Vec<Point> {
    let rows = rows
        .iter()
        .filter(|row| row.phase == phase && row.block == block);
    rows.map(|row| row.point).collect()
}

#[test]
fn the_default_is_measured_between_points() {
    let points: Vec<Point> = (1..=13).map(testing::point).collect();
    let default = Point::default_of(2);
    let sequence = interleaved(&points, Some(default));
    let defaults: Vec<usize> = (0..sequence.len())
        .filter(|&index| sequence[index] == default)
        .collect();
    // Three runs of 4, 4 and 5.
    assert_eq!(defaults, [0, 5, 10, 16]);
    assert_eq!(interleaved(&[], Some(default)), [default]);
    assert_eq!(interleaved(&points[..1], None), points[..1]);
}

#[test]
fn blocks_differ_and_seeds_too() {
    let measure = |seed| measured(&Design { seed, ..design() }, Vec::new(), of_point);
    let (rows, other) = (measure(1), measure(2));
    let first = of_block(&rows, Phase::Grid, 0);
    assert_ne!(first, of_block(&rows, Phase::Grid, 1));
    assert_ne!(first, of_block(&other, Phase::Grid, 0));
    assert_eq!(rows, measure(1), "the same seed, the same order");
}

#[test]
fn the_best_and_the_default_take_turns_after_the_grid() {
    let fusion_threshold_bytes = 1 << 20;
    let best = Point {
        fusion_threshold_bytes,
        ..Point::default_of(2)
    };
    let with_best = |best: Point| {
        measured(&design(), Vec::new(), |task| {
            Some(if task.point == best { 8.0 } else { 10.0 })
        })
    };
    let rows = with_best(best);
    for block in 3..9 {
        let mut turn = of_block(&rows, Phase::Confirm, block);
        turn.sort_by_key(Point::key);
        assert_eq!(turn, [best, Point::default_of(2)], "round {block}");
    }
    let is_of_grid = |row: &&Row| row.phase == Phase::Grid;
    let grid: Vec<Row> = rows.iter().filter(is_of_grid).cloned().collect();
    assert_eq!(rows.len() - grid.len(), 12);
    let without = Design {
        confirm: 0,
        ..design()
    };
    assert_eq!(SweepOrder::new(&without).next(&grid), None);
    // If the default is best, there is nothing to confirm.
    let rows = with_best(Point::default_of(2));
    assert!(rows.iter().all(|row| row.phase == Phase::Grid));
}

#[test]
fn points_that_are_clearly_worse_or_fail_are_left_out() {
    let no_fusion = |point: &Point| point.fusion_threshold_bytes == 0;
    let rows = measured(&design(), Vec::new(), |task| match no_fusion(&task.point) {
        true => Some(30.0),
        false => of_point(task),
    });
    for (block, expected) in [(0, 2), (1, 0), (2, 0)] {
        let points = of_block(&rows, Phase::Grid, block);
        assert_eq!(
            points.iter().filter(|point| no_fusion(point)).count(),
            expected
        );
    }
    // A point that fails is tried once more.
    let broken = |point: &Point| no_fusion(point) && point.cycle_time_ms == 5.0;
    let rows = measured(&design(), Vec::new(), |task| {
        of_point(task).filter(|_| !broken(&task.point))
    });
    assert_eq!(rows.iter().filter(|row| broken(&row.point)).count(), 2);
    // If all measurements fail: each point twice, the default as often as it occurs in the first
    // two blocks.
    let rows = measured(&design(), Vec::new(), |_| None);
    assert!(rows.iter().all(|row| row.block < 2));
}

#[test]
fn blocks_that_do_not_fit_into_the_budget_are_left_out() {
    // A measurement takes a second: 23 steps. The minimum is 6 steps, so a block of 8 and a round
    // of confirmation with the expected 3 measurements take at least 66 steps, or 2.9 s.
    for (budget_s, blocks) in [
        (0.5, 1), // the first block is begun in any case
        (10.5, 1),
        (11.5, 2),
        (1e6, 3),
    ] {
        let budget_s = Some(budget_s);
        let rows = measured(
            &Design {
                budget_s,
                ..design()
            },
            Vec::new(),
            of_point,
        );
        let grid = rows.iter().filter(|row| row.phase == Phase::Grid);
        assert_eq!(grid.map(|row| row.block + 1).max(), Some(blocks));
    }
}

#[test]
fn remaining_measurements_are_counted() {
    let design = design();
    let order = SweepOrder::new(&design);
    // Six points and the default twice, three times; in each of six rounds three measurements are
    // expected.
    assert_eq!(order.left(&[]), 3 * 8 + 6 * 3);
    let rows = measured(&design, Vec::new(), of_point);
    assert_eq!(order.left(&rows), 0);
    assert_eq!(order.left(&rows[..rows.len() - 1]), 1);
}

fn designs() -> impl Strategy<Value = Design> {
    let lists = (
        proptest::sample::subsequence(vec![1u32, 2, 4], 1..=3),
        proptest::sample::subsequence(vec![0u64, 1 << 20, 4 << 20, 64 << 20, 128 << 20], 1..=5),
        proptest::sample::subsequence(vec![0.0, 1.0, 2.5, 10.0], 1..=4),
        proptest::sample::subsequence(vec![true, false], 1..=2),
    );
    let numbers = (1u32..=3, 0u32..=3, any::<u64>());
    (lists, numbers).prop_map(
        |((np, fusion, cycle, cache), (repeats, confirm, seed))| Design {
            np,
            fusion_threshold_bytes: fusion,
            cycle_time_ms: cycle,
            cache,
            repeats,
            confirm,
            seed,
            ..design()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_point_is_measured_once_in_every_block(design in designs()) {
        let rows = measured(&design, Vec::new(), of_point);
        for block in 0..design.repeats {
            let mut measured = of_block(&rows, Phase::Grid, block);
            // Each number of ranks is contiguous, with the default first, last, and at regular
            // distances.
            for piece in measured.chunk_by(|left, right| left.np == right.np) {
                prop_assert!(piece[0].is_default() && piece[piece.len() - 1].is_default());
                let mut since = 0;
                for point in piece {
                    since = if point.is_default() { 0 } else { since + 1 };
                    prop_assert!(since <= DEFAULT_EVERY);
                }
            }
            let pieces = measured.chunk_by(|left, right| left.np == right.np).count();
            prop_assert_eq!(pieces, design.np.len());
            measured.retain(|point| !point.is_default());
            let mut expected: Vec<Point> = design.np.iter().flat_map(|&np| design.grid(np)).collect();
            measured.sort_by_key(Point::key);
            expected.sort_by_key(Point::key);
            prop_assert_eq!(measured, expected);
        }
    }

    #[test]
    fn a_resumed_sweep_has_the_same_order(design in designs(), share in 0.0..1.0f64) {
        // Some points fail sometimes.
        let outcome = |task: &Task| of_point(task).filter(|_| !(task.point.key().1 == 0 && task.block == 1));
        let whole = measured(&design, Vec::new(), outcome);
        let cut = (whole.len() as f64 * share) as usize;
        prop_assert_eq!(measured(&design, whole[..cut].to_vec(), outcome), whole);
    }

    /// Rows in another order with some missing, as after an edit of the file: no panic, and the
    /// sweep ends.
    #[test]
    fn rows_that_were_edited_do_no_harm(design in designs(), keep in proptest::collection::vec(any::<bool>(), 0..64)) {
        let mut rows = measured(&design, Vec::new(), of_point);
        let mut keep = keep.into_iter().chain(std::iter::repeat(true));
        rows.retain(|_| keep.next() == Some(true));
        rows.reverse();
        let again = measured(&design, rows.clone(), of_point);
        prop_assert!(again.len() >= rows.len());
    }
}

#[test]
fn a_few_points_take_turns() {
    let points = [Point::default_of(2), testing::point(1), testing::point(2)];
    let mut rows: Vec<Row> = Vec::new();
    let next = |rows: &[Row]| {
        turns(Phase::Verify, 5..8, &points, 9, rows)
            .first()
            .copied()
    };
    while let Some(Task {
        point,
        phase,
        block,
    }) = next(&rows)
    {
        rows.push(Row {
            phase,
            block,
            ..row(point, 1.0)
        });
    }
    assert_eq!(rows.len(), 9);
    for block in 5..8 {
        let turn = of_block(&rows, Phase::Verify, block);
        assert!(points.iter().all(|point| turn.contains(point)), "{turn:?}");
    }
}
