//! Proposals: what to measure next, given everything measured so far.

use std::f64::consts::LN_2;
use std::sync::Arc;

use crate::Warning;
use crate::acquisition::CHANGE_COST;
use crate::center::center_variance;
use crate::space::{Coordinates, Point};
use crate::surrogate::{Hypothesis, Outlook, SLOWDOWN_MAX, Surrogate};
use crate::tuner::Tuner;
use crate::tuner::design::{DESIGN_POINTS, design};
use crate::tuner::model::{Belief, Model};
use crate::tuner::sample::Seen;

/// Maximum of an observation above the best, in log step time: beyond a cliff only the place
/// matters, and its height would suggest a variance that the rest of the surface does not have.
const BADNESS_MAX: f64 = 1.0;
/// Accepted probability that a proposed setting is slower than the incumbent by more than a factor
/// of 3, by default: it may then be slower by a factor of 20 or 100.
pub(crate) const RISK_MAX: f64 = 0.02;
/// Price of a sample, in steps of the incumbent: the changes to it and back, and so many steps at
/// its slow-down.
const PRICE_CHANGES: f64 = 2.0 * CHANGE_COST;
const PRICE_STEPS: f64 = 4.0;
/// Predicted slow-down of the sample that tests the model before it ends a search, in log step
/// time, at least and less than.
const PROBE_SLOWDOWN: [f64; 2] = [0.05, 0.3];
/// Weight of the model below which it is doubted.
const DOUBT: f64 = 0.5;
/// Measured settings that the surrogate is conditioned on: the start and the fastest, since its
/// cost grows with their cube.
pub(crate) const OBSERVATIONS_MAX: usize = 100;

/// Next step of a search.
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
    /// Next step of the search.
    pub next: Next,
    /// The measured setting with the lowest posterior mean.
    pub incumbent: Point,
    /// How much lower the surface is at the incumbent than at the start, in log step time:
    /// posterior mean and standard deviation.
    pub gain: (f64, f64),
    /// The setting of the lowest posterior mean, measured or not. `ronde tune` compares it with the
    /// start; a [`Session`](crate::Session) compares the incumbent.
    pub contender: Point,
    /// Predicted log step time of the next setting (of the incumbent, when stopping) and its
    /// standard deviation.
    pub prediction: (f64, f64),
    /// The largest expected improvement on the lattice, in log step time, as far as it counts
    /// ([`TunerConfig::sample_steps`](crate::TunerConfig::sample_steps)). Infinite until the
    /// initial design is complete.
    pub improvement: f64,
    /// Posterior probability that the model is of use; none without a model.
    pub model_weight: Option<f64>,
    /// Surface that the proposal is based on; empty before the start is measured.
    pub surface: Surface,
    /// Internal errors after which the search continued.
    pub warnings: Vec<Warning>,
    /// Which ask this answers; an answer to an older one is ignored.
    pub(crate) ask: u32,
}

/// Predicted log step times of all settings that can be chosen or were measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Surface {
    /// The settings.
    pub settings: Vec<Point>,
    /// Posterior mean of ln(step time in ms) of each.
    pub log_times: Vec<f64>,
}

/// An ask that can be computed on any thread.
#[derive(Clone, Debug)]
pub struct ProposalJob {
    pub(crate) tuner: Tuner,
}

impl ProposalJob {
    /// Returns the ask with a model, which is called when the job runs, on the thread that runs it.
    #[must_use]
    pub fn with_model(mut self, model: Arc<dyn Model>) -> Self {
        self.tuner.model = Some(model);
        self
    }

    /// Computes the proposal: some milliseconds of one core, no clock, no thread, no panic on bad
    /// numbers.
    pub fn run(self) -> Proposal {
        self.tuner.propose()
    }
}

/// Data on which a proposal is based.
struct Known {
    /// The settings that can be chosen or are observed, and their coordinates.
    settings: Vec<Point>,
    coordinates: Vec<Coordinates>,
    /// Indices of the observed settings: the start, the other measured ones, then those of other
    /// runs; values relative to the start's; and noise variances.
    observed: Vec<usize>,
    /// How many were measured.
    measured: usize,
    y: Vec<f64>,
    variance: Vec<f64>,
    /// Log step time of the start setting.
    reference: f64,
    /// Relative log step time above which nothing counts.
    ceiling: f64,
}

impl Known {
    /// Indices of the measured settings, the start's first.
    fn measured(&self) -> &[usize] {
        &self.observed[..self.measured]
    }
}

/// Log step time of the start above the incumbent's from which a search has nothing to lose: the
/// start's steps are the unit of the budget, and a sample that is slower than the incumbent still
/// saves time.
pub(crate) const FAR_SLOWER: f64 = LN_2;

/// Least distance from every measured setting, as a share of an axis, at which a setting is
/// [unexplored].
const UNEXPLORED: f64 = 0.25;

/// Slow-down against the incumbent that no proposal may risk, in log step time, if the start is
/// slower than the incumbent by `start`. If that is far slower, unknown settings are expected at
/// the ceiling, a factor of e above the incumbent. A limit of 3 against the incumbent would exclude
/// all of them, and the search would stay where the first improvement was.
fn slowdown_max(start: f64) -> f64 {
    match start > FAR_SLOWER {
        true => start + SLOWDOWN_MAX,
        false => SLOWDOWN_MAX,
    }
}

/// Of `candidates` that differ from the incumbent in one parameter, the one that is farthest
/// from every measured setting, if one is far enough. Measurements far from the incumbent, where
/// another parameter decides, may have taught the surrogate that this one has no effect.
fn unexplored(
    known: &Known,
    incumbent: usize,
    candidates: impl Iterator<Item = usize>,
) -> Option<usize> {
    let steps = |i: usize, j: usize| {
        let both = known.coordinates[i].iter().zip(&known.coordinates[j]);
        both.map(|(a, b)| (a - b).abs())
    };
    let is_on_line = |&i: &usize| steps(i, incumbent).filter(|step| *step > 0.0).count() == 1;
    let distance = |i: usize| {
        let squared = |j: &usize| steps(i, *j).map(|step| step * step).sum::<f64>();
        let measured = known.measured().iter();
        measured.map(squared).fold(f64::INFINITY, f64::min)
    };
    candidates
        .filter(is_on_line)
        .map(|i| (i, distance(i)))
        .filter(|(_, squared)| *squared >= UNEXPLORED * UNEXPLORED)
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(i, _)| i)
}

impl Tuner {
    pub(crate) fn propose(&self) -> Proposal {
        let mut proposal = Proposal {
            next: Next::Sample(self.start()),
            incumbent: self.start(),
            gain: (0.0, 0.0),
            contender: self.start(),
            prediction: (f64::NAN, f64::NAN),
            improvement: f64::INFINITY,
            model_weight: None,
            surface: Surface::default(),
            warnings: Vec::new(),
            ask: self.asks,
        };
        let Some(known) = self.known() else {
            return proposal;
        };
        let belief = self.belief(&known, &mut proposal);
        let kernel = &self.lattice.kernel;
        // A start beyond a cliff says little about the other settings.
        let level = known.ceiling.min(0.0);
        let (x, observed) = (&known.coordinates, &known.observed);
        let cold = Hypothesis::cold(kernel, x, observed.clone(), level);
        let with_model = belief.as_ref().map(|belief| {
            Hypothesis::with_model(kernel, x, observed.clone(), belief, known.ceiling)
        });
        let hypotheses: Vec<Hypothesis> = with_model.into_iter().chain([cold]).collect();
        let draws = &self.lattice.draws;
        match Surrogate::fit(&hypotheses, draws, &known.y, &known.variance) {
            Some(surrogate) => {
                if belief.is_some() {
                    self.weigh_model(&surrogate, &mut proposal);
                }
                self.choose(&surrogate, &known, belief.as_ref(), &mut proposal);
                if let (Next::Stop, [_, cold], Some(belief)) =
                    (proposal.next, &hypotheses[..], &belief)
                {
                    self.probe(cold, &known, belief, &mut proposal);
                }
            }
            None => {
                let observations = known.y.len();
                proposal
                    .warnings
                    .push(Warning::SurrogateFailed { observations });
                proposal.next = Next::Stop;
            }
        }
        let is_full = self.samples().len() >= self.config.max_samples as usize;
        if is_full || self.candidates() == 1 {
            proposal.next = Next::Stop;
        }
        proposal
    }

    /// The samples' centres; none before the start setting is measured.
    fn known(&self) -> Option<Known> {
        let estimates = self.estimates().into_iter();
        let mut measured: Vec<Seen> = estimates.map(|(_, seen)| seen).collect();
        let start = (measured.iter()).position(|seen| seen.point == self.start())?;
        measured[..=start].rotate_right(1);
        if measured.len() > OBSERVATIONS_MAX {
            measured[1..].sort_by(|a, b| a.log_time.total_cmp(&b.log_time));
            measured.truncate(OBSERVATIONS_MAX);
        }
        let reference = measured[0].log_time;
        (measured.iter_mut()).for_each(|seen| seen.log_time -= reference);
        let log_times = measured.iter().map(|seen| seen.log_time);
        let ceiling = log_times.fold(f64::INFINITY, f64::min) + BADNESS_MAX;
        let mut settings = self.lattice.points.clone();
        let (mut observed, mut y, mut variance) = (Vec::new(), Vec::new(), Vec::new());
        for seen in measured.iter().chain(self.recalled()) {
            let index = settings.iter().position(|setting| *setting == seen.point);
            observed.push(index.unwrap_or_else(|| {
                settings.push(seen.point);
                settings.len() - 1
            }));
            y.push(seen.log_time.min(ceiling));
            variance.push(seen.variance);
        }
        let coordinates = settings.iter().map(|point| self.space().coordinates(point));
        Some(Known {
            measured: measured.len(),
            coordinates: coordinates.collect(),
            settings,
            observed,
            y,
            variance,
            reference,
            ceiling,
        })
    }

    /// The model's predictions for all settings; none without a model, or if they are unusable.
    fn belief(&self, known: &Known, proposal: &mut Proposal) -> Option<Belief> {
        let (settings, start) = (&known.settings, known.observed[0]);
        let belief = self.model.as_ref()?.belief(settings, &settings[start]);
        let belief = belief.ok_or_else(|| "it makes no prediction".to_owned());
        match belief.and_then(|belief| belief.checked(settings.len(), start)) {
            Ok(belief) => Some(belief),
            Err(reason) => {
                if !self.model_missed {
                    proposal.warnings.push(Warning::ModelUnusable { reason });
                }
                None
            }
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

    fn choose(
        &self,
        surrogate: &Surrogate,
        known: &Known,
        belief: Option<&Belief>,
        proposal: &mut Proposal,
    ) {
        let settings = &known.settings;
        let means: Vec<f64> = (0..settings.len()).map(|i| surrogate.at(i).0).collect();
        let mean = |i: usize| means[i];
        let log_times = means.iter().map(|mean| known.reference + mean);
        proposal.surface = Surface {
            settings: settings.clone(),
            log_times: log_times.collect(),
        };
        // A setting that is only remembered cannot be the incumbent.
        let measured = known.measured();
        let (start, incumbent) = (measured[0], lowest(measured.iter().copied(), mean));
        proposal.incumbent = settings[incumbent];
        proposal.gain = surrogate.difference(start, incumbent);

        let sample_variance = self.sample_variance();
        let slowdown_max = slowdown_max(mean(start) - mean(incumbent));
        let outlooks: Vec<Outlook> = (0..settings.len())
            .map(|i| surrogate.outlook(i, incumbent, sample_variance, slowdown_max))
            .collect();
        let is_fast = |i: usize| {
            let slowdown = outlooks[i].slowdown;
            slowdown <= slowdown_max && mean(incumbent) + slowdown <= self.excess_max
        };
        let tolerable = self.tolerable(&outlooks, belief, incumbent, is_fast);
        // It need not have been measured: the comparison with the start decides.
        let contender = lowest(
            [incumbent].into_iter().chain(tolerable.iter().copied()),
            mean,
        );
        proposal.contender = settings[contender];

        let designed = self.designed(known, belief.is_some(), &tolerable);
        let best = self.best_priced(known, &outlooks, &tolerable);
        let Some(index) = designed.or(best) else {
            // Everything that is not measured risks too much.
            proposal.improvement = 0.0;
            proposal.next = Next::Stop;
            return self.predict(surrogate.at(incumbent), known, proposal);
        };
        proposal.next = Next::Sample(settings[index]);
        self.predict(surrogate.at(index), known, proposal);
        if designed.is_some() {
            return;
        }
        let improvements = tolerable.iter().map(|&i| outlooks[i].improvement);
        proposal.improvement = improvements.fold(0.0, f64::max);
        // A sample that cannot improve anything is worth nothing, even without a limit.
        if proposal.improvement <= 0.0 || proposal.improvement < self.config.improvement_min {
            let faster = tolerable.into_iter().filter(|&i| mean(i) < mean(start));
            let unexplored = match mean(start) - mean(incumbent) > FAR_SLOWER {
                true => unexplored(known, incumbent, faster),
                false => None,
            };
            let (next, index) = match unexplored {
                Some(index) => (Next::Sample(settings[index]), index),
                None => (Next::Stop, incumbent),
            };
            proposal.next = next;
            self.predict(surrogate.at(index), known, proposal);
        }
    }

    /// The settings that are neither too slow, as `is_fast` says, nor too risky.
    fn tolerable(
        &self,
        outlooks: &[Outlook],
        belief: Option<&Belief>,
        incumbent: usize,
        is_fast: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        // A model that is doubted still counts where it predicts a cliff: one step there may cost
        // more than the whole search may.
        let is_feared =
            |i: usize| belief.is_some_and(|b| b.mean[i] - b.mean[incumbent] > SLOWDOWN_MAX);
        let is_tolerable =
            |i: usize| is_fast(i) && outlooks[i].risk <= self.config.risk_max && !is_feared(i);
        (0..outlooks.len()).filter(|&i| is_tolerable(i)).collect()
    }

    /// The setting of the largest expected improvement for its price, other than the one in force.
    fn best_priced(
        &self,
        known: &Known,
        outlooks: &[Outlook],
        tolerable: &[usize],
    ) -> Option<usize> {
        let score = |i: usize| -outlooks[i].improvement / price(outlooks[i].slowdown);
        // More steps of the same visit say nothing about the variance between visits.
        let others = tolerable.iter().copied();
        let others = others.filter(|&i| self.in_force != Some(known.settings[i]));
        others.min_by(|&a, &b| score(a).total_cmp(&score(b)))
    }

    /// Before a model ends the search: one sample where it expects a bad result, at the setting
    /// that a search without it finds most promising for its price, if it is affordable.
    fn probe(&self, cold: &Hypothesis, known: &Known, belief: &Belief, proposal: &mut Proposal) {
        let (cold, draws) = (std::slice::from_ref(cold), &self.lattice.draws);
        let Some(cold) = Surrogate::fit(cold, draws, &known.y, &known.variance) else {
            return;
        };
        let measured = known.measured();
        let incumbent = lowest(measured.iter().copied(), |i| cold.at(i).0);
        let slowdown = |i: usize| belief.mean[i] - belief.mean[incumbent];
        // The start's result says nothing about the model.
        if measured[1..]
            .iter()
            .any(|&i| slowdown(i) > PROBE_SLOWDOWN[0])
        {
            return;
        }
        let candidates = (0..known.settings.len())
            .filter(|&i| (PROBE_SLOWDOWN[0]..PROBE_SLOWDOWN[1]).contains(&slowdown(i)))
            .filter(|&i| cold.at(incumbent).0 + slowdown(i) <= self.excess_max)
            .map(|i| (i, cold.outlook(i, incumbent, None, SLOWDOWN_MAX)))
            .filter(|(_, outlook)| outlook.risk <= RISK_MAX);
        let score = |(i, outlook): &(usize, Outlook)| -outlook.improvement / price(slowdown(*i));
        let best = candidates.min_by(|a, b| score(a).total_cmp(&score(b)));
        if let Some((index, _)) = best {
            proposal.next = Next::Sample(known.settings[index]);
            self.predict(cold.at(index), known, proposal);
        }
    }

    fn predict(&self, (mean, sd): (f64, f64), known: &Known, proposal: &mut Proposal) {
        proposal.prediction = (known.reference + mean, sd);
    }

    /// Variance of the next sample's centre; none if an improvement counts in full.
    fn sample_variance(&self) -> Option<f64> {
        let steps = self.config.sample_steps?;
        if let Some(noise) = self.config.fixed_noise {
            return Some(noise * noise);
        }
        let noise = self.noise();
        Some(self.visit_variance(noise) + center_variance(noise, steps as usize))
    }

    /// The next setting of the design, while there is no model and the design is not complete.
    fn designed(&self, known: &Known, with_model: bool, tolerable: &[usize]) -> Option<usize> {
        let is_warm = with_model || self.recalled().next().is_some();
        if is_warm || self.samples().len() > DESIGN_POINTS {
            return None;
        }
        design(self.space(), &self.start(), self.config.seed)
            .filter(|point| self.sample(point).is_none())
            .find_map(|point| {
                let index = known.settings.iter().position(|p| *p == point)?;
                tolerable.contains(&index).then_some(index)
            })
    }
}

/// Price of a sample at a setting of this log step time above the incumbent's, in steps of the
/// incumbent. At a faster setting it is that of the changes.
fn price(slowdown: f64) -> f64 {
    PRICE_STEPS * slowdown.exp_m1().max(0.0) + PRICE_CHANGES
}

/// The index of the lowest value, the first of equals; 0 of none.
fn lowest(indices: impl Iterator<Item = usize>, value: impl Fn(usize) -> f64) -> usize {
    indices
        .min_by(|&a, &b| value(a).total_cmp(&value(b)))
        .unwrap_or(0)
}
