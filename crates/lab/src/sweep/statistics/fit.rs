//! Differences between points within blocks, with one pooled variance.

use super::Observation;
use super::additive::{Additive, Center};
use ronde_job::percentile::percentile_of;

/// Smaller residuals, ln, are rounding errors.
const ROUNDING: f64 = 1e-9;
/// Measurements that deviate from the median residual by more robust standard deviations are
/// strays. By chance alone, fewer than one in a hundred sweeps has such a measurement.
const STRAY: f64 = 6.0;
/// The median of the absolute value of a standard normal.
const MEDIAN_OF_ABS: f64 = 0.6745;
/// At most one of this many observations may be a stray.
const ONE_OF: usize = 10;
/// Minimum number of measurements of a point with a stray: with two, the stray cannot be
/// identified.
const COUNT_LEAST: usize = 3;

/// Measurements of all points, prepared for comparison.
#[derive(Clone, Debug)]
pub(in crate::sweep) struct Fit {
    model: Additive,
    /// For each point: its blocks, ascending.
    cells: Vec<Vec<Cell>>,
    strays: Vec<usize>,
    /// Mean state of the machine, for which the means of points are reported.
    level: f64,
    drift: f64,
    /// Point with the most measurements.
    hub: usize,
}

/// Number of measurements of one point in one block.
#[derive(Clone, Copy, Debug)]
struct Cell {
    block: usize,
    count: f64,
}

/// Difference of two points, in ln.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::sweep) struct Difference {
    /// Estimate.
    pub(in crate::sweep) value: f64,
    /// Variance, in units of the variance of one observation.
    pub(in crate::sweep) variance: f64,
}

impl Difference {
    /// Returns the difference in standard errors, given the variance of one observation.
    pub(in crate::sweep) fn t(&self, variance: f64) -> f64 {
        match self.value {
            value if value.abs() <= ROUNDING => 0.0,
            value => value / (variance * self.variance).sqrt(),
        }
    }
}

impl Fit {
    /// Fits `observations` of points 0 to `points` − 1, without the strays.
    pub(in crate::sweep) fn new(points: usize, observations: &[Observation]) -> Self {
        Self::without(points, observations, strays(points, observations))
    }

    /// Fits the observations whose index is not in `strays`.
    pub(in crate::sweep) fn without(
        points: usize,
        observations: &[Observation],
        strays: Vec<usize>,
    ) -> Self {
        let kept = observations
            .iter()
            .enumerate()
            .filter(|(index, _)| !strays.contains(index));
        let kept: Vec<Observation> = kept.map(|(_, observation)| *observation).collect();
        let model = Additive::new(points, &kept, Center::Mean);
        let states: Vec<f64> = kept
            .iter()
            .map(|observation| model.state(observation))
            .collect();
        let cells = cells(points, &kept);
        let count = |cells: &[Cell]| cells.iter().map(|cell| cell.count).sum::<f64>();
        Self {
            hub: (0..points)
                .rev()
                .max_by(|&a, &b| count(&cells[a]).total_cmp(&count(&cells[b])))
                .unwrap_or(0),
            level: states.iter().sum::<f64>() / states.len().max(1) as f64,
            drift: states.iter().copied().reduce(f64::max).unwrap_or(0.0)
                - states.iter().copied().reduce(f64::min).unwrap_or(0.0),
            model,
            cells,
            strays,
        }
    }

    /// Returns the number of points.
    pub(in crate::sweep) fn points(&self) -> usize {
        self.cells.len()
    }

    /// Returns the number of valid observations of `point`.
    pub(in crate::sweep) fn count(&self, point: usize) -> usize {
        self.cells[point].iter().map(|cell| cell.count).sum::<f64>() as usize
    }

    /// Returns ln(step time) of `point` at the mean state of the machine; `None` without
    /// observations.
    pub(in crate::sweep) fn mean(&self, point: usize) -> Option<f64> {
        (!self.cells[point].is_empty()).then(|| self.model.points[point] + self.level)
    }

    /// Returns `point` minus `other`; `None` if either has no observations.
    ///
    /// The value is that of the additive model: if both points were measured in the same blocks,
    /// the mean of their differences within blocks. The variance is the variance of this mean over
    /// the common blocks, which is an upper bound of the model's. Without a common block, it is the
    /// sum of the variances of the differences to the point with the most measurements.
    pub(in crate::sweep) fn difference(&self, point: usize, other: usize) -> Option<Difference> {
        let value = self.mean(point)? - self.mean(other)?;
        let through = || Some(self.paired(point, self.hub)? + self.paired(self.hub, other)?);
        let apart = || 1.0 / self.count(point) as f64 + 1.0 / self.count(other) as f64;
        let variance = self
            .paired(point, other)
            .or_else(through)
            .unwrap_or_else(apart);
        Some(Difference { value, variance })
    }

    /// Variance of the mean difference within common blocks, weighted by the numbers of
    /// measurements.
    fn paired(&self, point: usize, other: usize) -> Option<f64> {
        let others = &self.cells[other];
        let weight = |a: &Cell| {
            let index = others.binary_search_by_key(&a.block, |b| b.block).ok()?;
            Some((1.0 / a.count + 1.0 / others[index].count).recip())
        };
        let weights: f64 = self.cells[point].iter().filter_map(weight).sum();
        (weights > 0.0).then(|| 1.0 / weights)
    }

    /// Returns the degrees of freedom of the variance.
    pub(in crate::sweep) fn freedom(&self) -> usize {
        self.model.freedom
    }

    /// Returns the variance of one observation; `None` without a degree of freedom.
    pub(in crate::sweep) fn variance(&self) -> Option<f64> {
        let squares: f64 = self
            .model
            .residuals
            .iter()
            .map(|residual| residual.powi(2))
            .sum();
        (self.freedom() > 0).then(|| squares / self.freedom() as f64)
    }

    /// Returns the difference between the slowest and the fastest state of the machine, ln.
    pub(in crate::sweep) fn drift(&self) -> f64 {
        self.drift
    }

    /// Returns the indices of the observations that were left out.
    pub(in crate::sweep) fn strays(&self) -> &[usize] {
        &self.strays
    }

    /// Returns the expected value of `observation`, ln; `None` if its point or its block has no
    /// other observation.
    pub(in crate::sweep) fn expected(&self, observation: &Observation) -> Option<f64> {
        let mut cells = self.cells.iter().flatten();
        if !cells.any(|cell| cell.block == observation.block) {
            return None;
        }
        self.mean(observation.point)
            .map(|mean| mean - self.level + self.model.state(observation))
    }
}

/// Numbers of measurements of the points in their blocks.
fn cells(points: usize, observations: &[Observation]) -> Vec<Vec<Cell>> {
    let mut cells: Vec<Vec<Cell>> = vec![Vec::new(); points];
    for &Observation { point, block, .. } in observations {
        let of_point = &mut cells[point];
        let index = of_point.partition_point(|cell| cell.block < block);
        match of_point.get_mut(index).filter(|cell| cell.block == block) {
            Some(cell) => cell.count += 1.0,
            None => of_point.insert(index, Cell { block, count: 1.0 }),
        }
    }
    cells
}

/// Indices of the observations that deviate from the median polish by more than chance explains:
/// another program ran on the machine. At most a tenth of the observations, and only of points with
/// three or more.
fn strays(points: usize, observations: &[Observation]) -> Vec<usize> {
    let residuals = Additive::new(points, observations, Center::Median).residuals;
    let distances = residuals.iter().map(|residual| residual.abs());
    let scale = percentile_of(
        distances.filter(|distance| *distance > ROUNDING).collect(),
        0.5,
    );
    let limit = scale.map_or(f64::INFINITY, |median| STRAY * median / MEDIAN_OF_ABS);
    let mut counts = vec![0; points];
    observations
        .iter()
        .for_each(|observation| counts[observation.point] += 1);
    let mut strays: Vec<usize> = (0..observations.len())
        .filter(|&index| residuals[index].abs() > limit)
        .filter(|&index| counts[observations[index].point] >= COUNT_LEAST)
        .collect();
    strays.sort_by(|&a, &b| residuals[b].abs().total_cmp(&residuals[a].abs()));
    strays.truncate(observations.len() / ONE_OF);
    strays
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation(point: usize, block: usize, ln_ms: f64) -> Observation {
        Observation {
            point,
            block,
            at_s: block as f64,
            ln_ms,
        }
    }

    /// Fit of measurements (point, block, ln of the step time).
    fn fit(points: usize, cells: &[(usize, usize, f64)]) -> Fit {
        let observations = cells
            .iter()
            .map(|&(point, block, ln)| observation(point, block, ln));
        Fit::new(points, &observations.collect::<Vec<_>>())
    }

    fn near(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-11
    }

    #[test]
    fn two_points_in_three_blocks() {
        // Differences b − a: 1, 2 and 3; the blocks are at 10, 20 and 30.
        let cells = [
            (0, 0, 10.0),
            (1, 0, 11.0),
            (1, 1, 22.0),
            (0, 1, 20.0),
            (0, 2, 30.0),
            (1, 2, 33.0),
        ];
        let fit = fit(2, &cells);
        let difference = fit.difference(1, 0).unwrap();
        assert!(near(difference.value, 2.0), "{difference:?}");
        assert!(near(difference.variance, 2.0 / 3.0), "{difference:?}");
        // Residuals of ±½ in the first and last block: 4 · ¼, with 6 − 2 − 2 degrees of freedom. A
        // paired t-test gives the same result: the differences have variance 1, twice that of an
        // observation.
        assert_eq!(fit.freedom(), 2);
        assert!(near(fit.variance().unwrap(), 0.5));
        // At the mean of the blocks.
        assert!(near(fit.mean(0).unwrap(), 20.0) && near(fit.mean(1).unwrap(), 22.0));
        assert!(near(fit.drift(), 21.0), "{}", fit.drift()); // 10.5 to 31.5
        assert!(fit.strays().is_empty());
    }

    #[test]
    fn points_are_compared_in_the_blocks_that_both_have() {
        // The second block is 1 slower: the third point was measured only there, at 6, and would
        // have been at 5. The fourth was measured only in the first block.
        let first = [(0, 0, 1.0), (1, 0, 3.0), (3, 0, 8.0)];
        let second = [(0, 1, 2.0), (1, 1, 4.0), (2, 1, 6.0)];
        let fit = fit(5, &[first, second].concat());
        let of = |point, other| {
            fit.difference(point, other)
                .map(|found| (found.value, found.variance))
        };
        assert!(of(2, 0).is_some_and(|(value, variance)| near(value, 4.0) && near(variance, 2.0)));
        assert!(near(fit.mean(2).unwrap() - fit.mean(0).unwrap(), 4.0));
        // By way of the first point, with the noise of both differences.
        assert!(of(3, 2).is_some_and(|(value, variance)| near(value, 3.0) && near(variance, 4.0)));
        assert_eq!((fit.count(2), fit.count(4)), (1, 0));
        assert_eq!((fit.mean(4), fit.difference(4, 0)), (None, None));
    }

    #[test]
    fn blocks_that_nothing_connects_are_compared_by_their_means() {
        let fit = fit(2, &[(0, 0, 1.0), (1, 1, 5.0)]);
        assert!(near(fit.difference(1, 0).unwrap().value, 4.0));
        assert_eq!((fit.freedom(), fit.variance()), (0, None));
    }

    #[test]
    fn nothing_is_nothing() {
        let fit = Fit::new(0, &[]);
        assert_eq!((fit.freedom(), fit.variance(), fit.drift()), (0, None, 0.0));
    }

    #[test]
    fn a_trend_inside_blocks_is_taken_out() {
        // The machine becomes slower by 1 % per measurement; 20 points, equal except for the last,
        // in a different order in each block.
        let at = |i: usize| (i / 20, (i * [1, 3, 7, 9][i / 20] + i / 20) % 20);
        let observations: Vec<_> = (0..80)
            .map(|i| Observation {
                point: at(i).1,
                block: at(i).0,
                at_s: i as f64,
                ln_ms: 0.01 * i as f64 + if at(i).1 == 19 { 0.5 } else { 0.0 },
            })
            .collect();
        let fit = Fit::new(20, &observations);
        assert!((fit.difference(19, 0).unwrap().value - 0.5).abs() < 1e-9);
        assert!((fit.difference(7, 0).unwrap().value).abs() < 1e-9);
        assert!((fit.drift() - 0.79).abs() < 1e-9, "{}", fit.drift());
        assert!(fit.variance().unwrap() < 1e-18, "{:?}", fit.variance());
    }

    /// Ten points in three blocks, with a small deterministic noise.
    fn grid() -> Vec<Observation> {
        let at = |i: usize| Observation {
            point: i % 10,
            block: i / 10,
            at_s: i as f64,
            ln_ms: (i % 10) as f64 + 0.01 * ((i * 7 % 11) as f64 - 5.0),
        };
        (0..30).map(at).collect()
    }

    #[test]
    fn quiet_measurements_all_count() {
        assert!(Fit::new(10, &grid()).strays().is_empty());
    }

    #[test]
    fn a_stray_is_left_out_and_changes_nothing() {
        let mut observations = grid();
        let clean = Fit::new(10, &observations);
        observations[14].ln_ms += 1.0;
        let fit = Fit::new(10, &observations);
        assert_eq!(fit.strays(), [14]);
        let [before, after] = [&clean, &fit].map(|fit| fit.difference(4, 0).unwrap().value);
        assert!((before - after).abs() < 0.06, "{before} {after}");
        let expected = fit.expected(&observations[14]).unwrap();
        assert!((expected - 4.0).abs() < 0.1, "{expected}");
    }

    #[test]
    fn two_strays_do_not_hide_each_other() {
        let mut observations = grid();
        observations[14].ln_ms += 1.0;
        observations[27].ln_ms += 1.0;
        let mut strays = Fit::new(10, &observations).strays().to_vec();
        strays.sort_unstable();
        assert_eq!(strays, [14, 27]);
    }

    #[test]
    fn of_two_measurements_neither_is_a_stray() {
        let mut observations: Vec<_> = grid().into_iter().filter(|o| o.block < 2).collect();
        observations[14].ln_ms += 1.0;
        assert!(Fit::new(10, &observations).strays().is_empty());
    }
}
