//! Instruction sets: which one this processor has, and the f16 conversions that differ among them.

#![allow(unsafe_code)] // vector instructions

use super::block::LANES;
use half::f16;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_FROUND_TO_NEAREST_INT, _mm256_cvtph_ps, _mm256_cvtps_ph};

/// An instruction set that kernels are compiled for. All give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// What every processor of the target has: SSE2, NEON.
    Baseline,
    /// AVX2 and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW, DQ, VL, and the above.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// The best level of this processor.
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            match (avx2, avx512) {
                (true, true) => return Self::Avx512,
                (true, false) => return Self::Avx2,
                (false, _) => {}
            }
        }
        Self::Baseline
    }

    /// Every level that this processor has.
    #[cfg(test)]
    pub(crate) fn available() -> Vec<Self> {
        let mut levels = vec![Self::Baseline];
        #[cfg(target_arch = "x86_64")]
        match Self::detect() {
            Self::Baseline => {}
            Self::Avx2 => levels.push(Self::Avx2),
            Self::Avx512 => levels.extend([Self::Avx2, Self::Avx512]),
        }
        levels
    }
}

/// What a kernel needs from an instruction set beyond what the compiler finds by itself.
///
/// # Safety
/// The methods may use instructions that only a processor of this level has: call them below a function with the
/// `target_feature`s of that level.
pub(super) trait Isa {
    /// f16 to f32, exact.
    unsafe fn widen(block: &[f16; LANES]) -> [f32; LANES];
    /// f32 to f16, to nearest even.
    unsafe fn narrow(block: &[f32; LANES]) -> [f16; LANES];
}

/// [`Level::Baseline`].
pub(super) struct Baseline;

impl Isa for Baseline {
    #[inline(always)]
    unsafe fn widen(block: &[f16; LANES]) -> [f32; LANES] {
        block.map(f16::to_f32)
    }
    #[inline(always)]
    unsafe fn narrow(block: &[f32; LANES]) -> [f16; LANES] {
        block.map(f16::from_f32)
    }
}

/// [`Level::Avx2`] and above: the conversions of F16C.
#[cfg(target_arch = "x86_64")]
pub(super) struct F16c;

#[cfg(target_arch = "x86_64")]
impl Isa for F16c {
    #[inline(always)]
    unsafe fn widen(block: &[f16; LANES]) -> [f32; LANES] {
        let mut wide = [0.0; LANES];
        for (wide, narrow) in wide.chunks_exact_mut(8).zip(block.chunks_exact(8)) {
            // SAFETY: eight elements each, unaligned access; the processor has F16C (caller).
            unsafe {
                let packed = narrow
                    .as_ptr()
                    .cast::<std::arch::x86_64::__m128i>()
                    .read_unaligned();
                wide.as_mut_ptr()
                    .cast::<std::arch::x86_64::__m256>()
                    .write_unaligned(_mm256_cvtph_ps(packed));
            }
        }
        wide
    }
    #[inline(always)]
    unsafe fn narrow(block: &[f32; LANES]) -> [f16; LANES] {
        let mut packed = [f16::ZERO; LANES];
        for (narrow, wide) in packed.chunks_exact_mut(8).zip(block.chunks_exact(8)) {
            // SAFETY: as above.
            unsafe {
                let wide = wide.as_ptr().cast::<std::arch::x86_64::__m256>().read_unaligned();
                let rounded = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(wide);
                narrow
                    .as_mut_ptr()
                    .cast::<std::arch::x86_64::__m128i>()
                    .write_unaligned(rounded);
            }
        }
        packed
    }
}
