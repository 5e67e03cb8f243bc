//! Tests of batches on simulated GPUs, from submission to completion: order, endings, and failures.
//!
//! Cycle, transport and the NCCL collective are the real ones, the ranks are threads, and a
//! [`Fabric`] has the devices. In `seeded` the ranks are those of the simulator.

use std::sync::Arc;
use std::time::Duration;

use crate::device::Stream;
use crate::error::Error;
use crate::gpu::simulated::{Alive, Did, Fabric};
use crate::gpu::{DeviceBinding, GpuError, Kernel, Registry};
use crate::negotiation::OpKind;

mod ahead;
mod endings;
mod hosts;
mod job;
mod seeded;

use job::{Rank, Tensors, Told, job, on_all, start};

/// Only the callers' tensors and streams exist at the end, and events that the next context uses.
fn assert_clean(alive: Alive, tensors: usize) {
    let left = (alive.allocations, alive.streams, alive.communicators);
    assert_eq!(left, (tensors, 1, 0), "{alive:?}");
}

#[test]
fn copies_in_sums_copies_out_and_only_then_completes() {
    for seed in 0..6 {
        let fabric = Fabric::new(seed, 3);
        let ranks = job(&fabric, 3);
        on_all(&ranks, |rank| {
            let tensors = Tensors::of(rank, 4, 37);
            for ticket in tensors.submit(rank) {
                rank.wait(&ticket).expect("nothing is broken");
                rank.gpu.say("over");
            }
            tensors.check(rank, 3);
            let notes = rank.gpu.notes().into_iter();
            let order: Vec<String> = notes
                .filter_map(|did| match did {
                    Did::Launched(stream, launch) if stream != rank.stream => {
                        Some(format!("{:?} of {}", launch.kernel, launch.entries.len()))
                    }
                    Did::Called(_, calls) => Some(format!("{} call", calls.len())),
                    Did::Wrote(_) => Some("data".to_owned()),
                    Did::Said(what) => Some(what),
                    _ => None,
                })
                .collect();
            let copies = format!("{:?} of 4", Kernel::Copy);
            let over = ["over"; 4];
            let expected = ["data", "data", "data", "data", &copies, "1 call", &copies];
            assert_eq!(
                order,
                [&expected[..], &over].concat(),
                "rank {}, seed {seed}",
                rank.rank
            );
        });
        let gpus: Vec<_> = ranks.iter().map(|rank| Arc::clone(&rank.gpu)).collect();
        drop(ranks);
        gpus.iter().for_each(|gpu| assert_clean(gpu.alive(), 4));
    }
}

#[test]
fn later_steps_make_nothing_new() {
    let fabric = Fabric::new(11, 2);
    let ranks = job(&fabric, 2);
    on_all(&ranks, |rank| {
        let tensors = Tensors::of(rank, 3, 100);
        tensors.step(rank, 2);
        let before = rank.gpu.notes().len();
        (0..20).for_each(|_| tensors.step(rank, 2));
        let notes = rank.gpu.notes().split_off(before);
        let is_new = |did: &&Did| {
            matches!(
                did,
                Did::Allocated { .. }
                    | Did::Freed { .. }
                    | Did::MadeStream(_)
                    | Did::Joined(_)
                    | Did::DestroyedEvent(_)
            )
        };
        assert_eq!(notes.iter().find(is_new), None);
        // Events of a completed step may not be returned before the next step needs its own; one
        // event is that of the clock's anchor.
        assert!(
            rank.gpu.alive().events <= 2 * (3 + 4) + 1,
            "{:?}",
            rank.gpu.alive()
        );
    });
}

#[test]
fn a_batch_waits_for_its_callers_data_and_holds_up_no_tensor_in_host_memory() {
    let fabric = Fabric::new(12, 2);
    let ranks = job(&fabric, 2);
    on_all(&ranks, |rank| {
        let early = Tensors::of(rank, 1, 8);
        early.step(rank, 2); // batches launched before have ended
        let hold = rank.gpu.hold(rank.stream);
        let tensors = Tensors::of(rank, 2, 50);
        let tickets = tensors.submit(rank);
        for step in 0..3 {
            assert_eq!(
                rank.sum_in_host(&format!("host{step}"))
                    .expect("the job goes on"),
                2
            );
        }
        assert!(
            tickets.iter().all(|ticket| !ticket.is_done()),
            "its data is not there yet"
        );
        rank.gpu.release(hold);
        for ticket in tickets {
            rank.wait(&ticket).expect("nothing is broken");
        }
        tensors.check(rank, 2);
    });
}

#[test]
fn a_batch_waits_for_the_last_mark_whatever_the_order_of_submission() {
    for is_reversed in [false, true] {
        let fabric = Fabric::new(19, 2);
        let ranks = job(&fabric, 2);
        on_all(&ranks, |rank| {
            let at = [0, 1].map(|_| rank.gpu.allocate_with(&[1; 6]));
            let first = rank.entry("first", at[0], 6);
            let hold = rank.gpu.hold(rank.stream);
            rank.gpu.write_on(rank.stream, at[1], vec![5; 6]);
            let second = rank.entry("second", at[1], 6);
            let entries = if is_reversed {
                vec![second, first]
            } else {
                vec![first, second]
            };
            let tickets = rank.engine.queue.submit_group(entries).expect("submitted");
            rank.sum_in_host("host").expect("the job goes on");
            std::thread::sleep(Duration::from_millis(20));
            assert!(
                tickets.iter().all(|ticket| !ticket.is_done()),
                "the second one's data is not there yet"
            );
            rank.gpu.release(hold);
            for ticket in tickets {
                rank.wait(&ticket).expect("nothing is broken");
            }
            assert_eq!(
                (rank.gpu.read(at[0], 6), rank.gpu.read(at[1], 6)),
                (vec![2; 6], vec![10; 6])
            );
        });
    }
}

#[test]
fn one_tensor_after_another_and_both_kinds_at_once() {
    let fabric = Fabric::new(13, 2);
    let ranks = job(&fabric, 2);
    on_all(&ranks, |rank| {
        for step in 0..5u8 {
            let at = rank.gpu.allocate_with(&[step + rank.rank as u8; 5]);
            let mut data = [step; 3];
            let entries = vec![
                rank.entry("on the GPU", at, 5),
                Rank::in_host("in host memory", &mut data),
            ];
            for ticket in rank.engine.queue.submit_group(entries).expect("submitted") {
                rank.wait(&ticket).expect("nothing is broken");
            }
            assert_eq!(rank.gpu.read(at, 5), [2 * step + 1; 5]);
            assert_eq!(data, [2 * step; 3]);
        }
    });
}

#[test]
fn observers_hear_of_a_batch_once_and_before_its_tensors_come_again() {
    const STEPS: usize = 30;
    let fabric = Fabric::new(14, 2);
    let ranks = job(&fabric, 2);
    on_all(&ranks, |rank| {
        let tensors = Tensors::of(rank, 2, 9);
        (0..STEPS).for_each(|_| tensors.step(rank, 2));
        rank.sum_in_host("last").expect("the job goes on"); // the cycle that reports the last batch
    });
    for rank in &ranks {
        let told = rank.told();
        let batches = told
            .iter()
            .filter(|told| matches!(told, Told::OnDevice(..)));
        assert_eq!(batches.count(), STEPS, "{told:?}");
        let names = |told: &Told| matches!(told, Told::OnDevice(_, activities) if activities.contains(&"NCCL_ALLREDUCE"));
        assert!(told.iter().any(names), "{told:?}");
        if rank.rank == 0 {
            let of_tensor = told.iter().filter_map(|told| match told {
                Told::Negotiated(name) if name == "t0" => Some('n'),
                Told::OnDevice(names, _) if names.iter().any(|name| name == "t0") => Some('e'),
                _ => None,
            });
            assert_eq!(of_tensor.collect::<String>(), "ne".repeat(STEPS));
        }
    }
}

#[test]
fn a_rank_without_a_device_fails_the_batch_on_all_and_the_job_goes_on() {
    let fabric = Fabric::new(15, 3);
    // Rank 1's device exists, but no stream can be created on it.
    let ranks = start(&fabric, 3, |rank| fabric.registry(rank));
    on_all(&ranks, |rank| {
        if rank.rank == 1 {
            let at = rank.gpu.allocate_with(&[1; 4]);
            let entry = rank.entry("w", at, 4);
            rank.gpu.fail_next(
                "make_stream",
                GpuError::NoDevice {
                    ordinal: 1,
                    count: 1,
                },
            );
            let ticket = rank.engine.queue.submit(entry).expect("submitted");
            let error = rank.wait(&ticket).expect_err("there is none");
            assert!(error.to_string().contains("no CUDA device 1"), "{error}");
        } else {
            let at = rank.gpu.allocate_with(&[1; 4]);
            let error = rank
                .wait(&rank.submit("w", at, 4))
                .expect_err("rank 1 has none");
            let text = error.to_string();
            assert!(
                text.contains("rank 1 cannot") && text.contains("no CUDA device 1"),
                "{text}"
            );
        }
        assert_eq!(rank.sum_in_host("host").expect("the job goes on"), 3);
        Tensors::of(rank, 2, 10).step(rank, 3); // opening the device is tried again
    });
    assert!(
        ranks
            .iter()
            .all(|rank| rank.told().contains(&Told::Refused("w".to_owned())))
    );
}

#[test]
fn a_rank_whose_process_sees_no_device_says_so_when_it_takes_part() {
    let fabric = Fabric::new(16, 2);
    let none = || {
        Arc::new(Registry::new(Box::new(|_| Err(GpuError::NotBuilt)), || {
            Err(GpuError::NotBuilt)
        }))
    };
    let ranks = start(&fabric, 2, |rank| {
        if rank == 1 {
            none()
        } else {
            fabric.registry(rank)
        }
    });
    on_all(&ranks, |rank| {
        if rank.rank == 1 {
            let ticket = rank.without_data(crate::negotiation::JOIN, OpKind::Join);
            rank.wait(&ticket).expect("all have joined");
            return;
        }
        let at = rank.gpu.allocate_with(&[1; 4]);
        let error = rank
            .wait(&rank.submit("w", at, 4))
            .expect_err("rank 1 has none");
        assert!(error.to_string().contains("rank 1 cannot"), "{error}");
        let ticket = rank.without_data(crate::negotiation::JOIN, OpKind::Join);
        rank.wait(&ticket).expect("all have joined");
    });
}

#[test]
fn a_rank_that_has_joined_takes_part() {
    for seed in 0..4 {
        let fabric = Fabric::new(seed, 2);
        let ranks = job(&fabric, 2);
        on_all(&ranks, |rank| {
            let tensors = Tensors::of(rank, 2, 20);
            tensors.step(rank, 2);
            if rank.rank == 1 {
                let ticket = rank.without_data(crate::negotiation::JOIN, OpKind::Join);
                rank.wait(&ticket).expect("all have joined");
                return;
            }
            // Known tensors and a new one, at once: rank 1 knows the former from its cache and the
            // latter from rank 0.
            let other = rank.gpu.allocate_with(&[9; 20]);
            let places: Vec<u64> = (0..2)
                .map(|tensor| rank.gpu.allocate_with(&job::bytes(0, tensor, 20)))
                .collect();
            let mut entries = vec![rank.entry("new", other, 20)];
            let names = ["t0", "t1"];
            entries.extend(
                names
                    .iter()
                    .zip(&places)
                    .map(|(name, &at)| rank.entry(name, at, 20)),
            );
            for ticket in rank.engine.queue.submit_group(entries).expect("submitted") {
                rank.wait(&ticket).expect("nothing is broken");
            }
            assert_eq!(rank.gpu.read(other, 20), [9; 20]);
            for (tensor, &at) in places.iter().enumerate() {
                assert_eq!(rank.gpu.read(at, 20), job::bytes(0, tensor, 20));
            }
            let ticket = rank.without_data(crate::negotiation::JOIN, OpKind::Join);
            rank.wait(&ticket).expect("all have joined");
        });
    }
}

#[test]
fn out_of_memory_makes_batches_smaller_and_results_no_less_right() {
    const MIB: usize = 1 << 20;
    let fabric = Fabric::new(17, 2);
    let ranks = job(&fabric, 2);
    ranks[1].gpu.out_of_memory_above(2 * MIB);
    on_all(&ranks, |rank| {
        let tensors = Tensors::of(rank, 3, MIB);
        for step in 0..2 {
            let before = rank.gpu.notes().len();
            tensors.step(rank, 2);
            let notes = rank.gpu.notes().split_off(before);
            let count = |what: fn(&Did) -> bool| notes.iter().filter(|did| what(did)).count();
            assert_eq!(
                count(|did| matches!(did, Did::Called(..))),
                2,
                "two tensors fit, and one is left"
            );
            let allocated = count(|did| matches!(did, Did::Allocated { .. }));
            assert_eq!(
                allocated,
                usize::from(step == 0),
                "it is not tried for ever"
            );
        }
    });
}

#[test]
fn a_stream_that_records_a_graph_and_a_device_that_is_not_there_are_refused_at_once() {
    let fabric = Fabric::new(20, 1);
    let binding = DeviceBinding::new(fabric.registry(0), 0);
    let gpu = fabric.gpu(0);
    let (stream, captured) = (gpu.stream(), gpu.stream());
    gpu.capture(captured);
    let submitted = |ordinal, stream: Stream| {
        let device = crate::tensor::Device::Cuda {
            ordinal,
            stream: stream.0,
        };
        binding.submit(device, false).err()
    };
    assert_eq!(submitted(0, stream), None);
    assert_eq!(submitted(0, captured), Some(GpuError::Capturing));
    assert_eq!(
        submitted(1, stream),
        Some(GpuError::NoDevice {
            ordinal: 1,
            count: 1
        })
    );
}

#[test]
fn a_name_on_the_gpu_of_one_rank_and_in_the_host_memory_of_another_is_refused_with_both() {
    let fabric = Fabric::new(18, 2);
    let ranks = job(&fabric, 2);
    on_all(&ranks, |rank| {
        let error = if rank.rank == 0 {
            let at = rank.gpu.allocate_with(&[1; 1]);
            rank.wait(&rank.submit("w", at, 1))
                .expect_err("they do not fit")
        } else {
            rank.sum_in_host("w").expect_err("they do not fit")
        };
        let text = error.to_string();
        assert!(
            text.contains("GPU") && text.contains("CPU") && text.contains("rank 1"),
            "{text}"
        );
    });
}
