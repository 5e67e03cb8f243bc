//! Boolean arithmetic: bytes that are 0 or not, combined by OR or AND into bytes that are 0 or 1.

#![allow(unsafe_code)] // vector instructions

use std::marker::PhantomData;

use super::block::{LANES, Scaling, Scheme};
use super::isa::Isa;
use super::op::{Max, Min, Op};

/// Bytes as booleans under [`Max`], which is OR of 0 and 1, or [`Min`], which is AND.
pub(super) struct Truth<O>(PhantomData<O>);

/// OR: true if any rank contributes true.
pub(super) type Any = Truth<Max>;
/// AND: true if every rank contributes true.
pub(super) type All = Truth<Min>;

impl<O: Op<u8>> Scheme for Truth<O> {
    type Element = u8;
    type Accumulator = u8;

    #[inline(always)]
    unsafe fn widen<I: Isa>(block: &[u8; LANES]) -> [u8; LANES] {
        block.map(|byte| u8::from(byte != 0))
    }
    /// Factors other than 1 were refused earlier.
    #[inline(always)]
    fn prescale(x: u8, _factor: f64) -> u8 {
        x
    }
    #[inline(always)]
    fn combine(so_far: u8, next: u8) -> u8 {
        O::apply(so_far, next)
    }
    /// Averages and factors were refused earlier.
    #[inline(always)]
    fn finish(_block: &mut [u8; LANES], _scaling: &Scaling) {}
    #[inline(always)]
    unsafe fn narrow<I: Isa>(block: &[u8; LANES]) -> [u8; LANES] {
        *block
    }
}
