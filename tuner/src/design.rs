//! The first settings where no model says where to look: scrambled Sobol over the levels, booleans at random.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use crate::parameter::Scale;
use crate::space::{Point, Space};

/// Settings tried before the surrogate chooses.
pub(crate) const DESIGN_POINTS: usize = 5;
/// Share of each axis, at either end, that the design stays clear of: that is where cliffs are, one step beyond which may cost more
/// than the whole search may.
const MARGIN: f64 = 0.3;
/// Sobol indices looked at for settings that are neither tried nor too risky.
const DESIGN_TRIES: u32 = 64;

/// The settings of the design, in order; more than are needed, as some are passed over.
pub(crate) fn design(space: &Space, seed: u64) -> impl Iterator<Item = Point> {
    let sobol_seed = (seed ^ (seed >> 32)) as u32;
    (0..DESIGN_TRIES).filter_map(move |index| {
        let mut rng = generator(seed, u64::from(index));
        let mut dimension = 0;
        let values = space.parameters().iter().map(|parameter| {
            let levels = parameter.levels();
            if levels.len() == 1 {
                return levels[0];
            }
            if parameter.scale() == Scale::Boolean {
                return levels[usize::from(rng.random::<bool>())];
            }
            let sobol = f64::from(sobol_burley::sample(index, dimension, sobol_seed));
            let uniform = MARGIN + (1.0 - 2.0 * MARGIN) * sobol;
            dimension += 1;
            levels[((uniform * levels.len() as f64) as usize).min(levels.len() - 1)]
        });
        Point::try_from(values.collect::<Vec<f64>>()).ok()
    })
}

/// A generator of its own for each use, so that no draw depends on how many were made before.
pub(crate) fn generator(seed: u64, stream: u64) -> Xoshiro256PlusPlus {
    // The golden ratio spreads neighbouring streams over the seeds.
    let offset = stream.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_add(offset))
}
