//! Device batches: a cycle launches them without waiting; each completes its tensors when the
//! device reports its end, on another thread. Negotiation of the next tensors therefore overlaps
//! with the batches on the device, and no tensor costs a separate wait.
//!
//! The cycle's observer receives such a batch at the beginning of the next cycle, with its true
//! times, and before any new event of the same tensors.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use smallvec::SmallVec;

use super::Cycle;
use crate::clock::Nanos;
use crate::collective::asynchronous::{
    AsyncCollective, DeviceActivities, DeviceClock, LaunchError, Launched, OpenDevice, Peers,
    SetRank,
};
use crate::device;
use crate::error::{DeviceError, Error, GpuError, PeerError};
use crate::negotiation::OpKind;
use crate::observer::Executed;
use crate::queue::TensorQueue;
use crate::ready::Ready;
use crate::sync::lock;

mod launch_throttle;
mod times;

use launch_throttle::LaunchThrottle;
use times::Times;

/// Time limit for batches on the device when the context is shut down; after it they are aborted.
const ORDERLY_PATIENCE: Duration = Duration::from_secs(1);

/// Time limit for such batches whose results callers may use before the device has computed them:
/// after an abort they would be wrong.
const EARLY_PATIENCE: Duration = Duration::from_secs(60);

/// Interval at which such a wait looks for ranks that are lost, without which the batches do not end.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Time limit for batches on the device to end after they were aborted.
const ABORT_PATIENCE: Duration = Duration::from_secs(5);

/// The set's device on this rank, and the batches on it.
pub(super) struct Launches {
    device: Arc<dyn OpenDevice>,
    queue: Arc<TensorQueue>,
    /// Collective; opened for the first GPU tensor.
    collective: Option<Box<dyn AsyncCollective>>,
    shared: Arc<Shared>,
    pub(super) throttle: LaunchThrottle,
    /// Batches launched in this cycle, with the positions of their tensors.
    launched: Vec<(Start, SmallVec<[u32; 16]>)>,
}

/// Times of a batch that was launched.
struct Start {
    kind: OpKind,
    launched: Launched,
    /// Start of the launch; start of opening the collective, if the launch opened it.
    began: Nanos,
    opened: Option<Nanos>,
    activities: &'static DeviceActivities,
}

/// Launched batch and its tensors.
struct Flight {
    start: Start,
    members: Vec<Ready>,
}

/// Batch that has ended, for the observer.
struct Ended {
    flight: Flight,
    times: Option<Times>,
    error: Option<Error>,
}

/// State that the cycle shares with the callbacks at the ends of its batches.
#[derive(Default)]
struct Shared {
    ended: Mutex<Vec<Ended>>,
    /// Number of tensors in flight.
    in_flight: AtomicUsize,
    /// Those of them on which callers rely already; see [`is_relied_on`].
    relied_on: AtomicUsize,
    /// Error for which all batches in flight have failed.
    given_up: Mutex<Option<Error>>,
    has_ended: AtomicBool,
}

impl Launches {
    pub(super) fn new(device: Arc<dyn OpenDevice>, queue: Arc<TensorQueue>) -> Self {
        Self {
            device,
            queue,
            collective: None,
            shared: Arc::default(),
            throttle: LaunchThrottle::default(),
            launched: Vec::new(),
        }
    }

    /// Number of tensors on the device.
    pub(super) fn in_flight(&self) -> usize {
        self.shared.in_flight.load(Ordering::Acquire)
    }

    /// Checks the batches in flight for errors.
    ///
    /// # Errors
    /// An error that the collective reports.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.collective
            .as_ref()
            .map_or(Ok(()), |collective| collective.check())
    }

    /// Moves the tensors of the batches launched in this cycle out of `ready`: they complete when
    /// their batch ends.
    pub(super) fn hand_over(&mut self, ready: &mut Vec<Ready>) {
        let Some(collective) = self
            .collective
            .as_mut()
            .filter(|_| !self.launched.is_empty())
        else {
            return;
        };
        let mut ready: Vec<Option<Ready>> = ready.drain(..).map(Some).collect();
        for (start, positions) in self.launched.drain(..) {
            let mut members: Vec<Ready> = positions
                .iter()
                .filter_map(|&position| ready[position as usize].take())
                .collect();
            self.throttle.launched(&start.launched);
            self.shared
                .in_flight
                .fetch_add(members.len(), Ordering::AcqRel);
            let relied_on = members.iter().filter(|member| is_relied_on(member));
            self.shared
                .relied_on
                .fetch_add(relied_on.count(), Ordering::AcqRel);
            answer_early(&mut members, &start.launched, &self.queue);
            let ended = Arc::clone(&start.launched.ended);
            let flight = Flight { start, members };
            let (queue, shared) = (Arc::clone(&self.queue), Arc::clone(&self.shared));
            let complete = move |outcome: Result<(), GpuError>, clock: &mut dyn DeviceClock| {
                flight.complete(outcome, clock, &queue, &shared);
            };
            collective.on_end(ended, Box::new(complete));
        }
    }

    /// Ends the collective. If the cycle ends normally, waits a limited time for the batches in
    /// flight, as long as `check_peers` and the collective find no rank lost (one that has left may
    /// hide it); then aborts them.
    pub(super) fn stop(&mut self, why: &Error, check_peers: &mut dyn FnMut() -> Result<(), Error>) {
        let Some(mut collective) = self.collective.take() else {
            return;
        };
        self.launched.clear();
        let is_over = || self.in_flight() == 0;
        let relied_on = || self.shared.relied_on.load(Ordering::Acquire);
        let mut patience = match (lets_end(why), relied_on()) {
            (false, _) => Duration::ZERO,
            (true, 0) => ORDERLY_PATIENCE,
            (true, _) => EARLY_PATIENCE,
        };
        let mut why = why.clone();
        let mut has_ended = false;
        while !patience.is_zero() {
            let time = patience.min(LOOK_INTERVAL);
            patience -= time;
            has_ended = collective.wait_until(time, &is_over);
            if has_ended {
                break;
            }
            let failure = collective.check().and_then(|()| check_peers()).err();
            if let Some(error) = failure.filter(|error| !is_left(error)) {
                why = error;
                break;
            }
        }
        if !has_ended {
            let lost = relied_on();
            if lost > 0 {
                tracing::error!(
                    "{lost} results on the GPU that callers were given before they were computed are lost: {why}"
                );
            }
            *lock(&self.shared.given_up) = Some(why);
            collective.abort();
        }
        // Nothing may write into a tensor after its caller is notified. This includes batches that
        // were launched and not handed over.
        let mut is_idle = collective.wait_until(ABORT_PATIENCE, &is_over);
        if let Some(last) = collective.last() {
            // After an error, the device does no more work.
            is_idle &=
                collective.wait_until(ABORT_PATIENCE, &|| !matches!(last.has_come(), Ok(false)));
        }
        if !is_idle {
            tracing::error!(
                "the GPU does not finish its work; its memory and a thread are not released"
            );
            std::mem::forget(collective);
        }
    }
}

impl Drop for Launches {
    fn drop(&mut self) {
        self.stop(&Error::ShutDown, &mut || Ok(()));
    }
}

impl Cycle {
    /// Returns the counter of tensors on the device, for tests that must not lock the cycle.
    #[cfg(test)]
    pub(crate) fn in_flight_view(&self) -> impl Fn() -> usize + Send + Sync + 'static {
        let shared = Arc::clone(&self.launches.shared);
        move || shared.in_flight.load(Ordering::Acquire)
    }

    /// Launches a batch on the device.
    ///
    /// # Errors
    /// This rank cannot continue.
    pub(super) fn launch(&mut self, batch: &[u32]) -> Result<(), Error> {
        match self.try_launch(batch) {
            Ok(start) => {
                self.launches.launched.push((start, batch.into()));
                Ok(())
            }
            Err(LaunchError::Rank(error)) => Err(error),
            Err(LaunchError::Batch(error)) => {
                let members = || batch.iter().map(|&position| &self.ready[position as usize]);
                for member in members() {
                    self.observer.refused(&member.submission.tensor, &error);
                }
                let own = members().filter(|member| !member.submission.is_absent());
                self.queue.release(own.count());
                for member in members() {
                    let error = match error.clone() {
                        Error::Device(error) => error
                            .of_tensor(member.submission.tensor.name.to_string())
                            .into(),
                        error => error,
                    };
                    member.submission.ticket.complete(Err(error));
                }
                self.queue.completions().announce();
                Ok(())
            }
        }
    }

    fn try_launch(&mut self, batch: &[u32]) -> Result<Start, LaunchError> {
        let set_rank = SetRank {
            rank: self.transport.rank(),
            size: self.transport.size(),
        };
        let began = self.queue.clock.now();
        let mut opened = None;
        let launches = &mut self.launches;
        let mut peers = Peers {
            transport: &mut *self.transport,
            members: &self.members,
            inter_node: self.collective.inter_node(),
        };
        let collective = match &mut launches.collective {
            Some(collective) => collective,
            none => {
                let opened_for = &self.ready[batch[0] as usize].submission.tensor.name;
                let collective = launches
                    .device
                    .open(set_rank, &mut peers)
                    .map_err(|error| error.of_first(opened_for))?;
                opened = Some(self.queue.clock.now());
                none.insert(collective)
            }
        };
        for &position in batch {
            self.ready[position as usize].make_room(
                set_rank.rank,
                set_rank.size,
                self.members[set_rank.rank],
                Some(&**collective),
            );
        }
        let members = || batch.iter().map(|&position| &self.ready[position as usize]);
        self.load
            .fill(members(), set_rank.size)
            .map_err(|problem| {
                LaunchError::Rank(super::internal(
                    self.members[set_rank.rank],
                    "execute a batch",
                    &problem,
                ))
            })?;
        let first = &self.ready[batch[0] as usize].submission.params;
        let root = self
            .members
            .binary_search(&(first.root as usize))
            .unwrap_or(0);
        let batch = self.load.on_device(first, root);
        let inputs = device::latest(members().filter_map(|member| member.submission.on.as_deref()));
        let launched =
            collective.launch(&batch, &inputs, launches.device.wants_times(), &mut peers)?;
        Ok(Start {
            kind: batch.kind,
            launched,
            began,
            opened,
            activities: collective.activities(),
        })
    }

    /// Reports batches that have ended to the observer; returns whether there were any.
    ///
    /// # Errors
    /// The device or the collective has failed.
    pub(super) fn report_ended(&mut self) -> Result<bool, Error> {
        if !self.launches.shared.has_ended.swap(false, Ordering::AcqRel) {
            return Ok(false);
        }
        let ended = std::mem::take(&mut *lock(&self.launches.shared.ended));
        let mut outcome = Ok(true);
        for batch in ended {
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

/// Whether the batches on the device may end after `error`. A rank that has left has done its part.
pub(super) fn lets_end(error: &Error) -> bool {
    error.is_orderly() || is_left(error)
}

fn is_left(error: &Error) -> bool {
    matches!(error, Error::Peer(PeerError::Left { .. }))
}

/// Whether a caller may use the result before it is computed. A rank that has joined does not know
/// whether the callers on other ranks do.
fn is_relied_on(member: &Ready) -> bool {
    member.submission.is_early() || member.submission.is_absent()
}

/// Completes the tickets of callers whose streams can wait for the result, if they asked for it.
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

impl Flight {
    /// Completes the batch's tensors, and keeps the batch for the observer.
    fn complete(
        mut self,
        outcome: Result<(), GpuError>,
        clock: &mut dyn DeviceClock,
        queue: &TensorQueue,
        shared: &Shared,
    ) {
        let given_up = lock(&shared.given_up).clone();
        let of_device = |error| DeviceError::of_rank(queue.rank(), error).into();
        let error = given_up.or_else(|| outcome.err().map(of_device));
        let times = match &error {
            None => {
                let seen = queue.clock.now();
                let is_timed = self.start.launched.ended.is_timed && clock.align(&*queue.clock);
                Times::of(
                    &self.start,
                    &self.members,
                    is_timed.then_some(&*clock),
                    seen,
                )
            }
            Some(_) => None,
        };
        let count = self.members.len();
        let relied_on = self.members.iter().filter(|member| is_relied_on(member));
        let relied_on = relied_on.count();
        let waits = |member: &Ready| !member.submission.is_early();
        let own = |member: &&Ready| waits(member) && !member.submission.is_absent();
        queue.release(self.members.iter().filter(own).count());
        let waiting = self.members.iter_mut().filter(|member| waits(member));
        let answers: SmallVec<[_; 16]> = waiting
            .map(|member| {
                let outcome = match &error {
                    None => member.deliver(),
                    Some(error) => Err(error.clone()),
                };
                (Arc::clone(&member.submission.ticket), outcome)
            })
            .collect();
        // Before any caller is notified: the cycle that receives its next submission must have
        // reported this batch to the observer. That cycle waits here until all callers are
        // notified: a submission that it releases must have been completed.
        let mut ended = lock(&shared.ended);
        shared.has_ended.store(true, Ordering::Release);
        for (ticket, outcome) in answers {
            ticket.complete(outcome);
        }
        ended.push(Ended {
            flight: self,
            times,
            error,
        });
        drop(ended);
        shared.relied_on.fetch_sub(relied_on, Ordering::AcqRel);
        shared.in_flight.fetch_sub(count, Ordering::AcqRel);
        queue.completions().announce();
        queue.doorbell.wake_self();
    }
}
