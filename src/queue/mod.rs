//! Tensor queue: callers submit tensors here and wait for them; a cycle takes them from here.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

mod commands;
mod completions;
mod marks;
mod names;
mod ticket;
mod wanted;

pub(crate) use commands::PendingCommand;
pub(crate) use completions::Completions;
pub(crate) use marks::Marks;
pub(crate) use ticket::Ticket;
pub(crate) use wanted::Wanted;

use names::{Known, Names};

use crate::clock::{Clock, Nanos};
use crate::command::Command;
use crate::device::OnDevice;
use crate::error::{ArgumentError, Error, LimitError};
use crate::negotiation::{IN_FLIGHT_MAX, OpKind, Params};
use crate::sync::lock;
use crate::tensor::Span;
use crate::timeline::period::{Item, PeriodFinder};
use crate::transport::Doorbell;

/// Names kept while not in flight. Beyond that many, those that are idle are forgotten: a job whose names never
/// repeat must not grow for ever.
const IDLE_NAMES_MAX: usize = 1 << 16;

/// What outlives one submission of a tensor: its name and where it was found last time.
#[derive(Debug)]
pub(crate) struct Tensor {
    pub(crate) name: Arc<str>,
    /// The slot in the response cache where it was last; a hint, checked before use.
    pub(crate) slot: AtomicU32,
    /// Its number on the timeline, or `u32::MAX`.
    pub(crate) timeline_id: AtomicU32,
    /// Its caller has its answer, and its batch is still on a device.
    pub(crate) is_on_device: AtomicBool,
}

/// Where the result of an operation goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Where the span says.
    Fixed,
    /// Where the span says, if it has just so many bytes.
    Sized(usize),
    /// To memory that the cycle allocates once it knows the size.
    New,
    /// Nowhere: this rank has joined, and the tensor is the others'.
    Absent,
}

/// What a caller submits.
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a str,
    pub(crate) params: Wanted<'a>,
    /// `None` if nothing travels.
    pub(crate) span: Option<Span>,
    pub(crate) output: Output,
    /// `None` for tensors in host memory.
    pub(crate) on: Option<Box<OnDevice>>,
}

/// One tensor on its way from the caller to a cycle.
pub(crate) struct Submission {
    /// Shared with the submission before of the same name, if they are equal: a submission is moved
    /// several times on its way, and is small.
    task: Arc<Task>,
    pub(crate) ticket: Arc<Ticket>,
    /// `None` if nothing travels.
    pub(crate) span: Option<Span>,
    pub(crate) output: Output,
    /// `None` for tensors in host memory, and of other ranks.
    pub(crate) on: Option<Box<OnDevice>>,
    pub(crate) at: Nanos,
}

/// A tensor and what is done with it.
pub(crate) struct Task {
    pub(crate) tensor: Arc<Tensor>,
    /// Shared with the response cache.
    pub(crate) params: Arc<Params>,
    /// What the searches for the step know it by.
    pub(crate) item: Item,
}

impl Task {
    fn new(tensor: Arc<Tensor>, params: Arc<Params>) -> Arc<Self> {
        let item = Item::new(&tensor.name, params.kind, params.dtype, params.elements());
        Arc::new(Self { tensor, params, item })
    }
}

impl Deref for Submission {
    type Target = Task;

    fn deref(&self) -> &Task {
        &self.task
    }
}

impl Submission {
    /// The stand-in for tensor `name` of other ranks on a rank that has joined. `at` is the start of
    /// the first cycle that has it.
    pub(crate) fn absent(name: Arc<str>, params: impl Into<Arc<Params>>, at: Nanos) -> Self {
        let mut params = params.into();
        if params.kind.has_own_rows() {
            let params = Arc::make_mut(&mut params);
            params.shape.iter_mut().take(1).for_each(|rows| *rows = 0);
            params.splits.iter_mut().for_each(|splits| splits.fill(0));
        }
        let span = params.kind.moves_data().then(|| Span::absent(params.bytes()));
        Self {
            task: Task::new(Arc::new(Tensor::new(name)), params),
            ticket: Arc::default(),
            span,
            output: Output::Absent,
            on: None,
            at,
        }
    }

    /// Whether its caller is answered when it is on a device's list.
    pub(crate) fn is_early(&self) -> bool {
        self.on.as_ref().is_some_and(|on| on.is_early)
    }

    /// Whether it stands for other ranks' tensor.
    pub(crate) fn is_absent(&self) -> bool {
        self.output == Output::Absent
    }
}

impl Tensor {
    fn new(name: Arc<str>) -> Self {
        Self {
            name,
            slot: AtomicU32::new(u32::MAX),
            timeline_id: AtomicU32::new(u32::MAX),
            is_on_device: AtomicBool::new(false),
        }
    }
}

impl Drop for Submission {
    /// Whatever happens to it, its caller gets an answer.
    fn drop(&mut self) {
        if !self.ticket.is_done() {
            self.ticket.complete(Err(Error::ShutDown));
        }
    }
}

/// Tensor queue of one process set on one rank, shared by all callers and its cycle.
pub(crate) struct TensorQueue {
    rank: usize,
    intake: Mutex<Intake>,
    /// The cycle that will pick up what is submitted now.
    next_cycle: AtomicU64,
    completions: Completions,
    marks: Marks,
    early_cycle: bool,
    /// The context is being shut down.
    closing: AtomicBool,
    /// Error that another part of this rank met; the cycle ends with it.
    abort_reason: Mutex<Option<Error>>,
    is_aborted: AtomicBool,
    pub(crate) doorbell: Arc<dyn Doorbell>,
    pub(crate) clock: Arc<dyn Clock>,
}

struct Intake {
    names: Names,
    queue: Vec<Submission>,
    commands: Vec<PendingCommand>,
    in_flight: usize,
    /// The next cycle has been asked for.
    rung: bool,
    /// All tensors that the learnt step still expects are in.
    step_complete: bool,
    period: PeriodFinder,
    closed: Option<Error>,
    /// Why submissions are refused for the time being.
    suspended: Option<Error>,
    /// This rank has said that it has no more data; until all have.
    joined: bool,
}

impl TensorQueue {
    pub(crate) fn new(
        rank: usize,
        early_cycle: bool,
        doorbell: Arc<dyn Doorbell>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            rank,
            intake: Mutex::new(Intake {
                names: Names::default(),
                queue: Vec::new(),
                commands: Vec::new(),
                in_flight: 0,
                rung: false,
                step_complete: false,
                period: PeriodFinder::new(),
                closed: None,
                suspended: None,
                joined: false,
            }),
            next_cycle: AtomicU64::new(1),
            completions: Completions::default(),
            marks: Marks::default(),
            early_cycle,
            closing: AtomicBool::new(false),
            abort_reason: Mutex::new(None),
            is_aborted: AtomicBool::new(false),
            doorbell,
            clock,
        }
    }

    /// This process's rank in the job.
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// Puts a tensor in the queue and asks for a cycle.
    pub(crate) fn submit(&self, entry: Entry<'_>) -> Result<Arc<Ticket>, Error> {
        let at = self.clock.now();
        let mut intake = self.open_intake()?;
        intake.check_room(1, entry.name, self.rank)?;
        let ticket = intake.take_in(entry, self.rank, at)?;
        let last = intake.queue.len() - 1;
        intake.observe_from(last);
        self.ask_for_cycle(intake);
        Ok(ticket)
    }

    /// Puts several tensors in the queue at once, all or none; no cycle sees some of them without the others.
    pub(crate) fn submit_group(&self, entries: Vec<Entry<'_>>) -> Result<Vec<Arc<Ticket>>, Error> {
        let at = self.clock.now();
        let mut intake = self.open_intake()?;
        let Some(first) = entries.first() else {
            return Ok(Vec::new());
        };
        intake.check_room(entries.len(), first.name, self.rank)?;
        let before = intake.queue.len();
        let mut tickets = Vec::with_capacity(entries.len());
        for entry in entries {
            match intake.take_in(entry, self.rank, at) {
                Ok(ticket) => tickets.push(ticket),
                Err(error) => {
                    intake.take_back(before);
                    return Err(error);
                }
            }
        }
        intake.observe_from(before);
        self.ask_for_cycle(intake);
        Ok(tickets)
    }

    /// Has the next cycle bring `command` to every rank, and asks for that cycle; on rank 0, in the set of all ranks. The
    /// ticket says what has become of it on this rank.
    pub(crate) fn command(&self, command: Command) -> Result<Arc<Ticket>, Error> {
        let mut intake = self.open_intake()?;
        let ticket = Arc::<Ticket>::default();
        intake.commands.push(PendingCommand {
            command,
            ticket: Arc::clone(&ticket),
        });
        self.ask_for_cycle(intake);
        Ok(ticket)
    }

    fn open_intake(&self) -> Result<MutexGuard<'_, Intake>, Error> {
        let intake = lock(&self.intake);
        match intake.closed.as_ref().or(intake.suspended.as_ref()) {
            Some(error) => Err(error.clone()),
            None => Ok(intake),
        }
    }

    /// Asks for the cycle that will pick up what has come in.
    fn ask_for_cycle(&self, mut intake: MutexGuard<'_, Intake>) {
        let ring = !std::mem::replace(&mut intake.rung, true);
        let eager = self.early_cycle && intake.step_complete;
        // Where one tensor is a whole step, the caller will wait for it at once and drive the cycle itself.
        let own = eager && intake.period.period().is_none_or(|period| period.items != 1);
        let cycle = self.next_cycle.load(Ordering::Relaxed);
        drop(intake);
        if eager {
            self.doorbell.eager(cycle, own);
        }
        if ring {
            self.doorbell.ring(cycle);
        }
    }

    /// All ranks have joined: this one may submit again.
    pub(crate) fn rejoined(&self) {
        lock(&self.intake).joined = false;
    }

    /// Takes what was submitted and ordered; what comes later belongs to `next_cycle`.
    pub(crate) fn collect(
        &self,
        into: &mut Vec<Submission>,
        commands: &mut Vec<PendingCommand>,
        next_cycle: u64,
    ) {
        let mut intake = lock(&self.intake);
        std::mem::swap(into, &mut intake.queue);
        commands.append(&mut intake.commands);
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

    /// Asks for `cycle`, at once: what had to wait need not any more.
    pub(crate) fn call_for(&self, cycle: u64) {
        self.doorbell.ring(cycle);
        if self.early_cycle {
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

    /// Refuses submissions with `error` until [`resume`](Self::resume); the number of tensors submitted here whose
    /// outcome is not known, which cannot grow meanwhile.
    pub(crate) fn suspend(&self, error: Error) -> usize {
        let mut intake = lock(&self.intake);
        intake.suspended = Some(error);
        intake.in_flight
    }

    /// Takes submissions again.
    pub(crate) fn resume(&self) {
        lock(&self.intake).suspended = None;
    }

    /// Whether something was submitted or ordered that no cycle has picked up.
    pub(crate) fn has_queued(&self) -> bool {
        let intake = lock(&self.intake);
        !intake.queue.is_empty() || !intake.commands.is_empty()
    }

    /// Lets go of `count` tensors whose tickets are about to be completed, and then [announced](Completions::announce):
    /// who has seen its ticket complete does not find it in flight any more.
    pub(crate) fn release(&self, count: usize) {
        lock(&self.intake).in_flight -= count;
    }

    /// Refuses submissions and commands from now on with `error`, and fails those still in the queue.
    pub(crate) fn close(&self, error: &Error) {
        let mut intake = lock(&self.intake);
        if intake.closed.is_none() {
            intake.closed = Some(error.clone());
        }
        let queue = std::mem::take(&mut intake.queue);
        let commands = std::mem::take(&mut intake.commands);
        drop(intake);
        for submission in queue {
            submission.ticket.complete(Err(error.clone()));
        }
        for command in commands {
            command.ticket.complete(Err(error.clone()));
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

    /// Refuses submissions from now on with `error`, and has the cycle end with it.
    pub(crate) fn abort(&self, error: &Error) {
        lock(&self.abort_reason).get_or_insert_with(|| error.clone());
        self.is_aborted.store(true, Ordering::Release);
        self.close(error);
        self.doorbell.wake_self();
    }

    /// Why this engine was aborted, if it was.
    pub(crate) fn abort_reason(&self) -> Option<Error> {
        if !self.is_aborted.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.abort_reason).clone()
    }

    pub(crate) fn completions(&self) -> &Completions {
        &self.completions
    }

    /// Notes that the caller's training step ends now.
    pub(crate) fn mark_step(&self) {
        self.marks.step(self.clock.now());
    }

    /// Notes that the caller's epoch ends now.
    pub(crate) fn mark_epoch(&self) {
        self.marks.epoch(self.clock.now());
    }

    /// What the caller has marked since the cycle last took it.
    pub(crate) fn marks(&self) -> &Marks {
        &self.marks
    }
}

impl Intake {
    /// Refuses `more` tensors, of which `name` is one, if they are too many.
    fn check_room(&self, more: usize, name: &str, rank: usize) -> Result<(), Error> {
        if self.in_flight + more > IN_FLIGHT_MAX {
            return Err(LimitError::InFlight {
                tensor: name.to_owned(),
                rank,
                limit: IN_FLIGHT_MAX,
            }
            .into());
        }
        Ok(())
    }

    /// Puts a tensor in the queue; [`observe_from`](Self::observe_from) follows, or [`take_back`](Self::take_back).
    fn take_in(&mut self, entry: Entry<'_>, rank: usize, at: Nanos) -> Result<Arc<Ticket>, Error> {
        let Entry {
            name,
            params,
            span,
            output,
            on,
        } = entry;
        if self.joined {
            return Err(ArgumentError::HasJoined {
                tensor: name.to_owned(),
                rank,
            }
            .into());
        }
        let is_join = params.kind() == OpKind::Join;
        let (task, ticket) = self.admit(name, params, rank)?;
        let submission = Submission {
            task,
            ticket: Arc::clone(&ticket),
            span,
            output,
            on,
            at,
        };
        self.queue.push(submission);
        self.in_flight += 1;
        self.joined = is_join;
        Ok(ticket)
    }

    /// The task of `name` and a fresh ticket; refuses a name that is in flight.
    fn admit(
        &mut self,
        name: &str,
        params: Wanted<'_>,
        rank: usize,
    ) -> Result<(Arc<Task>, Arc<Ticket>), Error> {
        let Some(known) = self.names.get_mut(name) else {
            return Ok(self.introduce(name, params));
        };
        if !known.ticket.is_done() {
            return Err(duplicate(name, rank));
        }
        if !Ticket::renew(&known.ticket) {
            known.ticket = Arc::default();
        }
        if !params.equals(&known.task.params) {
            known.task = Task::new(Arc::clone(&known.task.tensor), params.into_params());
        }
        Ok((Arc::clone(&known.task), Arc::clone(&known.ticket)))
    }

    /// A lasting entry for a name that has none.
    fn introduce(&mut self, name: &str, params: Wanted<'_>) -> (Arc<Task>, Arc<Ticket>) {
        if self.names.len() >= IDLE_NAMES_MAX + self.in_flight {
            self.names.retain(|known| !known.ticket.is_done());
        }
        let tensor = Arc::new(Tensor::new(name.into()));
        let (task, ticket) = (Task::new(tensor, params.into_params()), Arc::default());
        self.names.insert(Known {
            name: Arc::clone(&task.tensor.name),
            task: Arc::clone(&task),
            ticket: Arc::clone(&ticket),
        });
        (task, ticket)
    }

    /// Takes what was put in the queue from place `first` on out again: no cycle has seen it, and nobody has its tickets.
    fn take_back(&mut self, first: usize) {
        self.in_flight -= self.queue.len() - first;
        self.queue.truncate(first); // dropped, a submission's ticket is done, and its name free
    }

    /// Shows the search for the step what was put in the queue from place `first` on.
    fn observe_from(&mut self, first: usize) {
        self.step_complete = false;
        for submission in &self.queue[first..] {
            self.step_complete |= self.period.observe(submission.item).step_complete;
        }
    }
}

fn duplicate(name: &str, rank: usize) -> Error {
    Error::Argument(ArgumentError::DuplicateName {
        tensor: name.to_owned(),
        rank,
    })
}
