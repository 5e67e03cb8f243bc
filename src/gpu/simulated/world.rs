//! Shared state of all simulated GPUs of a job: devices, communicators, and the order of the work.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::collective::{Group, Turn};
use super::host::HostMemory;
use super::memory::Memory;
use super::notes::{Did, Note};
use super::streams::{Point, Queue, Work};
use super::{Alive, Call, Communicator, Event, GpuError, Stream, UniqueId};

/// Devices, communicators and the log.
pub(super) struct World {
    pub(super) devices: Vec<Hardware>,
    groups: Vec<Group>,
    pub(super) released_holds: HashSet<u64>,
    pub(super) notes: Vec<Note>,
    pub(super) failures: Vec<String>,
    random: u64,
    handles: u64,
    /// Nanoseconds on the devices' clock.
    clock: Box<dyn Fn() -> u64 + Send>,
}

/// A device.
pub(super) struct Hardware {
    pub(super) memory: Memory,
    pub(super) host: HostMemory,
    pub(super) streams: BTreeMap<u64, Queue>,
    pub(super) events: HashMap<u64, Point>,
    pub(super) communicators: HashMap<u64, Member>,
    /// Streams that capture a graph.
    pub(super) captured: HashSet<u64>,
    pub(super) allocation_limit: usize,
    pub(super) to_fail: Vec<(&'static str, GpuError)>,
    pub(super) broken: Option<GpuError>,
    pub(super) hangs: bool,
}

/// A rank's handle of a communicator.
#[derive(Clone, Copy)]
pub(super) struct Member {
    group: usize,
    rank: usize,
    is_aborted: bool,
}

impl World {
    pub(super) fn new(seed: u64, devices: usize, clock: Box<dyn Fn() -> u64 + Send>) -> Self {
        let hardware = |at| Hardware {
            memory: Memory::new(at),
            host: HostMemory::default(),
            streams: BTreeMap::from([(0, Queue::default())]), // the legacy default stream
            events: HashMap::new(),
            communicators: HashMap::new(),
            captured: HashSet::new(),
            allocation_limit: usize::MAX,
            to_fail: Vec::new(),
            broken: None,
            hangs: false,
        };
        Self {
            devices: (0..devices).map(hardware).collect(),
            groups: Vec::new(),
            released_holds: HashSet::new(),
            notes: Vec::new(),
            failures: Vec::new(),
            random: seed,
            handles: 1_000,
            clock,
        }
    }

    /// Draws a number below `end`. SplitMix64 (Steele, Lea, Flood 2014).
    pub(super) fn draw(&mut self, end: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let bits = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % end as u64) as usize
    }

    /// Returns a new unique number.
    pub(super) fn handle(&mut self) -> u64 {
        self.handles += 1;
        self.handles
    }

    pub(super) fn note(&mut self, device: usize, did: Did) {
        self.notes.push(Note { device, did });
    }

    /// Records an error of use, and returns it as the caller's error.
    pub(super) fn fault(&mut self, at: usize, call: &'static str, text: String) -> GpuError {
        self.failures.push(format!("device {at}: {call}: {text}"));
        GpuError::Call {
            call,
            name: "SIMULATED_FAULT".to_owned(),
            text,
            advice: "",
        }
    }

    pub(super) fn unbroken(&self, at: usize) -> Result<(), GpuError> {
        self.devices[at].broken.clone().map_or(Ok(()), Err)
    }

    /// Called at the beginning of every call that can fail.
    pub(super) fn enter(&mut self, at: usize, call: &'static str) -> Result<(), GpuError> {
        self.unbroken(at)?;
        let to_fail = &mut self.devices[at].to_fail;
        match to_fail.iter().position(|(name, _)| *name == call) {
            Some(found) => Err(to_fail.remove(found).1),
            None => Ok(()),
        }
    }

    // ---- handles --------------------------------------------------------------------------------

    pub(super) fn event(&mut self, at: usize, event: Event) -> Result<&mut Point, String> {
        match self.devices[at].events.get_mut(&event.0) {
            Some(point) if point.is_destroyed => {
                Err(format!("{event:?} is used after it was destroyed"))
            }
            Some(point) => Ok(point),
            None => Err(format!("{event:?} is none of this device")),
        }
    }

    pub(super) fn queue(&mut self, at: usize, stream: Stream) -> Result<&mut Queue, String> {
        match self.devices[at].streams.get_mut(&stream.0) {
            Some(queue) if queue.is_doomed => {
                Err(format!("{stream:?} is used after it was destroyed"))
            }
            Some(queue) => Ok(queue),
            None => Err(format!(
                "{stream:?} is none of this device, or was destroyed"
            )),
        }
    }

    pub(super) fn destroy_stream(&mut self, at: usize, stream: Stream) -> Result<(), String> {
        self.queue(at, stream)?.is_doomed = true;
        self.bury(at, stream);
        self.note(at, Did::DestroyedStream(stream));
        Ok(())
    }

    /// Removes a stream that is destroyed and has no work left.
    fn bury(&mut self, at: usize, stream: Stream) {
        let device = &mut self.devices[at];
        let is_broken = device.broken.is_some();
        if device
            .streams
            .get(&stream.0)
            .is_some_and(|queue| queue.is_doomed && (queue.work.is_empty() || is_broken))
        {
            device.streams.remove(&stream.0);
        }
    }

    fn member(&mut self, at: usize, communicator: Communicator) -> Result<&mut Member, String> {
        match self.devices[at].communicators.get_mut(&communicator.0) {
            Some(member) if member.is_aborted => {
                Err(format!("{communicator:?} is used after it was aborted"))
            }
            Some(member) => Ok(member),
            None => Err(format!("{communicator:?} is none of this device")),
        }
    }

    pub(super) fn alive(&self, at: usize) -> Alive {
        let device = &self.devices[at];
        Alive {
            allocations: device.memory.live(),
            in_host: device.host.live(),
            streams: device
                .streams
                .iter()
                .filter(|(stream, queue)| **stream != 0 && !queue.is_doomed)
                .count(),
            events: device
                .events
                .values()
                .filter(|point| !point.is_destroyed)
                .count(),
            communicators: device
                .communicators
                .values()
                .filter(|member| !member.is_aborted)
                .count(),
        }
    }

    pub(super) fn free(&mut self, at: usize, address: u64) -> Result<(), String> {
        self.devices[at].memory.free(address)?;
        self.note(at, Did::Freed { address });
        Ok(())
    }

    // ---- communicators --------------------------------------------------------------------------

    pub(super) fn unique_id(&mut self) -> UniqueId {
        let mut id = [0x5a; 128];
        id[..8].copy_from_slice(&self.handle().to_ne_bytes());
        self.groups.push(Group::new(id));
        id
    }

    pub(super) fn join(
        &mut self,
        at: usize,
        id: &UniqueId,
        rank: usize,
        size: usize,
    ) -> Result<Communicator, String> {
        let group = self
            .groups
            .iter()
            .position(|group| group.id == *id)
            .ok_or("an id that was never made")?;
        self.groups[group].take_in(rank, size, at)?;
        let communicator = Communicator(self.handle());
        let is_aborted = false;
        let member = Member {
            group,
            rank,
            is_aborted,
        };
        self.devices[at]
            .communicators
            .insert(communicator.0, member);
        self.note(at, Did::Joined(communicator));
        Ok(communicator)
    }

    /// The first call makes connections, so all ranks must reach it.
    pub(super) fn is_ready(
        &mut self,
        at: usize,
        communicator: Communicator,
    ) -> Result<bool, String> {
        let (group, rank) = self.place(at, communicator)?;
        Ok(self.groups[group].is_ready(rank))
    }

    fn place(&mut self, at: usize, communicator: Communicator) -> Result<(usize, usize), String> {
        self.member(at, communicator)
            .map(|member| (member.group, member.rank))
    }

    pub(super) fn call(
        &mut self,
        at: usize,
        communicator: Communicator,
        calls: &[Call],
        stream: Stream,
    ) -> Result<(), String> {
        let (group, rank) = self.place(at, communicator)?;
        let key = self.handle();
        let group = &mut self.groups[group];
        if !group.is_ready(rank) {
            return Err("a call before the communicator was ready".to_owned());
        }
        if calls.is_empty() {
            return Err("a call of nothing".to_owned());
        }
        let work = Work::Call {
            communicator,
            turn: group.next(rank, calls, key),
            calls: calls.to_vec(),
            has_arrived: false,
        };
        self.put(at, stream, work)
    }

    pub(super) fn abort(&mut self, at: usize, communicator: Communicator) -> Result<(), String> {
        let member = self.member(at, communicator)?;
        member.is_aborted = true;
        let (group, rank) = (member.group, member.rank);
        self.groups[group].withdraw(rank);
        self.note(at, Did::Aborted(communicator));
        Ok(())
    }

    fn is_aborted(&self, at: usize, communicator: Communicator) -> bool {
        self.devices[at].communicators[&communicator.0].is_aborted
    }

    fn is_done(&self, at: usize, communicator: Communicator, turn: Turn) -> bool {
        let member = &self.devices[at].communicators[&communicator.0];
        self.groups[member.group].is_done(turn)
    }

    // ---- work -----------------------------------------------------------------------------------

    pub(super) fn put(&mut self, at: usize, stream: Stream, work: Work) -> Result<(), String> {
        if self.devices[at].captured.contains(&stream.0) {
            return Err(format!("{stream:?} is being captured"));
        }
        self.queue(at, stream)?.work.push_back(work);
        Ok(())
    }

    pub(super) fn is_idle(&self, at: usize) -> bool {
        let device = &self.devices[at];
        device.broken.is_some() || device.streams.values().all(|queue| queue.work.is_empty())
    }

    /// Executes one piece of work; false if none can be executed.
    pub(super) fn step(&mut self) -> bool {
        let mut able = Vec::new();
        for (at, device) in self.devices.iter().enumerate() {
            if device.broken.is_some() {
                continue;
            }
            let heads = device
                .streams
                .iter()
                .filter_map(|(&stream, queue)| Some((stream, queue.work.front()?)));
            able.extend(
                heads
                    .filter(|(_, work)| self.is_able(at, work))
                    .map(|(stream, _)| (at, Stream(stream))),
            );
        }
        if able.is_empty() {
            return false;
        }
        let (at, stream) = able[self.draw(able.len())];
        if let Err(fault) = self.run(at, stream) {
            let error = self.fault(at, "on a stream", fault);
            self.devices[at].broken = Some(error);
        }
        true
    }

    fn is_able(&self, at: usize, work: &Work) -> bool {
        let device = &self.devices[at];
        match work {
            Work::Follow { event, turn } => device.events[&event.0].done >= *turn,
            Work::Hold(hold) => self.released_holds.contains(hold),
            Work::Call { communicator, .. } if self.is_aborted(at, *communicator) => true,
            Work::Call {
                has_arrived: false, ..
            } => !device.hangs,
            Work::Call {
                communicator, turn, ..
            } => self.is_done(at, *communicator, *turn),
            _ => true,
        }
    }

    /// Executes the first piece of work on the stream, or makes it arrive if it is a call of a
    /// communicator.
    fn run(&mut self, at: usize, stream: Stream) -> Result<(), String> {
        let queue = self.devices[at]
            .streams
            .get_mut(&stream.0)
            .ok_or("no such stream")?;
        let mut work = queue.work.pop_front().ok_or("nothing on it")?;
        if let Work::Call {
            communicator,
            turn,
            calls,
            has_arrived,
        } = &mut work
            && !*has_arrived
            && !self.devices[at].communicators[&communicator.0].is_aborted
        {
            *has_arrived = true;
            let (communicator, turn, calls) = (*communicator, *turn, calls.clone());
            self.devices[at]
                .streams
                .get_mut(&stream.0)
                .ok_or("no such stream")?
                .work
                .push_front(work);
            return self.arrive(at, communicator, turn, calls);
        }
        let outcome = self.finish(at, stream, work);
        self.bury(at, stream);
        outcome
    }

    fn arrive(
        &mut self,
        at: usize,
        communicator: Communicator,
        turn: Turn,
        calls: Vec<Call>,
    ) -> Result<(), String> {
        let Member { group, rank, .. } = self.devices[at].communicators[&communicator.0];
        self.groups[group].arrive(&mut self.devices, rank, turn, calls)
    }

    fn finish(&mut self, at: usize, stream: Stream, work: Work) -> Result<(), String> {
        let is_done = match &work {
            Work::Call {
                communicator, turn, ..
            } => self.is_done(at, *communicator, *turn),
            _ => true,
        };
        let now_ns = (self.clock)();
        let device = &mut self.devices[at];
        let did = match work {
            Work::Launch(launch) => {
                launch.run(&mut device.memory)?;
                Did::Launched(stream, launch)
            }
            Work::Call { calls, .. } if is_done => Did::Called(stream, calls),
            Work::Call { calls, .. } => Did::GaveUp(stream, calls),
            Work::Record { event, turn } => {
                let point = device
                    .events
                    .get_mut(&event.0)
                    .ok_or("an event that never was")?;
                point.done = point.done.max(turn);
                point.came_ns = Some(now_ns);
                Did::Recorded(stream, event)
            }
            Work::Follow { event, .. } => Did::Followed(stream, event),
            Work::Allocate { address } => {
                device.memory.arrive(address);
                return Ok(());
            }
            Work::Free { address } => return self.free(at, address),
            Work::Copy { to, from, bytes } => {
                let copied = device.memory.read(from, bytes)?.to_vec();
                device.memory.write(to, &copied)?;
                Did::Copied(stream)
            }
            Work::Upload { to, from, bytes } => {
                device.memory.write(to, &device.host.read(from, bytes)?)?;
                Did::Uploaded(stream)
            }
            Work::Download { to, from, bytes } => {
                device.host.write(to, device.memory.read(from, bytes)?)?;
                Did::Downloaded(stream)
            }
            Work::Write { to, bytes } => {
                device.memory.write(to, &bytes)?;
                Did::Wrote(stream)
            }
            Work::Hold(_) => return Ok(()),
        };
        self.note(at, did);
        Ok(())
    }

    /// Describes the work at the heads of the streams.
    pub(super) fn what_is_stuck(&self) -> String {
        let mut stuck = Vec::new();
        for (at, device) in self.devices.iter().enumerate() {
            for (stream, queue) in &device.streams {
                stuck.extend(
                    queue
                        .work
                        .front()
                        .map(|work| format!("device {at}, stream {stream}: {work:?}")),
                );
            }
        }
        stuck.join("; ")
    }
}
