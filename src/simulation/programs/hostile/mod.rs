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

use super::Naming;
use super::draw::Draw;
use super::program::Program;
use super::simulated::run_hostile;

mod judge;
mod local;
mod mutate;
mod transport;

pub(super) use judge::Beside;
use judge::Judge;
pub(super) use transport::{Hostile, Hostility};

/// Number of modifications if `TEST_RONDE_MUTATIONS` is not set.
const MUTATIONS: u64 = 3_000;

/// Runs the program of `seed` with a hostile rank by `run` and checks the others; returns the
/// number of modifications.
fn check_hostile(seed: u64, run: impl FnOnce(&Program, usize, &Hostility) -> Beside) -> u64 {
    let mut draw = Draw::new(seed ^ 0x4057);
    let program = Program::new(seed, 2 + draw.below(4));
    let _naming = Naming(&program);
    let hostile = draw.below(program.ranks);
    let hostility = Hostility {
        seed: seed ^ 0x7a11,
        one_in: draw.pick(&[1, 3, 10, 30]),
        changes: Arc::default(),
    };
    let beside = run(&program, hostile, &hostility);
    let changes = hostility.changes.load(Ordering::Relaxed);
    for rank in (0..program.ranks).filter(|rank| *rank != hostile) {
        Judge::new(&program, hostile, &beside).check(rank);
    }
    changes
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
        let now = check_hostile(seed, run_hostile);
        if (made + now) / 100_000 > made / 100_000 {
            eprintln!("{} changes in {} programs", made + now, seed - first + 1);
        }
        made += now;
    }
}
