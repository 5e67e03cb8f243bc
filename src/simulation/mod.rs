//! Simulation of whole jobs: 2 to 64 ranks under a seed, with checkers (after TigerBeetle's VOPR).
//!
//! Every rank runs a program: the same tensors in each step for each of its process sets, submitted
//! in an order and at times of its own. The checkers then compare the members' logs of each set:
//! the same batches in the same order, no tensor lost or executed twice, correct sums, settings
//! changed in the same cycle; and after a death, an error that names the dead rank for every tensor
//! that was not completed, in all sets.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;

use self::job::{Devices, Job, Outcome, SetOutcome};
use self::member::{Member, RankState, Setup};
use crate::clock::Clock;
use crate::error::{Error, PeerError};
use crate::sync::lock;
use crate::transport::simulated::{SimulatedSet, World};

mod clocks;
mod commands;
mod gpu;
mod hold;
mod job;
mod member;
mod programs;
mod record;
mod scale;

fn check_same_logs(outcomes: &[SetOutcome]) {
    for SetOutcome { members, seen } in outcomes {
        for one in seen {
            assert_eq!(
                one.log.batches, seen[0].log.batches,
                "same batches in the same order on every rank of {members:?}"
            );
            assert_eq!(
                one.log.device_batches, seen[0].log.device_batches,
                "same batches in the same order on every device of {members:?}"
            );
            assert_eq!(
                one.log.versions, seen[0].log.versions,
                "settings switch at the same cycle on every rank of {members:?}"
            );
            assert_eq!(
                one.log.ways, seen[0].log.ways,
                "batches go the same way on every rank of {members:?}"
            );
        }
    }
}

/// Checks the sums of the set at `place` on all its ranks but `except`.
fn check_sums(job: &Job, place: usize, outcome: &SetOutcome) {
    let SetOutcome { members, seen } = outcome;
    for step in 0..job.steps {
        for tensor in 0..job.tensors {
            let expected = job.expected(place, members, step, tensor);
            for (rank, one) in members.iter().zip(seen) {
                let got = one.results[step][tensor].as_ref();
                assert_eq!(
                    got.ok(),
                    Some(&expected),
                    "set {members:?}, rank {rank}, step {step}, tensor {tensor}: {got:?}"
                );
            }
        }
    }
    let log = &seen[0].log;
    let executed: usize = log
        .batches
        .iter()
        .chain(&log.device_batches)
        .map(Vec::len)
        .sum();
    assert_eq!(
        executed,
        job.steps * job.tensors,
        "nothing lost, nothing twice"
    );
}

fn check_all(job: &Job) -> Vec<SetOutcome> {
    let outcomes = job.run();
    check_same_logs(&outcomes);
    let places = outcomes.iter().enumerate();
    places.for_each(|(place, outcome)| check_sums(job, place, outcome));
    outcomes
}

/// Returns the sets that `masks` describe, of a job of `ranks` ranks: one bit for each member.
fn sets_of(masks: &[u8], ranks: usize) -> Vec<Vec<usize>> {
    let members = |mask: &u8| (0..ranks).filter(|rank| mask >> rank & 1 == 1).collect();
    let sets = masks.iter().map(members);
    sets.filter(|members: &Vec<usize>| !members.is_empty())
        .collect()
}

/// Draws up to three process sets besides that of all ranks; see [`sets_of`].
fn masks() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..4)
}

/// Draws the capacity of the response cache, and the capacity up to which it may grow.
fn caches() -> impl Strategy<Value = (usize, usize)> {
    prop_oneof![Just((0, 0)), Just((3, 3)), Just((3, 9)), Just((1024, 1024))]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 200, ..ProptestConfig::default() })]
    #[test]
    fn all_ranks_do_the_same_and_the_sums_are_right(
        (ranks, seed, tensors, masks) in (2usize..9, any::<u64>(), 1usize..20, masks()),
        (cache_capacity, cache_capacity_max) in caches(),
        threshold_bytes in prop_oneof![Just(0u64), Just(100), Just(1 << 20)],
        (early, reshape_every, retune_every) in (any::<bool>(), 1usize..5, 0u64..5),
        is_spread in any::<bool>(),
        devices in prop_oneof![Just(Devices::None), Just(Devices::Waiting), Just(Devices::Early)],
    ) {
        let setup = Setup { cache_capacity, cache_capacity_max, threshold_bytes, early, retune_every };
        let sets = sets_of(&masks, ranks);
        check_all(&Job { ranks, seed, is_spread, sets, tensors, setup, reshape_every, devices, ..Job::default() });
    }

    #[test]
    fn after_a_death_every_survivor_is_told_who_died_in_all_its_sets(
        (ranks, seed, masks) in (2usize..9, any::<u64>(), masks()),
        (victim, moment) in (0usize..8, 1usize..60),
        (cache_capacity, cache_capacity_max) in caches(),
        is_spread in any::<bool>(),
        devices in prop_oneof![Just(Devices::None), Just(Devices::Waiting)],
    ) {
        let victim = victim % ranks;
        let setup = Setup { cache_capacity, cache_capacity_max, ..Job::default().setup };
        let sets = sets_of(&masks, ranks);
        // It dies before the last step, so some tensors of each of its sets fail.
        let job = Job { ranks, seed, is_spread, sets, setup, death: Some((victim, moment)), devices, ..Job::default() };
        let outcomes = job.run();
        let failed = |results: &[Outcome]| results.iter().any(Result::is_err);
        // The step of each rank's first failure in a set with the dead rank: at the latest in the
        // set of all ranks.
        let mut noticed = vec![usize::MAX; ranks];
        for SetOutcome { members, seen } in outcomes.iter().filter(|outcome| outcome.members.contains(&victim)) {
            for (&rank, one) in members.iter().zip(seen).filter(|(rank, _)| **rank != victim) {
                let step = one.results.iter().position(|results| failed(results));
                prop_assert!(step.is_some(), "rank {} noticed nothing in {:?}", rank, members);
                noticed[rank] = noticed[rank].min(step.unwrap_or(usize::MAX));
            }
        }
        for (place, SetOutcome { members, seen }) in outcomes.iter().enumerate() {
            for (&rank, one) in members.iter().zip(seen).filter(|(rank, _)| **rank != victim) {
                for (step, results) in one.results.iter().enumerate() {
                    for (tensor, result) in results.iter().enumerate() {
                        match result {
                            Ok(sum) => {
                                prop_assert_eq!(sum, &job.expected(place, members, step, tensor));
                                prop_assert!(step <= noticed[rank], "rank {} goes on in {:?}", rank, members);
                            }
                            Err(Error::Peer(PeerError::Lost { rank: told, .. })) => prop_assert_eq!(*told, victim),
                            Err(error) => prop_assert!(false, "rank {} got {:?} in {:?}", rank, error, members),
                        }
                    }
                }
                for other in seen {
                    let (batches, others) = (&one.log.batches, &other.log.batches);
                    let shorter = batches.len().min(others.len());
                    prop_assert_eq!(&batches[..shorter], &others[..shorter]);
                    let (batches, others) = (&one.log.device_batches, &other.log.device_batches);
                    let shorter = batches.len().min(others.len());
                    prop_assert_eq!(&batches[..shorter], &others[..shorter]);
                }
            }
        }
    }

    #[test]
    fn a_mismatch_fails_that_tensor_on_every_rank_of_its_set_and_nothing_else(
        (ranks, seed, masks) in (2usize..9, any::<u64>(), masks()),
        (place, culprit, step) in (0usize..4, 0usize..8, 0usize..6),
        (cache_capacity, cache_capacity_max) in caches(),
        devices in prop_oneof![Just(Devices::None), Just(Devices::Waiting)],
    ) {
        let setup = Setup { cache_capacity, cache_capacity_max, ..Job::default().setup };
        let mut job = Job { ranks, seed, sets: sets_of(&masks, ranks), setup, devices, ..Job::default() };
        let place = place % (1 + job.sets.len());
        let members = &job.members()[place];
        let culprit = members[culprit % members.len()];
        let alone = members.len() == 1;
        job.mismatch = Some((place, culprit, step));
        let outcomes = job.run();
        check_same_logs(&outcomes);
        for (at_place, outcome) in outcomes.iter().enumerate() {
            for (at_step, results) in outcome.seen.iter().flat_map(|one| one.results.iter().enumerate()) {
                for (tensor, result) in results.iter().enumerate() {
                    let odd = (at_place, at_step, tensor) == (place, step, 1) && !alone;
                    prop_assert_eq!(result.is_err(), odd, "set {}, step {}: {:?}", at_place, at_step, result);
                    if let Err(error) = result {
                        prop_assert!(error.is_mismatch(), "{}", error);
                        let named = error.to_string().contains(&format!("rank {culprit} has"));
                        prop_assert!(named, "{}", error);
                    }
                }
            }
        }
    }
}

#[test]
fn ranks_that_are_killed_whatever_they_do_are_named_and_no_survivor_waits_for_ever() {
    let mut told = 0;
    for seed in 0..60 {
        let ranks = 3 + seed as usize % 4;
        let at = |number: u64| Duration::from_micros(200 + (seed * 97 + number * 61) % 9000);
        let kills = (0..1 + seed % 2).map(|number| ((seed + number) as usize % ranks, at(number)));
        let job = Job {
            ranks,
            seed,
            is_spread: seed % 3 == 0,
            sets: vec![vec![0, 1], vec![1, 2]],
            kills: kills.collect(),
            devices: [Devices::None, Devices::Waiting][seed as usize / 2 % 2],
            ..Job::default()
        };
        for (place, SetOutcome { members, seen }) in job.run().iter().enumerate() {
            for (step, results) in seen.iter().flat_map(|one| one.results.iter().enumerate()) {
                for (tensor, result) in results.iter().enumerate() {
                    match result {
                        Ok(sum) => assert_eq!(sum, &job.expected(place, members, step, tensor)),
                        Err(Error::Peer(PeerError::Lost { rank, .. })) => {
                            assert!(
                                job.kills.iter().any(|(dead, _)| dead == rank),
                                "{rank}: {job:?}"
                            );
                            told += 1;
                        }
                        Err(error) => panic!("{error}: {job:?}"),
                    }
                }
            }
        }
    }
    assert!(told > 1000, "{told}");
}

#[test]
fn sixty_four_ranks() {
    let setup = Setup {
        retune_every: 2,
        ..Job::default().setup
    };
    let job = Job {
        ranks: 64,
        sets: vec![
            (0..32).collect(),
            (0..64).step_by(2).collect(),
            vec![7, 40, 63],
        ],
        steps: 3,
        tensors: 8,
        setup,
        ..Job::default()
    };
    let outcomes = check_all(&job);
    let log = &outcomes[0].seen[0].log;
    assert!(
        log.versions.last() > Some(&0),
        "settings have been switched"
    );
    // Some batches were hierarchical and some were flat, while other tensors were in flight.
    let hierarchical = log
        .ways
        .iter()
        .filter(|way| way.ends_with(record::HIERARCHICAL))
        .count();
    assert!(
        (1..log.ways.len()).contains(&hierarchical),
        "{:?}",
        log.ways
    );
}

#[test]
fn a_small_allreduce_comes_with_the_agreement_from_its_second_time_on() {
    for (is_spread, seed) in [(false, 3), (true, 3), (true, 4)] {
        let job = Job {
            tensors: 1,
            is_spread,
            seed,
            ..Job::default()
        };
        for seen in &check_all(&job)[0].seen {
            let (first, later) = seen.log.ways.split_first().expect("six steps");
            assert_eq!(*first, "SIM_ALLREDUCE");
            assert_eq!(later, [ronde_job::ATTACHED_ALLREDUCE; 5]);
        }
    }
}

#[test]
fn sets_that_overlap_in_a_ring_are_served_at_once() {
    // With one thread for all sets, three ranks that begin with different sets would wait for one
    // another.
    for seed in 0..20 {
        check_all(&Job {
            ranks: 3,
            seed,
            sets: vec![vec![0, 1], vec![1, 2], vec![0, 2]],
            tensors: 2,
            ..Job::default()
        });
    }
}

#[test]
fn one_seed_gives_one_run() {
    let setup = Setup {
        retune_every: 3,
        ..Job::default().setup
    };
    let job = Job {
        seed: 42,
        sets: vec![vec![0, 1, 3], vec![1, 2]],
        setup,
        reshape_every: 2,
        devices: Devices::Early,
        ..Job::default()
    };
    for (one, other) in job.run().iter().zip(job.run()) {
        let logs = |outcome: &SetOutcome| {
            outcome
                .seen
                .iter()
                .map(|seen| seen.log.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(logs(one), logs(&other));
    }
}

#[test]
fn ranks_that_wait_for_different_tensors_are_not_served_by_cycles_for_ever() {
    // Rank 0 waits for `a`, rank 1 for `b`: once both are known, no cycle runs, however long they
    // wait.
    for seed in 0..4 {
        let world = World::new(2, seed);
        let set = SimulatedSet::new(&world, &[0, 1]);
        let cycles = Arc::new(Mutex::new(Vec::new()));
        for (rank, name) in ["a", "b"].into_iter().enumerate() {
            let member = Member::start(
                &world,
                &set,
                rank,
                Job::default().setup,
                &RankState::default(),
            );
            let (in_world, cycles) = (Arc::clone(&world), Arc::clone(&cycles));
            world.spawn(rank, "its program".into(), move || {
                let ticket = member
                    .submit_barrier(name)
                    .expect("a fresh queue takes a barrier");
                let end = in_world.now() + Duration::from_secs(60);
                assert!(!member.wait(&ticket, Some(end)));
                lock(&cycles).push(member.cycles());
                member.shut_down();
            });
        }
        world.run();
        let cycles = lock(&cycles).clone();
        assert_eq!(cycles.len(), 2);
        assert!(
            cycles.iter().all(|cycles| (1..=2).contains(cycles)),
            "{cycles:?}"
        );
    }
}
