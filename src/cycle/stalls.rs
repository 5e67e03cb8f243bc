//! Stall detection of a process set: the lowest rank finds stalled tensors; the others do if that
//! rank does not answer.

use std::collections::HashMap;
use std::time::Duration;

use super::Cycle;
use crate::clock::Nanos;
use crate::error::{Error, PeerError};
use crate::negotiation::OpKind;
use crate::negotiation::stall::{Outstanding, PendingRanks, StallInspector};
use crate::observer::{Pending, PendingOperation, PendingTensor, StallCheck};
use crate::transport::each_bit;

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
        /// Time at which each tensor was first seen outstanding: after the cycle that followed its
        /// submission. A time that a rank reports would not be trusted.
        first_seen: FirstSeen,
    },
    /// Check on the other ranks: tensors of this rank that the lowest one has neither answered nor
    /// reported as stalled, though they have waited longer than the shutdown limit.
    Other {
        /// The shutdown limit.
        limit: Duration,
        /// When the oldest such tensor was submitted, and when a check first found it. As on the
        /// lowest rank, the time of the batches before that does not count.
        first_seen: Option<(Nanos, Nanos)>,
    },
}

/// Tensors by name, with the operation and the time at which it was first seen. A name is used
/// again in each step, perhaps without a check in between.
type FirstSeen = HashMap<String, (PendingOperation, Nanos)>;

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
            (_, Some(limit)) if limit >= warn_after => Some(Self::Other {
                limit,
                first_seen: None,
            }),
            _ => None,
        }
    }

    /// Checks the `pending` tensors; `report` receives the text of a warning or error.
    ///
    /// # Errors
    /// The shutdown limit has passed.
    pub(crate) fn look(
        &mut self,
        now: Nanos,
        pending: &dyn Pending,
        report: &mut dyn FnMut(&str),
    ) -> Result<StallCheck, Error> {
        match self {
            Self::Lowest {
                inspector,
                first_seen,
            } => inspect(inspector, first_seen, now, pending, report),
            Self::Other { limit, first_seen } => {
                let Some(oldest) = pending.oldest_unanswered() else {
                    *first_seen = None;
                    return Ok(StallCheck::default());
                };
                let known = first_seen.filter(|(known, _)| *known == oldest);
                let (_, since) = *first_seen.insert(known.unwrap_or((oldest, now)));
                let end = since + *limit + GRACE;
                if now < end {
                    return Ok(StallCheck {
                        next: Some(end),
                        needs_ranks: false,
                    });
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
    first_seen: &mut FirstSeen,
    now: Nanos,
    pending: &dyn Pending,
    tell: &mut dyn FnMut(&str),
) -> Result<StallCheck, Error> {
    let tensors = pending.outstanding();
    let seen = tensors.iter().map(|tensor| {
        let known = first_seen.get(&tensor.name);
        let known = known.filter(|(operation, _)| *operation == tensor.operation);
        let since = known.map_or(now, |(_, since)| *since);
        (tensor.name.clone(), (tensor.operation, since))
    });
    *first_seen = seen.collect();
    if tensors.is_empty() {
        return Ok(StallCheck::default());
    }
    let outstanding = tensors.iter().map(|tensor| Outstanding {
        tensor: &tensor.name,
        since: first_seen[&tensor.name].1,
        ranks: tensor.ranks.as_ref(),
    });
    let report = inspector.check(now, outstanding);
    report.text.iter().for_each(|text| tell(text));
    match (report.text, &report.error) {
        (Some(text), None) => tracing::warn!("{text}"),
        (Some(text), Some(_)) => tracing::error!("{text}"),
        (None, _) => {}
    }
    report.error.map_or(Ok(()), Err)?;
    Ok(StallCheck {
        next: Some(inspector.next_check()),
        needs_ranks: report.needs_ranks,
    })
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
        let ranks = |has: &dyn Fn(usize) -> bool| {
            let misses = |rank: usize| !has(rank) && !self.agreed.joined().contains(&rank);
            let those = |chosen: &dyn Fn(usize) -> bool| {
                let ranks = self.members.iter().enumerate();
                let chosen = ranks.filter(|(rank, _)| chosen(*rank));
                chosen.map(|(_, &job_rank)| job_rank).collect()
            };
            PendingRanks {
                submitted: those(has),
                missing: those(&misses),
            }
        };
        let mut tell = |name: &str, operation, ranks| {
            tensors.push(PendingTensor {
                name: name.to_owned(),
                operation,
                ranks,
            });
        };
        for (name, request, ready_us) in coordinator.outstanding() {
            let ranks = ranks(&|rank| ready_us[rank].is_some());
            tell(name, PendingOperation::Requested(request), Some(ranks));
        }
        each_bit(&self.agreed.outstanding(), |slot| {
            if let Some(entry) = self.cache.get(slot as u32) {
                let has = |rank: usize| self.details.ready_on(rank, slot).is_some();
                let operation = PendingOperation::Cached(entry.last_use());
                let ranks = self.details.has(slot).then(|| ranks(&has));
                tell(&entry.name, operation, ranks);
            }
        });
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A tensor that rank 1 has not submitted; rank 0 has at the start.
    struct Waiting(PendingOperation);

    impl Pending for Waiting {
        fn lowest_rank(&self) -> usize {
            0
        }

        fn outstanding(&self) -> Vec<PendingTensor> {
            vec![PendingTensor {
                name: "gradient".into(),
                operation: self.0,
                ranks: Some(PendingRanks {
                    submitted: vec![0],
                    missing: vec![1],
                }),
            }]
        }

        fn oldest_unanswered(&self) -> Option<Nanos> {
            Some(Nanos(0))
        }
    }

    #[test]
    fn a_long_batch_before_the_first_check_is_no_stall() {
        let at = |seconds: u64| Nanos(seconds * 1_000_000_000);
        let limit = Duration::from_secs(10);
        let mut stalls = Stalls::new(1, 2, limit, Some(limit)).unwrap();
        let pending = Waiting(PendingOperation::Cached(0));
        let mut look = |seconds| stalls.look(at(seconds), &pending, &mut |text| panic!("{text}"));
        assert!(look(60).is_ok() && look(70).is_ok());
        let error = look(71).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Peer(PeerError::Stalled {
                    rank: 0,
                    waited_seconds: 11,
                    ..
                })
            ),
            "{error}"
        );
    }

    #[test]
    fn a_tensor_that_waits_in_each_step_has_not_waited_since_the_first_one() {
        let at = |seconds: u64| Nanos(seconds * 1_000_000_000);
        let limit = Duration::from_secs(10);
        let mut stalls = Stalls::new(0, 2, limit, Some(limit)).unwrap();
        for step in 0..30 {
            for operation in [PendingOperation::Requested, PendingOperation::Cached] {
                let pending = Waiting(operation(step));
                let checked = stalls.look(at(step), &pending, &mut |text| panic!("{text}"));
                assert!(checked.is_ok(), "step {step}");
            }
        }
        let last = Waiting(PendingOperation::Cached(29));
        let mut warnings = 0;
        let checked = stalls.look(at(39), &last, &mut |_| warnings += 1);
        assert!(checked.is_err() && warnings == 1);
    }
}
