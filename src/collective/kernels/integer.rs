//! Integer arithmetic: wrapping sums and products, exact averages, scale factors in f64.

#![allow(unsafe_code)] // vector instructions

use std::marker::PhantomData;

use super::block::{LANES, Scaling, Scheme};
use super::isa::Isa;
use super::op::Op;

/// Integer element type.
pub(super) trait Integer: Copy + Default {
    /// Signed type that holds the sum over 65535 ranks, more than a job can have.
    type Wide: Copy + std::ops::Add<Output = Self::Wide>;
    /// Converts to the wide type.
    fn widen(self) -> Self::Wide;
    /// Converts a value that fits from the wide type.
    fn narrow(wide: Self::Wide) -> Self;
    /// Returns `wide / size`, rounded toward zero.
    fn quotient(wide: Self::Wide, size: u32) -> Self::Wide;
    /// Returns `factor · wide / size`, rounded toward zero and saturated to this type.
    fn scaled(wide: Self::Wide, factor: f64, size: u32) -> Self::Wide;
}

macro_rules! integer {
    ($($element:ty => $wide:ty),*) => {$(
        impl Integer for $element {
            type Wide = $wide;
            #[inline(always)]
            fn widen(self) -> $wide { <$wide>::from(self) }
            #[inline(always)]
            fn narrow(wide: $wide) -> Self { wide as Self }
            #[inline(always)]
            fn quotient(wide: $wide, size: u32) -> $wide {
                wide / size as $wide
            }
            #[inline(always)]
            fn scaled(wide: $wide, factor: f64, size: u32) -> $wide {
                // `as` from a float truncates, saturates and converts NaN to 0.
                <$wide>::from((wide as f64 * factor / f64::from(size)) as Self)
            }
        }
    )*};
}
integer!(u8 => i32, i8 => i32, i16 => i32, i32 => i64, i64 => i128);

/// Scheme of an integer under the operation `O`, in its own width.
pub(super) struct Whole<E, O>(PhantomData<(E, O)>);

impl<E: Integer, O: Op<E>> Scheme for Whole<E, O> {
    type Element = E;
    type Accumulator = E;

    #[inline(always)]
    unsafe fn widen<I: Isa>(block: &[E; LANES]) -> [E; LANES] {
        *block
    }
    #[inline(always)]
    fn prescale(x: E, factor: f64) -> E {
        E::narrow(E::scaled(x.widen(), factor, 1))
    }
    #[inline(always)]
    fn combine(so_far: E, next: E) -> E {
        O::apply(so_far, next)
    }
    #[inline(always)]
    fn finish(block: &mut [E; LANES], scaling: &Scaling) {
        if let Some(factor) = scaling.postscale {
            for x in block {
                *x = Self::prescale(*x, factor);
            }
        }
    }
    #[inline(always)]
    unsafe fn narrow<I: Isa>(block: &[E; LANES]) -> [E; LANES] {
        *block
    }
}

/// Scheme of integer averages: summed in the wide type, truncated once.
pub(super) struct Averaged<E>(PhantomData<E>);

impl<E: Integer> Scheme for Averaged<E> {
    type Element = E;
    type Accumulator = E::Wide;

    #[inline(always)]
    unsafe fn widen<I: Isa>(block: &[E; LANES]) -> [E::Wide; LANES] {
        block.map(E::widen)
    }
    #[inline(always)]
    fn prescale(x: E::Wide, factor: f64) -> E::Wide {
        E::scaled(x, factor, 1)
    }
    #[inline(always)]
    fn combine(so_far: E::Wide, next: E::Wide) -> E::Wide {
        so_far + next
    }
    #[inline(always)]
    fn finish(block: &mut [E::Wide; LANES], scaling: &Scaling) {
        let size = scaling.divisor.unwrap_or(1);
        for x in block {
            *x = match scaling.postscale {
                Some(factor) => E::scaled(*x, factor, size),
                None => E::quotient(*x, size),
            };
        }
    }
    #[inline(always)]
    unsafe fn narrow<I: Isa>(block: &[E::Wide; LANES]) -> [E; LANES] {
        block.map(E::narrow)
    }
}
