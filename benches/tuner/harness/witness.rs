//! Rank 0's view of a job: its steps in detail, with errors.
//!
//! Each kind of cost has an error factor that is drawn once per run: the traces are those of a job
//! whose constants differ by that factor, while the tuner's step times come from the true one. A
//! model of the traces is therefore wrong by that much, however many steps it uses. In addition,
//! every event has some noise, and each step is as much longer or shorter as the true one.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, StandardNormal};
use ronde_job::fusion::Item;
use ronde_job::replay::{
    Collective, JobTopology, Trace, TracedBatch, TracedCycle, TracedStep, TracedTensor,
};

use super::truth::{Draws, Foreign, Setting, Simulation, Watch};

/// Standard deviation of an event's error, as a share.
const EVENT_NOISE: f64 = 0.05;
/// Standard deviation of the factors on ready times and on the forward pass.
const COMPUTE_ERROR: f64 = 0.03;
/// Least error of guesses (costs inside a host, costs of hierarchy): a factor of three.
const GUESS_ERROR: f64 = 2.0;
/// Steps kept for each setting.
const STEPS_MOST: usize = 10;

/// Errors of a run's traces: a factor for each kind of cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Errors {
    latency: f64,
    per_byte: f64,
    negotiation: f64,
    copy_per_tensor: f64,
    copy_per_byte: f64,
    ready: f64,
    forward: f64,
    /// Factors on guesses: latency and bytes inside a host, hierarchy.
    guesses: [f64; 3],
    seed: u64,
}

impl Errors {
    /// Draws factors between 1 / (1 + `error`) and 1 + `error`, evenly in the logarithm.
    pub(crate) fn draw(error: f64, seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut factor = |error: f64| (error.ln_1p() * (2.0 * rng.random::<f64>() - 1.0)).exp();
        let [
            latency,
            per_byte,
            negotiation,
            copy_per_tensor,
            copy_per_byte,
        ] = [(); 5].map(|()| factor(error));
        let guesses = [(); 3].map(|()| factor(error.max(GUESS_ERROR)));
        let mut compute = || {
            let z: f64 = StandardNormal.sample(&mut rng);
            1.0 + COMPUTE_ERROR * z
        };
        Self {
            latency,
            per_byte,
            negotiation,
            copy_per_tensor,
            copy_per_byte,
            ready: compute(),
            forward: compute(),
            guesses,
            seed: rng.random(),
        }
    }

    /// Returns the job with these errors.
    fn mirror(&self, job: &Simulation) -> Simulation {
        let mut mirror = job.clone();
        let network = &mut mirror.network;
        network.alpha_us *= self.latency;
        network.inner_alpha_us *= self.latency;
        network.launch_us *= self.latency;
        network.hierarchical_us *= self.latency;
        network.us_per_byte *= self.per_byte;
        network.inner_us_per_byte *= self.per_byte;
        network.control_us *= self.negotiation;
        network.cached_us_per_tensor *= self.negotiation;
        network.uncached_us_per_tensor *= self.negotiation;
        network.uncached_us_per_rank *= self.negotiation;
        network.copy_us_per_tensor *= self.copy_per_tensor;
        network.copy_us_per_byte *= self.copy_per_byte;
        let model = &mut mirror.model;
        model
            .ready_us
            .iter_mut()
            .for_each(|ready| *ready *= self.ready);
        model.forward_us *= self.forward;
        mirror
    }
}

/// Traces a job.
#[derive(Debug)]
pub(crate) struct Witness {
    /// The job with errors; `None` for a foreign job, whose own events are traced.
    mirror: Option<Simulation>,
    bytes: Vec<u64>,
    place: JobTopology,
    rng: Xoshiro256PlusPlus,
    traces: Vec<Trace>,
    ready: Vec<f64>,
}

impl Witness {
    /// Makes the traces of `job`.
    pub(crate) fn new(job: &Simulation, errors: Errors) -> Self {
        let network = &job.network;
        let place = JobTopology {
            local: Collective {
                alpha_us: network.inner_alpha_us * errors.guesses[0],
                us_per_byte: network.inner_us_per_byte * errors.guesses[1],
            },
            hierarchical_us: network.hierarchical_us * errors.guesses[2],
            ..JobTopology::new(network.ranks as u32, network.ranks_per_host as u32)
        };
        Self {
            mirror: Some(errors.mirror(job)),
            bytes: job.model.bytes.clone(),
            ..Self::at(place, errors)
        }
    }

    /// Makes the traces of a foreign job: its own events, whose durations are measured exactly.
    /// Only the costs inside a host are guessed.
    pub(crate) fn of_foreign(job: &Foreign, errors: Errors) -> Self {
        let (alpha_us, us_per_byte) = job.inner();
        let place = JobTopology {
            local: Collective {
                alpha_us: alpha_us * errors.guesses[0],
                us_per_byte: us_per_byte * errors.guesses[1],
            },
            ..JobTopology::new(job.ranks, job.ranks_per_host)
        };
        Self {
            bytes: job.bytes.clone(),
            ..Self::at(place, errors)
        }
    }

    fn at(place: JobTopology, errors: Errors) -> Self {
        Self {
            mirror: None,
            bytes: Vec::new(),
            place,
            rng: Xoshiro256PlusPlus::seed_from_u64(errors.seed),
            traces: Vec::new(),
            ready: Vec::new(),
        }
    }

    /// Traces a step for which `draws` were drawn, and which took `factor` times its expected time.
    pub(crate) fn step(&mut self, setting: &Setting, draws: &Draws, factor: f64) {
        let Some(index) = self.open(setting) else {
            return;
        };
        let Some(mirror) = &self.mirror else {
            return;
        };
        let mut notes = Notes {
            bytes: &self.bytes,
            noise: Some(&mut self.rng),
            step: TracedStep::default(),
        };
        let step_us = mirror.step_us(setting, draws, &mut self.ready, &mut notes);
        let mut step = notes.step;
        step.step_us = step_us;
        stretch(&mut step, factor);
        self.traces[index].steps.push(step);
    }

    /// Traces the step that `step` takes, and which in the end takes `factor` times as long.
    pub(crate) fn watch(
        &mut self,
        setting: &Setting,
        factor: f64,
        step: impl FnOnce(&mut Notes<'_>) -> f64,
    ) -> f64 {
        let index = self.open(setting);
        let mut notes = Notes {
            bytes: &self.bytes,
            noise: None,
            step: TracedStep::default(),
        };
        let step_us = step(&mut notes);
        if let Some(index) = index {
            let mut step = notes.step;
            step.step_us = step_us;
            stretch(&mut step, factor);
            self.traces[index].steps.push(step);
        }
        step_us
    }

    /// Returns the index of the trace of `setting`; `None` if it has enough steps.
    fn open(&mut self, setting: &Setting) -> Option<usize> {
        let seen = setting.replay();
        let index = self.traces.iter().position(|trace| trace.setting == seen);
        let index = index.unwrap_or_else(|| {
            self.traces.push(Trace {
                setting: seen,
                operations: Vec::new(),
                steps: Vec::new(),
            });
            self.traces.len() - 1
        });
        (self.traces[index].steps.len() < STEPS_MOST).then_some(index)
    }

    /// Returns the hosts of the ranks, and the guessed costs between the ranks of a host.
    pub(crate) fn place(&self) -> JobTopology {
        self.place
    }

    /// Begins again without traces.
    pub(crate) fn forget(&mut self) {
        self.traces.clear();
    }

    /// Returns the traces.
    pub(crate) fn traces(&self) -> &[Trace] {
        &self.traces
    }
}

fn stretch(step: &mut TracedStep, factor: f64) {
    step.step_us *= factor;
    for tensor in &mut step.tensors {
        tensor.pending_us *= factor;
        tensor.ready_us *= factor;
    }
    for cycle in &mut step.cycles {
        cycle.began_us *= factor;
        cycle.negotiate_us *= factor;
        cycle.moving_us *= factor;
        for batch in &mut cycle.batches {
            batch.collective_us *= factor;
            batch.copy_us *= factor;
        }
    }
}

/// Recorder of the events of a step.
pub(crate) struct Notes<'a> {
    bytes: &'a [u64],
    /// Generator of the noise of events, if they have any.
    noise: Option<&'a mut Xoshiro256PlusPlus>,
    step: TracedStep,
}

impl Watch for Notes<'_> {
    fn takes(&mut self, us: f64) -> f64 {
        let Some(rng) = &mut self.noise else {
            return us;
        };
        let z: f64 = StandardNormal.sample(*rng);
        us * (1.0 + EVENT_NOISE * z).max(0.5)
    }

    fn tensor(&mut self, index: usize, pending_us: f64, ready_us: f64) {
        self.step.tensors.push(TracedTensor {
            key: index as u64,
            item: Item {
                class: 0,
                bytes: self.bytes[index],
                group: None,
            },
            pending_us,
            ready_us,
        });
    }

    fn cycle(&mut self, began_us: f64, negotiate_us: f64, tensors: usize, cached: bool) {
        let tensors = tensors as u32;
        self.step.cycles.push(TracedCycle {
            began_us,
            negotiate_us,
            tensors,
            cached: if cached { tensors } else { 0 },
            moving_us: 0.0,
            batches: Vec::new(),
        });
    }

    fn batch(&mut self, batch: TracedBatch) {
        if let Some(cycle) = self.step.cycles.last_mut() {
            cycle.batches.push(batch);
        }
    }

    fn moved(&mut self, moving_us: f64) {
        if let Some(cycle) = self.step.cycles.last_mut() {
            cycle.moving_us = moving_us;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::job::Job;
    use crate::harness::truth::{Truth, surfaces};

    fn trace(surface: usize, errors: Errors, setting: Setting) -> Trace {
        let surfaces = surfaces(Truth::Lab, 1.0, Some(0.0)).unwrap();
        let mut job = Job::new(&surfaces[surface], 9, Some(errors));
        job.run_us(&setting, 30);
        assert_eq!(job.traces().len(), 1);
        job.traces()[0].clone()
    }

    /// No errors except for the noise of events.
    fn right() -> Errors {
        Errors {
            ready: 1.0,
            forward: 1.0,
            ..Errors::draw(0.0, 3)
        }
    }

    #[test]
    fn a_trace_adds_up() {
        let trace = trace(5, right(), Setting::OLD); // vgg16/g25 16x1: no overlap
        assert_eq!(trace.steps.len(), STEPS_MOST);
        for step in &trace.steps {
            assert_eq!(step.tensors.len(), 32);
            assert!(
                step.tensors
                    .iter()
                    .all(|tensor| tensor.pending_us <= tensor.ready_us)
            );
            assert!(step.tensors.is_sorted_by_key(|tensor| tensor.ready_us));
            let mut bytes = 0;
            let mut free = 0.0;
            for cycle in &step.cycles {
                assert!(cycle.began_us >= free - 1e-6);
                free = cycle.began_us + cycle.negotiate_us + cycle.moving_us;
                let sum: f64 = cycle
                    .batches
                    .iter()
                    .map(|b| b.collective_us + b.copy_us)
                    .sum();
                assert!((sum - cycle.moving_us).abs() < 1e-6);
                let tensors: u32 = cycle.batches.iter().map(|batch| batch.tensors).sum();
                assert_eq!((tensors, tensors), (cycle.tensors, cycle.cached));
                bytes += cycle.batches.iter().map(|batch| batch.bytes).sum::<u64>();
            }
            assert_eq!(bytes, 4 * 138_357_544);
            assert!((step.step_us - free).abs() < 1e-6);
        }
    }

    #[test]
    fn copies_that_overlap_are_shorter_than_their_parts() {
        let setting = Setting::of(2.0, 10.0);
        let trace = trace(0, right(), setting); // resnet50/nv
        let of = |value: fn(&TracedCycle) -> f64| -> f64 {
            trace
                .steps
                .iter()
                .flat_map(|step| &step.cycles)
                .map(value)
                .sum()
        };
        let parts = of(|cycle| {
            cycle
                .batches
                .iter()
                .map(|b| b.collective_us + b.copy_us)
                .sum()
        });
        assert!(of(|cycle| cycle.moving_us) < 0.99 * parts);
    }

    #[test]
    fn costs_are_seen_through_one_factor_per_run() {
        let seen = Errors {
            latency: 1.0,
            per_byte: 2.0,
            ..right()
        };
        let largest_us = |errors| {
            let trace = trace(5, errors, Setting::OLD);
            let batches = trace
                .steps
                .iter()
                .flat_map(|step| &step.cycles)
                .flat_map(|cycle| &cycle.batches);
            let mut all: Vec<f64> = batches
                .filter(|b| b.bytes > 400_000_000)
                .map(|b| b.collective_us)
                .collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let ratio = largest_us(seen) / largest_us(right());
        assert!((ratio - 2.0).abs() < 0.1, "{ratio}");
        let spread: Vec<f64> = (0..200)
            .map(|seed| Errors::draw(2.0, seed).per_byte.ln())
            .collect();
        let limit = 3f64.ln();
        assert!(spread.iter().all(|log| log.abs() <= limit));
        assert!(
            spread.iter().any(|log| *log > 0.8 * limit)
                && spread.iter().any(|log| *log < -0.8 * limit)
        );
    }
}
