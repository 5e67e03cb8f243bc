//! Survivors of a rank that dies, leaves, stops or forks: they get an error that names it, in time,
//! and never hang.

#![allow(unsafe_code)] // forks

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid, kill_process};

use crate::support::holdings::Holdings;
use crate::support::{Draw, Job, Outcome, job, job_with, start};
use ronde::{Context, Error, NegotiationError, PeerError, ReduceOp};

/// Time within which every survivor must have an error: the contract is two seconds, the rest is
/// for a busy machine, on which the failing operation itself takes seconds.
const DEADLINE: Duration = Duration::from_secs(30);

/// Time in which all ranks of a job are started, on a busy machine too.
const START: Duration = Duration::from_secs(15);

/// [`START`], as `HOROVOD_START_TIMEOUT`.
const START_TIMEOUT: (&str, &str) = ("HOROVOD_START_TIMEOUT", "15");

/// Job of which one rank has been killed.
struct Round {
    round: usize,
    victim: usize,
    pid: u32,
    outcomes: JoinHandle<Vec<Outcome>>,
}

impl Round {
    /// Kills rank `victim`. Waits for the ends of the others only for a moment: those whose
    /// rendezvous lacks the victim end after the start timeout, and other rounds begin meanwhile.
    fn kill(round: usize, mut job: Job, victim: usize) -> Self {
        let pid = job.ranks[victim].id();
        job.ranks[victim].kill().expect("killed");
        let outcomes = std::thread::spawn(move || job.finish());
        let began = Instant::now();
        while !outcomes.is_finished() && began.elapsed() < Duration::from_millis(500) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Self {
            round,
            victim,
            pid,
            outcomes,
        }
    }

    /// Checks the outcome of each rank but the victim; `check` is also called with the victim and
    /// its process.
    fn check(self, check: impl Fn(&Outcome, usize, u32) -> bool) {
        let Self {
            round, victim, pid, ..
        } = self;
        let outcomes = self.outcomes.join().expect("waiting does not panic");
        let survivors = outcomes.iter().enumerate();
        for (rank, outcome) in survivors.filter(|(rank, _)| *rank != victim) {
            assert!(
                check(outcome, victim, pid) && outcome.took < START + DEADLINE,
                "round {round}, rank {rank}, victim {victim}, process {pid}, after {:?}: {}",
                outcome.took,
                outcome.output
            );
        }
    }
}

fn context() -> Context {
    Context::from_env().expect("the job starts")
}

/// Reduces until that fails; returns the error, and the duration of the failing operation.
fn reduce_until_error(context: &Context, tensors: usize, elements: usize) -> (Error, Duration) {
    loop {
        let began = Instant::now();
        let submitted: Result<Vec<_>, _> = (0..tensors)
            .map(|tensor| {
                context.allreduce(&format!("t{tensor}"), vec![1.0f32; elements], ReduceOp::Sum)
            })
            .collect();
        let outcome = submitted.and_then(|handles| {
            handles
                .into_iter()
                .try_for_each(|handle| handle.wait().map(drop))
        });
        if let Err(failed) = outcome {
            return (failed.error, began.elapsed());
        }
    }
}

#[test]
fn survivors_of_sigkill_at_random_moments_name_the_dead_rank() {
    const TEST: &str = "survivors::survivors_of_sigkill_at_random_moments_name_the_dead_rank";
    const RANKS: usize = 3;
    let mut draw = Draw(0x5eed);
    let rounds = if std::env::var("TEST_RONDE_QUICK").is_ok() {
        10
    } else {
        25
    };
    let mut killed = Vec::new();
    for round in 0..rounds {
        // Small tensors: mostly in negotiation at that moment; large ones: mostly in the data path.
        let elements = [10usize, 3_000, 2_000_000][round % 3].to_string();
        let env = [("TEST_RONDE_ELEMENTS", &elements[..]), START_TIMEOUT];
        let job = start(TEST, RANKS, &env, || {
            let elements = std::env::var("TEST_RONDE_ELEMENTS")
                .expect("set above")
                .parse()
                .expect("a number");
            let context = match Context::from_env() {
                Ok(context) => context,
                Err(error) => return println!("never met: {error}"),
            };
            let (error, took) = reduce_until_error(&context, 5, elements);
            println!("error after {took:?}: {error}");
            let later = context
                .allreduce("later", vec![1.0f32], ReduceOp::Sum)
                .expect_err("the context has ended");
            println!("later: {}", later.error);
            assert!(took < DEADLINE, "took {took:?}");
            assert!(error.is_peer_gone() && later.error.is_peer_gone());
        });
        let Some(job) = job else { return };
        let victim = draw.below(RANKS as u64) as usize;
        std::thread::sleep(Duration::from_millis(draw.below(250)));
        killed.push(Round::kill(round, job, victim));
    }
    for round in killed {
        round.check(|outcome, victim, pid| {
            let text = &outcome.output;
            // A rank that is killed during the rendezvous is reported as missing there instead.
            let names = [
                format!("rank {victim}"),
                format!("ranks [{victim}]"),
                format!("process {pid}"),
            ];
            names.iter().any(|name| text.contains(name)) && outcome.status.success()
        });
    }
}

#[test]
fn a_rank_that_exits_without_a_word_is_lost_even_with_code_zero() {
    let test = "survivors::a_rank_that_exits_without_a_word_is_lost_even_with_code_zero";
    job(test, 3, || {
        let context = context();
        context
            .allreduce("warm", vec![1.0f32], ReduceOp::Sum)
            .expect("in")
            .wait()
            .expect("out");
        if context.rank() == 1 {
            std::process::exit(0);
        }
        let (error, took) = reduce_until_error(&context, 2, 100);
        assert!(
            matches!(error, Error::Peer(PeerError::Lost { rank: 1, .. })),
            "{error}"
        );
        assert!(took < DEADLINE);
    });
}

#[test]
fn a_rank_that_shuts_down_is_named_by_those_who_still_need_it() {
    job(
        "survivors::a_rank_that_shuts_down_is_named_by_those_who_still_need_it",
        3,
        || {
            let context = context();
            context
                .allreduce("warm", vec![1.0f32], ReduceOp::Sum)
                .expect("in")
                .wait()
                .expect("out");
            if context.rank() == 2 {
                return context.shutdown();
            }
            let (error, took) = reduce_until_error(&context, 2, 100);
            // The third rank may leave, with this error, before this one has noticed anything.
            let names_rank_2 = match &error {
                Error::Peer(PeerError::Left { rank }) => *rank == 2,
                Error::Peer(PeerError::Failed { rank, reason }) => {
                    *rank == 1 - context.rank() && reason.contains("rank 2 has shut down")
                }
                _ => false,
            };
            assert!(names_rank_2, "{error}");
            assert!(took < DEADLINE);
        },
    );
}

#[test]
fn ranks_may_leave_as_soon_as_their_own_work_is_done() {
    job(
        "survivors::ranks_may_leave_as_soon_as_their_own_work_is_done",
        4,
        || {
            for round in 0..30 {
                let context = context();
                let sum = context
                    .allreduce("x", vec![1.0f32; 300_000], ReduceOp::Sum)
                    .expect("in")
                    .wait();
                assert_eq!(
                    sum.expect("nobody was still needed")[0],
                    4.0,
                    "round {round}"
                );
            }
        },
    );
}

#[test]
fn a_panic_with_a_context_in_hand_is_seen_by_the_others() {
    const TEST: &str = "survivors::a_panic_with_a_context_in_hand_is_seen_by_the_others";
    let Some(job) = start(TEST, 2, &[], || {
        let context = context();
        context
            .allreduce("warm", vec![1.0f32], ReduceOp::Sum)
            .expect("in")
            .wait()
            .expect("out");
        assert!(context.rank() != 1, "rank 1 panics");
        let (error, took) = reduce_until_error(&context, 2, 100);
        assert!(
            error.is_peer_gone() && error.to_string().contains("rank 1"),
            "{error}"
        );
        assert!(took < DEADLINE);
    }) else {
        return;
    };
    let outcomes = job.finish();
    assert!(outcomes[0].status.success(), "{}", outcomes[0].output);
    assert!(!outcomes[1].status.success());
}

/// Prints the start of each rank: the error, or its rank and then the first error.
fn say_how_it_starts() {
    let began = Instant::now();
    match Context::from_env() {
        Ok(context) => {
            let (error, _) = reduce_until_error(&context, 2, 10);
            println!("started, then: {error} after {:?}", began.elapsed());
        }
        Err(error) => println!("never met: {error} after {:?}", began.elapsed()),
    }
}

/// Draws a delay from the start of the processes, so that delays cover the whole rendezvous of
/// ranks that start within a few milliseconds.
fn moment(draw: &mut Draw) -> Duration {
    Duration::from_micros(draw.below(40_000))
}

#[test]
fn a_rank_killed_during_the_start_is_named_by_all_others() {
    const TEST: &str = "survivors::a_rank_killed_during_the_start_is_named_by_all_others";
    const RANKS: usize = 4;
    let mut draw = Draw(0xdead);
    let rounds = if std::env::var("TEST_RONDE_QUICK").is_ok() {
        15
    } else {
        30
    };
    let mut killed = Vec::new();
    for round in 0..rounds {
        let Some(job) = start(TEST, RANKS, &[START_TIMEOUT], say_how_it_starts) else {
            return;
        };
        let victim = draw.below(RANKS as u64) as usize;
        std::thread::sleep(moment(&mut draw));
        killed.push(Round::kill(round, job, victim));
    }
    for round in killed {
        round.check(|outcome, victim, pid| {
            let names = [
                format!("rank {victim} died (process {pid})"),
                format!("rank {victim} (process {pid}) ended before all ranks were connected"),
                format!("ranks [{victim}] did not arrive"),
            ];
            names.iter().any(|name| outcome.output.contains(name))
        });
    }
}

#[test]
fn a_rank_stopped_during_the_start_is_named_by_the_start_timeout() {
    const TEST: &str = "survivors::a_rank_stopped_during_the_start_is_named_by_the_start_timeout";
    const RANKS: usize = 3;
    // In which the other ranks come, on a busy machine too.
    let limits = [
        ("HOROVOD_START_TIMEOUT", "15"),
        ("HOROVOD_STALL_CHECK_TIME_SECONDS", "1"),
        ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "15"),
    ];
    let mut draw = Draw(0x570b);
    let rounds = if std::env::var("TEST_RONDE_QUICK").is_ok() {
        3
    } else {
        8
    };
    // Each job waits for its time limits: all wait at once.
    let mut jobs = Vec::new();
    for _ in 0..rounds {
        let Some(job) = start(TEST, RANKS, &limits, say_how_it_starts) else {
            return;
        };
        let victim = draw.below(RANKS as u64) as usize;
        std::thread::sleep(moment(&mut draw));
        let pid = job.ranks[victim].id();
        kill_process(Pid::from_child(&job.ranks[victim]), Signal::STOP).expect("a child");
        let job = std::thread::spawn(move || job.finish_with_stopped(victim));
        jobs.push((victim, pid, job));
    }
    for (round, (victim, pid, job)) in jobs.into_iter().enumerate() {
        let outcomes = job.join().expect("waiting does not panic");
        for (rank, outcome) in outcomes
            .iter()
            .enumerate()
            .filter(|(rank, _)| *rank != victim)
        {
            let text = &outcome.output;
            let names = [
                format!("ranks [{victim}] did not arrive within 15 s"),
                format!("ranks [{victim}] (processes [{pid}]) arrived but did not answer"),
                format!("rank {victim} has not answered"),
                // It was stopped after its last answer and before its first tensor, and no rank
                // waits for an answer: the tensor reaches the same limit.
                format!("missing on ranks [{victim}]"),
            ];
            assert!(
                names.iter().any(|name| text.contains(name)),
                "round {round}, rank {rank}, victim {victim}: {text}"
            );
            // At most two limits one after the other.
            assert!(
                outcome.took < 2 * Duration::from_secs(15) + DEADLINE,
                "round {round}: {text}"
            );
        }
    }
}

#[test]
fn a_stopped_rank_is_warned_about_and_given_up_after_the_limit() {
    const TEST: &str = "survivors::a_stopped_rank_is_warned_about_and_given_up_after_the_limit";
    let limits = [
        ("HOROVOD_STALL_CHECK_TIME_SECONDS", "1"),
        ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "3"),
    ];
    let Some(job) = start(TEST, 2, &limits, || {
        let context = context();
        // Between two steps, so that the other rank waits for this rank and not for one of its
        // tensors.
        let own = if context.rank() == 1 {
            i64::from(std::process::id())
        } else {
            0
        };
        let pid = context
            .allreduce("pid", vec![own], ReduceOp::Sum)
            .expect("in")
            .wait()
            .expect("out")[0];
        if context.rank() == 1 {
            kill_process(getpid(), Signal::STOP).expect("it may");
        }
        let is_stopped = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
            stat.rsplit_once(") ")
                .is_some_and(|(_, state)| state.starts_with('T'))
        };
        while !is_stopped() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let (error, _) = reduce_until_error(&context, 3, 1000);
        println!("{error}");
        assert!(
            matches!(error, Error::Peer(PeerError::Stalled { rank: 1, .. })),
            "{error}"
        );
    }) else {
        return;
    };
    let outcomes = job.finish_with_stopped(1);
    assert!(outcomes[0].status.success(), "{}", outcomes[0].output);
    let text = &outcomes[0].output;
    let warning = "a rank that is stopped; continue it (SIGCONT) rank=1 ";
    assert!(text.contains(warning), "{text}");
    assert!(outcomes[0].took < Duration::from_secs(3) + DEADLINE);
}

#[test]
fn a_tensor_missing_on_one_rank_is_warned_about_by_name() {
    const TEST: &str = "survivors::a_tensor_missing_on_one_rank_is_warned_about_by_name";
    let Some(job) = start(
        TEST,
        3,
        &[("HOROVOD_STALL_CHECK_TIME_SECONDS", "1")],
        || {
            let context = context();
            for round in 0..2 {
                // The second time the tensor is cached.
                match context.rank() {
                    0 => eprintln!("round {round}"),
                    2 => std::thread::sleep(Duration::from_millis(4_000)),
                    _ => {}
                }
                let name = "late_one";
                context
                    .allreduce(name, vec![round], ReduceOp::Sum)
                    .expect("in")
                    .wait()
                    .expect("out");
            }
        },
    ) else {
        return;
    };
    let outcomes = job.finish();
    for outcome in &outcomes {
        assert!(outcome.status.success(), "{}", outcome.output);
    }
    let text = &outcomes[0].output;
    assert!(text.contains("Missing ranks:"), "{text}");
    let (uncached, cached) = text.split_once("round 1").expect("two rounds");
    for round in [uncached, cached] {
        assert!(round.contains("2: [late_one]"), "{text}");
    }
}

#[test]
fn without_the_stall_check_a_late_tensor_is_neither_reported_nor_an_error() {
    const TEST: &str =
        "survivors::without_the_stall_check_a_late_tensor_is_neither_reported_nor_an_error";
    let limits = [
        ("HOROVOD_STALL_CHECK_DISABLE", "1"),
        ("HOROVOD_STALL_CHECK_TIME_SECONDS", "1"),
        ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "1"),
    ];
    let outcomes = job_with(TEST, 2, &limits, || {
        let context = context();
        if context.rank() == 1 {
            std::thread::sleep(Duration::from_secs(3));
        }
        let sum = context.allreduce("late_one", vec![1i32], ReduceOp::Sum);
        assert_eq!(sum.expect("in").wait().expect("no limit"), [2]);
    });
    for outcome in outcomes {
        assert!(!outcome.output.contains("late_one"), "{}", outcome.output);
    }
}

#[test]
fn the_stall_limit_ends_the_job_with_the_tensors_name() {
    const TEST: &str = "survivors::the_stall_limit_ends_the_job_with_the_tensors_name";
    let limits = [
        ("HOROVOD_STALL_CHECK_TIME_SECONDS", "1"),
        ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "2"),
    ];
    let Some(job) = start(TEST, 2, &limits, || {
        let context = context();
        let began = Instant::now();
        if context.rank() == 0 {
            let failed = context
                .allreduce("lonely", vec![1i32], ReduceOp::Sum)
                .expect("in")
                .wait()
                .expect_err("no peer");
            println!("{}", failed.error);
            assert!(
                matches!(
                    &failed.error,
                    Error::Negotiation(NegotiationError::Stalled { tensor, missing, .. })
                        if tensor == "lonely" && missing[..] == [1]
                ),
                "{:?}",
                failed.error
            );
        } else {
            std::thread::sleep(Duration::from_secs(6));
            let failed = context.allreduce("other", vec![1i32], ReduceOp::Sum);
            let error = match failed {
                Ok(handle) => handle.wait().expect_err("rank 0 has given up").error,
                Err(failed) => failed.error,
            };
            assert!(
                matches!(
                    error,
                    Error::Peer(
                        PeerError::Failed { rank: 0, .. } | PeerError::Lost { rank: 0, .. }
                    )
                ),
                "{error}"
            );
        }
        assert!(began.elapsed() < Duration::from_secs(6) + DEADLINE);
    }) else {
        return;
    };
    let outcomes = job.finish();
    assert!(
        outcomes[0].status.success() && outcomes[0].output.contains("lonely"),
        "{}",
        outcomes[0].output
    );
    assert!(outcomes[1].status.success(), "{}", outcomes[1].output);
}

/// The cycles of the other operations follow one another faster than the cycle time.
#[test]
fn the_stall_limit_holds_beside_operations_that_leave_no_time_between_cycles() {
    const TEST: &str =
        "survivors::the_stall_limit_holds_beside_operations_that_leave_no_time_between_cycles";
    let limits = [
        ("HOROVOD_STALL_CHECK_TIME_SECONDS", "1"),
        ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "2"),
        ("HOROVOD_CYCLE_TIME", "50"),
    ];
    job_with(TEST, 2, &limits, || {
        let context = context();
        let began = Instant::now();
        let lonely = (context.rank() == 0).then(|| {
            let lonely = context.allreduce("lonely", vec![1i32], ReduceOp::Sum);
            lonely.expect("in")
        });
        let error = loop {
            let sum = context.allreduce("busy", vec![1i32], ReduceOp::Sum);
            if let Err(failed) = sum.and_then(|handle| handle.wait()) {
                break failed.error;
            }
            assert!(began.elapsed() < DEADLINE, "no error");
        };
        match lonely {
            Some(lonely) => {
                let error = lonely.wait().expect_err("no peer").error;
                assert!(
                    matches!(&error, Error::Negotiation(NegotiationError::Stalled { tensor, .. }) if tensor == "lonely"),
                    "{error}"
                );
            }
            None => assert!(
                matches!(error, Error::Peer(PeerError::Failed { rank: 0, .. })),
                "{error}"
            ),
        }
    });
}

#[test]
fn hundreds_of_rounds_of_init_and_shutdown_leave_nothing_behind() {
    job(
        "survivors::hundreds_of_rounds_of_init_and_shutdown_leave_nothing_behind",
        2,
        || {
            let mut before = None;
            for round in 0..200 {
                let context = context();
                let sum = context
                    .allreduce("x", vec![round; 100], ReduceOp::Sum)
                    .expect("in")
                    .wait()
                    .expect("out");
                assert_eq!(sum, vec![2 * round; 100]);
                if round % 3 == 0 {
                    context.shutdown();
                } else {
                    drop(context);
                }
                let after = format!("after round {round}");
                before = Some(Holdings::no_more_than(before, &after));
            }
        },
    );
}

#[test]
fn a_forked_child_is_refused_and_does_no_harm() {
    job(
        "survivors::a_forked_child_is_refused_and_does_no_harm",
        2,
        || {
            let context = context();
            let pending = context
                .allreduce("before", vec![1.0f32; 1000], ReduceOp::Sum)
                .expect("in");
            // SAFETY: the child calls nothing that could block on a lock held by another thread:
            // the refusals under test come before any lock, and it ends with `_exit`.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let refused = context
                    .allreduce("child", vec![1.0f32], ReduceOp::Sum)
                    .is_err_and(|failed| matches!(failed.error, Error::Forked));
                drop(pending);
                drop(context);
                // SAFETY: ends the process at once, without the parent's exit handlers.
                unsafe { libc::_exit(if refused { 0 } else { 1 }) };
            }
            let mut status = 0;
            // SAFETY: waits for the child just forked; `status` is a valid location for its status.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0, "the child was refused and ended by itself");
            assert_eq!(pending.wait().expect("out"), [2.0; 1000]);
            assert_eq!(
                context
                    .allreduce("after", vec![1.0f32], ReduceOp::Sum)
                    .expect("in")
                    .wait()
                    .expect("out"),
                [2.0]
            );
        },
    );
}

#[test]
fn an_idle_job_uses_no_cpu() {
    job("survivors::an_idle_job_uses_no_cpu", 2, || {
        let context = context();
        for step in 0..50 {
            context
                .allreduce("x", vec![step], ReduceOp::Sum)
                .expect("in")
                .wait()
                .expect("out");
        }
        let ticks = || {
            let stat = std::fs::read_to_string("/proc/self/stat").expect("procfs");
            let fields: Vec<&str> = stat
                .rsplit(')')
                .next()
                .expect("a name in brackets")
                .split_whitespace()
                .collect();
            fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime")
        };
        // The least of three intervals: interrupts count for the thread that they meet.
        let used = (0..3).map(|_| {
            let before = ticks();
            std::thread::sleep(Duration::from_secs(2));
            ticks() - before // hundredths of a second
        });
        let used = used.min().expect("three");
        assert!(
            used <= 4,
            "an idle rank used {used} ticks in two seconds: something spins"
        );
        context.barrier().expect("all come");
    });
}

#[test]
fn a_thread_that_waits_is_told_when_another_shuts_the_context_down() {
    job(
        "survivors::a_thread_that_waits_is_told_when_another_shuts_the_context_down",
        2,
        || {
            let context = context();
            let handle = context
                .allreduce(
                    &format!("of rank {} alone", context.rank()),
                    vec![1.0f32],
                    ReduceOp::Sum,
                )
                .expect("in");
            let waiting = std::thread::spawn(move || handle.wait());
            std::thread::sleep(Duration::from_millis(300));
            let began = Instant::now();
            context.shutdown();
            let failed = waiting
                .join()
                .expect("no panic")
                .expect_err("nobody else submits it");
            assert!(
                failed.error.is_shut_down() || failed.error.is_peer_gone(),
                "{}",
                failed.error
            );
            assert_eq!(failed.buffer, [1.0]);
            assert!(began.elapsed() < DEADLINE);
        },
    );
}
