//! Negotiation: agrees with the other ranks on the tensors that are ready everywhere, and lists
//! them in the same order on every rank.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::clocks::micros;
use super::{Cycle, internal};
use crate::command::{Command, TimelineCommand};
use crate::error::{Error, PeerError};
use crate::negotiation::coordinator::Ticks;
use crate::negotiation::response::{decode, encode};
use crate::negotiation::{
    Agreed, Coordinator, OpKind, Receiver, Refusal, RequestList, Response, ResponseList, Status,
};
use crate::observer::{Negotiated, ReadyTimes, WantedTimes};
use crate::queue::{PendingCommand, Submission};
use crate::ready::Ready;

/// Most rows of a cached agreement, those of an alltoall among 128 ranks: a cache of 1,024 of them has
/// 128 MiB. With 1,024 ranks it would have 8 GiB.
const CACHED_ROWS_MAX: usize = 1 << 14;

impl Cycle {
    /// Fills `ready` with the tensors that this cycle executes.
    pub(super) fn negotiate(&mut self) -> Result<(), Error> {
        self.prepare_block();
        let is_timed = self.agreed.prepare(self.cache.in_use());
        self.transport.exchange(
            self.number,
            &self.block.contribution(is_timed),
            &mut self.agreed,
        )?;
        self.agreed.conclude();
        self.adopt_settings();
        if self.agreed.any().has(Status::COMPARE_CLOCKS) {
            if self.transport.shares_clock() {
                return Err(self.invalid_answer(
                    "a comparison of clocks, although the ranks share one".to_owned(),
                ));
            }
            self.compare_clocks()?;
        }
        self.exchange_details()?;
        let answer = match self.agreed.any().has(Status::UNCACHED) {
            true => Some(self.ask_coordinator()?),
            false => None,
        };
        self.is_attached = self.has_inputs(answer.is_some());
        self.apply(answer)
    }

    /// Completes this rank's block for the exchange.
    fn prepare_block(&mut self) {
        self.block.status = self.status();
        if self.attach() {
            self.block.status = self.block.status.with(Status::ATTACHED);
        }
        self.block.settings = self.source.newest();
        self.block.hold = self.holding.own();
        // Before the first comparison of clocks, times of ranks on other hosts mean nothing.
        let is_unknown = self.number == 1 && !self.transport.shares_clock();
        if is_unknown || (self.hits_held == 0 && self.misses.is_empty()) {
            self.block.latest_us = 0;
        }
    }

    /// Puts the agreed settings in force. All ranks switch in this same cycle; in the first cycle,
    /// to the settings of rank 0's environment.
    fn adopt_settings(&mut self) {
        let settings = self.agreed.settings();
        if self.number == 1 || self.settings.version != settings.version {
            if self.settings.cycle_time_ns != settings.cycle_time_ns {
                self.paced_from = None; // this cycle's start followed the former cycle time
            }
            self.settings = settings;
            self.source.agreed(self.settings);
        }
        let step_ended = self.agreed.all().has(Status::BETWEEN_STEPS);
        self.holding
            .agreed(self.agreed.hold(), self.settings.hierarchy(), step_ended);
        self.collective.set_hierarchy(self.settings.hierarchy());
    }

    /// Takes the tensors that all ranks have in their caches, and those of `answer`, if rank 0 was
    /// asked.
    fn apply(&mut self, answer: Option<ResponseList>) -> Result<(), Error> {
        let is_answered = answer.is_some();
        let answer = answer.unwrap_or_default();
        // Before the hits: a rank may have requested one of them in another form.
        self.agreed_commands = answer.commands;
        answer
            .evict
            .into_iter()
            .try_for_each(|slot| self.evict(slot))?;
        // Before the responses: these may evict the least recently used tensor, and a rank that has
        // joined may be the only one on which it is ready.
        self.take_common_hits()?;
        // After the hits, which are those of the ranks that had joined before.
        if is_answered {
            self.agreed
                .join(&answer.joined, self.transport.rank(), self.joined)
                .map_err(|problem| self.invalid_answer(problem))?;
        }
        let all_joined = self.agreed.all_joined();
        self.all_joined_at = all_joined.then(|| self.all_joined_at.unwrap_or(self.began));
        let mut ticks = std::mem::take(&mut self.ticks);
        let mut ticks_of_next = ticks.drain(..).peekable();
        for response in answer.responses {
            // On rank 0 there are ticks for each response, in the same order; the other ranks have
            // none.
            let ticks = ticks_of_next.next_if(|ticks| ticks.name == response.name);
            self.respond(response, ticks)?;
        }
        drop(ticks_of_next);
        self.ticks = ticks;
        if all_joined && !self.joined {
            self.agreed.rejoin();
        }
        let has_new = !answer.joined.is_empty();
        self.awaits_joins = self.coordinator.is_some() && (has_new || self.agreed.all_joined());
        Ok(())
    }

    /// Returns the facts that this rank publishes.
    fn status(&self) -> Status {
        let facts = [
            (Status::UNCACHED, self.has_requests()),
            (
                Status::COMPARE_CLOCKS,
                self.clocks.want_comparing(self.began),
            ),
            (Status::BETWEEN_STEPS, self.between_steps),
        ];
        let mut status = Status::default();
        let mut add = |fact: Status, holds: bool| {
            if holds {
                status = status.with(fact);
            }
        };
        facts.into_iter().for_each(|(fact, holds)| add(fact, holds));
        if self.coordinator.is_some() {
            let wanted = self.observer.wanted_times();
            add(Status::RECORDS, wanted == WantedTimes::OfRanks);
            add(Status::TRACES, wanted == WantedTimes::Range);
            add(Status::STALLED, self.reports_stalls);
        }
        status
    }

    /// Whether this rank needs an exchange of requests and responses.
    fn has_requests(&self) -> bool {
        let mut commands = self.commands.iter().filter_map(timeline_command);
        !self.unsent.is_empty()
            || commands.next().is_some()
            || self
                .coordinator
                .as_ref()
                .is_some_and(Coordinator::all_joined)
    }

    /// Returns the error for an invalid answer of the lowest rank.
    pub(super) fn invalid_answer(&self, problem: String) -> Error {
        Error::Peer(PeerError::InvalidData {
            rank: self.members[0],
            problem,
        })
    }

    fn take_common_hits(&mut self) -> Result<(), Error> {
        for index in 0..self.agreed.common().len() {
            let mut word = self.agreed.common()[index];
            while word != 0 {
                let slot = index * 64 + word.trailing_zeros() as usize;
                word &= word - 1;
                self.cache.touch(slot as u32);
                self.block.clear(slot);
                if let Some(rank) = self.missing(slot) {
                    self.refuse_hit(slot, rank);
                    continue;
                }
                let Some(ready) = self.take_hit(slot) else {
                    let problem = "an agreement that does not fit this rank's own block";
                    return Err(internal(self.job_rank(), problem, &slot));
                };
                if self.coordinator.is_some() {
                    self.report_hit(&ready.submission, slot);
                }
                self.ready.push(ready);
            }
        }
        Ok(())
    }

    /// Reports a common tensor to the observer, with its ready times if it wants them.
    fn report_hit(&mut self, submission: &Submission, slot: usize) {
        let negotiated = Negotiated {
            tensor: &submission.tensor,
            kind: submission.params.kind,
            cached: true,
        };
        if self.agreed.any().has(Status::RECORDS) {
            let ranks = 0..self.transport.size();
            let mut ready_us = ranks.map(|rank| self.details.ready_on(rank, slot));
            let times = ReadyTimes::OfRanks(&mut ready_us);
            self.observer.negotiated(&negotiated, times);
        } else if let Some((first_us, last_us)) = self.agreed.ready_us(slot) {
            let times = ReadyTimes::Range { first_us, last_us };
            self.observer.negotiated(&negotiated, times);
        }
    }

    /// Returns a joined rank without which the tensor in `slot` cannot be executed, if there is
    /// one.
    fn missing(&self, slot: usize) -> Option<usize> {
        if self.agreed.joined().is_empty() {
            return None; // the usual case, without a look at the params
        }
        let needs_all = self.cache.get(slot as u32)?.params.needs_all;
        needs_all.then(|| self.agreed.absent(slot).next()).flatten()
    }

    /// Fails this rank's tensor in `slot`, because `rank` has joined.
    fn refuse_hit(&mut self, slot: usize, rank: usize) {
        let group = self
            .cache
            .get(slot as u32)
            .and_then(|entry| entry.params.group);
        group
            .into_iter()
            .for_each(|group| self.groups.refused(group));
        let Some(submission) = self.hits[slot].take() else {
            return;
        };
        self.hits_held -= 1;
        let refusal = Refusal::Joined {
            rank: self.members[rank] as u32,
        };
        self.refuse(submission, refusal);
    }

    fn refuse(&mut self, submission: Submission, refusal: Refusal) {
        let error = refusal.into_error(&submission.tensor.name);
        self.observer.refused(&submission.tensor, &error);
        self.queue.release(1);
        submission.ticket.complete(Err(error));
        self.queue.completions().announce();
    }

    /// Returns the tensor in `slot`, which is ready on all ranks that have not joined. `None` if
    /// the agreement contradicts this rank's own block.
    fn take_hit(&mut self, slot: usize) -> Option<Ready> {
        let entry = self.cache.get(slot as u32)?;
        let absent: Vec<u32> = self.agreed.absent(slot).map(|rank| rank as u32).collect();
        let takes_part = !absent.contains(&(self.transport.rank() as u32));
        let agreed = if !absent.is_empty() {
            Some(Arc::new(
                entry.agreed.without(absent, self.transport.size()),
            ))
        } else if entry.params.kind.has_own_rows() {
            Some(Arc::clone(&entry.agreed))
        } else {
            None
        };
        if takes_part != self.hits[slot].is_some() {
            return None;
        }
        let submission = match self.hits[slot].take() {
            Some(submission) => {
                self.hits_held -= 1;
                submission
            }
            None => Submission::absent(Arc::clone(&entry.name), entry.params.clone(), self.began),
        };
        Some(Ready::new(submission, agreed))
    }

    /// Sends requests to rank 0 and receives its answer, which is the same on all ranks.
    fn ask_coordinator(&mut self) -> Result<ResponseList, Error> {
        let mut requests = RequestList {
            requests: std::mem::take(&mut self.unsent),
        };
        for request in &mut requests.requests {
            request.ready_us = self.clocks.to_reference_us(micros(request.ready_us));
        }
        encode(&requests, &mut self.frame)
            .map_err(|error| self.malformed("encode requests", &error))?;
        self.transport.gather(&self.frame, &mut self.frames)?;
        let rank = self.job_rank();
        if let Some(coordinator) = &mut self.coordinator {
            let from = self.members.iter().zip(&self.frames);
            let lists = from.map(|(&rank, frame)| {
                decode::<RequestList>(frame).map_err(|error| {
                    Error::Peer(PeerError::InvalidData {
                        rank,
                        problem: format!("requests that cannot be decoded: {error}"),
                    })
                })
            });
            let lists: Vec<RequestList> = lists.collect::<Result<_, _>>()?;
            self.frames.clear();
            let is_held = |slot: u32| self.agreed.is_held(slot as usize);
            self.ticks.clear();
            let mut answer = coordinator.answer(lists, &self.cache, is_held, &mut self.ticks)?;
            answer.commands.extend(
                self.commands
                    .iter()
                    .filter_map(|pending| timeline_command(pending).cloned()),
            );
            encode(&answer, &mut self.frame)
                .map_err(|error| internal(rank, "encode responses", &error))?;
        }
        self.transport.broadcast(&mut self.frame)?;
        decode(&self.frame).map_err(|error| {
            self.invalid_answer(format!("responses that cannot be decoded: {error}"))
        })
    }

    /// Evicts a slot because a rank has requested its tensor: all ranks on which it is ready
    /// request it in the next cycle.
    fn evict(&mut self, slot: u32) -> Result<(), Error> {
        if self.cache.evict(slot).is_none() {
            return Err(self.invalid_answer(format!(
                "an eviction of slot {slot} of the response cache, which is empty"
            )));
        }
        self.agreed.remove(slot as usize);
        self.ask_again(slot);
        Ok(())
    }

    /// After an eviction of a slot, marks this rank's ready tensor in it to be announced by a
    /// request.
    fn ask_again(&mut self, slot: u32) {
        if let Some(submission) = self.hits.get_mut(slot as usize).and_then(Option::take) {
            self.hits_held -= 1;
            self.block.clear(slot as usize);
            self.ask(submission);
        }
    }

    /// Processes one response, with its ready times on the rank that has them.
    fn respond(&mut self, response: Response, ticks: Option<Ticks>) -> Result<(), Error> {
        let Response {
            name,
            group,
            outcome,
        } = response;
        // Invalid data ends the cycle, and fails the submission with it.
        if let Err(problem) = self.check_response(self.misses.get(&name), &outcome) {
            return Err(self.invalid_answer(format!("tensor {name}: {problem}")));
        }
        let own = self.misses.remove(&name);
        // The timeline of a joined rank shows the other ranks' tensors, too.
        let submission = own.or_else(|| {
            let params = outcome.as_ref().ok()?.params.clone()?;
            Some(Submission::absent(Arc::clone(&name), params, self.began))
        });
        if let (Some(ticks), Some(submission)) = (ticks, &submission) {
            let negotiated = Negotiated {
                tensor: &submission.tensor,
                kind: ticks.kind,
                cached: false,
            };
            let mut ready_us = ticks.ready_us.iter().copied();
            self.observer
                .negotiated(&negotiated, ReadyTimes::OfRanks(&mut ready_us));
        }
        match (outcome, submission) {
            (Ok(mut agreed), Some(submission)) => {
                if submission.params.kind == OpKind::Join {
                    agreed.last_joined = self
                        .agreed
                        .last_joined()
                        .map_or(0, |rank| self.members[rank] as u32);
                    self.joined = false;
                    self.queue.rejoined();
                }
                let agreed = Arc::new(agreed);
                self.remember(&submission, &agreed);
                self.ready.push(Ready::new(submission, Some(agreed)));
            }
            (Ok(_), None) => {} // refused by the check
            (Err(refusal), submission) => {
                // Values that this rank knows are not taken from other ranks.
                let own = submission
                    .as_ref()
                    .map(|submission| submission.params.group);
                own.unwrap_or(group)
                    .into_iter()
                    .for_each(|group| self.groups.refused(group));
                if let Some(submission) = submission {
                    self.refuse(submission, refusal);
                }
            }
        }
        Ok(())
    }

    /// Checks the outcome of a tensor against `own`, this rank's submission of that name.
    fn check_response(
        &self,
        own: Option<&Submission>,
        outcome: &Result<Agreed, Refusal>,
    ) -> Result<(), String> {
        let receiver = Receiver {
            rank: self.transport.rank(),
            members: &self.members,
            joined: self.agreed.joined(),
            own: own.map(|submission| &*submission.params),
        };
        let others = outcome
            .as_ref()
            .ok()
            .and_then(|agreed| agreed.params.as_ref());
        match (outcome, receiver.own.or(others)) {
            _ if own.is_none() && !self.joined => {
                Err("a response without a request of this rank".to_owned())
            }
            (Err(refusal), _) => refusal.check(&receiver),
            (Ok(_), None) => {
                Err("a response without params and without a request of this rank".to_owned())
            }
            (Ok(agreed), Some(params)) => {
                params.check(&self.members)?;
                agreed.check(params, &receiver)
            }
        }
    }

    /// Puts the agreed tensor into the cache, unless it has the rows from very many ranks to very
    /// many. If a rank was absent it is not cached, because that rank cannot cache it.
    fn remember(&mut self, submission: &Submission, agreed: &Arc<Agreed>) {
        if !self.settings.cache
            || !submission.params.kind.is_cached()
            || !agreed.absent.is_empty()
            || agreed.rows.len() > CACHED_ROWS_MAX
        {
            return;
        }
        let name = Arc::clone(&submission.tensor.name);
        let capacity = self.cache.capacity();
        let inserted = self
            .cache
            .insert(name, submission.params.clone(), Arc::clone(agreed));
        if let Some((slot, evicted)) = inserted {
            submission.tensor.slot.store(slot, Ordering::Relaxed);
            evicted
                .into_iter()
                .for_each(|evicted| self.ask_again(evicted));
        }
        if self.cache.capacity() > capacity && self.coordinator.is_some() {
            tracing::info!(
                "the response cache was too small for a step and now holds {} tensors; \
                 HOROVOD_CACHE_CAPACITY={0} sets that at the start, RONDE_CACHE_CAPACITY_MAX limits it",
                self.cache.capacity()
            );
        }
    }
}

/// Takes the command from rank 0's answer, if it has one. Settings travel in the block.
fn timeline_command(pending: &PendingCommand) -> Option<&TimelineCommand> {
    match &pending.command {
        Command::Timeline(command) => Some(command),
        Command::Settings(_) => None,
    }
}
