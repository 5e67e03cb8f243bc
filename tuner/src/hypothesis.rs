//! What is supposed of the surface before it is measured: with the model's word, or without it.
//!
//! Under a hypothesis the log step time relative to the start's has mean m(x) and prior covariance
//! c₀² + φ(x)·φ(x') + k(x, x'), with k the kernel. A model gives m and φ; without one both are zero and the rest is wider. Both
//! hypotheses are weighed by the marginal likelihood of the same measurements, so that a model which these contradict loses its
//! weight by itself.

use crate::lanes::{Columns, LANES, Lanes, dot};
use crate::model::Belief;

/// Prior probability that the model is of use.
pub(crate) const MODEL_ODDS: f64 = 0.9;
/// Variance c₀² of the level of the whole surface about the start setting, in squared log step time, without a model: 0.2².
const LEVEL_VARIANCE_COLD: f64 = 0.04;
/// Median of the kernel's standard deviation s, in log step time: without a model, and beside one.
const SIGNAL_COLD: f64 = 0.15;
const SIGNAL_BESIDE_MODEL: f64 = 0.05;

/// One hypothesis, evaluated at the settings measured and at the candidates.
#[derive(Clone, Debug)]
pub(crate) struct Hypothesis {
    /// Prior probability.
    pub(crate) odds: f64,
    /// Prior median of the kernel's s.
    pub(crate) signal: f64,
    /// c₀².
    pub(crate) level: f64,
    /// m at the observed settings and at the candidates.
    pub(crate) observed_mean: Vec<f64>,
    pub(crate) candidate_mean: Vec<f64>,
    /// What the model expects of the candidates beyond that.
    pub(crate) candidate_excess: Vec<f64>,
    features: Option<Features>,
}

/// Scalar products of the features, all that the Gaussian process needs of them.
#[derive(Clone, Debug)]
struct Features {
    /// Of the observed settings with each other, as a lower triangle.
    observed: Vec<f64>,
    /// Of the observed settings with the candidates, row by row, each row in blocks.
    candidates: Vec<Lanes>,
    /// Of each candidate with itself, in blocks.
    squares: Vec<Lanes>,
}

impl Hypothesis {
    /// Nothing is known but that most knobs matter little.
    pub(crate) fn cold(observed: usize, candidates: usize) -> Self {
        Self {
            odds: 1.0,
            signal: SIGNAL_COLD,
            level: LEVEL_VARIANCE_COLD,
            observed_mean: vec![0.0; observed],
            candidate_mean: vec![0.0; candidates],
            candidate_excess: vec![0.0; candidates],
            features: None,
        }
    }

    /// The model is right but for a smooth rest. The belief's settings are the candidates, then the observed ones. No mean counts
    /// above `ceiling`, as no measurement does.
    pub(crate) fn with_model(belief: &Belief, candidates: usize, level: f64, ceiling: f64) -> Self {
        let mean: Vec<f64> = belief.mean.iter().map(|m| m.min(ceiling)).collect();
        let features = belief.features.first().is_some_and(|f| !f.is_empty());
        Self {
            odds: MODEL_ODDS,
            signal: SIGNAL_BESIDE_MODEL,
            level,
            observed_mean: mean[candidates..].to_vec(),
            candidate_mean: mean[..candidates].to_vec(),
            candidate_excess: belief.mean[..candidates]
                .iter()
                .map(|m| (m - ceiling).max(0.0))
                .collect(),
            features: features.then(|| Features::new(&belief.features, candidates)),
        }
    }

    /// Adds c₀² + φ(x_i)·φ(x_j) to those of the observed settings' lower triangle that begin at `first`.
    #[inline]
    pub(crate) fn add_observed(&self, to: &mut [f64], first: usize) {
        match &self.features {
            Some(features) => {
                for (value, product) in to.iter_mut().zip(&features.observed[first..]) {
                    *value += self.level + product;
                }
            }
            None => to.iter_mut().for_each(|value| *value += self.level),
        }
    }

    /// c₀² + φ(x_i)·φ(x) for the observed setting `i` and block `block` of the candidates.
    #[inline]
    pub(crate) fn add_candidates(
        &self,
        to: &mut Lanes,
        candidates: &Columns,
        i: usize,
        block: usize,
    ) {
        let products =
            |features: &'_ Features| features.candidates[i * candidates.blocks() + block];
        self.add(to, self.features.as_ref().map(products));
    }

    /// c₀² + |φ(x)|² for block `block` of the candidates.
    pub(crate) fn candidate_variance(&self, block: usize) -> Lanes {
        let mut variance = [0.0; LANES];
        self.add(
            &mut variance,
            self.features.as_ref().map(|f| f.squares[block]),
        );
        variance
    }

    #[inline]
    fn add(&self, to: &mut Lanes, products: Option<Lanes>) {
        let products = products.unwrap_or([0.0; LANES]);
        for lane in 0..LANES {
            to[lane] += self.level + products[lane];
        }
    }
}

impl Features {
    fn new(features: &[Vec<f64>], candidates: usize) -> Self {
        let (candidates, observed) = features.split_at(candidates);
        let blocks = transposed(candidates);
        let products = |row: &[f64], block: &[Lanes]| {
            let mut products = [0.0; LANES];
            for (value, lanes) in row.iter().zip(block) {
                for lane in 0..LANES {
                    products[lane] += value * lanes[lane];
                }
            }
            products
        };
        let with_candidates = observed
            .iter()
            .flat_map(|row| blocks.iter().map(move |block| products(row, block)));
        Self {
            observed: (0..observed.len())
                .flat_map(|i| (0..=i).map(move |j| dot(&observed[i], &observed[j])))
                .collect(),
            candidates: with_candidates.collect(),
            squares: candidates
                .chunks(LANES)
                .map(|block| std::array::from_fn(|lane| block.get(lane).map_or(0.0, |f| dot(f, f))))
                .collect(),
        }
    }
}

/// Features by block and then by feature, zero beyond the end.
fn transposed(features: &[Vec<f64>]) -> Vec<Vec<Lanes>> {
    let block = |block: &[Vec<f64>]| -> Vec<Lanes> {
        (0..block[0].len())
            .map(|feature| std::array::from_fn(|lane| block.get(lane).map_or(0.0, |f| f[feature])))
            .collect()
    };
    features.chunks(LANES).map(block).collect()
}

/// Brings a belief into the form that a hypothesis takes: as many settings as asked for, finite, zero at the reference (setting
/// `reference` of them) and features of one length.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn checked(
    mut belief: Belief,
    settings: usize,
    reference: usize,
) -> Result<Belief, String> {
    if belief.mean.len() != settings {
        return Err(format!(
            "{} means for {settings} settings",
            belief.mean.len()
        ));
    }
    if belief.features.is_empty() {
        belief.features = vec![Vec::new(); settings];
    }
    if belief.features.len() != settings {
        return Err(format!(
            "features for {} of {settings} settings",
            belief.features.len()
        ));
    }
    let (mean, features) = (belief.mean[reference], belief.features[reference].clone());
    if let Some(row) = belief
        .features
        .iter()
        .find(|row| row.len() != features.len())
    {
        return Err(format!(
            "{} features at one setting, {} at another",
            features.len(),
            row.len()
        ));
    }
    belief.mean.iter_mut().for_each(|m| *m -= mean);
    for row in &mut belief.features {
        row.iter_mut()
            .zip(&features)
            .for_each(|(value, zero)| *value -= zero);
    }
    let finite = |values: &[f64]| values.iter().all(|value| value.is_finite());
    if !(finite(&belief.mean) && belief.features.iter().all(|row| finite(row))) {
        return Err("a value is not finite".into());
    }
    Ok(belief)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;
    use crate::space::Coordinates;
    use crate::{Parameter, Space};

    #[test]
    fn products_by_hand() {
        let kernel = Kernel::new(&Space::new(vec![Parameter::linear("x", 0.0, 1.0, 20)]).unwrap());
        let candidates = Columns::new(&kernel, &[Coordinates::default(); 20]);
        // Candidate i has the features (i, 1), the observed settings (0, 0) and (2, 3).
        let mut features: Vec<Vec<f64>> = (0..20).map(|i| vec![f64::from(i), 1.0]).collect();
        features.extend([vec![0.0, 0.0], vec![2.0, 3.0]]);
        let mut mean = vec![0.5; 22];
        mean[20] = 0.0;
        mean[3] = 7.0;
        let belief = checked(Belief { mean, features }, 22, 20).unwrap();
        let hypothesis = Hypothesis::with_model(&belief, 20, 0.01, 1.0);
        assert_eq!(hypothesis.observed_mean, [0.0, 0.5]);
        assert_eq!(
            (hypothesis.candidate_mean[2], hypothesis.candidate_mean[3]),
            (0.5, 1.0)
        );
        assert_eq!(hypothesis.candidate_excess[2..4], [0.0, 6.0]);
        let mut lanes = [1.0; LANES];
        hypothesis.add_candidates(&mut lanes, &candidates, 1, 1);
        assert!(
            (lanes[2] - (1.01 + 2.0 * 18.0 + 3.0)).abs() < 1e-12,
            "candidate 18"
        );
        // The lower triangle from its second place on: (1, 0) and (1, 1).
        let mut values = [0.0; 2];
        hypothesis.add_observed(&mut values, 1);
        assert!((values[0] - 0.01).abs() < 1e-15 && (values[1] - 13.01).abs() < 1e-12);
        assert!((hypothesis.candidate_variance(1)[3] - (0.01 + 19.0 * 19.0 + 1.0)).abs() < 1e-9);
    }

    #[test]
    fn beliefs_are_checked() {
        let belief = |mean: &[f64], features: &[&[f64]]| Belief {
            mean: mean.to_vec(),
            features: features.iter().map(|f| f.to_vec()).collect(),
        };
        let of = |mean: &[f64], features: &[&[f64]]| checked(belief(mean, features), 2, 1);
        assert_eq!(
            of(&[0.5, 0.1], &[]).unwrap().mean,
            [0.4, 0.0],
            "made zero at the reference"
        );
        assert_eq!(of(&[0.0], &[]).unwrap_err(), "1 means for 2 settings");
        assert_eq!(
            of(&[0.0; 2], &[&[1.0]]).unwrap_err(),
            "features for 1 of 2 settings"
        );
        let uneven = of(&[0.0; 2], &[&[1.0], &[1.0, 2.0]]).unwrap_err();
        assert_eq!(uneven, "2 features at one setting, 1 at another");
        for bad in [f64::NAN, f64::INFINITY] {
            assert_eq!(of(&[bad, 0.0], &[]).unwrap_err(), "a value is not finite");
            assert_eq!(
                of(&[0.0; 2], &[&[bad], &[0.0]]).unwrap_err(),
                "a value is not finite"
            );
        }
    }
}
