//! The cycle: one `step` takes what was submitted, agrees with the other ranks on what is ready everywhere, packs
//! it into batches, moves them, and hands the results back.
//!
//! `step` asks for nothing but the present: threads, sleeping and the machine's clock are outside
//! ([`crate::drive`]), so the simulator runs the same code under a seed. What makes all ranks do the same in the
//! same order: a cycle decides only from the agreement of its exchange (the same everywhere) and from the
//! response cache (changed only by agreements).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::clock::Nanos;
use crate::collective::{Collective, Phases, Reduction};
use crate::error::Error;
use crate::fusion::{Item, Plan};
use crate::negotiation::coordinator::Ticks;
use crate::negotiation::response::{decode, encode};
use crate::negotiation::{
    Coordinator, OpKind, Params, Request, RequestList, Response, ResponseCache, ResponseList,
};
use crate::observer::{CycleEnd, Executed, NoObserver, Observer};
use crate::queue::{Front, Submission};
use crate::settings::Settings;
use crate::tensor::Span;
use crate::transport::{Agreement, Block, Status, Transport};

/// When the next cycle is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// At once.
    Now,
    /// When the cycle time has passed, unless every rank becomes eager before.
    At(Nanos),
    /// When some rank asks for it; not before this time, if the cycle time has not passed yet.
    Idle(Option<Nanos>),
}

/// See the module.
pub(crate) struct Cycle {
    transport: Box<dyn Transport>,
    collective: Box<dyn Collective>,
    observer: Box<dyn Observer>,
    front: Arc<Front>,
    early: bool,

    /// The cycle that runs or ran last; the first is 1.
    number: u64,
    began: Nanos,
    settings: Settings,
    /// Settings to publish with the next block: newer than `settings` if this rank wants a change.
    newest: Settings,

    cache: ResponseCache,
    coordinator: Option<Coordinator>,
    block: Block,
    agreed: Agreement,
    /// Cached tensors that are ready here, by slot.
    hits: Vec<Option<Submission>>,
    hits_held: usize,
    /// Tensors that were or will be asked for by a request.
    misses: HashMap<Arc<str>, Submission>,
    unsent: Vec<Request>,

    // Emptied and filled again in every cycle; kept for their memory.
    incoming: Vec<Submission>,
    ready: Vec<Submission>,
    items: Vec<Item>,
    classes: Vec<Class>,
    plan: Plan,
    spans: Vec<Span>,
    frame: Vec<u8>,
    frames: Vec<Vec<u8>>,
    ticks: Vec<Ticks>,

    ended: Option<Error>,
}

impl Cycle {
    pub(crate) fn new(
        transport: Box<dyn Transport>,
        collective: Box<dyn Collective>,
        observer: Box<dyn Observer>,
        front: Arc<Front>,
        cache_capacity: usize,
        settings: Settings,
        early: bool,
    ) -> Self {
        let coordinator = (transport.rank() == 0).then(|| Coordinator::new(transport.size()));
        let agreed = Agreement::new(coordinator.is_some());
        Self {
            transport,
            collective,
            observer,
            front,
            early,
            number: 0,
            began: Nanos(0),
            settings,
            newest: settings,
            cache: ResponseCache::new(cache_capacity),
            coordinator,
            block: Block::new(0),
            agreed,
            hits: Vec::new(),
            hits_held: 0,
            misses: HashMap::new(),
            unsent: Vec::new(),
            incoming: Vec::new(),
            ready: Vec::new(),
            items: Vec::new(),
            classes: Vec::new(),
            plan: Plan::default(),
            spans: Vec::new(),
            frame: Vec::new(),
            frames: Vec::new(),
            ticks: Vec::new(),
            ended: None,
        }
    }

    /// Runs one cycle that begins at `now`. After an error nothing more can be reduced; see [`end`](Self::end).
    pub(crate) fn step(&mut self, now: Nanos) -> Result<(), Error> {
        self.collect(now);
        self.negotiate()?;
        let agreed = self.front.clock.now();
        self.observer.agreed(now, agreed);
        self.plan();
        self.execute(agreed)?;
        self.complete();
        Ok(())
    }

    /// When the next cycle is due, seen from `now`.
    pub(crate) fn due(&self, now: Nanos) -> Due {
        let next = self.number + 1;
        let pace = self.began + Duration::from_nanos(self.settings.cycle_time_ns);
        let paced = self.number == 0 || now >= pace;
        if self.front.doorbell.rung() < next {
            Due::Idle((!paced).then_some(pace))
        } else if paced || (self.early && self.front.doorbell.all_eager(next)) {
            Due::Now
        } else {
            Due::At(pace)
        }
    }

    // ---- collect -------------------------------------------------------------------------------------------

    /// Takes what was submitted and finds out what is in the cache.
    fn collect(&mut self, now: Nanos) {
        self.number += 1;
        self.began = now;
        self.observer.cycle_began(now);
        let mut incoming = std::mem::take(&mut self.incoming);
        self.front.collect(&mut incoming, self.number + 1);
        for submission in incoming.drain(..) {
            match self.find_cached(&submission) {
                Some(slot) => {
                    self.block.set(slot as usize, submission.at.as_micros());
                    self.hits[slot as usize] = Some(submission);
                    self.hits_held += 1;
                }
                None => self.ask(submission),
            }
        }
        self.incoming = incoming;
    }

    /// The cache slot that holds exactly this submission.
    fn find_cached(&self, submission: &Submission) -> Option<u32> {
        let holds = |slot: &u32| {
            self.cache.get(*slot).is_some_and(|entry| {
                entry.name == submission.tensor.name && entry.params == submission.params
            })
        };
        let hint = submission.tensor.slot.load(Ordering::Relaxed);
        let slot = Some(hint)
            .filter(holds)
            .or_else(|| self.cache.slot(&submission.tensor.name).filter(holds))?;
        submission.tensor.slot.store(slot, Ordering::Relaxed);
        Some(slot)
    }

    /// Has the tensor asked for in the next slow path.
    fn ask(&mut self, submission: Submission) {
        let name = Arc::clone(&submission.tensor.name);
        let (params, ready_us) = (submission.params.clone(), submission.at.as_micros());
        self.unsent.push(Request {
            name: Arc::clone(&name),
            params,
            ready_us,
        });
        self.misses.insert(name, submission);
    }

    // ---- negotiate -----------------------------------------------------------------------------------------

    /// Agrees with the other ranks on what is ready everywhere; fills `ready`, in the same order on every rank.
    fn negotiate(&mut self) -> Result<(), Error> {
        self.block.status = if self.unsent.is_empty() {
            Status::default()
        } else {
            Status::UNCACHED
        };
        self.block.settings = self.newest;
        self.transport
            .exchange(self.number, &self.block, &mut self.agreed)?;
        // All ranks switch in this same cycle; in the first one to what rank 0's environment says.
        self.settings = self.agreed.settings;
        self.newest = self.settings;
        self.take_common_hits();
        if self.agreed.any.has(Status::UNCACHED) {
            self.negotiate_uncached()?;
        }
        Ok(())
    }

    fn take_common_hits(&mut self) {
        let size = self.transport.size();
        for index in 0..self.agreed.common.len() {
            let mut word = self.agreed.common[index];
            while word != 0 {
                let slot = index * 64 + word.trailing_zeros() as usize;
                word &= word - 1;
                self.cache.touch(slot as u32);
                self.block.clear(slot);
                let Some(submission) = self.hits[slot].take() else {
                    debug_assert!(false, "a common bit that this rank did not set");
                    continue;
                };
                self.hits_held -= 1;
                if self.agreed.details {
                    let mut ready_us = (0..size).map(|rank| self.agreed.ready_on(rank, slot));
                    self.observer
                        .negotiated(&submission.tensor, submission.params.kind, &mut ready_us);
                }
                self.ready.push(submission);
            }
        }
    }

    /// Requests in to rank 0, responses out to all.
    fn negotiate_uncached(&mut self) -> Result<(), Error> {
        let requests = RequestList {
            requests: std::mem::take(&mut self.unsent),
        };
        encode(&requests, &mut self.frame).map_err(|error| self.malformed("encode requests", &error))?;
        self.transport.gather(&self.frame, &mut self.frames)?;
        if let Some(coordinator) = &mut self.coordinator {
            let lists: Result<Vec<RequestList>, _> = self.frames.iter().map(|frame| decode(frame)).collect();
            self.frames.clear();
            let lists = lists.map_err(|error| internal(0, "decode requests", &error))?;
            let answer = coordinator.answer(lists, &self.cache, &mut self.ticks);
            encode(&answer, &mut self.frame).map_err(|error| internal(0, "encode responses", &error))?;
        }
        self.transport.broadcast(&mut self.frame)?;
        let answer: ResponseList =
            decode(&self.frame).map_err(|error| self.malformed("decode responses", &error))?;
        for slot in answer.evict {
            self.cache.evict(slot);
            self.ask_again(slot);
        }
        for response in answer.responses {
            self.respond(response)?;
        }
        Ok(())
    }

    /// A slot was emptied: what this rank has ready there must be asked for by request.
    fn ask_again(&mut self, slot: u32) {
        if let Some(submission) = self.hits.get_mut(slot as usize).and_then(Option::take) {
            self.hits_held -= 1;
            self.block.clear(slot as usize);
            self.ask(submission);
        }
    }

    fn respond(&mut self, Response { name, outcome }: Response) -> Result<(), Error> {
        let Some(submission) = self.misses.remove(&name) else {
            return Err(internal(
                self.transport.rank(),
                "a response for a tensor that was not asked for",
                &name,
            ));
        };
        let ticks = self
            .ticks
            .iter()
            .position(|ticks| ticks.name == name)
            .map(|at| self.ticks.swap_remove(at));
        if let Some(ticks) = ticks {
            self.observer.negotiated(
                &submission.tensor,
                ticks.kind,
                &mut ticks.ready_us.iter().copied(),
            );
        }
        match outcome {
            Ok(params) => {
                self.remember(&submission, params);
                self.ready.push(submission);
            }
            Err(refusal) => {
                let error = refusal.into_error(&name);
                self.observer.refused(&submission.tensor, &error);
                submission.ticket.complete(Err(error));
                self.front.completed(1);
            }
        }
        Ok(())
    }

    /// Puts what was agreed into the cache. Broadcasts are rare and would only take the room of gradients.
    fn remember(&mut self, submission: &Submission, params: Params) {
        if params.kind == OpKind::Broadcast {
            return;
        }
        let name = Arc::clone(&submission.tensor.name);
        if let Some((slot, evicted)) = self.cache.insert(name, params) {
            submission.tensor.slot.store(slot, Ordering::Relaxed);
            evicted.into_iter().for_each(|evicted| self.ask_again(evicted));
        }
    }

    // ---- plan ----------------------------------------------------------------------------------------------

    /// Packs `ready` into batches.
    fn plan(&mut self) {
        self.items.clear();
        self.classes.clear();
        for submission in &self.ready {
            let class = Class::of(&submission.params);
            let known = self.classes.iter().position(|&known| known == class);
            let class = known.unwrap_or_else(|| {
                self.classes.push(class);
                self.classes.len() - 1
            });
            let (bytes, group) = (submission.params.bytes(), submission.group);
            self.items.push(Item {
                class: class as u32,
                bytes,
                group,
            });
        }
        self.plan.make(&self.items, self.settings.fusion_threshold_bytes);
    }

    // ---- execute -------------------------------------------------------------------------------------------

    /// Moves the batches one after another; a tensor's handle completes with its batch.
    fn execute(&mut self, agreed: Nanos) -> Result<(), Error> {
        let mut began = agreed;
        let mut members: Vec<&Submission> = Vec::with_capacity(self.ready.len());
        for batch in self.plan.batches() {
            members.clear();
            members.extend(batch.iter().map(|&position| &self.ready[position as usize]));
            self.spans.clear();
            self.spans
                .extend(members.iter().filter_map(|submission| submission.span));
            let params = &members[0].params;
            let (phases, activity) = match params.kind {
                OpKind::Allreduce => {
                    let &Params {
                        dtype,
                        op,
                        prescale,
                        postscale,
                        ..
                    } = params;
                    let reduction = Reduction {
                        dtype,
                        op,
                        prescale,
                        postscale,
                    };
                    let phases = self.collective.allreduce(&self.spans, &reduction, &[])?;
                    (phases, Some(self.collective.activities().allreduce))
                }
                OpKind::Broadcast => {
                    let phases = self.collective.broadcast(&self.spans, params.root as usize)?;
                    (phases, Some(self.collective.activities().broadcast))
                }
                OpKind::Barrier => (Phases::default(), None),
            };
            let ended = self.front.clock.now();
            self.observer.executed(&Executed {
                members: &members,
                activity,
                began,
                ended,
                phases,
            });
            members
                .iter()
                .for_each(|submission| submission.ticket.complete(Ok(())));
            self.front.completed(members.len());
            began = ended;
        }
        Ok(())
    }

    // ---- complete ------------------------------------------------------------------------------------------

    /// Closes the books of the cycle and says what makes the next one urgent.
    fn complete(&mut self) {
        self.ready.clear();
        let words = self.cache.words();
        self.block.ready.resize(words, 0);
        self.block.ready_us.resize(words * 64, 0);
        self.hits.resize_with(words * 64, || None);
        let end = CycleEnd {
            settings: self.settings,
            step_marks: self.front.take_step_marks(),
        };
        if let Some(wanted) = self.observer.cycle_ended(&end) {
            self.newest = Settings {
                version: self.newest.version + 1,
                ..wanted
            };
        }
        if !self.unsent.is_empty() {
            self.front.doorbell.ring(self.number + 1); // evicted in this cycle: to be asked for in the next
        }
        self.front.renew_eagerness();
    }

    // ---- between cycles ------------------------------------------------------------------------------------

    /// Tensors picked up and not yet through.
    pub(crate) fn pending(&self) -> usize {
        self.hits_held + self.misses.len()
    }

    /// Tensors that some but not all ranks have ready, as rank 0 knows it: name, and each rank's time.
    pub(crate) fn outstanding(&self, mut each: impl FnMut(&str, &mut dyn Iterator<Item = Option<u64>>)) {
        let Some(coordinator) = &self.coordinator else {
            return;
        };
        for (name, ready_us) in coordinator.outstanding() {
            each(name, &mut ready_us.iter().copied());
        }
        let size = self.agreed.ranks();
        for index in 0..self.agreed.common.len() {
            let words = self.agreed.common.len();
            let any = (0..size).fold(0, |any, rank| any | self.agreed.ready[rank * words + index]);
            let mut word = any & !self.agreed.common[index];
            while word != 0 {
                let slot = index * 64 + word.trailing_zeros() as usize;
                word &= word - 1;
                if let Some(entry) = self.cache.get(slot as u32) {
                    each(
                        &entry.name,
                        &mut (0..size).map(|rank| self.agreed.ready_on(rank, slot)),
                    );
                }
            }
        }
    }

    /// Looks after peers and stalled tensors while no cycle runs; the answer is when to look again.
    pub(crate) fn look_around(&mut self, now: Nanos) -> Result<Option<Nanos>, Error> {
        let pending = self.pending() > 0;
        if pending {
            self.transport.check_peers()?;
        }
        // The observer looks at the cycle that holds it: taken out for the moment.
        let mut observer = std::mem::replace(&mut self.observer, Box::new(NoObserver));
        let next = observer.look_at_stalls(now, self);
        self.observer = observer;
        let next_peers = pending.then(|| now + PEER_CHECK_INTERVAL);
        Ok([next?, next_peers].into_iter().flatten().min())
    }

    /// Why no more cycles run, if so.
    pub(crate) fn ended(&self) -> Option<&Error> {
        self.ended.as_ref()
    }

    /// Ends the cycle for good: fails all that is pending with `error`, and tells the peers.
    pub(crate) fn end(&mut self, error: Error) {
        if self.ended.is_some() {
            return;
        }
        self.front.close(&error);
        let hits = self.hits.iter_mut().filter_map(Option::take);
        let pending = hits
            .chain(self.misses.drain().map(|(_, submission)| submission))
            .chain(self.ready.drain(..));
        let mut failed = 0;
        for submission in pending {
            if !submission.ticket.is_done() {
                submission.ticket.complete(Err(error.clone()));
                failed += 1;
            }
        }
        self.front.completed(failed);
        self.transport
            .leave(if error.is_shut_down() { None } else { Some(&error) });
        // The timeline is complete and closed when the last handle has its answer.
        self.observer = Box::new(NoObserver);
        self.ended = Some(error);
    }

    fn malformed(&self, doing: &str, error: &postcard::Error) -> Error {
        internal(self.transport.rank(), doing, error)
    }
}

/// How often peers are looked at while work is pending but no cycle runs.
const PEER_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// What tensors must have in common to share a batch.
#[derive(Clone, Copy, PartialEq)]
struct Class {
    kind: OpKind,
    dtype: crate::tensor::Dtype,
    op: crate::tensor::ReduceOp,
    prescale: f64,
    postscale: f64,
    root: u32,
    device: Option<u32>,
}

impl Class {
    fn of(params: &Params) -> Self {
        let &Params {
            kind,
            dtype,
            op,
            prescale,
            postscale,
            root,
            device,
            ..
        } = params;
        Self {
            kind,
            dtype,
            op,
            prescale,
            postscale,
            root,
            device,
        }
    }
}

fn internal(rank: usize, doing: &str, error: &dyn std::fmt::Display) -> Error {
    Error::Internal {
        rank,
        message: format!("{doing}: {error}"),
    }
}
