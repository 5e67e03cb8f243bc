//! Tests of the NCCL collective on simulated GPUs in the simulator: one seed determines all events,
//! including threads that wait for the device.

#![allow(unsafe_code)] // spans over simulated device memory

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::job::bytes;
use crate::clock::Clock;
use crate::error::{Error, PeerError};
use crate::gpu::DeviceBinding;
use crate::gpu::simulated::{Fabric, Note, SimulatedGpu};
use crate::negotiation::{OpKind, Params};
use crate::queue::{Entry, Output, Ticket};
use crate::simulation::job::Job;
use crate::simulation::member::Member;
use crate::simulation::record::Log;
use crate::sync::lock;
use crate::tensor::{Device, Dtype, ReduceOp, Span};
use crate::transport::simulated::{SimulatedSet, World};

const STEPS: usize = 6;
const TENSORS: usize = 5;
const LENGTH: usize = 23;

/// Results of one rank: its log, and for each step and tensor the sum, or the error.
#[derive(Clone, Debug, Default)]
struct Seen {
    log: Log,
    results: Vec<Result<Vec<u8>, Error>>,
}

/// Runs a job of `ranks` ranks under `seed`. `is_early`: tickets complete when a batch is launched.
/// `death`: a rank, and the number of the submission at which it dies.
fn run(
    ranks: usize,
    seed: u64,
    is_early: bool,
    death: Option<(usize, usize)>,
) -> (Vec<Seen>, Vec<Note>) {
    let world = World::new(ranks, seed);
    let fabric = Fabric::in_world(&world);
    let set = SimulatedSet::new(&world, &(0..ranks).collect::<Vec<_>>());
    let seen: Vec<Arc<Mutex<Seen>>> = (0..ranks).map(|_| Arc::default()).collect();
    let mut logs = Vec::new();
    for (rank, seen) in seen.iter().enumerate() {
        let binding = DeviceBinding::new(fabric.registry(rank), rank).answering_early(is_early);
        let binding = Arc::new(binding);
        let member = Member::on_device(
            &world,
            &set,
            rank,
            Job::default().setup,
            Arc::clone(&binding) as _,
        );
        logs.push(member.log());
        let (in_world, gpu, seen) = (Arc::clone(&world), fabric.gpu(rank), Arc::clone(seen));
        let death = death
            .filter(|(victim, _)| *victim == rank)
            .map(|(_, moment)| moment);
        world.spawn(rank, "its program".into(), move || {
            let results = program(&in_world, &member, &binding, &gpu, rank, death);
            lock(&seen).results = results;
            member.shut_down();
        });
    }
    world.run();
    let seen = seen.iter().zip(logs).map(|(seen, log)| Seen {
        log: lock(&log).clone(),
        ..lock(seen).clone()
    });
    let seen = seen.collect();
    let notes = fabric.notes();
    if let Some((victim, _)) = death {
        let of_victim = format!("device {victim}: ");
        let failures = fabric.failures();
        let others = failures.iter().filter(|text| !text.starts_with(&of_victim));
        let others: Vec<&String> = others.collect();
        assert!(others.is_empty(), "seed {seed}: {others:#?}");
    }
    (seen, notes)
}

/// Submits tensors step after step, at times of the rank's own, and waits for all of a step.
fn program(
    world: &World,
    member: &Member,
    binding: &DeviceBinding,
    gpu: &SimulatedGpu,
    rank: usize,
    death: Option<usize>,
) -> Vec<Result<Vec<u8>, Error>> {
    let stream = gpu.stream();
    let places: Vec<u64> = (0..TENSORS)
        .map(|_| gpu.allocate_with(&[0; LENGTH]))
        .collect();
    let mut results = Vec::new();
    let mut submitted = 0;
    for step in 0..STEPS {
        let submit = |(tensor, &at): (usize, &u64)| -> Result<Arc<Ticket>, Error> {
            submitted += 1;
            if death == Some(submitted) {
                world.kill(rank);
            }
            world.sleep_until(world.now() + Duration::from_micros(world.draw(400)));
            gpu.write_on(stream, at, bytes(rank, tensor + step, LENGTH));
            let mut params =
                Params::plain(OpKind::Allreduce, Dtype::U8, [LENGTH].into_iter().collect());
            params.op = ReduceOp::Sum;
            params.device = Some(rank as u32);
            let on = Device::Cuda {
                ordinal: rank as u32,
                stream: stream.0,
            };
            let address = std::ptr::with_exposed_provenance_mut::<u8>(at as usize);
            member.submit_entry(Entry {
                name: &format!("t{tensor}"),
                params: params.into(),
                // SAFETY: the address is never dereferenced: it is the simulated GPU's, and looked
                // up there.
                span: Some(unsafe { Span::new(address, address, LENGTH) }),
                output: Output::Fixed,
                on: binding
                    .submit(on, true)
                    .expect("its own device")
                    .map(Box::new),
            })
        };
        let tickets: Vec<_> = places.iter().enumerate().map(submit).collect();
        for (ticket, &at) in tickets.into_iter().zip(&places) {
            let outcome = ticket.and_then(|ticket| {
                member.wait(&ticket, None);
                if let Some(ended) = ticket.awaited() {
                    ended.wait().expect("the device goes on");
                }
                ticket.outcome().expect("it was waited for")
            });
            results.push(outcome.map(|()| gpu.read(at, LENGTH)));
        }
    }
    results
}

fn expected(ranks: usize, step: usize, tensor: usize) -> Vec<u8> {
    let all: Vec<Vec<u8>> = (0..ranks)
        .map(|rank| bytes(rank, tensor + step, LENGTH))
        .collect();
    (0..LENGTH)
        .map(|at| all.iter().map(|bytes| bytes[at]).sum())
        .collect()
}

#[test]
fn sums_are_right_under_any_order_of_events() {
    for seed in 0..30 {
        let ranks = 2 + seed as usize % 3;
        let (seen, _) = run(ranks, seed, seed % 2 == 0, None);
        for (rank, one) in seen.iter().enumerate() {
            assert_eq!(
                one.log.device_batches, seen[0].log.device_batches,
                "seed {seed}"
            );
            let tensors: usize = one.log.device_batches.iter().map(Vec::len).sum();
            assert_eq!(
                tensors,
                STEPS * TENSORS,
                "seed {seed}, rank {rank}: nothing lost, nothing twice"
            );
            for (index, result) in one.results.iter().enumerate() {
                let expected = expected(ranks, index / TENSORS, index % TENSORS);
                assert_eq!(
                    result.as_ref().ok(),
                    Some(&expected),
                    "seed {seed}, rank {rank}, tensor {index}: {result:?}"
                );
            }
        }
    }
}

#[test]
fn survivors_are_told_who_died() {
    for seed in 0..20 {
        let ranks = 2 + seed as usize % 3;
        let victim = seed as usize % ranks;
        let moment = 1 + (7 * seed as usize) % (STEPS * TENSORS - TENSORS);
        let (seen, _) = run(ranks, seed, false, Some((victim, moment)));
        for (rank, one) in seen.iter().enumerate().filter(|(rank, _)| *rank != victim) {
            assert_eq!(
                one.results.len(),
                STEPS * TENSORS,
                "seed {seed}, rank {rank} came through"
            );
            assert!(one.results.last().is_some_and(Result::is_err));
            for (index, result) in one.results.iter().enumerate() {
                match result {
                    Ok(sum) => assert_eq!(sum, &expected(ranks, index / TENSORS, index % TENSORS)),
                    Err(Error::Peer(PeerError::Lost { rank, .. })) => assert_eq!(*rank, victim),
                    Err(error) => panic!("seed {seed}, rank {rank}: {error:?}"),
                }
            }
        }
    }
}

#[test]
fn one_seed_gives_one_run() {
    let runs = [0, 1].map(|_| run(3, 42, false, None));
    assert_eq!(
        runs[0].1, runs[1].1,
        "all devices do the same in the same order"
    );
    assert_ne!(runs[0].1, run(3, 43, false, None).1);
}
