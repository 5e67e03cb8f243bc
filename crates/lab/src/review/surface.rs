//! Response surface of a search: the tuner's surrogate, fitted to all trials.

use ronde_tuner::{Expectation, NoiseEstimate, Parameter, Point, Posterior, Seen, Space};
use statrs::statistics::Statistics;

use super::setting::{Setting, Switch};
use super::trial::{Search, Trial};

/// Range of fusion thresholds in the lattice that Ronde's tuner searches, MiB; it is widened if the
/// log has values outside of it.
const FUSION_MB: (f64, f64) = (1.0 / 16.0, 256.0);
const CYCLE_MS: (f64, f64) = (0.1, 100.0);
/// Number of levels of the fusion threshold in the lattice.
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
    /// Switches among the parameters, after the two numbers.
    varied: Vec<Switch>,
    /// Setting from which the switches that did not vary are copied.
    template: Setting,
}

impl Surface {
    /// Fits the surrogate; `None` without trials.
    pub(super) fn fit(search: &Search) -> Option<Self> {
        let template = search.trials.last()?.setting;
        let varied = search.varied();
        let surface_space = space(&search.trials, &varied)?;
        let seen = search.trials.iter().filter_map(|trial| {
            Some(Seen {
                point: point(&surface_space, &varied, &trial.setting)?,
                log_time: trial.log,
                variance: trial.variance,
            })
        });
        let seen: Vec<Seen> = seen.collect();
        let posterior = Posterior::fit(surface_space, &seen)?;
        Some(Self {
            posterior,
            varied,
            template,
        })
    }

    /// Returns the switches that were tried both on and off.
    pub fn varied(&self) -> &[Switch] {
        &self.varied
    }

    /// Returns the estimated noise of a trial, as a fraction, in addition to the noise stated in
    /// the log.
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

    /// Returns the lattice of settings with these switches that may be tried next.
    pub(super) fn lattice(&self, switches: [Option<bool>; 4]) -> Vec<Setting> {
        let parameters = self.posterior.space().parameters();
        Setting::grid(&parameters[0].levels(), &parameters[1].levels(), switches)
    }

    /// Distance of two settings in the coordinates of the surface, where the lattice of each number
    /// spans about 0 to 1.
    pub(super) fn distance(&self, a: &Setting, b: &Setting) -> f64 {
        let space = self.posterior.space();
        let [a, b] = &self.points(&[*a, *b])[..] else {
            return f64::INFINITY;
        };
        let (a, b) = (space.coordinates(a), space.coordinates(b));
        let squares = a.iter().zip(&b).map(|(a, b)| (a - b).powi(2));
        squares.sum::<f64>().sqrt()
    }

    /// Converts settings to points; switches that did not vary are copied from the template.
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
    let numbers = |name: &str, bounds: (f64, f64), levels: usize, of: fn(&Setting) -> f64| {
        let values = trials.iter().map(|trial| of(&trial.setting));
        let above = values.filter(|value| *value > 0.0);
        let (low, high) = above.fold(bounds, |(low, high), value| {
            (low.min(value), high.max(value))
        });
        Parameter::log(name, low.max(LEAST), high, levels)
    };
    let fusion = numbers("fusion_mb", FUSION_MB, FUSION_LEVELS, |of| of.fusion_mb);
    let cycle = numbers("cycle_ms", CYCLE_MS, CYCLE_LEVELS, |of| of.cycle_ms);
    // A threshold of 0 is a separate regime; a cycle time of 0 is one only if the log contains it.
    let stops = trials.iter().any(|trial| trial.setting.cycle_ms <= 0.0);
    let mut parameters = vec![
        fusion.with_zero(),
        if stops { cycle.with_zero() } else { cycle },
    ];
    let switches = varied.iter().map(|switch| switch.column());
    parameters.extend(switches.map(Parameter::boolean));
    Space::new(parameters).ok()
}

fn point(space: &Space, varied: &[Switch], setting: &Setting) -> Option<Point> {
    let switch = |switch: &Switch| f64::from(u8::from(setting.switch(*switch).unwrap_or(false)));
    let mut values = vec![setting.fusion_mb, setting.cycle_ms];
    values.extend(varied.iter().map(switch));
    space.point(&values).ok()
}

/// Mean and 95 % interval of `values`, which must not be empty.
pub(super) fn interval(mut values: Vec<f64>) -> (f64, [f64; 2]) {
    let mean = (&values).mean();
    values.sort_by(f64::total_cmp);
    let end = |share: f64| ronde_job::percentile::percentile(&values, share).unwrap_or(f64::NAN);
    (mean, [end(0.025), end(0.975)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::trial::tests::{HOROVOD, read};

    #[test]
    fn a_surface_over_what_varied() {
        // Thresholds from 1 to 64 MB at 1 and 8 ms, 10 % faster with hierarchical allreduce.
        let mut rows = String::new();
        for on in [0, 1] {
            for fusion in [1, 4, 16, 64] {
                for cycle in [1, 8] {
                    let score = 500.0 + 20.0 * f64::from(fusion).ln() + 50.0 * f64::from(on);
                    rows += &format!("{on},0,0, 1,{cycle},{fusion},{score}\n");
                }
            }
        }
        let search = &read(HOROVOD, &rows)[0];
        let surface = Surface::fit(search).unwrap();
        assert_eq!(surface.varied(), [Switch::HierarchicalAllreduce]);
        let flat = search.trials[6].setting;
        let mut hierarchical = flat;
        hierarchical.switches[0] = Some(true);
        let expected = surface.at(&[flat, hierarchical]);
        let gain = expected[0].mean - expected[1].mean;
        assert!((gain - (633.2f64 / 583.2).ln()).abs() < 0.02, "{gain}");
        let lattice = surface.lattice(flat.switches);
        assert_eq!(
            (lattice.len(), lattice[0].fusion_mb, lattice[0].cycle_ms),
            (17 * 13, 0.0, 0.1)
        );
    }

    #[test]
    fn intervals_by_hand() {
        let (mean, [low, high]) = interval((0..=1000).map(f64::from).collect());
        assert_eq!((mean, low, high), (500.0, 25.0, 975.0));
    }
}
