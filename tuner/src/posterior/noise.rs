//! The noise of a measurement: levels that are weighed, and what comes of it.

/// The levels, as standard deviations in log step time: from 0.1 % to 50 %, a factor of 1.43 apart.
const LEAST: f64 = 0.001;
const MOST: f64 = 0.5;
const LEVELS: usize = 18;

/// Prior of the noise: log-normal, median and standard deviation of the logarithm. Where nothing is known it is that of other
/// people's logs, half of which are noisier than 3 %; where each measurement tells its own, there is little beside it.
const UNKNOWN: (f64, f64) = (0.03, 1.0);
const BESIDE_KNOWN: (f64, f64) = (0.004, 1.0);

/// Noise of a measurement, as a fraction of it: what no smooth surface explains.
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
    /// Median and interval of standard deviations with their weights; none if these are no numbers.
    pub(super) fn new(mut weighed: Vec<(f64, f64)>) -> Option<Self> {
        let total: f64 = weighed.iter().map(|(_, weight)| weight).sum();
        if !(total.is_finite() && total > 0.0) {
            return None;
        }
        weighed.sort_by(|a, b| a.0.total_cmp(&b.0));
        let last = weighed.last()?.0;
        let quantile = |share: f64| {
            let mut sum = 0.0;
            let reached = |(_, weight): &&(f64, f64)| {
                sum += weight;
                sum >= share * total
            };
            weighed.iter().find(reached).map_or(last, |(sd, _)| *sd)
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
        // 0.01 … 1.00, all of one weight.
        let noise = NoiseEstimate::new((1..=100).rev().map(|i| (f64::from(i) / 100.0, 2.0)).collect()).unwrap();
        assert_eq!((noise.low, noise.sd, noise.high), (0.03, 0.5, 0.98));
        assert_eq!(NoiseEstimate::new(vec![]), None);
        assert_eq!(NoiseEstimate::new(vec![(0.1, f64::NAN)]), None);
    }

    #[test]
    fn levels_span_what_measurements_have() {
        let levels = levels(true);
        assert!((levels[0].sd - 0.001).abs() < 1e-15 && (levels[LEVELS - 1].sd - 0.5).abs() < 1e-12);
        let likeliest = levels.iter().max_by(|a, b| a.log_prior.total_cmp(&b.log_prior));
        assert!((0.003..0.006).contains(&likeliest.unwrap().sd));
    }
}
