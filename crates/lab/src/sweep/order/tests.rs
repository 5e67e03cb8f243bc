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

/// Measurements of a sweep, one line for each block: thresholds in MiB with cycle times in ms.
fn told(rows: &[Row]) -> String {
    let point = |row: &Row| format!(" {}@{}", row.point.fusion_mb(), row.point.cycle_time_ms);
    let line = |rows: &[Row]| {
        let points: String = rows.iter().map(point).collect();
        format!("{:?} {}:{points}\n", rows[0].phase, rows[0].block)
    };
    let blocks = rows.chunk_by(|a, b| (a.phase, a.block) == (b.phase, b.block));
    blocks.map(line).collect()
}

#[test]
fn orders_of_small_sweeps() {
    let mut text = String::new();
    let mut tell = |case: &str, design: Design, step_ms: &dyn Fn(&Task) -> Option<f64>| {
        let rows = measured(&design, Vec::new(), step_ms);
        assert_eq!(rows, measured(&design, Vec::new(), step_ms), "{case}");
        text += &format!("{case}\n{}\n", told(&rows));
    };
    for seed in [1, 2] {
        tell(
            &format!("seed {seed}"),
            Design { seed, ..design() },
            &of_point,
        );
    }
    let fusion_threshold_bytes = 1 << 20;
    let one = Point {
        fusion_threshold_bytes,
        ..Point::default_of(2)
    };
    let best = |point: Point| move |task: &Task| Some(if task.point == point { 8.0 } else { 10.0 });
    let case = "1 MiB is best: it takes turns with the default after the grid";
    tell(case, design(), &best(one));
    let confirm = 0;
    tell(
        "without confirmation",
        Design {
            confirm,
            ..design()
        },
        &best(one),
    );
    let case = "the default is best: nothing is confirmed";
    tell(case, design(), &best(Point::default_of(2)));
    let no_fusion = |task: &Task| task.point.fusion_threshold_bytes == 0;
    let slow = |task: &Task| {
        if no_fusion(task) {
            Some(30.0)
        } else {
            of_point(task)
        }
    };
    let case = "0 MiB is clearly worse: it is left out from the second block on";
    tell(case, design(), &slow);
    let broken = |task: &Task| no_fusion(task) && task.point.cycle_time_ms == 5.0;
    let case = "0 MiB with 5 ms fails: it is tried once more";
    tell(case, design(), &|task| {
        of_point(task).filter(|_| !broken(task))
    });
    let case =
        "everything fails: each point twice, the default as often as it occurs in two blocks";
    tell(case, design(), &|_| None);
    // A measurement takes a second: 23 steps. The minimum is 6 steps, so a block of 8 and a round
    // of confirmation with the expected 3 measurements take at least 66 steps, or 2.9 s.
    for budget in [0.5, 10.5, 11.5, 1e6] {
        let budget_s = Some(budget);
        let case = format!("a budget of {budget} s; the first block is begun in any case");
        tell(
            &case,
            Design {
                budget_s,
                ..design()
            },
            &of_point,
        );
    }
    ronde_cases::document("orders.txt", &text);
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
