//! Batches on a GPU: a cycle launches them and goes on; a thread of their own waits for each one's last event and completes its
//! tensors. So negotiation of what comes next overlaps with what is on the device, and no tensor costs a wait of its own.
//!
//! What the cycle's observer is told of such a batch it is told at the beginning of the next cycle, with the times at which it
//! happened: before anything new of the same tensors can be.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::Cycle;
use crate::clock::Nanos;
use crate::collective::nccl::{Awaited, Company, Launched, NcclCollective, SetRank, Trouble, gpu_error};
use crate::error::Error;
use crate::gpu::{Device, DeviceBinding, Mark, Stream};
use crate::negotiation::OpKind;
use crate::observer::Executed;
use crate::queue::TensorQueue;
use crate::ready::Ready;
use crate::sync::lock;

mod anchor;
mod launch_throttle;
#[cfg(test)]
mod tests;
mod times;

use anchor::Anchor;
use launch_throttle::LaunchThrottle;
use times::Times;

/// How long what is on the device may take when the context is shut down, before it is ended.
const ORDERLY_PATIENCE: Duration = Duration::from_secs(1);

/// How long what is on the device may take to end when it has been told to.
const ABORT_PATIENCE: Duration = Duration::from_secs(5);

/// The set's device on this rank, and what is on it.
pub(super) struct OnGpu {
    binding: Arc<DeviceBinding>,
    queue: Arc<TensorQueue>,
    /// Made when there is a first tensor for it.
    nccl: Option<NcclCollective>,
    reaper: Option<Reaper>,
    shared: Arc<Shared>,
    pub(super) throttle: LaunchThrottle,
    /// Launched in this cycle, with the positions of their tensors.
    launched: Vec<(Start, SmallVec<[u32; 16]>)>,
}

/// A batch that has been launched.
struct Start {
    kind: OpKind,
    launched: Launched,
    /// When the launch began, and when its NCCL communicator was created, if it did not exist before.
    began: Nanos,
    connected: Option<Nanos>,
}

/// A launched batch and its tensors.
struct Flight {
    start: Start,
    members: Vec<Ready>,
}

/// A batch that is over, for the observer.
struct Landed {
    flight: Flight,
    times: Option<Times>,
    error: Option<Error>,
}

/// What cycle and reaper both see.
#[derive(Default)]
struct Shared {
    landed: Mutex<Vec<Landed>>,
    /// Tensors.
    in_flight: AtomicUsize,
    /// Why nothing that is in flight counts any more.
    given_up: Mutex<Option<Error>>,
    has_left: AtomicBool,
}

/// The thread, and the way to it.
struct Reaper {
    flights: Sender<Flight>,
    thread: JoinHandle<()>,
}

impl OnGpu {
    pub(super) fn new(binding: Arc<DeviceBinding>, queue: Arc<TensorQueue>) -> Self {
        Self {
            binding,
            queue,
            nccl: None,
            reaper: None,
            shared: Arc::default(),
            throttle: LaunchThrottle::default(),
            launched: Vec::new(),
        }
    }

    /// Tensors on the device.
    pub(super) fn in_flight(&self) -> usize {
        self.shared.in_flight.load(Ordering::Acquire)
    }

    /// Whether all is well with what is in flight.
    ///
    /// # Errors
    /// What NCCL has found out.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.nccl.as_ref().map_or(Ok(()), NcclCollective::check)
    }

    /// Hands what was launched in this cycle, and its tensors out of `ready`, to the reaper.
    pub(super) fn take_off(&mut self, ready: &mut Vec<Ready>) -> Result<(), Error> {
        if self.launched.is_empty() {
            return Ok(());
        }
        let reaper = match &mut self.reaper {
            Some(reaper) => reaper,
            none => {
                let device = &self.launched[0].0.launched.ended;
                none.insert(Reaper::start(&self.queue, &self.shared, device)?)
            }
        };
        let mut ready: Vec<Option<Ready>> = ready.drain(..).map(Some).collect();
        for (start, positions) in self.launched.drain(..) {
            let mut members: Vec<Ready> = positions
                .iter()
                .filter_map(|&position| ready[position as usize].take())
                .collect();
            self.throttle.launched(&start.launched);
            self.shared.in_flight.fetch_add(members.len(), Ordering::AcqRel);
            answer_early(&mut members, &start.launched, &self.queue);
            // It takes all that comes until `stop`.
            let _ = reaper.flights.send(Flight { start, members });
        }
        Ok(())
    }

    /// Ends the nccl: what is in flight is waited for a little, if the cycle ends in an orderly way, and then given up.
    pub(super) fn stop(&mut self, why: &Error) {
        let Some(mut nccl) = self.nccl.take() else { return };
        self.launched.clear();
        let wait = |patience: Duration| {
            let end = Instant::now() + patience;
            while self.in_flight() > 0 && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.in_flight() == 0
        };
        let is_over = wait(if why.is_orderly() {
            ORDERLY_PATIENCE
        } else {
            Duration::ZERO
        });
        if !is_over || !why.is_orderly() {
            *lock(&self.shared.given_up) = Some(why.clone());
            nccl.abort();
        }
        // Nothing may write into the tensors of who is told next: also what was launched and not handed over.
        let mut is_idle = wait(ABORT_PATIENCE);
        if let Ok(last) = nccl.device().mark(nccl.stream(), false) {
            let end = Instant::now() + ABORT_PATIENCE;
            // An error of the device means that it does nothing any more.
            while matches!(nccl.device().gpu.has_come(last.event), Ok(false)) {
                if Instant::now() > end {
                    is_idle = false;
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let reaper = self.reaper.take();
        if !is_idle {
            tracing::error!("the GPU does not end what it was given; its memory and a thread are left to it");
            std::mem::forget((nccl, reaper));
            return;
        }
        if let Some(Reaper { flights, thread }) = reaper {
            drop(flights);
            let _ = thread.join(); // it catches nothing that panics, and has nothing to say
        }
    }
}

impl Drop for OnGpu {
    fn drop(&mut self) {
        self.stop(&Error::ShutDown);
    }
}

impl Cycle {
    /// Puts a batch onto the device.
    ///
    /// # Errors
    /// This rank cannot go on.
    pub(super) fn launch(&mut self, batch: &[u32]) -> Result<(), Error> {
        match self.try_launch(batch) {
            Ok(start) => {
                self.gpu.launched.push((start, batch.into()));
                Ok(())
            }
            Err(Trouble::OfRank(error)) => Err(error),
            Err(Trouble::OfBatch(error)) => {
                let members = || batch.iter().map(|&position| &self.ready[position as usize]);
                for member in members() {
                    self.observer.refused(&member.submission.tensor, &error);
                }
                let own = members().filter(|member| !member.submission.is_absent());
                self.queue.release(own.count());
                for member in members() {
                    let error = match error.clone() {
                        Error::Device(error) => {
                            error.of_tensor(member.submission.tensor.name.to_string()).into()
                        }
                        error => error,
                    };
                    member.submission.ticket.complete(Err(error));
                }
                self.queue.completions().announce();
                Ok(())
            }
        }
    }

    fn try_launch(&mut self, batch: &[u32]) -> Result<Start, Trouble> {
        let set_rank = SetRank {
            rank: self.transport.rank(),
            size: self.transport.size(),
        };
        let began = self.queue.clock.now();
        let mut connected = None;
        let gpu = &mut self.gpu;
        let mut company = Company {
            transport: &mut *self.transport,
            members: &self.members,
            inter_node: self.collective.inter_node(),
        };
        let nccl = match &mut gpu.nccl {
            Some(nccl) => nccl,
            none => {
                let nccl = NcclCollective::make(set_rank, gpu.binding.device(), &mut company)?;
                connected = Some(self.queue.clock.now());
                none.insert(nccl)
            }
        };
        for &position in batch {
            self.ready[position as usize].make_room(set_rank.rank, set_rank.size, Some(nccl));
        }
        let members = || batch.iter().map(|&position| &self.ready[position as usize]);
        self.load.fill(members(), set_rank.size).map_err(|problem| {
            Trouble::OfRank(super::internal(
                self.members[set_rank.rank],
                "execute a batch",
                &problem,
            ))
        })?;
        let first = &self.ready[batch[0] as usize].submission.params;
        let root = self.members.binary_search(&(first.root as usize)).unwrap_or(0);
        let batch = self.load.on_gpu(first, root);
        let awaited = awaited(members());
        let awaited = Awaited { marks: &awaited };
        let launched = nccl.launch(&batch, &awaited, gpu.binding.wants_times(), &mut company)?;
        Ok(Start {
            kind: batch.kind,
            launched,
            began,
            connected,
        })
    }

    /// Tells the observer of what has come back from the device; whether something has.
    ///
    /// # Errors
    /// What has gone wrong there.
    pub(super) fn land(&mut self) -> Result<bool, Error> {
        if !self.gpu.shared.has_left.swap(false, Ordering::AcqRel) {
            return Ok(false);
        }
        let landed = std::mem::take(&mut *lock(&self.gpu.shared.landed));
        let mut outcome = Ok(true);
        for batch in landed {
            for member in &batch.flight.members {
                let tensor = &member.submission.tensor;
                tensor.is_on_device.store(false, Ordering::Release);
            }
            if let Some(error) = batch.error {
                outcome = outcome.and(Err(error));
                continue;
            }
            let Some(times) = batch.times else { continue };
            let members: SmallVec<[&Ready; 16]> = batch.flight.members.iter().collect();
            self.observer.executed(&Executed {
                members: &members,
                stages: None,
                began: times.began,
                allocated: None,
                ended: times.ended,
                phases: times.phases,
                on_device: Some(&times.activities),
            });
        }
        outcome
    }
}

/// Answers who can put a stream behind the result, and wants that.
fn answer_early(members: &mut [Ready], launched: &Launched, queue: &TensorQueue) {
    let is_early = |member: &Ready| member.submission.is_early();
    let count = members.iter().filter(|member| is_early(member)).count();
    if count == 0 {
        return;
    }
    queue.release(count);
    for member in members.iter_mut().filter(|member| is_early(member)) {
        let outcome = member.deliver();
        let ticket = &member.submission.ticket;
        let tensor = &member.submission.tensor;
        tensor.is_on_device.store(true, Ordering::Release); // before its caller can submit it again
        ticket.expect(Arc::clone(&launched.ended));
        ticket.complete(outcome);
    }
    queue.completions().announce();
}

/// Of each of the callers' streams, the mark that comes last; several where threads made them at once. (When tensors were submitted
/// does not tell: a mark is made before that.)
fn awaited<'a>(members: impl Iterator<Item = &'a Ready>) -> SmallVec<[&'a Mark; 2]> {
    let mut last: SmallVec<[(Stream, &Mark); 2]> = SmallVec::new();
    for on in members.filter_map(|member| member.submission.on.as_ref()) {
        let (stream, mark) = (on.stream, &on.ready);
        if last
            .iter()
            .any(|(known, later)| *known == stream && mark.is_before(later))
        {
            continue;
        }
        last.retain(|(known, earlier)| *known != stream || !earlier.is_before(mark));
        last.push((stream, mark));
    }
    last.into_iter().map(|(_, mark)| mark).collect()
}

impl Reaper {
    fn start(queue: &Arc<TensorQueue>, shared: &Arc<Shared>, mark: &Mark) -> Result<Self, Error> {
        let (flights, incoming) = channel();
        let rank = queue.rank();
        let device = Arc::clone(mark.device());
        let (queue, shared) = (Arc::clone(queue), Arc::clone(shared));
        let reap = move || reap(&incoming, &device, &queue, &shared);
        let thread = std::thread::Builder::new().name("ronde-gpu".into()).spawn(reap);
        let thread = thread.map_err(|error| Error::Internal {
            rank,
            message: format!("no thread for the GPU: {error}"),
        })?;
        Ok(Self { flights, thread })
    }
}

/// The thread's life: completes one batch after another, as they end.
fn reap(flights: &Receiver<Flight>, device: &Arc<Device>, queue: &TensorQueue, shared: &Shared) {
    let mut anchor: Option<Anchor> = None;
    for mut flight in flights {
        let waited = device.gpu.wait(flight.start.launched.ended.event);
        let given_up = lock(&shared.given_up).clone();
        let error = given_up.or_else(|| waited.err().map(|error| gpu_error(queue.rank(), error)));
        let times = match &error {
            None => {
                let seen = queue.clock.now();
                let anchor = match flight.start.launched.ended.is_timed {
                    true => Anchor::renewed(&mut anchor, device, &*queue.clock),
                    false => None,
                };
                Times::of(&flight.start, &flight.members, anchor, seen)
            }
            Some(_) => None,
        };
        let count = flight.members.len();
        let waits = |member: &Ready| !member.submission.is_early();
        let own = |member: &&Ready| waits(member) && !member.submission.is_absent();
        queue.release(flight.members.iter().filter(own).count());
        let waiting = flight.members.iter_mut().filter(|member| waits(member));
        let answers: SmallVec<[_; 16]> = waiting
            .map(|member| {
                let outcome = match &error {
                    None => member.deliver(),
                    Some(error) => Err(error.clone()),
                };
                (Arc::clone(&member.submission.ticket), outcome)
            })
            .collect();
        // Before any caller hears of it: the cycle that its next submission comes to must have told the observer. Until all have
        // heard, that cycle waits here: a submission that it lets go of must have been answered.
        let mut landed = lock(&shared.landed);
        shared.has_left.store(true, Ordering::Release);
        for (ticket, outcome) in answers {
            ticket.complete(outcome);
        }
        landed.push(Landed { flight, times, error });
        drop(landed);
        shared.in_flight.fetch_sub(count, Ordering::AcqRel);
        queue.completions().announce();
        queue.doorbell.wake_self();
    }
}
