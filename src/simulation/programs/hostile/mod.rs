//! Random programs with a hostile rank: its blocks, requests and responses are modified before the
//! other ranks receive them.
//!
//! The other ranks get correct results, or an error that names the hostile rank. They never panic,
//! never wait beyond the stall limit, and never access memory out of bounds; the last is checked on
//! shared memory, under valgrind ([`local`]).
//!
//! `TEST_RONDE_MUTATIONS=1000000` makes that many modifications instead of a few thousand;
//! `TEST_RONDE_HOSTILE_SEED=4214411` begins with the program of that seed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::draw::Draw;
use super::play::Played;
use super::program::{Deed, Program};
use super::reference::{Output, Refused, expected_of, submitted};
use super::simulated::run_hostile;
use super::work::{Task, Work};
use super::{Deviation, Naming, deviations, is_right};
use crate::error::{Error, LimitError, NegotiationError, PeerError};

mod local;
mod mutate;
mod transport;

pub(super) use transport::{Hostile, Hostility};

/// Number of modifications if `TEST_RONDE_MUTATIONS` is not set.
const MUTATIONS: u64 = 3_000;

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
                || reason.starts_with(&format!("rank {hostile} "))
                || reason.contains("was submitted by ranks")
        }
        Error::Negotiation(NegotiationError::Stalled {
            submitted, missing, ..
        }) => submitted.contains(&hostile) || missing.contains(&hostile),
        Error::Negotiation(NegotiationError::Mismatch(mismatch)) => {
            [mismatch.rank, mismatch.first_rank].contains(&hostile)
        }
        _ => false,
    }
}

/// Whether `rank`'s output for a tensor is correct for inputs that the hostile rank can cause: some
/// of `joined` join before they submit the tensor, or the hostile rank submits other elements, such
/// as those of an earlier step in which it hid the tensor.
fn is_right_for_other_inputs(
    hostile: usize,
    joined: &[usize],
    program: &Program,
    (step, action, tensor): (usize, usize, usize),
    rank: usize,
    played: &Played,
) -> bool {
    let (Deed::Tensors { tensors, .. }, Some(outcome)) =
        (&program.steps[step][action].deed, &played[step][action])
    else {
        return false;
    };
    let (work, got) = (&tensors[tensor], &outcome.outputs[tensor]);
    let submitted = |member| submitted(program, step, action, tensor, member);
    (0..1usize << joined.len()).any(|subset| {
        let has_joined = |member| {
            let place = joined.iter().position(|joined| *joined == member);
            place.is_some_and(|place| subset >> place & 1 == 1)
        };
        let input = |member| submitted(member).filter(|_| !has_joined(member));
        let flipped = |member| {
            let bytes = input(member)?;
            let mask = if member == hostile { 0xff } else { 0 };
            Some(bytes.into_iter().map(|byte| byte ^ mask).collect())
        };
        let wanted = expected_of(&input, program, step, action, tensor, rank);
        let other = expected_of(&flipped, program, step, action, tensor, rank);
        is_right(work, got, &wanted) || differs_like(work, got, &wanted, &other)
    })
}

/// Whether an output differs from `wanted` only in elements that depend on the hostile rank's: all
/// elements of a reduction, otherwise those that differ in `other`.
fn differs_like(
    work: &Work,
    got: &Result<Output, Error>,
    wanted: &Result<Output, Refused>,
    other: &Result<Output, Refused>,
) -> bool {
    let (Ok(got), Ok(wanted), Ok(other)) = (got, wanted, other) else {
        return false;
    };
    let is_reduction = matches!(work.task, Task::Allreduce(_) | Task::Reducescatter(_));
    let bytes = got.bytes.iter().zip(&wanted.bytes).zip(&other.bytes);
    (&got.shape, &got.splits, got.bytes.len())
        == (&wanted.shape, &wanted.splits, wanted.bytes.len())
        && wanted.bytes != other.bytes
        && bytes
            .into_iter()
            .all(|((got, wanted), other)| is_reduction || got == wanted || wanted != other)
}

/// Whether the first operation that failed on `rank` waited for the rank `hostile`: its process set
/// contains that rank, or a rank that waited for it.
fn waits_for(
    program: &Program,
    all: &[Option<Played>],
    rank: usize,
    hostile: usize,
    visited: &mut Vec<usize>,
) -> bool {
    if rank == hostile {
        return true;
    }
    if visited.contains(&rank) {
        return false;
    }
    visited.push(rank);
    let played = all[rank].as_ref().expect("no rank dies");
    let deviations = deviations(program, rank, played);
    let first = deviations
        .iter()
        .find(|deviation| deviation.error.is_some());
    first.is_some_and(|first| {
        let members = &program.sets[program.steps[first.step][first.action].set];
        members
            .iter()
            .any(|member| waits_for(program, all, *member, hostile, visited))
    })
}

/// Fails unless every output of `rank`, which is not hostile, is correct or an error that names the
/// hostile rank.
fn check_beside(program: &Program, all: &[Option<Played>], rank: usize, hostile: usize) {
    let played = all[rank].as_ref().expect("no rank dies");
    // Error with which this or another rank ends and which blames the hostile rank.
    let blames = |error: &Error| error.is_peer_gone() && names(error, hostile);
    let blames_hostile = |rank: usize| {
        let outcomes = all[rank].iter().flatten().flatten().flatten();
        let mut errors = outcomes.flat_map(|outcome| {
            outcome
                .outputs
                .iter()
                .filter_map(|output| output.as_ref().err())
        });
        errors.any(blames)
    };
    let mut honest = (0..all.len()).filter(|rank| *rank != hostile);
    let is_blamed = honest.any(blames_hostile);
    for deviation in deviations(program, rank, played) {
        let Deviation {
            step,
            action,
            tensor,
            error,
        } = deviation;
        let is_allowed = match &error {
            Some(error) if names(error, hostile) => true,
            // A rank whose program had ended has left, and the hostile rank has caused cycles that
            // need it.
            Some(Error::Peer(PeerError::Left { rank: left })) => *left != rank,
            // The hostile rank delays the missing ranks in another process set: their errors name
            // it, or they still waited for it when their sets were aborted.
            Some(Error::Negotiation(NegotiationError::Stalled { missing, .. })) => {
                let waits = |&missing: &usize| {
                    blames_hostile(missing)
                        || waits_for(program, all, missing, hostile, &mut vec![])
                };
                missing.iter().all(waits)
            }
            // A refusal that the hostile rank invented does not end the job on ranks that cannot
            // detect it.
            Some(
                Error::Negotiation(
                    NegotiationError::Mismatch(_) | NegotiationError::RankJoined { .. },
                )
                | Error::Limit(LimitError::Memory { .. }),
            ) => is_blamed,
            // A block without the bit of a tensor looks like that of a rank that joined before it
            // submitted the tensor. The coordinator may claim the same of another rank, whose error
            // names it.
            None => {
                let joins =
                    |other: &usize| *other == hostile || *other != rank && blames_hostile(*other);
                let joined: Vec<usize> = (0..all.len()).filter(joins).collect();
                is_right_for_other_inputs(
                    hostile,
                    &joined,
                    program,
                    (step, action, tensor),
                    rank,
                    played,
                )
            }
            _ => false,
        };
        assert!(
            is_allowed,
            "rank {rank} beside rank {hostile}, step {step}, action {action}, {:?}: {error:?}\n got {:?}",
            program.steps[step][action], played[step][action]
        );
    }
}

/// Runs the program of `seed` with a hostile rank by `run` and checks the others; returns the
/// number of modifications.
fn check_hostile(
    seed: u64,
    run: impl FnOnce(&Program, usize, &Hostility) -> Vec<Option<Played>>,
) -> u64 {
    let mut draw = Draw::new(seed ^ 0x4057);
    let program = Program::new(seed, 2 + draw.below(4));
    let _naming = Naming(&program);
    let hostile = draw.below(program.ranks);
    let hostility = Hostility {
        seed: seed ^ 0x7a11,
        one_in: draw.pick(&[1, 3, 10, 30]),
        changes: Arc::default(),
    };
    let all = run(&program, hostile, &hostility);
    for rank in (0..program.ranks).filter(|rank| *rank != hostile) {
        check_beside(&program, &all, rank, hostile);
    }
    hostility.changes.load(Ordering::Relaxed)
}

/// Number of modifications: that of `TEST_RONDE_MUTATIONS`, or else `count`.
fn mutations(count: u64) -> u64 {
    std::env::var("TEST_RONDE_MUTATIONS").map_or(count, |count| count.parse().expect("a number"))
}

/// Seed of the first program: from `TEST_RONDE_HOSTILE_SEED`, otherwise `seed`.
fn first_seed(seed: u64) -> u64 {
    std::env::var("TEST_RONDE_HOSTILE_SEED").map_or(seed, |seed| seed.parse().expect("a number"))
}

#[test]
fn beside_a_hostile_rank_results_are_right_or_errors_name_it() {
    let mut made = 0;
    let first = first_seed(0x40_0000);
    for seed in first.. {
        if made >= mutations(MUTATIONS) {
            break;
        }
        let now = check_hostile(seed, |program, rank, how| {
            run_hostile(program, rank, how).played
        });
        if (made + now) / 100_000 > made / 100_000 {
            eprintln!("{} changes in {} programs", made + now, seed - first + 1);
        }
        made += now;
    }
}
