//! Tests of tensors on GPUs, between real processes. Without a GPU, libcuda and libnccl are those
//! of `tests/fake_cuda`, which compute on the CPU; with `TEST_RONDE_GPU=real` NVIDIA's are loaded,
//! and all ranks share device 0.

#[path = "../operations/matrix/cases.rs"]
#[allow(dead_code, reason = "the table of host memory has more of them")]
mod cases;
mod failures;
mod forms;
mod hosts;
mod jobs;
#[path = "../operations/matrix/part.rs"]
mod part;
#[path = "../operations/matrix/sample.rs"]
#[allow(dead_code, reason = "of which results here are compared otherwise")]
mod sample;
#[path = "../support/mod.rs"]
mod support;

use half::{bf16, f16};
use ronde::{Context, Element, ReduceOp};
use support::Outcome;
use support::fake_cuda::libraries;

use forms::Bench;
use sample::{How, Sample};

/// Whether the libraries are NVIDIA's.
pub(crate) fn is_real() -> bool {
    std::env::var("TEST_RONDE_GPU").is_ok_and(|value| value == "real")
}

/// Makes ranks that share a device communicate over sockets, as NCCL does between hosts.
pub(crate) const SHARED_DEVICE: [(&str, &str); 3] = [
    ("NCCL_SOCKET_IFNAME", "lo"),
    ("NCCL_P2P_DISABLE", "1"),
    ("NCCL_SHM_DISABLE", "1"),
];

/// Runs a job of ranks that have a GPU each, or share the real one.
pub(crate) fn gpu_job(
    test: &str,
    ranks: usize,
    env: &[(&str, &str)],
    body: impl FnOnce(),
) -> Vec<Outcome> {
    let (devices, mut all) = (ranks.to_string(), env.to_vec());
    let is_rank = std::env::var_os("TEST_RONDE_BODY").is_some();
    let folder = if is_rank || is_real() {
        ""
    } else {
        libraries()
    };
    if is_real() {
        all.extend(SHARED_DEVICE);
    } else {
        all.push(("LD_LIBRARY_PATH", folder));
        if !env.iter().any(|(name, _)| *name == "FAKE_CUDA_DEVICES") {
            all.push(("FAKE_CUDA_DEVICES", &devices));
        }
    }
    support::job_with(test, ranks, &all, body)
}

/// Returns the context of a rank, and its device.
#[allow(unsafe_code)] // sets an environment variable
pub(crate) fn start() -> (Context, u32) {
    if is_real() {
        let rank = std::env::var("HOROVOD_RANK").expect("a rank");
        // SAFETY: no other thread reads the environment now.
        unsafe { std::env::set_var("NCCL_HOSTID", rank) };
    }
    let context = Context::from_env().expect("the job starts");
    let device = if is_real() {
        0
    } else {
        context.local_rank() as u32
    };
    (context, device)
}

/// Runs all operations, on all element types, of several tensors at once, one after another and out
/// of place.
fn table(test: &str, ranks: usize, env: &[(&str, &str)]) {
    gpu_job(test, ranks, env, || {
        let (context, device) = start();
        let mut bench = Bench::new(&context, device);
        small::<u8>(&mut bench);
        small::<i8>(&mut bench);
        small::<i16>(&mut bench);
        small::<i32>(&mut bench);
        small::<i64>(&mut bench);
        small::<f16>(&mut bench);
        small::<bf16>(&mut bench);
        small::<f32>(&mut bench);
        small::<f64>(&mut bench);
        small::<bool>(&mut bench);
        cases::allreduce::<f32>(
            &mut bench,
            How::plain(ReduceOp::Average),
            &[300_001, 1, 65_536],
        );
    });
}

/// Runs all allreduces of tensors of these numbers of elements.
pub(crate) fn reductions(bench: &mut Bench<'_>, lengths: &[usize]) {
    fn of<T: Sample>(bench: &mut Bench<'_>, lengths: &[usize]) {
        for how in How::all()
            .into_iter()
            .filter(|how| how.is_defined_for(T::DTYPE))
        {
            cases::allreduce::<T>(bench, how, lengths);
        }
    }
    of::<u8>(bench, lengths);
    of::<i8>(bench, lengths);
    of::<i16>(bench, lengths);
    of::<i32>(bench, lengths);
    of::<i64>(bench, lengths);
    of::<f16>(bench, lengths);
    of::<bf16>(bench, lengths);
    of::<f32>(bench, lengths);
    of::<f64>(bench, lengths);
    of::<bool>(bench, lengths);
}

fn small<T: Sample>(bench: &mut Bench<'_>) {
    let lengths = [0, 1, 1201];
    for how in How::all()
        .into_iter()
        .filter(|how| how.is_defined_for(T::DTYPE))
    {
        cases::allreduce::<T>(bench, how, &lengths);
        cases::reducescatter::<T>(bench, how, &[(0, 3), (1, 1), (13, 1), (667, 3), (4, 0)]);
    }
    let size = bench.size();
    cases::broadcast::<T>(bench, T::DTYPE as usize % size, &lengths);
    cases::allgather_small::<T>(bench);
    cases::alltoall_small::<T>(bench);
}

#[test]
fn one_rank() {
    table("one_rank", 1, &[]);
}

#[test]
fn two_ranks() {
    table("two_ranks", 2, &[]);
}

#[test]
fn two_ranks_without_fusion() {
    table(
        "two_ranks_without_fusion",
        2,
        &[("HOROVOD_FUSION_THRESHOLD", "0")],
    );
}

#[test]
fn three_ranks_on_a_slow_device() {
    if !is_real() {
        table(
            "three_ranks_on_a_slow_device",
            3,
            &[("FAKE_CUDA_DELAY_US", "300")],
        );
    }
}

/// Name of an element type, for messages.
pub(crate) fn name<T: Element>() -> &'static str {
    T::DTYPE.name()
}
