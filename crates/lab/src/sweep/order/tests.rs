//! Tests of the order of measurements, and of resuming without loss.

use proptest::prelude::*;
use serde_json::{Map, Value};

use super::*;
use crate::sweep::testing::{self, failed, row};

/// Six points besides the default, in three blocks, then six rounds of confirmation.
const DESIGN: &str = r#"{
    "np": [2], "fusion_threshold_bytes": [0, 1048576, 4194304], "cycle_time_ms": [1.0, 5.0],
    "cache": [true], "hierarchical_allreduce": [false], "repeats": 3, "confirm": 6, "warmup": 3,
    "steps": 20, "budget_s": null, "seed": 1
}"#;

/// The design with changed fields.
fn design(changes: &str) -> Design {
    let [mut fields, changes] =
        [DESIGN, changes].map(|text| serde_json::from_str::<Map<String, Value>>(text).unwrap());
    fields.extend(changes);
    serde_json::from_value(fields.into()).unwrap()
}

/// Measures until the end; `step_ms` returns the step time of a task, or `None` if it fails.
fn measured(
    design: &Design,
    mut rows: Vec<Row>,
    step_ms: impl Fn(&Task) -> Option<f64>,
) -> Vec<Row> {
    while let Some(task) = design.next(&rows) {
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
    let point = task.point;
    let fusion = (point.fusion_threshold_bytes >> 18) as f64 * 0.618;
    let mixed = fusion + point.cycle_time_ms * 0.377 + f64::from(point.np) * 0.1;
    Some(10.0 + 3.0 * mixed.fract())
}

fn setting(point: &Point) -> String {
    format!("{}@{}", point.fusion_mb(), point.cycle_time_ms)
}

/// Measurements of a sweep, a line for each block, and the numbers of measurements that are left at
/// its start, before the last one and after it. The first line of the input has changes of the
/// design, the second the step times of settings, in ms; `*` stands for all others.
fn answer(input: &str) -> String {
    let (changes, times) = input.split_once('\n').unwrap_or((input, ""));
    let design = design(changes);
    let step_ms = |task: &Task| {
        let is_of = |of: &str| of == "*" || of == setting(&task.point);
        let cells = times.split_whitespace();
        let mut cells = cells.map(|cell| cell.split_once('=').unwrap());
        match cells.find(|(of, _)| is_of(of)) {
            Some((_, ms)) => ms.parse().ok(),
            None => of_point(task),
        }
    };
    let rows = measured(&design, Vec::new(), step_ms);
    let line = |rows: &[Row]| {
        let points: Vec<String> = rows.iter().map(|row| setting(&row.point)).collect();
        let (phase, block) = (rows[0].phase, rows[0].block);
        format!("{phase:?} {block}: {}\n", points.join(" "))
    };
    let blocks = rows.chunk_by(|a, b| (a.phase, a.block) == (b.phase, b.block));
    let left = [0, rows.len() - 1, rows.len()].map(|count| design.left(&rows[..count]));
    format!("{}left {left:?}", blocks.map(line).collect::<String>())
}

#[test]
fn orders_of_small_sweeps() {
    ronde_cases::check("orders.txt", answer);
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
        let rest = design("{}");
        Design { np, fusion_threshold_bytes, cycle_time_ms, cache, repeats, confirm, seed, ..rest }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_point_is_measured_once_in_every_block(design in designs()) {
        let rows = measured(&design, Vec::new(), of_point);
        for block in 0..design.repeats {
            let of_block = rows.iter().filter(|row| row.phase == Phase::Grid && row.block == block);
            let mut measured: Vec<Point> = of_block.map(|row| row.point).collect();
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
    let design = design(r#"{"confirm": 3}"#);
    let tasks = design.verification_left(&points, &[]);
    for (block, point) in (0..3).flat_map(|block| points.map(|point| (block, point))) {
        let is_wanted = |task: &Task| (task.block, task.point) == (block, point);
        assert!(tasks.iter().any(is_wanted));
    }
    let mut first = row(tasks[0].point, 1.0);
    (first.phase, first.block) = (tasks[0].phase, tasks[0].block);
    assert_eq!(design.verification_left(&points, &[first]), tasks[1..]);
}
