//! Number formats of reductions: types of elements in tensors and in NCCL calls. NCCL has no
//! booleans and no 16-bit integers, and sums in the type that is sent, while an average of integers
//! must be summed in a wider type and truncated once.

use crate::gpu::{Combine, Combined, Kernel, Number};
use crate::tensor::{Dtype, ReduceOp};

/// Formats in which elements of one type are sent and combined.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Travel {
    /// Format in tensors.
    pub(super) own: Number,
    /// Format between ranks.
    pub(super) wire: Number,
    pub(super) combine: Combine,
    /// Divisor of sums after the collective; 1: no division.
    pub(super) divisor: u32,
}

/// Returns the kernels' element type. A boolean is a byte that is 0 or 1.
const fn own(dtype: Dtype) -> Number {
    match dtype {
        Dtype::U8 | Dtype::Bool => Number::U8,
        Dtype::I8 => Number::I8,
        Dtype::I16 => Number::I16,
        Dtype::I32 => Number::I32,
        Dtype::I64 => Number::I64,
        Dtype::F16 => Number::F16,
        Dtype::Bf16 => Number::Bf16,
        Dtype::F32 => Number::F32,
        Dtype::F64 => Number::F64,
    }
}

/// Returns the element type with these elements, for reductions in host memory.
pub(super) const fn dtype(number: Number) -> Dtype {
    match number {
        Number::U8 => Dtype::U8,
        Number::I8 => Dtype::I8,
        Number::I16 => Dtype::I16,
        Number::I32 => Dtype::I32,
        Number::I64 => Dtype::I64,
        Number::F16 => Dtype::F16,
        Number::Bf16 => Dtype::Bf16,
        Number::F32 => Dtype::F32,
        Number::F64 => Dtype::F64,
    }
}

impl Travel {
    /// Returns the formats of `dtype` under `op` among `size` ranks.
    pub(super) fn new(dtype: Dtype, op: ReduceOp, size: usize) -> Self {
        let own = own(dtype);
        let is_float = matches!(own, Number::F16 | Number::Bf16 | Number::F32 | Number::F64);
        let averages_integers = op == ReduceOp::Average && !is_float;
        let wire = match own {
            Number::I16 => Number::I32,
            Number::U8 | Number::I8 if averages_integers => Number::I32,
            Number::I32 if averages_integers => Number::I64,
            other => other,
        };
        let combine = match (op, dtype) {
            // Sum and max of booleans are OR, product and min are AND.
            (ReduceOp::Sum, Dtype::Bool) => Combine::Max,
            (ReduceOp::Product, Dtype::Bool) => Combine::Min,
            (ReduceOp::Average, _) if is_float => Combine::Average,
            (ReduceOp::Average | ReduceOp::Sum, _) => Combine::Sum,
            (ReduceOp::Min, _) => Combine::Min,
            (ReduceOp::Max, _) => Combine::Max,
            (ReduceOp::Product, _) => Combine::Product,
        };
        Self {
            own,
            wire,
            combine,
            divisor: if averages_integers { size as u32 } else { 1 },
        }
    }

    /// Returns the formats with floats sent as those of a smaller type.
    pub(super) fn compressed(self, dtype: Dtype) -> Self {
        let wire = own(dtype);
        Self { wire, ..self }
    }

    /// Whether elements are sent without conversion.
    pub(super) fn is_plain(&self) -> bool {
        self.own == self.wire && self.divisor == 1
    }

    /// Returns the kernel that copies elements to the fusion buffer, multiplied by `factor`.
    pub(super) fn inward(&self, factor: f64) -> Kernel {
        convert(self.own, self.wire, factor == 1.0)
    }

    /// Returns the kernel that copies results back.
    pub(super) fn outward(&self, factor: f64) -> Kernel {
        convert(self.wire, self.own, factor == 1.0 && self.divisor == 1)
    }

    /// Reduction of `count` elements from one address to another, in the format that is sent.
    pub(super) fn combined(&self, from: u64, to: u64, count: usize) -> Combined {
        Combined {
            from,
            to,
            count,
            number: self.wire,
            combine: self.combine,
        }
    }

    /// Eight bytes of neutral elements, which a rank without data contributes.
    pub(super) fn neutral(&self) -> u64 {
        let repeat = |element: u64| match self.wire.bytes() {
            1 => (element & 0xff) * 0x0101_0101_0101_0101,
            2 => (element & 0xffff) * 0x0001_0001_0001_0001,
            4 => (element & 0xffff_ffff) * 0x1_0000_0001,
            _ => element,
        };
        let (least, most, one) = match self.wire {
            Number::U8 => (0, u8::MAX.into(), 1),
            Number::I8 => (i8::MIN as u64, i8::MAX as u64, 1),
            Number::I16 => (i16::MIN as u64, i16::MAX as u64, 1),
            Number::I32 => (i32::MIN as u64, i32::MAX as u64, 1),
            Number::I64 => (i64::MIN as u64, i64::MAX as u64, 1),
            Number::F16 => (0xfc00, 0x7c00, 0x3c00),
            Number::Bf16 => (0xff80, 0x7f80, 0x3f80),
            Number::F32 => (
                f32::NEG_INFINITY.to_bits().into(),
                f32::INFINITY.to_bits().into(),
                1f32.to_bits().into(),
            ),
            Number::F64 => (
                f64::NEG_INFINITY.to_bits(),
                f64::INFINITY.to_bits(),
                1f64.to_bits(),
            ),
        };
        repeat(match self.combine {
            Combine::Sum | Combine::Average => 0,
            Combine::Product => one,
            Combine::Max => least,
            Combine::Min => most,
        })
    }
}

fn convert(from: Number, to: Number, is_exact: bool) -> Kernel {
    if from == to && is_exact {
        Kernel::Copy
    } else {
        Kernel::Convert { from, to }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_nothing_fills_eight_bytes() {
        let neutral = |dtype, op| Travel::new(dtype, op, 3).neutral();
        assert_eq!(neutral(Dtype::F32, ReduceOp::Sum), 0);
        assert_eq!(
            neutral(Dtype::Bf16, ReduceOp::Product),
            0x3f80_3f80_3f80_3f80
        );
        assert_eq!(neutral(Dtype::F32, ReduceOp::Min), 0x7f80_0000_7f80_0000);
        assert_eq!(neutral(Dtype::I16, ReduceOp::Max), 0x8000_0000_8000_0000);
        assert_eq!(neutral(Dtype::I8, ReduceOp::Max), 0x8080_8080_8080_8080);
        assert_eq!(neutral(Dtype::Bool, ReduceOp::Product), u64::MAX);
        assert_eq!(neutral(Dtype::Bool, ReduceOp::Sum), 0);
        assert_eq!(neutral(Dtype::I64, ReduceOp::Min), i64::MAX as u64);
    }

    #[test]
    fn averages_of_integers_travel_wide_and_floats_as_they_are() {
        let travel = |dtype, op| {
            let travel = Travel::new(dtype, op, 3);
            (travel.wire, travel.combine, travel.divisor)
        };
        assert_eq!(
            travel(Dtype::U8, ReduceOp::Average),
            (Number::I32, Combine::Sum, 3)
        );
        assert_eq!(
            travel(Dtype::I32, ReduceOp::Average),
            (Number::I64, Combine::Sum, 3)
        );
        assert_eq!(
            travel(Dtype::U8, ReduceOp::Sum),
            (Number::U8, Combine::Sum, 1)
        );
        assert_eq!(
            travel(Dtype::I16, ReduceOp::Min),
            (Number::I32, Combine::Min, 1)
        );
        assert_eq!(
            travel(Dtype::F16, ReduceOp::Average),
            (Number::F16, Combine::Average, 1)
        );
    }
}
