//! Tests of the files of all ranks, each of which has the ready times of its own rank only.

use super::gate::{KERNELS, event, kineto, mean, record};
use crate::analysis::analyze;
use crate::analysis::collect::RankRecord;
use crate::analysis::report::{PartKind, Report};

/// Profiler trace of `rank` of two: in each step of 100 ms, a kernel of `compute_ms` ms and an
/// allreduce from then until 98 ms, which the host submits after 5 ms.
fn profiled(rank: u32, compute_ms: u64) -> RankRecord {
    profiled_until(rank, compute_ms, 98)
}

/// Trace as of [`profiled`], with an allreduce that ends at `until_ms`.
fn profiled_until(rank: u32, compute_ms: u64, until_ms: u64) -> RankRecord {
    let mut events = Vec::new();
    for step in 0..12 {
        let began = 1_000 + 100_000 * step;
        let mark = format!("ProfilerStep#{step}");
        events.push(event("user_annotation", &mark, began, 100_000, ""));
        let compute = 1_000 * compute_ms;
        events.push(event(
            "kernel",
            "gemm",
            began,
            compute,
            r#""stream": 7, "device": 0"#,
        ));
        // The rank that is late submits earlier.
        let submitted = began + 5_000 - 10 * compute_ms;
        let size = r#""Input Dims": [[1000000]], "Input type": ["float"]"#;
        events.push(event(
            "user_annotation",
            "nccl:all_reduce",
            submitted,
            20,
            size,
        ));
        let launch = format!(r#""correlation": {step}"#);
        events.push(event(
            "cuda_runtime",
            "cudaLaunchKernelExC",
            submitted + 5,
            5,
            &launch,
        ));
        let arguments = format!(r#""correlation": {step}, "stream": 20, "device": 0"#);
        events.push(event(
            "kernel",
            KERNELS[2],
            began + compute,
            1_000 * until_ms - compute,
            &arguments,
        ));
    }
    record("trace.json", &kineto(&events, 2, rank))
}

fn asks_for_all_files(report: &Report) -> bool {
    let mut warnings = report.warnings.iter();
    warnings.any(|warning| warning.contains("give the files of all ranks"))
}

#[test]
fn the_rank_whose_kernel_begins_last_is_late_and_the_others_wait_in_theirs() {
    let report = analyze(vec![profiled(0, 60), profiled(1, 90)]).unwrap();
    let stragglers = report.stragglers.as_ref().unwrap();
    assert_eq!(stragglers.slowest, Some(1));
    assert_eq!(stragglers.ranks[1].cost_ms.round(), 30.0);
    let parts = [
        PartKind::Compute,
        PartKind::WaitForRanks,
        PartKind::Collective,
        PartKind::GpuIdle,
    ];
    let parts = parts.map(|kind| mean(&report, kind).round());
    assert_eq!(parts, [60.0, 30.0, 8.0, 2.0]);
    let steady = report.steady.as_ref().unwrap();
    assert_eq!(steady.communication_ms.p50.round(), 8.0);
    assert_eq!(report.bandwidth[0].points[0].us_p50.round(), 8_000.0);
    let queue = steady
        .parts
        .iter()
        .find(|part| part.kind == PartKind::Prepare);
    assert_eq!(
        queue.unwrap().total_ms.p50.round(),
        56.0,
        "since the launch"
    );
    assert!(!asks_for_all_files(&report), "{:?}", report.warnings);
    let waits = report.lanes.iter().map(|lane| {
        let bars = lane.bars.iter();
        let waits = bars.filter(|bar| bar.part == PartKind::WaitForRanks);
        waits
            .map(|bar| bar.ended_ms - bar.began_ms)
            .fold(0.0, f64::max)
    });
    assert_eq!(waits.map(f64::round).collect::<Vec<_>>(), [30.0, 0.0]);
}

#[test]
fn an_operation_that_ended_before_another_began_is_not_the_same() {
    // Rank 1's allreduce begins after that of rank 0 has ended, as in another process group.
    let report = analyze(vec![profiled_until(0, 60, 70), profiled(1, 90)]).unwrap();
    assert_eq!(mean(&report, PartKind::WaitForRanks), 0.0);
    assert_eq!(mean(&report, PartKind::Collective).round(), 10.0);
}

#[test]
fn one_file_of_two_does_not_separate_waiting() {
    let report = analyze(vec![profiled(0, 60)]).unwrap();
    assert_eq!(mean(&report, PartKind::WaitForRanks), 0.0);
    assert_eq!(mean(&report, PartKind::Collective).round(), 38.0);
    assert!(asks_for_all_files(&report), "{:?}", report.warnings);
}

/// BytePS trace of `rank` of two, which has a tensor ready after `ready_ms` of each step of 100 ms;
/// it is reduced from 42 ms to 50 ms.
fn byteps(rank: u32, ready_ms: u64) -> RankRecord {
    let bar = |stage: &str, name: &str, began: u64, ended: u64| {
        format!(
            r#"{{"ph": "X", "name": "{name}", "pid": "Comm.g", "tid": "{stage}", "ts": {}, "dur": {}}}"#,
            1_700_000_000_000_000 + 1_000 * began,
            1_000 * (ended - began)
        )
    };
    let bars = (0..12).flat_map(|step| {
        let at = 100 * step;
        [
            bar("total", "Comm.g", at + ready_ms, at + 50),
            bar("1", "Comm.g.COORDINATE_REDUCE", at + ready_ms, at + 42),
            bar("1", "Comm.g.REDUCE", at + 42, at + 50),
        ]
    });
    let bars: Vec<String> = bars.collect();
    let text = format!(r#"{{"traceEvents": [{}]}}"#, bars.join(",\n"));
    record(&format!("trace/{rank}/comm.json"), &text)
}

#[test]
fn byteps_waits_until_the_last_rank_is_ready() {
    let report = analyze(vec![byteps(0, 10), byteps(1, 40)]).unwrap();
    let parts = [
        PartKind::Compute,
        PartKind::WaitForRanks,
        PartKind::Negotiation,
        PartKind::Collective,
    ];
    let parts = parts.map(|kind| mean(&report, kind).round());
    assert_eq!(parts, [60.0, 30.0, 2.0, 8.0]);
}
