//! Hierarchical allreduces of ranks on several simulated hosts, through NCCL, host memory and MPI.
//! `mpirun` must start the ranks: the tests are skipped unless `TEST_RONDE_MPIRUN` names it.

#![allow(unsafe_code)] // sets environment variables

use ronde::internal::identity::Identity;
use ronde::settings::PartialSettings;
use ronde::{Context, CudaVec, ReduceOp};

use crate::forms::Bench;
use crate::sample::How;
use crate::support::{Folder, has_hosts};
use crate::{cases, gpu_job, is_real, reductions};

/// Puts this rank on the host of its letter; returns its context and device.
fn start(hosts: &str) -> (Context, u32) {
    let identity = Identity::from_env().expect("mpirun says who this is");
    let host = &hosts[identity.rank..=identity.rank];
    let rank = identity.rank.to_string();
    // SAFETY: no other thread reads the environment now.
    unsafe {
        std::env::set_var("RONDE_HOST_ID", format!("made-up-{host}"));
        // If all ranks share a device, NCCL requires each rank on a host of its own.
        std::env::set_var("NCCL_HOSTID", if is_real() { &rank } else { host });
    }
    let context = Context::from_env().expect("the job starts");
    let device = if is_real() { 0 } else { identity.rank as u32 };
    (context, device)
}

/// Runs `body` on as many ranks as `hosts` has letters, with hierarchical allreduces; returns
/// whether they are available.
fn on_hosts(
    test: &str,
    hosts: &str,
    env: &[(&str, &str)],
    body: impl FnOnce(&Context, u32),
) -> bool {
    if !has_hosts() {
        return false;
    }
    let mut all = vec![
        ("RONDE_BACKEND", "mpi"),
        ("HOROVOD_HIERARCHICAL_ALLREDUCE", "1"),
    ];
    all.extend(env);
    gpu_job(test, hosts.len(), &all, || {
        let (context, device) = start(hosts);
        body(&context, device);
    });
    true
}

fn bench(context: &Context, device: u32) -> Bench<'_> {
    let mut bench = Bench::new(context, device);
    bench.is_hierarchical = true;
    bench
}

/// Runs all reductions of all types, and one that crosses in many pieces.
fn everything(context: &Context, device: u32) {
    let mut bench = bench(context, device);
    reductions(&mut bench, &[0, 1, 1201]);
    cases::allreduce::<f32>(
        &mut bench,
        How::plain(ReduceOp::Average),
        &[300_001, 1, 65_536],
    );
    cases::allreduce::<f32>(&mut bench, How::plain(ReduceOp::Sum), &[7_000_003]);
}

#[test]
fn two_hosts_of_two() {
    on_hosts("hosts::two_hosts_of_two", "abab", &[], everything);
}

#[test]
fn a_host_of_one_and_one_of_two() {
    on_hosts(
        "hosts::a_host_of_one_and_one_of_two",
        "aba",
        &[],
        everything,
    );
}

#[test]
fn a_host_of_two_and_one_of_three_without_fusion() {
    let env = [("HOROVOD_FUSION_THRESHOLD", "0")];
    let test = "hosts::a_host_of_two_and_one_of_three_without_fusion";
    if !is_real() {
        on_hosts(test, "aabbb", &env, |context, device| {
            let mut bench = bench(context, device);
            cases::allreduce::<f32>(
                &mut bench,
                How::plain(ReduceOp::Average),
                &[70_001, 1, 65_536],
            );
            cases::allreduce::<i64>(&mut bench, How::plain(ReduceOp::Product), &[3, 1201]);
        });
    }
}

/// Sums over all ranks; rank 0 changes between flat and hierarchical in the middle, and ranks leave
/// one after another.
fn changes(context: &Context, device: u32) {
    let (rank, size) = (context.rank(), context.size());
    for active in (1..=size).rev() {
        if rank >= active {
            break;
        }
        for round in 0..8 {
            if rank == 0 && round % 3 == 1 {
                let change = PartialSettings {
                    hierarchical_allreduce: Some(round % 2 == 1),
                    ..PartialSettings::default()
                };
                context.set_settings(change).expect("rank 0 may");
            }
            let submit = |tensor: usize| {
                let mine =
                    CudaVec::from_slice(device, &vec![(rank + tensor) as i64; 10_000 * tensor + 7]);
                let name = format!("sum {tensor}");
                context
                    .allreduce(&name, mine.expect("room"), ReduceOp::Sum)
                    .expect("in")
            };
            let handles: Vec<_> = (0..4).map(submit).collect();
            for (tensor, handle) in handles.into_iter().enumerate() {
                let sum = handle.wait().expect("out").to_vec().expect("read");
                let want: usize = (0..active).map(|rank| rank + tensor).sum();
                assert!(
                    sum.iter().all(|&got| got == want as i64),
                    "{active} ranks, round {round}"
                );
            }
        }
    }
    context.join().expect("all join");
}

#[test]
fn the_way_may_change_and_ranks_may_leave() {
    on_hosts(
        "hosts::the_way_may_change_and_ranks_may_leave",
        "abba",
        &[],
        changes,
    );
}

#[test]
fn the_timeline_has_horovods_names() {
    let folder = Folder::new();
    let timeline = folder.file("t.json");
    let path = timeline.to_str().expect("a name").to_owned();
    let test = "hosts::the_timeline_has_horovods_names";
    let has_run = on_hosts(
        test,
        "aabb",
        &[("HOROVOD_TIMELINE", &path)],
        |context, device| {
            for _ in 0..5 {
                let mine = CudaVec::from_slice(device, &vec![1f32; 3_000_000]).expect("room");
                let sum = context.allreduce("long", mine, ReduceOp::Sum).expect("in");
                let sum = sum.wait().expect("out").to_vec().expect("read");
                assert!(sum.iter().all(|&got| got == 4.0));
            }
        },
    );
    if !has_run {
        return;
    }
    let text = std::fs::read_to_string(&timeline).expect("written");
    let events: Vec<serde_json::Value> = serde_json::from_str(&text).expect("valid JSON");
    let named = |name: &str| events.iter().filter(|event| event["name"] == name).count();
    for name in [
        "NCCL_REDUCESCATTER",
        "MEMCPY_IN_HOST_BUFFER",
        "MPI_ALLREDUCE",
        "MEMCPY_OUT_HOST_BUFFER",
        "NCCL_ALLGATHER",
    ] {
        assert!(named(name) > 0, "no {name}: {text}");
    }
    assert_eq!((named("MPI_ALLREDUCE"), named("NCCL_ALLREDUCE")), (5, 0));
}
