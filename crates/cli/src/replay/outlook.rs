//! Predictions: a grid of settings for each network and number of ranks.

use serde::Serialize;

use super::args::Args;
use super::job::{CYCLE_TIME, Job, THRESHOLD};
use crate::error::Error;
use crate::range::List;
use ronde_job::point::Point;
use ronde_job::replay::network::{Target, Topology};
use ronde_job::replay::{Forecast, Prediction, Ratio, Rules};

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
    pub(super) point: Point,
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
        let ([threshold, cycle], point) = (cell.assumed, cell.point);
        Self {
            fusion_threshold_bytes: (!threshold).then_some(point.fusion_threshold_bytes),
            cycle_time_ms: (!cycle).then_some(point.cycle_time_ms),
            hierarchical: point.hierarchical_allreduce,
            cache: point.cache,
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
        let mut kinds: Vec<_> = self.cells.iter().map(Cell::kind).collect();
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
        cells.filter(|cell| cell.kind() == kind).collect()
    }
}

impl Cell {
    fn new(point: Point, prediction: Prediction) -> Self {
        Self {
            assumed: [false; 2],
            point,
            step_ms: prediction.step_us / 1e3,
            low_ms: prediction.low_us / 1e3,
            high_ms: prediction.high_us / 1e3,
        }
    }

    /// Booleans of the setting: hierarchical and cache.
    fn kind(&self) -> (bool, bool) {
        (self.point.hierarchical_allreduce, self.point.cache)
    }

    /// Whether both cells have the same setting, whatever their predictions.
    pub(super) fn is_setting_of(&self, other: &Self) -> bool {
        (self.point, self.assumed) == (other.point, other.assumed)
    }
}

/// Predicts the step times for all settings, networks and numbers of ranks in `args`.
pub(super) fn outlook(job: &Job, args: &Args) -> Result<Outlook, Error> {
    let targets = targets(job, args)?;
    if job.is_hierarchical {
        let given = [
            ("--hierarchical", !args.hierarchical.is_empty()),
            ("--ranks", !args.ranks.is_empty()),
            ("--ranks-per-host", args.ranks_per_host.is_some()),
            ("--hosts", args.hosts.is_some()),
            ("--network", args.network.is_some()),
            ("--local-network", args.local_network.is_some()),
        ];
        if let Some((flag, _)) = given.into_iter().find(|(_, given)| *given) {
            return Err(Error::RecordedHierarchical { flag });
        }
    }
    let early = args.early.unwrap_or(job.fit.rules.early);
    let rules = Rules {
        early,
        ..job.fit.rules
    };
    let at = |target: &Target| {
        let points = points(job, args, target);
        let count = points.len() * targets.len();
        if count > MOST {
            return Err(Error::TooManyPredictions {
                settings: points.len(),
                targets: targets.len(),
                most: MOST,
            });
        }
        at(job, target, rules, &points)
    };
    Ok(Outlook {
        targets: targets.iter().map(at).collect::<Result<_, _>>()?,
    })
}

fn targets(job: &Job, args: &Args) -> Result<Vec<Target>, Error> {
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
            let topology = Topology::new(ranks, per_host);
            if let Some(hosts) = args.hosts.filter(|&hosts| topology.hosts() != hosts) {
                return Err(Error::UnevenHosts { ranks, hosts });
            }
            targets.push(Target {
                topology,
                network: network.clone(),
                local: args.local_network.clone(),
                algorithm: args.algorithm,
            });
        }
    }
    Ok(targets)
}

fn points(job: &Job, args: &Args, target: &Target) -> Vec<Point> {
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
    let switches = |given: &[bool], default: &[bool]| {
        let mut switches = if given.is_empty() { default } else { given }.to_vec();
        switches.sort_unstable();
        switches.dedup();
        switches
    };
    let hierarchy = target.topology.hosts() > 1 && target.topology.ranks_per_host > 1;
    let both: &[bool] = if hierarchy { &[false, true] } else { &[false] };
    let fusion: Vec<u64> = fusion.iter().map(|mb| (mb * MIB).round() as u64).collect();
    let cache = switches(&args.cache, &[current.cache]);
    let hierarchical = match job.is_hierarchical {
        true => vec![false], // the reference, whose times are those of hierarchical allreduces
        false => switches(&args.hierarchical, both),
    };
    let mut points = Point::grid(
        target.topology.ranks,
        &fusion,
        &cycles,
        &cache,
        &hierarchical,
    );
    points.sort_by_key(|one| {
        (
            one.hierarchical_allreduce,
            one.cache,
            one.fusion_threshold_bytes,
        )
    });
    points
}

fn at(job: &Job, target: &Target, rules: Rules, points: &[Point]) -> Result<At, Error> {
    let fit = &job.fit;
    let mut forecast = Forecast::new(fit, target, rules)?;
    // The reference of such a recording is a flat allreduce that takes as long as the hierarchical
    // one.
    let named = |point: Point| Point {
        hierarchical_allreduce: point.hierarchical_allreduce || job.is_hierarchical,
        ..point
    };
    let current = Cell {
        assumed: [!job.states(THRESHOLD), !job.states(CYCLE_TIME)],
        ..Cell::new(
            named(Point::of(&fit.reference, target.topology.ranks)),
            forecast.predict(&fit.reference),
        )
    };
    let cell = |point: &Point| Cell::new(named(*point), forecast.predict(&point.setting()));
    let cells: Vec<Cell> = points.iter().map(cell).collect();
    let from_current = |cell: &Cell| cell.point.distance(&current.point);
    let best_of = |wanted: &dyn Fn(&Cell) -> bool| {
        let of = || cells.iter().chain([&current]).filter(|cell| wanted(cell));
        let least = of().map(|cell| cell.step_ms).fold(f64::INFINITY, f64::min);
        of().filter(|cell| cell.step_ms <= least * (1.0 + NEARLY))
            .min_by(|a, b| from_current(a).total_cmp(&from_current(b)))
            .copied()
    };
    let best = best_of(&|_| true).unwrap_or(current);
    let is_hierarchical = |cell: &Cell| cell.point.hierarchical_allreduce;
    let both = cells.iter().any(is_hierarchical) && !cells.iter().all(is_hierarchical);
    let kind = |wanted: bool| best_of(&|cell| is_hierarchical(cell) == wanted).filter(|_| both);
    let alone = Target {
        topology: Topology::new(1, 1),
        ..target.clone()
    };
    let alone_ms = Forecast::new(fit, &alone, rules)?
        .predict(&fit.reference)
        .step_us
        / 1e3;
    let choice = job.withheld().is_none().then(|| Choice {
        change: forecast.ratio(&best.point.setting(), &fit.reference).into(),
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
