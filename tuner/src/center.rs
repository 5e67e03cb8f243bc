//! Location and spread of step times: the Huber centre of one sample and the pooled noise of all,
//! in logarithms; the mean and its standard error, for comparisons.
//!
//! A step time has a log-normal core and spikes (a few percent of the steps, 1.5 times as long).
//! The mean of the logs follows the spikes, the median wastes a third of the data; Huber's centre
//! (P. Huber, Robust Statistics, ch. 3) does neither.

/// 1 / Φ⁻¹(3/4): makes the median absolute deviation estimate a normal standard deviation.
pub(crate) const MAD_TO_SD: f64 = 1.4826;
/// Deviations beyond this many spreads are clipped.
const CLIP_SPREADS: f64 = 1.5;
/// The clip moves the centre by a contraction; three rounds leave it well within the noise.
const CLIP_ROUNDS: usize = 3;
/// Keeps the clip width above zero where all steps are equal.
const SPREAD_MIN: f64 = 1e-4;
/// Lower limit of the noise of a step, as a fraction of it.
pub(crate) const NOISE_FLOOR: f64 = 0.01;
/// Variance of the Huber centre of n steps times n over the noise variance, on log-normal noise
/// with 3 % spikes.
pub(crate) const CENTER_INEFFICIENCY: f64 = 1.3;

/// The median; NaN without values. For an even number of values, the mean of the middle two.
pub fn median(values: &[f64]) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[half]
    } else {
        0.5 * (sorted[half - 1] + sorted[half])
    }
}

/// The mean; NaN without values.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The Huber centre of log step times; NaN without values.
pub(crate) fn huber_center(values: &[f64]) -> f64 {
    let middle = median(values);
    let deviations: Vec<f64> = values.iter().map(|v| (v - middle).abs()).collect();
    let clip = CLIP_SPREADS * (MAD_TO_SD * median(&deviations) + SPREAD_MIN);
    let mut center = middle;
    for _ in 0..CLIP_ROUNDS {
        let moves = values.iter().map(|v| (v - center).clamp(-clip, clip));
        center += moves.sum::<f64>() / values.len() as f64;
    }
    center
}

/// The noise of a single step: the pooled spread of log step times about their own sample's median,
/// corrected for the medians that were fitted, not below 1 %.
pub(crate) fn step_noise<'a>(samples: impl Iterator<Item = &'a [f64]>) -> f64 {
    let mut deviations = Vec::new();
    let mut fitted = 0;
    for sample in samples.filter(|sample| !sample.is_empty()) {
        let center = median(sample);
        deviations.extend(sample.iter().map(|v| (v - center).abs()));
        fitted += 1;
    }
    let count = deviations.len();
    if count == 0 {
        return NOISE_FLOOR;
    }
    let freedom = count.saturating_sub(fitted).max(1);
    let spread = MAD_TO_SD * median(&deviations) * (count as f64 / freedom as f64).sqrt();
    spread.max(NOISE_FLOOR)
}

/// The variance of the Huber centre of `steps` steps of noise `noise` each.
pub(crate) fn center_variance(noise: f64, steps: usize) -> f64 {
    CENTER_INEFFICIENCY * noise * noise / steps.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_even_odd_and_none() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn huber_center_by_hand() {
        // Symmetric: the median stays.
        assert!((huber_center(&[-0.1, 0.0, 0.1]) - 0.0).abs() < 1e-12);
        // 0, 1, 2, 100: median 1.5, MAD 1 (of 1.5, 0.5, 0.5, 98.5), clip 1.5 * 1.4827 = 2.22405.
        // Round 1: 1.5 + (-1.5 - 0.5 + 0.5 + 2.22405) / 4 = 1.6810125; round 2: deviations
        // -1.6810125, -0.6810125, 0.3189875, 2.22405 -> + 0.045253 = 1.726266; round 3: + 0.011313
        // = 1.737579.
        assert!((huber_center(&[0.0, 1.0, 2.0, 100.0]) - 1.737579).abs() < 1e-5);
        assert_eq!(huber_center(&[5.0]), 5.0);
        assert_eq!(huber_center(&[2.0, 2.0, 2.0]), 2.0);
    }

    #[test]
    fn noise_by_hand() {
        // Deviations 0.1, 0, 0.1 and 0.2, 0, 0.2: median 0.1; 1.4826 * 0.1 * sqrt(6/4).
        let samples: [&[f64]; 2] = [&[0.9, 1.0, 1.1], &[4.8, 5.0, 5.2]];
        assert!((step_noise(samples.into_iter()) - 0.181581).abs() < 1e-5);
        assert_eq!(step_noise([&[1.0, 1.0, 1.0][..]].into_iter()), NOISE_FLOOR);
        assert_eq!(step_noise(std::iter::empty()), NOISE_FLOOR);
        assert!((center_variance(0.1, 13) - 0.001).abs() < 1e-15);
    }
}
