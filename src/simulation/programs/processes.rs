//! Random programs on real processes: one job for each number of ranks, which runs many programs
//! one after another, under several settings. The simulator runs the same programs.

use std::time::Duration;

use super::play::{Stage, play};
use super::{Naming, PROGRAMS, check, seeds, shared_program};
use crate::context::{Context, ProcessSet, RawHandle};
use crate::error::Error;
use crate::knobs::Knobs;
use support::job;

#[path = "../../../tests/support/processes.rs"]
mod support;

/// Settings of a job's contexts. Capacities of the cache are rounded up to 64.
const SETTINGS: [&[(&str, &str)]; 4] = [
    &[],
    &[
        ("HOROVOD_CACHE_CAPACITY", "0"),
        ("HOROVOD_FUSION_THRESHOLD", "1000"),
    ],
    &[
        ("HOROVOD_CACHE_CAPACITY", "1"),
        ("RONDE_CACHE_CAPACITY_MAX", "1"),
        ("RONDE_EARLY_CYCLE", "0"),
    ],
    &[
        ("HOROVOD_FUSION_THRESHOLD", "0"),
        ("HOROVOD_CYCLE_TIME", "0.1"),
    ],
];

/// Rank in a process.
struct ProcessStage {
    sets: Vec<ProcessSet>,
}

impl Stage for ProcessStage {
    fn set(&self, place: usize) -> &ProcessSet {
        &self.sets[place]
    }

    fn begin(&self, _step: usize, _action: usize) {}

    fn pause(&self, duration: Duration) {
        std::thread::sleep(duration);
    }

    fn wait(&self, _place: usize, handle: &RawHandle) -> Result<(), Error> {
        handle.wait()
    }
}

/// Runs programs on this rank and checks their outputs. The process sets of each program are added
/// for it and removed after it.
fn run_programs(ranks: usize) {
    for (batch, settings) in (0..).zip(SETTINGS) {
        let context = Context::builder()
            .knobs(Knobs::of(settings))
            .dynamic_process_sets();
        let context = context.build().expect("all ranks come");
        let count = PROGRAMS / SETTINGS.len() as u64;
        for seed in seeds(count * batch, count) {
            let program = shared_program(seed, ranks);
            let _naming = Naming(&program);
            let mut sets = vec![ProcessSet::clone(&context)];
            for ranks in &program.sets[1..] {
                sets.push(
                    context
                        .add_process_set(ranks)
                        .expect("all ranks ask for it"),
                );
            }
            let stage = ProcessStage { sets };
            let played = play(&program, context.rank(), &stage);
            check(&program, context.rank(), &played);
            for set in &stage.sets[1..] {
                context
                    .remove_process_set(set)
                    .expect("nothing is in flight");
            }
        }
    }
}

#[test]
fn programs_run_on_two_processes_as_in_sequence() {
    let name = "simulation::programs::processes::programs_run_on_two_processes_as_in_sequence";
    job(name, 2, || run_programs(2));
}

#[test]
fn programs_run_on_three_processes_as_in_sequence() {
    let name = "simulation::programs::processes::programs_run_on_three_processes_as_in_sequence";
    job(name, 3, || run_programs(3));
}

#[test]
fn programs_run_on_five_processes_as_in_sequence() {
    let name = "simulation::programs::processes::programs_run_on_five_processes_as_in_sequence";
    job(name, 5, || run_programs(5));
}
