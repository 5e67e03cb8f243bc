//! The noise of a measurement: levels that are weighed, and what comes of it.

/// The levels, as standard deviations in log step time: from 0.1 % to 50 %, a factor of 1.33 apart.
const LEAST: f64 = 0.001;
const MOST: f64 = 0.5;
const LEVELS: usize = 23;

/// Prior of the noise: log-normal, median and standard deviation of the logarithm. Where nothing is known it is that of other
/// people's logs, half of which are noisier than 3 %; where each measurement tells its own, there is little beside it.
const UNKNOWN: (f64, f64) = (0.03, 1.0);
const BESIDE_KNOWN: (f64, f64) = (0.004, 1.0);

/// Noise of a measurement, as a fraction of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoiseEstimate {
    /// Standard deviation: posterior median.
    pub sd: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
}

/// One of the levels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    /// Standard deviation.
    pub(super) sd: f64,
    /// Logarithm of its prior weight, up to a constant.
    pub(super) log_prior: f64,
}

/// The levels, ascending; `known` if the measurements tell their own noise.
pub(super) fn levels(known: bool) -> Vec<Level> {
    let (median, spread): (f64, f64) = if known { BESIDE_KNOWN } else { UNKNOWN };
    let ratio = (MOST / LEAST).ln() / (LEVELS - 1) as f64;
    let level = |index: usize| {
        let sd = LEAST * (ratio * index as f64).exp();
        let score = (sd / median).ln() / spread;
        Level {
            sd,
            log_prior: -0.5 * score * score,
        }
    };
    (0..LEVELS).map(level).collect()
}

impl NoiseEstimate {
    /// Median and interval of the weights of `levels`; none if these are no numbers.
    pub(super) fn new(levels: &[Level], weights: &[f64]) -> Option<Self> {
        let total: f64 = weights.iter().sum();
        if !(total.is_finite() && total > 0.0) {
            return None;
        }
        // Each level stands for the interval about it, in which its weight is spread evenly over the logarithm.
        let half = 0.5 * (levels.get(1)?.sd / levels.first()?.sd).ln();
        let quantile = |share: f64| {
            let mut left = share * total;
            for (level, weight) in levels.iter().zip(weights) {
                if left <= *weight && *weight > 0.0 {
                    return level.sd * (half * (2.0 * left / weight - 1.0)).exp();
                }
                left -= weight;
            }
            MOST
        };
        Some(Self {
            sd: quantile(0.5),
            low: quantile(0.025),
            high: quantile(0.975),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_by_hand() {
        let levels = levels(false);
        let mut weights = vec![0.0; LEVELS];
        (weights[4], weights[5]) = (1.0, 1.0);
        let noise = NoiseEstimate::new(&levels, &weights).unwrap();
        let ratio = levels[5].sd / levels[4].sd;
        // The median lies between the two; 2.5 % of both are 5 % of the lower one.
        assert!((noise.sd / (levels[4].sd * ratio.sqrt()) - 1.0).abs() < 1e-12);
        assert!((noise.low / (levels[4].sd * ratio.powf(-0.45)) - 1.0).abs() < 1e-12);
        assert!((noise.high / (levels[5].sd * ratio.powf(0.45)) - 1.0).abs() < 1e-12);
        assert_eq!(NoiseEstimate::new(&levels, &[0.0; LEVELS]), None);
        assert_eq!(NoiseEstimate::new(&levels, &[f64::NAN; LEVELS]), None);
    }

    #[test]
    fn levels_span_what_measurements_have() {
        let levels = levels(true);
        assert!((levels[0].sd - 0.001).abs() < 1e-15 && (levels[LEVELS - 1].sd - 0.5).abs() < 1e-12);
        let likeliest = levels.iter().max_by(|a, b| a.log_prior.total_cmp(&b.log_prior));
        assert!((0.003..0.0055).contains(&likeliest.unwrap().sd));
    }
}
