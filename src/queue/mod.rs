//! Tensor queue: callers submit tensors here and wait for them; a cycle takes them from here.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

mod commands;
mod completions;
mod marks;
mod names;
mod step_times;
mod ticket;
mod wanted;

pub(crate) use commands::PendingCommand;
pub(crate) use completions::Completions;
pub(crate) use marks::Marks;
pub(crate) use ticket::Ticket;
pub(crate) use wanted::Wanted;

use names::{Known, Names};
use step_times::StepTimes;

use crate::clock::{Clock, Nanos};
use crate::command::Command;
use crate::device::OnDevice;
use crate::error::{ArgumentError, Error, LimitError};
use crate::negotiation::{IN_FLIGHT_MAX, OpKind, Params};
use crate::sync::lock;
use crate::tensor::Span;
use crate::timeline::period::{Item, PeriodFinder};
use crate::transport::{Doorbell, Start};

/// Most names that are remembered while not in flight. With more, idle names are forgotten: a job
/// whose names never repeat must not use more and more memory.
const IDLE_NAMES_MAX: usize = 1 << 16;

/// Data of a tensor that outlives a submission: its name and its latest cache slot.
#[derive(Debug)]
pub(crate) struct Tensor {
    pub(crate) name: Arc<str>,
    /// Latest slot in the response cache; a hint, checked before use.
    pub(crate) slot: AtomicU32,
    /// Its number on the timeline, or `u32::MAX`.
    pub(crate) timeline_id: AtomicU32,
    /// Whether the caller has its answer while the batch is still on a device.
    pub(crate) is_on_device: AtomicBool,
}

/// Destination of an operation's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// The output of the span.
    Fixed,
    /// The output of the span, if it has exactly this number of bytes.
    Sized(usize),
    /// Memory that the cycle allocates when it knows the size.
    New,
    /// None: this rank has joined, and the tensor belongs to other ranks.
    Absent,
}

/// Submission as the caller passes it.
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a str,
    pub(crate) params: Wanted<'a>,
    /// `None` for operations without data.
    pub(crate) span: Option<Span>,
    pub(crate) output: Output,
    /// `None` for tensors in host memory.
    pub(crate) on: Option<Box<OnDevice>>,
}

/// One tensor in flight.
pub(crate) struct Submission {
    /// Shared with the previous submission of the same name, if both are equal: a submission is
    /// moved several times, and stays small.
    task: Arc<Task>,
    pub(crate) ticket: Arc<Ticket>,
    /// `None` for operations without data.
    pub(crate) span: Option<Span>,
    pub(crate) output: Output,
    /// `None` for tensors in host memory, and for those of other ranks.
    pub(crate) on: Option<Box<OnDevice>>,
    pub(crate) at: Nanos,
}

/// A tensor with its operation.
pub(crate) struct Task {
    pub(crate) tensor: Arc<Tensor>,
    /// Shared with the response cache.
    pub(crate) params: Arc<Params>,
    /// Item of the step detection.
    pub(crate) item: Item,
}

impl Task {
    fn new(tensor: Arc<Tensor>, params: Arc<Params>) -> Arc<Self> {
        let item = Item::new(&tensor.name, params.kind, params.dtype, params.elements());
        Arc::new(Self {
            tensor,
            params,
            item,
        })
    }
}

impl Deref for Submission {
    type Target = Task;

    fn deref(&self) -> &Task {
        &self.task
    }
}

impl Submission {
    /// Stand-in, on a rank that has joined, for tensor `name` of other ranks. `at` is the start of
    /// the first cycle that has it.
    pub(crate) fn absent(name: Arc<str>, params: impl Into<Arc<Params>>, at: Nanos) -> Self {
        let mut params = params.into();
        if params.kind.has_own_rows() {
            let params = Arc::make_mut(&mut params);
            params.shape.iter_mut().take(1).for_each(|rows| *rows = 0);
            params.splits.iter_mut().for_each(|splits| splits.fill(0));
        }
        let span = params
            .kind
            .moves_data()
            .then(|| Span::absent(params.bytes()));
        Self {
            task: Task::new(Arc::new(Tensor::new(name)), params),
            ticket: Arc::default(),
            span,
            output: Output::Absent,
            on: None,
            at,
        }
    }

    /// Whether its caller gets the answer when the operation is queued on a device.
    pub(crate) fn is_early(&self) -> bool {
        self.on.as_ref().is_some_and(|on| on.is_early)
    }

    /// Whether it is the stand-in for other ranks' tensor.
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
    /// Completes the ticket in any case, so that the caller gets an answer.
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
    /// Number of the cycle that will collect tensors that are submitted now.
    next_cycle: AtomicU64,
    completions: Completions,
    marks: Marks,
    early_cycle: bool,
    /// The context is being shut down.
    closing: AtomicBool,
    /// Error of another part of this rank; the cycle ends with it.
    abort_reason: Mutex<Option<Error>>,
    is_aborted: AtomicBool,
    /// Nanoseconds that callers were blocked since the last report; `None` if not measured.
    blocked_ns: Option<AtomicU64>,
    pub(crate) doorbell: Arc<dyn Doorbell>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// State of the learnt step when submissions are collected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CollectedStep {
    /// Whether a step is complete since the last collection.
    pub(crate) is_new: bool,
    /// Whether all tensors of the last step were submitted, and none of the next.
    pub(crate) between_steps: bool,
}

struct Intake {
    names: Names,
    queue: Vec<Submission>,
    commands: Vec<PendingCommand>,
    in_flight: usize,
    /// Whether the next cycle has been requested.
    rung: bool,
    /// Whether all tensors that the learnt step still expects are submitted.
    step_complete: bool,
    /// Whether no tensor of the learnt step was submitted since the last step was complete.
    between_steps: bool,
    step_times: StepTimes,
    period: PeriodFinder,
    closed: Option<Error>,
    /// Error of submissions while they are suspended.
    suspended: Option<Error>,
    /// Whether this rank has joined; reset when all ranks have.
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
                between_steps: false,
                step_times: StepTimes::default(),
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
            blocked_ns: None,
            doorbell,
            clock,
        }
    }

    /// Makes it measure how long callers are blocked, if `is_wanted`.
    pub(crate) fn measuring_blocks(mut self, is_wanted: bool) -> Self {
        self.blocked_ns = is_wanted.then(AtomicU64::default);
        self
    }

    /// Runs `wait`, in which the caller is blocked, and measures its time if that is wanted.
    pub(crate) fn blocked<T>(&self, wait: impl FnOnce() -> T) -> T {
        let Some(blocked_ns) = &self.blocked_ns else {
            return wait();
        };
        let began = self.clock.now();
        let outcome = wait();
        let took = self.clock.now() - began;
        blocked_ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        outcome
    }

    /// Returns the time that callers were blocked since the last call.
    pub(crate) fn take_blocked(&self) -> Duration {
        let blocked_ns = self.blocked_ns.as_ref();
        Duration::from_nanos(blocked_ns.map_or(0, |ns| ns.swap(0, Ordering::Relaxed)))
    }

    /// This process's job rank.
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// Adds a tensor to the queue and requests a cycle.
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

    /// Adds several tensors to the queue, all or none; one cycle collects all of them.
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

    /// Makes the next cycle send `command` to every rank, and requests that cycle; on rank 0, in
    /// the set of all ranks. The ticket returns the outcome on this rank.
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

    /// Requests the cycle that will collect the new submissions.
    fn ask_for_cycle(&self, mut intake: MutexGuard<'_, Intake>) {
        let ring = !std::mem::replace(&mut intake.rung, true);
        let eager = self.early_cycle && intake.step_complete;
        let start = eager.then(|| match intake.period.period() {
            // If one tensor is a whole step, the callers will wait for it at once and run the cycle
            // themselves.
            Some(period) if period.items == 1 => Start::Callers,
            _ => Start::Background,
        });
        let cycle = self.next_cycle.load(Ordering::Relaxed);
        drop(intake);
        if let Some(start) = start {
            self.doorbell.eager(cycle, start);
        }
        if ring {
            self.doorbell.ring(cycle);
        }
    }

    /// All ranks have joined: this rank may submit again.
    pub(crate) fn rejoined(&self) {
        lock(&self.intake).joined = false;
    }

    /// Takes the submissions and commands in the queue; later ones belong to `next_cycle`. If a
    /// step is complete since the last call, moves the times and sizes of its tensors to
    /// `step_times`.
    pub(crate) fn collect(
        &self,
        into: &mut Vec<Submission>,
        commands: &mut Vec<PendingCommand>,
        step_times: &mut Vec<(u64, u64)>,
        next_cycle: u64,
    ) -> CollectedStep {
        let mut intake = lock(&self.intake);
        std::mem::swap(into, &mut intake.queue);
        commands.append(&mut intake.commands);
        intake.rung = false;
        self.next_cycle.store(next_cycle, Ordering::Relaxed);
        CollectedStep {
            is_new: intake.step_times.take(step_times),
            between_steps: intake.between_steps,
        }
    }

    /// Time of this rank's first submission of the current step, if there is one.
    pub(crate) fn step_began(&self) -> Option<Nanos> {
        lock(&self.intake).step_times.began()
    }

    /// Called at the end of a cycle: if a step's last tensor was submitted during it, the next
    /// cycle starts early too.
    pub(crate) fn renew_eagerness(&self) {
        let intake = lock(&self.intake);
        let eager = self.early_cycle && intake.step_complete && !intake.queue.is_empty();
        let cycle = self.next_cycle.load(Ordering::Relaxed);
        drop(intake);
        if eager {
            // The thread that ran this cycle checks itself whether the next one is due.
            self.doorbell.eager(cycle, Start::Here);
        }
    }

    /// Requests `cycle` to start at once, without waiting for the cycle time.
    pub(crate) fn call_for(&self, cycle: u64) {
        self.doorbell.ring(cycle);
        if self.early_cycle {
            self.doorbell.eager(cycle, Start::Here);
        }
    }

    /// Reports that a caller is blocked until the next cycle, which it runs itself: a reason not to
    /// wait for the cycle time. (A caller with a tensor in the present cycle is not blocked until
    /// the next one.)
    pub(crate) fn hurry(&self) {
        if self.early_cycle {
            self.doorbell
                .eager(self.next_cycle.load(Ordering::Relaxed), Start::Here);
        }
    }

    /// Refuses submissions with `error` until [`resume`](Self::resume). Returns the number of this
    /// rank's tensors in flight, which cannot grow meanwhile.
    pub(crate) fn suspend(&self, error: Error) -> usize {
        let mut intake = lock(&self.intake);
        intake.suspended = Some(error);
        intake.in_flight
    }

    /// Accepts submissions again.
    pub(crate) fn resume(&self) {
        lock(&self.intake).suspended = None;
    }

    /// Whether the queue has submissions or commands that no cycle has collected.
    pub(crate) fn has_queued(&self) -> bool {
        let intake = lock(&self.intake);
        !intake.queue.is_empty() || !intake.commands.is_empty()
    }

    /// Subtracts `count` tensors from those in flight, before their tickets are completed and
    /// [announced](Completions::announce): a caller that has seen its ticket complete does not find
    /// the tensor in flight any more.
    pub(crate) fn release(&self, count: usize) {
        lock(&self.intake).in_flight -= count;
    }

    /// Refuses submissions and commands from now on with `error`, and fails those that are still in
    /// the queue.
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

    /// Makes the thread that runs the cycle stop doing so.
    pub(crate) fn begin_closing(&self) {
        self.closing.store(true, Ordering::Release);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Refuses submissions from now on with `error`, and ends the cycle with it.
    pub(crate) fn abort(&self, error: &Error) {
        lock(&self.abort_reason).get_or_insert_with(|| error.clone());
        self.is_aborted.store(true, Ordering::Release);
        self.close(error);
        self.doorbell.wake_self();
    }

    /// Reason why this engine was aborted, if it was.
    pub(crate) fn abort_reason(&self) -> Option<Error> {
        if !self.is_aborted.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.abort_reason).clone()
    }

    pub(crate) fn completions(&self) -> &Completions {
        &self.completions
    }

    /// Marks the end of the caller's training step.
    pub(crate) fn mark_step(&self) {
        self.marks.step(self.clock.now());
    }

    /// Marks the end of the caller's epoch.
    pub(crate) fn mark_epoch(&self) {
        self.marks.epoch(self.clock.now());
    }

    /// Marks of the caller since the cycle last took them.
    pub(crate) fn marks(&self) -> &Marks {
        &self.marks
    }
}

impl Intake {
    /// Returns an error that names tensor `name` if `more` further tensors are too many.
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

    /// Adds a tensor to the queue; the caller then calls [`observe_from`](Self::observe_from) or
    /// [`take_back`](Self::take_back).
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

    /// Returns the task of `name` with a new ticket; refuses a name that is in flight.
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

    /// Makes a permanent entry for a new name.
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

    /// Removes the submissions from index `first` on: no cycle has seen them, and no caller has
    /// their tickets.
    fn take_back(&mut self, first: usize) {
        self.in_flight -= self.queue.len() - first;
        self.queue.truncate(first); // a dropped submission completes its ticket and frees its name
    }

    /// Passes the submissions from index `first` on to the step detection.
    fn observe_from(&mut self, first: usize) {
        self.step_complete = false;
        for submission in &self.queue[first..] {
            let observed = self.period.observe(submission.item);
            self.step_complete |= observed.step_complete;
            if observed.foreign {
                continue;
            }
            if observed.changed {
                self.step_times = StepTimes::default();
            }
            let on_device = submission.params.device.is_some();
            self.step_times
                .submitted(submission.at, submission.item.bytes(), on_device);
            self.between_steps = observed.step_complete;
            if observed.step_complete {
                self.step_times.complete();
            }
        }
    }
}

fn duplicate(name: &str, rank: usize) -> Error {
    Error::Argument(ArgumentError::DuplicateName {
        tensor: name.to_owned(),
        rank,
    })
}
