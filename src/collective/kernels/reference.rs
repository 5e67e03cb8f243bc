//! Reference implementation of reductions, one element at a time, and random inputs for tests.

use half::{bf16, f16};

use crate::collective::Reduction;
use crate::tensor::{Dtype, ReduceOp};

/// Whether a reduction is defined: bool supports neither averages nor factors.
pub(crate) fn is_sensible(reduction: &Reduction) -> bool {
    let plain = reduction.prescale == 1.0 && reduction.postscale == 1.0;
    reduction.dtype != Dtype::Bool || (plain && reduction.op != ReduceOp::Average)
}

/// Reduces `inputs`, one byte string per rank.
pub(crate) fn reduce(inputs: &[Vec<u8>], reduction: &Reduction) -> Vec<u8> {
    reduce_present(inputs, inputs.len(), reduction)
}

/// Reduces `inputs`, those of the ranks that are not absent among `size` ranks.
pub(crate) fn reduce_present(inputs: &[Vec<u8>], size: usize, reduction: &Reduction) -> Vec<u8> {
    let width = reduction.dtype.size_bytes();
    (0..inputs[0].len() / width)
        .flat_map(|index| {
            let element = |input: &Vec<u8>| input[index * width..][..width].to_vec();
            let column: Vec<Vec<u8>> = inputs.iter().map(element).collect();
            one(&column, size, reduction)
        })
        .collect()
}

/// Converts the bytes of an element to an array.
fn fixed<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("one element")
}

macro_rules! float_column {
    ($float:ty, $column:expr, $size:expr, $reduction:expr) => {{
        let reduction: &Reduction = $reduction;
        let size: usize = $size;
        let scaled = $column
            .into_iter()
            .map(|x: $float| match reduction.prescale {
                1.0 => x,
                factor => x * factor as $float,
            });
        let result = scaled
            .reduce(|a, b| match reduction.op {
                ReduceOp::Sum | ReduceOp::Average => a + b,
                ReduceOp::Product => a * b,
                _ if a.is_nan() => a,
                _ if b.is_nan() => b,
                ReduceOp::Min => {
                    if b < a {
                        b
                    } else {
                        a
                    }
                }
                ReduceOp::Max => {
                    if b > a {
                        b
                    } else {
                        a
                    }
                }
            })
            .expect("at least one rank");
        let result = if reduction.op == ReduceOp::Average {
            result / size as $float
        } else {
            result
        };
        if reduction.postscale == 1.0 {
            result
        } else {
            result * reduction.postscale as $float
        }
    }};
}

macro_rules! integer_column {
    ($integer:ty, $column:expr, $size:expr, $reduction:expr) => {{
        let reduction: &Reduction = $reduction;
        let size = $size as i128;
        let scaled = $column
            .into_iter()
            .map(|x: $integer| match reduction.prescale {
                1.0 => x,
                factor => (x as f64 * factor) as $integer,
            });
        if reduction.op == ReduceOp::Average {
            let sum: i128 = scaled.map(i128::from).sum();
            if reduction.postscale == 1.0 {
                (sum / size) as $integer
            } else {
                (sum as f64 * reduction.postscale / size as f64) as $integer
            }
        } else {
            let result = scaled
                .reduce(|a, b| match reduction.op {
                    ReduceOp::Product => a.wrapping_mul(b),
                    ReduceOp::Min => a.min(b),
                    ReduceOp::Max => a.max(b),
                    _ => a.wrapping_add(b),
                })
                .expect("at least one rank");
            match reduction.postscale {
                1.0 => result,
                factor => (result as f64 * factor) as $integer,
            }
        }
    }};
}

fn one(column: &[Vec<u8>], size: usize, reduction: &Reduction) -> Vec<u8> {
    let column = column.iter();
    match reduction.dtype {
        Dtype::F32 => {
            let column: Vec<f32> = column.map(|x| f32::from_ne_bytes(fixed(x))).collect();
            float_column!(f32, column, size, reduction)
                .to_ne_bytes()
                .to_vec()
        }
        Dtype::F64 => {
            let column: Vec<f64> = column.map(|x| f64::from_ne_bytes(fixed(x))).collect();
            float_column!(f64, column, size, reduction)
                .to_ne_bytes()
                .to_vec()
        }
        Dtype::F16 => {
            let column: Vec<f32> = column
                .map(|x| f16::from_ne_bytes(fixed(x)).to_f32())
                .collect();
            f16::from_f32(float_column!(f32, column, size, reduction))
                .to_ne_bytes()
                .to_vec()
        }
        Dtype::Bf16 => {
            let column: Vec<f32> = column
                .map(|x| bf16::from_ne_bytes(fixed(x)).to_f32())
                .collect();
            bf16::from_f32(float_column!(f32, column, size, reduction))
                .to_ne_bytes()
                .to_vec()
        }
        Dtype::U8 => {
            let column: Vec<u8> = column.map(|x| u8::from_ne_bytes(fixed(x))).collect();
            integer_column!(u8, column, size, reduction)
                .to_ne_bytes()
                .to_vec()
        }
        Dtype::I8 => {
            let column: Vec<i8> = column.map(|x| i8::from_ne_bytes(fixed(x))).collect();
            integer_column!(i8, column, size, reduction)
                .to_ne_bytes()
                .to_vec()
        }
        Dtype::I16 => {
            let column: Vec<i16> = column.map(|x| i16::from_ne_bytes(fixed(x))).collect();
            integer_column!(i16, column, size, reduction)
                .to_ne_bytes()
                .to_vec()
        }
        Dtype::Bool => {
            let mut truths = column.map(|x| x[0] != 0);
            let result = match reduction.op {
                ReduceOp::Sum | ReduceOp::Max => truths.any(|truth| truth),
                ReduceOp::Product | ReduceOp::Min => truths.all(|truth| truth),
                ReduceOp::Average => unreachable!("no average of truth values"),
            };
            vec![u8::from(result)]
        }
        Dtype::I32 => {
            let column: Vec<i32> = column.map(|x| i32::from_ne_bytes(fixed(x))).collect();
            integer_column!(i32, column, size, reduction)
                .to_ne_bytes()
                .to_vec()
        }
        Dtype::I64 => {
            let column: Vec<i64> = column.map(|x| i64::from_ne_bytes(fixed(x))).collect();
            integer_column!(i64, column, size, reduction)
                .to_ne_bytes()
                .to_vec()
        }
    }
}

/// Returns `bytes` with every NaN replaced by one NaN: which NaN a sum of several gives is
/// unspecified.
pub(crate) fn canonical(bytes: &[u8], dtype: Dtype) -> Vec<u8> {
    bytes
        .chunks_exact(dtype.size_bytes())
        .flat_map(|x| match dtype {
            Dtype::F32 if f32::from_ne_bytes(fixed(x)).is_nan() => f32::NAN.to_ne_bytes().to_vec(),
            Dtype::F64 if f64::from_ne_bytes(fixed(x)).is_nan() => f64::NAN.to_ne_bytes().to_vec(),
            Dtype::F16 if f16::from_ne_bytes(fixed(x)).is_nan() => f16::NAN.to_ne_bytes().to_vec(),
            Dtype::Bf16 if bf16::from_ne_bytes(fixed(x)).is_nan() => {
                bf16::NAN.to_ne_bytes().to_vec()
            }
            _ => x.to_vec(),
        })
        .collect()
}

/// Returns `elements` elements drawn from `seed`. Every second one has arbitrary bits (NaN,
/// infinities, denormals, extremes); the others are of moderate size, so that sums are rounded.
pub(crate) fn input(dtype: Dtype, elements: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    (0..elements)
        .flat_map(|index| {
            // SplitMix64 (Steele, Lea, Flood 2014).
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut bits = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            bits ^= bits >> 31;
            let moderate = (bits >> 40) as f64 / 4096.0 - 2048.0;
            match dtype {
                // Mostly false or mostly true, so that OR and AND of several ranks give different
                // results.
                Dtype::Bool if index % 4 < 2 => vec![u8::from(bits.is_multiple_of(5))],
                Dtype::Bool => vec![if bits.is_multiple_of(5) {
                    0
                } else {
                    bits as u8 | 1
                }],
                _ if index % 2 == 0 => bits.to_ne_bytes()[..dtype.size_bytes()].to_vec(),
                Dtype::F32 => (moderate as f32).to_ne_bytes().to_vec(),
                Dtype::F64 => (moderate / 3.0).to_ne_bytes().to_vec(),
                Dtype::F16 => f16::from_f64(moderate).to_ne_bytes().to_vec(),
                Dtype::Bf16 => bf16::from_f64(moderate).to_ne_bytes().to_vec(),
                Dtype::U8 | Dtype::I8 => vec![(moderate / 256.0) as i8 as u8],
                Dtype::I16 => (moderate as i16).to_ne_bytes().to_vec(),
                Dtype::I32 => (moderate as i32).to_ne_bytes().to_vec(),
                Dtype::I64 => (moderate as i64).to_ne_bytes().to_vec(),
            }
        })
        .collect()
}
