//! Reduction kernels: combine the ranks' elements, for every element type and operation, with the
//! widest SIMD instructions of the processor.
//!
//! # Numerics
//!
//! One rule per element, whatever the block, tail or instruction set it falls into: contributions
//! are combined in rank order, `((x₀ ∘ x₁) ∘ x₂) ∘ …`, so the bits of a result depend on nothing
//! but the contributions.
//!
//! - **f32, f64** compute in their own type, without fused multiply-add. Average divides the sum by
//!   the number of ranks (a true division; then the postscale, if it is not 1, is one more
//!   multiplication).
//! - **f16, bf16** do all of it in f32 and round once at the end, to nearest even.
//! - **u8, i8, i16, i32, i64**: sum and product wrap. Average sums exactly (in 32, 64 and 128
//!   bits), cannot overflow, and drops the fraction, as Horovod does (-5 / 2 is -2). A scale factor
//!   that is not 1 multiplies in f64, drops the fraction and saturates; average with a postscale
//!   drops it once.
//! - **bool**: any byte but 0 is true; sum and max are OR, product and min are AND; results are 0
//!   or 1, also those of a single rank. Averages and scale factors are undefined for bool and are
//!   refused earlier.
//! - **Min, max** of floats: NaN if any rank has NaN, the first one in rank order; of equal zeros
//!   the first.
//! - A scale factor of exactly 1 leaves every bit as it is.
//! - Subnormal numbers are kept and sums are rounded to nearest even, whatever the floating-point
//!   environment of the calling thread (`float_env`).
//! - An absent rank contributes nothing; an average still divides by the number of all ranks.
//!
//! Where several contributions are NaN, it is unspecified which of them a sum or product returns.
//!
//! # Implementation
//!
//! [`Reducer::new`] picks one function for (element type, operation, instruction set). All of them
//! are one loop (`block::run`) over blocks of [`block::LANES`] elements as arrays, which the
//! compiler turns into vector registers; the rest at the end is padded to a block. A block is read
//! from every rank, combined in registers, and written at most twice; so outputs may be the same
//! memory as a source.

mod block;
mod copy;
mod float;
mod float_env;
mod integer;
mod isa;
mod op;
mod truth;

use crate::collective::Reduction;
use crate::tensor::{Dtype, ReduceOp};

use block::{Run, Scaling, Scheme, Task};
pub(crate) use copy::Copier;
pub(crate) use float_env::DefaultFloatEnv;
pub(crate) use isa::Level;
use op::{Max, Min, Product, Sum};
use truth::{All, Any};

/// Combines the elements of all ranks under one [`Reduction`].
#[derive(Clone, Copy)]
pub(crate) struct Reducer {
    run: Run,
    scaling: Scaling,
    element_bytes: usize,
}

impl Reducer {
    /// Returns the kernel for `reduction` over `size` ranks, including absent ones, with
    /// instructions of `level`.
    pub(crate) fn new(level: Level, reduction: &Reduction, size: usize) -> Self {
        let op = reduction.op;
        let run = match reduction.dtype {
            Dtype::F32 => plain::<f32>(level, op),
            Dtype::F64 => plain::<f64>(level, op),
            Dtype::F16 => halved::<half::f16>(level, op),
            Dtype::Bf16 => halved::<half::bf16>(level, op),
            Dtype::U8 => whole::<u8>(level, op),
            Dtype::I8 => whole::<i8>(level, op),
            Dtype::I16 => whole::<i16>(level, op),
            Dtype::I32 => whole::<i32>(level, op),
            Dtype::I64 => whole::<i64>(level, op),
            Dtype::Bool => truth(level, op),
        };
        let other_than_one = |factor: f64| (factor != 1.0).then_some(factor);
        Self {
            run,
            scaling: Scaling {
                prescale: other_than_one(reduction.prescale),
                divisor: (op == ReduceOp::Average && size > 1).then_some(size as u32),
                postscale: other_than_one(reduction.postscale),
            },
            element_bytes: reduction.dtype.size_bytes(),
        }
    }

    /// Combines `bytes` bytes from every source, in their order (one per rank that is not absent),
    /// into `output`, and into `shared` too if that is not null.
    ///
    /// # Safety
    /// Every source must be readable and every output writable for `bytes` bytes, a multiple of the
    /// element size; an output may be the same range as a source or as the other output, and
    /// otherwise overlaps nothing. `sources` is not empty. Alignment does not matter.
    #[allow(unsafe_code)] // elements at addresses
    pub(crate) unsafe fn combine(
        &self,
        sources: &[*const u8],
        output: *mut u8,
        shared: *mut u8,
        bytes: usize,
    ) {
        debug_assert!(bytes.is_multiple_of(self.element_bytes) && !sources.is_empty());
        let task = Task {
            sources,
            output,
            shared,
            elements: bytes / self.element_bytes,
            scaling: self.scaling,
        };
        let _environment = DefaultFloatEnv::enter();
        // SAFETY: `run` was chosen for a level that this processor has; the ranges are the caller's
        // promise.
        unsafe { (self.run)(&task) }
    }
}

fn plain<E: float::Real>(level: Level, op: ReduceOp) -> Run
where
    Sum: op::Op<E>,
    Product: op::Op<E>,
    Min: op::Op<E>,
    Max: op::Op<E>,
{
    match op {
        ReduceOp::Average | ReduceOp::Sum => compiled::<float::Plain<E, Sum>>(level),
        ReduceOp::Product => compiled::<float::Plain<E, Product>>(level),
        ReduceOp::Min => compiled::<float::Plain<E, Min>>(level),
        ReduceOp::Max => compiled::<float::Plain<E, Max>>(level),
    }
}

fn halved<E: float::Half>(level: Level, op: ReduceOp) -> Run {
    match op {
        ReduceOp::Average | ReduceOp::Sum => compiled::<float::Halved<E, Sum>>(level),
        ReduceOp::Product => compiled::<float::Halved<E, Product>>(level),
        ReduceOp::Min => compiled::<float::Halved<E, Min>>(level),
        ReduceOp::Max => compiled::<float::Halved<E, Max>>(level),
    }
}

fn whole<E: integer::Integer>(level: Level, op: ReduceOp) -> Run
where
    Sum: op::Op<E>,
    Product: op::Op<E>,
    Min: op::Op<E>,
    Max: op::Op<E>,
{
    match op {
        ReduceOp::Average => compiled::<integer::Averaged<E>>(level),
        ReduceOp::Sum => compiled::<integer::Whole<E, Sum>>(level),
        ReduceOp::Product => compiled::<integer::Whole<E, Product>>(level),
        ReduceOp::Min => compiled::<integer::Whole<E, Min>>(level),
        ReduceOp::Max => compiled::<integer::Whole<E, Max>>(level),
    }
}

fn truth(level: Level, op: ReduceOp) -> Run {
    match op {
        ReduceOp::Average | ReduceOp::Sum | ReduceOp::Max => compiled::<Any>(level),
        ReduceOp::Product | ReduceOp::Min => compiled::<All>(level),
    }
}

/// Returns the loop for one scheme, compiled for `level`.
fn compiled<S: Scheme>(level: Level) -> Run {
    match level {
        Level::Baseline => block::run_baseline::<S>,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => block::run_avx2::<S>,
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => block::run_avx512::<S>,
    }
}

#[cfg(test)]
pub(crate) mod reference;
#[cfg(test)]
mod tests;
