//! Program: the work of a batch on the stream as data, so that it can be inspected and compared
//! between ranks.

use crate::gpu::{Call, Combined, Entry, GpuError, Kernel, Number, Table};
use crate::gpu::{Communicator, Device, Stream};

/// A copy kernel and its entries.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Copies {
    pub(super) kernel: Kernel,
    pub(super) factor: f64,
    pub(super) divisor: u32,
    pub(super) entries: Vec<Entry>,
}

impl Copies {
    /// Copies bytes without change.
    pub(super) fn plain(entries: Vec<Entry>) -> Self {
        Self {
            kernel: Kernel::Copy,
            factor: 1.0,
            divisor: 1,
            entries,
        }
    }

    /// Copies `count` numbers at `from`, multiplied by `factor`, to `to`, which may be the same
    /// address.
    pub(super) fn scaled(number: Number, factor: f64, from: u64, to: u64, count: usize) -> Self {
        Self {
            kernel: Kernel::Convert {
                from: number,
                to: number,
            },
            factor,
            divisor: 1,
            entries: entry(from, to, count).into_iter().collect(),
        }
    }

    fn launch(&self, device: &Device, stream: Stream) -> Result<(), GpuError> {
        let tables = Table::of(self.kernel, self.factor, self.divisor, &self.entries);
        tables
            .iter()
            .try_for_each(|table| device.gpu.launch(self.kernel, table, stream))
    }
}

/// Work of a batch on the stream. The parts run one after another; each may be empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Program {
    /// Copies to the fusion buffer.
    pub(super) inward: Vec<Copies>,
    /// One group of NCCL calls; kinds, numbers and counts are equal on all ranks, except for sends
    /// and receives.
    pub(super) calls: Vec<Call>,
    /// Copies from the fusion buffer.
    pub(super) outward: Vec<Copies>,
}

impl Program {
    /// Returns the only call, if that is an allreduce, which a hierarchical one can replace.
    pub(super) fn allreduce(&self) -> Option<Combined> {
        match self.calls[..] {
            [Call::Allreduce(combined)] => Some(combined),
            _ => None,
        }
    }

    /// Puts the first part on the stream.
    pub(super) fn copy_in(&self, device: &Device, stream: Stream) -> Result<(), GpuError> {
        self.inward
            .iter()
            .try_for_each(|copies| copies.launch(device, stream))
    }

    /// Puts the second part on the stream.
    pub(super) fn call(
        &self,
        device: &Device,
        communicator: Communicator,
        stream: Stream,
    ) -> Result<(), GpuError> {
        if self.calls.is_empty() {
            return Ok(());
        }
        device.gpu.call(communicator, &self.calls, stream)
    }

    /// Puts the last part on the stream.
    pub(super) fn copy_out(&self, device: &Device, stream: Stream) -> Result<(), GpuError> {
        self.outward
            .iter()
            .try_for_each(|copies| copies.launch(device, stream))
    }
}

/// Returns an entry, unless it is empty.
pub(super) fn entry(from: u64, to: u64, elements: usize) -> Option<Entry> {
    (elements > 0).then_some(Entry { from, to, elements })
}
