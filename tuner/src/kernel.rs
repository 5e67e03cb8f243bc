//! The covariance of the log step time at two settings: Matérn-5/2 in the continuous coordinates times a factor for each
//! boolean that differs, and one for each rough parameter.
//!
//! k(x, x') = s² m(r) (1 − ρ² (1 − Π max(0, 1 − |x_j − x'_j| / λ))) exp(−Σ w_j [b_j ≠ b_j']), with
//! m(r) = (1 + √5 r + 5r²/3) exp(−√5 r), r² = Σ ((x_i − x'_i) / l_i)² over the continuous coordinates, and the product over those
//! of them that are rough; ρ is a share of s, but ρ s at most [`ROUGHNESS_MAX`].
//! Matérn-5/2 is twice differentiable (Rasmussen and Williams, Gaussian Processes for Machine Learning, eq. 4.17), which step times
//! are not in the fusion threshold: one level more, and the tensors are packed otherwise. So each level of a rough parameter is
//! off the smooth surface by something of its own, which only what lies nearer than a level shares in part: the triangle is the
//! simplest covariance that ends (T. Gneiting, Compactly Supported Correlation Functions, 2002), and costs no exponential.

use crate::exponential::exp_negative;
use crate::lanes::{LANES, Lanes};
use crate::parameter::{Parameter, Scale};
use crate::space::{Coordinates, PARAMETERS_MAX, Space};

/// √5, of the Matérn-5/2 form.
const SQRT_5: f64 = 2.236_067_977_499_79;
/// ρ, the share of the surface's standard deviation that is rough; shares of 0.2 to 0.4 do alike.
const ROUGHNESS: f64 = 0.3;
/// The most that is, in log step time. A setting that is far off makes the whole surface's standard deviation large, but tensors that are
/// packed otherwise still take some percent more or less: a search that expects more looks at one threshold after another.
const ROUGHNESS_MAX: f64 = 0.1;
/// λ, how far roughness reaches: a level of a lattice of 17. A level and a half does alike.
const ROUGH_LENGTH: f64 = 0.06;

/// What a coordinate means to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A distance, divided by its length scale.
    Continuous,
    /// The same, on a surface that has steps along it.
    Rough,
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
        let role = |parameter: &Parameter| match parameter.scale() {
            Scale::Boolean => Role::Boolean,
            _ if parameter.is_rough() => Role::Rough,
            _ => Role::Continuous,
        };
        Self {
            roles: roles.map(|(index, p)| (index, role(p))).collect(),
        }
    }

    /// The covariances of the setting `from` with a block of others.
    #[inline]
    pub(crate) fn covariances(
        &self,
        h: &Hyperparameters,
        from: &Coordinates,
        to: &[Lanes],
    ) -> Lanes {
        let mut distance = Distance::zero();
        for (&(index, role), to) in self.roles.iter().zip(to) {
            let apart: Lanes = std::array::from_fn(|lane| to[lane] - from[index]);
            distance.add(role, h.scales[index], &apart);
        }
        distance.covariances(h)
    }

    /// The covariances of a block of pairs, whose coordinates are this far `apart`.
    #[inline]
    pub(crate) fn covariances_apart(&self, h: &Hyperparameters, apart: &[Lanes]) -> Lanes {
        let mut distance = Distance::zero();
        for (&(index, role), apart) in self.roles.iter().zip(apart) {
            distance.add(role, h.scales[index], apart);
        }
        distance.covariances(h)
    }
}

/// How far the settings of some pairs are apart, in units of the hyper-parameters.
struct Distance {
    /// r².
    square: Lanes,
    /// Π max(0, 1 − |x_j − x'_j| / λ).
    likeness: Lanes,
    /// Σ w_j over the booleans that differ.
    weight: Lanes,
}

impl Distance {
    #[inline(always)]
    fn zero() -> Self {
        Self {
            square: [0.0; LANES],
            likeness: [1.0; LANES],
            weight: [0.0; LANES],
        }
    }

    #[inline(always)]
    fn add(&mut self, role: Role, scale: f64, apart: &Lanes) {
        if role == Role::Boolean {
            for (weight, apart) in self.weight.iter_mut().zip(apart) {
                *weight += apart.abs() * scale;
            }
            return;
        }
        let rate = 1.0 / scale;
        for (square, apart) in self.square.iter_mut().zip(apart) {
            *square += (apart * rate) * (apart * rate);
        }
        if role == Role::Rough {
            for (likeness, apart) in self.likeness.iter_mut().zip(apart) {
                *likeness *= (1.0 - apart.abs() * (1.0 / ROUGH_LENGTH)).max(0.0);
            }
        }
    }

    #[inline(always)]
    fn covariances(&self, h: &Hyperparameters) -> Lanes {
        let variance = h.signal * h.signal;
        // ρ²; without a rough parameter all are alike, and it counts nothing.
        let roughness = ROUGHNESS.min(ROUGHNESS_MAX / h.signal).powi(2);
        std::array::from_fn(|lane| {
            let r = SQRT_5 * self.square[lane].sqrt();
            let smooth = (1.0 + r + r * r * (1.0 / 3.0)) * exp_negative(-r - self.weight[lane]);
            variance * smooth * (1.0 - roughness * (1.0 - self.likeness[lane]))
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

    #[test]
    fn rough_levels_by_hand() {
        let space = Space::new(vec![
            Parameter::linear("x", 0.0, 1.0, 11).rough(),
            Parameter::linear("y", 0.0, 1.0, 11),
            Parameter::boolean("b").rough(),
        ])
        .unwrap();
        let kernel = Kernel::new(&space);
        let roles = [(0, Role::Rough), (1, Role::Continuous), (2, Role::Boolean)];
        assert_eq!(kernel.roles, roles);
        let mut h = Hyperparameters {
            signal: 0.1,
            scales: [0.5; PARAMETERS_MAX],
            nugget: 0.01,
        };
        h.scales[2] = 0.4;
        let at = |x: f64, y: f64| {
            let mut c = Coordinates::default();
            (c[0], c[1]) = (x, y);
            c
        };
        let others = Columns::new(
            &kernel,
            &[at(0.2, 0.3), at(0.2, 0.8), at(0.7, 0.3), at(0.22, 0.3)],
        );
        let k = kernel.covariances(&h, &at(0.2, 0.3), others.block(0));
        let correlation = k.map(|covariance| covariance / 0.01);
        // At r = 1 the Matérn form is 0.523994, and on the same level roughness is the same.
        assert!((correlation[0] - 1.0).abs() < 1e-15);
        assert!((correlation[1] - 0.523_994).abs() < 1e-6);
        // Eight levels away nothing is left of it: 0.91 · 0.523994.
        assert!((correlation[2] - 0.476_835).abs() < 1e-6);
        // A fraction 0.02 / 0.06 of a level away, r = 0.04: 0.998669 · (0.91 + 0.09 · 2 / 3).
        assert!((correlation[3] - 0.968_709).abs() < 1e-6);
        // Where the signal is 1, roughness is 0.1 of it and not 0.3: 0.99 · 0.523994.
        h.signal = 1.0;
        let k = kernel.covariances(&h, &at(0.2, 0.3), others.block(0));
        assert!((k[2] - 0.518_754).abs() < 1e-6);
    }
}
