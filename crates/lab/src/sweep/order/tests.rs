//! Tests of the order of measurements, and of resuming without loss.

use proptest::prelude::*;

use super::*;
use crate::sweep::testing::{design, failed, row};

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
fn the_default_stands_between_points() {
    let points: Vec<Point> = (1..=13).map(crate::sweep::testing::point).collect();
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
    let design = design();
    let rows = measured(&design, Vec::new(), of_point);
    let first = of_block(&rows, Phase::Grid, 0);
    assert_ne!(first, of_block(&rows, Phase::Grid, 1));
    let other = measured(
        &Design {
            seed: 2,
            ..design.clone()
        },
        Vec::new(),
        of_point,
    );
    assert_ne!(first, of_block(&other, Phase::Grid, 0));
    assert_eq!(
        rows,
        measured(&design, Vec::new(), of_point),
        "the same seed, the same order"
    );
}

#[test]
fn the_best_and_the_default_take_turns_after_the_grid() {
    let design = design();
    let best = Point {
        fusion_threshold_bytes: 1 << 20,
        ..Point::default_of(2)
    };
    let rows = measured(&design, Vec::new(), |task| {
        Some(if task.point == best { 8.0 } else { 10.0 })
    });
    for block in 3..9 {
        let mut turn = of_block(&rows, Phase::Confirm, block);
        turn.sort_by_key(|point| point.fusion_threshold_bytes);
        assert_eq!(turn, [best, Point::default_of(2)], "round {block}");
    }
    assert_eq!(
        rows.iter()
            .filter(|row| row.phase == Phase::Confirm)
            .count(),
        12
    );
    let without = Design {
        confirm: 0,
        ..design
    };
    let grid: Vec<Row> = rows
        .into_iter()
        .filter(|row| row.phase == Phase::Grid)
        .collect();
    assert_eq!(SweepOrder::new(&without).next(&grid), None);
}

#[test]
fn where_the_default_is_best_there_is_nothing_to_confirm() {
    let rows = measured(&design(), Vec::new(), |task| {
        Some(if task.point.is_default() { 8.0 } else { 10.0 })
    });
    assert!(rows.iter().all(|row| row.phase == Phase::Grid));
}

#[test]
fn what_is_clearly_worse_is_measured_once() {
    let slow = |point: &Point| point.fusion_threshold_bytes == 0;
    let rows = measured(&design(), Vec::new(), |task| {
        Some(if slow(&task.point) {
            30.0
        } else {
            of_point(task)?
        })
    });
    for block in 0..3 {
        let count = of_block(&rows, Phase::Grid, block)
            .iter()
            .filter(|point| slow(point))
            .count();
        assert_eq!(count, if block == 0 { 2 } else { 0 });
    }
}

#[test]
fn what_fails_is_tried_once_more() {
    let broken = |point: &Point| point.fusion_threshold_bytes == 0 && point.cycle_time_ms == 5.0;
    let rows = measured(&design(), Vec::new(), |task| {
        of_point(task).filter(|_| !broken(&task.point))
    });
    let tries = rows.iter().filter(|row| broken(&row.point)).count();
    assert_eq!(tries, 2);
    // If all measurements fail: each point twice, the default as often as it occurs in the first
    // two blocks.
    let rows = measured(&design(), Vec::new(), |_| None);
    assert!(rows.iter().all(|row| row.block < 2));
}

#[test]
fn a_budget_leaves_out_what_does_not_fit() {
    // A measurement takes a second: 23 steps. The minimum is 6 steps, so a block of 8 and a round
    // of confirmation with the expected 3 measurements take at least 66 steps, or 2.9 s.
    let budget = |budget_s| Design {
        budget_s: Some(budget_s),
        ..design()
    };
    let blocks = |budget_s| {
        let rows = measured(&budget(budget_s), Vec::new(), of_point);
        let grid = rows.iter().filter(|row| row.phase == Phase::Grid);
        grid.map(|row| row.block + 1).max()
    };
    assert_eq!(blocks(0.5), Some(1), "the first block is begun in any case");
    assert_eq!(blocks(10.5), Some(1));
    assert_eq!(blocks(11.5), Some(2));
    assert_eq!(blocks(1e6), Some(3));
}

#[test]
fn what_is_left_is_counted() {
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
    fn a_sweep_that_was_cut_off_goes_on_as_if_it_had_not(design in designs(), share in 0.0..1.0f64) {
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
    let points = [
        Point::default_of(2),
        crate::sweep::testing::point(1),
        crate::sweep::testing::point(2),
    ];
    let mut rows: Vec<Row> = Vec::new();
    while let Some(task) = next_in_turns(Phase::Verify, 5..8, &points, 9, &rows) {
        rows.push(Row {
            phase: task.phase,
            block: task.block,
            ..row(task.point, 1.0)
        });
    }
    assert_eq!(rows.len(), 9);
    for block in 5..8 {
        let turn = of_block(&rows, Phase::Verify, block);
        assert!(points.iter().all(|point| turn.contains(point)), "{turn:?}");
    }
}
