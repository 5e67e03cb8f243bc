//! Predictions: a grid of settings for each network and number of ranks.

use serde::Serialize;

use super::args::{Args, Switch};
use super::error::Error;
use super::job::{CYCLE_TIME, Job, THRESHOLD};
use crate::range::List;
use ronde_job::replay::network::{Target, Topology};
use ronde_job::replay::{Forecast, Prediction, Ratio, Rules, Setting};

/// Default grid, in MiB and ms.
const FUSION_MB: [f64; 10] = [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
const CYCLE_MS: [f64; 7] = [0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0];
/// Most predictions of one run.
const MOST: usize = 1 << 16;
/// Smallest relative gain that justifies a change. Among the settings this close to the best, the
/// one most similar to the setting in force is chosen.
pub(super) const NEARLY: f64 = 0.002;

const MIB: f64 = 1048576.0;

/// All predictions of one run.
#[derive(Debug, Serialize)]
pub(super) struct Outlook {
    /// One element for each network and number of ranks.
    pub(super) targets: Vec<At>,
}

/// Predictions for one network and number of ranks.
#[derive(Debug, Serialize)]
pub(super) struct At {
    pub(super) ranks: u32,
    pub(super) hosts: u32,
    /// Name of the network; `None` for the recorded network.
    pub(super) network: Option<String>,
    /// Assumptions of the prediction.
    pub(super) assumptions: Vec<String>,
    /// Prediction for the setting in force.
    pub(super) current: Cell,
    /// Scaling efficiency: step time of one rank divided by that of all ranks.
    pub(super) efficiency: f64,
    /// Best settings; `None`, and no field in JSON, if the data do not support a recommendation.
    #[serde(flatten)]
    pub(super) choice: Option<Choice>,
    /// Grid, ordered by the booleans, then by threshold, then by cycle time.
    pub(super) cells: Vec<Cell>,
}

/// Best settings for one network and number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Choice {
    /// Prediction for the best setting of the grid, or for the one in force if none is better.
    pub(super) best: Cell,
    /// Step time of the best setting relative to that of the setting in force.
    pub(super) change: Change,
    /// Best flat and best hierarchical setting, if both were tried.
    pub(super) flat: Option<Cell>,
    pub(super) hierarchical: Option<Cell>,
    /// Scaling efficiency with the best setting.
    pub(super) efficiency_best: f64,
}

/// Setting with its prediction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(into = "CellDocument")]
pub(super) struct Cell {
    /// Whether the threshold and the cycle time are assumed, because the recording does not state
    /// them.
    pub(super) assumed: [bool; 2],
    pub(super) fusion_threshold_bytes: u64,
    pub(super) cycle_time_ms: f64,
    pub(super) hierarchical: bool,
    pub(super) cache: bool,
    pub(super) step_ms: f64,
    pub(super) low_ms: f64,
    pub(super) high_ms: f64,
}

/// Cell in JSON: an assumed value is null.
#[derive(Serialize)]
struct CellDocument {
    fusion_threshold_bytes: Option<u64>,
    cycle_time_ms: Option<f64>,
    hierarchical: bool,
    cache: bool,
    step_ms: f64,
    low_ms: f64,
    high_ms: f64,
}

impl From<Cell> for CellDocument {
    fn from(cell: Cell) -> Self {
        let [threshold, cycle] = cell.assumed;
        Self {
            fusion_threshold_bytes: (!threshold).then_some(cell.fusion_threshold_bytes),
            cycle_time_ms: (!cycle).then_some(cell.cycle_time_ms),
            hierarchical: cell.hierarchical,
            cache: cell.cache,
            step_ms: cell.step_ms,
            low_ms: cell.low_ms,
            high_ms: cell.high_ms,
        }
    }
}

/// Relative change of the step time: ratio minus one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Change {
    pub(super) median: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl From<Ratio> for Change {
    fn from(ratio: Ratio) -> Self {
        Self {
            median: ratio.median - 1.0,
            low: ratio.low - 1.0,
            high: ratio.high - 1.0,
        }
    }
}

impl At {
    /// Combinations of the booleans in the grid: hierarchical and cache.
    pub(super) fn kinds(&self) -> Vec<(bool, bool)> {
        let mut kinds: Vec<_> = self
            .cells
            .iter()
            .map(|cell| (cell.hierarchical, cell.cache))
            .collect();
        kinds.dedup();
        kinds
    }

    /// Whether `cell` has the recommended setting.
    pub(super) fn is_best(&self, cell: &Cell) -> bool {
        self.choice
            .is_some_and(|choice| cell.is_setting_of(&choice.best))
    }

    /// Cells with this combination of the booleans.
    pub(super) fn cells_of(&self, kind: (bool, bool)) -> Vec<&Cell> {
        let cells = self.cells.iter();
        cells
            .filter(|cell| (cell.hierarchical, cell.cache) == kind)
            .collect()
    }
}

impl Cell {
    fn new(setting: &Setting, prediction: Prediction) -> Self {
        Self {
            assumed: [false; 2],
            fusion_threshold_bytes: setting.fusion_threshold_bytes,
            cycle_time_ms: setting.cycle_us / 1e3,
            hierarchical: setting.hierarchical,
            cache: setting.cache,
            step_ms: prediction.step_us / 1e3,
            low_ms: prediction.low_us / 1e3,
            high_ms: prediction.high_us / 1e3,
        }
    }

    pub(super) fn setting(&self) -> Setting {
        Setting {
            fusion_threshold_bytes: self.fusion_threshold_bytes,
            cycle_us: self.cycle_time_ms * 1e3,
            hierarchical: self.hierarchical,
            hierarchical_allgather: false,
            cache: self.cache,
        }
    }

    /// Fusion threshold in MiB.
    pub(super) fn fusion_mb(&self) -> f64 {
        self.fusion_threshold_bytes as f64 / MIB
    }

    /// Whether both cells have the same setting, whatever their predictions.
    pub(super) fn is_setting_of(&self, other: &Self) -> bool {
        self.setting() == other.setting() && self.assumed == other.assumed
    }

    /// Distance of two settings: by the number of changed knobs, then by the size of the changes.
    fn distance(&self, other: &Self) -> f64 {
        let ratio = |a: f64, b: f64| (a.max(1e-2) / b.max(1e-2)).ln().abs();
        let flags = u32::from(self.hierarchical != other.hierarchical)
            + u32::from(self.cache != other.cache);
        let (fusion, cycle) = (
            ratio(self.fusion_mb(), other.fusion_mb()),
            ratio(self.cycle_time_ms, other.cycle_time_ms),
        );
        let changed = f64::from(u32::from(fusion > 0.0) + u32::from(cycle > 0.0) + flags);
        10.0 * changed + fusion + cycle
    }
}

/// Predicts the step times for all settings, networks and numbers of ranks in `args`.
///
/// # Errors
/// [`Error::Project`] and [`Error::TooMany`].
pub(super) fn outlook(job: &Job, args: &Args) -> Result<Outlook, Error> {
    let targets = targets(job, args);
    let rules = match args.early {
        Some(early) => Rules {
            early: early == Switch::On,
            ..job.fit.rules
        },
        None => job.fit.rules,
    };
    let at = |target: &Target| {
        let settings = settings(job, args, target);
        let count = settings.len() * targets.len();
        if count > MOST {
            return Err(Error::TooMany {
                settings: settings.len(),
                targets: targets.len(),
                most: MOST,
            });
        }
        at(job, target, rules, &settings)
    };
    Ok(Outlook {
        targets: targets.iter().map(at).collect::<Result<_, _>>()?,
    })
}

fn targets(job: &Job, args: &Args) -> Vec<Target> {
    let place = &job.fit.place;
    let ranks = if args.ranks.is_empty() {
        vec![place.ranks]
    } else {
        args.ranks.clone()
    };
    let networks: Vec<_> = match &args.network {
        Some(networks) => networks.0.iter().cloned().map(Some).collect(),
        None => vec![None],
    };
    let mut targets = Vec::new();
    for network in networks {
        for &ranks in &ranks {
            let per_host = match (args.hosts, args.ranks_per_host) {
                (Some(hosts), _) => ranks.div_ceil(hosts),
                (None, Some(per_host)) => per_host,
                // A network connects hosts. A job that was recorded on one host is therefore
                // predicted with one rank on each host, unless the user states the ranks on each
                // host.
                (None, None) if network.is_some() && ranks <= place.ranks_per_host => 1,
                (None, None) => place.ranks_per_host,
            };
            targets.push(Target {
                topology: Topology::new(ranks, per_host),
                network: network.clone(),
                local: args.local_network.clone(),
                algorithm: args.algorithm.into(),
            });
        }
    }
    targets
}

fn settings(job: &Job, args: &Args, target: &Target) -> Vec<Setting> {
    let current = &job.fit.reference;
    let own = |given: &Option<List>, default: &[f64], now: Option<f64>| match given {
        Some(list) => list.values.clone(),
        None => {
            let mut values: Vec<f64> = default.iter().copied().chain(now).collect();
            values.sort_by(f64::total_cmp);
            values.dedup();
            values
        }
    };
    let fusion = own(
        &args.fusion_mb,
        &FUSION_MB,
        job.states(THRESHOLD)
            .then_some(current.fusion_threshold_bytes as f64 / MIB),
    );
    let cycles = own(
        &args.cycle_ms,
        &CYCLE_MS,
        job.states(CYCLE_TIME).then_some(current.cycle_us / 1e3),
    );
    let switches = |given: &[Switch], default: &[bool]| {
        let mut switches: Vec<bool> = given.iter().map(|&switch| switch == Switch::On).collect();
        if switches.is_empty() {
            switches = default.to_vec();
        }
        switches.sort_unstable();
        switches.dedup();
        switches
    };
    let hierarchy = target.topology.hosts() > 1 && target.topology.ranks_per_host > 1;
    let both: &[bool] = if hierarchy { &[false, true] } else { &[false] };
    let mut settings = Vec::new();
    for &hierarchical in &switches(&args.hierarchical, both) {
        for &cache in &switches(&args.cache, &[current.cache]) {
            for &fusion_mb in &fusion {
                for &cycle_ms in &cycles {
                    settings.push(Setting {
                        fusion_threshold_bytes: (fusion_mb * MIB).round() as u64,
                        cycle_us: cycle_ms * 1e3,
                        hierarchical,
                        hierarchical_allgather: false,
                        cache,
                    });
                }
            }
        }
    }
    settings
}

fn at(job: &Job, target: &Target, rules: Rules, settings: &[Setting]) -> Result<At, Error> {
    let fit = &job.fit;
    let mut forecast = Forecast::new(fit, target, rules)?;
    let current = Cell {
        assumed: [!job.states(THRESHOLD), !job.states(CYCLE_TIME)],
        ..Cell::new(&fit.reference, forecast.predict(&fit.reference))
    };
    let cells: Vec<Cell> = settings
        .iter()
        .map(|setting| Cell::new(setting, forecast.predict(setting)))
        .collect();
    let best_of = |wanted: &dyn Fn(&Cell) -> bool| {
        let of = || cells.iter().chain([&current]).filter(|cell| wanted(cell));
        let least = of().map(|cell| cell.step_ms).fold(f64::INFINITY, f64::min);
        of().filter(|cell| cell.step_ms <= least * (1.0 + NEARLY))
            .min_by(|a, b| a.distance(&current).total_cmp(&b.distance(&current)))
            .copied()
    };
    let best = best_of(&|_| true).unwrap_or(current);
    let both =
        cells.iter().any(|cell| cell.hierarchical) && cells.iter().any(|cell| !cell.hierarchical);
    let kind =
        |hierarchical: bool| best_of(&|cell| cell.hierarchical == hierarchical).filter(|_| both);
    let alone = Target {
        topology: Topology::new(1, 1),
        ..target.clone()
    };
    let alone_ms = Forecast::new(fit, &alone, rules)?
        .predict(&fit.reference)
        .step_us
        / 1e3;
    let choice = job.withheld().is_none().then(|| Choice {
        change: forecast.ratio(&best.setting(), &fit.reference).into(),
        flat: kind(false),
        hierarchical: kind(true),
        efficiency_best: alone_ms / best.step_ms,
        best,
    });
    Ok(At {
        ranks: target.topology.ranks,
        hosts: target.topology.hosts(),
        network: target.network.as_ref().map(|network| network.name.clone()),
        assumptions: target.assumptions(&fit.place),
        efficiency: alone_ms / current.step_ms,
        current,
        choice,
        cells,
    })
}
