//! Rules for the outputs of the ranks beside a hostile one: which differences from the reference
//! the hostile rank can cause.

use std::time::Duration;

use crate::error::{ArgumentError, DeviceError, Error, LimitError, NegotiationError, PeerError};
use crate::negotiation::JOIN;
use crate::simulation::programs::play::{Begun, Outcome, Played};
use crate::simulation::programs::program::{Action, Deed, Program};
use crate::simulation::programs::reference::{Output, Refused, expected_of, submitted};
use crate::simulation::programs::{Deviation, deviations, is_right};

/// Tolerance of a comparison with the stall limit.
const SLACK: Duration = Duration::from_secs(2);

/// Run of a program beside a hostile rank.
pub(in crate::simulation::programs) struct Beside {
    /// Outputs by rank.
    pub(in crate::simulation::programs) played: Vec<Option<Played>>,
    /// Time at which each rank submitted its actions, by rank.
    pub(in crate::simulation::programs) begun: Vec<Begun>,
    /// Waiting time after which a tensor that a rank did not submit is an error.
    pub(in crate::simulation::programs) stall_limit: Duration,
}

/// Judge of the outputs of all ranks but the hostile one.
pub(super) struct Judge<'a> {
    program: &'a Program,
    hostile: usize,
    run: &'a Beside,
}

/// Whether `error` names the rank `hostile` as a cause.
fn names(error: &Error, hostile: usize) -> bool {
    match error {
        Error::Peer(
            PeerError::InvalidData { rank, .. }
            | PeerError::Lost { rank, .. }
            | PeerError::Left { rank }
            | PeerError::Stalled { rank, .. },
        )
        | Error::Negotiation(NegotiationError::RankJoined { rank, .. }) => *rank == hostile,
        Error::Peer(PeerError::Failed { rank, reason }) => {
            *rank == hostile
                || reason.contains(&format!("rank {hostile} sent invalid control data"))
                || reason.contains(&format!("rank {hostile} stopped after an error"))
                || reason.contains(&format!("rank {hostile} has not answered"))
                || reason.starts_with(&format!("rank {hostile} "))
                || reason.contains("was submitted by ranks")
        }
        Error::Negotiation(NegotiationError::Mismatch(mismatch)) => {
            [mismatch.rank, mismatch.first_rank].contains(&hostile)
        }
        _ => false,
    }
}

/// Whether the output is an error because the result `wanted` has another size than the caller's
/// memory.
fn does_not_fit(got: &Result<Output, Error>, wanted: &Result<Output, Refused>) -> bool {
    match (got, wanted) {
        (Err(Error::Argument(ArgumentError::OutputSize { expected_bytes, .. })), Ok(wanted)) => {
            *expected_bytes == wanted.bytes.len()
        }
        _ => false,
    }
}

impl<'a> Judge<'a> {
    pub(super) fn new(program: &'a Program, hostile: usize, run: &'a Beside) -> Self {
        Self {
            program,
            hostile,
            run,
        }
    }

    fn played(&self, rank: usize) -> &Played {
        self.run.played[rank].as_ref().expect("no rank dies")
    }

    /// Returns the rank's errors.
    fn errors(&self, rank: usize) -> impl Iterator<Item = &Error> {
        let outcomes = self.run.played[rank].iter().flatten().flatten().flatten();
        outcomes.flat_map(|outcome| {
            let outputs = outcome.outputs.iter();
            outputs.filter_map(|output| output.as_ref().err())
        })
    }

    /// Whether the rank ends with an error against the hostile rank.
    fn blames_hostile(&self, rank: usize) -> bool {
        self.errors(rank)
            .any(|error| error.is_peer_gone() && names(error, self.hostile))
    }

    /// Fails unless every output of `rank`, which is not hostile, is correct or an error that names
    /// the hostile rank.
    pub(super) fn check(&self, rank: usize) {
        let played = self.played(rank);
        for deviation in deviations(self.program, rank, played) {
            let Deviation {
                step,
                action,
                tensor,
                error,
            } = deviation;
            let is_allowed = error
                .as_ref()
                .is_some_and(|error| self.is_allowed(error, rank))
                || self.is_right_for_other_inputs((step, action, tensor), rank);
            assert!(
                is_allowed,
                "rank {rank} beside rank {}, step {step}, action {action}, {:?}: {error:?}\n got {:?}",
                self.hostile, self.program.steps[step][action], played[step][action]
            );
        }
    }

    fn is_allowed(&self, error: &Error, rank: usize) -> bool {
        if names(error, self.hostile) {
            return true;
        }
        match error {
            // The hostile rank claimed that a tensor is on a device: those of the programs are in
            // host memory. Ranks that have joined cannot detect that.
            Error::Device(DeviceError::Tensor { .. }) => true,
            // A rank whose program had ended has left, and the hostile rank has caused cycles that
            // need it.
            Error::Peer(PeerError::Left { rank: left }) => *left != rank,
            Error::Negotiation(NegotiationError::Stalled {
                tensor,
                submitted,
                missing,
                ..
            }) => {
                // The rank itself may have joined.
                let Some(by) = submitted.iter().find(|rank| **rank != self.hostile) else {
                    return true;
                };
                let is_missing = |missing: &usize| {
                    let mut stalled = self.stalled_actions(*by, tensor, submitted, *missing);
                    *missing == self.hostile || stalled.any(|at| self.is_missing(*missing, at))
                };
                missing.iter().all(is_missing)
            }
            // A refusal that the hostile rank invented does not end the job on ranks that cannot
            // detect it.
            Error::Negotiation(
                NegotiationError::Mismatch(_) | NegotiationError::RankJoined { .. },
            )
            | Error::Limit(LimitError::Memory { .. } | LimitError::TooLarge { .. }) => {
                let mut others = (0..self.program.ranks).filter(|rank| *rank != self.hostile);
                others.any(|rank| self.blames_hostile(rank))
            }
            _ => false,
        }
    }

    /// Whether `missing` had not submitted the action `at` when the others had waited for the
    /// stall limit, because of the hostile rank: its error names that rank, or it waited for it in
    /// another operation.
    fn is_missing(&self, missing: usize, at: (usize, usize)) -> bool {
        let begun = |member: &usize| self.run.begun[*member].get(&at).copied();
        let action = &self.program.steps[at.0][at.1];
        let first = action.ranks.iter().filter_map(begun).min();
        let is_late = match (first, begun(&missing)) {
            (Some(first), Some(begun)) => begun.since(first) + SLACK > self.run.stall_limit,
            (_, None) => true,
            (None, Some(_)) => false,
        };
        is_late && (self.blames_hostile(missing) || self.waits_for_hostile(missing, &mut vec![]))
    }

    /// Returns the actions that failed on `rank` and that an error can mean which says that
    /// `tensor` is `missing` on a rank and `submitted` by others.
    fn stalled_actions(
        &self,
        rank: usize,
        tensor: &str,
        submitted: &[usize],
        missing: usize,
    ) -> impl Iterator<Item = (usize, usize)> {
        let failed = |outcome: &Outcome| outcome.outputs.iter().any(Result::is_err);
        let is_meant = move |action: &Action| {
            let members = &self.program.sets[action.set];
            let mut ranks = submitted.iter().chain([&missing]);
            ranks.all(|rank| members.contains(rank))
                && match &action.deed {
                    Deed::Tensors { tensors, .. } => tensors.iter().any(|work| work.name == tensor),
                    Deed::Barrier => tensor == "barrier",
                    Deed::Join { .. } => tensor == JOIN,
                }
        };
        let steps = self
            .played(rank)
            .iter()
            .zip(&self.program.steps)
            .enumerate();
        let actions = steps.flat_map(|(step, (outcomes, actions))| {
            let actions = outcomes.iter().zip(actions).enumerate();
            actions.map(move |(at, (outcome, action))| ((step, at), outcome, action))
        });
        actions
            .filter(move |(_, outcome, action)| {
                outcome.as_ref().is_some_and(failed) && is_meant(action)
            })
            .map(|(at, ..)| at)
    }

    /// Whether the first operation that failed on `rank` waited for the hostile rank: its process
    /// set contains that rank, or a rank that waited for it.
    fn waits_for_hostile(&self, rank: usize, visited: &mut Vec<usize>) -> bool {
        if rank == self.hostile {
            return true;
        }
        if visited.contains(&rank) {
            return false;
        }
        visited.push(rank);
        let deviations = deviations(self.program, rank, self.played(rank));
        let first = deviations
            .iter()
            .find(|deviation| deviation.error.is_some());
        first.is_some_and(|first| {
            let set = self.program.steps[first.step][first.action].set;
            let mut members = self.program.sets[set].iter();
            members.any(|member| self.waits_for_hostile(*member, visited))
        })
    }

    /// Whether an output is correct for inputs that the hostile rank can cause.
    ///
    /// A block without the bit of a tensor looks like that of a rank that joined before it
    /// submitted the tensor, so the hostile rank may take no part. The coordinator may claim the
    /// same of another rank, whose error names it. A hostile rank that hid a tensor in an earlier
    /// step submits the elements of that step.
    fn is_right_for_other_inputs(
        &self,
        (step, action, tensor): (usize, usize, usize),
        rank: usize,
    ) -> bool {
        let (program, hostile) = (self.program, self.hostile);
        let Action { set, deed, .. } = &program.steps[step][action];
        let Some(work) = deed.tensors().get(tensor) else {
            return false;
        };
        let outcome = self.played(rank)[step][action].as_ref();
        let got = &outcome.expect("it deviates").outputs[tensor];
        let is_claimed = |other: &usize| *other != rank && self.blames_hostile(*other);
        let claimed: Vec<usize> = (0..program.ranks).filter(is_claimed).collect();
        let of_hostile = self.inputs_of_hostile(*set, &work.name);
        (0..1usize << claimed.len()).any(|subset| {
            let takes_part = |member| {
                let place = claimed.iter().position(|claimed| *claimed == member);
                place.is_none_or(|place| subset >> place & 1 == 0)
            };
            of_hostile.iter().any(|of_hostile| {
                let input = |member| match submitted(program, step, action, tensor, member) {
                    Some(own) if member == hostile => {
                        of_hostile.clone().filter(|input| input.len() == own.len())
                    }
                    other => other.filter(|_| takes_part(member)),
                };
                let wanted = expected_of(&input, program, step, action, tensor, rank);
                is_right(work, got, &wanted) || does_not_fit(got, &wanted)
            })
        })
    }

    /// Returns what the hostile rank can contribute to a tensor of this name: nothing, or the
    /// elements of one of its steps.
    fn inputs_of_hostile(&self, set: usize, name: &str) -> Vec<Option<Vec<u8>>> {
        let mut inputs = vec![None];
        for (step, actions) in self.program.steps.iter().enumerate() {
            let of_set = actions.iter().enumerate();
            for (index, action) in of_set.filter(|(_, action)| action.set == set) {
                let tensors = action.deed.tensors().iter().enumerate();
                let named = tensors.filter(|(_, work)| work.name == name);
                inputs.extend(
                    named.map(|(tensor, _)| {
                        submitted(self.program, step, index, tensor, self.hostile)
                    }),
                );
            }
        }
        inputs
    }
}
