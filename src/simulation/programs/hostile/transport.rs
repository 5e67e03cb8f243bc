//! Transport that modifies control messages from one rank to the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Draw, mutate};
use crate::error::Error;
use crate::negotiation::Block;
use crate::transport::{Combine, Contribution, Doorbell, Transport};

/// Rate and kind of the modifications of control messages.
#[derive(Clone, Debug)]
pub(in crate::simulation) struct Hostility {
    pub(in crate::simulation) seed: u64,
    /// One of this many messages is modified.
    pub(in crate::simulation) one_in: usize,
    /// Number of modifications so far.
    pub(in crate::simulation) changes: Arc<AtomicU64>,
}

impl Hostility {
    /// Returns the modifications of the same rank in the process set at `place`.
    pub(in crate::simulation) fn of_set(&self, place: usize) -> Self {
        Self {
            seed: self.seed ^ (place as u64) << 48,
            ..self.clone()
        }
    }
}

/// Transport of a hostile rank: `inner`, with some of the rank's messages modified.
pub(in crate::simulation) struct Hostile<T> {
    inner: T,
    hostility: Hostility,
    draw: Draw,
}

impl<T> Hostile<T> {
    pub(in crate::simulation) fn new(inner: T, hostility: Hostility) -> Self {
        Self {
            inner,
            draw: Draw::new(hostility.seed),
            hostility,
        }
    }

    /// Whether the next message is to be modified: never if no other rank receives it.
    fn changes(&mut self) -> bool
    where
        T: Transport,
    {
        let changes = self.inner.size() > 1 && self.draw.one_in(self.hostility.one_in);
        if changes {
            self.hostility.changes.fetch_add(1, Ordering::Relaxed);
        }
        changes
    }
}

impl<T: Transport> Transport for Hostile<T> {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn shares_clock(&self) -> bool {
        self.inner.shares_clock()
    }

    fn exchange(
        &mut self,
        cycle: u64,
        block: &Contribution<'_>,
        combine: &mut dyn Combine,
    ) -> Result<(), Error> {
        let is_timed = !block.details.is_empty();
        let mut block = Block::of(block);
        if self.changes() {
            mutate::block(&mut self.draw, &mut block);
        }
        let block = block.contribution(is_timed);
        self.inner.exchange(cycle, &block, combine)
    }

    fn gather(&mut self, frame: &[u8], frames: &mut Vec<Vec<u8>>) -> Result<(), Error> {
        let mut frame = frame.to_vec();
        if self.rank() > 0 && self.changes() {
            mutate::requests(&mut self.draw, &mut frame);
        }
        self.inner.gather(&frame, frames)
    }

    fn broadcast(&mut self, frame: &mut Vec<u8>) -> Result<(), Error> {
        if self.rank() == 0 && self.changes() {
            mutate::responses(&mut self.draw, frame);
        }
        self.inner.broadcast(frame)
    }

    fn doorbell(&self) -> Arc<dyn Doorbell> {
        self.inner.doorbell()
    }

    fn check_peers(&mut self) -> Result<(), Error> {
        self.inner.check_peers()
    }

    fn leave(&mut self, because: Option<&Error>) {
        self.inner.leave(because);
    }
}
