//! Verification of every step of a benchmark, without affecting the measured time.
//!
//! Before a step each rank writes values that depend on rank, step, tensor and position; after the
//! step, it compares the results with the averages of these values. In the first step and a closing
//! step every element is checked. In the other steps a few sentinels per tensor are written and
//! checked: the first element, the last element, and both sides of some chunk edges (other edges in
//! each step, so that all edges are checked in turn). Errors of a collective appear there first,
//! and sentinels touch only a few cache lines.
//!
//! The arithmetic is exact: the average of all ranks at a position is the small integer s = 1 +
//! (7·step + 3·tensor + i) mod 13, and rank r of n contributes s + 2r + 1 − n, which sums to n·s.
//! The period 13 divides no chunk size, and 7 and 3 are not multiples of it. So stale data, a
//! neighbouring tensor, a shifted chunk and a rank that is counted twice are all detected.

use half::{bf16, f16};
use smallvec::SmallVec;

use ronde::tensor::Element;

/// Period of the pattern, coprime with every power of two.
const PERIOD: usize = 13;

/// Chunk edges checked per tensor and step.
const EDGES_PER_STEP: usize = 4;

/// Element type that can hold the pattern.
pub trait PatternElement: Element + PartialEq {
    /// Returns the element nearest to `value`. The pattern's values are integers below 256 in
    /// magnitude for up to 240 ranks, which every supported type holds exactly.
    fn from_small(value: i32) -> Self;

    /// Returns the value as a number: exact for the pattern's values, rounded for others.
    fn to_number(self) -> f64;

    /// Spacing of the type's values just above 1 (0 for integers).
    const EPSILON: f64;
}

macro_rules! pattern_element {
    ($type:ty, $epsilon:expr, $value:ident => $from:expr, $element:ident => $to:expr) => {
        impl PatternElement for $type {
            fn from_small($value: i32) -> Self {
                $from
            }

            fn to_number(self) -> f64 {
                let $element = self;
                $to
            }

            const EPSILON: f64 = $epsilon;
        }
    };
}

pattern_element!(f32, f32::EPSILON as f64, value => value as f32, element => f64::from(element));
pattern_element!(f64, f64::EPSILON, value => f64::from(value), element => element);
pattern_element!(f16, 1.0 / 1024.0, value => f16::from_f32(value as f32), element => element.to_f64());
pattern_element!(bf16, 1.0 / 128.0, value => bf16::from_f32(value as f32), element => element.to_f64());
pattern_element!(i16, 0.0, value => value as i16, element => f64::from(element));
pattern_element!(i32, 0.0, value => value, element => f64::from(element));
pattern_element!(i64, 0.0, value => i64::from(value), element => element as f64);

/// Result that is not the average of the ranks' inputs.
#[derive(Debug, thiserror::Error, PartialEq)]
#[error(
    "wrong result on rank {rank} in step {step}: element {index} of tensor `{tensor}` is {found}, expected {expected}"
)]
pub struct VerifyError {
    /// Rank that found it.
    pub rank: usize,
    /// Step, from 0.
    pub step: usize,
    /// Name of the tensor.
    pub tensor: String,
    /// Position of the first wrong element that was checked.
    pub index: usize,
    /// Expected average.
    pub expected: f64,
    /// Value found.
    pub found: f64,
}

/// Writes one rank's inputs and checks the averages that the runtime returns.
#[derive(Clone, Copy, Debug)]
pub struct Verifier {
    rank: usize,
    size: usize,
    chunk_bytes: usize,
}

/// Identifies the tensor and the step of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct TensorInstance<'a> {
    /// Step, from 0.
    pub step: usize,
    /// Position of the tensor in its workload.
    pub tensor: usize,
    /// Name of the tensor, for errors.
    pub name: &'a str,
}

impl Verifier {
    /// Creates the pattern of rank `rank` of `size`; chunk edges lie at multiples of `chunk_bytes`.
    ///
    /// # Panics
    /// If `rank` is not below `size` or `chunk_bytes` is 0.
    pub fn new(rank: usize, size: usize, chunk_bytes: usize) -> Self {
        assert!(
            rank < size && chunk_bytes > 0,
            "rank {rank} of {size}, chunks of {chunk_bytes} bytes"
        );
        Self {
            rank,
            size,
            chunk_bytes,
        }
    }

    /// Fills `data` with this rank's inputs.
    pub fn fill<T: PatternElement>(&self, place: TensorInstance<'_>, data: &mut [T]) {
        let period: [T; PERIOD] = std::array::from_fn(|index| self.input(place, index));
        for piece in data.chunks_mut(PERIOD) {
            piece.copy_from_slice(&period[..piece.len()]);
        }
    }

    /// Checks every element of the reduced `data`.
    ///
    /// # Errors
    /// [`VerifyError`] for the first wrong element.
    pub fn check<T: PatternElement>(
        &self,
        place: TensorInstance<'_>,
        data: &[T],
    ) -> Result<(), VerifyError> {
        let period: [T; PERIOD] = std::array::from_fn(|index| T::from_small(average(place, index)));
        for (number, piece) in data.chunks(PERIOD).enumerate() {
            // Complete pieces are compared at once, which is fast; elements are compared only in a
            // piece that differs.
            if piece != &period[..piece.len()] {
                let first = number * PERIOD;
                (0..piece.len())
                    .try_for_each(|index| self.check_element(place, first + index, data))?;
            }
        }
        Ok(())
    }

    /// Writes this rank's inputs at the step's sentinels.
    pub fn write_sentinels<T: PatternElement>(&self, place: TensorInstance<'_>, data: &mut [T]) {
        for index in self.sentinels::<T>(place.step, data.len()) {
            data[index] = self.input(place, index);
        }
    }

    /// Checks the averages at the step's sentinels.
    ///
    /// # Errors
    /// [`VerifyError`] for the first wrong element.
    pub fn check_sentinels<T: PatternElement>(
        &self,
        place: TensorInstance<'_>,
        data: &[T],
    ) -> Result<(), VerifyError> {
        self.sentinels::<T>(place.step, data.len())
            .into_iter()
            .try_for_each(|index| self.check_element(place, index, data))
    }

    fn check_element<T: PatternElement>(
        &self,
        place: TensorInstance<'_>,
        index: usize,
        data: &[T],
    ) -> Result<(), VerifyError> {
        let found = data[index].to_number();
        let expected = f64::from(average(place, index));
        // Division by a power of two is exact; another divisor may be applied as a rounded
        // reciprocal, which is off by up to one unit.
        let tolerance = if self.size.is_power_of_two() {
            0.0
        } else {
            expected * T::EPSILON
        };
        let close = (found - expected).abs() <= tolerance; // false for a NaN
        if !close {
            let tensor = place.name.to_owned();
            return Err(VerifyError {
                rank: self.rank,
                step: place.step,
                tensor,
                index,
                expected,
                found,
            });
        }
        Ok(())
    }

    fn input<T: PatternElement>(&self, place: TensorInstance<'_>, index: usize) -> T {
        let offset = 2 * self.rank as i32 + 1 - self.size as i32;
        T::from_small(average(place, index) + offset)
    }

    /// Positions of a step's sentinels in a tensor of `elements`, ascending.
    pub(super) fn sentinels<T>(
        &self,
        step: usize,
        elements: usize,
    ) -> SmallVec<[usize; 2 + 2 * EDGES_PER_STEP]> {
        let mut positions = SmallVec::new();
        if elements == 0 {
            return positions;
        }
        positions.extend([0, elements - 1]);
        let chunk = (self.chunk_bytes / size_of::<T>()).max(1);
        let edges = (elements - 1) / chunk;
        for turn in 0..EDGES_PER_STEP.min(edges) {
            let edge = ((step * EDGES_PER_STEP + turn) % edges + 1) * chunk;
            positions.extend([edge - 1, edge]);
        }
        positions.sort_unstable();
        positions.dedup();
        positions
    }
}

/// Average over all ranks at position `index`: an integer from 1 to 13.
fn average(place: TensorInstance<'_>, index: usize) -> i32 {
    (1 + (7 * (place.step % PERIOD) + 3 * (place.tensor % PERIOD) + index % PERIOD) % PERIOD) as i32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLACE: TensorInstance<'static> = TensorInstance {
        step: 5,
        tensor: 2,
        name: "w",
    };

    /// Result of a correct collective: the average over the ranks, element by element.
    fn averaged<T: PatternElement>(inputs: &[Vec<T>]) -> Vec<T> {
        (0..inputs[0].len())
            .map(|index| {
                let sum: f64 = inputs.iter().map(|input| input[index].to_number()).sum();
                T::from_small((sum / inputs.len() as f64) as i32)
            })
            .collect()
    }

    fn filled<T: PatternElement>(size: usize, elements: usize) -> Vec<Vec<T>> {
        (0..size)
            .map(|rank| {
                let mut data = vec![T::from_small(0); elements];
                Verifier::new(rank, size, 64).fill(PLACE, &mut data);
                data
            })
            .collect()
    }

    /// Step 5, tensor 2: 35 + 6 = 41 ≡ 2 (mod 13), so averages start at 3; of two ranks one is 1
    /// below, the other 1 above.
    #[test]
    fn pattern_by_hand() {
        let inputs = filled::<f32>(2, 12);
        assert_eq!(inputs[0][..3], [2.0, 3.0, 4.0]);
        assert_eq!(inputs[1][..3], [4.0, 5.0, 6.0]);
        assert_eq!(
            averaged(&inputs)[..12],
            [
                3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 1.0
            ]
        );
    }

    fn right_results_pass<T: PatternElement>(size: usize) {
        let result = averaged(&filled::<T>(size, 100));
        for rank in 0..size {
            let verifier = Verifier::new(rank, size, 64);
            verifier.check(PLACE, &result).unwrap();
            verifier.check_sentinels(PLACE, &result).unwrap();
        }
    }

    #[test]
    fn right_results_pass_in_every_type() {
        for size in [1, 2, 3, 8, 64] {
            right_results_pass::<f32>(size);
            right_results_pass::<f64>(size);
            right_results_pass::<f16>(size);
            right_results_pass::<bf16>(size);
            right_results_pass::<i32>(size);
            right_results_pass::<i64>(size);
        }
    }

    #[test]
    fn a_single_wrong_element_is_found_and_named() {
        let verifier = Verifier::new(1, 2, 64);
        let mut result = averaged(&filled::<f32>(2, 1000));
        result[777] += 1.0;
        let error = verifier.check(PLACE, &result).unwrap_err();
        assert_eq!(
            (error.index, error.expected, error.found),
            (777, 13.0, 14.0)
        ); // 777 = 59·13 + 10: 3 + 10
        let message = error.to_string();
        assert!(
            message.contains("rank 1 in step 5") && message.contains("`w`"),
            "{message}"
        );
        result[777] = f32::NAN;
        assert!(verifier.check(PLACE, &result).is_err());
    }

    #[test]
    fn a_rounded_reciprocal_passes_where_the_size_is_no_power_of_two() {
        let mut result = averaged(&filled::<f32>(3, 26));
        result[0] = result[0].next_up();
        Verifier::new(0, 3, 64).check(PLACE, &result).unwrap();
        result[0] *= 1.001;
        Verifier::new(0, 3, 64).check(PLACE, &result).unwrap_err();
        let mut result = averaged(&filled::<f32>(2, 26));
        result[0] = result[0].next_up();
        Verifier::new(0, 2, 64).check(PLACE, &result).unwrap_err();
    }

    /// 10 chunks of 16 f32: 9 edges; 4 per step, so three steps check all of them.
    #[test]
    fn sentinels_visit_every_chunk_edge_in_turn() {
        let verifier = Verifier::new(0, 2, 64);
        let mut seen: Vec<usize> = (0..3)
            .flat_map(|step| verifier.sentinels::<f32>(step, 160))
            .collect();
        seen.sort_unstable();
        seen.dedup();
        let edges = (1..10).flat_map(|edge| [edge * 16 - 1, edge * 16]);
        assert_eq!(
            seen,
            [0].into_iter()
                .chain(edges)
                .chain([159])
                .collect::<Vec<_>>()
        );
        assert!(verifier.sentinels::<f32>(0, 0).is_empty());
        assert_eq!(verifier.sentinels::<f32>(7, 1).as_slice(), [0]);
    }

    #[test]
    fn stale_sentinels_and_inputs_left_unreduced_are_caught() {
        let verifier = Verifier::new(0, 2, 64);
        let mut data = averaged(&filled::<f32>(2, 1000));
        let next = TensorInstance { step: 6, ..PLACE };
        assert!(
            verifier.check_sentinels(next, &data).is_err(),
            "the last step's result is not this step's"
        );
        verifier.write_sentinels(next, &mut data);
        assert!(
            verifier.check_sentinels(next, &data).is_err(),
            "an input is not a result"
        );
        let neighbour = TensorInstance { tensor: 3, ..PLACE };
        assert!(
            verifier.check_sentinels(neighbour, &data).is_err(),
            "a tensor is not its neighbour"
        );
    }

    proptest! {
        #[test]
        fn sentinels_stay_inside(step in 0usize..1000, elements in 1usize..5000, chunk in 1usize..600) {
            let verifier = Verifier::new(0, 2, chunk);
            prop_assert!(verifier.sentinels::<f64>(step, elements).iter().all(|&index| index < elements));
        }
    }
}
