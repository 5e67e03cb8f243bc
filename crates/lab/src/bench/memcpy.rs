//! Memcpy baseline: measures how fast this machine copies the payload of a step.
//!
//! An allreduce must at least read each rank's gradients and write the results, so copying the same
//! tensors on all ranks simultaneously is a lower bound of its cost. The copy is libc's `memcpy` or
//! a copy with non-temporal stores, whichever is faster: large copies are faster if the target is
//! not first read into the cache, small ones are slower. Source and target differ, all pages are
//! warm, and each byte counts once (a copied gigabyte counts as one, although it is read and
//! written). Tensors on a GPU are copied there by the driver, and timed by the clock of the device.

#![allow(unsafe_code)] // vector instructions

use std::time::{Duration, Instant};

/// Method of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyMethod {
    /// libc's `memcpy`.
    Libc,
    /// Stores that bypass the cache, for tensors of [`STREAM_BYTES_MIN`] or more; `memcpy` for
    /// smaller ones.
    NonTemporal,
    /// The driver's copy on a GPU, one call per tensor.
    Device,
}

impl CopyMethod {
    /// Returns the methods that this machine has for host memory.
    pub fn available() -> &'static [Self] {
        if stream::is_available() {
            &[Self::Libc, Self::NonTemporal]
        } else {
            &[Self::Libc]
        }
    }
}

/// Smallest tensor that is copied past the cache, in bytes: the target of a smaller copy fits in
/// the first-level caches and is soon read again, so bypassing them is slower.
pub const STREAM_BYTES_MIN: usize = 64 << 10;

/// Copies `source` to `target` by `method`.
///
/// # Panics
/// If the lengths differ.
pub fn copy<T: Copy>(source: &[T], target: &mut [T], method: CopyMethod) {
    assert_eq!(
        source.len(),
        target.len(),
        "source and target of a copy have the same length"
    );
    if method == CopyMethod::NonTemporal && size_of_val(source) >= STREAM_BYTES_MIN {
        stream::copy(source, target);
    } else {
        target.copy_from_slice(source);
    }
}

/// Round times of the baseline on one rank, per method.
#[derive(Clone, Debug, Default)]
pub struct MemcpyTimes {
    libc: Vec<Duration>,
    non_temporal: Vec<Duration>,
    device: Vec<Duration>,
}

impl MemcpyTimes {
    /// Runs one round by `method`: calls `copy_all`, which copies every tensor once, and records
    /// the time.
    ///
    /// Call it on all ranks simultaneously, directly after a barrier.
    pub fn round(&mut self, method: CopyMethod, copy_all: impl FnOnce(CopyMethod)) {
        let start = Instant::now();
        copy_all(method);
        self.keep(method, start.elapsed());
    }

    /// Records the time of a round by `method`.
    pub fn keep(&mut self, method: CopyMethod, elapsed: Duration) {
        match method {
            CopyMethod::Libc => self.libc.push(elapsed),
            CopyMethod::NonTemporal => self.non_temporal.push(elapsed),
            CopyMethod::Device => self.device.push(elapsed),
        }
    }

    /// Returns the times of the rounds of `method`, in order; empty if there are none.
    pub fn rounds(&self, method: CopyMethod) -> &[Duration] {
        match method {
            CopyMethod::Libc => &self.libc,
            CopyMethod::NonTemporal => &self.non_temporal,
            CopyMethod::Device => &self.device,
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod stream {
    //! Copies with non-temporal stores, by AVX2 where the CPU has it and by SSE2, which every
    //! x86-64 has.

    use std::arch::x86_64::{
        __m128i, __m256i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128, _mm256_loadu_si256,
        _mm256_stream_si256,
    };
    use std::ptr;

    pub(super) const fn is_available() -> bool {
        true
    }

    /// Copies `source` to `target`; the caller has checked that the lengths are equal.
    pub(super) fn copy<T: Copy>(source: &[T], target: &mut [T]) {
        debug_assert_eq!(source.len(), target.len());
        let bytes = size_of_val(source);
        let (from, to) = (
            source.as_ptr().cast::<u8>(),
            target.as_mut_ptr().cast::<u8>(),
        );
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has AVX2. `from` and `to` are the starts of a shared and a unique
            // slice, so `bytes` bytes can be read and written and the regions do not overlap; the
            // bytes of a `T: Copy` may be duplicated.
            unsafe { copy_avx2(from, to, bytes) }
        } else {
            // SAFETY: as above; SSE2 is part of x86-64.
            unsafe { copy_sse2(from, to, bytes) }
        }
    }

    macro_rules! streaming_copy {
        ($name:ident, $feature:literal, $vector:ty, $load:ident, $store:ident) => {
            /// Copies `bytes` bytes; `memcpy` copies the head, up to the first aligned target
            /// address, and the tail.
            ///
            /// # Safety
            /// The CPU has the feature, `from` is readable and `to` writable for `bytes` bytes, and
            /// they do not overlap.
            #[target_feature(enable = $feature)]
            unsafe fn $name(from: *const u8, to: *mut u8, bytes: usize) {
                const WIDTH: usize = size_of::<$vector>();
                const UNROLL: usize = 4;
                let head = to.align_offset(WIDTH).min(bytes);
                let body_end = head + (bytes - head) / (WIDTH * UNROLL) * (WIDTH * UNROLL);
                // SAFETY: `head`, each `offset + WIDTH * UNROLL` and `body_end` are at most
                // `bytes`, the length of both regions; targets of the stores are aligned, since
                // `head` aligns the first and steps keep it.
                unsafe {
                    ptr::copy_nonoverlapping(from, to, head);
                    let mut offset = head;
                    while offset < body_end {
                        let source = from.add(offset).cast::<$vector>();
                        let target = to.add(offset).cast::<$vector>();
                        let loaded: [$vector; UNROLL] = [
                            $load(source),
                            $load(source.add(1)),
                            $load(source.add(2)),
                            $load(source.add(3)),
                        ];
                        for (index, vector) in loaded.into_iter().enumerate() {
                            $store(target.add(index), vector);
                        }
                        offset += WIDTH * UNROLL;
                    }
                    ptr::copy_nonoverlapping(
                        from.add(body_end),
                        to.add(body_end),
                        bytes - body_end,
                    );
                }
                // Streaming stores are weakly ordered: without the fence the copy might not be
                // complete on return.
                _mm_sfence();
            }
        };
    }

    streaming_copy!(
        copy_avx2,
        "avx2",
        __m256i,
        _mm256_loadu_si256,
        _mm256_stream_si256
    );
    streaming_copy!(
        copy_sse2,
        "sse2",
        __m128i,
        _mm_loadu_si128,
        _mm_stream_si128
    );

    #[cfg(test)]
    pub(super) fn copy_by_sse2(source: &[u8], target: &mut [u8]) {
        assert_eq!(source.len(), target.len());
        // SAFETY: two distinct slices of the same length, and SSE2 is part of x86-64.
        unsafe { copy_sse2(source.as_ptr(), target.as_mut_ptr(), source.len()) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod stream {
    //! Other architectures have only libc's `memcpy`.

    pub(super) const fn is_available() -> bool {
        false
    }

    pub(super) fn copy<T: Copy>(source: &[T], target: &mut [T]) {
        target.copy_from_slice(source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every alignment of source and target, with lengths around the vector and unroll widths.
    #[test]
    fn every_method_copies_exactly_the_bytes_asked_for() {
        let source: Vec<u8> = (0..STREAM_BYTES_MIN + 400)
            .map(|index| (index % 251) as u8)
            .collect();
        for length in [
            STREAM_BYTES_MIN,
            STREAM_BYTES_MIN + 1,
            STREAM_BYTES_MIN + 127,
            STREAM_BYTES_MIN + 300,
        ] {
            for (from, to) in [(0, 0), (1, 0), (0, 1), (3, 31), (17, 5)] {
                for method in [CopyMethod::Libc, CopyMethod::NonTemporal] {
                    let mut target = vec![255; length + 100];
                    copy(
                        &source[from..from + length],
                        &mut target[to..to + length],
                        method,
                    );
                    assert_eq!(
                        target[to..to + length],
                        source[from..from + length],
                        "{method:?}"
                    );
                    let outside = target[..to].iter().chain(&target[to + length..]);
                    assert!(
                        outside.into_iter().all(|&byte| byte == 255),
                        "{method:?} wrote outside"
                    );
                }
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn sse2_copies_the_same() {
        let source: Vec<u8> = (0..1000).map(|index| (index % 251) as u8).collect();
        for length in [0, 1, 15, 16, 63, 64, 65, 128, 900] {
            for offset in [0, 1, 9] {
                let mut target = vec![255; 1000];
                stream::copy_by_sse2(&source[3..3 + length], &mut target[offset..offset + length]);
                assert_eq!(target[offset..offset + length], source[3..3 + length]);
                assert!(target[offset + length..].iter().all(|&byte| byte == 255));
            }
        }
    }

    #[test]
    fn rounds_are_kept_per_method() {
        let mut times = MemcpyTimes::default();
        let mut calls = Vec::new();
        for &method in CopyMethod::available() {
            times.round(method, |method| calls.push(method));
            assert_eq!(times.rounds(method).len(), 1);
        }
        assert_eq!(calls, CopyMethod::available());
    }
}
