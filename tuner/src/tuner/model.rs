//! Prior belief about the surface, beside the measurements: an expected log step time for each
//! setting, and the ways in which it may be wrong.
//!
//! The Gaussian process explains what the model leaves over: with mean m(x) and features φ(x), its
//! prior covariance is φ(x)·φ(x') plus the kernel. The features of an ensemble of E models are (f_e
//! − m) / √(E − 1), so that one measurement teaches all settings that the same models place alike.

use std::fmt;

use crate::Point;

/// Expectation of a model at some settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Belief {
    /// Expected ln(step time) less the reference's, one per setting.
    pub mean: Vec<f64>,
    /// For each setting the same number of features, in log step time and zero at the reference;
    /// empty lists if the mean is all that is believed.
    pub features: Vec<Vec<f64>>,
}

/// A source of beliefs.
pub trait Model: fmt::Debug + Send + Sync {
    /// Belief at `points`; at the `reference` the mean and every feature are zero. None if the model
    /// has nothing to say; the search then goes on without it.
    fn belief(&self, points: &[Point], reference: &Point) -> Option<Belief>;
}

impl Belief {
    /// The belief in the form that a prior takes: as many settings as asked for, finite, zero at
    /// setting `reference`, and features of one length.
    ///
    /// # Errors
    /// Error in it.
    pub(crate) fn checked(mut self, settings: usize, reference: usize) -> Result<Self, String> {
        if self.mean.len() != settings {
            return Err(format!("{} means for {settings} settings", self.mean.len()));
        }
        if self.features.is_empty() {
            self.features = vec![Vec::new(); settings];
        }
        if self.features.len() != settings {
            let found = self.features.len();
            return Err(format!("features for {found} of {settings} settings"));
        }
        let (mean, features) = (self.mean[reference], self.features[reference].clone());
        let other = self.features.iter().find(|row| row.len() != features.len());
        if let Some(row) = other {
            return Err(format!(
                "{} features at one setting, {} at another",
                features.len(),
                row.len()
            ));
        }
        self.mean.iter_mut().for_each(|m| *m -= mean);
        for row in &mut self.features {
            for (value, zero) in row.iter_mut().zip(&features) {
                *value -= zero;
            }
        }
        let mut values = self.mean.iter().chain(self.features.iter().flatten());
        if values.any(|value| !value.is_finite()) {
            return Err("a value is not finite".into());
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beliefs_are_checked() {
        let belief = |mean: &[f64], features: &[&[f64]]| Belief {
            mean: mean.to_vec(),
            features: features.iter().map(|f| f.to_vec()).collect(),
        };
        let of = |mean: &[f64], features: &[&[f64]]| belief(mean, features).checked(2, 1);
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
