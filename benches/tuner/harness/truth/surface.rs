//! Surface: the true mean step time of every setting, its optimum, and steps drawn from it.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::foreign::Foreign;
use super::recorded::Recorded;
use super::setting::Setting;
use super::simulation::{Draws, Simulation, Unwatched};

/// Number of steps whose mean is a true step time, with evenly spaced phases.
const TRUE_STEPS: usize = 48;
/// The search for the optimum first uses every n-th of them...
const COARSE_STRIDE: usize = 6;
/// ...and all of them for settings at most this much above the lowest.
const COARSE_MARGIN: f64 = 1.04;
/// The grid: number of fusion thresholds besides 0, and of cycle times.
const FUSION_LEVELS: u32 = 31;
const CYCLE_LEVELS: u32 = 25;
/// Seed of the steps whose mean is a true step time: equal for every setting.
const TRUE_SEED: u64 = 12345;

/// Source of steps.
#[derive(Debug)]
pub(crate) enum Source {
    /// A simulation.
    Simulated(Box<Simulation>),
    /// A simulation by another program, of effects that no cost model has.
    Foreign(Box<Foreign>),
    /// Real runs.
    Recorded(Recorded),
}

/// A job on a machine, as a tuner measures it.
#[derive(Debug)]
pub(crate) struct Surface {
    pub(crate) name: String,
    pub(crate) source: Source,
    /// Standard deviation of ln(step time).
    pub(crate) sigma: f64,
    /// Whether step times also vary slowly (an AR(1) of 1 %).
    pub(crate) wanders: bool,
    draws: OnceLock<Vec<Draws>>,
    known: Mutex<HashMap<(u64, u64, bool, bool), f64>>,
    optimum: OnceLock<Optimum>,
}

/// Optimum of a surface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Optimum {
    pub(crate) setting: Setting,
    pub(crate) step_us: f64,
    /// Share of the grid within 3 % of it, and the worst of the grid as a multiple of it.
    pub(crate) near: f64,
    pub(crate) worst: f64,
}

impl Surface {
    pub(crate) fn new(name: String, source: Source, sigma: f64, wanders: bool) -> Self {
        Self {
            name,
            source,
            sigma,
            wanders,
            draws: OnceLock::new(),
            known: Mutex::default(),
            optimum: OnceLock::new(),
        }
    }

    /// Returns the simulation, if it is one.
    pub(crate) fn simulation(&self) -> Option<&Simulation> {
        match &self.source {
            Source::Simulated(simulation) => Some(simulation),
            Source::Foreign(_) | Source::Recorded(_) => None,
        }
    }

    /// Returns the true mean step time, µs.
    pub(crate) fn step_us(&self, setting: &Setting) -> f64 {
        let key = setting.key();
        let known = || self.known.lock().unwrap_or_else(|held| held.into_inner());
        if let Some(&step_us) = known().get(&key) {
            return step_us;
        }
        let step_us = self.mean_us(setting, 1);
        known().insert(key, step_us);
        step_us
    }

    /// Returns the true step time as a multiple of the best. On a recorded surface, 1 if the
    /// difference does not exceed chance.
    pub(crate) fn relative(&self, setting: &Setting) -> f64 {
        let relative = self.step_us(setting) / self.optimum().step_us;
        match &self.source {
            Source::Recorded(recorded) if relative < 1.0 + recorded.chance() => 1.0,
            _ => relative,
        }
    }

    fn mean_us(&self, setting: &Setting, stride: usize) -> f64 {
        let simulation = match &self.source {
            Source::Simulated(simulation) => simulation,
            Source::Foreign(foreign) => return foreign.mean_us(setting),
            Source::Recorded(recorded) => return recorded.step_us(setting),
        };
        let draws = self.draws.get_or_init(|| true_draws(simulation));
        let mut ready = Vec::new();
        let chosen = draws[stride / 2..].iter().step_by(stride);
        let count = chosen.len();
        let steps =
            chosen.map(|draws| simulation.step_us(setting, draws, &mut ready, &mut Unwatched));
        steps.sum::<f64>() / count as f64
    }

    /// Finds the best setting: of a grid of 32 x 25 x 4, of the tuners' own lattice for foreign
    /// jobs, or of the recorded ones.
    pub(crate) fn optimum(&self) -> Optimum {
        *self.optimum.get_or_init(|| self.search())
    }

    fn search(&self) -> Optimum {
        let grid = match &self.source {
            Source::Simulated(_) => grid(),
            Source::Foreign(_) => Setting::lattice(),
            Source::Recorded(recorded) => recorded.settings(),
        };
        let coarse: Vec<f64> = grid
            .iter()
            .map(|setting| self.mean_us(setting, COARSE_STRIDE))
            .collect();
        let lowest = coarse.iter().copied().fold(f64::INFINITY, f64::min);
        let mut best = (f64::INFINITY, Setting::DEFAULT);
        for (setting, _) in grid
            .iter()
            .zip(&coarse)
            .filter(|(_, coarse)| **coarse <= lowest * COARSE_MARGIN)
        {
            let step_us = self.step_us(setting);
            if step_us < best.0 {
                best = (step_us, *setting);
            }
        }
        let near = coarse
            .iter()
            .filter(|step_us| **step_us <= 1.03 * lowest)
            .count();
        Optimum {
            setting: best.1,
            step_us: best.0,
            near: near as f64 / grid.len() as f64,
            worst: coarse.iter().copied().fold(0.0, f64::max) / lowest,
        }
    }
}

fn true_draws(simulation: &Simulation) -> Vec<Draws> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(TRUE_SEED);
    let draws = (0..TRUE_STEPS).map(|step| {
        let mut draws = Draws::default();
        draws.redraw(simulation, &mut rng);
        draws.phase = (step as f64 + 0.5) / TRUE_STEPS as f64;
        draws
    });
    draws.collect()
}

/// Returns 32 thresholds, 25 cycle times, flat and hierarchical, with and without the cache.
fn grid() -> Vec<Setting> {
    let spaced = |index: u32, levels: u32| f64::from(index) / f64::from(levels - 1);
    let mut settings = Vec::new();
    for fusion in 0..=FUSION_LEVELS {
        let fusion = match fusion {
            0 => 0.0,
            level => 0.1 + 0.9 * spaced(level - 1, FUSION_LEVELS),
        };
        for cycle in 0..CYCLE_LEVELS {
            for (hierarchical, cache) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                settings.push(Setting {
                    hierarchical,
                    cache,
                    ..Setting::at(fusion, spaced(cycle, CYCLE_LEVELS))
                });
            }
        }
    }
    settings
}
