//! Tests of reports on a profiler's trace: variants of the trace of known steps in [`super::gate`].

use super::gate::{KERNELS, event, kineto, mean, report, steps};
use crate::Kind;
use crate::analysis::report::{PartKind, Report, StepsFoundBy};
use ronde_job::gate::Withheld;

const GPU: [PartKind; 4] = [
    PartKind::Compute,
    PartKind::Collective,
    PartKind::GpuOther,
    PartKind::GpuIdle,
];

/// Mean exposed milliseconds of computation, collective, other work and idle time of the GPU.
fn parts(report: &Report) -> [f64; 4] {
    GPU.map(|kind| mean(report, kind).round())
}

fn sentences(report: &Report) -> String {
    let sentences = report.advice.iter().map(|advice| &*advice.sentence);
    sentences.collect::<Vec<_>>().join("\n")
}

fn warnings(report: &Report) -> String {
    let sources = report.sources.iter().flat_map(|source| &source.warnings);
    let all: Vec<&str> = sources
        .chain(&report.warnings)
        .map(String::as_str)
        .collect();
    all.join("\n")
}

fn is_mark(event: &str, step: u32) -> bool {
    event.contains(&format!("\"ProfilerStep#{step}\""))
}

#[test]
fn work_before_the_first_mark_is_in_no_step() {
    let mut events = steps(5, true, KERNELS[2]);
    events.retain(|event| !is_mark(event, 0));
    let report = report(&kineto(&events, 2, 0));
    assert_eq!(report.steps_found_by, StepsFoundBy::Marks);
    assert_eq!(report.steps.len(), 4);
    assert_eq!(parts(&report), [10.0, 10.0, 4.0, 76.0]);
}

#[test]
fn one_mark_is_one_step() {
    let report = report(&kineto(&steps(1, true, KERNELS[2]), 2, 0));
    assert_eq!(report.steps.len(), 1);
    assert!((report.steps[0].ms - 100.0).abs() < 1e-6);
    let set = |advice: &crate::analysis::report::Advice| advice.variable.is_some();
    assert!(!report.advice.iter().any(set), "{:?}", report.advice);
}

#[test]
fn marks_that_overlap_do_not_count_time_twice() {
    let mut events = steps(5, true, KERNELS[2]);
    for event in &mut events {
        if event.contains("ProfilerStep#") {
            *event = event.replace("\"dur\": 100000", "\"dur\": 104000");
        }
    }
    let report = report(&kineto(&events, 2, 0));
    assert_eq!(report.steps.len(), 5);
    let sum: f64 = report.steps.iter().map(|step| step.ms).sum();
    assert!((sum - 504.0).abs() < 1e-6, "{sum}");
}

#[test]
fn streams_of_one_gpu_are_united() {
    let mut events = steps(5, true, KERNELS[2]);
    for step in 0..5 {
        // Overlaps the other kernel by 6 ms and the copy by 1 ms.
        let (began, arguments) = (10_000 + 100_000 * step, r#""stream": 9, "device": 0"#);
        events.push(event("kernel", "relu", began, 8_000, arguments));
    }
    assert_eq!(
        parts(&report(&kineto(&events, 2, 0))),
        [12.0, 10.0, 3.0, 75.0]
    );
}

#[test]
fn work_of_another_gpu_does_not_hide_idle_time() {
    let mut events = steps(5, true, KERNELS[2]);
    for step in 0..5 {
        let arguments = r#""stream": 7, "device": 1"#;
        events.push(event(
            "kernel",
            "gemm",
            1_000 + 100_000 * step,
            99_000,
            arguments,
        ));
    }
    let report = report(&kineto(&events, 2, 0));
    assert_eq!(parts(&report), [10.0, 10.0, 4.0, 76.0]);
    assert!(
        warnings(&report).contains("5 events of other GPUs left out (the report is about GPU 0)"),
        "{}",
        warnings(&report)
    );
}

#[test]
fn a_gpu_that_runs_collectives_only_is_idle_between_them() {
    let mut events = steps(5, true, KERNELS[1]);
    events.retain(|event| !event.contains("gemm") && !event.contains("Memcpy"));
    assert_eq!(
        parts(&report(&kineto(&events, 2, 0))),
        [0.0, 10.0, 0.0, 90.0]
    );
}

#[test]
fn sharded_collectives_are_tensors_of_their_own_and_get_no_advice_on_buckets() {
    for marked in [true, false] {
        let events = steps(
            5,
            marked,
            "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgs)",
        );
        let gathered = |event: &String| {
            let sizes = ["[[1000000]]", "[[2000000]]", "[[3000000]]"];
            let gathers = sizes.iter().any(|size| event.contains(size));
            let name = if gathers {
                "_all_gather_base"
            } else {
                "_reduce_scatter_base"
            };
            event.replace("all_reduce", name)
        };
        let events: Vec<String> = events.iter().map(gathered).collect();
        let report = report(&kineto(&events, 2, 0));
        assert_eq!(
            report.tensors.len(),
            5,
            "marked: {marked} {:?}",
            report.tensors
        );
        let advice = sentences(&report);
        assert!(advice.contains("The GPU is idle for"), "{advice}");
        assert!(
            !advice.contains("bucket_cap_mb") && !advice.contains("HOROVOD"),
            "{advice}"
        );
    }
}

#[test]
fn without_gpu_events_nothing_is_said_of_the_gpu() {
    let mut events = Vec::new();
    for step in 0..5 {
        let began = 1_000 + 100_000 * step;
        events.push(event(
            "user_annotation",
            &format!("ProfilerStep#{step}"),
            began,
            100_000,
            "",
        ));
        events.push(event("cpu_op", "aten::linear", began + 1_000, 60_000, ""));
        let dims = r#""Input Dims": [[1000000]], "Input type": ["float"]"#;
        events.push(event(
            "user_annotation",
            "gloo:all_reduce",
            began + 70_000,
            20_000,
            dims,
        ));
    }
    let report = report(&kineto(&events, 2, 0));
    assert_eq!(report.steps.len(), 5);
    assert_eq!(mean(&report, PartKind::GpuIdle), 0.0);
    assert_eq!(mean(&report, PartKind::Collective).round(), 20.0);
    assert!(!sentences(&report).contains("GPU"), "{:?}", report.advice);
}

#[test]
fn calls_of_nccl_without_gpu_events_support_no_recommendation() {
    let mut events = steps(5, true, KERNELS[2]);
    events.retain(|event| !event.contains("\"stream\""));
    events.push(event("cpu_op", "aten::linear", 2_000, 490_000, ""));
    let report = report(&kineto(&events, 2, 0));
    assert_eq!(report.steps.len(), 5);
    let file = "rank0.json".to_owned();
    assert_eq!(report.withheld, Some(Withheld::HostOnly { file }));
    let advice = sentences(&report);
    assert!(
        advice.starts_with("No recommendation: rank0.json has calls of NCCL"),
        "{advice}"
    );
    assert!(!advice.contains("hidden behind computation"), "{advice}");
    assert!(
        warnings(&report).contains("has no GPU events"),
        "{}",
        warnings(&report)
    );
}

#[test]
fn a_trace_without_collectives_has_no_steps_and_no_advice() {
    let mut events = steps(5, true, KERNELS[2]);
    events.retain(|event| !event.contains("nccl") && !event.contains("cudaLaunch"));
    let report = report(&kineto(&events, 1, 0));
    assert!(report.steps.is_empty() && report.advice.is_empty());
    assert!(
        warnings(&report).contains("no collective operation"),
        "{}",
        warnings(&report)
    );
}

#[test]
fn implausible_lines_are_not_fitted() {
    // Messages of 4 to 20 MB take 2 ms each: no bandwidth follows. 4 to 20 kB take 1 to 5 s each:
    // 4 kB/s, slower than any link.
    let constant = steps(5, true, KERNELS[2]);
    let slow = constant.iter().map(|event| {
        let event = event.replace("000000]]", "000]]");
        let tensor = (1..=5).find(|n| event.contains(&format!("\"ts\": {}", 21_000 + 10_000 * n)));
        match tensor {
            Some(tensor) => event.replace("\"dur\": 2000", &format!("\"dur\": {tensor}000000")),
            None => event,
        }
    });
    for events in [constant.clone(), slow.collect()] {
        let report = report(&kineto(&events, 2, 0));
        assert!(!report.bandwidth.is_empty());
        let fits: Vec<_> = report.bandwidth.iter().filter_map(|row| row.fit).collect();
        assert!(fits.is_empty(), "{fits:?}");
    }
}

#[test]
fn exposed_time_is_attributed_to_the_kind_of_operation() {
    let mut events = steps(2, true, KERNELS[2]);
    // An alltoall of 20 ms in each step, beside five allreduces of 2 ms; one is larger in the first.
    for step in 0..2 {
        let began = 1_000 + 100_000 * step;
        let kernel = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)";
        let id = 1_000 + step;
        events.push(event(
            "user_annotation",
            "nccl:all_to_all",
            began + 77_970,
            20,
            r#""Input Dims": [[1000000]], "Input type": ["float"]"#,
        ));
        let launch = format!(r#""correlation": {id}"#);
        events.push(event(
            "cuda_runtime",
            "cudaLaunchKernelExC",
            began + 77_975,
            5,
            &launch,
        ));
        let arguments = format!(r#""correlation": {id}, "stream": 30, "device": 0"#);
        events.push(event("kernel", kernel, began + 78_000, 20_000, &arguments));
    }
    let larger = events
        .iter_mut()
        .filter(|event| event.contains("[[5000000]]"));
    larger
        .take(1)
        .for_each(|event| *event = event.replace("5000000", "8000000"));
    let report = report(&kineto(&events, 2, 0));
    let exposed = &report.steady.as_ref().unwrap().exposed_by_kind_ms;
    let exposed: Vec<_> = exposed
        .iter()
        .map(|&(kind, ms)| (kind, ms.round()))
        .collect();
    assert_eq!(exposed, [(Kind::Alltoall, 20.0), (Kind::Allreduce, 10.0)]);
    let advice = sentences(&report);
    for part in [
        "30.0 ms of a step (30 %) is exposed communication; the largest part of it, 20.0 ms, is in alltoall operations",
        "The exposed allreduces (10.0 ms) are 5 a step of up to 30.5 MiB",
    ] {
        assert!(advice.contains(part), "{advice}");
    }
}
