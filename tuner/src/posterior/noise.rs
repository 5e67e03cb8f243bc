//! Noise of a measurement: a grid of levels with a prior, and the posterior estimate.

/// The levels, as standard deviations in log step time: from 0.1 % to 50 %, a factor of 1.43 apart.
const LEAST: f64 = 0.001;
const MOST: f64 = 0.5;
const LEVELS: usize = 18;

/// Prior of the noise: log-normal, median and standard deviation of the logarithm. Where nothing is
/// known it is that of other people's logs, half of which are noisier than 3 %; if each measurement
/// states its noise, little is added to it.
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
    /// Median and interval of standard deviations, ascending, with their weights; none if these are
    /// no numbers. Each stands for what is nearer to it than to its neighbours, where its weight is
    /// spread evenly over the logarithm.
    pub(super) fn new(weighed: &[(f64, f64)]) -> Option<Self> {
        let total: f64 = weighed.iter().map(|(_, weight)| weight).sum();
        if !(total.is_finite() && total > 0.0) {
            return None;
        }
        let middle = |a: usize, b: usize| {
            let (a, b) = (weighed.get(a)?, weighed.get(b)?);
            Some((a.0 * b.0).sqrt())
        };
        let quantile = |share: f64| {
            let mut left = share * total;
            for (index, &(sd, weight)) in weighed.iter().enumerate() {
                if left <= weight && weight > 0.0 {
                    let low = index
                        .checked_sub(1)
                        .and_then(|before| middle(before, index))
                        .unwrap_or(sd);
                    let high = middle(index, index + 1).unwrap_or(sd);
                    return low * (high / low).powf(left / weight);
                }
                left -= weight;
            }
            weighed.last().map_or(MOST, |last| last.0)
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
        // All weight on 0.02, between 0.01 and 0.04: from 0.0141 to 0.0283, evenly over the
        // logarithm.
        let noise = NoiseEstimate::new(&[(0.01, 0.0), (0.02, 3.0), (0.04, 0.0)]).unwrap();
        assert!((noise.sd - 0.02).abs() < 1e-12);
        assert!((noise.low - 0.02 * 2f64.powf(-0.475)).abs() < 1e-12);
        assert!((noise.high - 0.02 * 2f64.powf(0.475)).abs() < 1e-12);
        assert_eq!(NoiseEstimate::new(&[]), None);
        assert_eq!(NoiseEstimate::new(&[(0.1, f64::NAN)]), None);
    }

    #[test]
    fn levels_span_what_measurements_have() {
        let levels = levels(true);
        assert!(
            (levels[0].sd - 0.001).abs() < 1e-15 && (levels[LEVELS - 1].sd - 0.5).abs() < 1e-12
        );
        let likeliest = levels
            .iter()
            .max_by(|a, b| a.log_prior.total_cmp(&b.log_prior));
        assert!((0.003..0.006).contains(&likeliest.unwrap().sd));
    }
}
