//! Verdicts on rows whose result can be computed by hand.

mod properties;
mod simulated;

use super::*;
use crate::sweep::{Phase, Status, StepTimes, testing};

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
    testing::row(point(0), ms).times.expect("it is measured")
}

fn row(phase: Phase, block: u32, fusion_mb: u64, ms: f64) -> Row {
    Row {
        phase,
        block,
        at_s: f64::from(block) * 10.0,
        ..testing::row(point(fusion_mb), ms)
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

/// Adds rounds of a phase in which the default takes `default_ms`, with a small noise, and the
/// others what is given.
fn rounds(rows: &mut Vec<Row>, phase: Phase, count: u32, default_ms: f64, others: &[(u64, f64)]) {
    for round in 0..count {
        let noise = 1.0 + 0.002 * f64::from(round % 3);
        rows.push(row(phase, round, DEFAULT, default_ms * noise));
        rows.extend(
            others
                .iter()
                .map(|&(fusion_mb, ms)| row(phase, round, fusion_mb, ms)),
        );
    }
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
    assert_eq!(
        (finding.conclusion, finding.basis),
        (Conclusion::Faster, Basis::Grid)
    );
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
    assert!((0.015..0.025).contains(&noise.drift.unwrap()), "{noise:?}");
    assert!(
        (0.001..0.006).contains(&noise.sd) && noise.strays.is_empty(),
        "{noise:?}"
    );
    assert_eq!(noise.freedom, 15 - 4 - 2);
}

#[test]
fn the_gain_is_from_the_confirmation_alone() {
    let mut rows = grid();
    // Six rounds, in which the best saves only a tenth.
    rounds(&mut rows, Phase::Confirm, 6, 100.0, &[(16, 90.0)]);
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
    assert_eq!(
        (finding.best().unwrap().point, finding.best),
        (point(16), Some(0))
    );
}

#[test]
fn by_hand_the_interval_of_one_candidate_is_students() {
    // ln differences of ±1 % around −0.1 in eight rounds: mean −0.1, sd of the differences
    // √(8 · 0.0001 / 7).
    let round = |round: u32| {
        let off = if round.is_multiple_of(2) { 0.01 } else { -0.01 };
        let default = row(Phase::Confirm, round, DEFAULT, 100.0);
        [
            default,
            row(Phase::Confirm, round, 16, 100.0 * f64::exp(-0.1 + off)),
        ]
    };
    let rows: Vec<Row> = (0..8).flat_map(round).collect();
    let gain = only(verdict(&rows)).gain.unwrap();
    let reach = 2.3646 * (8.0 * 1e-4 / 7.0 / 8.0f64).sqrt(); // t of 7 degrees of freedom
    let ends = [reach, -reach].map(|reach| 1.0 - f64::exp(-0.1 + reach));
    for (end, expected) in gain.interval.unwrap().into_iter().zip(ends) {
        assert!((end - expected).abs() < 1e-5, "{gain:?} {ends:?}");
    }
}

#[test]
fn a_setting_that_is_slower_when_repeated_leaves_the_default() {
    let mut rows = grid();
    rounds(&mut rows, Phase::Confirm, 8, 80.0, &[(16, 90.0)]);
    let finding = only(verdict(&rows));
    assert_eq!(finding.conclusion, Conclusion::DefaultAsGood);
    assert_eq!(finding.recommended().unwrap().point, point(DEFAULT));
    assert!(finding.default().unwrap().tied);
}

#[test]
fn equal_points_tie_and_the_default_is_as_good() {
    let cells: &[(u64, f64)] = &[(128, 50.0), (16, 50.0), (1, 50.0)];
    let finding = only(verdict(&blocks(Phase::Grid, &[cells, cells, cells])));
    assert_eq!(
        (finding.conclusion, finding.ties().count()),
        (Conclusion::DefaultAsGood, 3)
    );
    assert_eq!(finding.noise.as_ref().unwrap().sd, 0.0);
    assert!(
        finding.knobs.iter().all(|effect| effect.share == 0.0),
        "{:?}",
        finding.knobs
    );
}

#[test]
fn a_default_that_was_not_measured_twice_supports_no_recommendation() {
    let of_block = |block| grid().into_iter().filter(move |row| row.block == block);
    // One repeat, in which the default was measured twice: the noise is known, the gain is not.
    let once = only(verdict(&of_block(0).collect::<Vec<_>>()));
    assert_eq!(once.conclusion, Conclusion::Unproven);
    assert_eq!(once.best().unwrap().point, point(16));
    assert!(once.gain.unwrap().interval.is_none() && !once.ties_known);
    let noise = once.noise.as_ref().unwrap();
    assert_eq!(
        (noise.freedom, noise.drift),
        (1, None),
        "one block has no drift"
    );
    assert_eq!(once.withheld(), Some(Withheld::Chance));
    // The default measured once in three repeats, and never.
    let defaults = |most: usize| {
        let (mut rows, mut defaults) = (grid(), 0);
        rows.retain(|row| {
            defaults += usize::from(row.point.is_default());
            !row.point.is_default() || defaults <= most
        });
        only(verdict(&rows))
    };
    for (count, conclusion) in [(0, Conclusion::NoDefault), (1, Conclusion::Faster)] {
        let finding = defaults(count);
        assert_eq!(
            (finding.conclusion, finding.recommended()),
            (conclusion, None)
        );
        let measurements = count as u64;
        assert_eq!(
            finding.withheld(),
            Some(Withheld::BaselineOnce { measurements })
        );
        assert_eq!(finding.best().unwrap().point, point(16));
        let json = serde_json::to_value(finding.withheld()).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"reason": "baseline_once", "measurements": measurements})
        );
    }
    assert_eq!((defaults(0).gain, defaults(0).default), (None, None));
    assert_eq!(defaults(2).withheld(), None);
}

#[test]
fn failed_and_cut_short_points_are_shown_as_what_they_are() {
    let mut rows = grid();
    let killed = "rank 1 was killed by signal 9";
    let status = Status::Failed(killed.into());
    rows.push(Row {
        status,
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
    for (fusion_mb, why) in [(4, killed), (2, "it has no step time")] {
        let is_it = |outcome: &&Outcome| outcome.point == point(fusion_mb);
        let outcome = finding.points.iter().find(is_it).unwrap();
        assert_eq!(outcome.ending, Ending::Failed(why.into()));
    }
    assert_eq!(finding.conclusion, Conclusion::Faster);
}

#[test]
fn numbers_of_ranks_are_not_compared() {
    let mut rows = grid();
    rows.extend(grid().into_iter().map(|mut row| {
        row.point.np = 4;
        row.times = row.times.map(|old| times(old.p50 / 2.0));
        row
    }));
    let [two, four] = <[Finding; 2]>::try_from(verdict(&rows).findings).unwrap();
    assert_eq!((two.np, four.np), (2, 4));
    assert!((two.gain.unwrap().value - four.gain.unwrap().value).abs() < 1e-9);
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
    let [stray] = finding.noise.as_ref().unwrap().strays[..] else {
        panic!("{:?}", finding.noise)
    };
    assert_eq!((stray.point, stray.step_ms.round()), (point(16), 140.0));
    assert!((stray.expected_ms - 80.5).abs() < 1.0, "{stray:?}");
    assert_eq!(
        finding.points[..2]
            .iter()
            .map(|outcome| outcome.measurements)
            .sum::<u32>(),
        5
    );
    assert_eq!(finding.conclusion, Conclusion::Faster);
}

#[test]
fn knobs_share_the_variance() {
    // Step times are products: the threshold contributes a factor of at most e², the cycle time one
    // of e.
    let cells = [
        (0, 1.0, 5.0),
        (0, 10.0, 6.0),
        (128, 1.0, 3.0),
        (128, 10.0, 4.0),
    ];
    let rows = cells.map(|(fusion_mb, cycle_time_ms, ln_ms)| {
        let mut row = row(Phase::Grid, 0, fusion_mb, f64::exp(ln_ms));
        row.point.cycle_time_ms = cycle_time_ms;
        row
    });
    let finding = only(verdict(&rows));
    // Variances of 1² and ½²: four fifths and one fifth.
    let expected = [(Knob::FusionThreshold, 0.8), (Knob::CycleTime, 0.2)];
    assert_eq!(finding.knobs.len(), 2);
    for (effect, (knob, share)) in finding.knobs.iter().zip(expected) {
        assert!(
            effect.knob == knob && (effect.share - share).abs() < 1e-9,
            "{effect:?}"
        );
    }
    assert!(finding.interaction < 1e-9);
    let level = finding.knobs[0].levels[0];
    assert_eq!(level.value, 0.0);
    assert!((level.effect - 1f64.exp_m1()).abs() < 1e-9);
    assert!((level.best_ms - 5f64.exp()).abs() < 1e-9);
    // The effects cannot be separated on half of a grid.
    let mut half = rows;
    for (row, cycle_time_ms) in half.iter_mut().zip([1.0, 2.5, 5.0, 1.0]) {
        row.point.cycle_time_ms = cycle_time_ms;
    }
    assert!(only(verdict(&half)).knobs.is_empty());
}

#[test]
fn predictions_are_compared_job_by_job() {
    let points = [point(128), point(16), point(1)];
    let predicted = [(128, 100.0), (16, 90.0), (1, 99.0)]
        .map(|(fusion_mb, ms)| row(Phase::Predicted, 0, fusion_mb, ms));
    assert_eq!(only(verdict(&predicted)).conclusion, Conclusion::Unproven);
    // Jobs from 80 to 120: all gain a tenth with 16 MiB; with 1 MiB some are faster and some
    // slower.
    let jobs: Vec<f64> = (0..=10).map(|job| 80.0 + 4.0 * f64::from(job)).collect();
    let tenth = jobs.iter().map(|ms| 0.9 * ms).collect();
    let factor = |job: usize| if job.is_multiple_of(2) { 0.88 } else { 1.1 };
    let mixed = jobs
        .iter()
        .enumerate()
        .map(|(job, ms)| factor(job) * ms)
        .collect();
    let times = [jobs, tenth, mixed];
    let of = |recording| {
        let jobs = Jobs {
            points: &points,
            times: &times,
            recording,
        };
        only(verdict_with(&predicted, &jobs))
    };
    let model = |modelled_ms| Evidence {
        model: Some([100.0, modelled_ms]),
        ..Evidence::default()
    };
    let finding = of(model(104.0));
    assert_eq!(
        (finding.basis, finding.conclusion),
        (Basis::Predicted, Conclusion::Faster)
    );
    let Estimate { value, interval } = finding.gain.unwrap();
    let ends = interval.unwrap();
    assert!(
        [value, ends[0], ends[1]]
            .iter()
            .all(|gain| (gain - 0.1).abs() < 1e-9)
    );
    assert_eq!(thresholds(finding.ties()), [16.0, 1.0]);
    assert_eq!(finding.recommended().unwrap().point, point(16));
    // A model that misses the recorded step by half supports no recommendation.
    let off = of(model(150.0));
    assert!(matches!(off.withheld(), Some(Withheld::ModelOff { .. })));
    assert_eq!(off.recommended(), None);
    // Neither does a truncated recording.
    let cut = of(Evidence {
        incomplete: Some("t.json".to_owned()),
        ..model(104.0)
    });
    assert!(matches!(cut.withheld(), Some(Withheld::Incomplete { .. })));
    assert_eq!(cut.recommended(), None);
}

#[test]
fn the_nearest_of_equal_predictions_to_the_default_is_best() {
    let of = |cells: &[(u64, f64)]| only(verdict(&blocks(Phase::Predicted, &[cells])));
    let equal = of(&[(0, 40.0), (16, 40.0), (64, 40.0), (128, 40.0)]);
    assert_eq!(equal.conclusion, Conclusion::DefaultAsGood);
    let finding = of(&[(0, 40.0), (16, 40.0), (128, 50.0), (64, 40.0)]);
    assert_eq!(finding.best().unwrap().point, point(64));
    assert!((finding.gain.unwrap().value - 0.2).abs() < 1e-12);
}

#[test]
fn verified_predictions_are_judged_by_their_measurements() {
    let cells: &[(u64, f64)] = &[(128, 100.0), (16, 60.0), (64, 61.0), (1, 200.0)];
    let mut rows = blocks(Phase::Predicted, &[cells]);
    rounds(
        &mut rows,
        Phase::Verify,
        4,
        100.0,
        &[(16, 95.0), (64, 90.0)],
    );
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
