//! NCCL state of a process set on this rank's device: stream, communicator, fusion buffer.
//!
//! Ranks create and grow the state together, over the transport, in the cycle of the first GPU
//! tensor and in those in which the fusion buffer must grow: all ranks process the same batch then,
//! so each knows that the others call too ([`super::exchange`]).

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::exchange::{exchange, invalid, least};
use super::hierarchical::Hierarchical;
use super::program::Program;
use super::track::Track;
use super::watch::Watch;
use super::{ACTIVITIES, Scratch};
use crate::collective::asynchronous::{
    AsyncCollective, Batch, Crossing, DeviceActivities, LaunchError, Launched, OnEnd, OpenDevice,
    Peers, SetRank,
};
use crate::delivery::Memory;
use crate::device::{Mark, OnDevice};
use crate::error::Error;
use crate::gpu::{Communicator, Device, DeviceBinding, GpuError};
use crate::tensor::Dtype;
use crate::transport::Transport;

/// Step by which fusion buffers grow, in bytes; also the least useful size.
const BUFFER_STEP_BYTES: usize = 2 << 20;

/// Collective of a process set on this rank's device.
pub(super) struct NcclCollective {
    set_rank: SetRank,
    /// Dropped first: its callbacks may still use the rest.
    watch: Option<Watch>,
    communicator: Option<Communicator>,
    /// State of hierarchical allreduces; created for the first such batch.
    hierarchical: Option<Hierarchical>,
    buffer: Buffer,
    /// Bytes of the buffer that all ranks have.
    shared_bytes: usize,
    /// Whether some rank has no memory for more.
    is_limited: bool,
    sink: Buffer,
    track: Track,
}

/// Block of device memory.
#[derive(Default)]
struct Buffer {
    address: u64,
    bytes: usize,
}

impl OpenDevice for DeviceBinding {
    fn open(
        &self,
        set_rank: SetRank,
        peers: &mut Peers<'_>,
    ) -> Result<Box<dyn AsyncCollective>, LaunchError> {
        Ok(Box::new(NcclCollective::make(
            set_rank,
            self.device(),
            peers,
        )?))
    }

    fn wants_times(&self) -> bool {
        self.wants_times()
    }
}

impl AsyncCollective for NcclCollective {
    fn activities(&self) -> &'static DeviceActivities {
        &ACTIVITIES
    }

    fn allocate(&self, dtype: Dtype, bytes: usize, tensor: &OnDevice) -> Option<Memory> {
        Memory::on_device(
            dtype,
            bytes,
            &self.track.device,
            self.track.stream,
            tensor.stream,
        )
    }

    fn launch(
        &mut self,
        batch: &Batch<'_>,
        inputs: &[&Mark],
        is_timed: bool,
        peers: &mut Peers<'_>,
    ) -> Result<Launched, LaunchError> {
        let wanted = batch.buffer_bytes(self.set_rank);
        self.grow(wanted, peers)?;
        let parts = if wanted <= self.shared_bytes {
            std::iter::once(0..batch.spans.len()).collect()
        } else {
            batch.parts(self.set_rank, self.shared_bytes)
        };
        let parts: Vec<Batch<'_>> = parts
            .into_iter()
            .map(|tensors| batch.part(tensors))
            .collect();
        if let Some(part) = parts
            .iter()
            .find(|part| part.buffer_bytes(self.set_rank) > self.shared_bytes)
        {
            // Equal on all ranks, like the shared size of their buffers.
            return Err(LaunchError::Batch(self.track.error(
                GpuError::OutOfMemory {
                    ordinal: self.track.device.ordinal,
                    bytes: part.buffer_bytes(self.set_rank),
                },
            )));
        }
        let sunk = parts
            .iter()
            .map(|part| part.sink_bytes(self.set_rank))
            .max()
            .unwrap_or(0);
        self.ensure_sink(sunk, peers.transport)?;
        let scratch = Scratch {
            buffer: self.buffer.address,
            sink: self.sink.address,
        };
        let programs: Vec<Program> = parts
            .iter()
            .map(|part| part.program(self.set_rank, scratch))
            .collect();
        self.ensure_hierarchical(&programs, peers)?;
        self.track.follow(inputs)?;
        let began = self.track.mark(is_timed)?;
        let (mut copied_in, mut reduced, mut crossing) = (None, None, None);
        for program in &programs {
            program
                .copy_in(&self.track.device, self.track.stream)
                .map_err(|error| self.track.fatal(error))?;
            if copied_in.is_none() {
                copied_in = Some(self.track.mark(is_timed)?);
            }
            let crossed = self.call(program, is_timed, peers)?;
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

    fn on_end(&mut self, ended: Arc<Mark>, then: OnEnd) {
        if let Some(watch) = &self.watch {
            watch.add(ended, then);
        }
    }

    fn check(&self) -> Result<(), Error> {
        let intra_node = self
            .hierarchical
            .as_ref()
            .and_then(Hierarchical::communicator);
        [self.communicator, intra_node]
            .into_iter()
            .try_for_each(|communicator| self.track.check(communicator))
    }

    fn abort(&mut self) {
        let hierarchical = self.hierarchical.as_mut();
        let intra_node = hierarchical.and_then(Hierarchical::take_communicator);
        let all: SmallVec<[Communicator; 2]> = [self.communicator.take(), intra_node]
            .into_iter()
            .flatten()
            .collect();
        self.track.device.gpu.abort_all(&all);
    }

    fn last(&self) -> Option<Mark> {
        self.track.device.mark(self.track.stream, false).ok()
    }

    fn wait_until(&self, patience: Duration, is_so: &dyn Fn() -> bool) -> bool {
        self.track.device.gpu.wait_until(patience, is_so)
    }
}

impl NcclCollective {
    /// Creates the state on `device`, or returns why that failed, together with the set's other
    /// ranks.
    fn make(
        set_rank: SetRank,
        device: Result<Arc<Device>, GpuError>,
        peers: &mut Peers<'_>,
    ) -> Result<Self, LaunchError> {
        let rank = peers.members[set_rank.rank];
        let own = device.and_then(|device| {
            let id = (set_rank.rank == 0)
                .then(|| device.gpu.unique_id())
                .transpose()?;
            Ok((Track::new(device, rank)?, id))
        });
        let (track, id) = match own {
            Ok((track, id)) => (Ok(track), Ok(id)),
            Err(error) => (Err(()), Err(error)),
        };
        let ids = exchange(id, set_rank, peers)?;
        let (Ok(track), Some(Some(id))) = (track, ids.into_iter().next()) else {
            // A rank that cannot take part has returned its own error already.
            return Err(LaunchError::Rank(invalid(peers.members[0], "no NCCL id")));
        };
        let watch = Watch::start(&track.device, rank).map_err(LaunchError::Rank)?;
        let communicator = track
            .device
            .gpu
            .join(&id, set_rank.rank, set_rank.size)
            .map_err(|error| track.fatal(error))?;
        let new = Self {
            set_rank,
            watch: Some(watch),
            communicator: Some(communicator),
            hierarchical: None,
            buffer: Buffer::default(),
            shared_bytes: 0,
            is_limited: false,
            sink: Buffer::default(),
            track,
        };
        new.track.settle(communicator, peers.transport)?;
        Ok(new)
    }

    /// Puts a program's calls onto the stream, hierarchically if that is on and the program allows
    /// it.
    fn call(
        &mut self,
        program: &Program,
        is_timed: bool,
        peers: &mut Peers<'_>,
    ) -> Result<Option<Crossing>, LaunchError> {
        let Some(communicator) = self.communicator else {
            return Ok(None);
        };
        if let (Some(inter_node), Some(hierarchical), Some(whole)) = (
            &mut peers.inter_node,
            &mut self.hierarchical,
            program.allreduce(),
        ) {
            let crossed = hierarchical.allreduce(
                whole,
                &self.track,
                is_timed,
                &mut **inter_node,
                peers.transport,
            )?;
            return Ok(Some(crossed));
        }
        program
            .call(&self.track.device, communicator, self.track.stream)
            .map_err(|error| self.track.fatal(error))?;
        self.track.settle(communicator, peers.transport)?;
        Ok(None)
    }

    /// Creates the state of hierarchical allreduces, if any of `programs` is hierarchical.
    fn ensure_hierarchical(
        &mut self,
        programs: &[Program],
        peers: &mut Peers<'_>,
    ) -> Result<(), LaunchError> {
        if let (None, Some(inter_node)) = (&self.hierarchical, &peers.inter_node)
            && programs.iter().any(|program| program.allreduce().is_some())
        {
            let place = inter_node.place();
            let made = Hierarchical::make(place, self.set_rank, &self.track, peers)?;
            self.hierarchical = Some(made);
        }
        Ok(())
    }

    /// Grows the fusion buffer to `wanted` bytes, or to as many as all ranks can allocate.
    fn grow(&mut self, wanted: usize, peers: &mut Peers<'_>) -> Result<(), LaunchError> {
        if wanted <= self.shared_bytes || self.is_limited {
            return Ok(());
        }
        let device = Arc::clone(&self.track.device);
        if self.buffer.bytes > 0 {
            self.track.drain(self.communicator, peers.transport)?; // in use until then
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
        let least = least(own, self.set_rank, peers).map_err(LaunchError::Rank)?;
        self.shared_bytes = least as usize;
        self.is_limited = self.shared_bytes < wanted;
        if self.is_limited {
            tracing::warn!(
                "CUDA device {} has {} MiB for the fusion buffer instead of {} MiB (minimum of all ranks): larger batches are \
                 split from now on",
                device.ordinal,
                self.shared_bytes >> 20,
                wanted.div_ceil(1 << 20),
            );
        }
        Ok(())
    }

    /// Grows the sink to the size that this rank needs.
    fn ensure_sink(
        &mut self,
        bytes: usize,
        transport: &mut dyn Transport,
    ) -> Result<(), LaunchError> {
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
    /// No work is in flight, or it has been aborted.
    fn drop(&mut self) {
        self.watch = None;
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
