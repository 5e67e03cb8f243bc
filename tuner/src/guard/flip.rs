//! Sign-flip test: whether a weighted mean of differences is above a limit. Under the null
//! hypothesis the sign of each difference from the limit is an independent fair coin.
//!
//! Exact for differences of any distribution (R. A. Fisher, *The Design of Experiments*, 1935,
//! section 21). The number of sign patterns is 2 to the power of the number of differences, so they
//! are not enumerated: their sums are counted on a grid.

/// Cells of the grid. Each magnitude loses less than a cell: with 45 values, together less than
/// 0.04 standard deviations of their sum.
const CELLS: f64 = 16_384.0;
/// Halvings of the range that contains an end of the interval.
const HALVINGS: u32 = 20;

/// Whether the weighted mean of `differences`, each with its weight, is above `limit` at this
/// one-sided error.
pub(super) fn is_above(differences: &[(f64, f64)], limit: f64, error: f64) -> bool {
    // The smallest p is that of equal signs.
    if 0.5f64.powi(differences.len() as i32) > error {
        return false;
    }
    let values = differences.iter();
    let values = values.map(|(weight, difference)| weight * (difference - limit));
    p_value(&values.collect::<Vec<f64>>()) <= error
}

/// The largest limit that the weighted mean `center` of `differences` is above at this one-sided
/// error; minus infinity if there are too few differences.
pub(super) fn lower_end(differences: &[(f64, f64)], center: f64, error: f64) -> f64 {
    // Below every difference all signs are equal.
    let least = differences.iter().map(|(_, difference)| *difference);
    let least = least.fold(center, f64::min);
    // A margin far above a cell of the grid.
    let (mut low, mut high) = (least - (center - least).max(1e-9), center);
    if !is_above(differences, low, error) {
        return f64::NEG_INFINITY;
    }
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if is_above(differences, middle, error) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// Probability that the sum of `values` with random signs is at least their own. Magnitudes are
/// rounded down to the grid, which only counts further patterns.
fn p_value(values: &[f64]) -> f64 {
    let total: f64 = values.iter().map(|value| value.abs()).sum();
    if total.is_nan() || total <= 0.0 {
        return 1.0;
    }
    let cell = total / CELLS;
    // The sum of a pattern is the total less twice its negative values.
    let negative: f64 = values.iter().map(|value| (-value).max(0.0)).sum();
    let most = (negative / cell + 1e-6) as usize;
    let mut patterns = vec![0.0; most + 1];
    patterns[0] = 1.0;
    for value in values {
        let magnitude = (value.abs() / cell) as usize;
        for sum in (0..=most).rev() {
            let with = sum
                .checked_sub(magnitude)
                .map_or(0.0, |rest| patterns[rest]);
            patterns[sum] = (patterns[sum] + with) / 2.0;
        }
    }
    patterns.iter().sum()
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;
    use crate::random::generator;

    #[test]
    fn the_grid_counts_every_pattern_and_hardly_any_other() {
        let mut rng = generator(1, 2);
        let (mut counted, mut exact) = (0.0, 0.0);
        for count in 1..=14 {
            for _ in 0..20 {
                let values: Vec<f64> = (0..count).map(|_| rng.random_range(-0.5..1.0)).collect();
                let own: f64 = values.iter().sum();
                let patterns = (0..1u32 << count).filter(|pattern| {
                    let signed = values.iter().enumerate().map(|(index, value)| {
                        let sign = if pattern >> index & 1 == 0 { 1.0 } else { -1.0 };
                        sign * value.abs()
                    });
                    signed.sum::<f64>() >= own - 1e-12
                });
                let share = patterns.count() as f64 / f64::from(1u32 << count);
                let p = p_value(&values);
                assert!(p >= share, "{p} is below {share}");
                (counted, exact) = (counted + p, exact + share);
            }
        }
        assert!(counted < 1.001 * exact, "{counted} {exact}");
    }

    #[test]
    fn the_end_of_the_interval_is_where_the_test_turns() {
        let mut rng = generator(3, 4);
        let differences: Vec<(f64, f64)> = (0..20)
            .map(|_| (rng.random_range(1.0..2.0), rng.random_range(0.0..2.0)))
            .collect();
        let weights: f64 = differences.iter().map(|(weight, _)| weight).sum();
        let center = differences
            .iter()
            .map(|(weight, value)| weight * value)
            .sum::<f64>()
            / weights;
        let end = lower_end(&differences, center, 0.004);
        assert!((0.2..0.9 * center).contains(&end), "{end} {center}");
        assert!(is_above(&differences, end, 0.004));
        assert!(!is_above(&differences, end + 0.01, 0.004));
        assert_eq!(
            lower_end(&differences, center, 1e-7),
            f64::NEG_INFINITY,
            "2^-20"
        );
    }

    #[test]
    fn values_that_are_alike_have_a_narrow_interval() {
        for count in [7, 17, 40] {
            let error = 1.01 * 0.5f64.powi(count);
            let values: Vec<(f64, f64)> = (0..count)
                .map(|index| (1.4, 0.2 + 1e-4 * f64::from(index % 2)))
                .collect();
            let end = lower_end(&values, 0.20005, error);
            assert!((0.1998..0.2).contains(&end), "{count}: {end}");
            let alike = vec![(1.0, 0.3); count as usize];
            assert!((0.3 - lower_end(&alike, 0.3, error)).abs() < 1e-6);
        }
    }

    #[test]
    fn no_difference_at_all_is_no_evidence() {
        assert_eq!(p_value(&[0.0; 9]), 1.0);
        assert!(!is_above(&[(1.0, 0.0); 9], 0.0, 0.01));
        assert!(lower_end(&[(1.0, 0.0); 9], 0.0, 0.01).abs() < 1e-6);
    }
}
