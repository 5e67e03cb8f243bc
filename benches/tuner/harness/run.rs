//! Runs of tuners on surfaces, several in parallel, each with its own seed.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::job::Job;
use super::outcome::Outcome;
use super::truth::Surface;
use super::tuners::Tuner;
use super::witness::Errors;

/// Parameters of all runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) truth: &'a str,
    pub(crate) surfaces: &'a [&'a Surface],
    /// Runs on each surface, and the number of the first.
    pub(crate) seeds: u64,
    pub(crate) first_seed: u64,
    /// Error of rank 0's view of the costs.
    pub(crate) error: f64,
    pub(crate) threads: usize,
}

/// Returns a run's seed: equal runs have equal seeds, neighbouring ones unrelated seeds.
pub(crate) fn seed(surface: &str, seed: u64) -> u64 {
    let name = surface
        .bytes()
        .fold(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    name ^ (name >> 29)
}

/// Calls `work` for every number below `count` on this many threads; returns the results in order.
pub(crate) fn parallel<T: Send>(
    count: usize,
    threads: usize,
    work: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return done;
            }
            done.push((index, work(index)));
        }
    };
    let mut all: Vec<(usize, T)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(take)).collect();
        threads
            .into_iter()
            .flat_map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    });
    all.sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, result)| result).collect()
}

/// Does one run.
pub(crate) fn one(plan: &Plan<'_>, tuner: &dyn Tuner, surface: &Surface, number: u64) -> Outcome {
    let seed = seed(&surface.name, number);
    let errors = tuner
        .wants_traces()
        .then(|| Errors::draw(plan.error, !seed));
    let mut job = Job::new(surface, seed, errors);
    let setting = tuner.tune(&mut job, seed.rotate_left(17));
    Outcome::new(&tuner.name(), plan.truth, number, &mut job, &setting)
}

/// Does all runs of a tuner.
pub(crate) fn all(plan: &Plan<'_>, tuner: &dyn Tuner) -> Vec<Outcome> {
    let seeds = plan.seeds as usize;
    parallel(plan.surfaces.len() * seeds, plan.threads, |index| {
        let (surface, number) = (
            plan.surfaces[index / seeds],
            plan.first_seed + (index % seeds) as u64,
        );
        one(plan, tuner, surface, number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::table::hash;
    use crate::harness::truth::{Truth, surfaces};
    use crate::harness::tuners::Random;

    #[test]
    fn work_is_shared_and_comes_back_in_order() {
        assert_eq!(
            parallel(100, 3, |index| index * index),
            (0..100).map(|i| i * i).collect::<Vec<_>>()
        );
        assert!(parallel(0, 2, |index| index).is_empty());
    }

    #[test]
    fn equal_seeds_give_equal_results_on_any_number_of_threads() {
        let surfaces = surfaces(Truth::Lab, 1.0, None).unwrap();
        let chosen = [&surfaces[4], &surfaces[6]];
        let plan = |threads| Plan {
            truth: "lab",
            surfaces: &chosen,
            seeds: 2,
            first_seed: 0,
            error: 0.3,
            threads,
        };
        let outcomes = all(&plan(1), &Random);
        assert_eq!(outcomes.len(), 4);
        assert_eq!(hash(&outcomes), hash(&all(&plan(2), &Random)));
        assert_ne!(outcomes[0].end, outcomes[1].end);
    }
}
