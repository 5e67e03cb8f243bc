//! Tests of failures on GPUs, and of their error messages.

#![allow(unsafe_code)] // submits device memory

use std::time::{Duration, Instant};

use ronde::{Context, CudaVec, Error, GpuError, PeerError, ReduceOp};

use crate::sample::How;
use crate::{SHARED_DEVICE, forms, gpu_job, is_real, start, support};

/// Time within which a survivor has its error, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);

fn vector(device: u32, elements: usize) -> Result<CudaVec<f32>, GpuError> {
    CudaVec::from_slice(device, &vec![1.0; elements])
}

/// A rank of a job that continues after an error: operations in host memory still work.
fn goes_on(context: &Context) {
    let sum = context
        .allreduce("goes on", vec![1i32], ReduceOp::Sum)
        .expect("in");
    assert_eq!(sum.wait().expect("out"), [context.size() as i32]);
}

#[test]
fn libraries_that_are_missing_or_old_are_named() {
    let text = |env: &[(&str, &str)], test: &str| {
        let outcomes = gpu_job(test, 1, env, || {
            let device = if std::env::var("FAKE_CUDA_DEVICES").is_ok_and(|count| count == "2") {
                5
            } else {
                0
            };
            let error = vector(device, 1).expect_err("there is no device to be had");
            println!("\nsaid: {error}");
        });
        outcomes.first().map(|outcome| outcome.output.clone())
    };
    if is_real() {
        return;
    }
    let test = "failures::libraries_that_are_missing_or_old_are_named";
    let cases = [
        (
            ("FAKE_CUDA_INIT_ERROR", "100"),
            &["cuInit", "CUDA_ERROR_NO_DEVICE"][..],
        ),
        (
            ("FAKE_CUDA_VERSION", "11040"),
            &["11.4", "11.8", "newer driver"],
        ),
        (("FAKE_NCCL_VERSION", "2804"), &["NCCL", "2.8.4", "2.14"]),
        (
            ("FAKE_CUDA_DEVICES", "2"),
            &["no CUDA device 5", "sees 2", "CUDA_VISIBLE_DEVICES"],
        ),
        (
            ("FAKE_CUDA_MEMORY_BYTES", "1"),
            &["CUDA device 0", "less than 4 bytes of free memory"],
        ),
    ];
    for (variable, words) in cases {
        let Some(text) = text(&[variable], test) else {
            return;
        };
        assert!(
            words.iter().all(|word| text.contains(word)),
            "{variable:?}: {text}"
        );
    }
}

#[test]
fn without_a_driver_it_is_said_what_was_looked_for() {
    if is_real() {
        return;
    }
    let test = "failures::without_a_driver_it_is_said_what_was_looked_for";
    support::job_with(test, 2, &[("LD_LIBRARY_PATH", "")], || {
        let context = Context::from_env().expect("the job starts");
        let Err(error) = vector(0, 1) else {
            return; // a machine with a driver
        };
        let text = error.to_string();
        for word in ["libcuda", "libcuda.so", "driver"] {
            assert!(text.contains(word), "{text}");
        }
        goes_on(&context);
    });
}

#[test]
fn a_tensor_on_another_device_is_refused_at_once() {
    if is_real() {
        return;
    }
    let env = [("FAKE_CUDA_DEVICES", "4")];
    gpu_job(
        "failures::a_tensor_on_another_device_is_refused_at_once",
        2,
        &env,
        || {
            let (context, device) = start();
            let first = vector(device, 10).expect("room");
            context
                .allreduce("first", first, ReduceOp::Sum)
                .expect("in")
                .wait()
                .expect("out");
            let second = vector(device + 2, 10).expect("room");
            let error = context
                .allreduce("second", second, ReduceOp::Sum)
                .expect_err("refused")
                .error;
            let text = error.to_string();
            let expected = format!(
                "on CUDA device {device}, and the tensor on device {}",
                device + 2
            );
            assert!(text.contains(&expected) && text.contains("rank"), "{text}");
            goes_on(&context);
        },
    );
}

#[test]
fn host_memory_on_one_rank_and_a_gpu_on_the_other_is_an_error_that_names_both() {
    let test =
        "failures::host_memory_on_one_rank_and_a_gpu_on_the_other_is_an_error_that_names_both";
    gpu_job(test, 2, &[], || {
        let (context, device) = start();
        let error = if context.rank() == 0 {
            let handle = context
                .allreduce("mixed", vec![1.0f32; 10], ReduceOp::Sum)
                .expect("in");
            handle.wait().expect_err("refused").error
        } else {
            let tensor = vector(device, 10).expect("room");
            let handle = context
                .allreduce("mixed", tensor, ReduceOp::Sum)
                .expect("in");
            handle.wait().expect_err("refused").error
        };
        let text = error.to_string();
        for word in [
            "CPU/GPU device selection",
            "rank 1 has GPU",
            "rank 0 has CPU",
        ] {
            assert!(text.contains(word), "{text}");
        }
        goes_on(&context);
    });
}

#[test]
fn two_ranks_on_one_gpu_are_told_what_to_do() {
    if is_real() {
        return; // with a real GPU, all tests do this
    }
    let env = [("FAKE_CUDA_DEVICES", "1")];
    gpu_job(
        "failures::two_ranks_on_one_gpu_are_told_what_to_do",
        2,
        &env,
        || {
            let context = Context::from_env().expect("the job starts");
            let tensor = vector(0, 10).expect("room");
            let handle = context
                .allreduce("same", tensor, ReduceOp::Sum)
                .expect("in");
            let error = handle.wait().expect_err("refused").error;
            // From another rank comes the beginning of its text.
            let is_own = !matches!(error, Error::Peer(_));
            let text = error.to_string();
            assert!(
                text.contains("Duplicate GPU") && (text.contains("NCCL_HOSTID") || !is_own),
                "{text}"
            );
        },
    );
}

#[test]
fn a_rank_that_dies_ends_what_is_on_the_device() {
    let test = "failures::a_rank_that_dies_ends_what_is_on_the_device";
    let Some(job) = start_job(test, &[], || {
        let (context, device) = start();
        for step in 0.. {
            let tensors: Vec<_> = (0..20)
                .map(|_| vector(device, 10_000).expect("room"))
                .collect();
            let submit =
                |(index, tensor)| context.allreduce(&format!("t{index}"), tensor, ReduceOp::Sum);
            let handles: Result<Vec<_>, _> = tensors.into_iter().enumerate().map(submit).collect();
            if context.rank() == 1 && step == 10 {
                kill_self(); // with a step in flight
            }
            let began = Instant::now();
            let outcome = handles.map_err(|failed| failed.error).and_then(|handles| {
                let outcomes: Vec<_> = handles
                    .into_iter()
                    .map(|handle| handle.wait().map(drop))
                    .collect();
                outcomes
                    .into_iter()
                    .collect::<Result<(), _>>()
                    .map_err(|failed| failed.error)
            });
            if let Err(error) = outcome {
                assert!(began.elapsed() < DEADLINE, "{:?}", began.elapsed());
                assert!(
                    matches!(
                        error,
                        Error::Peer(PeerError::Lost { rank: 1, .. }) | Error::Device(_)
                    ),
                    "{error:?}"
                );
                return;
            }
        }
    }) else {
        return;
    };
    let outcomes = job.finish();
    assert!(outcomes[0].status.success(), "{}", outcomes[0].output);
    assert!(!outcomes[1].status.success());
}

/// A step of raw tensors whose caller's stream waits for the results; the caller waits for nothing
/// else.
fn step_ahead(context: &Context, device: u32, tensors: &[CudaVec<f32>]) -> Result<(), Error> {
    let submit = |(index, tensor): (usize, &CudaVec<f32>)| {
        let (name, shape) = (format!("t{index}"), [tensor.len()]);
        let sum = How::plain(ReduceOp::Sum).allreduce();
        // SAFETY: the tensors outlive the context, and are accessed only on the stream.
        unsafe { context.submit(&sum, &forms::in_place(&name, &shape, tensor, device)) }
    };
    let handles: Result<Vec<_>, _> = tensors.iter().enumerate().map(submit).collect();
    for handle in handles? {
        handle.wait()?;
        assert!(handle.is_ahead());
        // SAFETY: the default stream.
        unsafe { handle.put_before(0)? };
    }
    Ok(())
}

#[test]
fn a_caller_that_runs_ahead_of_the_device_is_told_of_a_lost_rank() {
    let test = "failures::a_caller_that_runs_ahead_of_the_device_is_told_of_a_lost_rank";
    let env = [
        ("HOROVOD_ENABLE_ASYNC_COMPLETION", "1"),
        ("FAKE_CUDA_DELAY_US", "300"),
    ];
    let Some(job) = start_job(test, &env, || {
        let (context, device) = start();
        let tensors: Vec<_> = (0..20)
            .map(|_| vector(device, 10_000).expect("room"))
            .collect();
        for step in 0.. {
            if context.rank() == 1 && step == 10 {
                kill_self(); // launched steps are still on the device
            }
            let began = Instant::now();
            if let Err(error) = step_ahead(&context, device, &tensors) {
                assert!(began.elapsed() < DEADLINE, "{:?}", began.elapsed());
                let is_told = matches!(
                    error,
                    Error::Peer(PeerError::Lost { rank: 1, .. }) | Error::Device(_)
                );
                assert!(is_told && step >= 10, "step {step}: {error:?}");
                return;
            }
            if step < 10 {
                // Later work on the stream reads the results of all steps so far.
                let want = 2f32.powi(step + 1);
                let got = tensors[19].to_vec().expect("read");
                assert!(
                    got.iter().all(|&got| got == want),
                    "step {step}: {} where {want}",
                    got[0]
                );
            }
        }
    }) else {
        return;
    };
    let outcomes = job.finish();
    assert!(outcomes[0].status.success(), "{}", outcomes[0].output);
    assert!(!outcomes[1].status.success());
}

/// Runs a job of two ranks, one of which may die.
fn start_job(test: &str, env: &[(&str, &str)], body: impl FnOnce()) -> Option<support::Job> {
    let mut all = vec![("FAKE_CUDA_DEVICES", "2")];
    if is_real() {
        all.extend(SHARED_DEVICE);
    } else {
        all.push(("LD_LIBRARY_PATH", crate::support::fake_cuda::libraries()));
    }
    all.extend_from_slice(env);
    support::start(test, 2, &all, body)
}

/// Ends this process as `kill -9` does.
fn kill_self() {
    let id = std::process::id().to_string();
    let _ = std::process::Command::new("kill")
        .args(["-9", &id])
        .status();
    std::thread::sleep(Duration::from_secs(60));
}
