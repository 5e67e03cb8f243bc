//! Jobs that are slow for a known reason: the analysis must name the reason and its cost.
//! `scripts/test` runs them on the release build.

use super::*;

/// Backward pass that covers a part of the time that the link needs.
const JOB: &str = "--steps 40 --compute-ms 30 --link 200,2.5";

/// Most attempts to find a planted cause.
const ATTEMPTS: usize = 10;

/// Runs `attempt` until it succeeds: on a busy machine a job may be slow for another reason, and
/// the analysis then correctly reports no cause.
fn find(mut attempt: impl FnMut() -> Result<(), String>) {
    let outcomes: Vec<String> = (0..ATTEMPTS).map_while(|_| attempt().err()).collect();
    assert!(outcomes.len() < ATTEMPTS, "{outcomes:#?}");
}

/// Returns `Ok` if `holds`; else an error that shows `found`.
fn expect(holds: bool, found: impl std::fmt::Display) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(found.to_string())
    }
}

fn first_advice(report: &Value) -> (String, String) {
    let advice = &report["advice"][0];
    let text = |key: &str| advice[key].as_str().unwrap_or_default().to_owned();
    (text("variable"), text("sentence"))
}

#[test]
#[cfg_attr(
    debug_assertions,
    ignore = "without optimization the job is slow for another reason"
)]
fn a_slow_rank_is_named_and_costs_what_the_job_would_gain_without_it() {
    let bench = Bench::new();
    find(|| {
        let plain = bench.recorded(JOB, &[]);
        let slow = bench.recorded(&format!("{JOB} --slow-rank 1,20"), &[]);
        let p50 = |report: &Value| number(&report["steady"]["step_ms"]["p50"]);
        let truth_ms = p50(&slow) - p50(&plain);
        expect(
            truth_ms > 15.0,
            format!("{truth_ms} ms slower: was planted to be 20"),
        )?;
        let stragglers = &slow["stragglers"];
        expect(stragglers["slowest"] == 1, &stragglers["slowest"])?;
        let cost_ms = number(&stragglers["ranks"][1]["cost_ms"]);
        let off_ms = (cost_ms - truth_ms).abs();
        expect(
            off_ms < 0.1 * truth_ms,
            format!("{cost_ms} ms found, {truth_ms} ms true"),
        )?;
        let other_ms = number(&stragglers["ranks"][0]["cost_ms"]);
        expect(other_ms < 0.1 * truth_ms, format!("rank 0: {other_ms} ms"))?;
        let (_, sentence) = first_advice(&slow);
        expect(sentence.contains("Rank 1"), sentence)?;
        expect(
            plain["stragglers"]["slowest"].is_null(),
            &plain["stragglers"]["slowest"],
        )
    });
}

#[test]
#[cfg_attr(
    debug_assertions,
    ignore = "without optimization the job is slow for another reason"
)]
fn a_threshold_that_is_too_small_is_named() {
    let bench = Bench::new();
    find(|| {
        let job = "--steps 40 --compute-ms 5 --link 200,2.5 --fusion-mb 0";
        let report = bench.recorded(job, &[]);
        assert_eq!(report["fusion"]["threshold_bytes"], 0);
        assert_eq!(number(&report["fusion"]["batches_per_step"]["p50"]), 40.0);
        let (variable, sentence) = first_advice(&report);
        expect(variable == "HOROVOD_FUSION_THRESHOLD", sentence)
    });
}

#[test]
#[cfg_attr(
    debug_assertions,
    ignore = "without optimization the job is slow for another reason"
)]
fn a_cycle_time_that_is_too_long_is_named() {
    let bench = Bench::new();
    find(|| {
        let late = [("RONDE_EARLY_CYCLE", "0")];
        let report = bench.recorded(&format!("{JOB} --cycle-ms 40"), &late);
        assert_eq!(number(&report["fusion"]["cycle_time_ms"]), 40.0);
        let (variable, sentence) = first_advice(&report);
        expect(variable == "HOROVOD_CYCLE_TIME", sentence)
    });
}

#[test]
#[cfg_attr(
    debug_assertions,
    ignore = "without optimization the job is slow for another reason"
)]
fn a_job_that_only_computes_is_left_alone() {
    let bench = Bench::new();
    find(|| {
        let report = bench.recorded("--steps 30 --compute-ms 30", &[]);
        let mut advice = report["advice"].as_array().unwrap().iter();
        let set = advice.find(|advice| !advice["variable"].is_null());
        expect(set.is_none(), format!("{set:?}"))
    });
}
