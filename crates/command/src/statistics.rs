//! Statistics of figures: scatter within settings, geometric mean.

/// Sum of squared deviations from the mean.
pub(crate) fn squares(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().map(|value| (value - mean).powi(2)).sum()
}

/// Standard deviation within groups, pooled over them. `prior` is a sum of squares with its degrees
/// of freedom; without one, the result is NaN unless a group has two values.
pub fn scatter(prior: (f64, f64), groups: impl IntoIterator<Item = Vec<f64>>) -> f64 {
    let (mut all, mut freedom) = prior;
    for values in groups {
        all += squares(&values);
        freedom += values.len().saturating_sub(1) as f64;
    }
    (all / freedom).sqrt()
}

/// Geometric mean of values > 0; NaN without values.
pub fn geometric_mean(values: &[f64]) -> f64 {
    let logs: f64 = values.iter().map(|value| value.ln()).sum();
    (logs / values.len() as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let groups = || [vec![1.0, 3.0], vec![7.0], vec![], vec![2.0, 2.0, 5.0]];
        assert_eq!(squares(&groups()[3]), 6.0);
        assert_eq!(scatter((0.0, 0.0), groups()), (8.0f64 / 3.0).sqrt());
        assert_eq!(scatter((1.0, 6.0), groups()), 1.0);
        assert!(scatter((0.0, 0.0), [vec![4.0]]).is_nan());
        assert!((geometric_mean(&[2.0, 8.0]) - 4.0).abs() < 1e-12);
        assert!(geometric_mean(&[]).is_nan());
    }
}
