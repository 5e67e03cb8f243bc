//! Tests of the profiler trace reader: from events to operations and computation.

use super::super::model::{Format, Kind, MarkKind, Phase};
use super::super::testing::told;
use super::*;
use ronde_job::Dtype;

fn event(category: &str, name: &str, tid: u32, us: f64, duration: f64, arguments: &str) -> String {
    format!(
        r#"{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": 1, "tid": {tid}, "ts": {us}, "dur": {duration}, "args": {{{arguments}}}}}"#
    )
}

fn file(events: &[String]) -> String {
    format!(
        r#"{{"schemaVersion": 1, "distributedInfo": {{"backend": "nccl", "rank": 2, "world_size": 8}},
        "baseTimeNanoseconds": 1700000000000000000, "traceEvents": [{}]}}"#,
        events.join(",\n")
    )
}

fn us(began: i64, ended: i64) -> Span {
    Span {
        began: 1_000 * began,
        ended: 1_000 * ended,
    }
}

#[test]
fn a_kernel_is_described_where_it_was_launched() {
    let (told, source) = told(&file(&[
        event("kernel", "gemm", 7, 1130.0, 40.0, ""),
        event(
            "kernel",
            "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)",
            8,
            1150.0,
            50.0,
            r#""correlation": 5"#,
        ),
        event("cpu_op", "aten::mm", 1, 1000.0, 50.0, ""),
        event(
            "cpu_op",
            "record_param_comms",
            1,
            1100.5,
            20.0,
            r#""In msg nelems": 10, "dtype": "Float""#,
        ),
        event("user_annotation", "nccl:all_reduce", 1, 1101.0, 10.0, ""),
        event(
            "cuda_runtime",
            "cudaLaunchKernelExC",
            1,
            1105.0,
            1.0,
            r#""correlation": 5"#,
        ),
        event("user_annotation", "ProfilerStep#9", 1, 1050.0, 125.0, ""),
    ]));
    assert_eq!(
        (source.format, source.rank, source.size),
        (Format::Kineto, Some(2), Some(8))
    );
    // The step begins first, at 1050.
    assert_eq!(source.epoch_ns, Some(1_700_000_000_001_050_000));
    let [operation] = &told.operations[..] else {
        panic!("{told:?}");
    };
    assert_eq!(told.name(operation.tensor), "nccl:all_reduce #1");
    assert_eq!(
        told.name(operation.activities[0].name),
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t"
    );
    assert_eq!(
        operation.kind,
        Kind::Allreduce,
        "what was called, not what the kernel is named after"
    );
    assert_eq!(operation.execution, Some(us(100, 150)));
    // Ready when the kernel begins; the host had submitted it 49 us before.
    assert_eq!(
        (operation.ticks[0].rank, operation.ticks[0].at),
        (2, 100_000)
    );
    let queue = operation.activities[1];
    assert_eq!((queue.phase, queue.span), (Phase::Queue, us(51, 100)));
    assert_eq!(
        (operation.dtype, operation.elements, operation.bytes),
        (Some(Dtype::F32), Some(10), Some(40))
    );
    assert_eq!(told.compute, [us(80, 120)], "the GPU's, not the CPU's");
    let marks: Vec<_> = told.marks.iter().map(|mark| (mark.kind, mark.at)).collect();
    assert_eq!(marks, [(MarkKind::StepBegin, 0), (MarkKind::Step, 125_000)]);
}

#[test]
fn without_a_gpu_the_annotations_are_the_collectives() {
    let (told, source) = told(&file(&[
        event("cpu_op", "aten::linear", 1, 10.0, 20.0, ""),
        event("cpu_op", "aten::mm", 1, 12.0, 10.0, ""),
        event("cpu_op", "aten::add", 1, 40.0, 1.5, ""),
        event("cpu_op", "aten::add", 2, 15.0, 1.0, ""),
        event("cpu_op", "c10d::allreduce_", 1, 50.0, 5.0, ""),
        event(
            "cpu_op",
            "gloo:all_reduce",
            3,
            52.0,
            30.0,
            r#""Input Dims": [[4, 4]], "Input type": ["c10::Half"]"#,
        ),
    ]));
    let [operation] = &told.operations[..] else {
        panic!("{told:?}");
    };
    assert_eq!(
        (operation.kind, operation.execution),
        (Kind::Allreduce, Some(us(42, 72)))
    );
    assert_eq!((operation.elements, operation.bytes), (Some(16), Some(32)));
    let last = Span {
        began: 30_000,
        ended: 31_500,
    };
    assert_eq!(
        told.compute,
        [us(0, 20), us(5, 6), last],
        "no operator within another"
    );
    assert_eq!(source.warnings, Vec::<String>::new());
}

#[test]
fn durations_and_times_that_are_missing() {
    let (told, source) = told(&file(&[
        r#"{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 5}"#.to_owned(),
        r#"{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 8, "dur": -3}"#
            .to_owned(),
        r#"{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "dur": 3}"#.to_owned(),
    ]));
    assert_eq!(told.compute, [us(0, 0), us(3, 3)]);
    let warnings = source.warnings.join("\n");
    assert!(
        warnings.contains("2 durations are missing or negative"),
        "{warnings}"
    );
    assert!(warnings.contains("1 time is missing"), "{warnings}");
}

#[test]
fn wall_clocks_of_older_versions() {
    let (_, source) = told(
        r#"{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "Kernel", "name": "k", "ts": 1682725898236567, "dur": 1}]}"#,
    );
    assert_eq!(source.epoch_ns, Some(1_682_725_898_236_567_000));
}
