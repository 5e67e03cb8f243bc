//! e^x in arithmetic that a compiler turns into vector instructions; the standard library's is a call per value.
//!
//! x = n ln 2 + r with |r| ≤ ½ ln 2; e^r by its series, and n added to the exponent (the textbook reduction; W. J. Cody and
//! W. Waite, Software Manual for the Elementary Functions, ch. 6). The kernel needs some hundred thousand of these per proposal.

/// ln 2 in two parts: the first has so few digits that n times it is exact.
const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1;
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
/// 1.5 · 2^52: added to a number it leaves the nearest whole number in the low bits.
const ROUND: f64 = 6_755_399_441_055_744.0;
/// Below, the result is 0 for every purpose here, and the exponent would leave its range.
const LOWEST: f64 = -700.0;
/// 1/10! … 1/2!, 1, 1: the remainder r^11/11! is below 3e-13.
const SERIES: [f64; 11] = [
    1.0 / 3_628_800.0,
    1.0 / 362_880.0,
    1.0 / 40_320.0,
    1.0 / 5_040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    0.5,
    1.0,
    1.0,
];

/// e^x for x ≤ 0, to 3e-13 of the value; e^−700 below −700, NaN for NaN.
#[inline(always)]
pub(crate) fn exp_negative(x: f64) -> f64 {
    let x = if x < LOWEST { LOWEST } else { x };
    let shifted = x * std::f64::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN_2_HIGH) - n * LN_2_LOW;
    let mut sum = SERIES[0];
    for coefficient in &SERIES[1..] {
        sum = sum * r + coefficient;
    }
    f64::from_bits(sum.to_bits().wrapping_add(shifted.to_bits() << 52))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ends_and_nonsense() {
        assert_eq!(exp_negative(0.0), 1.0);
        assert!(exp_negative(-1e9) < 1e-300 && exp_negative(f64::NEG_INFINITY) >= 0.0);
        assert!(exp_negative(f64::NAN).is_nan());
    }

    proptest! {
        #[test]
        fn agrees_with_the_standard_library(x in -699.0..=0.0f64) {
            prop_assert!((exp_negative(x) / x.exp() - 1.0).abs() < 3e-13, "{x}");
        }
    }
}
