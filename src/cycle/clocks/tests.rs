//! Clock rounds over a real transport, between clocks with known offsets. (Drift and delays:
//! `simulation::clocks`.)

use std::time::Duration;

use super::*;
use crate::clock::{Clock, MonotonicClock};
use crate::collective::asynchronous::NoDevice;
use crate::collective::local::LocalCollective;
use crate::cycle::Parts;
use crate::negotiation::ResponseCache;
use crate::observer::NoObserver;
use crate::queue::TensorQueue;
use crate::rendezvous::{Patience, RendezvousConfig};
use crate::settings_cell::SettingsSource;
use crate::transport::local::LocalTransport;
use crate::transport::{Combine, Contribution, Doorbell, Transport};

/// Local transport that reports its ranks as ranks of different hosts.
struct Remote(LocalTransport);

impl Transport for Remote {
    fn rank(&self) -> usize {
        self.0.rank()
    }
    fn size(&self) -> usize {
        self.0.size()
    }
    fn shares_clock(&self) -> bool {
        false
    }
    fn exchange(
        &mut self,
        cycle: u64,
        block: &Contribution<'_>,
        combine: &mut dyn Combine,
    ) -> Result<(), Error> {
        self.0.exchange(cycle, block, combine)
    }
    fn gather(&mut self, frame: &[u8], frames: &mut Vec<Vec<u8>>) -> Result<(), Error> {
        self.0.gather(frame, frames)
    }
    fn broadcast(&mut self, frame: &mut Vec<u8>) -> Result<(), Error> {
        self.0.broadcast(frame)
    }
    fn doorbell(&self) -> Arc<dyn Doorbell> {
        self.0.doorbell()
    }
    fn check_peers(&mut self) -> Result<(), Error> {
        self.0.check_peers()
    }
    fn leave(&mut self, because: Option<&Error>) {
        self.0.leave(because);
    }
}

/// The machine's clock, set forward by a fixed offset.
struct Ahead(Duration);

impl Clock for Ahead {
    fn now(&self) -> Nanos {
        MonotonicClock.now() + self.0
    }
}

/// Offset of rank `rank`'s clock to the machine's.
fn ahead(rank: usize) -> Duration {
    Duration::from_secs(1_000) * rank as u32
}

/// Makes a cycle of rank `rank` of `size`, in a new set.
fn cycle(rank: usize, size: usize, reference: &Arc<Reference>) -> Cycle {
    let patience = Patience {
        spin: Duration::ZERO,
        warn_after: Duration::ZERO,
        give_up_after: Some(Duration::from_secs(60)),
    };
    let config = RendezvousConfig {
        job_key: format!("test-clocks-{}-{size}", std::process::id()),
        init: 0,
        rank,
        members: (0..size).collect(),
        start_timeout: Duration::from_secs(30),
        warn_after: Duration::ZERO,
        host_key: "host".to_owned(),
        contract: Vec::new(),
        alarm: None,
    };
    let data_bytes = LocalCollective::required_bytes(size);
    let opened = LocalTransport::open(&config, 1, data_bytes, |_| patience).expect("all come");
    let doorbell = opened.transport.doorbell();
    Cycle::new(Parts {
        members: (0..size).collect(),
        transport: Box::new(Remote(opened.transport)),
        collective: Box::new(LocalCollective::new(
            opened.data,
            rank,
            size,
            Duration::ZERO,
            opened.watch,
        )),
        observer: Box::new(NoObserver),
        queue: Arc::new(TensorQueue::new(
            rank,
            true,
            doorbell,
            Arc::new(Ahead(ahead(rank))),
        )),
        cache: ResponseCache::new(64, 64),
        reference: Arc::clone(reference),
        is_world: true,
        settings: SettingsSource::Decides(Arc::default()),
        early: true,
        device: Arc::new(NoDevice),
    })
}

#[test]
fn the_first_cycle_finds_out_how_clocks_are_set() {
    for size in [2, 4] {
        let references: Vec<Arc<Reference>> = (0..size).map(|_| Arc::default()).collect();
        std::thread::scope(|scope| {
            for (rank, reference) in references.iter().enumerate() {
                scope.spawn(move || {
                    let mut cycle = cycle(rank, size, reference);
                    let now = || MonotonicClock.now() + ahead(rank);
                    cycle.step(now()).expect("nobody leaves");
                    cycle.step(now()).expect("nobody leaves");
                });
            }
        });
        assert_eq!(references[0].alignment(), None, "it is rank 0's clock");
        for (rank, reference) in references.iter().enumerate().skip(1) {
            let alignment = reference.alignment().expect("measured");
            let truth = -(ahead(rank).as_nanos() as i64);
            assert!(
                alignment.offset_ns.abs_diff(truth) <= alignment.error_ns,
                "rank {rank} of {size}: {truth} is not {alignment:?}"
            );
            assert!(
                alignment.error_ns < ahead(1).as_nanos() as u64 / 2,
                "or the bound says nothing"
            );
        }
    }
}
