//! Importance of knobs: the variance of ln(step time) over the grid, decomposed by knob.
//!
//! This is the functional analysis of variance with main effects only (Hoos and Leyton-Brown, "An
//! efficient approach for assessing hyperparameter importance", ICML 2014), on the grid itself: the
//! effect of a knob's value is the mean over all points with that value, and the variance that main
//! effects do not explain belongs to combinations of knobs. The contribution of noise is subtracted
//! from each.

use serde::Serialize;

use super::Outcome;
use crate::sweep::Point;
use crate::sweep::statistics::{self, by_value, mean};

/// Minimum share of a grid's points for separate effects of its knobs: on an incomplete grid,
/// values of one knob would be compared at different values of the others.
const WHOLE: f64 = 0.75;
/// Smaller variances, in ln², count as 0.
const NOTHING: f64 = 1e-12;

/// Knob that a sweep varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Knob {
    /// Fusion threshold, MiB.
    FusionThreshold,
    /// Cycle time, ms.
    CycleTime,
    /// Response cache, on (1) or off (0).
    Cache,
    /// Hierarchical allreduce, on (1) or off (0).
    HierarchicalAllreduce,
}

/// Effect of one knob.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KnobEffect {
    /// The knob.
    pub knob: Knob,
    /// Share of the variance of ln(step time), 0 to 1.
    pub share: f64,
    /// Values of the knob, ascending.
    pub levels: Vec<Level>,
}

/// One value of a knob.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Level {
    /// The value, in the unit of the [`Knob`].
    pub value: f64,
    /// Step time with this value relative to the mean of all values, minus one: geometric mean over
    /// the other knobs.
    pub effect: f64,
    /// Lowest step time with this value, ms.
    pub best_ms: f64,
    /// Whether a point with this value cannot be distinguished from the best.
    pub tied: bool,
}

impl Knob {
    const ALL: [Self; 4] = [
        Self::FusionThreshold,
        Self::CycleTime,
        Self::Cache,
        Self::HierarchicalAllreduce,
    ];

    /// Name for sentences.
    pub fn name(self) -> &'static str {
        match self {
            Self::FusionThreshold => "fusion threshold",
            Self::CycleTime => "cycle time",
            Self::Cache => "response cache",
            Self::HierarchicalAllreduce => "hierarchical allreduce",
        }
    }

    /// Returns its value in `point`.
    fn of(self, point: &Point) -> f64 {
        match self {
            Self::FusionThreshold => point.fusion_mb(),
            Self::CycleTime => point.cycle_time_ms,
            Self::Cache => f64::from(point.cache),
            Self::HierarchicalAllreduce => f64::from(point.hierarchical_allreduce),
        }
    }
}

/// Points of the grid with their step times, ms.
type Grid<'a> = Vec<(&'a Outcome, f64)>;

/// Returns the effects of the knobs that were varied, largest first, and the share of their
/// combinations.
pub(super) fn effects(points: &[Outcome], uncertainty: f64) -> (Vec<KnobEffect>, f64) {
    let grid = grid(points);
    let count = grid.len() as f64;
    let values = |knob: Knob| grid.iter().map(move |(of, _)| knob.of(&of.point));
    let members = Knob::ALL.map(|knob| by_value(&values(knob).collect::<Vec<_>>()));
    let cells: usize = members.each_ref().map(Vec::len).iter().product();
    if cells < 2 || count < WHOLE * cells as f64 {
        return (Vec::new(), 0.0);
    }
    let mut left: Vec<f64> = grid.iter().map(|(_, ms)| ms.ln()).collect();
    let level = mean(left.clone());
    left.iter_mut().for_each(|log| *log -= level);
    let factors = members.each_ref().map(Vec::as_slice);
    let effects = statistics::effects(factors, &mut left, mean);
    let variance = |squares: f64, freedom: usize| {
        let noise = uncertainty * freedom as f64 / count;
        (squares / count - noise).max(0.0)
    };
    let of_knob = |knob: Knob| {
        let levels = effects[knob as usize].iter().zip(&members[knob as usize]);
        let squares = levels
            .clone()
            .map(|(effect, with)| effect * effect * with.len() as f64);
        let levels = levels.map(|(effect, with)| level_of(knob, *effect, with, &grid));
        KnobEffect {
            knob,
            share: variance(squares.sum(), members[knob as usize].len() - 1),
            levels: levels.collect(),
        }
    };
    let mut knobs = Vec::from(Knob::ALL.map(of_knob));
    knobs.retain(|effect| effect.levels.len() > 1);
    let free: usize = knobs.iter().map(|effect| effect.levels.len() - 1).sum();
    let squares = left.iter().map(|left| left * left).sum();
    let rest = variance(squares, grid.len().saturating_sub(free + 1));
    let total = knobs.iter().map(|effect| effect.share).sum::<f64>() + rest;
    let scale = if total > NOTHING { 1.0 / total } else { 0.0 };
    knobs.iter_mut().for_each(|effect| effect.share *= scale);
    knobs.sort_by(|a, b| b.share.total_cmp(&a.share));
    (knobs, scale * rest)
}

/// Returns the grid: with the predictions, if there are any, since the few measured points then do
/// not form a grid. The default is omitted if it has a value that no other point has.
fn grid(points: &[Outcome]) -> Grid<'_> {
    let predicted = points.iter().any(|outcome| outcome.predicted_ms.is_some());
    let ms = |of: &Outcome| match predicted {
        true => of.predicted(),
        false => of.step_ms,
    };
    let mut grid: Grid = points.iter().filter_map(|of| Some((of, ms(of)?))).collect();
    let default = grid.iter().position(|(of, _)| of.point.is_default());
    if let Some(default) = default.filter(|_| grid.len() > 2) {
        let is_alone = |knob: Knob| {
            let value = knob.of(&grid[default].0.point);
            let with = grid.iter().filter(|(of, _)| knob.of(&of.point) == value);
            with.count() == 1
        };
        if is_alone(Knob::FusionThreshold) || is_alone(Knob::CycleTime) {
            grid.remove(default);
        }
    }
    grid
}

fn level_of(knob: Knob, effect: f64, members: &[usize], grid: &Grid) -> Level {
    let with = || members.iter().map(|&point| grid[point]);
    Level {
        value: knob.of(&grid[members[0]].0.point),
        effect: effect.exp_m1(),
        best_ms: with().map(|(_, ms)| ms).fold(f64::INFINITY, f64::min),
        tied: with().any(|(outcome, _)| outcome.tied),
    }
}
