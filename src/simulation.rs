//! Whole jobs in the simulator: 2 to 64 ranks under a seed, with checkers watching (after TigerBeetle's VOPR).
//!
//! Every rank runs a program: the same tensors in each step, submitted in an order and at times of its own. The
//! checkers then compare the ranks' logs: the same batches in the same order, nothing lost, nothing twice, the
//! right sums, settings switched at the same cycle; and after a death, an error that names the dead rank for
//! every tensor that did not make it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;

use crate::clock::{Clock, Nanos};
use crate::collective::sim::SimCollective;
use crate::cycle::Cycle;
use crate::drive::Engine;
use crate::error::Error;
use crate::negotiation::{OpKind, Params};
use crate::observer::{CycleEnd, Executed, Observer};
use crate::queue::{Front, lock};
use crate::settings::Settings;
use crate::tensor::{Dtype, ReduceOp, Span};
use crate::transport::Transport;
use crate::transport::sim::{SimTransport, World};

/// What a job does; everything else is drawn from the seed.
#[derive(Clone, Debug)]
struct Job {
    ranks: usize,
    seed: u64,
    steps: usize,
    tensors: usize,
    cache_capacity: usize,
    threshold_bytes: u64,
    early: bool,
    /// Steps at whose beginning tensor 0 changes its shape on all ranks.
    reshape_every: usize,
    /// Rank 0 changes the settings after every so many cycles; 0 = never.
    retune_every: u64,
    /// A rank that dies when it comes to this many submissions.
    death: Option<(usize, usize)>,
    /// A rank that submits another shape than the others for one tensor in one step.
    mismatch: Option<(usize, usize)>,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            ranks: 4,
            seed: 1,
            steps: 6,
            tensors: 12,
            cache_capacity: 1024,
            threshold_bytes: 256,
            early: true,
            reshape_every: usize::MAX,
            retune_every: 0,
            death: None,
            mismatch: None,
        }
    }
}

/// What one rank saw.
#[derive(Clone, Debug, Default, PartialEq)]
struct Log {
    batches: Vec<Vec<String>>,
    /// Settings version in force in each cycle.
    versions: Vec<u64>,
}

struct Recorder {
    log: Arc<Mutex<Log>>,
    retune_every: u64,
    cycles: u64,
}

impl Observer for Recorder {
    fn executed(&mut self, batch: &Executed<'_>) {
        let names = batch
            .members
            .iter()
            .map(|member| member.tensor.name.to_string())
            .collect();
        lock(&self.log).batches.push(names);
    }

    fn cycle_ended(&mut self, cycle: &CycleEnd) -> Option<Settings> {
        lock(&self.log).versions.push(cycle.settings.version);
        self.cycles += 1;
        let retune = self.retune_every > 0 && self.cycles.is_multiple_of(self.retune_every);
        retune.then(|| Settings {
            fusion_threshold_bytes: 64 * self.cycles,
            ..cycle.settings
        })
    }
}

struct Outcome {
    log: Log,
    /// For each step and tensor: the sum, or the error.
    results: Vec<Vec<Result<Vec<i64>, Error>>>,
}

fn elements(job: &Job, step: usize, tensor: usize) -> usize {
    let reshaped = tensor == 0 && step.is_multiple_of(job.reshape_every) && step > 0;
    1 + tensor % 7 + usize::from(reshaped)
}

fn contribution(rank: usize, step: usize, tensor: usize, elements: usize) -> Vec<i64> {
    (0..elements)
        .map(|index| (1000 * rank + 100 * step + 10 * tensor + index) as i64)
        .collect()
}

fn run_rank(job: &Job, world: &Arc<World>, rank: usize) -> Outcome {
    world.arrive(rank);
    let log = Arc::new(Mutex::new(Log::default()));
    let transport = SimTransport::new(world, rank);
    let clock: Arc<dyn Clock> = Arc::<World>::clone(world);
    let front = Arc::new(Front::new(rank, job.early, transport.doorbell(), clock));
    let retune_every = if rank == 0 { job.retune_every } else { 0 };
    let observer = Recorder {
        log: Arc::clone(&log),
        retune_every,
        cycles: 0,
    };
    let settings = Settings {
        fusion_threshold_bytes: job.threshold_bytes,
        ..Settings::default()
    };
    let cycle = Cycle::new(
        Box::new(transport),
        Box::new(SimCollective::new(world, rank)),
        Box::new(observer),
        Arc::clone(&front),
        job.cache_capacity,
        settings,
        job.early,
    );
    let engine = Engine {
        front,
        cycle: Mutex::new(cycle),
        rank,
    };
    let mut submitted = 0;
    let mut results = Vec::new();
    for step in 0..job.steps {
        let mut order: Vec<usize> = (0..job.tensors).collect();
        for index in (1..order.len()).rev() {
            if world.draw(4) == 0 {
                order.swap(index, world.draw(index as u64 + 1) as usize);
            }
        }
        let mut buffers: Vec<Vec<i64>> = (0..job.tensors)
            .map(|tensor| {
                let odd = job.mismatch == Some((rank, step)) && tensor == 1;
                contribution(rank, step, tensor, elements(job, step, tensor) + usize::from(odd))
            })
            .collect();
        let mut tickets: Vec<_> = (0..job.tensors).map(|_| Err(Error::ShutDown)).collect();
        for tensor in order {
            submitted += 1;
            if job.death == Some((rank, submitted)) {
                world.kill(rank);
            }
            let pause = Duration::from_micros(world.draw(800));
            let until = world.now() + pause;
            engine.drive_until(&mut lock(&engine.cycle), &|| world.now() >= until, Some(until));
            let buffer = &mut buffers[tensor];
            let params = Params {
                kind: OpKind::Allreduce,
                dtype: Dtype::I64,
                shape: [buffer.len()].into_iter().collect(),
                op: ReduceOp::Sum,
                prescale: 1.0,
                postscale: 1.0,
                root: 0,
                device: None,
            };
            let address = buffer.as_mut_ptr().cast::<u8>();
            // SAFETY: the buffer is neither moved nor touched until its ticket is complete, below.
            let span = unsafe { Span::new(address, address, size_of_val(&buffer[..])) };
            tickets[tensor] = engine
                .front
                .submit(&format!("t{tensor}"), params, None, Some(span));
        }
        let outcomes: Vec<Result<(), Error>> = tickets
            .into_iter()
            .map(|ticket| {
                let ticket = ticket?;
                engine.wait(&ticket, None);
                ticket.outcome().unwrap_or(Err(Error::ShutDown))
            })
            .collect();
        results.push(
            outcomes
                .into_iter()
                .zip(buffers)
                .map(|(outcome, buffer)| outcome.map(|()| buffer))
                .collect(),
        );
    }
    engine.shut_down();
    world.depart(rank);
    let log = lock(&log).clone();
    Outcome { log, results }
}

fn run(job: &Job) -> Vec<Outcome> {
    let world = World::new(job.ranks, job.seed);
    std::thread::scope(|threads| {
        let ranks: Vec<_> = (0..job.ranks)
            .map(|rank| {
                let world = &world;
                threads.spawn(move || run_rank(job, world, rank))
            })
            .collect();
        ranks
            .into_iter()
            .map(|rank| {
                rank.join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    })
}

fn check_same_logs(outcomes: &[Outcome]) {
    for outcome in outcomes {
        assert_eq!(
            outcome.log.batches, outcomes[0].log.batches,
            "same batches in the same order on every rank"
        );
        assert_eq!(
            outcome.log.versions, outcomes[0].log.versions,
            "settings switch at the same cycle"
        );
    }
}

fn check_sums(job: &Job, outcomes: &[Outcome]) {
    for step in 0..job.steps {
        for tensor in 0..job.tensors {
            let elements = elements(job, step, tensor);
            let mut expected = vec![0; elements];
            for rank in 0..job.ranks {
                let contribution = contribution(rank, step, tensor, elements);
                expected
                    .iter_mut()
                    .zip(contribution)
                    .for_each(|(sum, value)| *sum += value);
            }
            for outcome in outcomes {
                let got = outcome.results[step][tensor].as_ref();
                assert_eq!(got.ok(), Some(&expected), "step {step}, tensor {tensor}: {got:?}");
            }
        }
    }
    let executed: usize = outcomes[0].log.batches.iter().map(Vec::len).sum();
    assert_eq!(executed, job.steps * job.tensors, "nothing lost, nothing twice");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 200, ..ProptestConfig::default() })]
    #[test]
    fn all_ranks_do_the_same_and_the_sums_are_right(
        (ranks, seed, tensors) in (2usize..9, any::<u64>(), 1usize..20),
        cache_capacity in prop_oneof![Just(0usize), Just(3), Just(1024)],
        threshold_bytes in prop_oneof![Just(0u64), Just(100), Just(1 << 20)],
        (early, reshape_every, retune_every) in (any::<bool>(), 1usize..5, 0u64..5),
    ) {
        let job = Job {
            ranks, seed, tensors, cache_capacity, threshold_bytes, early, reshape_every, retune_every,
            ..Job::default()
        };
        let outcomes = run(&job);
        check_same_logs(&outcomes);
        check_sums(&job, &outcomes);
    }

    #[test]
    fn after_a_death_every_survivor_is_told_who_died(
        (ranks, seed) in (2usize..9, any::<u64>()),
        (victim, moment) in (0usize..8, 1usize..60),
        cache_capacity in prop_oneof![Just(0usize), Just(3), Just(1024)],
    ) {
        let victim = victim % ranks;
        let job = Job { ranks, seed, cache_capacity, death: Some((victim, moment)), ..Job::default() };
        let outcomes = run(&job);
        let survivors = outcomes.iter().enumerate().filter(|(rank, _)| *rank != victim);
        for (rank, outcome) in survivors {
            let failed: Vec<&Error> = outcome.results.iter().flatten().filter_map(|r| r.as_ref().err()).collect();
            prop_assert!(!failed.is_empty(), "rank {} noticed nothing", rank);
            for error in failed {
                // A survivor may learn of the death from another survivor's leaving.
                let told = matches!(error, Error::PeerLost { rank, .. } if *rank == victim)
                    || matches!(error, Error::PeerLeft { .. });
                prop_assert!(told, "rank {} got {:?}", rank, error);
            }
            let shorter = outcome.log.batches.len().min(outcomes[victim].log.batches.len());
            prop_assert_eq!(&outcome.log.batches[..shorter], &outcomes[victim].log.batches[..shorter]);
        }
    }

    #[test]
    fn a_mismatch_fails_that_tensor_on_every_rank_and_nothing_else(
        (ranks, seed) in (2usize..9, any::<u64>()),
        (culprit, step) in (0usize..8, 0usize..6),
        cache_capacity in prop_oneof![Just(0usize), Just(3), Just(1024)],
    ) {
        let culprit = culprit % ranks;
        let job = Job { ranks, seed, cache_capacity, mismatch: Some((culprit, step)), ..Job::default() };
        let outcomes = run(&job);
        check_same_logs(&outcomes);
        for outcome in &outcomes {
            for (at, results) in outcome.results.iter().enumerate() {
                for (tensor, result) in results.iter().enumerate() {
                    prop_assert_eq!(result.is_err(), at == step && tensor == 1, "step {}: {:?}", at, result);
                    if let Err(error) = result {
                        prop_assert!(error.is_mismatch(), "{}", error);
                        prop_assert!(error.to_string().contains(&format!("rank {culprit} has")), "{}", error);
                    }
                }
            }
        }
    }
}

#[test]
fn sixty_four_ranks() {
    let job = Job {
        ranks: 64,
        steps: 3,
        tensors: 8,
        retune_every: 2,
        ..Job::default()
    };
    let outcomes = run(&job);
    check_same_logs(&outcomes);
    check_sums(&job, &outcomes);
    assert!(
        outcomes[0].log.versions.last() > Some(&0),
        "settings have been switched"
    );
}

#[test]
fn one_seed_gives_one_run() {
    let job = Job {
        seed: 42,
        retune_every: 3,
        reshape_every: 2,
        ..Job::default()
    };
    assert_eq!(run(&job)[1].log, run(&job)[1].log);
}

#[test]
fn ranks_that_wait_for_different_tensors_are_not_served_by_cycles_for_ever() {
    // Rank 0 waits for `a`, rank 1 for `b`: after both are known no cycle runs any more, however long they wait.
    let world = World::new(2, 7);
    let cycles: Vec<usize> = std::thread::scope(|threads| {
        let ranks = ["a", "b"].into_iter().enumerate().map(|(rank, name)| {
            let world = &world;
            threads.spawn(move || wait_in_vain(world, rank, name))
        });
        let ranks: Vec<_> = ranks.collect();
        ranks
            .into_iter()
            .map(|rank| rank.join().unwrap_or(usize::MAX))
            .collect()
    });
    assert!(
        cycles.iter().all(|&cycles| (1..=2).contains(&cycles)),
        "{cycles:?}"
    );
}

fn wait_in_vain(world: &Arc<World>, rank: usize, name: &str) -> usize {
    world.arrive(rank);
    let log = Arc::new(Mutex::new(Log::default()));
    let transport = SimTransport::new(world, rank);
    let clock: Arc<dyn Clock> = Arc::<World>::clone(world);
    let front = Arc::new(Front::new(rank, true, transport.doorbell(), clock));
    let observer = Recorder {
        log: Arc::clone(&log),
        retune_every: 0,
        cycles: 0,
    };
    let collective = SimCollective::new(world, rank);
    let (transport, collective) = (Box::new(transport), Box::new(collective));
    let cycle = Cycle::new(
        transport,
        collective,
        Box::new(observer),
        Arc::clone(&front),
        8,
        Settings::default(),
        true,
    );
    let engine = Engine {
        front,
        cycle: Mutex::new(cycle),
        rank,
    };
    let params = Params {
        kind: OpKind::Barrier,
        dtype: Dtype::F32,
        shape: Default::default(),
        op: ReduceOp::Sum,
        prescale: 1.0,
        postscale: 1.0,
        root: 0,
        device: None,
    };
    let ticket = engine
        .front
        .submit(name, params, None, None)
        .expect("a fresh front takes a barrier");
    let hour = world.now() + Duration::from_secs(3600);
    assert!(!engine.wait(&ticket, Some(Nanos(hour.0))));
    world.depart(rank);
    lock(&log).versions.len()
}
