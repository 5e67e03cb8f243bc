//! Tests of the command line of `ronde bench`: results, launching and invalid input.

use std::path::Path;
use std::process::Output;

use crate::support::fake_cuda::libraries;
use crate::support::output::{assert_failed, stdout};
use crate::support::program::ronde;

/// Runs `ronde bench` with `arguments` (split at spaces), in an environment with only the given
/// variables.
fn bench(arguments: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = ronde();
    command
        .arg("bench")
        .args(arguments.split_whitespace())
        .envs(variables.iter().copied());
    command.output().unwrap()
}

fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn result_as_json_and_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("o.json");
    let output = bench(
        &format!(
            "--model many-small -np 2 --steps 12 --json {}",
            path.display()
        ),
        &[],
    );
    let text = stdout(&output);
    assert!(
        text.starts_with("many-small: 1,000 tensors, 1,000 KiB per step, 2 ranks, local backend\n"),
        "{text}"
    );
    assert!(
        text.contains("of memcpy") && !text.contains("shaped"),
        "{text}"
    );
    let result = json(&path);
    assert_eq!(result["np"], 2);
    assert_eq!(result["steps"], 12);
    assert_eq!(result["bytes_per_step"], 1_024_000);
    assert_eq!(result["link"], serde_json::Value::Null);
    assert_eq!(result["autotune"], serde_json::Value::Null);
    assert_eq!(result["settings"]["fusion_threshold_bytes"], 128 << 20);
    let p50 = result["step_ms"]["p50"].as_f64().unwrap();
    let rate = result["gb_per_s"].as_f64().unwrap();
    assert!((rate - 1.024 / p50).abs() < 1e-9 * rate);
    assert!(result["memcpy_gb_per_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn profile_of_element_counts_on_three_ranks_over_a_shaped_link() {
    let folder = tempfile::tempdir().unwrap();
    let (list, path) = (folder.path().join("list.txt"), folder.path().join("o.json"));
    std::fs::write(&list, "1000\n70000\n3\n").unwrap();
    let arguments = format!(
        "--profile {} -np 3 --steps 3 --compute-ms 2 --link 50,2 --fusion-mb 0 --json {}",
        list.display(),
        path.display()
    );
    let text = stdout(&bench(&arguments, &[]));
    assert!(
        text.contains("list.txt: 3 tensors") && text.contains("shaped: 50 µs and 2 GB/s"),
        "{text}"
    );
    let result = json(&path);
    assert_eq!(result["link"]["alpha_us"], 50.0);
    assert_eq!(result["gb_per_s"], serde_json::Value::Null);
    assert_eq!(result["compute_ms"], 2.0);
    assert_eq!(result["settings"]["fusion_threshold_bytes"], 0);
    assert!(result["step_ms"]["p10"].as_f64().unwrap() >= 2.0);
}

#[test]
fn a_slow_rank_makes_the_step_longer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("o.json");
    let arguments = format!(
        "--model many-small -np 2 --steps 3 --warmup 1 --slow-rank 1,30 --json {}",
        path.display()
    );
    let text = stdout(&bench(&arguments, &[]));
    assert!(text.contains("slow rank  1, by 30 ms per step"), "{text}");
    let result = json(&path);
    assert_eq!(
        result["slow_rank"],
        serde_json::json!({"rank": 1, "ms": 30.0})
    );
    assert_eq!(result["gb_per_s"], serde_json::Value::Null);
    // A rank that gets no time at the end of a step measures a shorter next one.
    assert!(result["step_ms"]["p50"].as_f64().unwrap() >= 20.0);
}

#[test]
fn one_rank_needs_no_launcher() {
    assert!(
        stdout(&bench("--model many-small -np 1 --steps 1 --warmup 1", &[])).contains("1 rank,")
    );
}

/// With too few steps for a verdict, the tuner reports it and the run succeeds.
#[test]
fn tuning_that_is_cut_short_says_so() {
    let text = stdout(&bench(
        "--model many-small -np 2 --steps 20 --autotune",
        &[],
    ));
    assert!(
        text.contains("autotune   no verdict after 20 steps"),
        "{text}"
    );
}

#[test]
fn elements_are_printed_in_submission_order() {
    let text = stdout(&bench("--model vgg16 --print-elements", &[]));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[31]), (32, "1000", "1728"));
}

#[test]
fn bad_arguments_are_usage_errors() {
    assert_failed(&bench("--model resnet5", &[]), 2, &["resnet5", "resnet50"]);
    assert_failed(
        &bench("-np 0", &[]),
        2,
        &["invalid value '0' for '--num-proc", "from 1 to 1048576"],
    );
    assert_failed(&bench("-np 65", &[]), 2, &["-np 65", "1 to 64"]);
    assert_failed(&bench("--steps 0", &[]), 2, &["--steps"]);
    assert_failed(&bench("--compute-ms -1", &[]), 2, &["--compute-ms"]);
    assert_failed(&bench("--compute-kind burn", &[]), 2, &["sleep or spin"]);
    assert_failed(
        &bench("-np 2 --slow-rank 2,5", &[]),
        2,
        &["--slow-rank 2", "0 to 1"],
    );
    assert_failed(&bench("--slow-rank 1", &[]), 2, &["--slow-rank", "1,10"]);
    assert_failed(&bench("--model vgg16 --profile x", &[]), 2, &["--profile"]);
    let inside = [("HOROVOD_RANK", "0"), ("HOROVOD_SIZE", "2")];
    assert_failed(
        &bench("--model many-small -np 3", &inside),
        2,
        &["-np 3", "2 ranks"],
    );
}

/// The error appears once, whatever the number of ranks. The test hides GPUs that the machine may
/// have.
#[test]
fn gpus_that_cannot_be_had_are_a_usage_error() {
    let unseen = [("CUDA_VISIBLE_DEVICES", "")];
    for arguments in ["--backend nccl", "--backend nccl -np 1"] {
        let output = bench(arguments, &unseen);
        assert_failed(&output, 2, &["ronde: bench: backend nccl: "]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    }
    assert_failed(
        &bench("--backend nccl --link 10,1", &unseen),
        2,
        &["--link"],
    );
    assert_failed(
        &bench("--link 10,1", &[("RONDE_BACKEND", "nccl")]),
        2,
        &["--link"],
    );
}

/// Runs the benchmark with libraries that emulate CUDA and NCCL on the CPU.
fn on_pretended_gpus(arguments: &str, devices: &str) -> Output {
    bench(
        &format!("--backend nccl {arguments}"),
        &[
            ("LD_LIBRARY_PATH", libraries()),
            ("FAKE_CUDA_DEVICES", devices),
            ("FAKE_CUDA_DELAY_US", "200"), // so that a missing wait is noticed
        ],
    )
}

/// Tensors of all element types of the benchmark, checked in every step.
#[test]
fn tensors_are_on_a_gpu_for_each_rank() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("o.json");
    let profile = folder.path().join("profile.json");
    let dtypes = [
        "int16", "int32", "int64", "float16", "float32", "float64", "bfloat16",
    ];
    let tensors = dtypes.iter().zip([1, 3, 1000, 70_000, 5, 4096, 333]);
    let tensors: Vec<_> = tensors
        .map(|(dtype, elements)| {
            serde_json::json!({"name": dtype, "op": "allreduce", "dtype": dtype, "elements": elements, "ready_us": 0})
        })
        .collect();
    let text = serde_json::json!({"ronde_profile": 1, "np": 2, "tensors": tensors}).to_string();
    std::fs::write(&profile, text).unwrap();
    for (ranks, devices) in [(1, "1"), (3, "3")] {
        let arguments = format!(
            "-np {ranks} --steps 3 --profile {} --json {}",
            profile.display(),
            path.display()
        );
        let text = stdout(&on_pretended_gpus(&arguments, devices));
        assert!(
            text.contains("nccl backend") && text.contains("of memcpy"),
            "{text}"
        );
        let result = json(&path);
        assert_eq!(
            (&result["backend"], &result["np"]),
            (&"nccl".into(), &ranks.into())
        );
        assert!(result["memcpy_gb_per_s"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn two_ranks_on_one_gpu_are_told_what_to_do() {
    let output = on_pretended_gpus("--model many-small --steps 1", "1");
    let err = assert_failed(&output, 1, &["Duplicate GPU"]);
    // Of another rank's error comes the beginning of its text.
    assert!(
        err.contains("NCCL_HOSTID") || err.contains("stopped after an error"),
        "{err}"
    );
}

/// Inside `ronde run` the benchmark is one of the ranks; here the two ranks have different numbers
/// of steps.
#[test]
fn ranks_of_different_benchmarks_end_with_an_error() {
    let script = r#"exec "$0" bench --model many-small --steps $((HOROVOD_RANK + 1))"#;
    let arguments = [
        "run",
        "-np",
        "2",
        "--",
        "sh",
        "-c",
        script,
        env!("CARGO_BIN_EXE_ronde"),
    ];
    assert_failed(
        &ronde().args(arguments).output().unwrap(),
        1,
        &["the ranks run different benchmarks"],
    );
}

#[test]
fn bad_knobs_and_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.txt");
    std::fs::write(&empty, "\n").unwrap();
    assert_failed(
        &bench(&format!("--profile {}", empty.display()), &[]),
        1,
        &["empty.txt has no tensors"],
    );
    assert_failed(
        &bench("--profile /nonexistent/p", &[]),
        1,
        &["/nonexistent/p"],
    );
    assert_failed(
        &bench("--json /nonexistent/o.json", &[]),
        1,
        &["/nonexistent/o.json"],
    );
    assert_failed(
        &bench("", &[("HOROVOD_CYCLE_TIME", "soon")]),
        2,
        &["HOROVOD_CYCLE_TIME", "soon"],
    );
    let huge = folder.path().join("huge.txt");
    std::fs::write(&huge, "2147483648\n".repeat(10_000)).unwrap(); // 86 TB
    assert_failed(
        &bench(&format!("--profile {}", huge.display()), &[]),
        1,
        &["huge.txt needs", "available"],
    );
}
