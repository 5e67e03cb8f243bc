//! Lattice of settings over the range that was tried, on which the surfaces are evaluated.

use crate::review::setting::Setting;
use crate::review::surface::Surface;
use crate::review::trial::Search;

/// Maximum number of settings in the lattice.
const LATTICE_MOST: f64 = 400.0;
/// Maximum number of levels of a number: more levels add no information.
const LEVELS_MOST: usize = 13;

/// Settings on which surfaces are evaluated.
pub(super) struct Lattice {
    pub(super) fusion: Vec<f64>,
    pub(super) cycle: Vec<f64>,
    /// Ranges of the two numbers that were tried.
    pub(super) tried: [[f64; 2]; 2],
    pub(super) settings: Vec<Setting>,
}

impl Lattice {
    pub(super) fn new(search: &Search, surface: &Surface) -> Self {
        let mut combinations: Vec<[Option<bool>; 4]> = Vec::new();
        for trial in &search.trials {
            if !combinations.contains(&trial.setting.switches) {
                combinations.push(trial.setting.switches);
            }
        }
        if surface.varied().is_empty() {
            combinations.truncate(1);
        }
        let levels = (LATTICE_MOST / combinations.len() as f64).sqrt() as usize;
        let levels = levels.clamp(2, LEVELS_MOST);
        let values = |of: &dyn Fn(&Setting) -> f64| -> Vec<f64> {
            search
                .trials
                .iter()
                .map(|trial| of(&trial.setting))
                .collect()
        };
        let tried = [
            values(&|setting| setting.fusion_mb),
            values(&|setting| setting.cycle_ms),
        ];
        let [fusion, cycle] = [0, 1].map(|knob| spaced(&tried[knob], levels));
        let tried = tried.map(|values| range(values.into_iter()));
        let mut settings = Vec::new();
        for &switches in &combinations {
            for &fusion_mb in &fusion {
                settings.extend(cycle.iter().map(|&cycle_ms| Setting {
                    fusion_mb,
                    cycle_ms,
                    switches,
                }));
            }
        }
        Self {
            fusion,
            cycle,
            tried,
            settings,
        }
    }
}

/// Geometrically spaced levels over the values tried; one level if all values are equal. A value of
/// 0 is a separate regime and has no place on a logarithmic scale.
fn spaced(tried: &[f64], levels: usize) -> Vec<f64> {
    let [low, high] = range(tried.iter().copied().filter(|value| *value > 0.0));
    if !low.is_finite() {
        return vec![0.0];
    }
    if high <= low * 1.0001 {
        return vec![high];
    }
    let ratio = (high / low).ln() / (levels - 1) as f64;
    (0..levels)
        .map(|level| low * (ratio * level as f64).exp())
        .collect()
}

fn range(values: impl Iterator<Item = f64>) -> [f64; 2] {
    values.fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], value| {
        [low.min(value), high.max(value)]
    })
}
