//! Noise of equal settings, from repeated trials, near neighbours and residuals.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde::Serialize;
use statrs::distribution::{ChiSquared, ContinuousCDF};
use statrs::statistics::Statistics;

use super::setting::Setting;
use super::surface::Surface;
use super::trial::{Search, Trial};
use ronde_job::percentile::percentile_of;

/// Distance of near settings, in logarithms.
const CELL: f64 = 0.01;
/// Maximum distance of neighbours, in logarithms of threshold and cycle time: a factor of 1.35.
const NEIGHBOURS: f64 = 0.3;
/// Maximum number of settings among which neighbours are searched, since every pair is compared.
const SETTINGS_MOST: usize = 600;
/// Minimum number of pairs of neighbours for an estimate.
const PAIRS_LEAST: u64 = 3;

/// Noise of a trial, as a fraction of its value.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Noise {
    /// From trials of (nearly) equal settings.
    pub replicates: Option<Scatter>,
    /// From pairs of nearest neighbours: includes a small part of the surface's slope.
    pub neighbours: Option<Scatter>,
    /// Residual noise of the fitted surface, in addition to the noise that the log states.
    pub fitted: Option<Scatter>,
    /// Median standard error that the log states for its trials.
    pub stated_sd: Option<f64>,
    /// The setting with the most trials, if any setting was repeated.
    pub most_often: Option<Repeated>,
}

/// Standard deviation, as a fraction, with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Scatter {
    /// Best estimate.
    pub sd: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Number of differences that it is estimated from.
    pub differences: u64,
}

/// A setting with several trials.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Repeated {
    /// The setting of its first trial.
    pub setting: Setting,
    /// Measured values, in order.
    pub values: Vec<f64>,
}

impl Noise {
    pub(super) fn of(search: &Search, groups: &[Vec<usize>], surface: Option<&Surface>) -> Self {
        let trials = &search.trials;
        let repeated = groups.iter().filter(|group| group.len() > 1);
        // Among equals, the first.
        let most = repeated.max_by_key(|group| (group.len(), Reverse(group[0])));
        let surface = surface.filter(|_| trials.len() > 2);
        let fitted = surface.map(Surface::noise).map(|noise| Scatter {
            sd: noise.sd,
            low: noise.low,
            high: noise.high,
            differences: trials.len() as u64,
        });
        let stated = trials.iter().filter_map(Trial::stated_sd).collect();
        Self {
            replicates: replicates(trials, groups),
            neighbours: neighbours(trials, groups),
            fitted,
            stated_sd: percentile_of(stated, 0.5),
            most_often: most.map(|group| Repeated {
                setting: trials[group[0]].setting,
                values: group.iter().map(|&index| trials[index].value).collect(),
            }),
        }
    }

    /// Returns the noise of the surface and that stated by the log, otherwise that of replicates.
    pub fn sd(&self) -> Option<f64> {
        let stated_sd = self.stated_sd.unwrap_or(0.0);
        let fitted = self.fitted.map(|fitted| fitted.sd.hypot(stated_sd));
        fitted.or(self.replicates.map(|replicates| replicates.sd))
    }
}

/// Indices of the trials of each setting, near ones together, in the order of their first trials.
pub(super) fn groups(trials: &[Trial]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut cells: HashMap<(i64, i64), Vec<usize>> = HashMap::new();
    let cell = |value: f64| (value.max(1e-9).ln() / CELL).floor() as i64;
    for (index, trial) in trials.iter().enumerate() {
        let (fusion, cycle) = (cell(trial.setting.fusion_mb), cell(trial.setting.cycle_ms));
        let around = (-1..=1).flat_map(|x| (-1..=1).map(move |y| (fusion + x, cycle + y)));
        let near = |group: &&usize| trials[groups[**group][0]].setting.is_near(&trial.setting);
        let mut around = around.filter_map(|place| cells.get(&place)).flatten();
        match around.find(near).copied() {
            Some(group) => groups[group].push(index),
            None => {
                cells.entry((fusion, cycle)).or_default().push(groups.len());
                groups.push(vec![index]);
            }
        }
    }
    groups
}

fn replicates(trials: &[Trial], groups: &[Vec<usize>]) -> Option<Scatter> {
    let (mut squares, mut freedom) = (0.0, 0);
    for group in groups.iter().filter(|group| group.len() > 1) {
        let logs = group.iter().map(|&index| trials[index].log);
        squares += group.len() as f64 * logs.population_variance();
        freedom += group.len() as u64 - 1;
    }
    scatter(squares, freedom)
}

/// Half the mean square of the differences between neighbours.
fn neighbours(trials: &[Trial], groups: &[Vec<usize>]) -> Option<Scatter> {
    let firsts = groups.iter().map(|group| &trials[group[0]]);
    let firsts: Vec<&Trial> = firsts.take(SETTINGS_MOST).collect();
    let ratio = |a: f64, b: f64| (a.max(1e-9) / b.max(1e-9)).ln();
    let distance = |a: &Setting, b: &Setting| {
        ratio(a.fusion_mb, b.fusion_mb).hypot(ratio(a.cycle_ms, b.cycle_ms))
    };
    let (mut squares, mut pairs) = (0.0, 0);
    for (index, one) in firsts.iter().enumerate() {
        let alike = |other: &&&Trial| other.setting.switches == one.setting.switches;
        let before = firsts[..index].iter().filter(alike);
        let before = before.map(|other| (distance(&one.setting, &other.setting), other));
        let nearest = before.min_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((_, other)) = nearest.filter(|(distance, _)| *distance <= NEIGHBOURS) {
            squares += 0.5 * (one.log - other.log).powi(2);
            pairs += 1;
        }
    }
    scatter(squares, pairs).filter(|_| pairs >= PAIRS_LEAST)
}

/// Standard deviation of normal deviations with this sum of squares.
fn scatter(squares: f64, freedom: u64) -> Option<Scatter> {
    let distribution = ChiSquared::new(freedom as f64).ok()?; // with a degree of freedom
    let end = |share: f64| (squares / distribution.inverse_cdf(share)).sqrt();
    Some(Scatter {
        sd: (squares / freedom as f64).sqrt(),
        low: end(0.975),
        high: end(0.025),
        differences: freedom,
    })
}
