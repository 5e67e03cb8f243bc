//! Adasum: reduction of gradients that counts the direction shared by several ranks only once
//! (Maleki et al., *Scaling Distributed Training with Adaptive Summation*, MLSys 2021, §3).
//!
//! Two tensors are combined as a·(1 − a·b / 2|a|²) + b·(1 − a·b / 2|b|²): their sum if they are
//! orthogonal, their mean if they are equal. More tensors are combined in a binary tree: ranks 0
//! and 1, ranks 2 and 3, then the results of these pairs. The dot products need whole tensors. So
//! the data cannot be processed in chunks, and every rank computes the result itself from the
//! tensors of all ranks.
//!
//! Products are summed in f64, in a constant number of partial sums: all ranks get the same bits.

#![allow(unsafe_code)] // elements at an address

use half::{bf16, f16};

use crate::collective::DefaultFloatEnv;
use crate::delivery::Memory;
use crate::tensor::Dtype;

/// Number of partial sums, so that the compiler generates vector instructions.
const LANES: usize = 8;

/// Factors on the inputs and on the result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Factor on the tensor of every rank.
    pub before: f64,
    /// Factor on the result.
    pub after: f64,
}

/// Combines the tensors of `ranks` ranks in place. They lie one after another in `memory`, as after
/// an allgather, and all of them are written. The result replaces the first one. Tensors of other
/// types than floats are not changed.
pub fn combine(memory: &mut Memory, ranks: usize, scale: Scale) {
    let _environment = DefaultFloatEnv::enter(); // the caller's thread may flush subnormal numbers
    match memory.dtype() {
        Dtype::F16 => of::<f16>(memory, ranks, scale),
        Dtype::Bf16 => of::<bf16>(memory, ranks, scale),
        Dtype::F32 => of::<f32>(memory, ranks, scale),
        Dtype::F64 => of::<f64>(memory, ranks, scale),
        Dtype::U8 | Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 | Dtype::Bool => {}
    }
}

fn of<T: Real>(memory: &mut Memory, ranks: usize, scale: Scale) {
    let elements = memory.bytes() / size_of::<T>();
    // SAFETY: the memory has this many elements of this type, aligned, and is borrowed as long as
    // the slice; a float may have any bits.
    let all = unsafe { std::slice::from_raw_parts_mut(memory.address().cast::<T>(), elements) };
    tree(all, elements / ranks.max(1), scale);
}

/// Combines `rows`, which has `row` elements for each rank, in a binary tree.
fn tree<T: Real>(rows: &mut [T], row: usize, scale: Scale) {
    if row == 0 {
        return;
    }
    scaled(rows, scale.before);
    let mut step = row;
    while step < rows.len() {
        for both in rows.chunks_mut(2 * step) {
            // The last tensor may have no partner.
            if let Some((a, b)) = both.split_at_mut_checked(step) {
                pair(&mut a[..row], &b[..row.min(b.len())]);
            }
        }
        step *= 2;
    }
    scaled(&mut rows[..row], scale.after);
}

fn scaled<T: Real>(elements: &mut [T], factor: f64) {
    if factor != 1.0 {
        elements
            .iter_mut()
            .for_each(|x| *x = T::narrow(x.widen() * factor));
    }
}

/// Writes the combination of `a` and `b` into `a`. An empty `b` leaves `a` as it is.
fn pair<T: Real>(a: &mut [T], b: &[T]) {
    if b.is_empty() {
        return;
    }
    let [ab, aa, bb] = dots(a, b);
    // A smaller square is too imprecise to divide by: the tensor is added with factor 1.
    let least = f64::MIN_POSITIVE.sqrt();
    let keep = |square: f64| {
        if square < least {
            1.0
        } else {
            1.0 - ab / (2.0 * square)
        }
    };
    let (of_a, of_b) = (keep(aa), keep(bb));
    for (a, b) in a.iter_mut().zip(b) {
        *a = T::narrow(of_a * a.widen() + of_b * b.widen());
    }
}

/// Returns a·b, a·a and b·b.
fn dots<T: Real>(a: &[T], b: &[T]) -> [f64; 3] {
    let mut sums = [[0.0; LANES]; 3];
    for (a, b) in a.chunks(LANES).zip(b.chunks(LANES)) {
        for (lane, (a, b)) in a.iter().zip(b).enumerate() {
            let (a, b) = (a.widen(), b.widen());
            sums[0][lane] += a * b;
            sums[1][lane] += a * a;
            sums[2][lane] += b * b;
        }
    }
    sums.map(|lanes| lanes.iter().sum())
}

/// Float with conversions to f64 and back.
trait Real: Copy {
    fn widen(self) -> f64;
    fn narrow(x: f64) -> Self;
}

macro_rules! real {
    ($($float:ty: $widen:expr, $narrow:expr;)*) => {$(
        impl Real for $float {
            fn widen(self) -> f64 { $widen(self) }
            fn narrow(x: f64) -> Self { $narrow(x) }
        }
    )*};
}
real! {
    f16: f16::to_f64, f16::from_f64;
    bf16: bf16::to_f64, bf16::from_f64;
    f32: f64::from, |x| x as f32;
    f64: |x| x, |x| x;
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Scale = Scale {
        before: 1.0,
        after: 1.0,
    };

    fn of_rows(rows: &[&[f64]], scale: Scale) -> Vec<f64> {
        let mut all: Vec<f64> = rows.concat();
        let row = all.len() / rows.len();
        tree(&mut all, row, scale);
        all.truncate(row);
        all
    }

    #[test]
    fn orthogonal_tensors_are_added_and_equal_tensors_are_averaged() {
        assert_eq!(of_rows(&[&[1.0, 0.0], &[0.0, 2.0]], PLAIN), [1.0, 2.0]);
        assert_eq!(of_rows(&[&[3.0, -1.0], &[3.0, -1.0]], PLAIN), [3.0, -1.0]);
        // a·b = 2, |a|² = 1, |b|² = 8: factor 0 on a, 7/8 on b.
        assert_eq!(of_rows(&[&[1.0, 0.0], &[2.0, 2.0]], PLAIN), [1.75, 1.75]);
    }

    #[test]
    fn neighbours_are_combined_first_and_no_rank_is_left_out() {
        let rows: [&[f64]; 4] = [&[1.0, 0.0], &[2.0, 2.0], &[0.0, 5.0], &[0.0, 5.0]];
        let (first, second) = (of_rows(&rows[..2], PLAIN), of_rows(&rows[2..], PLAIN));
        assert_eq!(of_rows(&rows, PLAIN), of_rows(&[&first, &second], PLAIN));
        let three = of_rows(&rows[..3], PLAIN);
        assert_eq!(three, of_rows(&[&first, rows[2]], PLAIN));
    }

    #[test]
    fn zeros_and_tiny_values_are_added() {
        assert_eq!(of_rows(&[&[0.0, 0.0], &[2.0, 2.0]], PLAIN), [2.0, 2.0]);
        assert_eq!(of_rows(&[&[1e-90], &[1e-90]], PLAIN), [2e-90]);
        assert!(of_rows(&[&[], &[]], PLAIN).is_empty());
        let halved = Scale {
            before: 2.0,
            after: 0.25,
        };
        assert_eq!(of_rows(&[&[3.0], &[3.0]], halved), [1.5]);
    }

    #[test]
    fn halves_are_combined_in_memory() {
        let mut memory = Memory::new(Dtype::F16, 8).expect("memory");
        let rows = [1.0f32, 0.0, 2.0, 2.0].map(f16::from_f32);
        // SAFETY: four elements of two bytes.
        unsafe { std::ptr::copy_nonoverlapping(rows.as_ptr(), memory.address().cast(), 4) };
        combine(&mut memory, 2, PLAIN);
        // SAFETY: all four are written.
        let result = unsafe { memory.into_vec::<f16>() }.expect("in host memory");
        let result = result.expect("of this type");
        assert_eq!(result[..2], [1.75, 1.75].map(f16::from_f32));
    }
}
