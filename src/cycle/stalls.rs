//! Stall detection of a process set: the lowest rank finds stalled tensors; the others do if that
//! rank does not answer.

use std::collections::HashMap;
use std::time::Duration;

use super::Cycle;
use super::clocks::micros;
use crate::clock::Nanos;
use crate::error::{Error, PeerError};
use crate::negotiation::OpKind;
use crate::negotiation::stall::{Outstanding, StallInspector};
use crate::observer::{Pending, PendingTensor};

/// Time after the shutdown limit within which the lowest rank must end the set, before the others
/// end it. It counts from its first check of a tensor, which depends on the scheduling of its
/// thread.
const GRACE: Duration = Duration::from_millis(700);

/// Detects tensors that have waited too long.
#[derive(Debug)]
pub(crate) enum Stalls {
    /// Check on the lowest rank: tensors that some ranks have not submitted.
    Lowest {
        /// Decides on warnings and on the shutdown.
        inspector: StallInspector,
        /// Time at which each tensor was first seen outstanding. The waiting time that a rank
        /// reports is not trusted.
        first_seen: HashMap<String, Nanos>,
    },
    /// Check on the other ranks: tensors of this rank that the lowest one has neither answered nor
    /// reported as stalled, though they have waited longer than the shutdown limit.
    Other {
        /// The shutdown limit.
        limit: Duration,
    },
}

impl Stalls {
    /// Makes the stall check of rank `rank` of a set of `size`: warns after `warn_after`, ends the
    /// set after `shutdown_after`. `None` if there is nothing to check.
    pub(crate) fn new(
        rank: usize,
        size: usize,
        warn_after: Duration,
        shutdown_after: Option<Duration>,
    ) -> Option<Self> {
        match (rank, shutdown_after) {
            _ if size < 2 => None,
            (0, _) => Some(Self::Lowest {
                inspector: StallInspector::new(warn_after, shutdown_after),
                first_seen: HashMap::new(),
            }),
            (_, Some(limit)) if limit >= warn_after => Some(Self::Other { limit }),
            _ => None,
        }
    }

    /// Checks the `pending` tensors; returns the time of the next check.
    ///
    /// # Errors
    /// The shutdown limit has passed.
    pub(crate) fn look(
        &mut self,
        now: Nanos,
        pending: &dyn Pending,
    ) -> Result<Option<Nanos>, Error> {
        match self {
            Self::Lowest {
                inspector,
                first_seen,
            } => inspect(inspector, first_seen, now, pending),
            Self::Other { limit } => {
                let Some(since) = pending.oldest_unanswered() else {
                    return Ok(None);
                };
                let end = since + *limit + GRACE;
                if now < end {
                    return Ok(Some(end));
                }
                Err(PeerError::Stalled {
                    rank: pending.lowest_rank(),
                    waited_seconds: now.since(since).as_secs(),
                    limit_seconds: limit.as_secs(),
                }
                .into())
            }
        }
    }
}

fn inspect(
    inspector: &mut StallInspector,
    first_seen: &mut HashMap<String, Nanos>,
    now: Nanos,
    pending: &dyn Pending,
) -> Result<Option<Nanos>, Error> {
    let mut tensors = pending.outstanding();
    let mut seen: HashMap<String, Nanos> = HashMap::new();
    for tensor in &mut tensors {
        let first = first_seen.get(&tensor.name).copied().unwrap_or(now);
        seen.insert(tensor.name.clone(), first);
        tensor.since = tensor.since.max(first);
    }
    *first_seen = seen;
    if tensors.is_empty() {
        return Ok(None);
    }
    let outstanding = tensors.iter().map(|tensor| Outstanding {
        tensor: &tensor.name,
        since: tensor.since,
        submitted: tensor.submitted.iter().copied(),
        missing: tensor.missing.iter().copied(),
    });
    let report = inspector.check(now, outstanding);
    match (report.text, &report.error) {
        (Some(text), None) => tracing::warn!("{text}"),
        (Some(text), Some(_)) => tracing::error!("{text}"),
        (None, _) => {}
    }
    report.error.map_or(Ok(Some(inspector.next_check())), Err)
}

impl Pending for Cycle {
    fn lowest_rank(&self) -> usize {
        self.members[0]
    }

    fn outstanding(&self) -> Vec<PendingTensor> {
        let mut tensors = Vec::new();
        let Some(coordinator) = &self.coordinator else {
            return tensors;
        };
        let mut tell = |name: &str, ready_us: &dyn Fn(usize) -> Option<u64>| {
            let times = (0..self.members.len()).map(ready_us);
            let since_us = times.flatten().min();
            let since = since_us.map_or(self.began, |us| micros(self.clocks.to_own_us(us)));
            let has = |rank: &usize| ready_us(*rank).is_some();
            let misses = |rank: &usize| !has(rank) && !self.agreed.joined().contains(rank);
            let ranks = || 0..self.members.len();
            let submitted = ranks().filter(has).map(|rank| self.members[rank]).collect();
            let missing = ranks()
                .filter(misses)
                .map(|rank| self.members[rank])
                .collect();
            tensors.push(PendingTensor {
                name: name.to_owned(),
                since,
                submitted,
                missing,
            });
        };
        for (name, ready_us) in coordinator.outstanding() {
            tell(name, &|rank| ready_us[rank]);
        }
        let words = self.agreed.common.len();
        for index in 0..words {
            let any = (0..self.agreed.ranks())
                .fold(0, |any, rank| any | self.agreed.ready[rank * words + index]);
            let mut word = any & !self.agreed.common[index];
            while word != 0 {
                let slot = index * 64 + word.trailing_zeros() as usize;
                word &= word - 1;
                if let Some(entry) = self.cache.get(slot as u32) {
                    tell(&entry.name, &|rank| self.agreed.ready_on(rank, slot));
                }
            }
        }
        tensors
    }

    fn oldest_unanswered(&self) -> Option<Nanos> {
        let held = self.groups.held().iter().map(|ready| &ready.submission);
        let waiting = self
            .hits
            .iter()
            .flatten()
            .chain(self.misses.values())
            .chain(held);
        let since = waiting.filter_map(|submission| match submission.params.kind {
            OpKind::Join => self.all_joined_at,
            _ => Some(submission.at),
        });
        since.min()
    }
}
