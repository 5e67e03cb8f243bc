//! Tests of several transports in one process: the job's, and those of overlapping process sets.

use crate::rendezvous::RendezvousConfig;
use std::io::{BufRead, BufReader};
use std::process::Child;
use std::sync::Barrier;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use super::processes::{DEADLINE, spawn};
use super::*;

/// Configuration of the set `members` of `job` for job rank `job_rank`; `None` if it is not a
/// member.
fn set_of(
    job: &RendezvousConfig,
    job_rank: usize,
    id: usize,
    members: &[usize],
) -> Option<RendezvousConfig> {
    Some(RendezvousConfig {
        job_key: format!("{}/set{id}.0", job.job_key),
        rank: members.iter().position(|&member| member == job_rank)?,
        members: members.into(),
        ..job.clone()
    })
}

fn open(config: &RendezvousConfig) -> LocalTransport {
    LocalTransport::open(config, WORDS, 1 << 16, |_| PATIENCE)
        .unwrap()
        .transport
}

/// Runs one cycle with blocks and frames, in which each rank has bit `bit` ready if `ready`;
/// returns whether all had.
fn cycle(transport: &mut LocalTransport, cycle: u64, ready: bool) -> Result<bool, Error> {
    let mut agreed = Agreement::default();
    let mut block = Block::new(1);
    if ready {
        block.set(0, cycle);
    }
    transport.exchange(cycle, &block.contribution(false), &mut agreed)?;
    let mut frames = Vec::new();
    let frame = [transport.job_rank() as u8; 9];
    transport.gather(&frame, &mut frames)?;
    if transport.rank() == 0 {
        let expected: Vec<_> = transport
            .members
            .iter()
            .map(|&rank| vec![rank as u8; 9])
            .collect();
        assert_eq!(frames, expected);
    }
    let mut news = frame.to_vec();
    transport.broadcast(&mut news)?;
    assert_eq!(news, [transport.members[0] as u8; 9]);
    Ok(agreed.common() == [1])
}

/// The victim is the first rank of one set and the last of the job; it is not in the other set.
const VICTIM: usize = 3;
const WITH_VICTIM: [usize; 3] = [3, 1, 2];
const WITHOUT_VICTIM: [usize; 3] = [2, 0, 1];

/// A rank of `job`: opens all its transports and runs cycles on them at once, each in a thread of
/// its own.
pub(super) fn member(job: &RendezvousConfig, rank: usize) {
    let cycle_on = |name: &str, config: RendezvousConfig| {
        let mut transport = open(&config);
        let mut number = 0;
        let error = loop {
            number += 1;
            if let Err(error) = cycle(&mut transport, number, true) {
                break error;
            }
            if number == 20 {
                println!("{name} under way");
            }
        };
        println!("{name} failed: {error}");
        transport.leave(Some(&error));
        error
    };
    let world = RendezvousConfig {
        rank,
        ..job.clone()
    };
    let set = |id, members: &[usize]| set_of(job, rank, id, members);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let with = set(1, &WITH_VICTIM).map(|config| scope.spawn(|| cycle_on("set 1", config)));
        if let Some(config) = set(2, &WITHOUT_VICTIM) {
            let over = &over;
            scope.spawn(move || {
                let mut transport = open(&config);
                let mut number = 1;
                // Until every member has seen its other transports fail, and further cycles after
                // that.
                while !cycle(&mut transport, number, over.load(Ordering::Relaxed)).unwrap() {
                    number += 1;
                }
                for beyond in 1..=20 {
                    cycle(&mut transport, number + beyond, false).unwrap();
                }
                println!("set 2 went on");
            });
        }
        cycle_on("world", world);
        if let Some(with) = with {
            with.join().unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
}

/// Reads what `rank` prints until `lines` of it end like `end`.
fn read_until(rank: &mut Child, end: &str, lines: usize) {
    let out = BufReader::new(rank.stdout.take().unwrap());
    let found = out
        .lines()
        .filter(|line| line.as_ref().unwrap().ends_with(end));
    assert_eq!(found.take(lines).count(), lines, "{end}");
}

#[test]
fn a_killed_rank_ends_the_sets_it_is_in_and_no_other() {
    let job = config("sets", 4);
    let mut ranks: Vec<Child> = (0..4).map(|rank| spawn(&job, rank, "sets")).collect();
    let mut victim = ranks.pop().unwrap();
    let pid = victim.id();
    read_until(&mut victim, "under way", 2);
    kill_process(Pid::from_child(&victim), Signal::KILL).unwrap();
    let killed = Instant::now();
    victim.wait().unwrap();
    for (rank, survivor) in ranks.into_iter().enumerate() {
        let output = survivor.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "rank {rank}: {text}");
        let died = |name: &str| {
            text.contains(&format!(
                "{name} failed: rank {VICTIM} died (process {pid})"
            ))
        };
        assert!(died("world"), "rank {rank}: {text}");
        assert_eq!(
            died("set 1"),
            WITH_VICTIM.contains(&rank),
            "rank {rank}: {text}"
        );
        assert!(text.contains("set 2 went on"), "rank {rank}: {text}");
    }
    assert!(killed.elapsed() < 2 * DEADLINE);
}

#[test]
fn a_set_that_ends_disturbs_neither_the_job_nor_its_successor() {
    let job = config("set-ends", 3);
    let done = Barrier::new(3);
    thread::scope(|scope| {
        for rank in 0..3 {
            let (job, done) = (&job, &done);
            scope.spawn(move || {
                let world = RendezvousConfig {
                    rank,
                    ..job.clone()
                };
                let mut world = open(&world);
                for round in 1..=3 {
                    let set = set_of(job, rank, 1, &[2, 1]);
                    let set = set.map(|set| RendezvousConfig { init: round, ..set });
                    thread::scope(|scope| {
                        let set = set.map(|set| {
                            scope.spawn(move || {
                                let mut set = open(&set);
                                for number in 1..=5 {
                                    cycle(&mut set, number, true).unwrap();
                                }
                                // Its first rank fails; the other one gets the error with its job
                                // rank.
                                if set.rank() == 0 {
                                    set.leave(Some(&Error::ShutDown));
                                    return;
                                }
                                let error = cycle(&mut set, 6, true).unwrap_err();
                                assert!(
                                    matches!(error, Error::Peer(PeerError::Failed { rank: 2, .. })),
                                    "{error}"
                                );
                            })
                        });
                        let first = u64::from(round) * 10;
                        for number in first - 9..=first {
                            cycle(&mut world, number, true).unwrap();
                        }
                        if let Some(set) = set {
                            set.join().unwrap();
                        }
                    });
                }
                world.check_peers().unwrap();
                done.wait();
            });
        }
    });
}

/// The error of a leaving rank may be about a rank that only another set has.
#[test]
fn an_error_from_another_set_is_passed_on_with_its_rank() {
    for (lost, known) in [(8, true), (1, false)] {
        let job = config("passed-on", 3);
        let done = Barrier::new(3);
        thread::scope(|scope| {
            for rank in 0..3 {
                let set = RendezvousConfig {
                    rank,
                    members: Arc::new([6, 7, 8]),
                    ..job.clone()
                };
                let done = &done;
                scope.spawn(move || {
                    let mut set = open(&set);
                    let outcome = match rank {
                        0 => Err(PeerError::Lost { rank: lost, pid: 99 }.into()),
                        1 => cycle(&mut set, 1, true),
                        _ => Ok(true),
                    };
                    if let Err(error) = &outcome {
                        set.leave(Some(error));
                    }
                    done.wait();
                    let Err(error) = outcome else { return };
                    match (rank, known) {
                        (1, true) => assert!(matches!(error, Error::Peer(PeerError::Lost { rank: 8, .. })), "{error}"),
                        (1, false) => assert!(
                            matches!(&error, Error::Peer(PeerError::Failed { rank: 6, reason }) if reason.starts_with("rank 1 died")),
                            "{error}"
                        ),
                        _ => {}
                    }
                });
            }
        });
    }
}

#[test]
fn a_set_of_one_rank_needs_no_other() {
    let alone = RendezvousConfig {
        members: Arc::new([5]),
        ..config("alone", 1)
    };
    let mut transport = open(&alone);
    for number in 1..=3 {
        assert!(cycle(&mut transport, number, true).unwrap());
    }
    transport.check_peers().unwrap();
    let error = transport
        .broadcast(&mut vec![0; FRAME_BYTES_MAX + 1])
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::Limit(LimitError::ControlFrame { rank: 5, .. })
        ),
        "{error}"
    );
}
