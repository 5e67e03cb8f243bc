//! Loop that all kernels share: reads a block from every rank, combines the blocks in registers and
//! writes the result.

#![allow(unsafe_code)] // vector instructions, and elements at addresses

#[cfg(target_arch = "x86_64")]
use super::isa::F16c;
use super::isa::{Baseline, Isa};

/// Elements in a block: one AVX-512 register of f32, and few enough that the compiler unrolls every
/// loop over them.
pub(super) const LANES: usize = 16;

/// Scale factors; `None` leaves the values unchanged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scaling {
    /// Factor of every contribution.
    pub(super) prescale: Option<f64>,
    /// Number of ranks, for an average.
    pub(super) divisor: Option<u32>,
    /// Factor of the result.
    pub(super) postscale: Option<f64>,
}

/// Range of elements to combine. The pointers meet the requirements of [`super::Reducer::combine`].
pub(super) struct Task<'a> {
    pub(super) sources: &'a [*const u8],
    pub(super) output: *mut u8,
    pub(super) shared: *mut u8,
    pub(super) elements: usize,
    pub(super) scaling: Scaling,
}

/// A compiled kernel.
pub(super) type Run = unsafe fn(&Task<'_>);

/// Arithmetic of one element type under one operation.
pub(super) trait Scheme {
    /// Element in memory.
    type Element: Copy + Default;
    /// Element during the computation.
    type Accumulator: Copy;

    /// Converts a block from memory to the accumulator's type.
    ///
    /// # Safety
    /// That of [`Isa`].
    unsafe fn widen<I: Isa>(block: &[Self::Element; LANES]) -> [Self::Accumulator; LANES];

    /// Returns `factor · x`.
    fn prescale(x: Self::Accumulator, factor: f64) -> Self::Accumulator;

    /// Combines the result so far with the next rank's contribution.
    fn combine(so_far: Self::Accumulator, next: Self::Accumulator) -> Self::Accumulator;

    /// Divides by the number of ranks and applies the postscale.
    fn finish(block: &mut [Self::Accumulator; LANES], scaling: &Scaling);

    /// Converts a block of results to the type in memory.
    ///
    /// # Safety
    /// That of [`Isa`].
    unsafe fn narrow<I: Isa>(block: &[Self::Accumulator; LANES]) -> [Self::Element; LANES];
}

/// Combines one block; `read` fetches it from a source.
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
        // SAFETY: a whole block lies inside every range (`Reducer::combine`), and every range is
        // read before any is written, so an output may also be a source.
        unsafe {
            let result = combine::<I, S>(task, |source| {
                source
                    .add(offset)
                    .cast::<[S::Element; LANES]>()
                    .read_unaligned()
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
        // SAFETY: the last `rest_bytes` of every range; the block is longer than that and on the
        // stack.
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

/// Runs the loop with the baseline instructions of the target.
///
/// # Safety
/// That of [`super::Reducer::combine`].
pub(super) unsafe fn run_baseline<S: Scheme>(task: &Task<'_>) {
    // SAFETY: guaranteed by the caller.
    unsafe { run::<Baseline, S>(task) }
}

/// Runs the loop with AVX2 instructions.
///
/// # Safety
/// That of [`super::Reducer::combine`], on a processor with AVX2 and F16C.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn run_avx2<S: Scheme>(task: &Task<'_>) {
    // SAFETY: guaranteed by the caller.
    unsafe { run::<F16c, S>(task) }
}

/// Runs the loop with AVX-512 instructions.
///
/// # Safety
/// That of [`super::Reducer::combine`], on a processor with AVX-512 F, BW, DQ and VL, AVX2 and
/// F16C.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")]
pub(super) unsafe fn run_avx512<S: Scheme>(task: &Task<'_>) {
    // SAFETY: guaranteed by the caller.
    unsafe { run::<F16c, S>(task) }
}
