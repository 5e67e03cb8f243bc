//! The MPI transport: ranks on any hosts, through nonblocking calls of the engine (`mpi/`).
//!
//! **A cycle** is one small allgather of the ranks' blocks, and beside it one gather of ready times to rank 0, which
//! alone uses them. **Who starts it**: a rank that submits the first tensor for a cycle tells its neighbours, who tell
//! theirs; nobody asks while nobody rings. Whether the *other* ranks would start at once a rank cannot know without a
//! message, so each enters when its own part holds, or when the cycle time has passed, and waits in the allgather for
//! the rest.

use std::sync::Arc;

use crate::error::Error;
use crate::mpi::{Bell, CommId, Hall, Met, Parts, Waiting};
use crate::shm::primitive::{AtomicU64, Ordering};
use crate::transport::{Agreement, Block, Doorbell, Transport, leave_when_dropped};

mod doorbell;
mod record;

use doorbell::MpiDoorbell;
use record::Record;

/// One rank's end of the MPI transport.
pub(crate) struct MpiTransport {
    hall: Arc<Hall>,
    rank: usize,
    members: Arc<[usize]>,
    is_world: bool,
    shares_clock: bool,
    control: CommId,
    set: u64,
    doorbell: Arc<MpiDoorbell>,
    /// The last cycle entered; the doorbell knows by it what has been answered.
    entered: Arc<AtomicU64>,
    /// Blocks of this rank and of all, ready times likewise: kept for their memory.
    memory: [Vec<u8>; 4],
    left: bool,
}

impl MpiTransport {
    /// The transport of set rank `rank` among `members`, who have `met` in `hall`.
    pub(crate) fn new(
        hall: &Arc<Hall>,
        met: Met,
        rank: usize,
        members: &Arc<[usize]>,
        is_world: bool,
    ) -> Self {
        let entered = if is_world {
            Arc::clone(&hall.entered)
        } else {
            Arc::default()
        };
        let doorbell = Arc::new(MpiDoorbell::new(
            &hall.pulse,
            met.set,
            Arc::clone(&entered),
            hall.spin,
        ));
        hall.pulse
            .listen(met.set, members, Arc::clone(&doorbell) as Arc<dyn Bell>);
        let host = hall.leaders[members[0]];
        Self {
            hall: Arc::clone(hall),
            rank,
            members: Arc::clone(members),
            is_world,
            shares_clock: members.iter().all(|&member| hall.leaders[member] == host),
            control: met.control,
            set: met.set,
            doorbell,
            entered,
            memory: Default::default(),
            left: false,
        }
    }

    fn guard(&self) -> Waiting<'_> {
        Waiting {
            pulse: &self.hall.pulse,
            set: self.set,
        }
    }
}

impl Transport for MpiTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    /// Ranks of one host and boot do; others have clocks of their own.
    fn shares_clock(&self) -> bool {
        self.shares_clock
    }

    fn exchange(&mut self, cycle: u64, block: &Block, agreed: &mut Agreement) -> Result<(), Error> {
        self.entered.store(cycle, Ordering::Release);
        let size = self.members.len();
        let words = block.ready.len();
        let [mut own, mut all, mut own_times, mut all_times] = std::mem::take(&mut self.memory);
        record::write(cycle, block, &mut own, &mut own_times);
        let (bytes, time_bytes) = (own.len(), own_times.len());
        all.resize(bytes * size, 0);
        if self.rank == 0 {
            all_times.resize(time_bytes * size, 0);
        }
        let control = self.control;
        let exchanged = self
            .hall
            .engine
            .run(self.hall.spin, &self.guard(), move |world| async move {
                let comm = world.comm(control);
                let blocks = comm.allgather(own, all, bytes)?;
                let times = comm.gather(own_times, all_times, time_bytes, 0)?;
                let (own, all) = blocks.await?;
                let (own_times, all_times) = times.await?;
                Ok([own, all, own_times, all_times])
            })?;
        self.memory = exchanged;
        let [_, all, _, all_times] = &self.memory;
        agreed.begin(words);
        for rank in 0..size {
            let block = &all[rank * bytes..][..bytes];
            let times = all_times.get(rank * time_bytes..(rank + 1) * time_bytes);
            let record = Record::new(block, times.unwrap_or_default());
            record.check(cycle, words).map_err(|found| Error::Internal {
                rank: self.members[self.rank],
                message: format!(
                    "rank {} is in {found}, this rank in cycle {cycle} with {words} words",
                    self.members[rank]
                ),
            })?;
            agreed.add(&record);
        }
        Ok(())
    }

    fn gather(&mut self, frame: &[u8], frames: &mut Vec<Vec<u8>>) -> Result<(), Error> {
        let (control, size, frame) = (self.control, self.members.len(), frame.to_vec());
        let is_root = self.rank == 0;
        let gathered = self
            .hall
            .engine
            .run(self.hall.spin, &self.guard(), move |world| async move {
                let comm = world.comm(control);
                let length = (frame.len() as u64).to_le_bytes().to_vec();
                let room = if is_root { vec![0; 8 * size] } else { Vec::new() };
                let (_, lengths) = comm.gather(length, room, 8, 0)?.await?;
                let parts = Parts::of(lengths.chunks_exact(8).map(length_of));
                let room = vec![0; parts.bytes()];
                let (_, room, parts) = comm.gather_parts(frame, room, parts, 0)?.await?;
                Ok(if is_root {
                    (0..size).map(|rank| room[parts.range(rank)].to_vec()).collect()
                } else {
                    Vec::new()
                })
            })?;
        *frames = gathered;
        Ok(())
    }

    fn broadcast(&mut self, frame: &mut Vec<u8>) -> Result<(), Error> {
        let (control, is_root) = (self.control, self.rank == 0);
        let said = if is_root {
            std::mem::take(frame)
        } else {
            Vec::new()
        };
        *frame = self
            .hall
            .engine
            .run(self.hall.spin, &self.guard(), move |world| async move {
                let comm = world.comm(control);
                let length = (said.len() as u64).to_le_bytes().to_vec();
                let length = length_of(&comm.broadcast(length, 8, 0)?.await?);
                let room = if is_root { said } else { vec![0; length] };
                comm.broadcast(room, length, 0)?.await
            })?;
        Ok(())
    }

    fn doorbell(&self) -> Arc<dyn Doorbell> {
        Arc::clone(&self.doorbell) as Arc<dyn Doorbell>
    }

    fn check_peers(&mut self) -> Result<(), Error> {
        self.hall.pulse.check_set(self.set)
    }

    fn leave(&mut self, because: Option<&Error>) {
        if !std::mem::replace(&mut self.left, true) {
            self.hall.pulse.leave(self.set, self.is_world, because);
        }
    }
}

impl Drop for MpiTransport {
    /// Leaves, if nobody has done it before.
    fn drop(&mut self) {
        let rank = self.members[self.rank];
        leave_when_dropped(self, rank);
    }
}

fn length_of(bytes: &[u8]) -> usize {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes")) as usize
}
