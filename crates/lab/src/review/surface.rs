//! Response surface of a search: the tuner's surrogate, fitted to all trials.

use ronde_tuner::{Expectation, NoiseEstimate, Parameter, Point, Posterior, Seen, Space};

use super::setting::{Setting, Switch};
use super::trial::{Search, Trial};
use ronde_job::percentile::range;

/// Ranges of the lattice that Ronde's tuner searches; a log with other values widens them.
const FUSION_MB: [f64; 2] = [1.0 / 16.0, 256.0];
const CYCLE_MS: [f64; 2] = [0.1, 100.0];
const FUSION_LEVELS: usize = 16;
const CYCLE_LEVELS: usize = 13;
/// Smaller numbers are treated as 0: they need no decades of their own on a logarithmic scale.
const LEAST: f64 = 1e-3;
/// Number of surfaces drawn to estimate a probability; its error is then about one percent.
const DRAWS: usize = 2000;

/// Posterior of the step time of every setting, after all trials.
#[derive(Clone, Debug)]
pub struct Surface {
    posterior: Posterior,
    varied: Vec<Switch>,
    /// A setting in the space.
    template: Setting,
}

impl Surface {
    pub(super) fn fit(search: &Search) -> Option<Self> {
        let template = search.trials.last()?.setting;
        let varied = search.varied();
        let space = space(&search.trials, &varied)?;
        let seen = |trial: &Trial| {
            Some(Seen {
                point: point(&space, &varied, &trial.setting)?,
                log_time: trial.log,
                variance: trial.variance(),
            })
        };
        let seen: Vec<Seen> = search.trials.iter().filter_map(seen).collect();
        Some(Self {
            posterior: Posterior::fit(space, &seen)?,
            varied,
            template,
        })
    }

    /// Returns the noise of a trial, as a fraction, in addition to that stated by the log.
    pub(super) fn noise(&self) -> NoiseEstimate {
        self.posterior.noise()
    }

    /// Returns the expected ln(step time) of `settings`, up to a constant that all trials share.
    pub fn at(&self, settings: &[Setting]) -> Vec<Expectation> {
        self.posterior.at(&self.points(settings))
    }

    /// Draws surfaces from the posterior, each with a value for every one of `settings`.
    pub(super) fn draws(&self, settings: &[Setting]) -> Vec<Vec<f64>> {
        self.posterior.draws(&self.points(settings), DRAWS, 1)
    }

    /// Draws the difference of ln(step time) between two settings: `second` less `first`.
    pub(super) fn differences(&self, first: Setting, second: Setting) -> Vec<f64> {
        let draws = self.draws(&[first, second]).into_iter();
        draws.map(|draw| draw[1] - draw[0]).collect()
    }

    /// Returns the lattice of settings with these switches that may be tried next.
    pub(super) fn lattice(&self, switches: [Option<bool>; 4]) -> Vec<Setting> {
        let parameters = self.posterior.space().parameters();
        Setting::grid(&parameters[0].levels(), &parameters[1].levels(), switches)
    }

    /// Distance of two settings, where the lattice spans about 0 to 1.
    pub(super) fn distance(&self, a: &Setting, b: &Setting) -> f64 {
        let (points, space) = (self.points(&[*a, *b]), self.posterior.space());
        let [a, b] = [0, 1].map(|index| space.coordinates(&points[index]));
        let squares = a.iter().zip(&b).map(|(a, b)| (a - b).powi(2));
        squares.sum::<f64>().sqrt()
    }

    /// Converts settings to points; switches that did not vary are omitted.
    fn points(&self, settings: &[Setting]) -> Vec<Point> {
        let space = self.posterior.space();
        let point = |setting: &Setting| {
            let found = point(space, &self.varied, setting);
            // A setting outside of the space is replaced by the template, which lies in the space.
            found.or_else(|| point(space, &self.varied, &self.template))
        };
        settings.iter().filter_map(point).collect()
    }
}

fn space(trials: &[Trial], varied: &[Switch]) -> Option<Space> {
    let numbers = |name: &str, bounds: [f64; 2], levels: usize, of: fn(&Setting) -> f64| {
        let values = trials.iter().map(|trial| of(&trial.setting));
        let [low, high] = range(values.filter(|value| *value > 0.0).chain(bounds));
        Parameter::log(name, low.max(LEAST), high, levels)
    };
    let fusion = numbers("fusion_mb", FUSION_MB, FUSION_LEVELS, |of| of.fusion_mb);
    let mut cycle = numbers("cycle_ms", CYCLE_MS, CYCLE_LEVELS, |of| of.cycle_ms);
    // A threshold of 0 is a separate regime; a cycle time of 0 is one only if the log contains it.
    if trials.iter().any(|trial| trial.setting.cycle_ms <= 0.0) {
        cycle = cycle.with_zero();
    }
    let mut parameters = vec![fusion.with_zero(), cycle];
    let switch = |switch: &Switch| Parameter::boolean(switch.column());
    parameters.extend(varied.iter().map(switch));
    Space::new(parameters).ok()
}

fn point(space: &Space, varied: &[Switch], setting: &Setting) -> Option<Point> {
    let switch = |switch: &Switch| f64::from(setting.switch(*switch).unwrap_or(false));
    let mut values = vec![setting.fusion_mb, setting.cycle_ms];
    values.extend(varied.iter().map(switch));
    space.point(&values).ok()
}
