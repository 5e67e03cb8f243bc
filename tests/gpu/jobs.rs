//! Tests of GPU jobs: fused steps, timeline, process sets, joins, memory limits, tuner, wire
//! dtypes.

#![allow(unsafe_code)] // submits device memory

use std::path::Path;

use half::{bf16, f16};
use ronde::{Context, CudaVec, Dtype, ProcessSet, RawHandle, RawOutput, RawTensor, ReduceOp};

use crate::sample::How;
use crate::support::Folder;
use crate::{forms, gpu_job, is_real, start};

/// Reduces `elements` on the GPU, on each rank all equal to its rank plus one; checks the sum.
fn sum(set: &ProcessSet, device: u32, name: &str, elements: usize) {
    let rank = set.rank().expect("a member") as f32;
    let mine = CudaVec::from_slice(device, &vec![rank + 1.0; elements]).expect("room");
    let got = set
        .allreduce(name, mine, ReduceOp::Sum)
        .expect("in")
        .wait()
        .expect("out");
    let size = set.size() as f32;
    let want = size * (size + 1.0) / 2.0;
    assert!(
        got.to_vec().expect("read").iter().all(|&got| got == want),
        "{name}"
    );
}

/// Runs a step of many tensors at once, this many times.
fn steps(context: &Context, device: u32, count: usize) {
    let rank = context.rank() as f32;
    let mut tensors: Vec<CudaVec<f32>> = (1..60)
        .map(|tensor| CudaVec::from_slice(device, &vec![0.0; 37 * tensor]).expect("room"))
        .collect();
    for step in 0..count {
        let mut handles = Vec::new();
        for (index, mut tensor) in tensors.drain(..).enumerate() {
            let elements: Vec<f32> = (0..tensor.len())
                .map(|at| rank + (at % 7 + step) as f32)
                .collect();
            tensor.copy_from(&elements).expect("written");
            let name = format!("gradient {index}");
            handles.push(
                context
                    .allreduce(&name, tensor, ReduceOp::Average)
                    .expect("in"),
            );
        }
        let middle = (context.size() - 1) as f32 / 2.0;
        for handle in handles {
            let tensor = handle.wait().expect("out");
            for (at, got) in tensor.to_vec().expect("read").into_iter().enumerate() {
                let want = middle + (at % 7 + step) as f32;
                assert!(
                    (got - want).abs() < 1e-4,
                    "element {at} of step {step}: {got}, should be {want}"
                );
            }
            tensors.push(tensor);
        }
    }
}

#[test]
fn steps_of_many_tensors_are_fused_and_cached() {
    let folder = Folder::new();
    let timeline = folder.file("t.json");
    let path = timeline.to_str().expect("a name").to_owned();
    let env = [
        ("HOROVOD_TIMELINE", path.as_str()),
        ("FAKE_CUDA_DELAY_US", "100"),
    ];
    let outcomes = gpu_job(
        "jobs::steps_of_many_tensors_are_fused_and_cached",
        2,
        &env,
        || {
            let (context, device) = start();
            steps(&context, device, 20);
        },
    );
    if outcomes.is_empty() {
        return;
    }
    let text = std::fs::read_to_string(&timeline).expect("written");
    let events: Vec<serde_json::Value> = serde_json::from_str(&text).expect("valid JSON");
    let named = |name: &str| events.iter().filter(|event| event["name"] == name).count();
    assert_eq!(
        named("INIT_NCCL"),
        named("INIT_NCCL").min(59),
        "once, for each tensor of the first batch"
    );
    for name in [
        "INIT_NCCL",
        "MEMCPY_IN_FUSION_BUFFER",
        "NCCL_ALLREDUCE",
        "MEMCPY_OUT_FUSION_BUFFER",
    ] {
        assert!(named(name) > 0, "no {name}");
    }
    // Every tensor of every step.
    assert_eq!(named("NCCL_ALLREDUCE"), 59 * 20);
    // Times of each tensor do not decrease.
    let mut last = std::collections::HashMap::new();
    for event in events
        .iter()
        .filter(|event| event["ts"].is_number() && event["ph"] != "M")
    {
        let ts = event["ts"].as_i64().expect("a whole number");
        let before = last
            .insert(event["pid"].to_string(), ts)
            .unwrap_or(i64::MIN);
        assert!(ts >= before, "{event} after {before}");
    }
}

#[test]
fn tensors_in_host_memory_and_on_the_gpu_share_a_job() {
    gpu_job(
        "jobs::tensors_in_host_memory_and_on_the_gpu_share_a_job",
        2,
        &[],
        || {
            let (context, device) = start();
            for step in 0..30 {
                let on_host = context
                    .allreduce("host", vec![1i64; 1000], ReduceOp::Sum)
                    .expect("in");
                let tensor = CudaVec::from_slice(device, &[2i64; 500]).expect("room");
                let on_gpu = context.allreduce("gpu", tensor, ReduceOp::Sum).expect("in");
                assert_eq!(on_host.wait().expect("out"), [2; 1000], "step {step}");
                assert_eq!(
                    on_gpu.wait().expect("out").to_vec().expect("read"),
                    [4; 500]
                );
            }
        },
    );
}

#[test]
fn process_sets_have_communicators_of_their_own() {
    if is_real() {
        return; // NCCL does not support three ranks on one device
    }
    gpu_job(
        "jobs::process_sets_have_communicators_of_their_own",
        3,
        &[],
        || {
            let context = Context::builder()
                .dynamic_process_sets()
                .build()
                .expect("the job starts");
            let device = context.local_rank() as u32;
            for round in 0..3 {
                let outer = context.add_process_set(&[0, 2]).expect("added");
                sum(&context, device, &format!("all {round}"), 1000);
                if outer.included() {
                    for step in 0..5 {
                        sum(&outer, device, &format!("outer {step}"), 2000);
                    }
                }
                context.remove_process_set(&outer).expect("removed");
            }
        },
    );
}

#[test]
fn a_rank_that_has_joined_takes_part() {
    gpu_job("jobs::a_rank_that_has_joined_takes_part", 2, &[], || {
        let (context, device) = start();
        let rank = context.rank();
        let has_gpu_tensors = |batch: usize| batch < 2 + 3 * rank;
        for batch in (0..5).take_while(|&batch| has_gpu_tensors(batch)) {
            let reduce = |name: &str, values: Vec<f32>, op| {
                let tensor = CudaVec::from_slice(device, &values).expect("room");
                context.allreduce(name, tensor, op).expect("in")
            };
            let average = reduce("average", vec![4.0; 700], ReduceOp::Average);
            let product = reduce("product", vec![3.0; 9], ReduceOp::Product);
            let least = reduce("least", vec![5.0; 11], ReduceOp::Min);
            let both = batch < 2;
            let get = |handle: ronde::Handle<CudaVec<f32>>| {
                handle.wait().expect("out").to_vec().expect("read")
            };
            assert_eq!(get(average), vec![if both { 4.0 } else { 2.0 }; 700]);
            assert_eq!(get(product), vec![if both { 9.0 } else { 3.0 }; 9]);
            assert_eq!(get(least), vec![5.0; 11]);
        }
        assert_eq!(context.join().expect("joined"), 1);
        sum(&context, device, "after", 100);
    });
}

#[test]
fn contexts_come_and_go() {
    gpu_job("jobs::contexts_come_and_go", 2, &[], || {
        for round in 0..10 {
            let (context, device) = start();
            sum(&context, device, &format!("round {round}"), 5_000);
        }
    });
}

#[test]
fn too_little_memory_makes_smaller_batches() {
    if is_real() {
        return;
    }
    // 24 MiB of tensors and 8 MiB for everything else.
    let env = [("FAKE_CUDA_MEMORY_BYTES", "33554432")];
    let outcomes = gpu_job(
        "jobs::too_little_memory_makes_smaller_batches",
        2,
        &env,
        || {
            let (context, device) = start();
            let tensor = |_| CudaVec::from_slice(device, &vec![1.0f32; 1 << 18]).expect("room");
            let tensors: Vec<CudaVec<f32>> = (0..24).map(tensor).collect();
            let reduced = context
                .grouped_allreduce("large", tensors, ReduceOp::Sum)
                .expect("in")
                .wait()
                .expect("out");
            for tensor in reduced {
                assert!(tensor.to_vec().expect("read").iter().all(|&got| got == 2.0));
            }
        },
    );
    if let Some(first) = outcomes.first() {
        assert!(
            first.output.contains("larger batches are split"),
            "{}",
            first.output
        );
    }
}

/// The threshold that the tuner changes on GPUs is theirs: it begins at 32 MiB, not at the 128 MiB
/// of host memory.
#[test]
fn the_tuner_works_on_a_gpu() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("a.csv");
    let env = [
        ("HOROVOD_AUTOTUNE", "1"),
        ("HOROVOD_AUTOTUNE_LOG", log.to_str().expect("UTF-8")),
        ("FAKE_CUDA_DELAY_US", "50"),
    ];
    let outcomes = gpu_job("jobs::the_tuner_works_on_a_gpu", 2, &env, || {
        let (context, device) = start();
        // How many steps the first samples take depends on how even the machine's steps are.
        for _ in 0..400 {
            steps(&context, device, 50);
            let tried = context.rank() == 0 && {
                let log = std::env::var("HOROVOD_AUTOTUNE_LOG").expect("a log");
                thresholds_mb(Path::new(&log)).iter().any(|mb| mb != "32")
            };
            let told = context.broadcast("tried", vec![u8::from(tried)], 0);
            if told.expect("in").wait().expect("out") == [1] {
                break;
            }
        }
        if context.rank() == 0 {
            let report = context.autotune_report().expect("it is on");
            assert!(report.best.is_some(), "{report:?}");
        }
    });
    if outcomes.is_empty() {
        return; // a rank
    }
    let thresholds_mb = thresholds_mb(&log);
    assert_eq!(thresholds_mb.first().map(String::as_str), Some("32"));
    assert!(
        thresholds_mb.iter().any(|mb| mb != "32"),
        "{thresholds_mb:?}"
    );
    let text = std::fs::read_to_string(&log).expect("a log");
    let (header, rows) = text.split_once('\n').expect("rows");
    assert!(header.ends_with(",on_gpu"), "{header}");
    assert!(rows.lines().all(|row| row.ends_with(",1")), "{rows}");
}

/// Returns the thresholds in the complete rows of a log of the tuner, MiB; none if there is no log
/// yet.
fn thresholds_mb(log: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
    let rows = complete.lines().skip(1);
    rows.filter_map(|row| row.split(',').nth(5).map(str::to_owned))
        .collect()
}

/// Reduces f32 that are sent as `wire`, raw, several tensors at once and one alone; returns the
/// results.
fn compressed(
    context: &Context,
    device: u32,
    wire: Dtype,
    how: How,
    inputs: &[Vec<f32>],
) -> Vec<Vec<f32>> {
    let tensors = inputs
        .iter()
        .map(|input| CudaVec::from_slice(device, input).expect("room"));
    let tensors: Vec<CudaVec<f32>> = tensors.collect();
    let submit = |(index, tensor): (usize, &CudaVec<f32>)| {
        let name = format!("{wire}.{}.{how:?}.{index}", inputs.len());
        let shape = [tensor.len()];
        let tensor = RawTensor {
            wire_dtype: Some(wire),
            ..forms::in_place(&name, &shape, tensor, device)
        };
        // SAFETY: the vectors live until all handles have been waited for, and are not accessed.
        unsafe { context.submit(&how.allreduce(), &tensor) }.expect("submitted")
    };
    let handles: Vec<RawHandle> = tensors.iter().enumerate().map(submit).collect();
    handles
        .iter()
        .for_each(|handle| handle.wait().expect("done"));
    tensors
        .iter()
        .map(|tensor| tensor.to_vec().expect("read"))
        .collect()
}

#[test]
fn floats_travel_as_halves() {
    gpu_job("jobs::floats_travel_as_halves", 2, &[], || {
        let (context, device) = start();
        let (rank, size) = (context.rank() as f32, context.size() as f32);
        let round = |wire: Dtype, number: f32| match wire {
            Dtype::F16 => f16::from_f32(number).to_f32(),
            _ => bf16::from_f32(number).to_f32(),
        };
        for wire in [Dtype::F16, Dtype::Bf16] {
            // Integers, which are exact, and thirds, whose rounding shows that they were sent as
            // the smaller type.
            let whole = |length: usize| {
                (0..length)
                    .map(|at| rank + (at % 5) as f32)
                    .collect::<Vec<_>>()
            };
            let inputs = [whole(1000), vec![1.0 / 3.0; 37], whole(1)];
            for inputs in [&inputs[..], &inputs[1..2], &inputs[..1]] {
                let how = How {
                    op: ReduceOp::Sum,
                    prescale: 2.0,
                    postscale: 0.5,
                };
                let results = compressed(&context, device, wire, how, inputs);
                for (input, result) in inputs.iter().zip(results) {
                    for (at, (input, result)) in input.iter().zip(result).enumerate() {
                        let want = if *input == 1.0 / 3.0 {
                            size * round(wire, 2.0 / 3.0) * 0.5
                        } else {
                            size * (size - 1.0) / 2.0 + size * (at % 5) as f32
                        };
                        assert_eq!(result, want, "{wire}, element {at}");
                    }
                }
            }
        }
        let host = [1f32; 4];
        let tensor = RawTensor {
            name: "host",
            dtype: Dtype::F32,
            wire_dtype: Some(Dtype::F16),
            shape: &[4],
            device: ronde::Device::Cpu,
            input: host.as_ptr().cast(),
            output: RawOutput::Allocate,
        };
        // SAFETY: the submission is refused.
        let refused = unsafe { context.submit(&How::plain(ReduceOp::Sum).allreduce(), &tensor) };
        let text = refused
            .map(drop)
            .expect_err("it is in host memory")
            .to_string();
        assert!(
            text.contains("tensor host (float32) cannot be sent as float16"),
            "{text}"
        );
    });
}
