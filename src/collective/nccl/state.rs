//! NCCL state of a process set on this rank's device: stream, communicator, fusion buffer.
//!
//! What ranks must do together they do over the transport, in the cycle that brings the first tensor on a GPU, and in those in which
//! the fusion buffer must grow: all ranks are in the same batch then, so each knows that the others call too ([`super::exchange`]).

use std::sync::Arc;

use super::exchange::{exchange, invalid, least};
use super::hierarchical::Hierarchical;
use super::program::Program;
use super::track::Track;
use super::{Awaited, Batch, Company, Crossing, Launched, Scratch, SetRank};
use crate::error::Error;
use crate::gpu::{Communicator, Device, GpuError, Stream};
use crate::transport::Transport;

/// Fusion buffers grow by steps of this many bytes; one that is smaller is not worth having.
const BUFFER_STEP_BYTES: usize = 2 << 20;

/// What has gone wrong with a batch.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Every rank knows, and goes on without it.
    OfBatch(Error),
    /// This rank cannot go on.
    OfRank(Error),
}

/// See the module.
pub(crate) struct NcclCollective {
    set_rank: SetRank,
    communicator: Option<Communicator>,
    /// State of hierarchical allreduces; created for the first such batch.
    hierarchical: Option<Hierarchical>,
    buffer: Buffer,
    /// What of the buffer all ranks have.
    shared_bytes: usize,
    /// Some rank has no memory for more.
    is_limited: bool,
    sink: Buffer,
    track: Track,
}

/// Memory of the device.
#[derive(Default)]
struct Buffer {
    address: u64,
    bytes: usize,
}

impl NcclCollective {
    /// Creates the state on `device`, or returns why that failed, together with the set's other ranks.
    pub(crate) fn make(
        set_rank: SetRank,
        device: Result<Arc<Device>, GpuError>,
        company: &mut Company<'_>,
    ) -> Result<Self, Trouble> {
        let rank = company.members[set_rank.rank];
        let own = device.and_then(|device| {
            let id = (set_rank.rank == 0).then(|| device.gpu.unique_id()).transpose()?;
            Ok((Track::new(device, rank)?, id))
        });
        let (track, id) = match own {
            Ok((track, id)) => (Ok(track), Ok(id)),
            Err(error) => (Err(()), Err(error)),
        };
        let ids = exchange(id, set_rank, company)?;
        let (Ok(track), Some(Some(id))) = (track, ids.into_iter().next()) else {
            // A rank that cannot take part has its own error by now.
            return Err(Trouble::OfRank(invalid(company.members[0], "no NCCL id")));
        };
        let communicator = track
            .device
            .gpu
            .join(&id, set_rank.rank, set_rank.size)
            .map_err(|error| track.fatal(error))?;
        let new = Self {
            set_rank,
            communicator: Some(communicator),
            hierarchical: None,
            buffer: Buffer::default(),
            shared_bytes: 0,
            is_limited: false,
            sink: Buffer::default(),
            track,
        };
        new.track.settle(communicator, company.transport)?;
        Ok(new)
    }

    /// The device.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.track.device
    }

    /// The stream, for memory that results go to.
    pub(crate) fn stream(&self) -> Stream {
        self.track.stream
    }

    /// Puts a batch onto the stream, behind what it waits for. `is_timed`: somebody wants to know when its parts happen. One that goes host
    /// by host is waited for until its last byte has come from the other hosts.
    pub(crate) fn launch(
        &mut self,
        batch: &Batch<'_>,
        awaited: &Awaited<'_>,
        is_timed: bool,
        company: &mut Company<'_>,
    ) -> Result<Launched, Trouble> {
        let wanted = batch.buffer_bytes(self.set_rank);
        self.grow(wanted, company)?;
        let parts = if wanted <= self.shared_bytes {
            std::iter::once(0..batch.spans.len()).collect()
        } else {
            batch.parts(self.set_rank, self.shared_bytes)
        };
        let parts: Vec<Batch<'_>> = parts.into_iter().map(|tensors| batch.part(tensors)).collect();
        if let Some(part) = parts
            .iter()
            .find(|part| part.buffer_bytes(self.set_rank) > self.shared_bytes)
        {
            // The same on all ranks, as is what they share of their buffers.
            return Err(Trouble::OfBatch(self.track.error(GpuError::OutOfMemory {
                ordinal: self.track.device.ordinal,
                bytes: part.buffer_bytes(self.set_rank),
            })));
        }
        let sunk = parts
            .iter()
            .map(|part| part.sink_bytes(self.set_rank))
            .max()
            .unwrap_or(0);
        self.ensure_sink(sunk, company.transport)?;
        let scratch = Scratch {
            buffer: self.buffer.address,
            sink: self.sink.address,
        };
        let programs: Vec<Program> = parts
            .iter()
            .map(|part| part.program(self.set_rank, scratch))
            .collect();
        self.ensure_hierarchical(&programs, company)?;
        self.track.follow(awaited)?;
        let began = self.track.mark(is_timed)?;
        let (mut copied_in, mut reduced, mut crossing) = (None, None, None);
        for program in &programs {
            program
                .copy_in(&self.track.device, self.track.stream)
                .map_err(|error| self.track.fatal(error))?;
            if copied_in.is_none() {
                copied_in = Some(self.track.mark(is_timed)?);
            }
            let crossed = self.call(program, is_timed, company)?;
            crossing = Crossing::joined(crossing, crossed);
            reduced = Some(self.track.mark(is_timed)?);
            program
                .copy_out(&self.track.device, self.track.stream)
                .map_err(|error| self.track.fatal(error))?;
        }
        let again = |mark: Option<_>| mark.map_or_else(|| self.track.mark(is_timed), Ok);
        Ok(Launched {
            began: Arc::new(began),
            copied_in: again(copied_in)?,
            crossing,
            reduced: again(reduced)?,
            ended: Arc::new(self.track.mark(is_timed)?),
        })
    }

    /// Puts a program's calls onto the stream, hierarchically if that is on and the program allows it.
    fn call(
        &mut self,
        program: &Program,
        is_timed: bool,
        company: &mut Company<'_>,
    ) -> Result<Option<Crossing>, Trouble> {
        let Some(communicator) = self.communicator else {
            return Ok(None);
        };
        if let (Some(inter_node), Some(hierarchical), Some(whole)) = (
            &mut company.inter_node,
            &mut self.hierarchical,
            program.allreduce(),
        ) {
            let crossed =
                hierarchical.allreduce(whole, &self.track, is_timed, &mut **inter_node, company.transport)?;
            return Ok(Some(crossed));
        }
        program
            .call(&self.track.device, communicator, self.track.stream)
            .map_err(|error| self.track.fatal(error))?;
        self.track.settle(communicator, company.transport)?;
        Ok(None)
    }

    /// Creates the state of hierarchical allreduces, if any of `programs` is hierarchical.
    fn ensure_hierarchical(
        &mut self,
        programs: &[Program],
        company: &mut Company<'_>,
    ) -> Result<(), Trouble> {
        if let (None, Some(inter_node)) = (&self.hierarchical, &company.inter_node)
            && programs.iter().any(|program| program.allreduce().is_some())
        {
            let place = inter_node.place();
            let made = Hierarchical::make(place, self.set_rank, &self.track, company)?;
            self.hierarchical = Some(made);
        }
        Ok(())
    }

    /// Whether all is well with the communicators.
    ///
    /// # Errors
    /// What NCCL has found out meanwhile.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let intra_node = self.hierarchical.as_ref().and_then(Hierarchical::communicator);
        [self.communicator, intra_node]
            .into_iter()
            .try_for_each(|communicator| self.track.check(communicator))
    }

    /// Ends what is on the device, done or not.
    pub(crate) fn abort(&mut self) {
        if let Some(communicator) = self.communicator.take() {
            self.track.device.gpu.abort(communicator);
        }
        if let Some(hierarchical) = &mut self.hierarchical {
            hierarchical.abort();
        }
    }

    /// Makes the fusion buffer as large as `wanted`, or as all ranks can.
    fn grow(&mut self, wanted: usize, company: &mut Company<'_>) -> Result<(), Trouble> {
        if wanted <= self.shared_bytes || self.is_limited {
            return Ok(());
        }
        let device = Arc::clone(&self.track.device);
        if self.buffer.bytes > 0 {
            self.track.drain(self.communicator, company.transport)?; // it is in use until then
            device.gpu.free(self.buffer.address);
            self.buffer = Buffer::default();
        }
        let mut bytes = wanted.next_multiple_of(BUFFER_STEP_BYTES);
        while self.buffer.bytes == 0 && bytes >= BUFFER_STEP_BYTES {
            match device.gpu.allocate(bytes) {
                Ok(address) => self.buffer = Buffer { address, bytes },
                Err(GpuError::OutOfMemory { .. }) => {
                    bytes = (bytes / 2).next_multiple_of(BUFFER_STEP_BYTES / 2)
                }
                Err(error) => return Err(self.track.fatal(error)),
            }
        }
        let own = self.buffer.bytes as u64;
        let least = least(own, self.set_rank, company).map_err(Trouble::OfRank)?;
        self.shared_bytes = least as usize;
        self.is_limited = self.shared_bytes < wanted;
        if self.is_limited {
            tracing::warn!(
                "CUDA device {} has {} MiB for the fusion buffer where {} are wanted (the least of all ranks counts): larger \
                 batches are cut into smaller ones from here on",
                device.ordinal,
                self.shared_bytes >> 20,
                wanted.div_ceil(1 << 20),
            );
        }
        Ok(())
    }

    /// Makes the sink as large as this rank wants it.
    fn ensure_sink(&mut self, bytes: usize, transport: &mut dyn Transport) -> Result<(), Trouble> {
        if bytes <= self.sink.bytes {
            return Ok(());
        }
        let device = Arc::clone(&self.track.device);
        if self.sink.bytes > 0 {
            self.track.drain(self.communicator, transport)?;
            device.gpu.free(self.sink.address);
            self.sink = Buffer::default();
        }
        let address = device
            .gpu
            .allocate(bytes)
            .map_err(|error| self.track.fatal(error))?;
        self.sink = Buffer { address, bytes };
        Ok(())
    }
}

impl Drop for NcclCollective {
    /// Nothing is in flight, or it has been aborted.
    fn drop(&mut self) {
        let gpu = &self.track.device.gpu;
        if let Some(communicator) = self.communicator.take() {
            gpu.leave(communicator);
        }
        for buffer in [&self.buffer, &self.sink] {
            if buffer.bytes > 0 {
                gpu.free(buffer.address);
            }
        }
    }
}
