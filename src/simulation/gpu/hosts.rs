//! Tests of hierarchical allreduces on simulated GPUs, with a substitute for the inter-node stage.

#![allow(unsafe_code)] // reads and writes simulated pinned memory

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use super::job::{Rank, Tensors, on_all, start_with};
use super::*;
use crate::collective::reference::reduce_present;
use crate::collective::{Activities, Collective, HostPlace, InterNode, Phases, Reduction};
use crate::gpu::Call;
use crate::sync::lock;
use crate::tensor::Span;

/// Data of one part, by host.
type Parts = Vec<Option<Vec<u8>>>;

/// Shared by the lanes of all hosts: the data that has arrived, by lane and number.
#[derive(Default)]
struct Bridge {
    parts: Mutex<HashMap<(usize, usize), Parts>>,
    changed: Condvar,
    /// Whether a host is lost.
    is_broken: AtomicBool,
}

/// Collective of a rank on which allreduces of GPU tensors are hierarchical.
struct Hosts {
    inner: Box<dyn Collective>,
    bridge: Arc<Bridge>,
    place: HostPlace,
    host: usize,
    begun: usize,
    lent: VecDeque<(usize, Span, Reduction, usize)>,
}

impl Hosts {
    /// Makes the collective of rank `rank`; `hosts` has one letter per rank, its host.
    fn new(inner: Box<dyn Collective>, bridge: &Arc<Bridge>, hosts: &str, rank: usize) -> Self {
        let host = &hosts[rank..=rank];
        let mut names: Vec<char> = hosts.chars().collect();
        names.sort_unstable();
        names.dedup();
        let ranks = |name: &char| hosts.matches(*name).count();
        let lanes = names.iter().map(ranks).min().expect("a host");
        let size = hosts.matches(host).count();
        let place = HostPlace {
            hosts: names.len(),
            first: hosts.find(host).expect("its own"),
            rank: hosts[..rank].matches(host).count(),
            size,
            lanes,
            is_even: names.iter().all(|name| ranks(name) == size),
        };
        Self {
            inner,
            bridge: Arc::clone(bridge),
            place,
            host: names
                .iter()
                .position(|name| host.contains(*name))
                .expect("its own"),
            begun: 0,
            lent: VecDeque::new(),
        }
    }
}

impl InterNode for Hosts {
    fn place(&self) -> HostPlace {
        self.place
    }

    fn activity(&self) -> &'static str {
        "MPI_ALLREDUCE"
    }

    fn begin(&mut self, part: Span, reduction: &Reduction, ranks: usize) {
        self.lent.push_back((self.begun, part, *reduction, ranks));
        self.begun += 1;
    }

    /// Reads the borrowed data as late as possible, so that a change in between is detected.
    fn keep(&mut self) -> Result<(), Error> {
        let (number, part, reduction, ranks) = self.lent.pop_front().expect("something was begun");
        // SAFETY: borrowed until now.
        let own = unsafe { std::slice::from_raw_parts(part.input(), part.bytes()) }.to_vec();
        let key = (self.place.rank, number);
        let mut parts = lock(&self.bridge.parts);
        let of_hosts = parts
            .entry(key)
            .or_insert_with(|| vec![None; self.place.hosts]);
        of_hosts[self.host] = Some(own);
        self.bridge.changed.notify_all();
        loop {
            if self.bridge.is_broken.load(Ordering::Acquire) {
                return Err(Error::Internal {
                    rank: 0,
                    message: "a host is lost".to_owned(),
                });
            }
            let all: Option<Vec<Vec<u8>>> = parts[&key].iter().cloned().collect();
            if let Some(all) = all {
                let reduced = reduce_present(&all, ranks, &reduction);
                // SAFETY: borrowed until now, and not shared.
                unsafe {
                    std::ptr::copy_nonoverlapping(reduced.as_ptr(), part.output(), reduced.len())
                };
                return Ok(());
            }
            let slept = self
                .bridge
                .changed
                .wait_timeout(parts, Duration::from_millis(20));
            parts = slept.expect("nobody panics").0;
        }
    }

    fn give_up(&mut self) {
        self.lent.clear();
    }
}

impl Collective for Hosts {
    fn activities(&self) -> &'static Activities {
        self.inner.activities()
    }

    fn inter_node(&mut self) -> Option<&mut dyn InterNode> {
        Some(self)
    }

    fn allreduce(
        &mut self,
        spans: &[Span],
        reduction: &Reduction,
        absent: &[usize],
    ) -> Result<Phases, Error> {
        self.inner.allreduce(spans, reduction, absent)
    }

    fn broadcast(&mut self, spans: &[Span], root: usize) -> Result<Phases, Error> {
        self.inner.broadcast(spans, root)
    }

    fn allgather(&mut self, spans: &[Span], bytes: &[usize]) -> Result<Phases, Error> {
        self.inner.allgather(spans, bytes)
    }

    fn alltoall(&mut self, spans: &[Span], bytes: &[usize]) -> Result<Phases, Error> {
        self.inner.alltoall(spans, bytes)
    }

    fn reducescatter(
        &mut self,
        spans: &[Span],
        bytes: &[usize],
        reduction: &Reduction,
        absent: &[usize],
    ) -> Result<Phases, Error> {
        self.inner.reducescatter(spans, bytes, reduction, absent)
    }
}

/// Makes a job with a rank for each letter of `hosts`, on the host of that name.
fn job_on(fabric: &Arc<Fabric>, hosts: &str) -> (Vec<Rank>, Arc<Bridge>) {
    let bridge = Arc::<Bridge>::default();
    let collective =
        |rank, inner| -> Box<dyn Collective> { Box::new(Hosts::new(inner, &bridge, hosts, rank)) };
    let ranks = start_with(
        fabric,
        hosts.len(),
        |rank| fabric.registry(rank),
        collective,
    );
    (ranks, bridge)
}

#[test]
fn sums_are_those_of_all_ranks_however_these_are_spread() {
    for (seed, hosts) in [
        "aabb", "abab", "ab", "aab", "abb", "abbb", "abcabc", "aabbb",
    ]
    .into_iter()
    .enumerate()
    {
        let fabric = Fabric::new(seed as u64, hosts.len());
        let (ranks, _) = job_on(&fabric, hosts);
        on_all(&ranks, |rank| {
            // Less than a share's alignment; some pieces and a remainder; more than there are
            // slots.
            for (tensors, length) in [(1, 5), (3, 4_099), (1, 120_007), (2, 64)] {
                Tensors::of(rank, tensors, length).step(rank, hosts.len());
            }
            assert_eq!(
                rank.sum_in_host("host").expect("the job goes on"),
                hosts.len() as u8
            );
        });
        let gpus: Vec<_> = ranks.iter().map(|rank| Arc::clone(&rank.gpu)).collect();
        drop(ranks);
        gpus.iter().for_each(|gpu| {
            assert_clean(gpu.alive(), 7);
            assert_eq!(gpu.alive().in_host, 0, "{hosts}");
        });
    }
}

#[test]
fn a_share_goes_down_to_the_host_and_up_again_between_two_calls() {
    let fabric = Fabric::new(31, 4);
    let (ranks, _) = job_on(&fabric, "aabb");
    on_all(&ranks, |rank| {
        Tensors::of(rank, 3, 640).step(rank, 4);
        let notes = rank.gpu.notes().into_iter();
        let order: Vec<&str> = notes
            .filter_map(|did| match did {
                Did::Launched(stream, _) if stream != rank.stream => Some("copy"),
                Did::Called(_, calls) => Some(match calls[..] {
                    [Call::Reducescatter(_)] => "reduce-scatter",
                    [Call::Allgather { .. }] => "allgather",
                    _ => "other",
                }),
                Did::Downloaded(_) => Some("down"),
                Did::Uploaded(_) => Some("up"),
                _ => None,
            })
            .collect();
        assert_eq!(
            order,
            ["copy", "reduce-scatter", "down", "up", "allgather", "copy"]
        );
        rank.sum_in_host("last").expect("the job goes on"); // the cycle that reports the batch
        let told = rank.told();
        let says = |name: &str| {
            told.iter()
                .any(|told| matches!(told, Told::OnDevice(_, names) if names.contains(&name)))
        };
        assert!(says("MPI_ALLREDUCE") && !says("NCCL_ALLREDUCE"), "{told:?}");
    });
}

#[test]
fn a_rank_without_room_in_host_memory_fails_the_batch_on_all_and_the_job_goes_on() {
    let fabric = Fabric::new(32, 4);
    let (ranks, _) = job_on(&fabric, "abab");
    on_all(&ranks, |rank| {
        let at = rank.gpu.allocate_with(&[1; 4]);
        let entry = rank.entry("w", at, 4);
        if rank.rank == 2 {
            rank.gpu.fail_next(
                "allocate_host",
                GpuError::NoDevice {
                    ordinal: 7,
                    count: 1,
                },
            );
        }
        let ticket = rank.engine.queue.submit(entry).expect("submitted");
        let error = rank.wait(&ticket).expect_err("rank 2 has no memory");
        assert!(error.to_string().contains("no CUDA device 7"), "{error}");
        Tensors::of(rank, 2, 10).step(rank, 4); // opening the device is tried again
    });
}

#[test]
fn a_lost_host_is_an_error_on_every_rank_and_nothing_is_left() {
    let fabric = Fabric::new(33, 4);
    let (ranks, bridge) = job_on(&fabric, "aabb");
    on_all(&ranks, |rank| Tensors::of(rank, 2, 30_000).step(rank, 4));
    bridge.is_broken.store(true, Ordering::Release);
    on_all(&ranks, |rank| {
        for ticket in Tensors::of(rank, 2, 30_000).submit(rank) {
            let error = rank.wait(&ticket).expect_err("a host is lost");
            assert!(error.to_string().contains("a host is lost"), "{error}");
        }
    });
    let gpus: Vec<_> = ranks.iter().map(|rank| Arc::clone(&rank.gpu)).collect();
    drop(ranks);
    for gpu in gpus {
        assert_clean(gpu.alive(), 4);
        assert_eq!(gpu.alive().in_host, 0);
    }
}
