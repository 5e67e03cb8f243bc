//! Expected results of reductions on a GPU.

use half::{bf16, f16};

use crate::collective::Reduction;
use crate::collective::reference;
use crate::tensor::{Dtype, ReduceOp};

/// Returns the result for the inputs of the present ranks, of `size`.
pub(super) fn expected(present: &[Vec<u8>], size: usize, reduction: &Reduction) -> Vec<u8> {
    reference::reduce_present(present, size, reduction)
}

/// Returns elements of this many bytes: floats small and round, so that sums of a few are exact in
/// every type, and integers of any size, except for averages of the widest, whose sums wrap.
pub(super) fn elements(reduction: &Reduction, bytes: usize, seed: u64) -> Vec<u8> {
    let dtype = reduction.dtype;
    let count = bytes / dtype.size_bytes();
    let raw = reference::input(Dtype::I64, 2 * count, seed);
    let whole =
        |at: usize| i64::from_ne_bytes(raw[at * 16..][..8].try_into().expect("eight bytes"));
    let quarters = |at: usize| (whole(at) % 17) as f64 / 4.0;
    match dtype {
        Dtype::I64 if reduction.op == ReduceOp::Average => (0..count)
            .flat_map(|at| (whole(at) % 5).abs().to_le_bytes()[..dtype.size_bytes()].to_vec())
            .collect(),
        Dtype::Bool => (0..count).map(|at| u8::from(whole(at) % 3 == 0)).collect(),
        Dtype::F16 => (0..count)
            .flat_map(|at| f16::from_f64(quarters(at)).to_ne_bytes())
            .collect(),
        Dtype::Bf16 => (0..count)
            .flat_map(|at| bf16::from_f64(quarters(at)).to_ne_bytes())
            .collect(),
        Dtype::F32 => (0..count)
            .flat_map(|at| (quarters(at) as f32).to_ne_bytes())
            .collect(),
        Dtype::F64 => (0..count)
            .flat_map(|at| quarters(at).to_ne_bytes())
            .collect(),
        _ => reference::input(dtype, count, seed),
    }
}

/// Returns the first difference that roundings of the sent type cannot explain; operations that
/// only move bytes must be exact.
pub(super) fn differs(
    found: &[u8],
    expected: &[u8],
    dtype: Dtype,
    wire: Dtype,
    is_reduction: bool,
) -> Option<String> {
    let width = dtype.size_bytes();
    let epsilon = match wire {
        Dtype::F16 => 2f64.powi(-10),
        Dtype::Bf16 => 2f64.powi(-7),
        Dtype::F32 => 2f64.powi(-23),
        Dtype::F64 => 2f64.powi(-52),
        _ => 0.0,
    };
    if !is_reduction || epsilon == 0.0 {
        let at = found
            .iter()
            .zip(expected)
            .position(|(found, expected)| found != expected);
        return at.map(|at| {
            let first = at / width * width;
            format!(
                "element {}: {:x?} where {:x?}",
                at / width,
                &found[first..][..width],
                &expected[first..][..width]
            )
        });
    }
    let pairs = found.chunks_exact(width).zip(expected.chunks_exact(width));
    let mut pairs = pairs
        .map(|(found, expected)| (float(found, dtype), float(expected, dtype)))
        .enumerate();
    let is_off = |found: f64, expected: f64| {
        found != expected
            && (found.is_nan()
                || (found - expected).abs() > 8.0 * epsilon * expected.abs().max(1e-2))
    };
    pairs.find_map(|(at, (found, expected))| {
        is_off(found, expected).then(|| format!("element {at}: {found} where {expected}"))
    })
}

fn float(bytes: &[u8], dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F16 => f16::from_ne_bytes(bytes.try_into().expect("one element")).to_f64(),
        Dtype::Bf16 => bf16::from_ne_bytes(bytes.try_into().expect("one element")).to_f64(),
        Dtype::F32 => f32::from_ne_bytes(bytes.try_into().expect("one element")).into(),
        _ => f64::from_ne_bytes(bytes.try_into().expect("one element")),
    }
}
