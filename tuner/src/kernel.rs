//! The covariance of the log step time at two settings: Matérn-5/2 in the continuous coordinates times a factor for each
//! boolean that differs.
//!
//! k(x, x') = s² (1 + √5 r + 5r²/3) exp(−√5 r) · exp(−Σ w_j [b_j ≠ b_j']), with r² = Σ ((x_i − x'_i) / l_i)².
//! Matérn-5/2 is twice differentiable, which step times over a log lattice are not always; rougher kernels need more samples
//! (Rasmussen and Williams, Gaussian Processes for Machine Learning, eq. 4.17).

use crate::exponential::exp_negative;
use crate::lanes::Lanes;
use crate::parameter::Scale;
use crate::space::{Coordinates, PARAMETERS_MAX, Space};

/// √5, of the Matérn-5/2 form.
const SQRT_5: f64 = 2.236_067_977_499_79;

/// What a coordinate means to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A distance, divided by its length scale.
    Continuous,
    /// Equal or not; if not, the correlation falls by exp(−weight).
    Boolean,
}

/// One draw of the hyper-parameters. All are > 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hyperparameters {
    /// Standard deviation s of the surface, in log step time.
    pub(crate) signal: f64,
    /// Length scale l (continuous) or weight w (boolean), by parameter; unused where the parameter is fixed.
    pub(crate) scales: [f64; PARAMETERS_MAX],
    /// Standard deviation τ of what no smooth surface explains, in log step time.
    pub(crate) nugget: f64,
}

/// The kernel of a space: which coordinates count, and how.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// The free parameters: index and role.
    pub(crate) roles: Vec<(usize, Role)>,
}

impl Kernel {
    /// The kernel of the free parameters of `space`.
    pub(crate) fn new(space: &Space) -> Self {
        let roles = space
            .parameters()
            .iter()
            .enumerate()
            .filter(|(_, p)| p.fixed_value().is_none());
        let role = |scale| {
            if scale == Scale::Boolean {
                Role::Boolean
            } else {
                Role::Continuous
            }
        };
        Self {
            roles: roles.map(|(index, p)| (index, role(p.scale()))).collect(),
        }
    }

    /// The covariances of the setting `from` with a block of others.
    #[inline]
    pub(crate) fn covariances(&self, h: &Hyperparameters, from: &Coordinates, to: &[Lanes]) -> Lanes {
        let mut distance = Distance::default();
        for (&(index, role), to) in self.roles.iter().zip(to) {
            let apart: Lanes = std::array::from_fn(|lane| to[lane] - from[index]);
            distance.add(role, h.scales[index], &apart);
        }
        distance.covariances(h)
    }

    /// The covariances of a block of pairs, whose coordinates are this far `apart`.
    #[inline]
    pub(crate) fn covariances_apart(&self, h: &Hyperparameters, apart: &[Lanes]) -> Lanes {
        let mut distance = Distance::default();
        for (&(index, role), apart) in self.roles.iter().zip(apart) {
            distance.add(role, h.scales[index], apart);
        }
        distance.covariances(h)
    }
}

/// How far the settings of some pairs are apart, in units of the hyper-parameters.
#[derive(Default)]
struct Distance {
    /// r².
    square: Lanes,
    /// Σ w_j over the booleans that differ.
    weight: Lanes,
}

impl Distance {
    #[inline(always)]
    fn add(&mut self, role: Role, scale: f64, apart: &Lanes) {
        match role {
            Role::Continuous => {
                let rate = 1.0 / scale;
                for (square, apart) in self.square.iter_mut().zip(apart) {
                    *square += (apart * rate) * (apart * rate);
                }
            }
            Role::Boolean => {
                for (weight, apart) in self.weight.iter_mut().zip(apart) {
                    *weight += apart.abs() * scale;
                }
            }
        }
    }

    #[inline(always)]
    fn covariances(&self, h: &Hyperparameters) -> Lanes {
        let variance = h.signal * h.signal;
        std::array::from_fn(|lane| {
            let r = SQRT_5 * self.square[lane].sqrt();
            let decay = exp_negative(-r - self.weight[lane]);
            variance * (1.0 + r + r * r * (1.0 / 3.0)) * decay
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Parameter;
    use crate::lanes::{Columns, Pairs};

    #[test]
    fn covariance_by_hand() {
        let space = Space::new(vec![
            Parameter::linear("x", 0.0, 1.0, 11),
            Parameter::boolean("b"),
            Parameter::linear("fixed", 0.0, 1.0, 11).fixed(0.5),
        ])
        .unwrap();
        let kernel = Kernel::new(&space);
        assert_eq!(kernel.roles, [(0, Role::Continuous), (1, Role::Boolean)]);
        let mut h = Hyperparameters {
            signal: 0.5,
            scales: [1.0; PARAMETERS_MAX],
            nugget: 0.01,
        };
        h.scales[0] = 0.5;
        h.scales[1] = 0.4;
        let at = |x: f64, b: f64| {
            let mut c = Coordinates::default();
            (c[0], c[1]) = (x, b);
            c
        };
        let others = Columns::new(&kernel, &[at(0.2, 1.0), at(0.7, 1.0), at(0.2, 0.0)]);
        let k = kernel.covariances(&h, &at(0.2, 1.0), others.block(0));
        assert!((k[0] - 0.25).abs() < 1e-15);
        // r = 1: (1 + √5 + 5/3) exp(−√5) = 0.523994.
        assert!((k[1] - 0.25 * 0.523_994).abs() < 1e-6);
        // The boolean alone: exp(−0.4) = 0.670320.
        assert!((k[2] - 0.25 * 0.670_320).abs() < 1e-6);
        // The same pairs in a triangle: (0, 0), (1, 0), (1, 1), …
        let pairs = Pairs::new(&kernel, &[at(0.2, 1.0), at(0.7, 1.0), at(0.2, 0.0)]);
        let of_pairs = kernel.covariances_apart(&h, pairs.block(0));
        assert_eq!([of_pairs[0], of_pairs[1], of_pairs[3]], [k[0], k[1], k[2]]);
    }
}
