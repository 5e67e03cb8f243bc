//! Predictions: a grid of settings for each network and number of ranks.

use serde::Serialize;

use super::args::Args;
use super::job::{CYCLE_TIME, Job, THRESHOLD};
use crate::error::Error;
use crate::range::List;
use crate::setting::on;
use ronde_job::point::Point;
use ronde_job::replay::network::{Target, Topology};
use ronde_job::replay::{Forecast, Messages, Prediction, Ratio, Rules, Setting};

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
    /// Setting with a better prediction than the best one, whose messages are far beyond those of
    /// the recording: it is not recommended.
    pub(super) outside: Option<Outside>,
    /// Grid, ordered by the booleans, then by threshold, then by cycle time.
    pub(super) cells: Vec<Cell>,
}

/// Setting outside of the range of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Outside {
    pub(super) cell: Cell,
    /// Its messages, and those of the recording.
    pub(super) messages: Messages,
    pub(super) recorded: Messages,
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
    /// Whether a cycle starts at once when all tensors of the step are ready.
    pub(super) early: bool,
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
    early_cycle: bool,
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
            early_cycle: cell.early,
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

    /// Title of the grid, which names the rule of early cycles if the recording has another one.
    pub(super) fn title(&self) -> String {
        let early = self.cells.first().map(|cell| cell.early);
        match early.filter(|early| *early != self.current.early) {
            Some(early) => format!("Predicted step, ms, {}", early_words(early)),
            None => "Predicted step, ms".to_owned(),
        }
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
    fn new(point: Point, early: bool, prediction: Prediction) -> Self {
        Self {
            assumed: [false; 2],
            point,
            early,
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
        (self.point, self.assumed, self.early) == (other.point, other.assumed, other.early)
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
        let mut at = at(job, target, rules, &points)?;
        let placed = assumed_per_host(job, args).map(placement);
        at.assumptions.extend(placed);
        Ok(at)
    };
    Ok(Outlook {
        targets: targets.iter().map(at).collect::<Result<_, _>>()?,
    })
}

fn targets(job: &Job, args: &Args) -> Result<Vec<Target>, Error> {
    let place = &job.fit.place;
    let ranks = ranks(job, args);
    let networks: Vec<_> = match &args.network {
        Some(networks) => networks.0.iter().cloned().map(Some).collect(),
        None => vec![None],
    };
    let assumed_per_host = assumed_per_host(job, args);
    let mut targets = Vec::new();
    for network in networks {
        for &ranks in &ranks {
            let per_host = match (args.hosts, args.ranks_per_host) {
                (Some(hosts), _) => ranks.div_ceil(hosts),
                (None, per_host) => per_host
                    .or(assumed_per_host)
                    .unwrap_or(place.ranks_per_host),
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

/// Name of the rule by which the last cycle of a step starts.
pub(super) fn early_words(early: bool) -> String {
    format!("early cycles {}", on(early))
}

/// Numbers of ranks to predict.
fn ranks(job: &Job, args: &Args) -> Vec<u32> {
    match args.ranks.is_empty() {
        true => vec![job.fit.place.ranks],
        false => args.ranks.clone(),
    }
}

/// Ranks on each host of all targets on a named network, if the user does not state them. A network
/// connects hosts: ranks that would all fit on one host are placed on a host each. The rows of a
/// table are comparable only if all have the same placement.
fn assumed_per_host(job: &Job, args: &Args) -> Option<u32> {
    args.network.as_ref()?;
    let recorded = job.fit.place.ranks_per_host;
    let needs_it = |&ranks: &u32| ranks > recorded;
    let placement = match ranks(job, args).iter().any(needs_it) {
        true => recorded,
        false => 1,
    };
    (args.hosts.or(args.ranks_per_host).is_none()).then_some(placement)
}

/// States the placement that is assumed.
fn placement(per_host: u32) -> String {
    let ranks = match per_host {
        1 => "One rank on each host".to_owned(),
        _ => format!("{per_host} ranks on each host, as recorded"),
    };
    format!("{ranks}, for every number of ranks (--ranks-per-host changes it).")
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
    let mut recorded = Forecast::new(fit, target, fit.rules)?;
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
            fit.rules.early,
            recorded.predict(&fit.reference),
        )
    };
    let cell = |point: &Point| {
        let prediction = forecast.predict(&point.setting());
        Cell::new(named(*point), rules.early, prediction)
    };
    let cells: Vec<Cell> = points.iter().map(cell).collect();
    // The costs of messages on a named network do not come from the recording.
    let is_limited = target.network.is_none() && target.local.is_none();
    let is_outside = |cell: &Cell| is_limited && fit.is_outside(rules, &setting(job, cell));
    let (outside, mut inside): (Vec<Cell>, Vec<Cell>) = cells.iter().copied().partition(is_outside);
    inside.push(current);
    let best = best_of(inside.iter(), &current).unwrap_or(current);
    let is_hierarchical = |cell: &Cell| cell.point.hierarchical_allreduce;
    let both = cells.iter().any(is_hierarchical) && !cells.iter().all(is_hierarchical);
    let kind = |wanted: bool| {
        let of_kind = inside.iter().filter(|cell| is_hierarchical(cell) == wanted);
        best_of(of_kind, &current).filter(|_| both)
    };
    let alone = Target {
        topology: Topology::new(1, 1),
        ..target.clone()
    };
    let alone_ms = Forecast::new(fit, &alone, fit.rules)?
        .predict(&fit.reference)
        .step_us
        / 1e3;
    let now_us = recorded.steps_us(&fit.reference);
    let best_us = match best.is_setting_of(&current) {
        true => now_us.clone(),
        false => forecast.steps_us(&setting(job, &best)),
    };
    let is_supported = job.withheld().is_none();
    let choice = is_supported.then(|| Choice {
        change: Ratio::of(&best_us, &now_us).into(),
        flat: kind(false),
        hierarchical: kind(true),
        efficiency_best: alone_ms / best.step_ms,
        best,
    });
    let better = best_of(outside.iter(), &current)
        .filter(|cell| is_supported && cell.step_ms < best.step_ms * (1.0 - NEARLY));
    Ok(At {
        ranks: target.topology.ranks,
        hosts: target.topology.hosts(),
        network: target.network.as_ref().map(|network| network.name.clone()),
        assumptions: target.assumptions(&fit.place),
        efficiency: alone_ms / current.step_ms,
        current,
        choice,
        outside: better.zip(fit.recorded).map(|(cell, recorded)| Outside {
            cell,
            messages: fit.messages(rules, &setting(job, &cell)),
            recorded,
        }),
        cells,
    })
}

/// The fastest of the cells. Of those that are nearly as fast, the one most similar to the setting
/// in force.
fn best_of<'a>(cells: impl Iterator<Item = &'a Cell> + Clone, current: &Cell) -> Option<Cell> {
    let times = cells.clone().map(|cell| cell.step_ms);
    let least = times.fold(f64::INFINITY, f64::min);
    let from_current = |cell: &Cell| {
        let early = f64::from(u8::from(cell.early != current.early));
        100.0 * early + cell.point.distance(&current.point)
    };
    let fast = cells.filter(|cell| cell.step_ms <= least * (1.0 + NEARLY));
    fast.min_by(|a, b| from_current(a).total_cmp(&from_current(b)))
        .copied()
}

/// Setting of a cell for the model, to which the allreduces of a recording of hierarchical ones are
/// flat.
fn setting(job: &Job, cell: &Cell) -> Setting {
    let setting = cell.point.setting();
    Setting {
        hierarchical: setting.hierarchical && !job.is_hierarchical,
        ..setting
    }
}
