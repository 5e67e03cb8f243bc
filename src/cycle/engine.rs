//! The engine: runs the cycle when it is due, on the rank's own thread or on that of a caller that
//! waits.
//!
//! Both run the same loop: find out when the next cycle is due, and run it or sleep until then. The
//! lock of the cycle decides which thread runs it. A caller blocked in `wait` takes the lock if it
//! is free, which saves two thread switches for each synchronous operation. The background thread
//! never sleeps with the lock held.
//!
//! Each process set of a rank has its own engine and thread: operations of overlapping sets run at
//! the same time, and no order among the sets can cause a deadlock between ranks. An error that
//! ends one engine of a rank ends all.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use super::liveness::CHECK_INTERVAL;
use super::{Cycle, Due};
use crate::clock::Nanos;
use crate::error::Error;
use crate::queue::{TensorQueue, Ticket};
use crate::sync::lock;
use crate::transport::{Doorbell, Park, Role};

/// A cycle and its tensor queue, shared by the background thread and all callers.
pub(crate) struct Engine {
    pub(crate) queue: Arc<TensorQueue>,
    pub(crate) cycle: Mutex<Cycle>,
    /// This process's rank in the job.
    pub(crate) rank: usize,
    pub(crate) engine_group: Arc<EngineGroup>,
}

/// Engine group: the tensor queues of all engines of one rank. An error that ends one engine ends
/// all.
#[derive(Default)]
pub(crate) struct EngineGroup {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    queues: Vec<Arc<TensorQueue>>,
    abort_reason: Option<Error>,
}

impl EngineGroup {
    /// Adds an engine's tensor queue. If the group was aborted before, the queue is aborted at
    /// once.
    pub(crate) fn add(&self, queue: Arc<TensorQueue>) {
        let mut known = lock(&self.known);
        if let Some(error) = &known.abort_reason {
            queue.abort(error);
        }
        known.queues.push(queue);
    }

    /// Removes an engine that has shut down without an error.
    pub(crate) fn remove(&self, queue: &Arc<TensorQueue>) {
        lock(&self.known)
            .queues
            .retain(|known| !Arc::ptr_eq(known, queue));
    }

    /// Aborts every engine of this rank with `error`, or with the error of an earlier call, which
    /// is returned: a later one usually follows from it.
    pub(crate) fn abort(&self, error: &Error) -> Error {
        let mut known = lock(&self.known);
        let error = known
            .abort_reason
            .get_or_insert_with(|| error.clone())
            .clone();
        let queues = known.queues.clone();
        drop(known); // an abort completes tickets, whose wakers are the program's code
        queues.iter().for_each(|queue| queue.abort(&error));
        error
    }
}

/// Time limit of a shutdown for the running step: longer than most batches take, short enough that
/// a program ends soon.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(10);

/// Time after which a sleeping caller checks again whether it can drive the cycle.
const WAIT_SLICE: Duration = Duration::from_millis(100);

impl Engine {
    /// Loop of the background thread; returns when the cycle has ended.
    pub(crate) fn run(&self) {
        if let Ok(cycle) = self.cycle.try_lock() {
            cycle.begin(); // a caller that drives it already has asked for a cycle
        }
        let mut cycle_time = Duration::ZERO;
        loop {
            let wakes = self.queue.doorbell.wakes();
            let park = match self.try_cycle() {
                Some(mut cycle) => {
                    cycle_time = cycle.cycle_time();
                    match self.advance(&mut cycle) {
                        Advance::Ended => return,
                        Advance::Stepped => None,
                        Advance::Park(park) => Some(park),
                    }
                }
                // A caller drives the cycle, and wakes this thread if work of this rank is left when
                // it stops. The caller probably drives the next cycle too: neither a ring nor callers
                // that are about to wait need wake this thread before the cycle time has passed.
                None => {
                    let now = self.queue.clock.now();
                    Some(match cycle_time.is_zero() {
                        true => Park::Idle(Some(now + WAIT_SLICE)), // for what other ranks wait for
                        false => Park::Driven(now + cycle_time),
                    })
                }
            };
            // The cycle is free now: a waiting caller may drive it, or may have a completed ticket.
            self.queue.completions().announce();
            if let Some(park) = park {
                self.queue.doorbell.park(Role::Background, wakes, park);
            }
        }
    }

    /// Waits until `ticket` has its outcome, or `deadline`; drives the cycle meanwhile if no other
    /// thread does.
    pub(crate) fn wait(&self, ticket: &Ticket, deadline: Option<Nanos>) -> bool {
        ticket.is_done() || self.queue.blocked(|| self.wait_blocked(ticket, deadline))
    }

    fn wait_blocked(&self, ticket: &Ticket, deadline: Option<Nanos>) -> bool {
        let over = || {
            ticket.is_done() || deadline.is_some_and(|deadline| self.queue.clock.now() >= deadline)
        };
        while !over() {
            // A cycle that a shutdown is about to end is left to the thread that ends it.
            let free = || {
                if self.queue.is_closing() {
                    None
                } else {
                    self.try_cycle()
                }
            };
            let driven = free().or_else(|| {
                let slice = deadline.map_or(WAIT_SLICE, |end| {
                    (end - self.queue.clock.now()).min(WAIT_SLICE)
                });
                // A ticket that is done by now may have been announced before this thread sleeps.
                let look = || match ticket.is_done() {
                    true => Some(None),
                    false => free().map(Some),
                };
                self.queue.completions().sleep(slice, look).flatten()
            });
            if let Some(mut cycle) = driven {
                let presence = Presence::new(&*self.queue.doorbell);
                self.drive_until(&mut cycle, &over, deadline);
                let has_ended = cycle.ended().is_some();
                let work_left = cycle.pending() > 0 && !has_ended;
                drop(cycle);
                drop(presence);
                if work_left || self.queue.has_queued() {
                    self.queue.doorbell.wake_self();
                }
                self.queue.completions().announce();
                if has_ended {
                    // Another thread completes the tensors that are still on a GPU.
                    let look = || ticket.is_done().then_some(());
                    self.queue.completions().sleep(WAIT_SLICE, look);
                }
            }
        }
        ticket.is_done()
    }

    pub(crate) fn drive_until(
        &self,
        cycle: &mut Cycle,
        over: &dyn Fn() -> bool,
        deadline: Option<Nanos>,
    ) {
        let mut hurried = false;
        loop {
            // Before the check of the ticket: another thread completes GPU tensors, and wakes this
            // one once.
            let wakes = self.queue.doorbell.wakes();
            if over() || self.queue.is_closing() {
                return;
            }
            if !std::mem::replace(&mut hurried, true) {
                self.queue.hurry();
            }
            match self.advance(cycle) {
                Advance::Ended => return,
                Advance::Stepped => hurried = false,
                Advance::Park(park) => {
                    self.queue
                        .doorbell
                        .park(Role::Driver, wakes, park.until(deadline))
                }
            }
        }
    }

    /// The cycle, if no other thread has it. If one has panicked with it, it ends here.
    fn try_cycle(&self) -> Option<MutexGuard<'_, Cycle>> {
        match self.cycle.try_lock() {
            Ok(cycle) => Some(cycle),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(poisoned)) => {
                self.cycle.clear_poison();
                let mut cycle = poisoned.into_inner();
                self.fail(&mut cycle, self.panicked("while holding the cycle"));
                Some(cycle)
            }
        }
    }

    /// Runs the next cycle if it is due; otherwise returns how long to sleep.
    fn advance(&self, cycle: &mut Cycle) -> Advance {
        if cycle.ended().is_some() {
            return Advance::Ended;
        }
        if let Some(error) = self.queue.abort_reason() {
            cycle.end(error);
            return Advance::Ended;
        }
        let now = self.queue.clock.now();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            cycle.poll_device()?;
            match cycle.due(now) {
                Due::Now => {
                    cycle.check_stalls_while_busy(now)?;
                    cycle.step(now).map(|()| Advance::Stepped)
                }
                Due::At(pace) | Due::Idle(Some(pace)) => {
                    // A long cycle time does not put off the checks.
                    let check = match pace > now + CHECK_INTERVAL {
                        true => cycle.check_liveness(now)?,
                        false => None,
                    };
                    Ok(Advance::Park(Park::Pace(pace).until(check)))
                }
                Due::Idle(None) => cycle
                    .check_liveness(now)
                    .map(|next| Advance::Park(Park::Idle(next))),
            }
        }));
        match outcome {
            Ok(Ok(advance)) => advance,
            Ok(Err(error)) => {
                self.fail(cycle, error);
                Advance::Ended
            }
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                self.fail(
                    cycle,
                    self.panicked(text.as_deref().unwrap_or("no message")),
                );
                Advance::Ended
            }
        }
    }

    /// Ends the cycle with an unrecoverable error and aborts the other engines of this rank. If the
    /// rank was aborted before, and this error has come back from a peer that was told so, the
    /// cycle ends with the first one.
    fn fail(&self, cycle: &mut Cycle, error: Error) {
        let first = self.engine_group.abort(&error);
        cycle.end(first);
    }

    /// Ends the cycle normally, with the error `why` for pending tensors, after the running step.
    /// Returns false if that step does not end within 10 s, because it waits for a rank that is
    /// alive and does not answer. The cycle then ends when the step does.
    ///
    /// If the rank has failed elsewhere and this engine has not ended for it yet, the cycle ends
    /// with that error, so that its peers receive the cause.
    pub(crate) fn shut_down(&self, why: &Error) -> bool {
        let why = &self.queue.abort_reason().unwrap_or_else(|| why.clone());
        self.queue.begin_closing();
        self.queue.doorbell.wake_self(); // so that a caller that drives the cycle releases it
        let began = Instant::now();
        loop {
            match self.try_cycle() {
                Some(mut cycle) => cycle.end(why.clone()),
                None if began.elapsed() < SHUTDOWN_PATIENCE => {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                None => {
                    self.queue.abort(why); // whoever runs the step ends the cycle after it
                    return false;
                }
            }
            self.queue.doorbell.wake_self();
            return true;
        }
    }

    fn panicked(&self, message: &str) -> Error {
        Error::Internal {
            rank: self.rank,
            message: format!("the cycle panicked: {message}"),
        }
    }
}

/// A driver's presence at the doorbell.
struct Presence<'a>(&'a dyn Doorbell);

impl<'a> Presence<'a> {
    fn new(doorbell: &'a dyn Doorbell) -> Self {
        doorbell.present(true);
        Self(doorbell)
    }
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        self.0.present(false);
        if std::thread::panicking() {
            self.0.wake_self(); // the background thread ends the cycle
        }
    }
}

enum Advance {
    Stepped,
    Park(Park),
    Ended,
}
