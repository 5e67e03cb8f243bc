//! Floating-point arithmetic: f32 and f64 in their own type, f16 and bf16 in f32 with one rounding
//! at the end.

#![allow(unsafe_code)] // vector instructions

use std::marker::PhantomData;
use std::ops::{Div, Mul};

use half::{bf16, f16};

use super::block::{LANES, Scaling, Scheme};
use super::isa::Isa;
use super::op::Op;

/// Float that computes in its own type.
pub(super) trait Real: Copy + Default + Mul<Output = Self> + Div<Output = Self> {
    /// Returns the value nearest to `x`.
    fn nearest(x: f64) -> Self;
}

impl Real for f32 {
    #[inline(always)]
    fn nearest(x: f64) -> Self {
        x as f32
    }
}

impl Real for f64 {
    #[inline(always)]
    fn nearest(x: f64) -> Self {
        x
    }
}

/// Divides by the number of ranks, then multiplies by the postscale.
#[inline(always)]
fn finish<R: Real>(block: &mut [R; LANES], scaling: &Scaling) {
    if let Some(size) = scaling.divisor {
        let size_f64 = f64::from(size);
        if size.is_power_of_two() {
            // The reciprocal of a power of two is exact: same bits as a division, and cheaper.
            let reciprocal = R::nearest(size_f64.recip());
            for x in block.iter_mut() {
                *x = *x * reciprocal;
            }
        } else {
            let size = R::nearest(size_f64);
            for x in block.iter_mut() {
                *x = *x / size;
            }
        }
    }
    if let Some(factor) = scaling.postscale {
        let factor = R::nearest(factor);
        for x in block.iter_mut() {
            *x = *x * factor;
        }
    }
}

/// Scheme of f32 or f64 under the operation `O`.
pub(super) struct Plain<E, O>(PhantomData<(E, O)>);

impl<E: Real, O: Op<E>> Scheme for Plain<E, O> {
    type Element = E;
    type Accumulator = E;

    #[inline(always)]
    unsafe fn widen<I: Isa>(block: &[E; LANES]) -> [E; LANES] {
        *block
    }
    #[inline(always)]
    fn prescale(x: E, factor: f64) -> E {
        x * E::nearest(factor)
    }
    #[inline(always)]
    fn combine(so_far: E, next: E) -> E {
        O::apply(so_far, next)
    }
    #[inline(always)]
    fn finish(block: &mut [E; LANES], scaling: &Scaling) {
        finish(block, scaling);
    }
    #[inline(always)]
    unsafe fn narrow<I: Isa>(block: &[E; LANES]) -> [E; LANES] {
        *block
    }
}

/// 16-bit float.
pub(super) trait Half: Copy + Default {
    /// Converts to f32, exactly.
    ///
    /// # Safety
    /// That of [`Isa`].
    unsafe fn widen<I: Isa>(block: &[Self; LANES]) -> [f32; LANES];
    /// Converts from f32, rounding to nearest even.
    ///
    /// # Safety
    /// That of [`Isa`].
    unsafe fn narrow<I: Isa>(block: &[f32; LANES]) -> [Self; LANES];
}

impl Half for f16 {
    #[inline(always)]
    unsafe fn widen<I: Isa>(block: &[Self; LANES]) -> [f32; LANES] {
        // SAFETY: the caller has the target features of `I`.
        unsafe { I::widen(block) }
    }
    #[inline(always)]
    unsafe fn narrow<I: Isa>(block: &[f32; LANES]) -> [Self; LANES] {
        // SAFETY: as above.
        unsafe { I::narrow(block) }
    }
}

impl Half for bf16 {
    #[inline(always)]
    unsafe fn widen<I: Isa>(block: &[Self; LANES]) -> [f32; LANES] {
        block.map(|x| f32::from_bits(u32::from(x.to_bits()) << 16))
    }
    #[inline(always)]
    unsafe fn narrow<I: Isa>(block: &[f32; LANES]) -> [Self; LANES] {
        // Branch-free, so that it compiles to vector code, unlike the conversion of the crate
        // `half`. The instruction VCVTNEPS2BF16 cannot be used: it treats denormals as zero.
        block.map(|x| {
            let bits = x.to_bits();
            let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
            let quieted = (bits >> 16) | 0x40;
            Self::from_bits(if x.is_nan() { quieted } else { rounded } as u16)
        })
    }
}

/// Scheme of f16 or bf16 under the operation `O`, computed in f32.
pub(super) struct Halved<E, O>(PhantomData<(E, O)>);

impl<E: Half, O: Op<f32>> Scheme for Halved<E, O> {
    type Element = E;
    type Accumulator = f32;

    #[inline(always)]
    unsafe fn widen<I: Isa>(block: &[E; LANES]) -> [f32; LANES] {
        // SAFETY: the caller has the target features of `I`.
        unsafe { E::widen::<I>(block) }
    }
    #[inline(always)]
    fn prescale(x: f32, factor: f64) -> f32 {
        x * f32::nearest(factor)
    }
    #[inline(always)]
    fn combine(so_far: f32, next: f32) -> f32 {
        O::apply(so_far, next)
    }
    #[inline(always)]
    fn finish(block: &mut [f32; LANES], scaling: &Scaling) {
        finish(block, scaling);
    }
    #[inline(always)]
    unsafe fn narrow<I: Isa>(block: &[f32; LANES]) -> [E; LANES] {
        // SAFETY: as above.
        unsafe { E::narrow::<I>(block) }
    }
}
