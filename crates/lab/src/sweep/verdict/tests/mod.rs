//! Verdicts on rows whose result can be computed by hand.

mod properties;
mod simulated;

use super::*;
use crate::sweep::{Phase, Status, StepTimes};

/// A point with this threshold in MiB, at the default's cycle time.
fn point(fusion_mb: u64) -> Point {
    Point {
        fusion_threshold_bytes: fusion_mb << 20,
        ..Point::default_of(2)
    }
}

/// The default threshold is 128 MiB.
const DEFAULT: u64 = 128;

fn times(ms: f64) -> StepTimes {
    StepTimes {
        steps: 20,
        p10: ms,
        p50: ms,
        p90: ms,
        mean: ms,
    }
}

fn row(phase: Phase, block: u32, fusion_mb: u64, ms: f64) -> Row {
    Row {
        point: point(fusion_mb),
        phase,
        block,
        status: Status::Done,
        times: Some(times(ms)),
        at_s: f64::from(block) * 10.0,
    }
}

/// Rows of a phase, one block for each element, from (threshold, ms).
fn blocks(phase: Phase, blocks: &[&[(u64, f64)]]) -> Vec<Row> {
    let block = |(block, cells): (usize, &&[(u64, f64)])| {
        let rows = cells
            .iter()
            .map(move |&(fusion_mb, ms)| row(phase, block as u32, fusion_mb, ms));
        rows.collect::<Vec<_>>()
    };
    blocks.iter().enumerate().flat_map(block).collect()
}

fn only(verdict: Verdict) -> Finding {
    let [finding] = <[Finding; 1]>::try_from(verdict.findings).expect("one number of ranks");
    finding
}

fn thresholds<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Vec<f64> {
    outcomes.map(|outcome| outcome.point.fusion_mb()).collect()
}

/// 16 MiB takes a fifth less than the default, 64 MiB slightly more than 16 MiB, and no other point
/// is near the default.
fn grid() -> Vec<Row> {
    blocks(
        Phase::Grid,
        &[
            &[
                (128, 100.0),
                (16, 80.2),
                (64, 80.4),
                (1, 150.0),
                (128, 99.8),
            ],
            &[
                (128, 101.0),
                (16, 80.4),
                (64, 81.4),
                (1, 151.0),
                (128, 101.4),
            ],
            &[(128, 99.0), (16, 79.4), (64, 79.2), (1, 149.0), (128, 98.6)],
        ],
    )
}

#[test]
fn a_clear_case() {
    let finding = only(verdict(&grid()));
    assert_eq!(finding.conclusion, Conclusion::Faster);
    assert_eq!(finding.basis, Basis::Grid);
    assert_eq!(thresholds(finding.points.iter()), [16.0, 64.0, 128.0, 1.0]);
    assert_eq!(thresholds(finding.ties()), [16.0, 64.0]);
    let gain = finding.gain.unwrap();
    let [low, high] = gain.interval.unwrap();
    assert!((gain.value - 0.2).abs() < 0.002, "{gain:?}");
    assert!(
        0.18 < low && low < gain.value && gain.value < high && high < 0.22,
        "{gain:?}"
    );
    assert_eq!(finding.recommended(), finding.best());
    assert_eq!(finding.default().unwrap().measurements, 6);
    // The blocks are at 100, 101 and 99: the slowest is two percent above the fastest.
    let noise = finding.noise.unwrap();
    assert!((0.015..0.025).contains(&noise.drift), "{noise:?}");
    assert!((0.001..0.006).contains(&noise.sd), "{noise:?}");
    assert_eq!(noise.freedom, 15 - 4 - 2);
    assert!(noise.strays.is_empty());
}

#[test]
fn the_gain_is_from_the_confirmation_alone() {
    let mut rows = grid();
    // Six rounds, in which the best saves only a tenth.
    for round in 0..6 {
        let noise = 1.0 + 0.002 * f64::from(round % 3);
        rows.push(row(Phase::Confirm, round, DEFAULT, 100.0 * noise));
        rows.push(row(Phase::Confirm, round, 16, 90.0));
    }
    let finding = only(verdict(&rows));
    assert_eq!(
        (finding.conclusion, finding.basis),
        (Conclusion::Faster, Basis::Confirmed)
    );
    let gain = finding.gain.unwrap();
    // The defaults are 1, 1.002 and 1.004 times 100, twice each.
    assert!((gain.value - (1.0 - 90.0 / 100.2)).abs() < 1e-5, "{gain:?}");
    // Five degrees of freedom are too few; the scatter of all measurements widens the interval.
    let [low, high] = gain.interval.unwrap();
    assert!(low < 0.09 && high > 0.11, "{gain:?}");
    // 64 MiB appeared better than 16, but was not confirmed.
    assert_eq!(finding.best().unwrap().point, point(16));
    assert_eq!(finding.best, Some(0));
}

#[test]
fn by_hand_the_interval_of_one_candidate_is_students() {
    // ln differences of ±1 % around −0.1 in eight rounds: mean −0.1, sd of the differences
    // √(8 · 0.0001 / 7).
    let round = |round: u32| {
        let off = if round.is_multiple_of(2) { 0.01 } else { -0.01 };
        [
            row(Phase::Confirm, round, DEFAULT, 100.0),
            row(Phase::Confirm, round, 16, 100.0 * f64::exp(-0.1 + off)),
        ]
    };
    let rows: Vec<Row> = (0..8).flat_map(round).collect();
    let gain = only(verdict(&rows)).gain.unwrap();
    let reach = 2.3646 * (8.0 * 1e-4 / 7.0 / 8.0f64).sqrt(); // t of 7 degrees of freedom
    let expected = [1.0 - f64::exp(-0.1 + reach), 1.0 - f64::exp(-0.1 - reach)];
    let [low, high] = gain.interval.unwrap();
    assert!(
        (low - expected[0]).abs() < 1e-5 && (high - expected[1]).abs() < 1e-5,
        "{gain:?} {expected:?}"
    );
}

#[test]
fn what_seemed_better_and_is_not_leaves_the_default() {
    let mut rows = grid();
    for round in 0..8 {
        let noise = 1.0 + 0.002 * f64::from(round % 3);
        rows.push(row(Phase::Confirm, round, DEFAULT, 80.0 * noise));
        rows.push(row(Phase::Confirm, round, 16, 90.0));
    }
    let finding = only(verdict(&rows));
    assert_eq!(finding.conclusion, Conclusion::DefaultAsGood);
    assert_eq!(finding.recommended().unwrap().point, point(DEFAULT));
    assert!(finding.default().unwrap().tied);
}

#[test]
fn equal_points_tie_and_the_default_is_as_good() {
    let cells: &[(u64, f64)] = &[(128, 50.0), (16, 50.0), (1, 50.0)];
    let finding = only(verdict(&blocks(Phase::Grid, &[cells, cells, cells])));
    assert_eq!(finding.conclusion, Conclusion::DefaultAsGood);
    assert_eq!(finding.ties().count(), 3);
    assert_eq!(finding.noise.as_ref().unwrap().sd, 0.0);
    assert!(
        finding.knobs.iter().all(|effect| effect.share == 0.0),
        "{:?}",
        finding.knobs
    );
}

#[test]
fn one_repeat_proves_nothing() {
    let once = &grid()[..5];
    let finding = only(verdict(once));
    assert_eq!(finding.conclusion, Conclusion::Unproven);
    assert_eq!(finding.best().unwrap().point, point(16));
    assert_eq!(finding.gain.unwrap().interval, None);
    assert!(!finding.ties_known);
    assert!(finding.points.iter().all(|outcome| {
        outcome
            .against_default
            .is_none_or(|against| against.interval.is_none())
    }));
    // The default was measured twice, which gives the noise of the machine.
    assert_eq!(finding.noise.unwrap().freedom, 1);
}

#[test]
fn failed_and_cut_short_points_are_shown_as_what_they_are() {
    let mut rows = grid();
    rows.push(Row {
        status: Status::Failed("rank 1 was killed by signal 9".into()),
        times: None,
        ..row(Phase::Grid, 0, 4, 1.0)
    });
    rows.push(Row {
        status: Status::Cut,
        ..row(Phase::Grid, 0, 0, 300.0)
    });
    rows.push(row(Phase::Grid, 0, 2, f64::NAN));
    let verdict = verdict(&rows);
    assert_eq!(
        verdict.measurements,
        Tally {
            done: 15,
            cut: 1,
            failed: 2
        }
    );
    let finding = only(verdict);
    assert_eq!(
        thresholds(finding.points.iter())[..5],
        [16.0, 64.0, 128.0, 1.0, 0.0]
    );
    assert_eq!(finding.points[4].ending, Ending::Cut);
    assert!((finding.points[4].above_best.unwrap() - 2.75).abs() < 0.01);
    let why = |fusion_mb| {
        let outcome = finding
            .points
            .iter()
            .find(|outcome| outcome.point == point(fusion_mb));
        outcome.map(|outcome| outcome.ending.clone())
    };
    assert_eq!(
        why(4),
        Some(Ending::Failed("rank 1 was killed by signal 9".into()))
    );
    assert_eq!(why(2), Some(Ending::Failed("it has no step time".into())));
    assert_eq!(finding.conclusion, Conclusion::Faster);
}

#[test]
fn a_default_without_a_result_leaves_nothing_to_gain() {
    let rows: Vec<Row> = grid()
        .into_iter()
        .filter(|row| !row.point.is_default())
        .collect();
    let finding = only(verdict(&rows));
    assert_eq!(
        (finding.conclusion, finding.gain, finding.default),
        (Conclusion::NoDefault, None, None)
    );
    assert_eq!(finding.best().unwrap().point, point(16));
}

#[test]
fn numbers_of_ranks_are_not_compared() {
    let mut rows = grid();
    rows.extend(grid().into_iter().map(|mut row| {
        row.point.np = 4;
        row.times = row.times.map(|old| times(old.p50 / 2.0));
        row
    }));
    let verdict = verdict(&rows);
    assert_eq!(
        verdict
            .findings
            .iter()
            .map(|finding| finding.np)
            .collect::<Vec<_>>(),
        [2, 4]
    );
    let [two, four] = [0, 1].map(|index| verdict.findings[index].gain.unwrap().value);
    assert!((two - four).abs() < 1e-9);
}

#[test]
fn a_stray_measurement_is_named_and_does_not_count() {
    // Seven more thresholds, so that the stray can be recognised.
    let mut rows = grid();
    for block in 0..3u32 {
        for fusion_mb in 2..9 {
            let off = 1.0 + 0.002 * f64::from((block + fusion_mb as u32) % 3);
            rows.push(row(Phase::Grid, block, fusion_mb, 120.0 * off));
        }
    }
    rows[6].times = Some(times(140.0)); // 16 MiB in the second block
    let finding = only(verdict(&rows));
    let noise = finding.noise.as_ref().unwrap();
    let [stray] = noise.strays[..] else {
        panic!("{noise:?}")
    };
    assert_eq!((stray.point, stray.step_ms.round()), (point(16), 140.0));
    assert!((stray.expected_ms - 80.5).abs() < 1.0, "{stray:?}");
    assert_eq!(
        finding.best().unwrap().measurements + finding.points[1].measurements,
        5
    );
    assert_eq!(finding.conclusion, Conclusion::Faster);
}

#[test]
fn knobs_share_the_variance() {
    // Step times are products: the threshold contributes a factor of at most e², the cycle time one
    // of e.
    let mut rows = Vec::new();
    for (fusion_mb, a) in [(0, 2.0), (128, 0.0)] {
        for (cycle_time_ms, b) in [(1.0, 0.0), (10.0, 1.0)] {
            let mut row = row(Phase::Grid, 0, fusion_mb, f64::exp(3.0 + a + b));
            row.point.cycle_time_ms = cycle_time_ms;
            rows.push(row);
        }
    }
    let finding = only(verdict(&rows));
    let shares: Vec<_> = finding
        .knobs
        .iter()
        .map(|effect| (effect.knob, effect.share))
        .collect();
    // Variances of 1² and ½²: four fifths and one fifth.
    let [(Knob::FusionThreshold, fusion), (Knob::CycleTime, cycle)] = shares[..] else {
        panic!("{shares:?}")
    };
    assert!(
        (fusion - 0.8).abs() < 1e-9 && (cycle - 0.2).abs() < 1e-9 && finding.interaction < 1e-9
    );
    let level = finding.knobs[0].levels[0];
    assert_eq!(level.value, 0.0);
    assert!((level.effect - 1f64.exp_m1()).abs() < 1e-9);
    assert!((level.best_ms - 5f64.exp()).abs() < 1e-9);
}

#[test]
fn of_half_a_grid_no_knob_is_told_from_the_others() {
    let rows: Vec<Row> = [
        (0, 1.0, 90.0),
        (16, 2.5, 40.0),
        (64, 5.0, 50.0),
        (128, 1.0, 60.0),
    ]
    .map(|(fusion_mb, cycle_time_ms, ms)| {
        let mut row = row(Phase::Grid, 0, fusion_mb, ms);
        row.point.cycle_time_ms = cycle_time_ms;
        row
    })
    .into();
    assert!(only(verdict(&rows)).knobs.is_empty());
}

#[test]
fn predictions_are_compared_job_by_job() {
    let predicted = |fusion_mb, low: f64, ms: f64, high: f64| {
        let mut row = row(Phase::Predicted, 0, fusion_mb, ms);
        row.times = Some(StepTimes {
            steps: 0,
            p10: low,
            p90: high,
            ..times(ms)
        });
        row
    };
    let rows = [
        predicted(128, 80.0, 100.0, 120.0),
        predicted(16, 72.0, 90.0, 108.0),
        predicted(1, 79.0, 99.0, 119.0),
    ];
    let mut verdict = verdict(&rows);
    assert_eq!(verdict.findings[0].conclusion, Conclusion::Unproven);
    // Jobs from 80 to 120: all gain a tenth with 16 MiB; with 1 MiB some are faster and some
    // slower.
    let jobs: Vec<f64> = (0..=10).map(|job| 80.0 + 4.0 * f64::from(job)).collect();
    let tenth = jobs.iter().map(|ms| 0.9 * ms).collect();
    let mixed = jobs
        .iter()
        .enumerate()
        .map(|(job, ms)| if job % 2 == 0 { 0.88 * ms } else { 1.1 * ms })
        .collect();
    compare_jobs(
        &mut verdict,
        &[point(128), point(16), point(1)],
        &[jobs, tenth, mixed],
    );
    let finding = only(verdict);
    assert_eq!(
        (finding.basis, finding.conclusion),
        (Basis::Predicted, Conclusion::Faster)
    );
    let gain = finding.gain.unwrap();
    assert!(
        (gain.value - 0.1).abs() < 1e-9
            && gain
                .interval
                .unwrap()
                .iter()
                .all(|bound| (bound - 0.1).abs() < 1e-9)
    );
    assert_eq!(thresholds(finding.ties()), [16.0, 1.0]);
}

#[test]
fn of_equal_predictions_the_one_nearest_to_the_default_is_best() {
    let rows: Vec<Row> = [0, 16, 64, 128]
        .map(|fusion_mb| row(Phase::Predicted, 0, fusion_mb, 40.0))
        .into();
    let finding = only(verdict(&rows));
    assert_eq!(finding.conclusion, Conclusion::DefaultAsGood);
    let finding = only(verdict(&[
        rows[0].clone(),
        rows[1].clone(),
        row(Phase::Predicted, 0, 128, 50.0),
        rows[2].clone(),
    ]));
    assert_eq!(finding.best().unwrap().point, point(64));
    assert!((finding.gain.unwrap().value - 0.2).abs() < 1e-12);
}

#[test]
fn verified_predictions_are_judged_by_what_was_measured() {
    let mut rows: Vec<Row> = [(128, 100.0), (16, 60.0), (64, 61.0), (1, 200.0)]
        .map(|(fusion_mb, ms)| row(Phase::Predicted, 0, fusion_mb, ms))
        .into();
    for round in 0..4 {
        let noise = 1.0 + 0.001 * f64::from(round % 2);
        rows.push(row(Phase::Verify, round, DEFAULT, 100.0 * noise));
        rows.push(row(Phase::Verify, round, 16, 95.0));
        rows.push(row(Phase::Verify, round, 64, 90.0));
    }
    let finding = only(verdict(&rows));
    assert_eq!(
        (finding.basis, finding.conclusion),
        (Basis::Verified, Conclusion::Faster)
    );
    let best = finding.best().unwrap();
    assert_eq!(
        (best.point, best.predicted_ms.unwrap().value),
        (point(64), 61.0)
    );
    assert_eq!(thresholds(finding.points.iter()), [64.0, 16.0, 128.0, 1.0]);
    assert_eq!(finding.points[3].ending, Ending::Predicted);
}
