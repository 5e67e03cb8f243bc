//! The front of the runtime: where callers put tensors and wait for them, and where a cycle picks them up.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use atomic_waker::AtomicWaker;

use crate::clock::{Clock, Nanos};
use crate::error::Error;
use crate::negotiation::Params;
use crate::tensor::Span;
use crate::timeline::period::{Item, PeriodFinder};
use crate::transport::Doorbell;

/// Names kept while not in flight. Beyond that many, those that are idle are forgotten: a job whose names never
/// repeat must not grow for ever.
const IDLE_NAMES_MAX: usize = 1 << 16;

/// Step marks kept for the next cycle; a program that marks steps without submitting anything needs no more.
const STEP_MARKS_MAX: usize = 1024;

/// Tensors in flight at once on one rank.
const IN_FLIGHT_MAX: usize = 1 << 20;

/// What outlives one submission of a tensor: its name and where it was found last time.
#[derive(Debug)]
pub(crate) struct Tensor {
    pub(crate) name: Arc<str>,
    /// The slot in the response cache where it was last; a hint, checked before use.
    pub(crate) slot: AtomicU32,
    /// Its number on the timeline, or `u32::MAX`.
    pub(crate) timeline_id: AtomicU32,
}

const PENDING: u8 = 0;
const DONE: u8 = 1;
const FAILED: u8 = 2;

/// The fate of one submission: shared by the handle and the cycle.
#[derive(Default)]
pub(crate) struct Ticket {
    state: AtomicU8,
    error: Mutex<Option<Error>>,
    waker: AtomicWaker,
    orphaned: AtomicBool,
    orphan: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Ticket {
    /// Whether the outcome is known.
    pub(crate) fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) != PENDING
    }

    /// The outcome, once known.
    pub(crate) fn outcome(&self) -> Option<Result<(), Error>> {
        match self.state.load(Ordering::Acquire) {
            PENDING => None,
            DONE => Some(Ok(())),
            _ => Some(Err(lock(&self.error).clone().unwrap_or(Error::ShutDown))),
        }
    }

    /// Has `waker` woken when the outcome is known.
    pub(crate) fn register(&self, waker: &std::task::Waker) {
        self.waker.register(waker);
    }

    /// Keeps a buffer whose handle was dropped until nobody writes into it any more.
    pub(crate) fn adopt(&self, buffer: Box<dyn Any + Send>) {
        *lock(&self.orphan) = Some(buffer);
        self.orphaned.store(true, Ordering::SeqCst);
        if self.state.load(Ordering::SeqCst) != PENDING {
            lock(&self.orphan).take();
        }
    }

    pub(crate) fn complete(&self, outcome: Result<(), Error>) {
        let state = match outcome {
            Ok(()) => DONE,
            Err(error) => {
                *lock(&self.error) = Some(error);
                FAILED
            }
        };
        self.state.store(state, Ordering::SeqCst);
        self.waker.wake();
        if self.orphaned.load(Ordering::SeqCst) {
            lock(&self.orphan).take();
        }
    }
}

/// One tensor on its way from the caller to a cycle.
pub(crate) struct Submission {
    pub(crate) tensor: Arc<Tensor>,
    pub(crate) ticket: Arc<Ticket>,
    pub(crate) params: Params,
    /// What the searches for the step know it by.
    pub(crate) item: Item,
    pub(crate) group: Option<u32>,
    /// `None` for a barrier.
    pub(crate) span: Option<Span>,
    pub(crate) at: Nanos,
}

impl Drop for Submission {
    /// Whatever happens to it, its caller gets an answer.
    fn drop(&mut self) {
        if !self.ticket.is_done() {
            self.ticket.complete(Err(Error::ShutDown));
        }
    }
}

/// Shared by all callers of one rank and its cycle.
pub(crate) struct Front {
    rank: usize,
    intake: Mutex<Intake>,
    /// The cycle that will pick up what is submitted now.
    next_cycle: AtomicU64,
    completions: Completions,
    /// When the caller marked the ends of steps: more than one when it is quicker than the cycle's end.
    step_marks: Mutex<Vec<Nanos>>,
    step_marked: AtomicBool,
    early_cycle: bool,
    /// The context is being shut down.
    closing: AtomicBool,
    pub(crate) doorbell: Arc<dyn Doorbell>,
    pub(crate) clock: Arc<dyn Clock>,
}

struct Intake {
    names: HashMap<Arc<str>, (Arc<Tensor>, Arc<Ticket>)>,
    queue: Vec<Submission>,
    in_flight: usize,
    /// The next cycle has been asked for.
    rung: bool,
    /// All tensors that the learnt step still expects are in.
    step_complete: bool,
    period: PeriodFinder,
    closed: Option<Error>,
}

impl Front {
    pub(crate) fn new(
        rank: usize,
        early_cycle: bool,
        doorbell: Arc<dyn Doorbell>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            rank,
            intake: Mutex::new(Intake {
                names: HashMap::new(),
                queue: Vec::new(),
                in_flight: 0,
                rung: false,
                step_complete: false,
                period: PeriodFinder::new(),
                closed: None,
            }),
            next_cycle: AtomicU64::new(1),
            completions: Completions::default(),
            step_marks: Mutex::new(Vec::new()),
            step_marked: AtomicBool::new(false),
            early_cycle,
            closing: AtomicBool::new(false),
            doorbell,
            clock,
        }
    }

    /// Puts a tensor in the queue and asks for a cycle.
    pub(crate) fn submit(
        &self,
        name: &str,
        params: Params,
        group: Option<u32>,
        span: Option<Span>,
    ) -> Result<Arc<Ticket>, Error> {
        let at = self.clock.now();
        let item = Item::new(name, params.kind, params.dtype, params.elements());
        let mut intake = lock(&self.intake);
        if let Some(error) = &intake.closed {
            return Err(error.clone());
        }
        let (tensor, ticket) = intake.admit(name, self.rank)?;
        intake.step_complete = intake.period.observe(item).step_complete;
        intake.queue.push(Submission {
            tensor,
            ticket: Arc::clone(&ticket),
            params,
            item,
            group,
            span,
            at,
        });
        let ring = !std::mem::replace(&mut intake.rung, true);
        let eager = self.early_cycle && intake.step_complete;
        // Where one tensor is a whole step, the caller will wait for it at once and drive the cycle itself.
        let own = intake.period.period().is_none_or(|period| period.items != 1);
        let cycle = self.next_cycle.load(Ordering::Relaxed);
        drop(intake);
        if eager {
            self.doorbell.eager(cycle, own);
        }
        if ring {
            self.doorbell.ring(cycle);
        }
        Ok(ticket)
    }

    /// Takes what was submitted; what comes later belongs to `next_cycle`.
    pub(crate) fn collect(&self, into: &mut Vec<Submission>, next_cycle: u64) {
        let mut intake = lock(&self.intake);
        std::mem::swap(into, &mut intake.queue);
        intake.rung = false;
        self.next_cycle.store(next_cycle, Ordering::Relaxed);
    }

    /// At the end of a cycle: if a step's last tensor came while it ran, the next cycle need not wait either.
    pub(crate) fn renew_eagerness(&self) {
        let intake = lock(&self.intake);
        let eager = self.early_cycle && intake.step_complete && !intake.queue.is_empty();
        let cycle = self.next_cycle.load(Ordering::Relaxed);
        drop(intake);
        if eager {
            // Whoever ran the cycle that ends here looks itself whether the next is due.
            self.doorbell.eager(cycle, false);
        }
    }

    /// Says that a caller is blocked until the next cycle, which it drives itself: a reason not to wait for the
    /// cycle time. (A caller whose tensor travels in the cycle that runs now is not blocked until the next.)
    pub(crate) fn hurry(&self) {
        if self.early_cycle {
            self.doorbell
                .eager(self.next_cycle.load(Ordering::Relaxed), false);
        }
    }

    /// Whether something was submitted that no cycle has picked up.
    pub(crate) fn has_queued(&self) -> bool {
        !lock(&self.intake).queue.is_empty()
    }

    /// Lets go of `count` tensors whose tickets are complete.
    pub(crate) fn completed(&self, count: usize) {
        lock(&self.intake).in_flight -= count;
        self.completions.announce();
    }

    /// Refuses submissions from now on with `error`, and fails those still in the queue.
    pub(crate) fn close(&self, error: &Error) {
        let mut intake = lock(&self.intake);
        if intake.closed.is_none() {
            intake.closed = Some(error.clone());
        }
        let queue = std::mem::take(&mut intake.queue);
        drop(intake);
        for submission in queue {
            submission.ticket.complete(Err(error.clone()));
        }
        self.completions.announce();
    }

    /// Asks whoever drives the cycle to let go of it.
    pub(crate) fn begin_closing(&self) {
        self.closing.store(true, Ordering::Release);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(crate) fn completions(&self) -> &Completions {
        &self.completions
    }

    /// Notes that the caller's training step ends now.
    pub(crate) fn mark_step(&self) {
        let now = self.clock.now();
        let mut marks = lock(&self.step_marks);
        if marks.len() < STEP_MARKS_MAX {
            marks.push(now);
        }
        self.step_marked.store(true, Ordering::Release);
    }

    /// The marks since the last call.
    pub(crate) fn take_step_marks(&self) -> Vec<Nanos> {
        if !self.step_marked.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut lock(&self.step_marks))
    }
}

impl Intake {
    /// The lasting entry for `name` and a fresh ticket; refuses a name that is in flight.
    fn admit(&mut self, name: &str, rank: usize) -> Result<(Arc<Tensor>, Arc<Ticket>), Error> {
        if self.in_flight >= IN_FLIGHT_MAX {
            return Err(Error::TooManyInFlight {
                tensor: name.to_owned(),
                rank,
                limit: IN_FLIGHT_MAX,
            });
        }
        if let Some((tensor, ticket)) = self.names.get_mut(name) {
            if !ticket.is_done() {
                return Err(Error::DuplicateName {
                    tensor: name.to_owned(),
                    rank,
                });
            }
            match Arc::get_mut(ticket) {
                Some(unused) => *unused = Ticket::default(), // no allocation in a steady state
                None => *ticket = Arc::default(),
            }
            self.in_flight += 1;
            return Ok((Arc::clone(tensor), Arc::clone(ticket)));
        }
        if self.names.len() >= IDLE_NAMES_MAX + self.in_flight {
            self.names.retain(|_, (_, ticket)| !ticket.is_done());
        }
        let name: Arc<str> = name.into();
        let (slot, timeline_id) = (AtomicU32::new(u32::MAX), AtomicU32::new(u32::MAX));
        let tensor = Arc::new(Tensor {
            name: Arc::clone(&name),
            slot,
            timeline_id,
        });
        let ticket = Arc::<Ticket>::default();
        self.names
            .insert(name, (Arc::clone(&tensor), Arc::clone(&ticket)));
        self.in_flight += 1;
        Ok((tensor, ticket))
    }
}

/// Where callers sleep that wait for a ticket while somebody else drives the cycle.
#[derive(Default)]
pub(crate) struct Completions {
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    signal: Condvar,
}

impl Completions {
    /// Wakes every sleeper: some ticket is complete, or the cycle is free to be driven.
    pub(crate) fn announce(&self) {
        // Pairs with the fence in `sleep`: either this sees the sleeper, or the sleeper sees what is announced.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            drop(lock(&self.lock));
            self.signal.notify_all();
        }
    }

    /// Sleeps until the next announcement, or `timeout`, unless `look` already finds something.
    pub(crate) fn sleep<T>(&self, timeout: Duration, look: impl FnOnce() -> Option<T>) -> Option<T> {
        let guard = lock(&self.lock);
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let found = look();
        if found.is_none() {
            drop(
                self.signal
                    .wait_timeout(guard, timeout)
                    .unwrap_or_else(PoisonError::into_inner),
            );
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        found
    }
}

/// A lock whose poison is no news: the data behind it is valid between any two statements, and a panic of the
/// cycle is reported in its own way.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
