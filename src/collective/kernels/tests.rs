#![allow(unsafe_code)] // calls the kernels

use std::ptr;

use half::{bf16, f16};

use super::{Level, Reducer, reference};
use crate::collective::Reduction;
use crate::tensor::{Dtype, Element, ReduceOp};

fn reduction(dtype: Dtype, op: ReduceOp, prescale: f64, postscale: f64) -> Reduction {
    Reduction {
        dtype,
        op,
        prescale,
        postscale,
    }
}

/// Returns the kernel's result for byte strings that start `skew` bytes after a cache line.
fn combine(level: Level, reduction: &Reduction, inputs: &[Vec<u8>], skew: usize) -> Vec<u8> {
    let skewed: Vec<Vec<u8>> = inputs
        .iter()
        .map(|input| [&vec![0; skew], input.as_slice()].concat())
        .collect();
    let sources: Vec<*const u8> = skewed.iter().map(|input| input[skew..].as_ptr()).collect();
    let mut output = vec![0; inputs[0].len()];
    let mut shared = vec![1; inputs[0].len()];
    let reducer = Reducer::new(level, reduction, inputs.len());
    // SAFETY: vectors of the same length.
    unsafe {
        reducer.combine(
            &sources,
            output.as_mut_ptr(),
            shared.as_mut_ptr(),
            output.len(),
        )
    };
    assert_eq!(output, shared);
    output
}

/// Returns the result for one element per rank.
fn of<E: Element + PartialEq + std::fmt::Debug>(reduction: &Reduction, column: &[E]) -> E {
    let sources: Vec<*const u8> = column.iter().map(|x| ptr::from_ref(x).cast()).collect();
    let mut results = Level::available().into_iter().map(|level| {
        let mut result = column[0];
        let reducer = Reducer::new(level, reduction, column.len());
        // SAFETY: single elements.
        unsafe {
            reducer.combine(
                &sources,
                ptr::from_mut(&mut result).cast(),
                ptr::null_mut(),
                size_of::<E>(),
            )
        };
        result
    });
    let first = results.next().expect("a baseline");
    assert!(results.all(|result| result == first));
    first
}

#[test]
fn every_level_matches_the_reference() {
    for dtype in Dtype::ALL {
        for op in ReduceOp::ALL {
            for (prescale, postscale) in [(1.0, 1.0), (0.3, 1.0), (1.0, -2.5), (3.0, 0.1)] {
                for (ranks, elements) in [(1, 37), (2, 200), (3, 16), (5, 15), (8, 1)] {
                    let reduction = reduction(dtype, op, prescale, postscale);
                    if !reference::is_sensible(&reduction) {
                        continue;
                    }
                    let inputs: Vec<Vec<u8>> = (0..ranks)
                        .map(|rank| reference::input(dtype, elements, rank))
                        .collect();
                    let expected =
                        reference::canonical(&reference::reduce(&inputs, &reduction), dtype);
                    for level in Level::available() {
                        let found = combine(level, &reduction, &inputs, dtype.size_bytes());
                        assert_eq!(
                            reference::canonical(&found, dtype),
                            expected,
                            "{level:?}, {reduction:?}, {ranks} ranks"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn in_place_gives_the_same() {
    let reduction = reduction(Dtype::F32, ReduceOp::Sum, 1.0, 1.0);
    let own: Vec<f32> = (0..100).map(|x| x as f32).collect();
    let peer: Vec<f32> = (0..100).map(|x| 0.5 * x as f32).collect();
    for level in Level::available() {
        let mut result = own.clone();
        let sources = [result.as_ptr().cast(), peer.as_ptr().cast()];
        // SAFETY: the output is the first source.
        unsafe {
            Reducer::new(level, &reduction, 2).combine(
                &sources,
                result.as_mut_ptr().cast(),
                ptr::null_mut(),
                400,
            )
        };
        assert!((0..100).all(|x| result[x] == 1.5 * x as f32), "{level:?}");
    }
}

#[test]
fn f16_survives_conversion_at_every_level() {
    // One rank: every bit pattern to f32 and back. A signalling NaN becomes quiet.
    let every: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_ne_bytes).collect();
    for dtype in [Dtype::F16, Dtype::Bf16] {
        for level in Level::available() {
            let found = combine(
                level,
                &reduction(dtype, ReduceOp::Sum, 1.0, 1.0),
                std::slice::from_ref(&every),
                0,
            );
            assert_eq!(
                reference::canonical(&found, dtype),
                reference::canonical(&every, dtype),
                "{dtype}, {level:?}"
            );
        }
    }
}

#[test]
fn integers_average_toward_zero_and_exactly() {
    let average = |dtype| reduction(dtype, ReduceOp::Average, 1.0, 1.0);
    assert_eq!(of(&average(Dtype::I32), &[1, 2]), 1);
    assert_eq!(of(&average(Dtype::I32), &[-1, -2]), -1);
    assert_eq!(of(&average(Dtype::I32), &[1, 1, 2]), 1);
    assert_eq!(of(&average(Dtype::I32), &[i32::MAX, i32::MAX]), i32::MAX);
    assert_eq!(
        of(&average(Dtype::I64), &[i64::MIN, i64::MIN, i64::MIN]),
        i64::MIN
    );
    assert_eq!(of(&average(Dtype::I64), &[i64::MAX, 1]), 1 << 62);
    assert_eq!(of(&average(Dtype::U8), &[255_u8, 254, 255]), 254); // 254.67
    assert_eq!(of(&average(Dtype::U8), &[0_u8, 1]), 0);
    assert_eq!(of(&average(Dtype::I8), &[-128_i8, -127]), -127); // -127.5
    assert_eq!(of(&average(Dtype::I16), &[i16::MAX; 64]), i16::MAX);
}

#[test]
fn truth_values_are_combined_by_or_and_and() {
    let results = |op, column: &[u8]| of(&reduction(Dtype::Bool, op, 1.0, 1.0), column);
    for (any, all) in [
        (ReduceOp::Sum, ReduceOp::Product),
        (ReduceOp::Max, ReduceOp::Min),
    ] {
        assert_eq!((results(any, &[0, 0]), results(all, &[0, 0])), (0, 0));
        assert_eq!((results(any, &[2, 0]), results(all, &[2, 0])), (1, 0));
        assert_eq!((results(any, &[128, 2]), results(all, &[128, 2])), (1, 1)); // not 130, not 128 & 2
        assert_eq!((results(any, &[255]), results(all, &[255])), (1, 1)); // one rank alone
    }
}

#[test]
fn integers_wrap_and_scale_factors_saturate() {
    assert_eq!(
        of(
            &reduction(Dtype::I32, ReduceOp::Sum, 1.0, 1.0),
            &[i32::MAX, 1]
        ),
        i32::MIN
    );
    assert_eq!(
        of(
            &reduction(Dtype::I64, ReduceOp::Product, 1.0, 1.0),
            &[1_i64 << 62, 4]
        ),
        0
    );
    assert_eq!(
        of(
            &reduction(Dtype::I32, ReduceOp::Sum, 1.0, 3.0),
            &[i32::MAX, 0]
        ),
        i32::MAX
    );
    assert_eq!(
        of(&reduction(Dtype::I32, ReduceOp::Sum, 0.5, 1.0), &[3, -3]),
        0
    ); // 1 + -1
    // 3 · 10 / 2, truncated once: not 10 · 1.
    assert_eq!(
        of(
            &reduction(Dtype::I32, ReduceOp::Average, 1.0, 10.0),
            &[1, 2]
        ),
        15
    );
}

#[test]
fn nan_wins_and_infinities_pass() {
    let min = reduction(Dtype::F32, ReduceOp::Min, 1.0, 1.0);
    let max = reduction(Dtype::F64, ReduceOp::Max, 1.0, 1.0);
    let bits = |x: f32| x.to_bits();
    for column in [[f32::NAN, 1.0], [1.0, f32::NAN]] {
        // `of` cannot be used: NaN differs from itself.
        let level = Level::detect();
        let inputs = column.map(|x| x.to_ne_bytes().to_vec());
        assert_eq!(combine(level, &min, &inputs, 0), f32::NAN.to_ne_bytes());
    }
    assert_eq!(
        of(&min, &[f32::INFINITY, f32::NEG_INFINITY]),
        f32::NEG_INFINITY
    );
    assert_eq!(of(&max, &[f64::NEG_INFINITY, -1.0]), -1.0);
    assert_eq!(bits(of(&min, &[-0.0, 0.0])), bits(-0.0));
    assert_eq!(bits(of(&min, &[0.0, -0.0])), bits(0.0));
    assert_eq!(
        of(
            &reduction(Dtype::F32, ReduceOp::Sum, 1.0, 1.0),
            &[f32::INFINITY, 1.0]
        ),
        f32::INFINITY
    );
}

#[test]
fn halves_round_once() {
    // 2048 + 1 + 1 is 2050 in f32; rounding f16 after each step would stay at 2048.
    let sum = |dtype| reduction(dtype, ReduceOp::Sum, 1.0, 1.0);
    let one = f16::ONE;
    assert_eq!(
        of(&sum(Dtype::F16), &[f16::from_f32(2048.0), one, one]),
        f16::from_f32(2050.0)
    );
    // 256 + 1 + 1: bf16 has a significand of 8 bits.
    let one = bf16::ONE;
    assert_eq!(
        of(&sum(Dtype::Bf16), &[bf16::from_f32(256.0), one, one]),
        bf16::from_f32(258.0)
    );
}

#[test]
fn averages_of_floats_are_true_divisions() {
    let average = reduction(Dtype::F32, ReduceOp::Average, 1.0, 1.0);
    assert_eq!(of(&average, &[1.0_f32, 1.0, 5.0]), 7.0 / 3.0);
    assert_eq!(of(&average, &[1.0_f32, 2.0]), 1.5);
    let scaled = reduction(Dtype::F64, ReduceOp::Average, 2.0, 0.1);
    assert_eq!(of(&scaled, &[1.0, 1.0, 5.0]), 14.0 / 3.0 * 0.1);
}
