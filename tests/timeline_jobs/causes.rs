//! Jobs that are slow for a reason that was planted: the analysis names it and says what it costs.

use super::*;

/// A backward pass that covers part of what the link needs.
const JOB: &str = "--steps 40 --compute-ms 30 --link 200,2.5";

fn first_advice(report: &Value) -> (String, String) {
    let advice = &report["advice"][0];
    let text = |key: &str| advice[key].as_str().unwrap_or_default().to_owned();
    (text("variable"), text("sentence"))
}

#[test]
fn a_slow_rank_is_named_and_costs_what_the_job_would_gain_without_it() {
    let bench = Bench::new();
    let plain = bench.recorded(JOB, &[]);
    let slow = bench.recorded(&format!("{JOB} --slow-rank 1,20"), &[]);
    let p50 = |report: &Value| number(&report["steady"]["step_ms"]["p50"]);
    let truth_ms = p50(&slow) - p50(&plain);
    assert!(truth_ms > 15.0, "{truth_ms}: was planted to be 20");

    let stragglers = &slow["stragglers"];
    assert_eq!(stragglers["slowest"], 1);
    let cost_ms = number(&stragglers["ranks"][1]["cost_ms"]);
    assert!(
        (cost_ms - truth_ms).abs() < 0.1 * truth_ms,
        "{cost_ms} ms found, {truth_ms} ms true"
    );
    assert!(number(&stragglers["ranks"][0]["cost_ms"]) < 0.1 * truth_ms);
    let (_, sentence) = first_advice(&slow);
    assert!(sentence.to_lowercase().contains("rank 1"), "{sentence}");
    assert_eq!(plain["stragglers"]["slowest"], Value::Null);
}

#[test]
fn a_threshold_that_is_too_small_is_named() {
    let job = "--steps 40 --compute-ms 5 --link 200,2.5 --fusion-mb 0";
    let report = Bench::new().recorded(job, &[]);
    let (variable, sentence) = first_advice(&report);
    assert_eq!(variable, "HOROVOD_FUSION_THRESHOLD", "{sentence}");
    assert_eq!(report["fusion"]["threshold_bytes"], 0);
    assert_eq!(number(&report["fusion"]["batches_per_step"]["p50"]), 40.0);
}

#[test]
fn a_cycle_time_that_is_too_long_is_named() {
    let late = [("RONDE_EARLY_CYCLE", "0")];
    let report = Bench::new().recorded(&format!("{JOB} --cycle-ms 40"), &late);
    let (variable, sentence) = first_advice(&report);
    assert_eq!(variable, "HOROVOD_CYCLE_TIME", "{sentence}");
    assert_eq!(number(&report["fusion"]["cycle_time_ms"]), 40.0);
}

#[test]
fn a_job_that_only_computes_is_left_alone() {
    let report = Bench::new().recorded("--steps 30 --compute-ms 30", &[]);
    let set = report["advice"].as_array().unwrap().iter();
    let set: Vec<&Value> = set.filter(|advice| !advice["variable"].is_null()).collect();
    assert!(set.is_empty(), "{set:?}");
}
