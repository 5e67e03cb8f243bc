//! Proposals: what to measure next, given everything measured so far.

use std::sync::Arc;

use rand::RngExt;

use crate::Warning;
use crate::center::center_variance;
use crate::design::{DESIGN_POINTS, design, generator};
use crate::gp::{Observations, Scene};
use crate::hypothesis::{Hypothesis, MODEL_ODDS, checked};
use crate::lanes::Columns;
use crate::model::{Belief, Estimate, Model};
use crate::space::Point;
use crate::stop::CHANGE_COST;
use crate::stop::{Prospect, sample_cost};
use crate::surrogate::{SLOWDOWN_MAX, Surrogate};
use crate::tuner::Tuner;

/// How bad an observation counts, in log step time above the best: beyond a cliff only its place matters, and its height would
/// teach the surrogate a signal that the rest of the surface does not have.
const BADNESS_MAX: f64 = 1.0;
/// Accepted probability that a proposed setting is slower than the incumbent by more than a factor of 3: beyond an edge of what was
/// seen such a setting may be 20 or 100 times as slow, and one step there ends the search.
const RISK_MAX: f64 = 0.02;
/// What a sample costs where no model speaks, in steps of the incumbent: the changes to it and back, and so many steps at its slowness.
const PRICE_CHANGES: f64 = 2.0 * CHANGE_COST;
const PRICE_STEPS: f64 = 4.0;
/// Steps of the next sample, as far as what it will teach is concerned.
const SAMPLE_STEPS: usize = 10;
/// Measured settings, the fastest first, around which the search looks between the levels.
const REFINED: usize = 3;
/// Weight of the model below which the search says that it goes on without it.
const DOUBT: f64 = 0.5;

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
    /// How much lower the surface is at the incumbent than at the setting to be beaten (the start's, or what has beaten that), in log
    /// step time: posterior mean and standard deviation.
    pub gain: (f64, f64),
    /// The setting of the lowest posterior mean, measured or not: the one to be compared with the setting to be beaten.
    pub contender: Point,
    /// How much lower the surface is there than at the setting to be beaten, in log step time: posterior mean.
    pub contender_gain: f64,
    /// Predicted log step time of the next setting (of the incumbent, when stopping) and its standard deviation.
    pub prediction: (f64, f64),
    /// The largest expected improvement on the lattice, in log step time: with a model, of the kind that one sample shows. Infinite
    /// while the first settings are laid out.
    pub improvement: f64,
    /// Posterior probability that the model is of use; none without a model.
    pub model_weight: Option<f64>,
    /// What went wrong inside and was survived.
    pub warnings: Vec<Warning>,
    /// Whether the proposal is not worth its cost.
    pub(crate) small: bool,
    /// Which ask this answers; an answer to an older one is ignored.
    pub(crate) ask: u32,
}

/// An ask that can be computed on any thread.
#[derive(Clone, Debug)]
pub struct ProposalJob {
    tuner: Tuner,
}

impl ProposalJob {
    pub(crate) fn new(tuner: Tuner) -> Self {
        Self { tuner }
    }

    /// The same ask with a model's word, which is heard when the job runs, on the thread that runs it.
    #[must_use]
    pub fn with_model(mut self, model: Arc<dyn Model>) -> Self {
        self.tuner.set_model(Some(model));
        self
    }

    /// The same ask, to be answered only with settings that are predicted to be no slower than the start by more than `excess`, in log
    /// step time.
    #[must_use]
    pub(crate) fn within(mut self, excess: f64) -> Self {
        self.tuner.excess_max = excess;
        self
    }

    /// Computes the proposal: some milliseconds of one core, no clock, no thread, no panic on bad numbers.
    pub fn run(self) -> Proposal {
        self.tuner.propose()
    }
}

/// What is known when a proposal is made, the start setting's first.
struct Known {
    estimates: Vec<Estimate>,
    /// The estimates, then what is remembered of other runs.
    observations: Observations,
    /// The settings of the observations.
    points: Vec<Point>,
    /// Log step time of the start setting.
    reference: f64,
    /// Relative log step time above which nothing counts.
    ceiling: f64,
}

impl Known {
    /// Index of a measured setting; the start's if it is none.
    fn index(&self, point: &Point) -> usize {
        let mut points = self.estimates.iter().map(|estimate| estimate.point);
        points.position(|measured| measured == *point).unwrap_or(0)
    }
}

impl Tuner {
    pub(crate) fn propose(&self) -> Proposal {
        let mut proposal = Proposal {
            next: Next::Sample(self.start()),
            incumbent: self.start(),
            gain: (0.0, 0.0),
            contender: self.start(),
            contender_gain: 0.0,
            prediction: (f64::NAN, f64::NAN),
            improvement: f64::INFINITY,
            model_weight: None,
            warnings: Vec::new(),
            small: false,
            ask: self.asks,
        };
        let Some(known) = self.known() else {
            return proposal;
        };
        let near = self.candidates_near(&known);
        let (points, candidates) = (near.points.as_slice(), &near.columns);
        let belief = self.belief(points, &known, &mut proposal);
        let mut cold = Hypothesis::cold(known.points.len(), candidates.len());
        let mut hypotheses = Vec::new();
        if let Some(belief) = &belief {
            let level = self.config().level_variance;
            let with_model = Hypothesis::with_model(belief, candidates.len(), level, known.ceiling);
            cold.odds = 1.0 - MODEL_ODDS;
            hypotheses.push(with_model);
        }
        hypotheses.push(cold);
        let scene = Scene::new(
            &self.lattice.kernel,
            &known.observations,
            candidates,
            hypotheses,
        );
        match Surrogate::fit(&scene, &self.lattice.draws) {
            Ok(surrogate) => {
                if belief.is_some() {
                    self.weigh_model(&surrogate, &mut proposal);
                }
                self.choose(points, &surrogate, &known, belief.as_ref(), &mut proposal);
            }
            Err(warning) => {
                proposal.warnings.push(warning);
                self.choose_blindly(&known, &mut proposal);
            }
        }
        if self.samples().len() >= self.config().max_samples as usize || candidates.len() == 1 {
            proposal.next = Next::Stop;
        }
        proposal
    }

    /// The samples' centres; none before the start setting is measured.
    fn known(&self) -> Option<Known> {
        let start = self.sample(&self.start())?;
        let others = self
            .samples()
            .iter()
            .filter(|sample| sample.point != start.point);
        let estimates: Vec<Estimate> = std::iter::once(start)
            .chain(others)
            .map(|sample| {
                let (log_time, variance) = self.estimate(sample);
                Estimate {
                    point: sample.point,
                    log_time,
                    variance,
                    steps: sample.steps(),
                }
            })
            .collect();
        let reference = estimates[0].log_time;
        let relative = |estimate: &Estimate| estimate.log_time - reference;
        let ceiling = estimates.iter().map(relative).fold(f64::INFINITY, f64::min) + BADNESS_MAX;
        let measured = estimates.iter().map(|e| (e.point, relative(e), e.variance));
        let recalled = self.recalled().map(|r| (r.point, r.offset, r.variance));
        let mut observations = Observations::default();
        let mut points = Vec::new();
        for (point, y, variance) in measured.chain(recalled) {
            observations.x.push(self.space().coordinates(&point));
            observations.y.push(y.min(ceiling));
            observations.variance.push(variance);
            points.push(point);
        }
        Some(Known {
            estimates,
            observations,
            points,
            reference,
            ceiling,
        })
    }

    /// What the model believes of the candidates and then of the measured settings; none without a model, or if it has nothing
    /// usable to say.
    fn belief(&self, points: &[Point], known: &Known, proposal: &mut Proposal) -> Option<Belief> {
        let model = self.model.as_ref()?;
        let reference = points.len();
        let points: Vec<Point> = points.iter().chain(&known.points).copied().collect();
        let belief = model
            .belief(&points, &known.estimates)
            .ok_or_else(|| "it has nothing to say".to_owned());
        match belief.and_then(|belief| checked(belief, points.len(), reference)) {
            Ok(belief) => Some(belief),
            Err(reason) => {
                if !self.model_missed {
                    proposal.warnings.push(Warning::ModelUnusable { reason });
                }
                None
            }
        }
    }

    /// The lattice, and around the best measured settings what lies half way to the next levels.
    fn candidates_near(&self, known: &Known) -> Candidates {
        let mut points = self.lattice.points.clone();
        let mut order: Vec<&Estimate> = known.estimates.iter().collect();
        order.sort_by(|a, b| a.log_time.total_cmp(&b.log_time));
        let best = order.into_iter().take(REFINED);
        let around = best.flat_map(|estimate| self.space().between_levels(&estimate.point));
        let measured = known.estimates.iter().map(|estimate| estimate.point);
        for point in measured.chain(around) {
            if !points.contains(&point) {
                points.push(point);
            }
        }
        let coordinates: Vec<_> = points
            .iter()
            .map(|point| self.space().coordinates(point))
            .collect();
        Candidates {
            columns: Columns::new(&self.lattice.kernel, &coordinates),
            points,
        }
    }

    fn weigh_model(&self, surrogate: &Surrogate, proposal: &mut Proposal) {
        let weight = surrogate.weights[0];
        proposal.model_weight = Some(weight);
        if weight < DOUBT && !self.model_doubted {
            proposal.warnings.push(Warning::ModelDoubted {
                observations: self.samples().len(),
                weight_percent: (100.0 * weight).round() as u32,
            });
        }
    }

    /// Chooses by the surrogate, and by what the model believes.
    fn choose(
        &self,
        points: &[Point],
        surrogate: &Surrogate,
        known: &Known,
        belief: Option<&Belief>,
        proposal: &mut Proposal,
    ) {
        proposal.warnings.extend(surrogate.warning.clone());
        let means = surrogate.observed_means();
        // What is only remembered cannot be the incumbent.
        let incumbent = lowest(&means[..known.estimates.len()]);
        proposal.incumbent = known.estimates[incumbent].point;
        let start_index = known.index(&self.start());
        proposal.gain = surrogate.difference(start_index, incumbent);

        // A model knows its way: what counts is what a sample shows. Without one most samples are far worse than the incumbent, and eat
        // the budget; so there hope counts, by its price.
        let with_model = proposal.model_weight.is_some_and(|weight| weight >= DOUBT);
        let outlook = surrogate.outlook(incumbent, with_model.then(|| self.sample_variance()));
        let candidates = points.len();
        // A model that has been wrong by a tenth is still to be heeded where it warns of disaster: a single step there can cost
        // more than the whole search may.
        let dreaded = |index: usize| {
            belief.is_some_and(|belief| {
                belief.mean[index] - belief.mean[candidates + incumbent] > SLOWDOWN_MAX
            })
        };
        let tolerable = |index: usize| {
            outlook.slowdown[index] <= SLOWDOWN_MAX
                && means[incumbent] + outlook.slowdown[index] <= self.excess_max
                && outlook.risk[index] <= RISK_MAX
                && !dreaded(index)
        };
        // The candidate that the model likes best.
        let favourite = belief.map(|belief| lowest(&belief.mean[..candidates]));
        proposal.contender = proposal.incumbent;
        proposal.contender_gain = proposal.gain.0;
        // What is expected to be best need not have been measured: the A/B windows will tell.
        let lower = (0..candidates).filter(|&c| outlook.mean[c] < means[incumbent] && tolerable(c));
        if let Some(c) = lower.min_by(|&a, &b| outlook.mean[a].total_cmp(&outlook.mean[b])) {
            proposal.contender = points[c];
            proposal.contender_gain = means[start_index] - outlook.mean[c];
        }
        let relative = |(mean, sd): (f64, f64)| (known.reference + mean, sd);
        let predicted =
            |index: usize| relative((outlook.mean[index], outlook.variance[index].sqrt()));
        if let Some(index) = self
            .first_choice(points, favourite)
            .filter(|&index| tolerable(index))
        {
            proposal.next = Next::Sample(points[index]);
            proposal.prediction = predicted(index);
            return;
        }
        if let Some(index) = self.designed(favourite.is_some(), &tolerable) {
            proposal.next = Next::Sample(points[index]);
            proposal.prediction = predicted(index);
            return;
        }
        let improvement = |index: usize| outlook.improvement[index];
        let promising = most_promising(candidates, &tolerable, improvement);
        let index = if with_model {
            promising
        } else {
            let price =
                |index: usize| sample_cost(outlook.slowdown[index], PRICE_STEPS, PRICE_CHANGES);
            let per_price = |index: usize| improvement(index) / price(index);
            most_promising(candidates, &tolerable, per_price)
        };
        let Some((index, promising)) = index.zip(promising) else {
            // Everything but what is measured risks too much.
            proposal.improvement = 0.0;
            proposal.next = Next::Stop;
            proposal.prediction = relative(surrogate.at_observed(incumbent));
            return;
        };
        proposal.improvement = improvement(promising);
        proposal.prediction = predicted(index);
        proposal.next = Next::Sample(points[index]);
        proposal.small = self.config().stop.rejects(&Prospect {
            improvement: proposal.improvement,
            slowdown: outlook.slowdown[index],
            steps: known
                .estimates
                .iter()
                .map(|estimate| estimate.steps as f64)
                .sum(),
            with_model,
        });
        if proposal.small
            && self
                .config()
                .stop
                .ends(self.small_improvements + 1, with_model)
        {
            proposal.next = Next::Stop;
            proposal.prediction = relative(surrogate.at_observed(incumbent));
        }
    }

    /// Variance of the next sample's value, about what is true of its setting.
    fn sample_variance(&self) -> f64 {
        match self.config().fixed_noise {
            Some(noise) => noise * noise,
            None => center_variance(self.noise(), SAMPLE_STEPS),
        }
    }

    /// After the start setting, the model's favourite, unless that is the start setting itself.
    fn first_choice(&self, points: &[Point], favourite: Option<usize>) -> Option<usize> {
        let favourite = favourite.filter(|_| self.samples().len() == 1)?;
        (points[favourite] != self.start()).then_some(favourite)
    }

    /// The next setting of the design, while there is no model and the design is not complete.
    fn designed(&self, with_model: bool, tolerable: &dyn Fn(usize) -> bool) -> Option<usize> {
        let remembers = self.recalled().next().is_some();
        if with_model || remembers || self.samples().len() > DESIGN_POINTS {
            return None;
        }
        design(self.space(), &self.start(), self.config().seed)
            .filter(|point| self.sample(point).is_none())
            .find_map(|point| {
                let index = self.lattice.points.iter().position(|p| *p == point)?;
                tolerable(index).then_some(index)
            })
    }

    /// Without a surrogate: a random setting next, the lowest centre as incumbent.
    fn choose_blindly(&self, known: &Known, proposal: &mut Proposal) {
        let centers: Vec<f64> = known
            .estimates
            .iter()
            .map(|estimate| estimate.log_time)
            .collect();
        let incumbent = lowest(&centers);
        proposal.incumbent = known.estimates[incumbent].point;
        proposal.contender = proposal.incumbent;
        let start_index = known.index(&self.start());
        proposal.contender_gain = centers[start_index] - centers[incumbent];
        let variance = known.estimates[start_index].variance + known.estimates[incumbent].variance;
        proposal.gain = (proposal.contender_gain, variance.sqrt());
        let mut rng = generator(self.config().seed, u64::from(self.asks) << 32);
        proposal.next =
            Next::Sample(self.lattice.points[rng.random_range(0..self.lattice.points.len())]);
    }
}

/// Settings that can be chosen in one ask.
struct Candidates {
    points: Vec<Point>,
    columns: Columns,
}

/// The tolerable candidate of the highest score, the first of equals.
fn most_promising(
    candidates: usize,
    tolerable: &dyn Fn(usize) -> bool,
    score: impl Fn(usize) -> f64,
) -> Option<usize> {
    let mut best: Option<(usize, f64)> = None;
    for index in 0..candidates {
        let own = score(index);
        if best.is_none_or(|(_, best)| own > best) && tolerable(index) {
            best = Some((index, own));
        }
    }
    best.map(|(index, _)| index)
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
