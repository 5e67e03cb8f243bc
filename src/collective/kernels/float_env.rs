//! Floating-point environment of the thread that reduces (MXCSR, FPCR): rounding to nearest even,
//! subnormal numbers as they are.
//!
//! A thread that a framework has told to flush subnormal numbers to zero, as
//! `torch.set_flush_denormal` and TensorFlow's thread pools do, may drive the cycle on one rank,
//! and the background thread on another. Without this the ranks could get different bits.

#![allow(unsafe_code)] // a control register of the processor

/// Keeps the default environment in force until it is dropped.
pub(crate) struct DefaultFloatEnv {
    /// Environment of the thread before; `None` if it was the default.
    before: Option<Word>,
}

impl DefaultFloatEnv {
    pub(crate) fn enter() -> Self {
        let word = read();
        let is_default = word & MODE == DEFAULT;
        if !is_default {
            write(word & !MODE | DEFAULT);
        }
        Self {
            before: (!is_default).then_some(word),
        }
    }
}

impl Drop for DefaultFloatEnv {
    fn drop(&mut self) {
        if let Some(word) = self.before {
            write(word);
        }
    }
}

#[cfg(target_arch = "x86_64")]
use x86_64::{DEFAULT, MODE, Word, read, write};

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::asm;

    pub(super) type Word = u32;

    /// Bits of MXCSR that decide on results: flush to zero, rounding, exceptions that trap, and
    /// denormals are zeros.
    pub(super) const MODE: Word = 0xffc0;
    /// None of them but the masks: no exception traps.
    pub(super) const DEFAULT: Word = 0x1f80;

    pub(super) fn read() -> Word {
        let mut word = 0;
        // SAFETY: the instruction writes four bytes to the place.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut word, options(nostack, preserves_flags)) };
        word
    }

    pub(super) fn write(word: Word) {
        // SAFETY: the word came from the register, with bits changed that exist.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const word, options(nostack, preserves_flags)) };
    }
}

#[cfg(target_arch = "aarch64")]
use aarch64::{DEFAULT, MODE, Word, read, write};

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use std::arch::asm;

    pub(super) type Word = u64;

    /// Bits of FPCR that decide on results: flush to zero (FZ, FZ16, FIZ), rounding, default NaN.
    pub(super) const MODE: Word = 1 << 25 | 1 << 24 | 0b11 << 22 | 1 << 19 | 1;
    pub(super) const DEFAULT: Word = 0;

    pub(super) fn read() -> Word {
        let word;
        // SAFETY: reads a register.
        unsafe { asm!("mrs {}, fpcr", out(reg) word, options(nomem, nostack, preserves_flags)) };
        word
    }

    pub(super) fn write(word: Word) {
        // SAFETY: the word came from the register, with bits changed that exist.
        unsafe { asm!("msr fpcr, {}", in(reg) word, options(nomem, nostack, preserves_flags)) };
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use other::{DEFAULT, MODE, Word, read, write};

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod other {
    pub(super) type Word = u32;
    pub(super) const MODE: Word = 0;
    pub(super) const DEFAULT: Word = 0;

    pub(super) fn read() -> Word {
        0
    }

    pub(super) fn write(_: Word) {}
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn subnormal_numbers_are_kept_whatever_the_thread_does() {
        let halved = || black_box(f32::MIN_POSITIVE) / black_box(2.0);
        let flushing = read() | 0x8040;
        write(flushing);
        let flushed = halved();
        let environment = DefaultFloatEnv::enter();
        let kept = halved();
        drop(environment);
        let flushed_again = halved();
        let word = read();
        write(word & !0x8040);
        assert_eq!((flushed, flushed_again), (0.0, 0.0));
        assert!(kept > 0.0 && kept.is_subnormal());
        assert_eq!(
            word & 0x8040,
            0x8040,
            "the thread's own environment is back"
        );
    }
}
