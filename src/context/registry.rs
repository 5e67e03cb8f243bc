//! Registry of a job's process sets: all ranks add and remove sets in the same order.
//!
//! All ranks agree on every change in an operation of the set of all ranks, with the same numbers.
//! So every rank makes the same changes in the same order, and a set has the same number
//! everywhere.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::job::Job;
use super::process_set::{ProcessSet, Running};
use crate::error::Failure;
use crate::error::{
    Error, Mismatch, NegotiationError, ProcessSetError, ProcessSetProblem, Submitted,
};
use crate::negotiation::{OpKind, Params};
use crate::queue::{Entry, Output};
use crate::sync::lock;
use crate::tensor::Dtype;
use crate::transport::local::RendezvousError;

/// Process sets of a job on this rank.
pub(super) struct Registry {
    world: ProcessSet,
    known: Mutex<Known>,
    /// Held while a set is added or removed, which waits for the other ranks: one change at a time
    /// on each rank.
    turn: Mutex<()>,
}

struct Known {
    sets: BTreeMap<u32, ProcessSet>,
    /// Number of sets made so far: it distinguishes sets that had the same number.
    generation: u64,
}

impl Registry {
    /// Makes a registry with only the set of all ranks.
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

    /// Returns all sets, ordered by number.
    pub(super) fn sets(&self) -> Vec<ProcessSet> {
        lock(&self.known).sets.values().cloned().collect()
    }

    /// Returns all sets in a forked child, where the thread that holds the lock may be missing.
    pub(super) fn sets_if_free(&self) -> Vec<ProcessSet> {
        let known = self.known.try_lock();
        known.map_or_else(
            |_| Vec::new(),
            |known| known.sets.values().cloned().collect(),
        )
    }

    /// Returns the set with number `id`.
    pub(super) fn get(&self, id: u32) -> Option<ProcessSet> {
        lock(&self.known).sets.get(&id).cloned()
    }

    /// Makes the process set of `ranks`; every rank calls it at the same point.
    ///
    /// # Errors
    /// Ranks that cannot form a process set; a failed rendezvous of the members.
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

    /// Makes the process set of `ranks` at any time, when all ranks have requested it.
    ///
    /// # Errors
    /// As for [`make`](Self::make), and ranks that request different sets.
    pub(super) fn add(&self, job: &Job, ranks: &[usize]) -> Result<ProcessSet, Error> {
        let _turn = lock(&self.turn);
        let members = self.check(ranks, job.identity.size)?;
        self.agree("ronde.process_set.add", &members, 0)?;
        let made = self.make(job, ranks);
        // A member that did not answer may be stopped. In that case it would not answer here
        // either.
        if let Err(error) = &made
            && failed_by(error, RendezvousError::is_silence)
        {
            job.limit_waits(Some((Instant::now() + ANSWER_TIMEOUT, error.clone())));
        }
        // Ranks agree whether the rendezvous succeeded on all members; other ranks could not know
        // it.
        let agreed = self.agree("ronde.process_set.made", &members, made.is_err() as u32);
        job.limit_waits(None);
        let members = members.to_vec();
        let set = match (made, &agreed) {
            (Ok(set), _) => set,
            // The job has ended: the member left because of that, and not for a reason of its own.
            (Err(Error::ProcessSet(ProcessSetError::Start { set, source, .. })), Err(why))
                if !matches!(why, Error::Negotiation(NegotiationError::Mismatch(_)))
                    && failed(&source, RendezvousError::is_departure) =>
            {
                let source = Arc::new(why.clone());
                return Err(ProcessSetError::Start {
                    set,
                    members,
                    source,
                }
                .into());
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

    /// Removes a set, when all ranks have requested it and none has work for it.
    ///
    /// # Errors
    /// The set of all ranks, a set that was removed before, work in flight on some rank.
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
        // No tensor may be submitted between the count and the end: to the others it would look as
        // if this rank had left.
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

    /// Removes a set from the registry and ends its engine.
    fn drop_set(&self, set: &ProcessSet) {
        lock(&self.known).sets.remove(&set.id());
        if let Some(running) = &set.inner.running {
            running.stop(&Error::ProcessSet(ProcessSetError::Removed {
                set: set.id(),
            }));
        }
    }

    /// Returns when all ranks have requested to remove `set` and none has tensors in flight for it.
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
            Err(Error::Negotiation(NegotiationError::Mismatch(mismatch))) => {
                Err(highest(&mismatch).map_or(
                    Error::Negotiation(NegotiationError::Mismatch(mismatch)),
                    |(rank, count)| busy(rank, count),
                ))
            }
            Ok(()) if in_flight > 0 => Err(busy(set.inner.job_rank, in_flight)),
            outcome => outcome,
        }
    }

    /// Returns when all ranks have submitted the same `numbers` and `count` under `name`.
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

    /// Returns the ranks in ascending order, if they can form a set.
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

/// Time that a rank waits for all ranks to report a failed start, after its own rendezvous ended
/// because a member was silent. Other ranks may give up a little later than the first one. After
/// this time the silent member ends the context.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether a process set did not start because its rendezvous failed with an error of this kind.
fn failed_by(error: &Error, kind: fn(&RendezvousError) -> bool) -> bool {
    matches!(error, Error::ProcessSet(ProcessSetError::Start { source, .. }) if failed(source, kind))
}

fn failed(source: &Failure, kind: fn(&RendezvousError) -> bool) -> bool {
    source.downcast_ref().is_some_and(kind)
}

/// Reason why a process set that has started here is removed again.
#[derive(Debug, thiserror::Error)]
#[error("rank {rank} could not start it; see the error of that rank")]
struct NotStarted {
    rank: usize,
}

/// Of two ranks whose submissions differ only in the count, returns the one with the higher count,
/// and that count.
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
