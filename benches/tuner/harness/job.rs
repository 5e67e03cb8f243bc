//! A training job: takes steps with the given setting, with noise, and records their cost.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Pareto, StandardNormal};
use ronde_job::replay::{JobTopology, Trace};

use super::truth::{Block, Draws, Effects, Setting, Source, Surface, Unwatched, Weather};
use super::witness::{Errors, Witness};

/// Slow-down of the first step after a change of setting, as a share.
const CHANGE: f64 = 0.25;
/// Slow variation of step times: ln(step time) also has an AR(1) process, of standard deviation
/// 1.06 %.
const WANDER_KEPT: f64 = 0.99;
const WANDER_STEP: f64 = 0.0015;
/// Longest disturbance, as a multiple of the usual one: no step is delayed for minutes.
const SPIKE_MOST: f64 = 20.0;

/// A job.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    surface: &'a Surface,
    rng: Xoshiro256PlusPlus,
    setting: Setting,
    wander: f64,
    /// For each step, its mean minus the best setting's, as a share of the latter.
    regret: Vec<f64>,
    /// Settings that the tuner considered best, and the steps since which it did.
    incumbents: Vec<(usize, Setting)>,
    changes: usize,
    asked_ms: Vec<f64>,
    modelled_ms: Vec<f64>,
    witness: Option<Witness>,
    errors: Option<Errors>,
    draws: Draws,
    weather: Weather,
    block: Option<Block>,
    ready: Vec<f64>,
    verdicts: Vec<Verdict>,
    is_searching: bool,
}

/// Verdict of a tuner on a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Verdict {
    /// Number of steps before it.
    pub(crate) step: usize,
    pub(crate) setting: Setting,
    /// Interval of the gain over the default, in percent, if one is claimed.
    pub(crate) gain_pct: Option<[f64; 2]>,
    /// Whether it reverts an earlier one.
    pub(crate) reverted: bool,
}

impl<'a> Job<'a> {
    /// Makes a job at the default setting. With `errors` it is traced, and [`traces`](Self::traces)
    /// returns the traces.
    pub(crate) fn new(surface: &'a Surface, seed: u64, errors: Option<Errors>) -> Self {
        let mut job = Self {
            surface,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            setting: Setting::DEFAULT,
            wander: 0.0,
            regret: Vec::new(),
            incumbents: vec![(0, Setting::DEFAULT)],
            changes: 0,
            asked_ms: Vec::new(),
            modelled_ms: Vec::new(),
            witness: None,
            errors,
            draws: Draws::default(),
            weather: Weather::default(),
            block: None,
            ready: Vec::new(),
            verdicts: Vec::new(),
            is_searching: false,
        };
        job.watch();
        job
    }

    /// Continues as another job, for example after a change of the network. Drops the traces; their
    /// errors stay.
    pub(crate) fn change(&mut self, surface: &'a Surface) {
        self.surface = surface;
        self.watch();
    }

    fn watch(&mut self) {
        self.witness = self.errors.and_then(|errors| match &self.surface.source {
            Source::Simulated(simulation) => Some(Witness::new(simulation, errors)),
            Source::Foreign(foreign) => Some(Witness::of_foreign(foreign, errors)),
            Source::Recorded(_) => None,
        });
    }

    /// Returns the surface.
    pub(crate) fn surface(&self) -> &'a Surface {
        self.surface
    }

    /// Takes a step; returns its time, µs.
    pub(crate) fn step_us(&mut self, setting: &Setting) -> f64 {
        let changed = *setting != self.setting;
        let relative = self.surface.relative(setting);
        let mut factor = self.noise();
        let witness = self.witness.as_mut().filter(|_| !changed);
        let mean_us = match &self.surface.source {
            Source::Simulated(simulation) => {
                self.draws.redraw(simulation, &mut self.rng);
                if let Some(witness) = witness {
                    witness.step(setting, &self.draws, factor);
                }
                simulation.step_us(setting, &self.draws, &mut self.ready, &mut Unwatched)
            }
            Source::Foreign(foreign) => {
                let (weather, rng) = (&mut self.weather, &mut self.rng);
                match witness {
                    Some(witness) => witness.watch(setting, factor, |notes| {
                        foreign.draw_us(setting, weather, rng, notes)
                    }),
                    None => foreign.draw_us(setting, weather, rng, &mut Unwatched),
                }
            }
            Source::Recorded(recorded) => {
                recorded.draw_us(setting, changed, &mut self.block, &mut self.rng)
            }
        };
        let mut regret = relative - 1.0;
        if changed {
            factor *= 1.0 + CHANGE;
            regret += CHANGE * relative;
            self.changes += 1;
            self.setting = *setting;
        }
        self.regret.push(regret);
        mean_us * factor
    }

    /// Takes `steps` steps; returns their times, µs.
    pub(crate) fn run_us(&mut self, setting: &Setting, steps: usize) -> Vec<f64> {
        (0..steps).map(|_| self.step_us(setting)).collect()
    }

    fn noise(&mut self) -> f64 {
        let mut normal = || -> f64 { StandardNormal.sample(&mut self.rng) };
        let sigma = self.surface.sigma;
        let mut log = sigma * normal() - sigma * sigma / 2.0;
        if self.surface.wanders {
            self.wander = WANDER_KEPT * self.wander + WANDER_STEP * normal();
            log += self.wander;
        }
        // The scatter of recorded steps includes their disturbances.
        let effects = self
            .surface
            .simulation()
            .map(|simulation| simulation.effects);
        log.exp() * effects.map_or(1.0, |effects| self.spike(&effects))
    }

    fn spike(&mut self, effects: &Effects) -> f64 {
        if self.rng.random::<f64>() >= effects.spikes {
            return 1.0;
        }
        let size = effects
            .spike_shape
            .and_then(|shape| Pareto::new(1.0, shape).ok())
            .map_or(1.0, |pareto| pareto.sample(&mut self.rng));
        1.0 + effects.spike * size.min(SPIKE_MOST)
    }

    /// Records a verdict.
    pub(crate) fn decided(
        &mut self,
        setting: &Setting,
        gain_pct: Option<[f64; 2]>,
        reverted: bool,
    ) {
        self.verdicts.push(Verdict {
            step: self.regret.len(),
            setting: *setting,
            gain_pct,
            reverted,
        });
    }

    /// Verdicts so far.
    pub(crate) fn verdicts(&self) -> &[Verdict] {
        &self.verdicts
    }

    /// Records whether a search is under way at the end.
    pub(crate) fn ended(&mut self, is_searching: bool) {
        self.is_searching = is_searching;
    }

    /// Whether a search was under way at the end.
    pub(crate) fn is_searching(&self) -> bool {
        self.is_searching
    }

    /// Records the setting that the tuner considers best now.
    pub(crate) fn incumbent(&mut self, setting: &Setting) {
        if self
            .incumbents
            .last()
            .is_none_or(|(_, last)| last != setting)
        {
            self.incumbents.push((self.regret.len(), *setting));
        }
    }

    /// Drops the traces, which are outdated.
    pub(crate) fn forget(&mut self) {
        if let Some(witness) = &mut self.witness {
            witness.forget();
        }
    }

    /// Returns the hosts of the ranks, if the job is traced.
    pub(crate) fn place(&self) -> Option<JobTopology> {
        self.witness.as_ref().map(Witness::place)
    }

    /// Records the CPU time of a proposal.
    pub(crate) fn asked(&mut self, ms: f64) {
        self.asked_ms.push(ms);
    }

    /// Records the CPU time of the model for a proposal.
    pub(crate) fn modelled(&mut self, ms: f64) {
        self.modelled_ms.push(ms);
    }

    /// CPU times of the models, ms.
    pub(crate) fn modelled_ms(&self) -> &[f64] {
        &self.modelled_ms
    }

    /// CPU times of the proposals, ms.
    pub(crate) fn asked_ms(&self) -> &[f64] {
        &self.asked_ms
    }

    /// Returns the traces by setting, in the order in which the settings were first in force.
    pub(crate) fn traces(&self) -> &[Trace] {
        self.witness.as_ref().map_or(&[], Witness::traces)
    }

    /// Setting of the last step.
    pub(crate) fn setting(&self) -> Setting {
        self.setting
    }

    /// Number of steps.
    pub(crate) fn steps(&self) -> usize {
        self.regret.len()
    }

    /// Number of changes of setting.
    pub(crate) fn changes(&self) -> usize {
        self.changes
    }

    /// Relative loss of each step; see the field.
    pub(crate) fn regret(&self) -> &[f64] {
        &self.regret
    }

    /// Settings that the tuner considered best; see the field.
    pub(crate) fn incumbents(&self) -> &[(usize, Setting)] {
        &self.incumbents
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::truth::{Truth, surfaces};

    #[test]
    fn a_job_costs_what_its_settings_cost() {
        let surfaces = surfaces(Truth::Lab, 1.0, None).unwrap();
        let surface = &surfaces[4]; // vgg16/nv: the default is 1.29 times the best
        let mut job = Job::new(surface, 1, None);
        let best = surface.optimum().setting;
        let default_us = job.run_us(&Setting::DEFAULT, 100);
        let best_us = job.run_us(&best, 100);
        job.incumbent(&best);
        let gap = surface.relative(&Setting::DEFAULT) - 1.0;
        let regret: f64 = job.regret().iter().sum();
        assert!((regret - (100.0 * gap + 0.25)).abs() < 1e-9);
        assert_eq!((job.steps(), job.changes()), (200, 1));
        assert_eq!(job.incumbents(), [(0, Setting::DEFAULT), (200, best)]);
        let median = |mut times: Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[50]
        };
        let measured = median(default_us) / median(best_us) - 1.0;
        assert!((measured - gap).abs() < 0.02, "{measured} {gap}");
    }

    #[test]
    fn equal_seeds_give_equal_steps_watched_or_not() {
        let surfaces = surfaces(Truth::HeldOut, 1.0, None).unwrap();
        let run = |seed, errors| Job::new(&surfaces[1], seed, errors).run_us(&Setting::OLD, 30);
        let errors = Some(Errors::draw(0.3, 5));
        assert_eq!(run(3, None), run(3, errors));
        assert_ne!(run(3, None), run(4, None));
    }
}
