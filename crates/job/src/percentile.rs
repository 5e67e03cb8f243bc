//! Percentiles and ranges of values.

/// Returns the `fraction` percentile (0 to 1) of values in ascending order, interpolated linearly;
/// `None` without values.
///
/// This is definition 7 of Hyndman and Fan, "Sample Quantiles in Statistical Packages" (1996), the
/// default of NumPy.
pub fn percentile(sorted: &[f64], fraction: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let position = fraction.clamp(0.0, 1.0) * last as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    let part = position - below as f64;
    // A weighted sum, as the difference of the two values may overflow.
    Some(sorted[below] * (1.0 - part) + sorted[above] * part)
}

/// Returns the `fraction` percentile of values in any order.
pub fn percentile_of(mut values: Vec<f64>, fraction: f64) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    percentile(&values, fraction)
}

/// Returns `count` levels from `low` to `high`, both above 0, with a constant ratio; one level if
/// they are equal within 0.01 %.
pub fn geometric([low, high]: [f64; 2], count: usize) -> Vec<f64> {
    if high <= low * 1.0001 {
        return vec![high];
    }
    let ratio = (high / low).ln() / (count - 1) as f64;
    let level = |level| low * (ratio * level as f64).exp();
    (0..count).map(level).collect()
}

/// Least and largest of the values; infinite without values.
pub fn range(values: impl IntoIterator<Item = f64>) -> [f64; 2] {
    let values = values.into_iter();
    values.fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], value| {
        [low.min(value), high.max(value)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_interpolate_as_numpy_does() {
        let values = [1.0, 2.0, 4.0, 8.0, 16.0];
        assert_eq!(percentile(&values, 0.5), Some(4.0));
        assert_eq!(percentile(&values, 0.1), Some(1.4)); // position 0.4: 1 + 0.4·(2 − 1)
        assert_eq!(percentile(&values, 0.9), Some(12.8)); // position 3.6: 8 + 0.6·8
        assert_eq!(percentile(&[7.0], 0.9), Some(7.0));
        assert_eq!(percentile(&[], 0.5), None);
        assert_eq!(
            percentile_of(vec![8.0, 1.0, 16.0, 2.0, 4.0], 0.9),
            Some(12.8)
        );
    }
}
