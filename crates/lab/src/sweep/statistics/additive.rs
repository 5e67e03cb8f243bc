//! Additive model of the measurements: point + block + trend within the block + residual.
//!
//! The effects are fitted in turns until they converge. With means the result is the least-squares
//! fit. With medians it is Tukey's median polish ("Exploratory Data Analysis", 1977), which is
//! robust against a few outliers.

use super::Observation;
use ronde_job::percentile::percentile_of;

/// Minimum number of measurements in a block with its own trend: a round of the confirmation ends
/// before the machine drifts.
const TREND_LEAST: usize = 12;
/// Degrees of freedom required for each trend, so that trends do not widen the intervals much.
const FREEDOM_PER_TREND: usize = 10;
/// Maximum number of turns; a change in ln below the tolerance ends them earlier.
const TURNS: usize = 1000;
const CONVERGED: f64 = 1e-13;

/// Estimator of an effect from its residuals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sweep) enum Center {
    /// Mean of the residuals.
    Mean,
    /// Median of the residuals; no trends are fitted.
    Median,
}

/// Fitted effects.
#[derive(Clone, Debug)]
pub(super) struct Additive {
    /// Effect of each point.
    pub(super) points: Vec<f64>,
    blocks: Vec<f64>,
    trends: Vec<Option<Trend>>,
    /// Residual of each observation.
    pub(super) residuals: Vec<f64>,
    /// Degrees of freedom of the residuals.
    pub(super) freedom: usize,
}

/// A line through 0 at the middle of the block.
#[derive(Clone, Copy, Debug)]
struct Trend {
    middle_s: f64,
    half_s: f64,
    slope: f64,
}

impl Trend {
    fn at(&self, at_s: f64) -> f64 {
        (at_s - self.middle_s) / self.half_s
    }
}

impl Additive {
    /// Fits `observations` of points 0 to `points` − 1.
    pub(super) fn new(points: usize, observations: &[Observation], center: Center) -> Self {
        let blocks = observations.iter().map(|o| o.block + 1).max().unwrap_or(0);
        let effects = effects(points, blocks, observations);
        let free = observations.len().saturating_sub(effects);
        let trends = match center {
            Center::Mean => trends(blocks, observations, free),
            Center::Median => vec![None; blocks],
        };
        let mut fit = Self {
            points: vec![0.0; points],
            blocks: vec![0.0; blocks],
            freedom: free - trends.iter().flatten().count(),
            trends,
            residuals: observations.iter().map(|o| o.ln_ms).collect(),
        };
        let of_point = members(points, observations, |o| o.point);
        let of_block = members(blocks, observations, |o| o.block);
        // Medians converge to a result that depends on the starting point. Subtracting the blocks'
        // medians first makes it independent of constant factors between blocks.
        if center == Center::Median {
            shift(&mut fit.blocks, &of_block, &mut fit.residuals, center);
        }
        for _ in 0..TURNS {
            let mut moved = shift(&mut fit.points, &of_point, &mut fit.residuals, center);
            moved = moved.max(shift(
                &mut fit.blocks,
                &of_block,
                &mut fit.residuals,
                center,
            ));
            for (trend, members) in fit.trends.iter_mut().zip(&of_block) {
                let Some(trend) = trend else { continue };
                let at = |index: usize| trend.at(observations[index].at_s);
                let square: f64 = members.iter().map(|&index| at(index).powi(2)).sum();
                let product: f64 = members
                    .iter()
                    .map(|&index| at(index) * fit.residuals[index])
                    .sum();
                let slope = product / square;
                members
                    .iter()
                    .for_each(|&index| fit.residuals[index] -= slope * at(index));
                trend.slope += slope;
                moved = moved.max(slope.abs());
            }
            if moved < CONVERGED {
                break;
            }
        }
        fit
    }

    /// Returns the state of the machine at `observation`, common to all points.
    pub(super) fn state(&self, observation: &Observation) -> f64 {
        let trend = self.trends[observation.block];
        let trend = trend.map_or(0.0, |trend| trend.slope * trend.at(observation.at_s));
        self.blocks[observation.block] + trend
    }
}

/// Groups the indices of the observations by point or block, of which there are `count`.
fn members(
    count: usize,
    observations: &[Observation],
    of: fn(&Observation) -> usize,
) -> Vec<Vec<usize>> {
    let mut members = vec![Vec::new(); count];
    observations
        .iter()
        .enumerate()
        .for_each(|(index, observation)| members[of(observation)].push(index));
    members
}

/// Moves the center of each group's residuals into its effect; returns the largest move.
pub(in crate::sweep) fn shift(
    effects: &mut [f64],
    groups: &[Vec<usize>],
    residuals: &mut [f64],
    center: Center,
) -> f64 {
    let mut moved: f64 = 0.0;
    for (effect, members) in effects.iter_mut().zip(groups) {
        let values = members.iter().map(|&index| residuals[index]);
        let by = match center {
            Center::Mean => values.sum::<f64>() / members.len().max(1) as f64,
            Center::Median => percentile_of(values.collect(), 0.5).unwrap_or(0.0),
        };
        members.iter().for_each(|&index| residuals[index] -= by);
        *effect += by;
        moved = moved.max(by.abs());
    }
    moved
}

/// Number of effects of points and blocks that the observations determine: both, less one for each
/// set of points and blocks that no observation connects with the others.
fn effects(points: usize, blocks: usize, observations: &[Observation]) -> usize {
    let mut set: Vec<usize> = (0..points + blocks).collect();
    let mut effects = 0;
    for observation in observations {
        let [a, b] = [observation.point, points + observation.block].map(|node| set[node]);
        if a != b {
            set.iter_mut()
                .filter(|other| **other == b)
                .for_each(|other| *other = a);
            effects += 1;
        }
    }
    effects
}

/// Trends of the large blocks, if there are enough degrees of freedom for all of them.
fn trends(blocks: usize, observations: &[Observation], free: usize) -> Vec<Option<Trend>> {
    let trend = |members: Vec<usize>| {
        let at = || members.iter().map(|&index| observations[index].at_s);
        let (from, to) = (
            at().fold(f64::INFINITY, f64::min),
            at().fold(f64::NEG_INFINITY, f64::max),
        );
        (members.len() >= TREND_LEAST && to > from).then(|| Trend {
            middle_s: f64::midpoint(from, to),
            half_s: (to - from) / 2.0,
            slope: 0.0,
        })
    };
    let trends: Vec<_> = members(blocks, observations, |o| o.block)
        .into_iter()
        .map(trend)
        .collect();
    let count = trends.iter().flatten().count();
    if free >= (FREEDOM_PER_TREND + 1) * count {
        trends
    } else {
        vec![None; blocks]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observations(points: usize, blocks: usize) -> Vec<Observation> {
        let at = |i: usize| Observation {
            point: i % points,
            block: i / points,
            at_s: i as f64,
            ln_ms: 0.0,
        };
        (0..blocks * points).map(at).collect()
    }

    #[test]
    fn large_blocks_have_trends_and_small_ones_levels_alone() {
        // 60 − 20 − 2 = 38 degrees of freedom for 3 trends.
        let fit = Additive::new(20, &observations(20, 3), Center::Mean);
        assert_eq!((fit.trends.iter().flatten().count(), fit.freedom), (3, 35));
        for (points, blocks, freedom) in [(6, 5, 20), (20, 2, 19), (5, 1, 0), (1, 4, 0)] {
            let fit = Additive::new(points, &observations(points, blocks), Center::Mean);
            assert_eq!(
                (fit.trends.iter().flatten().count(), fit.freedom),
                (0, freedom)
            );
        }
    }

    #[test]
    fn effects_that_nothing_connects_cost_no_freedom_together() {
        let mut observations = observations(1, 2);
        observations[1].point = 1;
        // Two points, each in a block of its own: two effects, not three.
        assert_eq!(effects(2, 2, &observations), 2);
        assert_eq!(Additive::new(0, &[], Center::Mean).freedom, 0);
    }

    #[test]
    fn an_outlier_moves_means_and_not_medians() {
        let mut observations = observations(4, 5);
        observations[9].ln_ms = 1.0;
        let [mean, median] =
            [Center::Mean, Center::Median].map(|center| Additive::new(4, &observations, center));
        assert!(
            (mean.residuals[9] - 0.6).abs() < 1e-9,
            "{}",
            mean.residuals[9]
        ); // (1 − ¼)(1 − ⅕)
        assert!(
            (median.residuals[9] - 1.0).abs() < 1e-9,
            "{}",
            median.residuals[9]
        );
    }
}
