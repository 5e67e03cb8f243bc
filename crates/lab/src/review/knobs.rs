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
use super::setting::{Setting, Switch, geometric, range};
use super::surface::Surface;
use super::trial::Search;
use crate::sweep::statistics::mean;

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
            Self::Switch(switch) => f64::from(u8::from(setting.switch(switch) == Some(true))),
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
    let of_knob = |knob: Knob| {
        let range = range(tried(knob));
        let levels = match knob {
            Knob::FusionMb => &fusion[..],
            Knob::CycleMs => &cycle,
            Knob::Switch(_) if range[0] < range[1] => &[0.0, 1.0],
            Knob::Switch(_) => &range[..1],
        };
        effect(knob, levels, range, &settings, &draws)
    };
    knobs.map(of_knob).collect()
}

/// Geometrically spaced levels over the values tried; one level if all values are equal. A value of
/// 0 is a separate regime and has no place on a logarithmic scale.
fn spaced(tried: impl Iterator<Item = f64>, levels: usize) -> Vec<f64> {
    let [low, high] = range(tried.filter(|value| *value > 0.0));
    match low {
        low if !low.is_finite() => vec![0.0],
        low if high <= low * 1.0001 => vec![high],
        _ => geometric([low, high], levels),
    }
}

fn effect(
    knob: Knob,
    levels: &[f64],
    range: [f64; 2],
    settings: &[Setting],
    draws: &[Vec<f64>],
) -> Effect {
    let with = |level: &f64| {
        let settings = (0..settings.len()).filter(|&index| knob.of(&settings[index]) == *level);
        settings.collect::<Vec<usize>>()
    };
    let members: Vec<Vec<usize>> = levels.iter().map(with).collect();
    // Mean of each surface at each level of the knob.
    let at = |draw: &[f64], of: &[usize]| mean(of.iter().map(|&index| draw[index]).collect());
    let main = |draw: &Vec<f64>| members.iter().map(|of| at(draw, of)).collect();
    let mains: Vec<Vec<f64>> = draws.iter().map(main).collect();
    let sum = |level: usize| mains.iter().map(|main| main[level]).sum();
    let sums: Vec<f64> = (0..levels.len()).map(sum).collect();
    let best = lowest(&sums);
    let worst = lowest(&sums.iter().map(|sum| -sum).collect::<Vec<_>>());
    let reach = Difference::of(mains.iter().map(|main| main[worst] - main[best]).collect());
    let shares = draws.iter().zip(&mains).map(|(draw, main)| {
        // A flat surface has no variance to share.
        let share = main.population_variance() / draw.population_variance();
        if share.is_finite() {
            share.min(1.0)
        } else {
            0.0
        }
    });
    Effect {
        knob,
        importance: match reach {
            _ if levels.len() < 2 => Importance::Fixed,
            Difference { low, .. } if low > MATTERS => Importance::Matters,
            Difference { high, .. } if high < DEAD => Importance::Dead,
            _ => Importance::Unclear,
        },
        range: if levels.len() < 2 {
            [levels[0]; 2]
        } else {
            range
        },
        best: levels[best],
        worst: levels[worst],
        reach,
        share: shares.mean(),
    }
}
