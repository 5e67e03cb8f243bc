//! Sums of the measurements of a step.

use super::StepSample;
use super::rounds::Contents;

/// Sums since the end of the previous step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) bytes: u64,
    pub(super) tensors: u64,
    /// As in [`StepSample`].
    pub(super) signature: u64,
    pub(super) negotiate_ns: u64,
    pub(super) transfer_ns: u64,
}

impl Sums {
    pub(super) fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.tensors += other.tensors;
        self.signature = self.signature.wrapping_add(other.signature);
        self.negotiate_ns += other.negotiate_ns;
        self.transfer_ns += other.transfer_ns;
    }

    /// Returns the contents so far.
    pub(super) fn contents(&self) -> Contents {
        Contents {
            signature: self.signature,
            bytes: self.bytes,
        }
    }

    /// Time in negotiation and transfers; those of a GPU overlap.
    pub(super) fn communication_ns(&self) -> u64 {
        self.negotiate_ns.saturating_add(self.transfer_ns)
    }

    pub(super) fn sample(&self, step_ns: u64) -> StepSample {
        StepSample {
            step_ms: ms(step_ns),
            signature: self.signature,
            bytes: self.bytes,
            tensors: self.tensors,
            negotiate_ms: ms(self.negotiate_ns),
        }
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}
