//! Simulated jobs of ranks on different hosts, whose clocks have different offsets and rates.
//! Checks that times that a rank sends to others, and times on rank 0's clock, are within their
//! stated error bounds.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::job::Job;
use super::member::{Member, RankState};
use super::record::Diary;
use crate::clock::{Clock, Nanos};
use crate::sync::lock;
use crate::transport::simulated::{SimulatedClock, SimulatedSet, World};

const RANKS: usize = 4;
const STEPS: usize = 360;
const PAUSE: Duration = Duration::from_millis(500);

/// Process sets, each with a tensor in every step.
const SETS: [&[usize]; 2] = [&[0, 1, 2, 3], &[1, 3]];

/// Time of the simulation at which a rank submitted its tensor to a set: between these two.
type Truth = Vec<(Nanos, Nanos)>;

#[test]
fn over_minutes_the_times_of_all_ranks_agree_within_the_stated_bound() {
    for seed in 0..3 {
        let world = World::spread(RANKS, seed);
        let rank_states: Vec<RankState> = (0..RANKS).map(|_| RankState::default()).collect();
        let mut diaries: Vec<Vec<Arc<Mutex<Diary>>>> = vec![Vec::new(); SETS.len()];
        let mut of_rank: Vec<Vec<(usize, Member)>> = (0..RANKS).map(|_| Vec::new()).collect();
        for (place, members) in SETS.into_iter().enumerate() {
            let set = SimulatedSet::new(&world, members);
            for (set_rank, &rank) in members.iter().enumerate() {
                let member = Member::start(
                    &world,
                    &set,
                    set_rank,
                    Job::default().setup,
                    &rank_states[rank],
                );
                diaries[place].push(member.diary());
                of_rank[rank].push((place, member));
            }
        }
        let truths = Arc::new(Mutex::new(vec![vec![Truth::new(); RANKS]; SETS.len()]));
        for (rank, members) in of_rank.into_iter().enumerate() {
            let (in_world, truths) = (Arc::clone(&world), Arc::clone(&truths));
            world.spawn(rank, "its program".into(), move || {
                train(&in_world, rank, &members, &truths)
            });
        }
        world.run();
        let diaries: Vec<Vec<Diary>> = diaries
            .iter()
            .map(|of_set| of_set.iter().map(|diary| lock(diary).clone()).collect())
            .collect();
        for (rank, diary) in diaries[0].iter().enumerate() {
            check_alignments(&world, rank, diary);
        }
        for (place, members) in SETS.into_iter().enumerate() {
            check_ready_times(
                &world,
                members,
                &diaries,
                &lock(&truths)[place],
                &diaries[place][0],
            );
        }
    }
}

fn train(world: &World, rank: usize, members: &[(usize, Member)], truths: &Mutex<Vec<Vec<Truth>>>) {
    for _ in 0..STEPS {
        world.sleep_until(world.now() + PAUSE + Duration::from_micros(world.draw(20_000)));
        let mut buffers = [[rank as i64; 3]; SETS.len()];
        let mut tickets = Vec::new();
        for ((place, member), buffer) in members.iter().zip(&mut buffers) {
            let before = world.present();
            let ticket = member
                .submit_sum("gradient", buffer)
                .expect("no rank leaves");
            lock(truths)[*place][rank].push((before, world.present()));
            tickets.push((member, ticket));
        }
        for (member, ticket) in tickets {
            member.wait(&ticket, None);
        }
    }
    members.iter().for_each(|(_, member)| member.shut_down());
}

/// Checks that `rank`'s offset to rank 0's clock was always within its error bound, and was
/// accurate at the end.
fn check_alignments(world: &Arc<World>, rank: usize, diary: &Diary) {
    if rank == 0 {
        assert!(diary.alignments.is_empty());
        return;
    }
    // At 0, 1, 3, 7, 15, 31 s, then every 30.
    assert!(
        (9..=12).contains(&diary.alignments.len()),
        "{:?}",
        diary.alignments
    );
    assert!(diary.off.len() >= STEPS);
    let rounding = Duration::from_nanos(2);
    for &(off, bound) in &diary.off {
        assert!(
            off <= bound + rounding,
            "rank {rank} was {off:?} off, not {bound:?}"
        );
    }
    let late = &diary.off[diary.off.len() / 2..];
    let bound = late.iter().map(|&(_, bound)| bound).max();
    assert!(bound < Some(Duration::from_micros(500)), "{bound:?}");

    let (own, zero) = (
        SimulatedClock::new(world, rank),
        SimulatedClock::new(world, 0),
    );
    let elapsed = |clock: &SimulatedClock| {
        (clock.at(Nanos(100_000_000_000)) - clock.at(Nanos(0))).as_nanos() as f64
    };
    let drift_ppb = (elapsed(&zero) / elapsed(&own) - 1.0) * 1e9;
    let last = diary.alignments.last().expect("some");
    let off = (last.drift_ppb as f64 - drift_ppb).abs();
    assert!(
        off <= last.drift_error_ppb as f64,
        "{drift_ppb} is not {last:?}"
    );
    assert!(last.drift_error_ppb < 10_000, "{last:?}");
}

/// Checks the times, on rank 0's clock, at which each member submitted, as received by the lowest
/// rank of a set.
fn check_ready_times(
    world: &Arc<World>,
    members: &[usize],
    diaries: &[Vec<Diary>],
    truth: &[Truth],
    told: &Diary,
) {
    let clock = SimulatedClock::new(world, 0);
    let bound = |rank: usize| diaries[0][rank].off.iter().map(|&(_, bound)| bound).max();
    assert_eq!(told.ready_us.len(), STEPS);
    for (step, (_, ready_us)) in told.ready_us.iter().enumerate() {
        assert_eq!(ready_us.len(), members.len());
        for (&rank, us) in members.iter().zip(ready_us) {
            let us = us.expect("all take part");
            let (before, after) = truth[rank][step];
            let slack = bound(rank).unwrap_or_default().as_micros() as u64 + 2;
            let (first, last) = (
                clock.at(before).as_micros() - slack,
                clock.at(after).as_micros() + slack,
            );
            assert!(
                (first..=last).contains(&us),
                "step {step}, rank {rank}: {us} is not in {first}..={last}"
            );
        }
    }
}
