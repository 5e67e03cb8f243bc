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

/// Threshold in MiB with the cycle time in ms.
fn setting(point: &Point) -> String {
    format!("{}@{}", point.fusion_mb(), point.cycle_time_ms)
}

/// Measurements of a sweep, a line for each block. The first line of the input has changes of the
/// design, the second the step times of settings, in ms; `*` stands for all others.
fn answer(input: &str) -> String {
    let (changes, times) = input.split_once('\n').unwrap_or((input, ""));
    let mut fields = serde_json::to_value(design()).unwrap();
    let changes: serde_json::Map<_, _> = serde_json::from_str(changes).unwrap();
    fields.as_object_mut().unwrap().extend(changes);
    let design: Design = serde_json::from_value(fields).unwrap();
    let times = times
        .split_whitespace()
        .filter_map(|cell| cell.split_once('='));
    let times: Vec<(&str, &str)> = times.collect();
    let step_ms = |task: &Task| {
        let is_of = |of: &str| of == "*" || of == setting(&task.point);
        match times.iter().find(|(of, _)| is_of(of)) {
            Some((_, ms)) => ms.parse().ok(),
            None => of_point(task),
        }
    };
    let rows = measured(&design, Vec::new(), step_ms);
    assert_eq!(rows, measured(&design, Vec::new(), step_ms));
    let line = |rows: &[Row]| {
        let points: Vec<String> = rows.iter().map(|row| setting(&row.point)).collect();
        format!(
            "{:?} {}: {}\n",
            rows[0].phase,
            rows[0].block,
            points.join(" ")
        )
    };
    let blocks = rows.chunk_by(|a, b| (a.phase, a.block) == (b.phase, b.block));
    blocks.map(line).collect()
}

#[test]
fn orders_of_small_sweeps() {
    ronde_cases::check("orders.txt", answer);
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

prop_compose! {
    fn designs()(
        np in proptest::sample::subsequence(vec![1u32, 2, 4], 1..=3),
        fusion_threshold_bytes in
            proptest::sample::subsequence(vec![0u64, 1 << 20, 4 << 20, 64 << 20, 128 << 20], 1..=5),
        cycle_time_ms in proptest::sample::subsequence(vec![0.0, 1.0, 2.5, 10.0], 1..=4),
        cache in proptest::sample::subsequence(vec![true, false], 1..=2),
        repeats in 1u32..=3,
        confirm in 0u32..=3,
        seed: u64,
    ) -> Design {
        Design { np, fusion_threshold_bytes, cycle_time_ms, cache, repeats, confirm, seed, ..design() }
    }
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
