//! Commands of rank 0, such as to start a timeline or to change settings: every rank applies them
//! in the same cycle, whatever else happens.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;

use super::job::Job;
use super::member::{Member, RankState, Setup};
use super::record::{Diary, Log};
use crate::clock::Clock;
use crate::command::Command;
use crate::command::TimelineCommand::{Start, Stop};
use crate::error::{Error, PeerError, SettingsError};
use crate::settings::PartialSettings;
use crate::sync::lock;
use crate::transport::simulated::{SimulatedSet, World};

/// Threads of rank 0 that submit commands.
const COMMANDERS: usize = 2;
const COMMANDS_EACH: usize = 5;

/// Job in which rank r trains for some steps, joins, and then waits for the end, with commands
/// meanwhile.
#[derive(Clone, Copy, Debug)]
struct CommandedJob {
    ranks: usize,
    seed: u64,
    is_spread: bool,
    setup: Setup,
    /// Rank that dies, and the time of its death.
    death: Option<(usize, Duration)>,
}

/// Result of a job.
struct Outcome {
    logs: Vec<Log>,
    diaries: Vec<Diary>,
    /// Commands and the results that their callers received.
    told: Vec<(Command, Result<(), Error>)>,
}

fn command(commander: usize, number: usize) -> Command {
    match ["a", "b", "no", "stop", "change"][(2 * commander + number) % 5] {
        "change" => Command::Settings(PartialSettings {
            fusion_threshold_bytes: Some(8 * number as u64),
            gpu_fusion_threshold_bytes: Some(16 * number as u64),
            cycle_time: Some(Duration::from_micros(100 * (1 + number as u64))),
            cache: Some(number.is_multiple_of(2)),
            hierarchical_allreduce: Some(number % 4 < 2),
            hierarchical_allgather: Some(commander == 0),
        }),
        "stop" => Command::Timeline(Stop),
        path => Command::Timeline(Start {
            path: path.into(),
            mark_cycles: number % 2 == 1,
        }),
    }
}

impl CommandedJob {
    fn run(self) -> Outcome {
        let world = match self.is_spread {
            true => World::spread(self.ranks, self.seed),
            false => World::new(self.ranks, self.seed),
        };
        let everybody: Vec<usize> = (0..self.ranks).collect();
        let set = SimulatedSet::new(&world, &everybody);
        let members = everybody.iter().map(|&rank| {
            let member = Member::start(&world, &set, rank, self.setup, &RankState::default());
            (rank, member)
        });
        let members: Vec<(usize, Member)> = members.collect();
        let told = Arc::new(Mutex::new(Vec::new()));
        let commanding = Arc::new(AtomicUsize::new(COMMANDERS));
        for commander in 0..COMMANDERS {
            let (member, in_world) = (members[0].1.clone(), Arc::clone(&world));
            let (told, commanding) = (Arc::clone(&told), Arc::clone(&commanding));
            world.spawn(0, format!("commander {commander}"), move || {
                for number in 0..COMMANDS_EACH {
                    in_world
                        .sleep_until(in_world.now() + Duration::from_micros(in_world.draw(3_000)));
                    let command = command(commander, number);
                    let outcome = member.command(command.clone()).and_then(|ticket| {
                        member.wait(&ticket, None);
                        ticket.outcome().expect("waited for")
                    });
                    lock(&told).push((command, outcome));
                }
                commanding.fetch_sub(1, SeqCst);
            });
        }
        if let Some((victim, after)) = self.death {
            let in_world = Arc::clone(&world);
            world.spawn(victim, "its end".into(), move || {
                in_world.sleep_until(in_world.present() + after);
                in_world.kill(victim);
                in_world.sleep_until(in_world.present());
            });
        }
        let books: Vec<_> = members
            .iter()
            .map(|(_, member)| (member.log(), member.diary()))
            .collect();
        for (rank, member) in members {
            let (in_world, commanding) = (Arc::clone(&world), Arc::clone(&commanding));
            world.spawn(rank, "its program".into(), move || {
                live(&in_world, rank, &member, &commanding);
            });
        }
        world.run();
        let books = books
            .iter()
            .map(|(log, diary)| (lock(log).clone(), lock(diary).clone()));
        let (logs, diaries) = books.unzip();
        Outcome {
            logs,
            diaries,
            told: lock(&told).clone(),
        }
    }
}

/// Program of a rank. Its errors are not checked here: the checks are on the commands.
fn live(world: &World, rank: usize, member: &Member, commanding: &Arc<AtomicUsize>) {
    for step in 0..steps(rank, world.ranks()) {
        let mut buffer = vec![(rank + step) as i64; 5];
        world.sleep_until(world.now() + Duration::from_micros(world.draw(2_000)));
        if let Ok(ticket) = member.submit_sum("gradient", &mut buffer) {
            member.wait(&ticket, None);
        }
        member.mark();
    }
    if let Ok(ticket) = member.submit_join() {
        member.wait(&ticket, None);
    }
    if rank == 0 {
        let commanding = Arc::clone(commanding);
        world.wait("for the commanders", None, move |_| {
            commanding.load(SeqCst) == 0
        });
    }
    if let Ok(ticket) = member.submit_barrier("end") {
        member.wait(&ticket, None);
    }
    member.mark();
    member.shut_down();
}

/// Number of steps of a rank: the order of the joins depends on the number of ranks.
fn steps(rank: usize, ranks: usize) -> usize {
    2 + (rank + ranks) % 3
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 200, ..ProptestConfig::default() })]
    #[test]
    fn all_ranks_carry_out_all_orders_in_the_same_cycles(
        (ranks, seed, is_spread, early) in (1_usize..7, any::<u64>(), any::<bool>(), any::<bool>()),
        cache_capacity in prop_oneof![Just(0_usize), Just(64)],
    ) {
        let setup = Setup { early, cache_capacity, ..Job::default().setup };
        let outcome = CommandedJob { ranks, seed, is_spread, setup, death: None }.run();
        for (log, diary) in outcome.logs.iter().zip(&outcome.diaries) {
            prop_assert_eq!(log, &outcome.logs[0]);
            prop_assert_eq!(log.commands.len(), COMMANDERS * (COMMANDS_EACH - 1));
            // Two changes may be applied in one cycle.
            prop_assert_eq!(log.versions.last(), Some(&(COMMANDERS as u64)));
            prop_assert!((1..=COMMANDERS).contains(&log.switched.len()));
            prop_assert_eq!(diary.marks.0, diary.marks.1);
            for (cycle, settings) in &log.switched {
                // In force from that cycle on, until the end.
                prop_assert!(log.versions[*cycle..].iter().all(|version| *version >= settings.version));
                prop_assert!(log.versions[..*cycle].iter().all(|version| *version < settings.version));
            }
        }
        for (command, outcome) in &outcome.told {
            match (command, outcome) {
                (Command::Timeline(Start { path, .. }), Err(Error::Settings(SettingsError::Output { path: named, .. }))) => {
                    prop_assert_eq!((path.to_str(), path), (Some("no"), named));
                }
                (Command::Timeline(Start { path, .. }), Ok(())) => prop_assert_ne!(path.to_str(), Some("no")),
                (Command::Timeline(Stop) | Command::Settings(_), Ok(())) => {}
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }

    #[test]
    fn when_a_rank_dies_those_who_order_are_told_and_never_hang(
        (ranks, seed, is_spread) in (2_usize..7, any::<u64>(), any::<bool>()),
        (victim, after_us) in (1_usize..7, 0_u64..12_000),
    ) {
        let victim = 1 + victim % (ranks - 1);
        let death = Some((victim, Duration::from_micros(after_us)));
        let outcome = CommandedJob { ranks, seed, is_spread, setup: Job::default().setup, death }.run();
        prop_assert_eq!(outcome.told.len(), COMMANDERS * COMMANDS_EACH);
        for (command, told) in &outcome.told {
            let is_refused = matches!(command, Command::Timeline(Start { path, .. }) if path.as_os_str() == "no");
            match told {
                Ok(()) => prop_assert!(!is_refused),
                Err(Error::Settings(SettingsError::Output { .. })) => prop_assert!(is_refused),
                Err(Error::Peer(PeerError::Lost { rank, .. })) => prop_assert_eq!(*rank, victim),
                Err(error) => prop_assert!(false, "{}", error),
            }
        }
        // A survivor has applied as many commands as rank 0, or those of one cycle more or less.
        let done = &outcome.logs[0].commands;
        for log in &outcome.logs {
            let shorter = done.len().min(log.commands.len());
            prop_assert_eq!(&log.commands[..shorter], &done[..shorter]);
            let switched = &outcome.logs[0].switched;
            let shorter = switched.len().min(log.switched.len());
            prop_assert_eq!(&log.switched[..shorter], &switched[..shorter]);
        }
    }
}

#[test]
fn marks_after_the_last_cycle_are_not_lost() {
    let setup = Job::default().setup;
    let outcome = CommandedJob {
        ranks: 3,
        seed: 4,
        is_spread: false,
        setup,
        death: None,
    }
    .run();
    for (rank, diary) in outcome.diaries.iter().enumerate() {
        let steps = steps(rank, 3);
        assert_eq!(diary.marks, (steps + 1, steps + 1), "rank {rank}");
    }
}

#[test]
fn who_stops_when_a_peer_has_left_already_has_stopped() {
    for seed in 0..10 {
        let world = World::new(2, seed);
        let set = SimulatedSet::new(&world, &[0, 1]);
        let told = Arc::new(Mutex::new(Vec::new()));
        for rank in 0..2 {
            let member = Member::start(
                &world,
                &set,
                rank,
                Job::default().setup,
                &RankState::default(),
            );
            let (in_world, told) = (Arc::clone(&world), Arc::clone(&told));
            world.spawn(rank, "its program".into(), move || {
                if rank == 0 {
                    in_world.sleep_until(in_world.now() + Duration::from_secs(1)); // rank 1 has left
                    for command in [
                        Command::Timeline(Stop),
                        Command::Timeline(Stop),
                        command(0, 0),
                    ] {
                        let outcome = member.command(command).and_then(|ticket| {
                            member.wait(&ticket, None);
                            ticket.outcome().expect("waited for")
                        });
                        lock(&told).push(outcome);
                    }
                }
                member.shut_down();
            });
        }
        world.run();
        let told = lock(&told);
        assert!(told[0].is_ok(), "{told:?}");
        // From then on the ranks know that the job has failed.
        assert!(
            told[1..]
                .iter()
                .all(|told| matches!(told, Err(Error::Peer(PeerError::Left { rank: 1 })))),
            "{told:?}"
        );
    }
}
