//! Sign-flip test: whether a sum of values is above zero. Under the null hypothesis the sign of each
//! value is an independent fair coin.
//!
//! Exact for values of any distribution (R. A. Fisher, *The Design of Experiments*, 1935, section
//! 21). The number of sign patterns is 2 to the power of the number of values, so they are not
//! enumerated: their sums are counted on a grid.

/// Cells of the grid. Each magnitude loses less than a cell: with 45 values, together less than
/// 0.04 standard deviations of their sum.
const CELLS: f64 = 16_384.0;
/// Whether the sum of `values` is above zero at this one-sided error.
pub(super) fn is_positive(values: &[f64], error: f64) -> bool {
    // The smallest p is that of equal signs.
    0.5f64.powi(values.len() as i32) <= error && p_value(values) <= error
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
    fn few_values_or_none_above_zero_are_no_evidence() {
        assert!(is_positive(&[1.0; 7], 0.0079));
        assert!(!is_positive(&[1.0; 7], 0.0078), "2^-7 is 0.0078125");
        assert_eq!(p_value(&[0.0; 9]), 1.0);
        assert!(!is_positive(&[0.0; 9], 0.01));
    }
}
