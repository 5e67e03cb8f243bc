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
use crate::sweep::statistics::{Center, shift};

/// Maximum number of rounds in which the effects are adjusted to each other; a complete grid needs
/// one.
const ROUNDS: usize = 100;
/// Minimum share of a grid's points for separate effects of its knobs.
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
    pub fn of(self, point: &Point) -> f64 {
        match self {
            Self::FusionThreshold => point.fusion_mb(),
            Self::CycleTime => point.cycle_time_ms,
            Self::Cache => f64::from(u8::from(point.cache)),
            Self::HierarchicalAllreduce => f64::from(u8::from(point.hierarchical_allreduce)),
        }
    }
}

/// Returns the effects of the knobs that were varied, largest first, and the share of their
/// combinations. `uncertainty` is the variance of each point that is due to noise.
pub(super) fn effects(points: &[Outcome], uncertainty: f64) -> (Vec<KnobEffect>, f64) {
    // If the grid was predicted, the few measured points do not form a grid.
    let predicted = points.iter().any(|outcome| outcome.predicted_ms.is_some());
    let timed: Vec<Timed> = points
        .iter()
        .filter_map(|outcome| Timed::new(outcome, predicted))
        .collect();
    let grid = on_grid(&timed);
    let count = grid.len() as f64;
    let mean = grid.iter().map(|timed| timed.ms.ln()).sum::<f64>() / count;
    let mut factors: Vec<Factor> = Knob::ALL
        .into_iter()
        .map(|knob| Factor::new(knob, &grid))
        .filter(|factor| factor.values.len() > 1)
        .collect();
    let cells: usize = factors.iter().map(|factor| factor.values.len()).product();
    // On an incomplete grid, values of one knob would be compared at different values of the
    // others.
    if factors.is_empty() || (grid.len() as f64) < WHOLE * cells as f64 {
        return (Vec::new(), 0.0);
    }
    let mut left: Vec<f64> = grid.iter().map(|timed| timed.ms.ln() - mean).collect();
    for _ in 0..ROUNDS {
        let moved = factors.iter_mut().map(|factor| factor.refine(&mut left));
        if moved.fold(0.0, f64::max) < NOTHING {
            break;
        }
    }
    let free: usize = factors.iter().map(|factor| factor.values.len() - 1).sum();
    let noise = |freedom: usize| uncertainty * freedom as f64 / count;
    let variances: Vec<f64> = factors
        .iter()
        .map(|factor| {
            let levels = factor.effects.iter().zip(&factor.members);
            let square = levels.map(|(effect, with)| effect * effect * with.len() as f64);
            (square.sum::<f64>() / count - noise(factor.values.len() - 1)).max(0.0)
        })
        .collect();
    let square = left.iter().map(|left| left * left).sum::<f64>() / count;
    let rest = (square - noise(grid.len().saturating_sub(free + 1))).max(0.0);
    let total = variances.iter().sum::<f64>() + rest;
    let share = |variance: f64| {
        if total > NOTHING {
            variance / total
        } else {
            0.0
        }
    };
    let mut effects: Vec<KnobEffect> = factors
        .iter()
        .zip(&variances)
        .map(|(factor, &variance)| factor.effect(share(variance), &grid))
        .collect();
    effects.sort_by(|a, b| b.share.total_cmp(&a.share));
    (effects, share(rest))
}

/// A point with its step time.
#[derive(Clone, Copy)]
struct Timed {
    point: Point,
    ms: f64,
    tied: bool,
}

impl Timed {
    fn new(outcome: &Outcome, predicted: bool) -> Option<Self> {
        let ms = match predicted {
            true => outcome.predicted_ms.map(|predicted| predicted.value),
            false => outcome.step_ms,
        };
        Some(Self {
            point: outcome.point,
            ms: ms?,
            tied: outcome.tied,
        })
    }
}

/// Returns the points without the default, if the default lies outside of the grid: it then has a
/// value that no other point has.
fn on_grid(timed: &[Timed]) -> Vec<Timed> {
    let alone = |point: &Point| {
        let with = |knob: Knob| {
            timed
                .iter()
                .filter(|other| knob.of(&other.point) == knob.of(point))
                .count()
        };
        timed.len() > 2 && (with(Knob::FusionThreshold) == 1 || with(Knob::CycleTime) == 1)
    };
    let outside = |timed: &&Timed| timed.point.is_default() && alone(&timed.point);
    timed
        .iter()
        .filter(|timed| !outside(timed))
        .copied()
        .collect()
}

/// A knob that was varied.
struct Factor {
    knob: Knob,
    values: Vec<f64>,
    /// Indices of the points with each value.
    members: Vec<Vec<usize>>,
    effects: Vec<f64>,
}

impl Factor {
    fn new(knob: Knob, grid: &[Timed]) -> Self {
        let mut values: Vec<f64> = grid.iter().map(|timed| knob.of(&timed.point)).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let members = |value: &f64| {
            let with = |&point: &usize| knob.of(&grid[point].point) == *value;
            (0..grid.len()).filter(with).collect()
        };
        Self {
            knob,
            members: values.iter().map(members).collect(),
            effects: vec![0.0; values.len()],
            values,
        }
    }

    /// Moves the mean of the points' remainders `left` into the effect of each value; returns the
    /// largest move.
    fn refine(&mut self, left: &mut [f64]) -> f64 {
        shift(&mut self.effects, &self.members, left, Center::Mean)
    }

    fn effect(&self, share: f64, grid: &[Timed]) -> KnobEffect {
        let level = |(index, &value): (usize, &f64)| {
            let with = || self.members[index].iter().map(|&point| &grid[point]);
            Level {
                value,
                effect: self.effects[index].exp_m1(),
                best_ms: with().map(|timed| timed.ms).fold(f64::INFINITY, f64::min),
                tied: with().any(|timed| timed.tied),
            }
        };
        KnobEffect {
            knob: self.knob,
            share,
            levels: self.values.iter().enumerate().map(level).collect(),
        }
    }
}
