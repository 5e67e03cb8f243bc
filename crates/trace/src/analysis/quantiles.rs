//! Quantiles of values in memory, and thinned samples of streams that are too long to be kept.

use super::report::Quantiles;
use ronde_job::percentile::percentile;

impl Quantiles {
    /// Quantiles of `values`, by linear interpolation between neighbours. NaN and infinity are
    /// ignored; without finite values all fields are zero.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values
            .into_iter()
            .filter(|value| value.is_finite())
            .collect();
        if sorted.is_empty() {
            return Self::default();
        }
        sorted.sort_unstable_by(f64::total_cmp);
        let n = sorted.len();
        Self {
            n: n as u64,
            min: sorted[0],
            p10: quantile(&sorted, 0.1),
            p50: quantile(&sorted, 0.5),
            p90: quantile(&sorted, 0.9),
            p99: quantile(&sorted, 0.99),
            max: sorted[n - 1],
            // Divided first: the sum of very large numbers would be infinite.
            mean: sorted.iter().map(|value| value / n as f64).sum(),
        }
    }

    /// [`Quantiles::of`], or `None` without values.
    pub fn some(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        Some(Self::of(values)).filter(|quantiles| quantiles.n > 0)
    }

    /// Usual deviation from the median: the standard deviation of the normal distribution with the
    /// same p10 and p90. Outliers have no influence.
    pub fn spread(&self) -> f64 {
        (self.p90 - self.p10) / 2.563
    }
}

/// Value below which a share `q` of `sorted` lies, interpolated; 0 without values.
pub(super) fn quantile(sorted: &[f64], q: f64) -> f64 {
    percentile(sorted, q).unwrap_or(0.0)
}

/// Median of `values`, which it sorts; 0 without values.
pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    quantile(values, 0.5)
}

/// An evenly thinned sample of a stream of any length: every value until `most` are kept, then
/// every second one, and so on. It is deterministic, so that the same file always gives the same
/// numbers.
#[derive(Clone, Debug)]
pub(super) struct Sample<T> {
    kept: Vec<T>,
    most: usize,
    stride: u64,
    seen: u64,
}

impl<T> Sample<T> {
    /// Keeps between half of `most` and `most` values of a long stream.
    pub(super) fn new(most: usize) -> Self {
        Self {
            kept: Vec::new(),
            most: most.max(2),
            stride: 1,
            seen: 0,
        }
    }

    pub(super) fn push(&mut self, value: T) {
        if self.seen.is_multiple_of(self.stride) {
            self.kept.push(value);
            if self.kept.len() > self.most {
                let mut index = 0;
                self.kept.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.stride *= 2;
            }
        }
        self.seen += 1;
    }

    pub(super) fn kept(&self) -> &[T] {
        &self.kept
    }

    pub(super) fn into_kept(self) -> Vec<T> {
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_interpolate() {
        let q = Quantiles::of([30.0, 10.0, 20.0, f64::NAN, 40.0, 50.0]);
        assert_eq!(
            (q.n, q.min, q.p50, q.max, q.mean),
            (5, 10.0, 30.0, 50.0, 30.0)
        );
        assert!(
            (q.p10 - 14.0).abs() < 1e-12 && (q.p90 - 46.0).abs() < 1e-12,
            "{q:?}"
        );
        assert_eq!(Quantiles::of([]), Quantiles::default());
        assert_eq!(Quantiles::some([f64::INFINITY]), None);
    }

    #[test]
    fn a_sample_is_even_and_bounded() {
        let mut sample = Sample::new(4);
        (0..100).for_each(|value| sample.push(value));
        assert_eq!(sample.kept(), [0, 32, 64, 96]);
        let mut short = Sample::new(4);
        (0..4).for_each(|value| short.push(value));
        assert_eq!(short.kept(), [0, 1, 2, 3]);
    }

    proptest! {
        #[test]
        fn quantiles_are_in_order(values in proptest::collection::vec(-1e300f64..1e300, 1..50)) {
            let q = Quantiles::of(values);
            prop_assert!(q.min <= q.p10 && q.p10 <= q.p50 && q.p50 <= q.p90 && q.p90 <= q.p99 && q.p99 <= q.max);
            prop_assert!(q.mean.is_finite());
        }
    }
}
