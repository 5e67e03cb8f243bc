//! Instruction sets: detects those of this processor and implements the f16 conversions that differ
//! among them.

#![allow(unsafe_code)] // vector instructions

use super::block::LANES;
use half::f16;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_FROUND_TO_NEAREST_INT, _mm256_cvtph_ps, _mm256_cvtps_ph};

/// Instruction set that kernels are compiled for. All of them give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Baseline of the target: SSE2 or NEON.
    Baseline,
    /// AVX2 and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW, DQ and VL, in addition to AVX2 and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// Returns the highest level of this processor.
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

    /// Returns all levels of this processor.
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

/// Operations for which the compiler does not find the best instructions by itself.
///
/// # Safety
/// The methods may use instructions that only a processor of this level has: they are to be called
/// from a function with the `target_feature`s of that level.
pub(super) trait Isa {
    /// Converts f16 to f32, exactly.
    unsafe fn widen(block: &[f16; LANES]) -> [f32; LANES];
    /// Converts f32 to f16, rounding to nearest even.
    unsafe fn narrow(block: &[f32; LANES]) -> [f16; LANES];
}

/// Conversions of [`Level::Baseline`].
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

/// Conversions of [`Level::Avx2`] and above, by F16C.
#[cfg(target_arch = "x86_64")]
pub(super) struct F16c;

#[cfg(target_arch = "x86_64")]
impl Isa for F16c {
    #[inline(always)]
    unsafe fn widen(block: &[f16; LANES]) -> [f32; LANES] {
        let mut wide = [0.0; LANES];
        for (wide, narrow) in wide.chunks_exact_mut(8).zip(block.chunks_exact(8)) {
            // SAFETY: eight elements each, unaligned access; the caller guarantees F16C.
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
                let wide = wide
                    .as_ptr()
                    .cast::<std::arch::x86_64::__m256>()
                    .read_unaligned();
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
