//! Sums of the measurements of a step.

use super::StepSample;
use super::rounds::Load;

/// Sums since the end of the previous step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) bytes: u64,
    pub(super) tensors: u64,
    /// As in [`StepSample`].
    pub(super) signature: u64,
    pub(super) batches: u64,
    pub(super) cycles: u64,
    pub(super) negotiate_ns: u64,
    pub(super) collective_ns: u64,
    pub(super) wait_ns: u64,
}

impl Sums {
    pub(super) fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.tensors += other.tensors;
        self.signature = self.signature.wrapping_add(other.signature);
        self.batches += other.batches;
        self.cycles += other.cycles;
        self.negotiate_ns += other.negotiate_ns;
        self.collective_ns += other.collective_ns;
        self.wait_ns += other.wait_ns;
    }

    /// Returns the contents so far.
    pub(super) fn load(&self) -> Load {
        Load {
            signature: self.signature,
            bytes: self.bytes,
        }
    }

    /// Time in negotiation and collectives; those of a GPU overlap.
    pub(super) fn communication_ns(&self) -> u64 {
        self.negotiate_ns.saturating_add(self.collective_ns)
    }

    pub(super) fn sample(&self, step_ns: u64) -> StepSample {
        StepSample {
            step_ms: ms(step_ns),
            signature: self.signature,
            bytes: self.bytes,
            tensors: self.tensors,
            batches: self.batches,
            cycles: self.cycles,
            negotiate_ms: ms(self.negotiate_ns),
            collective_ms: ms(self.collective_ns),
            wait_ms: ms(self.wait_ns),
        }
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}
