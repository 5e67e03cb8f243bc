//! Importance of the knobs: which knobs affect the step time, and which do not.
//!
//! Surfaces over the range that was tried, on logarithmic scales, are drawn from the posterior. In
//! each, the main effect of a knob is the mean over all other knobs. The knob's share is the
//! variance of its main effect, divided by the variance of the surface. Its reach is the step time
//! at its worst level relative to its best, both taken from the mean surface (I. Sobol',
//! Sensitivity Estimates for Nonlinear Mathematical Models, 1993).

use serde::Serialize;
use statrs::statistics::Statistics;

use super::best::{Difference, MATTERS, lowest};
use super::setting::{Setting, Switch};
use super::surface::Surface;
use super::trial::Search;
use crate::sweep::statistics::{by_value, mean};
use ronde_job::percentile::{geometric, range};

/// A knob is dead if its worst level is certainly slower than its best by less than this share.
const DEAD: f64 = 0.02;
/// Maximum number of settings on which surfaces are evaluated.
const SETTINGS_MOST: f64 = 400.0;
/// Maximum number of levels of a number: more levels add no information.
const LEVELS_MOST: usize = 13;

/// One knob of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Knob {
    /// Fusion threshold.
    FusionMb,
    /// Cycle time.
    CycleMs,
    /// Switch that is on or off.
    #[serde(untagged)]
    Switch(Switch),
}

impl Knob {
    fn of(self, setting: &Setting) -> f64 {
        match self {
            Self::FusionMb => setting.fusion_mb,
            Self::CycleMs => setting.cycle_ms,
            Self::Switch(switch) => f64::from(setting.switch(switch) == Some(true)),
        }
    }
}

/// Classification of a knob's importance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Importance {
    /// The knob certainly affects the step time.
    Matters,
    /// The knob certainly has no effect that matters.
    Dead,
    /// The trials are not sufficient to decide.
    Unclear,
    /// The knob had the same value in all trials.
    Fixed,
}

/// Effect of a knob over the range that was tried.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// The knob.
    pub knob: Knob,
    /// Its importance.
    pub importance: Importance,
    /// Least and largest value tried; 0 and 1 for a switch.
    pub range: [f64; 2],
    /// Level with the lowest step time.
    pub best: f64,
    /// Level with the highest step time.
    pub worst: f64,
    /// How much slower the worst level is than the best, averaged over the other knobs.
    pub reach: Difference,
    /// Mean share of the surface's variance.
    pub share: f64,
}

/// Returns the effects of all knobs in the log. `search` must have trials.
pub(super) fn effects(search: &Search, surface: &Surface) -> Vec<Effect> {
    let mut combinations = search.combinations();
    if search.varied().is_empty() {
        combinations.truncate(1);
    }
    let most = (SETTINGS_MOST / combinations.len() as f64).sqrt() as usize;
    let trials = &search.trials;
    let tried = |knob: Knob| trials.iter().map(move |trial| knob.of(&trial.setting));
    let levels = |knob| spaced(tried(knob), most.clamp(2, LEVELS_MOST));
    let (fusion, cycle) = (levels(Knob::FusionMb), levels(Knob::CycleMs));
    let grid = |switches: [Option<bool>; 4]| Setting::grid(&fusion, &cycle, switches);
    let settings: Vec<Setting> = combinations.into_iter().flat_map(grid).collect();
    let draws = surface.draws(&settings);
    let switches = search.switches.iter().copied().map(Knob::Switch);
    let knobs = [Knob::FusionMb, Knob::CycleMs].into_iter().chain(switches);
    let of_knob = |knob: Knob| effect(knob, range(tried(knob)), &settings, &draws);
    knobs.map(of_knob).collect()
}

/// Geometrically spaced levels over the values tried. A value of 0 is a separate regime and has no
/// place on a logarithmic scale; it is a level beside one other value, or alone.
fn spaced(tried: impl Iterator<Item = f64> + Clone, count: usize) -> Vec<f64> {
    let [low, high] = range(tried.clone().filter(|value| *value > 0.0));
    let mut levels = geometric([low, high], count);
    levels.retain(|level| level.is_finite()); // none without values above 0
    if levels.len() < 2 && tried.into_iter().any(|value| value <= 0.0) {
        levels.insert(0, 0.0);
    }
    levels
}

fn effect(knob: Knob, range: [f64; 2], settings: &[Setting], draws: &[Vec<f64>]) -> Effect {
    let values: Vec<f64> = settings.iter().map(|setting| knob.of(setting)).collect();
    let members = by_value(&values);
    // Mean of each surface at each level of the knob.
    let at = |draw: &[f64], of: &[usize]| mean(of.iter().map(|&index| draw[index]).collect());
    let main = |draw: &Vec<f64>| members.iter().map(|of| at(draw, of)).collect();
    let mains: Vec<Vec<f64>> = draws.iter().map(main).collect();
    let sum = |level: usize| mains.iter().map(|main| main[level]).sum();
    let sums: Vec<f64> = (0..members.len()).map(sum).collect();
    let best = lowest(&sums);
    let worst = lowest(&sums.iter().map(|sum| -sum).collect::<Vec<_>>());
    let reach = Difference::of(mains.iter().map(|main| main[worst] - main[best]).collect());
    let shares = draws.iter().zip(&mains).map(|(draw, main)| {
        let share = main.population_variance() / draw.population_variance();
        // A flat surface has no variance to share.
        if share.is_finite() {
            share.min(1.0)
        } else {
            0.0
        }
    });
    let level = |index: usize| values[members[index][0]];
    let fixed = members.len() < 2;
    Effect {
        knob,
        importance: match reach {
            _ if fixed => Importance::Fixed,
            Difference { low, .. } if low > MATTERS => Importance::Matters,
            Difference { high, .. } if high < DEAD => Importance::Dead,
            _ => Importance::Unclear,
        },
        range: if fixed { [level(0); 2] } else { range },
        best: level(best),
        worst: level(worst),
        reach,
        share: shares.mean(),
    }
}
