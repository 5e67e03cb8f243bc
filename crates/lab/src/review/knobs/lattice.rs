//! Lattice of settings over the range that was tried, on which the surfaces are evaluated.

use crate::review::setting::{Setting, geometric, range};
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
    pub(super) settings: Vec<Setting>,
}

impl Lattice {
    pub(super) fn new(search: &Search, surface: &Surface) -> Self {
        let mut combinations = search.combinations();
        if surface.varied().is_empty() {
            combinations.truncate(1);
        }
        let levels = (LATTICE_MOST / combinations.len() as f64).sqrt() as usize;
        let levels = levels.clamp(2, LEVELS_MOST);
        let settings = || search.trials.iter().map(|trial| trial.setting);
        let fusion = spaced(settings().map(|setting| setting.fusion_mb), levels);
        let cycle = spaced(settings().map(|setting| setting.cycle_ms), levels);
        let grid = |switches: [Option<bool>; 4]| Setting::grid(&fusion, &cycle, switches);
        Self {
            settings: combinations.into_iter().flat_map(grid).collect(),
            fusion,
            cycle,
        }
    }
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
