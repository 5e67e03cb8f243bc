//! Random programs: operations of all kinds on tensors of all types in overlapping process sets,
//! including joins, drawn from a seed. They run in the simulator and on real processes, and have to
//! give the results of a sequential reference bit for bit.
//!
//! [`program`] draws them, [`reference`](self::reference) computes their results,
//! [`play`](self::play) is the program of a rank; [`simulated`] and [`processes`] run them.
//!
//! A failure names the seed; in the simulator, the seed reproduces the run.
//! `TEST_RONDE_PROGRAMS=20` runs 20 times as many programs.

use self::draw::Draw;
use self::play::{Outcome, Played};
use self::program::{Action, Deed, Program};
use self::reference::{Output, Refused, expected, last_to_join};
use self::simulated::{Death, run};
use self::work::{Task, Work};
use crate::collective::reference::canonical;
use crate::error::{Error, PeerError};
use crate::tensor::Dtype;

mod draw;
mod hostile;
mod play;
mod processes;
mod program;
mod reference;
mod simulated;
mod work;

/// Prints the program when a check fails.
struct Naming<'a>(&'a Program);

impl Drop for Naming<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("program of seed {} on {} ranks", self.0.seed, self.0.ranks);
        }
    }
}

/// Whether an operation gave the expected result. Which NaN a reduction of several gives is
/// unspecified.
fn is_right(work: &Work, got: &Result<Output, Error>, wanted: &Result<Output, Refused>) -> bool {
    match (got, wanted) {
        (Ok(got), Ok(wanted))
            if matches!(work.task, Task::Allreduce(_) | Task::Reducescatter(_)) =>
        {
            let canonical = |output: &Output| Output {
                bytes: canonical(&output.bytes, work.dtype),
                ..output.clone()
            };
            canonical(got) == canonical(wanted)
        }
        (Ok(got), Ok(wanted)) => got == wanted,
        (Err(error), Err(refused)) => refused.is(error),
        _ => false,
    }
}

/// Output of a rank that differs from the reference.
struct Deviation {
    step: usize,
    action: usize,
    tensor: usize,
    /// Error, if the output is one.
    error: Option<Error>,
}

/// Returns all outputs of `rank` that differ from the reference.
fn deviations(program: &Program, rank: usize, played: &Played) -> Vec<Deviation> {
    let mut deviations = Vec::new();
    for (step, actions) in program.steps.iter().enumerate() {
        for (index, action) in actions.iter().enumerate() {
            let outcome = &played[step][index];
            assert_eq!(
                outcome.is_some(),
                action.ranks.contains(&rank),
                "who takes part"
            );
            let Some(Outcome {
                outputs,
                last_joined,
            }) = outcome
            else {
                continue;
            };
            for (tensor, got) in outputs.iter().enumerate() {
                let is_right = match (&action.deed, got) {
                    (Deed::Tensors { tensors, .. }, got) => {
                        let wanted = expected(program, step, index, tensor, rank);
                        is_right(&tensors[tensor], got, &wanted)
                    }
                    (Deed::Join { over }, Ok(_)) => last_joined.is_some_and(|last| {
                        last_to_join(program, action.set, *over).contains(&last)
                    }),
                    (Deed::Barrier, Ok(_)) => true,
                    (_, Err(_)) => false,
                };
                if !is_right {
                    deviations.push(Deviation {
                        step,
                        action: index,
                        tensor,
                        error: got.as_ref().err().cloned(),
                    });
                }
            }
        }
    }
    deviations
}

/// Fails unless all outputs of `rank` equal the reference.
fn check(program: &Program, rank: usize, played: &Played) {
    if let Some(&Deviation { step, action, .. }) = deviations(program, rank, played).first() {
        let wanted: Vec<_> = (0..program.steps[step][action].deed.tensors().len())
            .map(|tensor| expected(program, step, action, tensor, rank))
            .collect();
        panic!(
            "rank {rank}, step {step}, action {action}: {:?} in set {:?}\n got {:?}\n for {wanted:?}",
            program.steps[step][action],
            program.sets[program.steps[step][action].set],
            played[step][action],
        );
    }
}

/// Runs `program` in the simulator, without deaths, and checks it.
fn check_simulated(program: &Program) {
    let _naming = Naming(program);
    let run = run(program, None);
    for (members, logs) in program.sets.iter().zip(&run.logs) {
        for log in logs {
            assert_eq!(
                log, &logs[0],
                "same batches in the same order, under the same settings, in {members:?}"
            );
        }
    }
    for (rank, played) in run.played.iter().enumerate() {
        check(program, rank, played.as_ref().expect("no rank dies"));
    }
    // All members received the same last rank.
    for (step, actions) in program.steps.iter().enumerate() {
        for (index, action) in actions.iter().enumerate() {
            let told = run
                .played
                .iter()
                .flatten()
                .filter_map(|played| played[step][index].as_ref());
            let mut told: Vec<_> = told.map(|outcome| outcome.last_joined).collect();
            told.dedup();
            assert_eq!(told.len(), 1, "{action:?}: who joined last: {told:?}");
        }
    }
}

/// Number of programs that run both in the simulator and on processes, for each number of ranks.
const PROGRAMS: u64 = 32;

/// Returns `count` seeds from `first` on; `TEST_RONDE_PROGRAMS` times as many, the others far from
/// these.
fn seeds(first: u64, count: u64) -> impl Iterator<Item = u64> {
    let times =
        std::env::var("TEST_RONDE_PROGRAMS").map_or(1, |times| times.parse().expect("a number"));
    (0..times).flat_map(move |time| {
        let first = (time << 32) + first;
        first..first + count
    })
}

/// Returns the program of a seed that runs both in the simulator and on processes: in one of four,
/// a rank submits a mismatch.
fn shared_program(seed: u64, ranks: usize) -> Program {
    let program = Program::new(seed, ranks);
    if seed % 4 == 3 {
        program.with_something_odd()
    } else {
        program
    }
}

#[test]
fn programs_run_in_the_simulator_as_in_sequence() {
    for seed in seeds(0, PROGRAMS) {
        (1..=6).for_each(|ranks| check_simulated(&shared_program(seed, ranks)));
    }
}

#[test]
fn who_joins_takes_part_in_what_it_submitted_before_though_only_some_have_it_cached() {
    // Rank 1 contributes other rows the second time, so it sends a request while rank 0 has the
    // tensor cached; one of them joins at once, and the other a step later.
    for (seed, early) in (0..40).flat_map(|seed| [(seed, 0), (seed, 1)]) {
        let gather = |rows: [usize; 2]| Action {
            set: 0,
            ranks: vec![0, 1],
            deed: Deed::Tensors {
                group: None,
                tensors: vec![Work {
                    name: "t".to_owned(),
                    dtype: Dtype::I64,
                    dims: vec![0],
                    task: Task::Allgather(rows.to_vec()),
                }],
            },
        };
        let join = |rank: usize| Action {
            set: 0,
            ranks: vec![rank],
            deed: Deed::Join { over: 2 },
        };
        check_simulated(&Program {
            seed,
            ranks: 2,
            sets: vec![vec![0, 1]],
            steps: vec![
                vec![gather([1, 1])],
                vec![gather([1, 2]), join(early)],
                vec![join(1 - early)],
            ],
            odd: None,
        });
    }
}

#[test]
fn a_mismatch_in_a_program_fails_its_tensor_on_all_members_and_nothing_else() {
    for seed in seeds(1000, 60) {
        let program = Program::new(seed, 2 + seed as usize % 5);
        check_simulated(&program.with_something_odd());
    }
}

/// Returns the ranks that share a set with operations with `rank`, or with a rank that does, and so
/// on.
fn connected(program: &Program, rank: usize) -> Vec<usize> {
    let mut connected = vec![rank];
    loop {
        let known = connected.len();
        for action in program.steps.iter().flatten() {
            let members = &program.sets[action.set];
            if members.iter().any(|member| connected.contains(member)) {
                connected.extend(members);
                connected.sort_unstable();
                connected.dedup();
            }
        }
        if connected.len() == known {
            return connected;
        }
    }
}

/// Runs a program in which a rank dies: the tensors that it did not submit fail on all ranks that
/// share them, and so do later tensors on each of those ranks; ranks without a connection to it,
/// also through others, do not notice.
fn check_death(program: &Program, death: Death) {
    let _naming = Naming(program);
    let run = run(program, Some(death));
    let victim = death.rank;
    assert!(
        run.played[victim].is_none(),
        "it dies before its last action"
    );
    let connected = connected(program, victim);
    for (rank, played) in run.played.iter().enumerate() {
        let Some(played) = played else { continue };
        if !connected.contains(&rank) {
            check(program, rank, played);
            continue;
        }
        let mut noticed = usize::MAX;
        for deviation in &deviations(program, rank, played) {
            let Deviation {
                step,
                action,
                error,
                ..
            } = deviation;
            let (step, action) = (*step, *action);
            // A join is waited for in a later step than its own.
            noticed = noticed.min(match program.steps[step][action].deed {
                Deed::Join { over } => over,
                _ => step,
            });
            let says_why = match error {
                Some(Error::Peer(PeerError::Lost { rank, .. })) => *rank == victim,
                Some(Error::Peer(PeerError::Left { rank: left })) => {
                    *left != rank && connected.contains(left)
                }
                _ => false,
            };
            assert!(
                says_why,
                "rank {rank}, step {step}, action {action}: {error:?}"
            );
        }
        for (step, actions) in program.steps.iter().enumerate() {
            for (index, action) in actions.iter().enumerate() {
                let Some(outcome) = &played[step][index] else {
                    continue;
                };
                let must_fail = step > noticed
                    || action.ranks.contains(&victim)
                        && !run.begun[victim].contains_key(&(step, index));
                let fails = outcome.outputs.iter().all(Result::is_err);
                assert!(
                    fails || !must_fail,
                    "rank {rank}, step {step}, {action:?}: {outcome:?}"
                );
            }
        }
    }
    for (members, logs) in program.sets.iter().zip(&run.logs) {
        let longest = logs
            .iter()
            .max_by_key(|log| log.batches.len())
            .expect("a member");
        for log in logs {
            let is_part = longest.batches.starts_with(&log.batches);
            assert!(
                is_part,
                "same batches in the same order in {members:?}: {log:?}, {longest:?}"
            );
        }
    }
}

#[test]
fn a_death_in_a_program_ends_all_that_needs_the_dead_and_nothing_else() {
    for seed in seeds(2000, 60) {
        let mut program = Program::new(seed, 2 + seed as usize % 6);
        if seed % 2 == 0 {
            program = program.without_traffic_among_all();
        }
        let program = program.with_barriers_at_the_end();
        let mut draw = Draw::new(seed);
        let rank = draw.below(program.ranks);
        let actions = program.steps.iter().flatten();
        let of_rank = actions
            .filter(|action| action.ranks.contains(&rank))
            .count();
        if of_rank > 0 {
            let at = 1 + draw.below(of_rank);
            check_death(&program, Death { rank, at });
        }
    }
}
