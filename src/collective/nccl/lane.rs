//! The lane of a process set on this rank's device: stream, communicator, fusion buffer.
//!
//! What ranks must do together they do over the transport, in the cycle that brings the first tensor on a GPU, and in those in which
//! the fusion buffer must grow: all ranks are in the same batch then, so each knows that the others call too. A rank that has no
//! device to bring says so instead of staying away, and the batch fails on all ranks with its reason.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{Awaited, Batch, Launched, Place, Scratch, Terms, gpu_error};
use crate::error::Error;
use crate::gpu::{Communicator, Device, GpuError, Stream};
use crate::transport::Transport;

/// Fusion buffers grow by steps of this many bytes; one that is smaller is not worth having.
const BUFFER_STEP_BYTES: usize = 2 << 20;

/// How often it is asked whether a communicator is there. Making one takes tenths of seconds.
const POLL: Duration = Duration::from_micros(200);

/// What has gone wrong with a batch.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Every rank knows, and goes on without it.
    OfBatch(Error),
    /// This rank cannot go on.
    OfRank(Error),
}

/// See the module.
pub(crate) struct Lane {
    device: Arc<Device>,
    place: Place,
    /// This rank in the job.
    rank: usize,
    stream: Stream,
    communicator: Option<Communicator>,
    buffer: Buffer,
    /// What of the buffer all ranks have.
    shared_bytes: usize,
    /// Some rank has no memory for more.
    is_limited: bool,
    sink: Buffer,
}

/// Memory of the device.
#[derive(Default)]
struct Buffer {
    address: u64,
    bytes: usize,
}

/// What a rank says when a communicator is to be made.
#[derive(Serialize, Deserialize)]
enum Hello {
    Ready,
    Cannot(String),
}

/// What rank 0 makes of it.
#[derive(Serialize, Deserialize)]
enum Answer {
    Id(Vec<u8>),
    /// The rank, in the set.
    Cannot(usize, String),
}

impl Lane {
    /// Makes the lane, together with the set's other ranks.
    pub(crate) fn make(place: Place, terms: Terms<'_>) -> Result<Self, Trouble> {
        let Terms {
            device,
            transport,
            members,
        } = terms;
        let rank = members[place.rank];
        let fatal = |error| Trouble::OfRank(gpu_error(rank, error));
        let own = device.and_then(|device| device.gpu.make_stream().map(|stream| (device, stream)));
        let hello = match &own {
            Ok(_) => Hello::Ready,
            Err(error) => Hello::Cannot(error.to_string()),
        };
        let hellos = gather(transport, rank, &hello).map_err(Trouble::OfRank)?;
        let unable = hellos
            .into_iter()
            .enumerate()
            .find_map(|(rank, hello)| match hello {
                Hello::Cannot(reason) => Some((rank, reason)),
                Hello::Ready => None,
            });
        let answer = (place.rank == 0).then(|| match (unable, &own) {
            (Some((rank, reason)), _) => Answer::Cannot(rank, reason),
            (None, Ok((device, _))) => match device.gpu.unique_id() {
                Ok(id) => Answer::Id(id.to_vec()),
                Err(error) => Answer::Cannot(0, error.to_string()),
            },
            (None, Err(error)) => Answer::Cannot(0, error.to_string()),
        });
        let answer = broadcast(transport, rank, answer.as_ref()).map_err(Trouble::OfRank)?;
        let (device, stream) = match (own, &answer) {
            (Ok(own), Answer::Id(_)) => own,
            (own, _) => {
                if let Ok((device, stream)) = &own {
                    device.gpu.destroy_stream(*stream);
                }
                let error = match (own.err(), answer) {
                    (Some(error), _) => error,
                    (None, Answer::Cannot(rank, reason)) => GpuError::Peer {
                        rank: members[rank],
                        reason,
                    },
                    (None, Answer::Id(_)) => unreachable!("who has a device takes the id"),
                };
                return Err(Trouble::OfBatch(gpu_error(rank, error)));
            }
        };
        let Answer::Id(id) = answer else {
            unreachable!("matched above")
        };
        let mut lane = Self {
            device,
            place,
            rank,
            stream,
            communicator: None,
            buffer: Buffer::default(),
            shared_bytes: 0,
            is_limited: false,
            sink: Buffer::default(),
        };
        let Ok(id) = id.try_into() else {
            return Err(Trouble::OfRank(internal(rank, "an NCCL id of another length")));
        };
        let communicator = lane.device.gpu.join(&id, place.rank, place.size).map_err(fatal)?;
        lane.communicator = Some(communicator);
        lane.settle(transport)?;
        Ok(lane)
    }

    /// The device.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The stream, for memory that results go to.
    pub(crate) fn stream(&self) -> Stream {
        self.stream
    }

    /// Puts a batch onto the stream, behind what it waits for. `is_timed`: somebody wants to know when its parts happen.
    pub(crate) fn launch(
        &mut self,
        batch: &Batch<'_>,
        awaited: &Awaited<'_>,
        is_timed: bool,
        transport: &mut dyn Transport,
    ) -> Result<Launched, Trouble> {
        let wanted = batch.buffer_bytes(self.place);
        self.grow(wanted, transport)?;
        let parts = if wanted <= self.shared_bytes {
            std::iter::once(0..batch.spans.len()).collect()
        } else {
            batch.parts(self.place, self.shared_bytes)
        };
        let parts: Vec<Batch<'_>> = parts.into_iter().map(|tensors| batch.part(tensors)).collect();
        if let Some(part) = parts
            .iter()
            .find(|part| part.buffer_bytes(self.place) > self.shared_bytes)
        {
            // The same on all ranks, as is what they share of their buffers.
            return Err(Trouble::OfBatch(self.error(GpuError::OutOfMemory {
                ordinal: self.device.ordinal,
                bytes: part.buffer_bytes(self.place),
            })));
        }
        let sunk = parts
            .iter()
            .map(|part| part.sink_bytes(self.place))
            .max()
            .unwrap_or(0);
        self.ensure_sink(sunk, transport)?;
        let device = Arc::clone(&self.device);
        let mark = || {
            device
                .mark(self.stream, is_timed)
                .map_err(|error| self.fatal(error))
        };
        awaited
            .by(&device, self.stream)
            .map_err(|error| self.fatal(error))?;
        let began = mark()?;
        let (mut copied_in, mut reduced) = (None, None);
        for part in &parts {
            let scratch = Scratch {
                buffer: self.buffer.address,
                sink: self.sink.address,
            };
            let program = part.program(self.place, scratch);
            program
                .copy_in(&device, self.stream)
                .map_err(|error| self.fatal(error))?;
            if copied_in.is_none() {
                copied_in = Some(mark()?);
            }
            if let Some(communicator) = self.communicator {
                program
                    .call(&device, communicator, self.stream)
                    .map_err(|error| self.fatal(error))?;
                self.settle(transport)?;
            }
            reduced = Some(mark()?);
            program
                .copy_out(&device, self.stream)
                .map_err(|error| self.fatal(error))?;
        }
        let again = |mark: Option<_>| match mark {
            Some(mark) => Ok(mark),
            None => device
                .mark(self.stream, is_timed)
                .map_err(|error| self.fatal(error)),
        };
        Ok(Launched {
            began: Arc::new(began),
            copied_in: again(copied_in)?,
            reduced: again(reduced)?,
            ended: Arc::new(mark()?),
        })
    }

    /// Whether all is well with the communicator.
    ///
    /// # Errors
    /// What NCCL has found out meanwhile.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.communicator {
            Some(communicator) => {
                let ready = self.device.gpu.is_ready(communicator);
                ready.map(drop).map_err(|error| self.error(error))
            }
            None => Ok(()),
        }
    }

    /// Ends what is on the device, done or not.
    pub(crate) fn abort(&mut self) {
        if let Some(communicator) = self.communicator.take() {
            self.device.gpu.abort(communicator);
        }
    }

    /// Waits until NCCL has done on the host what it was asked to: mostly it has. The first calls make connections, and a rank that does
    /// not come must not be waited for.
    fn settle(&self, transport: &mut dyn Transport) -> Result<(), Trouble> {
        let Some(communicator) = self.communicator else {
            return Ok(());
        };
        while !self
            .device
            .gpu
            .is_ready(communicator)
            .map_err(|error| self.fatal(error))?
        {
            transport.check_peers().map_err(Trouble::OfRank)?;
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Waits until nothing is on the stream: memory is given back when the device is idle, and where that waits for a rank that is
    /// lost, it must not be the driver that does so.
    fn drain(&self, transport: &mut dyn Transport) -> Result<(), Trouble> {
        let last = self
            .device
            .mark(self.stream, false)
            .map_err(|error| self.fatal(error))?;
        while !self
            .device
            .gpu
            .has_come(last.event)
            .map_err(|error| self.fatal(error))?
        {
            self.check()
                .and_then(|()| transport.check_peers())
                .map_err(Trouble::OfRank)?;
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Makes the fusion buffer as large as `wanted`, or as all ranks can.
    fn grow(&mut self, wanted: usize, transport: &mut dyn Transport) -> Result<(), Trouble> {
        if wanted <= self.shared_bytes || self.is_limited {
            return Ok(());
        }
        if self.buffer.bytes > 0 {
            self.drain(transport)?; // it is in use until then
            self.device.gpu.free(self.buffer.address);
            self.buffer = Buffer::default();
        }
        let gpu = &self.device.gpu;
        let mut bytes = wanted.next_multiple_of(BUFFER_STEP_BYTES);
        while self.buffer.bytes == 0 && bytes >= BUFFER_STEP_BYTES {
            match gpu.allocate(bytes) {
                Ok(address) => self.buffer = Buffer { address, bytes },
                Err(GpuError::OutOfMemory { .. }) => {
                    bytes = (bytes / 2).next_multiple_of(BUFFER_STEP_BYTES / 2)
                }
                Err(error) => return Err(self.fatal(error)),
            }
        }
        let all = gather(transport, self.rank, &(self.buffer.bytes as u64)).map_err(Trouble::OfRank)?;
        let least = (self.place.rank == 0).then(|| all.into_iter().min().unwrap_or(0));
        let least: u64 = broadcast(transport, self.rank, least.as_ref()).map_err(Trouble::OfRank)?;
        self.shared_bytes = least as usize;
        self.is_limited = self.shared_bytes < wanted;
        if self.is_limited {
            tracing::warn!(
                "CUDA device {} has {} MiB for the fusion buffer where {} are wanted (the least of all ranks counts): larger \
                 batches are cut into smaller ones from here on",
                self.device.ordinal,
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
        if self.sink.bytes > 0 {
            self.drain(transport)?;
            self.device.gpu.free(self.sink.address);
            self.sink = Buffer::default();
        }
        let address = self
            .device
            .gpu
            .allocate(bytes)
            .map_err(|error| self.fatal(error))?;
        self.sink = Buffer { address, bytes };
        Ok(())
    }

    fn error(&self, error: GpuError) -> Error {
        gpu_error(self.rank, error)
    }

    fn fatal(&self, error: GpuError) -> Trouble {
        Trouble::OfRank(self.error(error))
    }
}

impl Drop for Lane {
    /// Nothing is in flight, or it has been aborted.
    fn drop(&mut self) {
        if let Some(communicator) = self.communicator.take() {
            self.device.gpu.leave(communicator);
        }
        for buffer in [&self.buffer, &self.sink] {
            if buffer.bytes > 0 {
                self.device.gpu.free(buffer.address);
            }
        }
        self.device.gpu.destroy_stream(self.stream);
    }
}

/// Brings what every rank says to rank 0 of the set, in rank order; nothing on the others.
fn gather<T: Serialize + DeserializeOwned>(
    transport: &mut dyn Transport,
    rank: usize,
    say: &T,
) -> Result<Vec<T>, Error> {
    let frame = postcard::to_stdvec(say).map_err(|error| internal(rank, &error))?;
    let mut frames = Vec::new();
    transport.gather(&frame, &mut frames)?;
    frames
        .iter()
        .map(|frame| postcard::from_bytes(frame).map_err(|error| internal(rank, &error)))
        .collect()
}

/// Brings what rank 0 of the set says, and the others leave out, to all.
fn broadcast<T: Serialize + DeserializeOwned>(
    transport: &mut dyn Transport,
    rank: usize,
    say: Option<&T>,
) -> Result<T, Error> {
    let mut frame = match say {
        Some(say) => postcard::to_stdvec(say).map_err(|error| internal(rank, &error))?,
        None => Vec::new(),
    };
    transport.broadcast(&mut frame)?;
    postcard::from_bytes(&frame).map_err(|error| internal(rank, &error))
}

fn internal(rank: usize, error: impl std::fmt::Display) -> Error {
    Error::Internal {
        rank,
        message: format!("meeting on GPUs: {error}"),
    }
}
