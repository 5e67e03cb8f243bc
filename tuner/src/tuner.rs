//! Ask and tell: which setting to measure next, which is best so far, and when to stop.
//!
//! The start setting is measured first and stays a candidate for ever. Without a [`Model`] a few
//! scrambled-Sobol settings follow; then the lattice point whose sample is expected to show the
//! largest improvement on the incumbent for its price. The incumbent is the *measured* setting of
//! the lowest posterior mean: never the one with the luckiest sample. No setting is proposed that
//! is predicted to be three times slower than the incumbent, or that may be with a probability
//! above 2 %. The search stops when no sample is expected to show enough improvement, or at the cap
//! on samples. Asking twice of the same observations gives the same answer; nothing here knows the
//! time.
//!
//! ```
//! use ronde_tuner::{Next, Observation, Parameter, Space, Tuner, TunerConfig};
//! let space = Space::new(vec![Parameter::linear("x", 0.0, 1.0, 41)])?;
//! let start = space.point(&[0.0])?;
//! let mut tuner = Tuner::new(space, TunerConfig::default(), start)?;
//! let mut point = start;
//! let best = loop {
//!     let x = point.value(0);
//!     let value = 100.0 * (1.0 + (x - 0.7) * (x - 0.7)); // measure; lower is better
//!     tuner.tell(point, Observation { value, spread: 1.0, steps: 10 })?;
//!     let proposal = tuner.ask();
//!     match proposal.next {
//!         Next::Sample(next) => point = next,
//!         Next::Stop => break proposal.incumbent,
//!     }
//! };
//! assert!((best.value(0) - 0.7).abs() < 0.15);
//! # Ok::<(), ronde_tuner::Error>(())
//! ```

pub(crate) mod design;
pub(crate) mod model;
pub(crate) mod proposal;
pub(crate) mod recall;
pub(crate) mod sample;

use std::sync::Arc;

use crate::center::{center_variance, step_noise};
use crate::error::in_range;
use crate::space::{Point, Space};
use crate::surrogate::kernel::{Hyperparameters, Kernel};
use crate::tuner::model::Model;
use crate::tuner::proposal::{OBSERVATIONS_MAX, Proposal, ProposalJob, RISK_MAX};
use crate::tuner::sample::{Observation, Sample, Seen};
use crate::{Error, Warning};

/// Degrees of freedom of the prior of the variance between visits, whose value is 0.
const VISITS_PRIOR: f64 = 2.0;
/// Least expected improvement that is worth a sample, in log step time.
const IMPROVEMENT_MIN: f64 = 0.005;

/// Configuration of a tuner.
#[derive(Clone, Debug, PartialEq)]
pub struct TunerConfig {
    /// Seed of every draw. Default 7.
    pub seed: u64,
    /// Largest number of settings that are sampled, the start setting among them; ≥ 1. Default 60.
    pub max_samples: u32,
    /// Standard deviation of a sample's value, as a fraction of it, > 0; `None` (the default)
    /// estimates it from the steps.
    pub fixed_noise: Option<f64>,
    /// Accepted probability, 0 to 1, that a proposed setting is slower than the incumbent by more
    /// than a factor of 3. Default 0.02: in a job that cannot end a step, such a setting may cost
    /// more than the search saves.
    pub risk_max: f64,
    /// Least expected improvement that is worth a sample, in log step time; below it the search
    /// stops. Default 0.005. With 0 it stops where no improvement is possible.
    pub improvement_min: f64,
    /// Steps of a sample, ≥ 1: an improvement counts as far as one sample of so many steps is
    /// expected to show it. `None` counts it in full. Default 10.
    pub sample_steps: Option<u32>,
}

impl Default for TunerConfig {
    fn default() -> Self {
        Self {
            seed: 7,
            max_samples: 60,
            fixed_noise: None,
            risk_max: RISK_MAX,
            improvement_min: IMPROVEMENT_MIN,
            sample_steps: Some(10),
        }
    }
}

impl TunerConfig {
    fn check(&self) -> Result<(), Error> {
        let noise = self.fixed_noise.unwrap_or(1.0);
        let samples = f64::from(self.max_samples);
        in_range("max_samples", samples, samples >= 1.0, ">= 1")?;
        let steps = f64::from(self.sample_steps.unwrap_or(1));
        in_range("sample_steps", steps, steps >= 1.0, ">= 1")?;
        let risk = self.risk_max;
        in_range("risk_max", risk, (0.0..=1.0).contains(&risk), "0 to 1")?;
        let is_usable = noise > 0.0 && noise.is_finite();
        in_range("fixed_noise", noise, is_usable, "> 0 and finite")
    }
}

/// Constants of a search, shared with the jobs.
#[derive(Clone, Debug)]
pub(crate) struct Lattice {
    space: Space,
    pub(crate) kernel: Kernel,
    pub(crate) points: Vec<Point>,
    /// Draws of the hyper-parameters.
    pub(crate) draws: Vec<Hyperparameters>,
}

/// The optimizer's state. Clones are cheap enough to hand one to another thread for each ask.
#[derive(Clone, Debug)]
pub struct Tuner {
    pub(crate) lattice: Arc<Lattice>,
    pub(crate) config: TunerConfig,
    start: Point,
    samples: Vec<Sample>,
    /// Measurements of other runs, relative to the start setting.
    recalled: Vec<Seen>,
    pub(crate) asks: u32,
    /// The model of an ask.
    pub(crate) model: Option<Arc<dyn Model>>,
    /// Predicted log step time above the start's beyond which nothing is proposed.
    pub(crate) excess_max: f64,
    /// The setting in force during an ask, where the caller says so.
    pub(crate) in_force: Option<Point>,
    /// Whether the warnings `ModelDoubted` and `ModelUnusable` have been given.
    pub(crate) model_doubted: bool,
    pub(crate) model_missed: bool,
}

impl Tuner {
    /// A search of `space` that starts at `start`, the setting in force.
    ///
    /// # Errors
    /// A start point that is not one of the space, or a configuration out of range.
    pub fn new(space: Space, config: TunerConfig, start: Point) -> Result<Self, Error> {
        let start = space.point(start.values())?;
        config.check()?;
        let points = space.lattice(&start);
        let kernel = Kernel::new(&space);
        let lattice = Arc::new(Lattice {
            draws: kernel.draws(config.seed),
            space,
            kernel,
            points,
        });
        Ok(Self {
            lattice,
            config,
            start,
            samples: Vec::new(),
            recalled: Vec::new(),
            asks: 0,
            model: None,
            excess_max: f64::INFINITY,
            in_force: None,
            model_doubted: false,
            model_missed: false,
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

    /// Number of settings that can be chosen.
    pub fn candidates(&self) -> usize {
        self.lattice.points.len()
    }

    /// Makes `point` of the space one of the settings that can be chosen, on the lattice or not.
    pub(crate) fn also_consider(&mut self, point: Point) {
        if !self.lattice.points.contains(&point) {
            Arc::make_mut(&mut self.lattice).points.push(point);
        }
    }

    /// Takes what other runs measured for observations of their own, larger variance. They take the
    /// place of the initial design; a setting that is measured here is no longer remembered, and
    /// only measured settings can become the incumbent. Of very many, the fastest are taken.
    pub(crate) fn recall(&mut self, recalled: impl IntoIterator<Item = Seen>) {
        self.recalled.extend(recalled);
        if self.recalled.len() > OBSERVATIONS_MAX {
            let by_time = |a: &Seen, b: &Seen| a.log_time.total_cmp(&b.log_time);
            self.recalled.sort_by(by_time);
            self.recalled.truncate(OBSERVATIONS_MAX);
        }
    }

    /// Measurements of other runs at settings that were not measured here.
    pub(crate) fn recalled(&self) -> impl Iterator<Item = &Seen> {
        self.recalled
            .iter()
            .filter(|r| self.sample(&r.point).is_none())
    }

    /// The samples, in the order in which their settings were first measured.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// The sample at `point`.
    pub fn sample(&self, point: &Point) -> Option<&Sample> {
        self.samples.iter().find(|sample| sample.point == *point)
    }

    fn sample_mut(&mut self, point: Point) -> &mut Sample {
        let index = self.samples.iter().position(|sample| sample.point == point);
        let index = index.unwrap_or_else(|| {
            self.samples.push(Sample::new(point));
            self.samples.len() - 1
        });
        &mut self.samples[index]
    }

    /// Adds measured steps, as ln(step time in ms); values that are not finite are left out.
    /// `enters`: another setting was in force before.
    pub(crate) fn add_steps(&mut self, point: Point, log_times: &[f64], enters: bool) {
        let finite = log_times.iter().copied().filter(|l| l.is_finite());
        let finite: Vec<f64> = finite.collect();
        if finite.is_empty() {
            return;
        }
        let sample = self.sample_mut(point);
        if enters || sample.visits.is_empty() {
            sample.visits.push(sample.log_times.len());
        }
        sample.log_times.extend(finite);
    }

    /// Adds a measurement that the caller has summed up. The settings need not be those that were
    /// asked for.
    ///
    /// # Errors
    /// A point that is not one of the space, or an observation that is no measurement; nothing is
    /// then changed.
    pub fn tell(&mut self, point: Point, observation: Observation) -> Result<(), Error> {
        let point = self.space().point(point.values())?;
        observation.check()?;
        self.sample_mut(point).told.push(observation);
        Ok(())
    }

    /// The noise of a single step, as a fraction of it, pooled over all samples.
    pub fn noise(&self) -> f64 {
        let told = self
            .samples
            .iter()
            .map(Sample::log_values_of_unknown_spread);
        let told: Vec<Vec<f64>> = told.filter(|values| values.len() > 1).collect();
        let times = self
            .samples
            .iter()
            .map(|sample| sample.log_times.as_slice());
        step_noise(times.chain(told.iter().map(Vec::as_slice)))
    }

    /// Variance between the visits of a setting in addition to the noise of their steps, in squared
    /// log step time: settings may have several stable step times. Pooled over all settings.
    pub(crate) fn visit_variance(&self, noise: f64) -> f64 {
        let (mut excess, mut freedom) = (0.0, 0.0);
        for sample in &self.samples {
            let visits = sample.visit_centers();
            let count = visits.len() as f64;
            let mean = visits.iter().map(|(center, _)| center).sum::<f64>() / count;
            for (center, steps) in &visits[..if count > 1.0 { visits.len() } else { 0 }] {
                let expected = center_variance(noise, *steps) * (1.0 - 1.0 / count);
                excess += (center - mean).powi(2) - expected;
                freedom += 1.0 - 1.0 / count;
            }
        }
        (excess / (freedom + VISITS_PRIOR)).max(0.0)
    }

    /// The samples, each with its centre: that of the visits' centres, weighted by the noise of
    /// their steps and the variance between visits.
    pub fn estimates(&self) -> Vec<(&Sample, Seen)> {
        let noise = self.noise();
        let between = self.visit_variance(noise);
        let fixed = self.config.fixed_noise.map(|noise| noise * noise);
        let estimate = |sample: &Sample| {
            let visits = sample.visit_centers().into_iter();
            let visits =
                visits.map(|(center, steps)| (center, between + center_variance(noise, steps)));
            let (log_time, variance) = sample.pooled(visits, noise);
            Seen {
                point: sample.point,
                log_time,
                variance: fixed.unwrap_or(variance),
            }
        };
        let samples = self.samples.iter();
        samples.map(|sample| (sample, estimate(sample))).collect()
    }

    /// The estimate of a measured setting.
    pub(crate) fn estimate(&self, point: &Point) -> Option<Seen> {
        let all = self.estimates().into_iter();
        all.map(|(_, seen)| seen).find(|seen| seen.point == *point)
    }

    /// Proposes the next step. Computes in the caller's thread; see [`job`](Self::job) for another.
    pub fn ask(&mut self) -> Proposal {
        let proposal = self.propose();
        self.accept(&proposal);
        proposal
    }

    /// The computation of the next proposal, to be run anywhere; hand its result to
    /// [`accept`](Self::accept).
    pub fn job(&self) -> ProposalJob {
        ProposalJob {
            tuner: self.clone(),
        }
    }

    /// Records a proposal that will be followed. Returns whether it answers the latest ask; if not,
    /// it is ignored.
    pub fn accept(&mut self, proposal: &Proposal) -> bool {
        if proposal.ask != self.asks {
            return false;
        }
        self.asks += 1;
        for warning in &proposal.warnings {
            self.model_doubted |= matches!(warning, Warning::ModelDoubted { .. });
            self.model_missed |= matches!(warning, Warning::ModelUnusable { .. });
        }
        true
    }
}
