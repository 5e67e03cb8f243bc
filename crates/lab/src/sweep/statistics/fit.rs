//! The least-squares fit of point + block + noise.
//!
//! The points' columns are taken out first (Frisch and Waugh 1933): what is solved for is as small as the number of blocks,
//! however many points there are. A block that nothing connects with the others cannot be told from its points; its level
//! is then taken for that of the first.

use super::nuisance::{Entries, Nuisance};
use super::{Observation, strays};

/// Residuals that are rounding.
const ROUNDING: f64 = 1e-9;

/// The fitted model.
#[derive(Clone, Debug)]
pub(in crate::sweep) struct Fit {
    nuisance: Nuisance,
    /// Observations that count, with their rows of the design.
    kept: Vec<(Observation, Entries)>,
    /// Indices of the observations that were left out, in the order in which they were given.
    strays: Vec<usize>,
    /// For each point: number of observations, mean of the logarithms, means of the nuisance's columns.
    groups: Vec<Option<Group>>,
    /// Inverse of what is left of the nuisance's normal equations.
    inverse: Vec<Vec<f64>>,
    /// The nuisance's coefficients.
    coefficients: Vec<f64>,
    /// Its mean over the observations: what the points are reported at.
    level: f64,
    residual_squares: f64,
    freedom: usize,
}

#[derive(Clone, Debug)]
struct Group {
    count: usize,
    mean: f64,
    columns: Vec<f64>,
}

/// By how much two points differ, in ln.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::sweep) struct Difference {
    /// The best guess.
    pub(in crate::sweep) value: f64,
    /// Its variance, in units of that of one observation.
    pub(in crate::sweep) variance: f64,
}

impl Fit {
    /// Of `observations` of points 0 to `points` − 1, without the strays.
    ///
    /// # Panics
    /// If an observation is of another point.
    pub(in crate::sweep) fn new(points: usize, observations: &[Observation]) -> Self {
        strays::without(points, observations)
    }

    /// Of all `observations` but those of index `strays`, which nobody looks for.
    pub(in crate::sweep) fn plain(points: usize, observations: &[Observation], strays: Vec<usize>) -> Self {
        let kept: Vec<Observation> = observations
            .iter()
            .enumerate()
            .filter(|(index, _)| !strays.contains(index))
            .map(|(_, observation)| *observation)
            .collect();
        let mut seen = vec![false; points];
        kept.iter().for_each(|observation| seen[observation.point] = true);
        let distinct = seen.iter().filter(|seen| **seen).count();
        let nuisance = Nuisance::new(&kept, distinct);
        let kept: Vec<_> = kept
            .into_iter()
            .map(|observation| (observation, nuisance.entries(&observation)))
            .collect();
        let columns = nuisance.columns();

        let mut groups: Vec<Option<Group>> = vec![None; points];
        for (observation, entries) in &kept {
            let group = groups[observation.point].get_or_insert_with(|| Group {
                count: 0,
                mean: 0.0,
                columns: vec![0.0; columns],
            });
            group.count += 1;
            group.mean += observation.ln_ms;
            entries
                .iter()
                .for_each(|(column, value)| group.columns[column] += value);
        }
        for group in groups.iter_mut().flatten() {
            let count = group.count as f64;
            group.mean /= count;
            group.columns.iter_mut().for_each(|sum| *sum /= count);
        }

        // Normal equations of the nuisance after the points: Σ z zᵀ − Σ n z̄ z̄ᵀ, and Σ (z − z̄)(y − ȳ).
        let mut normal = vec![vec![0.0; columns]; columns];
        let mut right = vec![0.0; columns];
        for (observation, entries) in &kept {
            let Some(group) = &groups[observation.point] else {
                continue;
            };
            let from_mean = observation.ln_ms - group.mean;
            for (row, value) in entries.iter() {
                right[row] += value * from_mean;
                for (column, other) in entries.iter() {
                    normal[row][column] += value * other;
                }
            }
        }
        for group in groups.iter().flatten() {
            for (row, value) in group.columns.iter().enumerate() {
                for (column, other) in group.columns.iter().enumerate() {
                    normal[row][column] -= group.count as f64 * value * other;
                }
            }
        }
        let (inverse, rank) = inverted(normal);
        let coefficients: Vec<f64> = inverse.iter().map(|row| dot(row, &right)).collect();
        let level = kept
            .iter()
            .map(|(_, entries)| entries.dot(&coefficients))
            .sum::<f64>()
            / kept.len().max(1) as f64;
        let mut fit = Self {
            freedom: kept.len().saturating_sub(distinct + rank),
            nuisance,
            kept,
            strays,
            groups,
            inverse,
            coefficients,
            level,
            residual_squares: 0.0,
        };
        fit.residual_squares = fit.kept.iter().map(|kept| fit.residual(kept).powi(2)).sum();
        fit
    }

    /// Number of points.
    pub(in crate::sweep) fn points(&self) -> usize {
        self.groups.len()
    }

    /// Observations of `point` that count.
    pub(in crate::sweep) fn count(&self, point: usize) -> usize {
        self.groups[point].as_ref().map_or(0, |group| group.count)
    }

    /// ln(step time) of `point`, at the average state of the machine; none without observations.
    pub(in crate::sweep) fn mean(&self, point: usize) -> Option<f64> {
        let group = self.groups[point].as_ref()?;
        Some(group.mean - dot(&group.columns, &self.coefficients) + self.level)
    }

    /// `point` less `other`; none if either has no observations.
    pub(in crate::sweep) fn difference(&self, point: usize, other: usize) -> Option<Difference> {
        let (a, b) = (self.groups[point].as_ref()?, self.groups[other].as_ref()?);
        let columns: Vec<f64> = a.columns.iter().zip(&b.columns).map(|(a, b)| a - b).collect();
        Some(Difference {
            value: a.mean - b.mean - dot(&columns, &self.coefficients),
            variance: 1.0 / a.count as f64 + 1.0 / b.count as f64 + self.quadratic(&columns),
        })
    }

    /// Degrees of freedom of the residuals.
    pub(in crate::sweep) fn freedom(&self) -> usize {
        self.freedom
    }

    /// Variance of one observation; none if no degree of freedom is left.
    pub(in crate::sweep) fn variance(&self) -> Option<f64> {
        (self.freedom > 0).then(|| self.residual_squares / self.freedom as f64)
    }

    /// From the fastest to the slowest state of the machine, ln.
    pub(in crate::sweep) fn drift(&self) -> f64 {
        let states = self
            .kept
            .iter()
            .map(|(_, entries)| entries.dot(&self.coefficients));
        let (least, most) = states.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), state| {
            (least.min(state), most.max(state))
        });
        (most - least).max(0.0)
    }

    /// Whether the machine may drift inside a block.
    pub(in crate::sweep) fn sloped(&self) -> bool {
        self.nuisance.sloped()
    }

    /// Observations that were left out, by their index.
    pub(in crate::sweep) fn strays(&self) -> &[usize] {
        &self.strays
    }

    /// What `observation` should have been, ln; none if its point has no other.
    pub(in crate::sweep) fn expected(&self, observation: &Observation) -> Option<f64> {
        let state = self.nuisance.entries(observation).dot(&self.coefficients);
        self.mean(observation.point).map(|mean| mean - self.level + state)
    }

    /// The residuals of what is kept, studentized by the variance without the observation itself, with the point of each.
    pub(super) fn studentized(&self) -> impl Iterator<Item = (usize, f64)> {
        self.kept.iter().map(|kept| {
            let (observation, entries) = kept;
            let residual = self.residual(kept);
            let Some(group) = &self.groups[observation.point] else {
                return (observation.point, 0.0);
            };
            let mut columns: Vec<f64> = group.columns.iter().map(|mean| -mean).collect();
            entries
                .iter()
                .for_each(|(column, value)| columns[column] += value);
            let free = 1.0 - 1.0 / group.count as f64 - self.quadratic(&columns);
            let without = self.residual_squares - residual * residual / free;
            let freedom = self.freedom as f64 - 1.0;
            let t = residual / (free * without.max(0.0) / freedom).sqrt();
            // Nothing can be said of an observation that its point or block has to itself, nor of rounding.
            let said = free > 1e-9 && freedom > 0.0 && residual.abs() > ROUNDING;
            (observation.point, if said { t } else { 0.0 })
        })
    }

    fn residual(&self, (observation, entries): &(Observation, Entries)) -> f64 {
        self.groups[observation.point].as_ref().map_or(0.0, |group| {
            let state = entries.dot(&self.coefficients) - dot(&group.columns, &self.coefficients);
            observation.ln_ms - group.mean - state
        })
    }

    /// vᵀ `inverse` v.
    fn quadratic(&self, vector: &[f64]) -> f64 {
        let product = self.inverse.iter().map(|row| dot(row, vector));
        product.zip(vector).map(|(a, b)| a * b).sum::<f64>().max(0.0)
    }
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(a, b)| a * b).sum()
}

/// Inverse and rank of a symmetric matrix without negative eigenvalues, by sweeps of its diagonal (Goodnight, "A tutorial on
/// the SWEEP operator", 1979): rows that depend on others are left at 0, which makes it a generalized inverse.
fn inverted(mut matrix: Vec<Vec<f64>>) -> (Vec<Vec<f64>>, usize) {
    let size = matrix.len();
    let scale: Vec<f64> = (0..size).map(|i| matrix[i][i].abs()).collect();
    let mut swept = vec![false; size];
    for pivot in 0..size {
        let value = matrix[pivot][pivot];
        // What is left of a row that depends on those before is rounding.
        if value <= 1e-9 * scale[pivot].max(1e-9) {
            continue;
        }
        swept[pivot] = true;
        let row: Vec<f64> = matrix[pivot].iter().map(|entry| entry / value).collect();
        for other in (0..size).filter(|&other| other != pivot) {
            let factor = matrix[other][pivot];
            for (entry, pivotal) in matrix[other].iter_mut().zip(&row) {
                *entry -= factor * pivotal;
            }
            matrix[other][pivot] = -factor / value;
        }
        matrix[pivot] = row;
        matrix[pivot][pivot] = 1.0 / value;
    }
    for row in 0..size {
        for column in 0..size {
            if !(swept[row] && swept[column]) {
                matrix[row][column] = 0.0;
            }
        }
    }
    let rank = swept.into_iter().filter(|swept| *swept).count();
    (matrix, rank)
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

    fn near(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-12
    }

    #[test]
    fn a_matrix_is_inverted_as_far_as_it_can_be() {
        let (inverse, rank) = inverted(vec![vec![4.0, 2.0], vec![2.0, 3.0]]);
        // Determinant 8: [3, −2; −2, 4] / 8.
        assert_eq!((inverse, rank), (vec![vec![0.375, -0.25], vec![-0.25, 0.5]], 2));
        let (inverse, rank) = inverted(vec![vec![2.0, 2.0], vec![2.0, 2.0]]);
        assert_eq!((inverse, rank), (vec![vec![0.5, 0.0], vec![0.0, 0.0]], 1));
    }

    #[test]
    fn two_points_in_three_blocks() {
        // Differences b − a: 1, 2 and 3; the blocks are at 10, 20 and 30.
        let observations = [
            observation(0, 0, 10.0),
            observation(1, 0, 11.0),
            observation(1, 1, 22.0),
            observation(0, 1, 20.0),
            observation(0, 2, 30.0),
            observation(1, 2, 33.0),
        ];
        let fit = Fit::new(2, &observations);
        let difference = fit.difference(1, 0).unwrap();
        assert!(near(difference.value, 2.0), "{difference:?}");
        assert!(near(difference.variance, 2.0 / 3.0), "{difference:?}");
        // Residuals of ±½ in the first and last block: 4 · ¼, with 6 − 2 − 2 degrees of freedom. A paired t-test has the same:
        // the differences have variance 1, twice that of one observation.
        assert_eq!(fit.freedom(), 2);
        assert!(near(fit.residual_squares, 1.0), "{}", fit.residual_squares);
        assert!(near(fit.variance().unwrap(), 0.5));
        // At the average of the blocks.
        assert!(near(fit.mean(0).unwrap(), 20.0) && near(fit.mean(1).unwrap(), 22.0));
        assert!(near(fit.drift(), 21.0), "{}", fit.drift()); // 10.5 to 31.5
        assert!(fit.strays().is_empty());
    }

    #[test]
    fn a_point_that_was_not_in_all_blocks_is_set_right() {
        // The second block is 1 slower: the third point was there alone, at 6, and would have been at 5.
        let observations = [
            observation(0, 0, 1.0),
            observation(1, 0, 3.0),
            observation(0, 1, 2.0),
            observation(1, 1, 4.0),
            observation(2, 1, 6.0),
        ];
        let fit = Fit::new(4, &observations);
        assert!(near(fit.difference(2, 0).unwrap().value, 4.0));
        // 1 + ½ and what is not known of the block: half of its variance of 1 (two pairs).
        assert!(near(fit.difference(2, 0).unwrap().variance, 1.75));
        assert_eq!((fit.count(2), fit.count(3)), (1, 0));
        assert_eq!((fit.mean(3), fit.difference(3, 0)), (None, None));
    }

    #[test]
    fn blocks_that_nothing_connects_are_taken_as_they_are() {
        let fit = Fit::new(2, &[observation(0, 0, 1.0), observation(1, 1, 5.0)]);
        assert!(near(fit.difference(1, 0).unwrap().value, 4.0));
        assert_eq!((fit.freedom(), fit.variance()), (0, None));
    }

    #[test]
    fn nothing_is_nothing() {
        let fit = Fit::new(0, &[]);
        assert_eq!((fit.freedom(), fit.variance(), fit.drift()), (0, None, 0.0));
        assert!(!fit.sloped());
    }

    #[test]
    fn a_slope_inside_blocks_is_taken_out() {
        // The machine gets slower by 1 % a measurement; 20 points, alike but for the last, in an order of each block's own.
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
        assert!(fit.sloped());
        assert!((fit.difference(19, 0).unwrap().value - 0.5).abs() < 1e-9);
        assert!((fit.difference(7, 0).unwrap().value).abs() < 1e-9);
        assert!((fit.drift() - 0.79).abs() < 1e-9, "{}", fit.drift());
        assert!(fit.variance().unwrap() < 1e-18, "{:?}", fit.variance());
    }
}
