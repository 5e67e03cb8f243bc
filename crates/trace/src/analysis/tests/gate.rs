//! Tests of the gate: recommendations are withheld if the data do not support them. Also tests of
//! profiler traces.

use super::super::report::{PartKind, Report};
use super::super::{AnalysisError, Collector, analyze};
use crate::analysis::collect::RankRecord;
use crate::{Input, read_input};
use ronde_job::gate::Withheld;

pub(super) fn record(path: &str, text: &str) -> RankRecord {
    let mut collector = Collector::new();
    let input = Input::from_reader(
        std::io::Cursor::new(text.as_bytes().to_vec()),
        path.as_ref(),
    )
    .unwrap();
    let source = read_input(input, None, &mut collector, &mut |_| {})
        .unwrap_or_else(|error| panic!("{error}"));
    collector.finish(source)
}

pub(super) fn report(text: &str) -> Report {
    analyze(vec![record("rank0.json", text)]).unwrap()
}

/// One Kineto event.
pub(super) fn event(category: &str, name: &str, us: u64, duration: u64, arguments: &str) -> String {
    format!(
        r#"{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": 1, "tid": 1, "ts": {us}, "dur": {duration}, "args": {{{arguments}}}}}"#
    )
}

/// Steps of 100 ms: 10 ms of kernels, 4 ms of copies, five allreduces of 2 ms each in sizes of
/// `elements`; 76 ms idle.
pub(super) fn steps(count: u64, marked: bool, kernel: &str) -> Vec<String> {
    let mut events = Vec::new();
    for step in 0..count {
        let began = 1_000 + 100_000 * step;
        if marked {
            events.push(event(
                "user_annotation",
                &format!("ProfilerStep#{step}"),
                began,
                100_000,
                "",
            ));
        }
        events.push(event(
            "kernel",
            "gemm",
            began + 5_000,
            10_000,
            r#""stream": 7, "device": 0"#,
        ));
        events.push(event(
            "gpu_memcpy",
            "Memcpy HtoD",
            began + 16_000,
            4_000,
            r#""stream": 7, "device": 0"#,
        ));
        for tensor in 0..5 {
            let (at, id) = (began + 30_000 + 10_000 * tensor, 10 * step + tensor);
            let elements = 1_000_000 * (tensor + 1);
            events.push(event(
                "user_annotation",
                "nccl:all_reduce",
                at - 30,
                20,
                &format!(r#""Input Dims": [[{elements}]], "Input type": ["float"]"#),
            ));
            events.push(event(
                "cuda_runtime",
                "cudaLaunchKernelExC",
                at - 25,
                5,
                &format!(r#""correlation": {id}"#),
            ));
            let arguments = format!(
                r#""correlation": {id}, "stream": {}, "device": 0"#,
                20 + tensor % 2
            );
            events.push(event("kernel", kernel, at, 2_000, &arguments));
        }
    }
    events
}

pub(super) fn kineto(events: &[String], world: u32, rank: u32) -> String {
    format!(
        r#"{{"schemaVersion": 1, "distributedInfo": {{"rank": {rank}, "world_size": {world}}},
        "baseTimeNanoseconds": 1700000000000000000, "traceEvents": [{}]}}"#,
        events.join(",\n")
    )
}

pub(super) const KERNELS: [&str; 3] = [
    "ncclAllReduceRingLLKernel_sum_f32(ncclColl)",
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
];

pub(super) fn mean(report: &Report, kind: PartKind) -> f64 {
    let steady = report.steady.as_ref().unwrap();
    steady
        .parts
        .iter()
        .find(|part| part.kind == kind)
        .unwrap()
        .exposed_ms
        .mean
}

#[test]
fn idle_time_of_the_gpu_is_no_computation() {
    for kernel in KERNELS {
        let report = report(&kineto(&steps(5, true, kernel), 2, 0));
        assert_eq!(report.steps.len(), 5, "five marks, five steps");
        assert!((report.steady.as_ref().unwrap().step_ms.p50 - 100.0).abs() < 1e-6);
        let parts = [
            PartKind::Compute,
            PartKind::Collective,
            PartKind::GpuOther,
            PartKind::GpuIdle,
        ];
        assert_eq!(
            parts.map(|kind| mean(&report, kind).round()),
            [10.0, 10.0, 4.0, 76.0],
            "{kernel}"
        );
        let advice: Vec<&str> = report
            .advice
            .iter()
            .map(|advice| &*advice.sentence)
            .collect();
        assert!(
            advice[0].contains("The GPU is idle for 76.0 ms of a step (76 %)"),
            "{advice:?}"
        );
        assert!(advice[1].contains("bucket_cap_mb"), "{advice:?}");
        assert!(
            advice.iter().all(|sentence| !sentence.contains("HOROVOD")),
            "{advice:?}"
        );
    }
}

#[test]
fn each_allreduce_of_a_step_is_a_tensor() {
    for marked in [true, false] {
        let report = report(&kineto(&steps(5, marked, KERNELS[2]), 2, 0));
        let mut tensors: Vec<_> = report
            .tensors
            .iter()
            .map(|row| (&*row.name, row.elements))
            .collect();
        tensors.sort_unstable();
        let expected: Vec<_> = (1..=5)
            .map(|i| (format!("nccl:all_reduce #{i}"), Some(1_000_000 * i)))
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(name, elements)| (&**name, *elements))
            .collect();
        assert_eq!(tensors, expected, "marked: {marked}");
        assert!(
            (4..=5).contains(&report.steps.len()),
            "{}",
            report.steps.len()
        );
    }
}

#[test]
fn unknown_kernels_are_reported() {
    let mut events = steps(4, true, KERNELS[1]);
    events.push(event(
        "kernel",
        "cross_device_reduce_1stage<half>",
        22_000,
        1_000,
        r#""stream": 7, "device": 0"#,
    ));
    events.push(event(
        "gpu_new",
        "something",
        24_000,
        1_000,
        r#""stream": 7, "device": 0"#,
    ));
    let report = report(&kineto(&events, 2, 0));
    let said = report.sources[0].warnings.join("\n");
    assert!(
        said.contains("2 events of unknown type on the GPU"),
        "{said}"
    );
    assert_eq!(report.steps[0].exposed_ms[PartKind::GpuOther as usize], 6.0);
    assert_eq!(report.steps[0].exposed_ms[PartKind::Compute as usize], 10.0);
}

#[test]
fn messages_between_two_ranks_have_no_line() {
    let events = steps(
        5,
        true,
        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    );
    let events: Vec<String> = events
        .iter()
        .enumerate()
        .map(|(index, event)| match index % 4 {
            0 => event.replace("nccl:all_reduce", "nccl:all_to_all"),
            _ => event.replace("nccl:all_reduce", "nccl:send"),
        })
        .collect();
    let report = report(&kineto(&events, 2, 0));
    assert!(
        report
            .bandwidth
            .iter()
            .all(|row| row.fit.is_none() || !row.activity.contains("point_to_point"))
    );
    let plausible = |gb_per_s: f64| (0.001..=2000.0).contains(&gb_per_s);
    let fits = report.bandwidth.iter().filter_map(|row| row.fit);
    assert!(
        fits.into_iter().all(|fit| plausible(fit.gb_per_s)),
        "{:?}",
        report.bandwidth
    );
}

#[test]
fn truncated_files_support_nothing() {
    let whole = kineto(&steps(6, true, KERNELS[2]), 2, 0);
    assert_eq!(report(&whole).withheld, None);
    let events = whole.find("traceEvents").unwrap();
    for share in 3..20 {
        let end = events + (whole.len() - events - 3) * share / 20;
        let report = report(&whole[..end]);
        assert_eq!(
            report.withheld,
            Some(Withheld::Incomplete {
                file: "rank0.json".into()
            }),
            "cut at {end}"
        );
        let [advice] = &report.advice[..] else {
            panic!("{:?}", report.advice);
        };
        assert!(
            advice.sentence.contains("rank0.json is truncated"),
            "{advice:?}"
        );
        assert_eq!((&advice.variable, &advice.value), (&None, &None));
    }
}

#[test]
fn files_of_different_jobs_are_refused() {
    let here = kineto(&steps(4, true, KERNELS[2]), 2, 0);
    let joined = |other: &str| {
        let records = vec![record("a.json", &here), record("b.json", other)];
        let swapped = vec![record("b.json", other), record("a.json", &here)];
        let results =
            [analyze(records), analyze(swapped)].map(|result| result.map(|report| report.ranks));
        assert_eq!(results[0], results[1], "whatever the order of arguments");
        results[0].clone()
    };
    let of_job = kineto(&steps(4, true, KERNELS[2]), 2, 1);
    assert_eq!(joined(&of_job), Ok(2));
    let larger = kineto(&steps(4, true, KERNELS[2]), 8, 1);
    let later = of_job.replace("1700000000000000000", "1700009000000000000");
    let byteps = r#"{"traceEvents": [
        {"ph": "X", "name": "Comm.g", "pid": "Comm.g", "tid": "total", "ts": 1700000000001000, "dur": 50},
        {"ph": "X", "name": "Comm.g.PUSH", "pid": "Comm.g", "tid": "1", "ts": 1700000000001000, "dur": 20}]}"#;
    for (other, part) in [
        (&*larger, "8"),
        (&later, "before the other began"),
        (byteps, "BytePS"),
    ] {
        let error = joined(other).unwrap_err();
        assert!(matches!(error, AnalysisError::OtherJob { .. }), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn reports_of_earlier_versions_are_read() {
    let report = report(&kineto(&steps(5, true, KERNELS[2]), 2, 0));
    let mut json = serde_json::to_value(&report).unwrap();
    for step in json["steps"].as_array_mut().unwrap() {
        for field in ["exposed_ms", "total_ms"] {
            step[field].as_array_mut().unwrap().truncate(7);
        }
    }
    let read: Report = serde_json::from_value(json).unwrap();
    assert_eq!(
        read.steps[0].exposed_ms[..7],
        report.steps[0].exposed_ms[..7]
    );
    assert_eq!(read.steps[0].exposed_ms[7..], [0.0, 0.0]);
}
