//! Properties of the verdict that hold for any rows.

use proptest::prelude::*;

use super::*;

fn any_ms() -> impl Strategy<Value = f64> {
    let odd = vec![f64::NAN, f64::INFINITY, 0.0, -3.0, 1e-100, 1e100];
    prop_oneof![4 => 10.0..1000.0, 1 => Just(50.0), 1 => prop::sample::select(odd)]
}

prop_compose! {
    fn any_row()(
        fusion_mb in prop::sample::select(vec![0, 1, 16, 128]),
        cycle_time_ms in prop::sample::select(vec![1.0, 5.0]),
        cache: bool,
        np in 1u32..3,
        phase in prop_oneof![
            4 => Just(Phase::Grid),
            3 => prop::sample::select(vec![Phase::Confirm, Phase::Predicted, Phase::Verify]),
        ],
        block in 0u32..4,
        status in prop_oneof![
            6 => Just(Status::Done),
            2 => prop::sample::select(vec![Status::Cut, Status::Failed("it hung".into())]),
        ],
        ms in prop::option::weighted(0.9, any_ms()),
        at_s in prop_oneof![9 => 0.0..600.0, 1 => Just(f64::NAN)],
    ) -> Row {
        let point = Point { np, cache, cycle_time_ms, ..point(fusion_mb) };
        let times = ms.and_then(|ms| testing::row(point, ms).times);
        Row { point, phase, block, status, steps: 20, times, at_s }
    }
}

fn check(finding: &Finding) {
    let default = finding.default();
    assert!(default.is_none_or(|default| default.point.is_default()));
    if let Some(best) = finding.best() {
        assert!(best.tied && matches!(best.ending, Ending::Measured | Ending::Predicted));
    }
    match finding.conclusion {
        Conclusion::Nothing => assert_eq!(finding.best(), None),
        Conclusion::Faster => {
            let [low, high] = finding.gain.unwrap().interval.unwrap();
            assert!(0.0 < low && low <= high && !default.unwrap().tied);
        }
        Conclusion::DefaultAsGood => assert!(default.unwrap().tied),
        Conclusion::NoDefault => assert_eq!(finding.gain, None),
        Conclusion::Unproven => assert!(finding.best() != finding.default()),
    }
    assert_eq!(
        finding.recommended().is_none(),
        finding.withheld().is_some() || finding.best().is_none()
    );
    let knobs: f64 = finding.knobs.iter().map(|effect| effect.share).sum();
    let shares = knobs + finding.interaction;
    assert!(shares.abs() < 1e-6 || (shares - 1.0).abs() < 1e-6);
    for outcome in &finding.points {
        assert!(outcome.step_ms.is_none_or(|ms| ms > 0.0));
        let against = outcome.against_default.unwrap_or(Estimate::bare(0.0));
        let [low, high] = against.interval.unwrap_or([against.value; 2]);
        assert!(low <= against.value && against.value <= high);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_rows_have_a_consistent_verdict(
        rows in prop::collection::vec(any_row(), 0..60),
        turn in 0usize..40,
    ) {
        let of_rows = verdict(&rows);
        let Tally { done, cut, failed } = of_rows.measurements;
        let measured = rows.iter().filter(|row| row.phase != Phase::Predicted).count();
        prop_assert_eq!((done + cut + failed) as usize, measured);
        of_rows.findings.iter().for_each(check);
        serde_json::to_string(&of_rows).expect("it can be written");
        // The order of the rows does not matter.
        let mut turned = rows.clone();
        turned.rotate_left(turn % rows.len().max(1));
        for (one, other) in of_rows.findings.iter().zip(&verdict(&turned).findings) {
            let freedom = |finding: &Finding| finding.noise.as_ref().map(|noise| noise.freedom);
            prop_assert_eq!(freedom(one), freedom(other));
            prop_assert_eq!(one.points.len(), other.points.len());
        }
    }

    /// Drift is common to all points of a block and changes no comparison.
    #[test]
    fn a_factor_for_each_block_changes_no_difference(
        noise in prop::collection::vec(-0.05..0.05, 20),
        factors in prop::collection::vec(0.2..5.0, 4),
    ) {
        let build = |factors: &[f64]| -> Vec<Row> {
            let cell = |i: usize| {
                let (block, which) = (i / 5, i % 5);
                let ms = (40.0 + 10.0 * which as f64) * f64::exp(noise[i]) * factors[block];
                row(Phase::Grid, block as u32, [128, 16, 1, 0, 64][which], ms)
            };
            (0..20).map(cell).collect()
        };
        let [before, after] = [build(&[1.0; 4]), build(&factors)].map(|rows| only(verdict(&rows)));
        prop_assert_eq!(before.conclusion, after.conclusion);
        for (before, after) in before.points.iter().zip(&after.points) {
            prop_assert_eq!((before.point, before.tied), (after.point, after.tied));
            let numbers = |outcome: &Outcome| {
                let Estimate { value, interval } = outcome.against_default.unwrap_or(Estimate::bare(0.0));
                let [low, high] = interval.unwrap_or([0.0; 2]);
                [value, low, high]
            };
            for (before, after) in numbers(before).iter().zip(numbers(after)) {
                prop_assert!((before - after).abs() < 1e-9);
            }
        }
    }
}
