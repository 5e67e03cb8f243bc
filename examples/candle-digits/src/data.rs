//! Data set: 1797 handwritten digits of 8 x 8 pixels, split by a seed into training and test
//! digits.
//!
//! Optical Recognition of Handwritten Digits (E. Alpaydin, C. Kaynak, UCI Machine Learning
//! Repository 1998), as contained in the crate smartcore. All ranks load the whole set and draw the
//! same order from the same seed; a rank's share follows from its number, so no communication is
//! needed.

use anyhow::{Result, ensure};
use candle_core::{Device, Tensor};
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use smartcore::dataset::digits;

/// Number of pixels of a digit.
pub(crate) const PIXELS: usize = 64;
/// Number of classes: 0 to 9.
pub(crate) const CLASSES: usize = 10;
/// Number of test digits, about a sixth.
const TEST: usize = 297;

/// Digits as tensors.
pub(crate) struct Batch {
    /// `digits x PIXELS`, 0 (white) to 1.
    pub(crate) pixels: Tensor,
    /// `digits`: the class of each digit.
    pub(crate) labels: Tensor,
}

/// All digits, split into training and test digits.
pub(crate) struct Digits {
    pixels: Vec<f32>,
    labels: Vec<u32>,
    train: Vec<usize>,
    test: Vec<usize>,
}

impl Digits {
    /// Loads the digits and splits them; equal seeds give equal splits.
    ///
    /// # Errors
    /// If the crate's data differ from the expected data set.
    pub(crate) fn load(seed: u64) -> Result<Self> {
        let set = digits::load_dataset();
        ensure!(
            set.num_features == PIXELS
                && set.data.len() == set.target.len() * PIXELS
                && set.target.len() > TEST,
            "smartcore brings {} digits of {} pixels, not more than {TEST} of {PIXELS}",
            set.num_samples,
            set.num_features
        );
        let mut test: Vec<usize> = (0..set.target.len()).collect();
        test.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
        let train = test.split_off(TEST);
        Ok(Self {
            pixels: set.data.iter().map(|ink| ink / 16.0).collect(), // 0 to 16 in the data set
            labels: set.target.iter().map(|&label| label as u32).collect(),
            train,
            test,
        })
    }

    /// Number of training digits.
    pub(crate) fn train_len(&self) -> usize {
        self.train.len()
    }

    /// Number of test digits.
    pub(crate) fn test_len(&self) -> usize {
        self.test.len()
    }

    /// Order of the training digits in `epoch`: different in each epoch, equal on all ranks.
    pub(crate) fn order(&self, seed: u64, epoch: u32) -> Vec<usize> {
        let mut order = self.train.clone();
        let seed = seed.wrapping_mul(1_000_003).wrapping_add(u64::from(epoch)); // adjacent seeds give unrelated orders
        order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
        order
    }

    /// Part `index` of `parts` of the test digits; sizes of parts differ by at most one.
    pub(crate) fn test_part(&self, index: usize, parts: usize) -> Vec<usize> {
        self.test
            .iter()
            .copied()
            .skip(index)
            .step_by(parts)
            .collect()
    }

    /// The digits with these `indices`, as tensors.
    ///
    /// # Errors
    /// Those of candle.
    pub(crate) fn batch(&self, indices: &[usize]) -> candle_core::Result<Batch> {
        let pixels: Vec<f32> = indices
            .iter()
            .flat_map(|&index| &self.pixels[index * PIXELS..][..PIXELS])
            .copied()
            .collect();
        let labels: Vec<u32> = indices.iter().map(|&index| self.labels[index]).collect();
        Ok(Batch {
            pixels: Tensor::from_vec(pixels, (indices.len(), PIXELS), &Device::Cpu)?,
            labels: Tensor::from_vec(labels, indices.len(), &Device::Cpu)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crate_brings_the_digits_of_the_repository() {
        let digits = Digits::load(1).expect("data");
        assert_eq!((digits.train_len(), digits.test_len()), (1500, 297));
        // Per class, in the repository's file of 1797: 178 zeros, 182 ones, …
        let counts = digits
            .labels
            .iter()
            .fold([0; CLASSES], |mut counts, &label| {
                counts[label as usize] += 1;
                counts
            });
        assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
        // The file's first digit is a zero whose first row reads 0 0 5 13 9 1 0 0.
        let first = [0.0, 0.0, 5.0, 13.0, 9.0, 1.0, 0.0, 0.0].map(|ink: f32| ink / 16.0);
        assert_eq!((digits.labels[0], &digits.pixels[..8]), (0, &first[..]));
    }

    #[test]
    fn split_order_and_parts_name_every_digit_once() {
        let digits = Digits::load(7).expect("data");
        let mut all: Vec<usize> = digits.order(7, 3);
        for part in 0..4 {
            all.extend(digits.test_part(part, 4));
        }
        all.sort_unstable();
        assert_eq!(all, (0..1797).collect::<Vec<_>>());
        assert_eq!(
            digits.order(7, 3),
            Digits::load(7).expect("data").order(7, 3)
        );
        assert_ne!(digits.order(7, 3), digits.order(7, 4));
    }
}
