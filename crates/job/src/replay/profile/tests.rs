//! Tests of profiles written by hand and of profiles from recordings.

use super::*;
use proptest::prelude::*;

const MINIMAL: &str = r#"{"ronde_profile": 1, "tensors": [
    {"name": "b", "dtype": "float16", "elements": 500, "ready_us": 2000},
    {"name": "a", "dtype": "float32", "elements": 1000, "ready_us": 1000}],
    "costs": {"alpha_us": 100, "us_per_mib": 1048.576, "negotiate_cached": 10}}"#;

#[test]
fn a_profile_by_hand_is_enough() {
    let (fit, assumed) = Profile::parse(MINIMAL.as_bytes()).unwrap().fit().unwrap();
    let tensors: Vec<_> = fit
        .workload
        .tensors
        .iter()
        .map(|t| (t.item.class, t.item.bytes, t.ready_us))
        .collect();
    assert_eq!(tensors, [(1, 4000, 1000.0), (0, 1000, 2000.0)]);
    // 10 µs, 100 µs, and 1 µs for 1,000 bytes, after the last at 2 ms.
    assert!((fit.modelled_us - 2_111.0).abs() < 0.1, "{fit:?}");
    assert!(
        assumed
            .iter()
            .any(|text| text.contains("the number of ranks")),
        "{assumed:?}"
    );
    assert!(
        assumed
            .iter()
            .any(|text| text.contains("does not state step_ms")),
        "{assumed:?}"
    );
}

#[test]
fn the_step_that_was_measured_is_met_by_its_tail() {
    let text = MINIMAL.replacen("\"tensors\"", "\"np\": 4, \"step_ms\": 3.0, \"tensors\"", 1);
    let (fit, _) = Profile::parse(text.as_bytes()).unwrap().fit().unwrap();
    assert_eq!(
        (fit.place.ranks, fit.measured_us, fit.modelled_us),
        (4, 3_000.0, 3_000.0)
    );
    assert!((fit.workload.tail_us - 889.0).abs() < 0.1, "{fit:?}");
    // Parsing the written profile returns all fitted values.
    let mut profile = Profile::parse(text.as_bytes()).unwrap();
    profile.replay = Some(fit.clone());
    let (again, assumed) = Profile::parse(&serde_json::to_vec(&profile).unwrap())
        .unwrap()
        .fit()
        .unwrap();
    assert_eq!(
        (again.workload, again.reference, assumed),
        (fit.workload, fit.reference, Vec::new())
    );
    let (read, written) = (again.spread.flat[1].ln[1], fit.spread.flat[1].ln[1]);
    assert!((read - written).abs() < 1e-12, "{read} {written}");
}

#[test]
fn what_makes_no_sense_is_said_with_its_name() {
    let cases = [
        ("{}", "ronde_profile"),
        (r#"{"ronde_profile": 9}"#, "is 9; this ronde reads 1"),
        (r#"{"ronde_profile": 1, "tensors": []}"#, "no tensors"),
        (
            r#"{"ronde_profile": 1, "tensors": [{"name": "x", "dtype": "complex", "elements": 1}]}"#,
            "`x`: dtype `complex`",
        ),
        (
            r#"{"ronde_profile": 1, "tensors": [{"name": "x", "dtype": "float32", "elements": 0}]}"#,
            "0 elements",
        ),
        (
            r#"{"ronde_profile": 1, "tensors": [{"name": "x", "dtype": "float32", "elements": 1, "ready_us": -1}]}"#,
            "`x`: ready after -1",
        ),
        (
            "{\"ronde_profile\": 1, \"costs\": {\"alpha_us\": -3},\n\"tensors\": [{\"name\": \"x\", \"dtype\": \"float32\", \"elements\": 1}]}",
            "costs.alpha_us is -3",
        ),
        ("{\"ronde_profile\": 1,\n\"tensors\": 7}", "line 2"),
        (
            "{\"ronde_profile\": 1,\n\"np\": 0, \"tensors\": []}",
            "np is 0; give the number of ranks, 1 to 1048576 at line 2",
        ),
        (
            r#"{"ronde_profile": 1, "np": 1000000000, "tensors": []}"#,
            "np is 1000000000; give",
        ),
        (r#"{"ronde_profile": 1, "np": -2, "tensors": []}"#, "`-2`"),
    ];
    for (text, expected) in cases {
        let error = Profile::parse(text.as_bytes())
            .and_then(|profile| profile.fit().map(|_| ()))
            .unwrap_err();
        assert!(error.to_string().contains(expected), "{text}: {error}");
    }
}

proptest! {
    #[test]
    fn whatever_the_numbers_predictions_are_finite(
        elements in 1u64..1 << 31, ready in 0.0..1e9f64, alpha in 0.0..1e9f64, beta in 0.0..1e9f64, step in 0.0..1e6f64,
    ) {
        let text = format!(
            r#"{{"ronde_profile": 1, "step_ms": {step}, "tensors": [{{"name": "x", "dtype": "float64", "elements": {elements},
               "ready_us": {ready}}}], "costs": {{"alpha_us": {alpha}, "us_per_mib": {beta}}}}}"#
        );
        let (fit, _) = Profile::parse(text.as_bytes()).unwrap().fit().unwrap();
        prop_assert!(fit.modelled_us.is_finite() && fit.modelled_us >= ready);
    }
}
