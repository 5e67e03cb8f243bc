//! Suggestion of the next setting to try, if any.

use serde::Serialize;

use super::best::{Best, Difference};
use super::setting::Setting;
use super::surface::Surface;

/// Expected improvement, in log step time, from which a setting is worth trying, as in the tuner.
const WORTH: f64 = 0.005;
/// Settings with this share of the largest expected improvement count as equally promising.
const NEARLY: f64 = 0.8;
/// Relative difference that trials should detect: 5 % false positives, 20 % false negatives.
const DIFFERENCE: f64 = 0.02;
const ERRORS: f64 = 1.96 + 0.8416;

/// Suggestion of the next step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Next {
    /// The most promising setting; `None` if no setting is worth trying.
    pub setting: Option<Setting>,
    /// Expected improvement over the favourite: mean over all possible results, where a loss counts
    /// as 0 because a slower setting is not kept; as a share.
    pub improvement: f64,
    /// Step time of the setting relative to the favourite's: a loss counts as well.
    pub difference: Difference,
    /// Probability that the setting is faster than the favourite.
    pub probability: f64,
    /// Trials of each of two settings that detect a difference of 2 % between them.
    pub trials_to_tell: Option<u64>,
}

impl Next {
    pub(super) fn of(best: &Best, surface: &Surface, noise_sd: Option<f64>) -> Self {
        let favourite = best.favourite.setting;
        let mut settings = vec![favourite];
        settings.extend(surface.lattice(favourite.switches));
        let draws = surface.draws(&settings);
        let count = draws.len().max(1) as f64;
        let promise = |place: usize| {
            let gains = draws.iter().map(|draw| draw[0] - draw[place]);
            let gains: Vec<f64> = gains.filter(|gain| *gain > 0.0).collect();
            (
                gains.iter().sum::<f64>() / count,
                gains.len() as f64 / count,
            )
        };
        let promise: Vec<(f64, f64)> = (0..settings.len()).map(promise).collect();
        let most = promise.iter().map(|(gain, _)| *gain).fold(0.0, f64::max);
        // Far from all trials any result is possible: of the equally promising settings, the
        // nearest.
        let near = (1..settings.len()).filter(|place| promise[*place].0 >= NEARLY * most);
        let distance = |place: &usize| surface.distance(&favourite, &settings[*place]);
        let nearest = near.min_by(|a, b| distance(a).total_cmp(&distance(b)));
        let chosen = nearest.unwrap_or(0);
        let (improvement, probability) = promise[chosen];
        let differences = draws.iter().map(|draw| draw[chosen] - draw[0]);
        Self {
            setting: (improvement >= WORTH).then_some(settings[chosen]),
            improvement,
            difference: Difference::of(differences.collect()),
            probability,
            trials_to_tell: noise_sd.map(trials_to_tell),
        }
    }
}

fn trials_to_tell(sd: f64) -> u64 {
    (2.0 * (ERRORS * sd / DIFFERENCE).powi(2)).ceil().max(1.0) as u64
}
