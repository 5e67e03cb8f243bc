//! The process sets of a job: which there are, and how all ranks add and remove them alike.
//!
//! Every change is agreed on by all ranks, over the set of all ranks, with the same numbers; so every rank makes the
//! same changes in the same order, and a set has the same number everywhere.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::job::Job;
use super::process_set::{ProcessSet, Running};
use crate::error::Failure;
use crate::error::{Error, Mismatch, NegotiationError, ProcessSetError, ProcessSetProblem, Submitted};
use crate::negotiation::{OpKind, Params};
use crate::queue::{Entry, Output};
use crate::sync::lock;
use crate::tensor::Dtype;
use crate::transport::local::RendezvousError;

/// See the module.
pub(super) struct Registry {
    world: ProcessSet,
    known: Mutex<Known>,
    /// Held while a set is added or removed, which waits for the other ranks: one at a time on each rank.
    turn: Mutex<()>,
}

struct Known {
    sets: BTreeMap<u32, ProcessSet>,
    /// Sets made so far: tells apart those that had the same number one after another.
    generation: u64,
}

impl Registry {
    /// Only the set of all ranks.
    pub(super) fn new(world: ProcessSet) -> Self {
        let known = Known {
            sets: BTreeMap::from([(0, world.clone())]),
            generation: 0,
        };
        Self {
            world,
            known: Mutex::new(known),
            turn: Mutex::new(()),
        }
    }

    /// All sets, by number.
    pub(super) fn sets(&self) -> Vec<ProcessSet> {
        lock(&self.known).sets.values().cloned().collect()
    }

    /// The same in a forked child, where whoever holds the lock is missing.
    pub(super) fn sets_if_free(&self) -> Vec<ProcessSet> {
        let known = self.known.try_lock();
        known.map_or_else(|_| Vec::new(), |known| known.sets.values().cloned().collect())
    }

    /// The set with this number.
    pub(super) fn get(&self, id: u32) -> Option<ProcessSet> {
        lock(&self.known).sets.get(&id).cloned()
    }

    /// Makes the process set of `ranks`, on every rank at once.
    ///
    /// # Errors
    /// Ranks that cannot be a process set; members whose rendezvous fails.
    pub(super) fn make(&self, job: &Job, ranks: &[usize]) -> Result<ProcessSet, Error> {
        let members = self.check(ranks, job.identity.size)?;
        let (id, generation) = {
            let mut known = lock(&self.known);
            known.generation += 1;
            let free = |id: &u32| !known.sets.contains_key(id);
            ((1..).find(free).unwrap_or(u32::MAX), known.generation)
        };
        let set = job.open_set(id, generation, members)?;
        lock(&self.known).sets.insert(id, set.clone());
        Ok(set)
    }

    /// The same at any time, when all ranks ask for it.
    ///
    /// # Errors
    /// As for [`make`](Self::make), and ranks that ask for different sets.
    pub(super) fn add(&self, job: &Job, ranks: &[usize]) -> Result<ProcessSet, Error> {
        let _turn = lock(&self.turn);
        let members = self.check(ranks, job.identity.size)?;
        self.agree("ronde.process_set.add", &members, 0)?;
        let made = self.make(job, ranks);
        // A member that did not answer may be stopped. If so, it would not answer here either.
        if let Err(error) = &made
            && failed_by(error, RendezvousError::is_silence)
        {
            job.limit_waits(Some((Instant::now() + ANSWER_TIMEOUT, error.clone())));
        }
        // Whether it has become a set on all of them: who is not a member would not know otherwise.
        let agreed = self.agree("ronde.process_set.made", &members, made.is_err() as u32);
        job.limit_waits(None);
        let members = members.to_vec();
        let set = match (made, &agreed) {
            (Ok(set), _) => set,
            // The job has ended: the member went away because of that, and not on its own account.
            (Err(Error::ProcessSet(ProcessSetError::Start { set, source, .. })), Err(why))
                if !matches!(why, Error::Negotiation(NegotiationError::Mismatch(_)))
                    && failed(&source, RendezvousError::is_departure) =>
            {
                let source = Arc::new(why.clone());
                return Err(ProcessSetError::Start { set, members, source }.into());
            }
            (Err(error), _) => return Err(error),
        };
        agreed.map_err(|error| {
            self.drop_set(&set);
            let failed = match &error {
                Error::Negotiation(NegotiationError::Mismatch(mismatch)) => highest(mismatch),
                _ => None,
            };
            Error::ProcessSet(ProcessSetError::Start {
                set: set.id(),
                members,
                source: match failed {
                    Some((rank, _)) => Arc::new(NotStarted { rank }),
                    None => Arc::new(error),
                },
            })
        })?;
        Ok(set)
    }

    /// Removes a set, when all ranks ask for it and none has work for it.
    ///
    /// # Errors
    /// The set of all ranks, a set that is none any more, work in flight on some rank.
    pub(super) fn remove(&self, set: &ProcessSet) -> Result<(), Error> {
        let _turn = lock(&self.turn);
        let id = set.id();
        if id == 0 {
            return Err(ProcessSetError::Invalid {
                ranks: set.ranks().to_vec(),
                problem: ProcessSetProblem::World,
            }
            .into());
        }
        let is_this = |known: ProcessSet| Arc::ptr_eq(&known.inner, &set.inner);
        if !self.get(id).is_some_and(is_this) {
            return Err(ProcessSetError::Removed { set: id }.into());
        }
        let running = set.inner.running.as_ref();
        // Nothing may come in between the count and the end: it would look to the others as if this rank had left.
        let suspend = |running: &Running| {
            running
                .engine
                .queue
                .suspend(Error::ProcessSet(ProcessSetError::Removed { set: id }))
        };
        let in_flight = running.map_or(0, suspend);
        let agreed = self.agree_to_remove(set, in_flight);
        if agreed.is_ok() {
            self.drop_set(set);
        } else if let Some(running) = running {
            running.engine.queue.resume();
        }
        agreed
    }

    /// Forgets a set and ends its engine.
    fn drop_set(&self, set: &ProcessSet) {
        lock(&self.known).sets.remove(&set.id());
        if let Some(running) = &set.inner.running {
            running.stop(&Error::ProcessSet(ProcessSetError::Removed { set: set.id() }));
        }
    }

    /// Returns when all ranks want to remove `set` and none has tensors in flight for it.
    fn agree_to_remove(&self, set: &ProcessSet, in_flight: usize) -> Result<(), Error> {
        let id = set.id();
        let busy = |rank, in_flight| {
            Error::ProcessSet(ProcessSetError::Busy {
                set: id,
                rank,
                in_flight,
            })
        };
        match self.agree("ronde.process_set.remove", &[id as usize], in_flight as u32) {
            Err(Error::Negotiation(NegotiationError::Mismatch(mismatch))) => Err(highest(&mismatch).map_or(
                Error::Negotiation(NegotiationError::Mismatch(mismatch)),
                |(rank, count)| busy(rank, count),
            )),
            Ok(()) if in_flight > 0 => Err(busy(set.inner.job_rank, in_flight)),
            outcome => outcome,
        }
    }

    /// Returns when all ranks say `numbers` and `count`, under the same name.
    fn agree(&self, name: &str, numbers: &[usize], count: u32) -> Result<(), Error> {
        let mut params = Params::plain(OpKind::Agree, Dtype::U8, numbers.into());
        params.root = count;
        let handle = self.world.submit_entry(Entry {
            name,
            params: params.into(),
            span: None,
            output: Output::Fixed,
            on: None,
        })?;
        handle.wait()
    }

    /// The ranks, in order, if they can be a set.
    fn check(&self, ranks: &[usize], size: usize) -> Result<Arc<[usize]>, Error> {
        let mut members = ranks.to_vec();
        members.sort_unstable();
        let exists = || self.sets().into_iter().find(|set| set.ranks() == members);
        let problem = if members.is_empty() {
            Some(ProcessSetProblem::Empty)
        } else if let Some(&rank) = members.iter().find(|&&rank| rank >= size) {
            Some(ProcessSetProblem::NotInJob { rank, size })
        } else if let Some(pair) = members.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(ProcessSetProblem::Duplicate { rank: pair[0] })
        } else {
            exists().map(|set| ProcessSetProblem::Exists { set: set.id() })
        };
        match problem {
            Some(problem) => Err(ProcessSetError::Invalid {
                ranks: ranks.to_vec(),
                problem,
            }
            .into()),
            None => Ok(members.into()),
        }
    }
}

/// How long a rank whose process set has not started, since a member was silent, waits for all ranks to say so too. The
/// others may give up a little later than the first; after that the silent member ends the context.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether a process set has not started because its rendezvous failed in that way.
fn failed_by(error: &Error, kind: fn(&RendezvousError) -> bool) -> bool {
    matches!(error, Error::ProcessSet(ProcessSetError::Start { source, .. }) if failed(source, kind))
}

fn failed(source: &Failure, kind: fn(&RendezvousError) -> bool) -> bool {
    source.downcast_ref().is_some_and(kind)
}

/// Why a process set that has started here cannot stay.
#[derive(Debug, thiserror::Error)]
#[error("rank {rank} could not start it; see the error there")]
struct NotStarted {
    rank: usize,
}

/// Of two ranks that agreed on all but a count, the one with the higher, and its count.
fn highest(mismatch: &Mismatch) -> Option<(usize, usize)> {
    let submitted = [
        (mismatch.first_rank, &mismatch.expected),
        (mismatch.rank, &mismatch.found),
    ];
    let counts = submitted
        .into_iter()
        .filter_map(|(rank, submitted)| match submitted {
            Submitted::InFlight(count) => Some((rank, *count)),
            _ => None,
        });
    counts.max_by_key(|&(_, count)| count)
}
