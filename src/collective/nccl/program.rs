//! What a batch puts onto the stream, as data: so that it can be looked at, and so that ranks can be seen to do the same.

use crate::gpu::{Call, Combined, Entry, GpuError, Kernel, Number, Table};
use crate::gpu::{Communicator, Device, Stream};

/// A copy kernel and what it is told.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Copies {
    pub(super) kernel: Kernel,
    pub(super) factor: f64,
    pub(super) divisor: u32,
    pub(super) entries: Vec<Entry>,
}

impl Copies {
    /// Bytes as they are.
    pub(super) fn plain(entries: Vec<Entry>) -> Self {
        Self {
            kernel: Kernel::Copy,
            factor: 1.0,
            divisor: 1,
            entries,
        }
    }

    /// `factor` times the `count` numbers at `from`, to `to`, which may be the same place.
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

/// See the module. The parts follow one another; each may be nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Program {
    /// To the fusion buffer.
    pub(super) inward: Vec<Copies>,
    /// All at once; the same kinds, numbers and counts on all ranks, but for sends and receives.
    pub(super) calls: Vec<Call>,
    /// Back from it.
    pub(super) outward: Vec<Copies>,
}

impl Program {
    /// The one call that it makes, if that is an allreduce: which may be done otherwise.
    pub(super) fn allreduce(&self) -> Option<Combined> {
        match self.calls[..] {
            [Call::Allreduce(combined)] => Some(combined),
            _ => None,
        }
    }

    /// Puts the first part onto the stream.
    pub(super) fn copy_in(&self, device: &Device, stream: Stream) -> Result<(), GpuError> {
        self.inward
            .iter()
            .try_for_each(|copies| copies.launch(device, stream))
    }

    /// Puts the second part onto the stream.
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

    /// Puts the last part onto the stream.
    pub(super) fn copy_out(&self, device: &Device, stream: Stream) -> Result<(), GpuError> {
        self.outward
            .iter()
            .try_for_each(|copies| copies.launch(device, stream))
    }
}

/// An entry, unless there is nothing in it.
pub(super) fn entry(from: u64, to: u64, elements: usize) -> Option<Entry> {
    (elements > 0).then_some(Entry { from, to, elements })
}
