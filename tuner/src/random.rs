//! Random generators, one per use, so that no draw depends on how many were made before.

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

/// The generator of use `stream`.
pub(crate) fn generator(seed: u64, stream: u64) -> Xoshiro256PlusPlus {
    // The golden ratio spreads neighbouring streams over the seeds.
    let offset = stream.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_add(offset))
}
