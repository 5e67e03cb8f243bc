//! The one loop of all kernels: block by block, read every rank's elements, combine them in registers, write.

#![allow(unsafe_code)] // vector instructions, and elements at addresses

#[cfg(target_arch = "x86_64")]
use super::isa::F16c;
use super::isa::{Baseline, Isa};

/// Elements in a block: one AVX-512 register of f32, and few enough that the compiler unrolls every loop over them.
pub(super) const LANES: usize = 16;

/// Factors, `None` where they change nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scaling {
    /// On every contribution.
    pub(super) prescale: Option<f64>,
    /// Number of ranks, for an average.
    pub(super) divisor: Option<u32>,
    /// On the result.
    pub(super) postscale: Option<f64>,
}

/// One stretch of elements to combine. The pointers are as [`super::Reducer::combine`] demands them.
pub(super) struct Task<'a> {
    pub(super) sources: &'a [*const u8],
    pub(super) output: *mut u8,
    pub(super) shared: *mut u8,
    pub(super) elements: usize,
    pub(super) scaling: Scaling,
}

/// A compiled kernel.
pub(super) type Run = unsafe fn(&Task<'_>);

/// How one (element type, operation) computes.
pub(super) trait Scheme {
    /// As in memory.
    type Element: Copy + Default;
    /// As computed.
    type Accumulator: Copy;

    /// A block from memory, as the accumulator's type.
    ///
    /// # Safety
    /// That of [`Isa`].
    unsafe fn widen<I: Isa>(block: &[Self::Element; LANES]) -> [Self::Accumulator; LANES];

    /// `factor · x`.
    fn prescale(x: Self::Accumulator, factor: f64) -> Self::Accumulator;

    /// Combines the result so far with the next rank's contribution.
    fn combine(so_far: Self::Accumulator, next: Self::Accumulator) -> Self::Accumulator;

    /// Divides by the number of ranks and applies the postscale.
    fn finish(block: &mut [Self::Accumulator; LANES], scaling: &Scaling);

    /// A block as it goes to memory.
    ///
    /// # Safety
    /// That of [`Isa`].
    unsafe fn narrow<I: Isa>(block: &[Self::Accumulator; LANES]) -> [Self::Element; LANES];
}

/// One block: `read` fetches it from a source.
#[inline(always)]
unsafe fn combine<I: Isa, S: Scheme>(
    task: &Task<'_>,
    read: impl Fn(*const u8) -> [S::Element; LANES],
) -> [S::Element; LANES] {
    let fetch = |source: *const u8| {
        // SAFETY: the caller has the target features of `I`.
        let mut block = unsafe { S::widen::<I>(&read(source)) };
        if let Some(factor) = task.scaling.prescale {
            for x in &mut block {
                *x = S::prescale(*x, factor);
            }
        }
        block
    };
    let mut result = fetch(task.sources[0]);
    for source in &task.sources[1..] {
        let next = fetch(*source);
        for (so_far, next) in result.iter_mut().zip(next) {
            *so_far = S::combine(*so_far, next);
        }
    }
    if task.scaling.divisor.is_some() || task.scaling.postscale.is_some() {
        S::finish(&mut result, &task.scaling);
    }
    // SAFETY: as above.
    unsafe { S::narrow::<I>(&result) }
}

#[inline(always)]
unsafe fn run<I: Isa, S: Scheme>(task: &Task<'_>) {
    let element_bytes = size_of::<S::Element>();
    let mut at = 0;
    while at + LANES <= task.elements {
        let offset = at * element_bytes;
        // SAFETY: a whole block lies inside of every range (`Reducer::combine`), and every read of it comes before
        // the writes, so that an output may be a source.
        unsafe {
            let result = combine::<I, S>(task, |source| {
                source.add(offset).cast::<[S::Element; LANES]>().read_unaligned()
            });
            task.output
                .add(offset)
                .cast::<[S::Element; LANES]>()
                .write_unaligned(result);
            if !task.shared.is_null() {
                task.shared
                    .add(offset)
                    .cast::<[S::Element; LANES]>()
                    .write_unaligned(result);
            }
        }
        at += LANES;
    }
    let (offset, rest_bytes) = (at * element_bytes, (task.elements - at) * element_bytes);
    if rest_bytes > 0 {
        // SAFETY: the last `rest_bytes` of every range; the block is longer than that and on the stack.
        unsafe {
            let result = combine::<I, S>(task, |source| {
                let mut block = [S::Element::default(); LANES];
                std::ptr::copy_nonoverlapping(
                    source.add(offset),
                    block.as_mut_ptr().cast::<u8>(),
                    rest_bytes,
                );
                block
            });
            let result = result.as_ptr().cast::<u8>();
            std::ptr::copy_nonoverlapping(result, task.output.add(offset), rest_bytes);
            if !task.shared.is_null() {
                std::ptr::copy_nonoverlapping(result, task.shared.add(offset), rest_bytes);
            }
        }
    }
}

/// The loop with the target's own instructions.
///
/// # Safety
/// That of [`super::Reducer::combine`].
pub(super) unsafe fn run_baseline<S: Scheme>(task: &Task<'_>) {
    // SAFETY: the caller's promise.
    unsafe { run::<Baseline, S>(task) }
}

/// The loop for AVX2.
///
/// # Safety
/// That of [`super::Reducer::combine`], on a processor with AVX2 and F16C.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn run_avx2<S: Scheme>(task: &Task<'_>) {
    // SAFETY: the caller's promise.
    unsafe { run::<F16c, S>(task) }
}

/// The loop for AVX-512.
///
/// # Safety
/// That of [`super::Reducer::combine`], on a processor with AVX-512 F, BW, DQ and VL, AVX2 and F16C.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")]
pub(super) unsafe fn run_avx512<S: Scheme>(task: &Task<'_>) {
    // SAFETY: the caller's promise.
    unsafe { run::<F16c, S>(task) }
}
