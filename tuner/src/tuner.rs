//! Ask and tell: which setting to measure next, which is best so far, and when to stop.
//!
//! The start setting is measured first and stays a candidate for ever. A few scrambled-Sobol settings follow, then the lattice
//! point of the largest expected improvement on the incumbent, which is the *measured* setting of the lowest posterior mean:
//! never the one with the luckiest sample. The search stops when the largest expected improvement is below 0.5 % twice running,
//! or at the cap on samples. Asking twice of the same observations gives the same answer; nothing here knows the time.
//!
//! ```
//! use ronde_tuner::{Next, Parameter, Space, Tuner, TunerConfig};
//! let space = Space::new(vec![Parameter::linear("x", 0.0, 1.0, 41)])?;
//! let start = space.point(&[0.0])?;
//! let mut tuner = Tuner::new(space, TunerConfig::default(), start)?;
//! let mut point = start;
//! let best = loop {
//!     let x = point.value(0);
//!     let step_ms = 100.0 * (1.0 + (x - 0.7) * (x - 0.7)); // measure
//!     tuner.observe(point, &[step_ms.ln(); 10]);
//!     let proposal = tuner.ask();
//!     match proposal.next {
//!         Next::Sample(next) => point = next,
//!         Next::Stop => break proposal.incumbent,
//!     }
//! };
//! assert!((best.value(0) - 0.7).abs() < 0.15);
//! # Ok::<(), ronde_tuner::Error>(())
//! ```

use std::sync::Arc;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use crate::center::{center_variance, huber_center, step_noise};
use crate::gp::Observations;
use crate::kernel::Kernel;
use crate::parameter::Scale;
use crate::recall::Recalled;
use crate::space::{Coordinates, Point, Space};
use crate::surrogate::Surrogate;
use crate::{Error, Warning};

/// Variance c₀² of the level of the whole surface about the start setting, in squared log step time: 0.2².
const LEVEL_VARIANCE: f64 = 0.04;
/// Settings tried before the surrogate chooses.
const DESIGN_POINTS: usize = 3;
/// Sobol indices looked at for a design point that was not tried yet.
const DESIGN_TRIES: u32 = 64;
/// An expected improvement below this, in log step time, is not worth a sample.
pub(crate) const IMPROVEMENT_MIN: f64 = 0.005;
/// Proposals in a row below that before the search stops.
const PATIENCE: u32 = 2;
/// Settings predicted to be slower than the incumbent by more than this factor are not tried.
const SLOWDOWN_MAX: f64 = 3.0;
/// How bad an observation counts, in log step time above the best: beyond a cliff only its place matters, and its height would
/// teach the surrogate a signal that the rest of the surface does not have.
const BADNESS_MAX: f64 = 1.0;

/// What the tuner is told once.
#[derive(Clone, Debug, PartialEq)]
pub struct TunerConfig {
    /// Seed of every draw. Default 7.
    pub seed: u64,
    /// Most settings that are sampled, the start setting among them; ≥ 1. Default 24.
    pub max_samples: u32,
    /// Standard deviation of a sample's value, as a fraction of it, > 0; `None` (the default) estimates it from the steps.
    pub fixed_noise: Option<f64>,
}

impl Default for TunerConfig {
    fn default() -> Self {
        Self {
            seed: 7,
            max_samples: 24,
            fixed_noise: None,
        }
    }
}

/// What was measured at one setting: the natural logarithm of each step time.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The setting.
    pub point: Point,
    /// ln(step time in ms), in the order of the steps; visits are appended to one another.
    pub log_times: Vec<f64>,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    /// Measure this setting.
    Sample(Point),
    /// Another sample is not worth its cost, or the cap is reached: take the incumbent.
    Stop,
}

/// The answer to an ask.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// What to do next.
    pub next: Next,
    /// The measured setting with the lowest posterior mean.
    pub incumbent: Point,
    /// How much lower the incumbent's posterior mean is than the start setting's, in log step time.
    pub incumbent_gain: f64,
    /// Predicted log step time of the next setting (of the incumbent, when stopping) and its standard deviation.
    pub prediction: (f64, f64),
    /// The largest expected improvement on the lattice, in log step time; infinite while the first settings are laid out.
    pub improvement: f64,
    /// What went wrong inside and was survived.
    pub warnings: Vec<Warning>,
    /// Which ask this answers; an answer to an older one is ignored.
    pub(crate) ask: u32,
}

/// What does not change during a search, shared with the jobs.
#[derive(Clone, Debug)]
struct Lattice {
    space: Space,
    kernel: Kernel,
    points: Vec<Point>,
    coordinates: Vec<Coordinates>,
}

/// The optimizer's state. Clones are cheap enough to hand one to another thread for each ask.
#[derive(Clone, Debug)]
pub struct Tuner {
    lattice: Arc<Lattice>,
    config: TunerConfig,
    start: Point,
    samples: Vec<Sample>,
    /// What is remembered of other runs, relative to the start setting.
    recalled: Vec<Recalled>,
    asks: u32,
    /// Proposals in a row whose improvement was too small.
    small_improvements: u32,
}

impl Tuner {
    /// A search of `space` that starts at `start`, the setting in force.
    ///
    /// # Errors
    /// A start point that is not one of the space, or a configuration out of range.
    pub fn new(space: Space, config: TunerConfig, start: Point) -> Result<Self, Error> {
        let start = space.point(start.values())?;
        let space = space.settled(&start);
        if config.max_samples == 0 {
            return Err(Error::Config {
                field: "max_samples",
                value: 0.0,
                expected: ">= 1",
            });
        }
        if let Some(noise) = config.fixed_noise
            && !(noise > 0.0 && noise.is_finite())
        {
            return Err(Error::Config {
                field: "fixed_noise",
                value: noise,
                expected: "> 0 and finite",
            });
        }
        let points = space.lattice(&start);
        let coordinates = points.iter().map(|point| space.coordinates(point)).collect();
        let kernel = Kernel::new(&space, LEVEL_VARIANCE);
        let lattice = Arc::new(Lattice {
            space,
            kernel,
            points,
            coordinates,
        });
        Ok(Self {
            lattice,
            config,
            start,
            samples: Vec::new(),
            recalled: Vec::new(),
            asks: 0,
            small_improvements: 0,
        })
    }

    /// The space.
    pub fn space(&self) -> &Space {
        &self.lattice.space
    }

    /// The start setting.
    pub fn start(&self) -> Point {
        self.start
    }

    /// The configuration.
    pub fn config(&self) -> &TunerConfig {
        &self.config
    }

    /// Number of settings that can be chosen.
    pub fn candidates(&self) -> usize {
        self.lattice.points.len()
    }

    /// Makes `point` one of the settings that can be chosen, on the lattice or not.
    ///
    /// # Errors
    /// A point that is not one of the space.
    pub fn also_consider(&mut self, point: Point) -> Result<(), Error> {
        let point = self.lattice.space.point(point.values())?;
        if !self.lattice.points.contains(&point) {
            let lattice = Arc::make_mut(&mut self.lattice);
            lattice.coordinates.push(lattice.space.coordinates(&point));
            lattice.points.push(point);
        }
        Ok(())
    }

    /// Takes what other runs measured for observations of their own, larger variance. They take the place of the initial layout; a
    /// setting that is measured here is no longer remembered, and only measured settings can become the incumbent.
    pub(crate) fn recall(&mut self, recalled: Vec<Recalled>) {
        self.recalled = recalled;
    }

    /// The samples, in the order in which their settings were first measured.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// The sample at `point`.
    pub fn sample(&self, point: &Point) -> Option<&Sample> {
        self.samples.iter().find(|sample| sample.point == *point)
    }

    /// Adds measured steps at a setting, as ln(step time in ms); values that are not finite are left out.
    pub fn observe(&mut self, point: Point, log_times: &[f64]) {
        let finite = log_times.iter().copied().filter(|l| l.is_finite());
        match self.samples.iter_mut().find(|sample| sample.point == point) {
            Some(sample) => sample.log_times.extend(finite),
            None => {
                let log_times: Vec<f64> = finite.collect();
                if !log_times.is_empty() {
                    self.samples.push(Sample { point, log_times });
                }
            }
        }
    }

    /// The noise of a single step, as a fraction of it, pooled over all samples.
    pub fn noise(&self) -> f64 {
        step_noise(self.samples.iter().map(|sample| sample.log_times.as_slice()))
    }

    /// The centre of the log step times of `sample`, and the variance of that centre.
    pub fn estimate(&self, sample: &Sample) -> (f64, f64) {
        let variance = match self.config.fixed_noise {
            Some(noise) => noise * noise,
            None => center_variance(self.noise(), sample.log_times.len()),
        };
        (huber_center(&sample.log_times), variance)
    }

    /// What to do next. Computes in the caller's thread; see [`job`](Self::job) for another.
    pub fn ask(&mut self) -> Proposal {
        let proposal = self.job().run();
        self.accept(&proposal);
        proposal
    }

    /// The computation of the next proposal, to be run anywhere; hand its result to [`accept`](Self::accept).
    pub fn job(&self) -> ProposalJob {
        ProposalJob { tuner: self.clone() }
    }

    /// Takes note of a proposal that is going to be followed. Returns whether it answers the latest ask; if not, it is ignored.
    pub fn accept(&mut self, proposal: &Proposal) -> bool {
        if proposal.ask != self.asks {
            return false;
        }
        self.asks += 1;
        let small = proposal.improvement < IMPROVEMENT_MIN;
        self.small_improvements = if small { self.small_improvements + 1 } else { 0 };
        true
    }

    fn propose(&self) -> Proposal {
        let mut proposal = Proposal {
            next: Next::Sample(self.start),
            incumbent: self.start,
            incumbent_gain: 0.0,
            prediction: (f64::NAN, f64::NAN),
            improvement: f64::INFINITY,
            warnings: Vec::new(),
            ask: self.asks,
        };
        let Some(reference) = self.sample(&self.start).map(|sample| self.estimate(sample).0) else {
            return proposal;
        };
        let observations = self.observations(reference);
        match Surrogate::fit(&self.lattice.kernel, &observations, self.config.seed) {
            Ok(surrogate) => self.choose(&surrogate, &observations, reference, &mut proposal),
            Err(warning) => {
                proposal.warnings.push(warning);
                self.choose_blindly(reference, &mut proposal);
            }
        }
        if self.samples.len() >= self.config.max_samples as usize || self.lattice.points.len() == 1 {
            proposal.next = Next::Stop;
        }
        proposal
    }

    /// The samples' centres relative to the start setting's, then what is remembered beside them.
    fn observations(&self, reference: f64) -> Observations {
        let mut observations = Observations::default();
        for sample in &self.samples {
            let (center, variance) = self.estimate(sample);
            observations.x.push(self.lattice.space.coordinates(&sample.point));
            observations.y.push(center - reference);
            observations.variance.push(variance);
        }
        for recalled in self.recalled.iter().filter(|r| self.sample(&r.point).is_none()) {
            observations.x.push(self.lattice.space.coordinates(&recalled.point));
            observations.y.push(recalled.offset);
            observations.variance.push(recalled.variance);
        }
        let ceiling = observations.y.iter().copied().fold(f64::INFINITY, f64::min) + BADNESS_MAX;
        observations.y.iter_mut().for_each(|y| *y = y.min(ceiling));
        observations
    }

    fn choose(
        &self,
        surrogate: &Surrogate,
        observations: &Observations,
        reference: f64,
        proposal: &mut Proposal,
    ) {
        proposal.warnings.extend(surrogate.warning.clone());
        let means = surrogate.means(&observations.x[..self.samples.len()]);
        let incumbent = lowest(&means);
        let start = self
            .samples
            .iter()
            .position(|sample| sample.point == self.start)
            .unwrap_or(0);
        proposal.incumbent = self.samples[incumbent].point;
        proposal.incumbent_gain = means[start] - means[incumbent];

        let outlook = surrogate.outlook(&self.lattice.coordinates, &observations.x[incumbent]);
        let ceiling = means[incumbent] + SLOWDOWN_MAX.ln();
        let mut choice = None;
        for (index, &improvement) in outlook.improvement.iter().enumerate() {
            // Strictly greater: the lowest index wins a tie.
            if outlook.mean[index] <= ceiling && choice.is_none_or(|(_, best)| improvement > best) {
                choice = Some((index, improvement));
            }
        }
        let predicted = |index: usize| (reference + outlook.mean[index], outlook.variance[index].sqrt());
        if let Some(point) = self.design_point() {
            proposal.next = Next::Sample(point);
            if let Some(index) = self.lattice.points.iter().position(|p| *p == point) {
                proposal.prediction = predicted(index);
            }
            return;
        }
        let Some((index, improvement)) = choice else {
            return self.choose_blindly(reference, proposal);
        };
        proposal.improvement = improvement;
        proposal.prediction = predicted(index);
        proposal.next = Next::Sample(self.lattice.points[index]);
        if improvement < IMPROVEMENT_MIN && self.small_improvements + 1 >= PATIENCE {
            proposal.next = Next::Stop;
            proposal.prediction.0 = reference + means[incumbent];
        }
    }

    /// Without a surrogate: a random setting next, the lowest centre as incumbent.
    fn choose_blindly(&self, reference: f64, proposal: &mut Proposal) {
        let centers: Vec<f64> = self
            .samples
            .iter()
            .map(|sample| self.estimate(sample).0)
            .collect();
        let incumbent = lowest(&centers);
        proposal.incumbent = self.samples[incumbent].point;
        proposal.incumbent_gain = reference - centers[incumbent];
        let mut rng = self.rng(u64::from(self.asks) << 32);
        proposal.next = Next::Sample(self.lattice.points[rng.random_range(0..self.lattice.points.len())]);
        proposal.improvement = f64::INFINITY;
    }

    /// The next setting of the initial layout, if it is not complete: scrambled Sobol over the levels, booleans at random.
    fn design_point(&self) -> Option<Point> {
        let laid_out = self.samples.len() - 1;
        if laid_out >= DESIGN_POINTS || !self.recalled.is_empty() {
            return None;
        }
        let seed = (self.config.seed ^ (self.config.seed >> 32)) as u32;
        (0..DESIGN_TRIES)
            .map(|index| self.sobol_point(index, seed))
            .find(|point| self.sample(point).is_none())
    }

    fn sobol_point(&self, index: u32, seed: u32) -> Point {
        let mut rng = self.rng(u64::from(index));
        let mut dimension = 0;
        let values = self.lattice.space.parameters().iter().map(|parameter| {
            let levels = parameter.levels();
            if levels.len() == 1 {
                return levels[0];
            }
            if parameter.scale() == Scale::Boolean {
                return levels[usize::from(rng.random::<bool>())];
            }
            let uniform = f64::from(sobol_burley::sample(index, dimension, seed));
            dimension += 1;
            levels[((uniform * levels.len() as f64) as usize).min(levels.len() - 1)]
        });
        Point::try_from(values.collect::<Vec<f64>>()).unwrap_or(self.start)
    }

    /// A generator of its own for each use, so that no draw depends on how many were made before.
    fn rng(&self, stream: u64) -> Xoshiro256PlusPlus {
        // The golden ratio spreads neighbouring streams over the seeds.
        let offset = stream.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Xoshiro256PlusPlus::seed_from_u64(self.config.seed.wrapping_add(offset))
    }
}

/// Index of the lowest value, the first of equals.
fn lowest(values: &[f64]) -> usize {
    let mut best = 0;
    for (index, value) in values.iter().enumerate() {
        if *value < values[best] {
            best = index;
        }
    }
    best
}

/// An ask that can be computed on any thread.
#[derive(Clone, Debug)]
pub struct ProposalJob {
    tuner: Tuner,
}

impl ProposalJob {
    /// Computes the proposal: some milliseconds of one core, no clock, no thread, no panic on bad numbers.
    pub fn run(self) -> Proposal {
        self.tuner.propose()
    }
}
