//! Test data of every element type, and the reference of a reduction: one element at a time, in
//! rank order.

#![allow(unsafe_code)] // elements as bytes

use half::{bf16, f16};
use ronde::{Dtype, Element, Operation, ReduceOp};

use crate::support::Draw;

/// Period of a rank's data: a prime, so that no chunk's length is a multiple of it.
pub(crate) const PERIOD: usize = 1021;

/// Reduction with its scale factors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct How {
    pub(crate) op: ReduceOp,
    pub(crate) prescale: f64,
    pub(crate) postscale: f64,
}

impl How {
    pub(crate) fn plain(op: ReduceOp) -> Self {
        Self {
            op,
            prescale: 1.0,
            postscale: 1.0,
        }
    }

    /// Returns all five operations, and some with factors.
    pub(crate) fn all() -> Vec<Self> {
        let scaled = |op, prescale, postscale| Self {
            op,
            prescale,
            postscale,
        };
        let mut all: Vec<Self> = ReduceOp::ALL.into_iter().map(Self::plain).collect();
        all.extend([
            scaled(ReduceOp::Sum, 0.75, 3.0),
            scaled(ReduceOp::Average, 1.5, -0.3),
            scaled(ReduceOp::Min, -2.0, 1.0),
        ]);
        all
    }

    pub(crate) fn is_scaled(&self) -> bool {
        (self.prescale, self.postscale) != (1.0, 1.0)
    }

    pub(crate) fn is_defined_for(&self, dtype: Dtype) -> bool {
        dtype != Dtype::Bool || (self.op != ReduceOp::Average && !self.is_scaled())
    }

    pub(crate) fn allreduce(&self) -> Operation<'static> {
        let Self {
            op,
            prescale,
            postscale,
        } = *self;
        Operation::Allreduce {
            op,
            prescale,
            postscale,
        }
    }

    pub(crate) fn reducescatter(&self) -> Operation<'static> {
        let Self {
            op,
            prescale,
            postscale,
        } = *self;
        Operation::Reducescatter {
            op,
            prescale,
            postscale,
        }
    }
}

/// Element type under test.
pub(crate) trait Sample: Element + PartialEq + std::fmt::Debug {
    /// Returns a value that is arbitrary bits, special or moderate, depending on its position.
    fn draw(draw: &mut Draw, index: usize) -> Self;
    /// Combines the ranks' elements, in rank order.
    fn reduce(column: &[Self], how: &How) -> Self;
    /// Whether the value is NaN.
    fn is_nan(self) -> bool;
    /// Whether a NaN keeps its bits in a minimum or maximum: not if it is converted to f32.
    const KEEPS_NAN: bool = true;
}

/// Returns the bytes of `elements`.
pub(crate) fn bytes<T: Element>(elements: &[T]) -> &[u8] {
    // SAFETY: the same memory with the same lifetime; no element type has padding.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

/// Returns the data of rank `rank`, [`PERIOD`] elements.
pub(crate) fn pool<T: Sample>(rank: usize) -> Vec<T> {
    let seed = (rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ ((T::DTYPE as u64) << 17);
    let mut draw = Draw(seed);
    for _ in 0..20 {
        draw.next(); // the first numbers of similar seeds are similar
    }
    (0..PERIOD).map(|index| T::draw(&mut draw, index)).collect()
}

/// Returns `length` elements of `period`, repeated, from `offset` on.
pub(crate) fn window<T: Copy>(period: &[T], offset: usize, length: usize) -> Vec<T> {
    let mut window = Vec::with_capacity(length);
    let mut start = offset % PERIOD;
    while window.len() < length {
        let end = period.len().min(start + length - window.len());
        window.extend_from_slice(&period[start..end]);
        start = 0;
    }
    window
}

/// Draws a number of moderate size with a fraction of four bits, so that sums in narrow types are
/// rounded.
fn moderate(draw: &mut Draw) -> f64 {
    draw.below(1 << 12) as f64 / 16.0 - 128.0
}

/// Draws a value that reductions must preserve: both zeros, infinities and NaN.
fn special(draw: &mut Draw, index: usize) -> f64 {
    let zeros = [0.0, -0.0];
    let all = [-0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1.0];
    if index % 16 == 3 {
        zeros[draw.below(2) as usize]
    } else {
        all[draw.below(5) as usize]
    }
}

macro_rules! float {
    ($type:ty, $bits:ty, $accumulator:ty, $from_f64:expr, $widen:expr, $narrow:expr, $keeps_nan:expr) => {
        impl Sample for $type {
            const KEEPS_NAN: bool = $keeps_nan;

            fn draw(draw: &mut Draw, index: usize) -> Self {
                match index % 8 {
                    0 | 4 => <$type>::from_bits(draw.next() as $bits),
                    3 => $from_f64(special(draw, index)),
                    _ => $from_f64(moderate(draw) / 3.0),
                }
            }

            fn reduce(column: &[Self], how: &How) -> Self {
                type A = $accumulator;
                let scaled = column.iter().map(|&x| match how.prescale {
                    1.0 => $widen(x),
                    factor => $widen(x) * factor as A,
                });
                let take_if = |takes: bool, so_far: A, next: A| if takes { next } else { so_far };
                let combined = scaled.reduce(|a, b| match how.op {
                    ReduceOp::Sum | ReduceOp::Average => a + b,
                    ReduceOp::Product => a * b,
                    // NaN if there is one; the first of equal values.
                    ReduceOp::Min => take_if(!a.is_nan() && (b < a || b.is_nan()), a, b),
                    ReduceOp::Max => take_if(!a.is_nan() && (b > a || b.is_nan()), a, b),
                });
                let mut result: A = combined.expect("there is a rank");
                if how.op == ReduceOp::Average {
                    result /= column.len() as A;
                }
                if how.postscale != 1.0 {
                    result *= how.postscale as A;
                }
                $narrow(result)
            }

            fn is_nan(self) -> bool {
                self.is_nan()
            }
        }
    };
}
float!(
    f16,
    u16,
    f32,
    f16::from_f64,
    f16::to_f32,
    f16::from_f32,
    false
);
float!(
    bf16,
    u16,
    f32,
    bf16::from_f64,
    bf16::to_f32,
    bf16::from_f32,
    false
);
float!(
    f32,
    u32,
    f32,
    |x: f64| x as f32,
    |x: f32| x,
    |x: f32| x,
    true
);
float!(f64, u64, f64, |x: f64| x, |x: f64| x, |x: f64| x, true);

macro_rules! integer {
    ($($type:ty),*) => {$(
        impl Sample for $type {
            fn draw(draw: &mut Draw, index: usize) -> Self {
                match index % 8 {
                    0 | 4 => draw.next() as $type,
                    3 => [<$type>::MIN, <$type>::MAX][draw.below(2) as usize],
                    _ => moderate(draw) as i64 as $type,
                }
            }

            fn reduce(column: &[Self], how: &How) -> Self {
                // `as` drops the fraction and saturates.
                let scale = |x: f64, factor: f64| (x * factor) as $type;
                let scaled = column.iter().map(|&x| match how.prescale {
                    1.0 => i128::from(x),
                    factor => i128::from(scale(x as f64, factor)),
                });
                // Exact, or modulo 2^128: narrowed, that is modulo 2^width.
                let combined = scaled.reduce(|a, b| match how.op {
                    ReduceOp::Sum | ReduceOp::Average => a + b,
                    ReduceOp::Product => a.wrapping_mul(b),
                    ReduceOp::Min => a.min(b),
                    ReduceOp::Max => a.max(b),
                });
                let combined = combined.expect("there is a rank");
                let ranks = column.len() as i128;
                match (how.op, how.postscale) {
                    (ReduceOp::Average, 1.0) => (combined / ranks) as $type,
                    (ReduceOp::Average, factor) => (combined as f64 * factor / ranks as f64) as $type,
                    (_, 1.0) => combined as $type,
                    (_, factor) => scale(combined as $type as f64, factor),
                }
            }

            fn is_nan(self) -> bool {
                false
            }
        }
    )*};
}
integer!(u8, i8, i16, i32, i64);

impl Sample for bool {
    /// Mostly false or mostly true, so that OR and AND of several ranks give different results.
    fn draw(draw: &mut Draw, index: usize) -> Self {
        (draw.below(5) == 0) == (index % 4 < 2)
    }

    fn reduce(column: &[Self], how: &How) -> Self {
        match how.op {
            ReduceOp::Sum | ReduceOp::Max => column.contains(&true),
            ReduceOp::Product | ReduceOp::Min => !column.contains(&false),
            ReduceOp::Average => unreachable!("no average of truth values"),
        }
    }

    fn is_nan(self) -> bool {
        false
    }
}
