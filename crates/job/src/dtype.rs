//! Element types and reduction operations.

/// Element type of a tensor. The discriminants are sent between ranks and follow Horovod's numbers
/// (`DataType` in `horovod/common/message.h`); bf16, which Horovod lacks, has the next number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Dtype {
    /// 8-bit unsigned integer.
    U8 = 0,
    /// 8-bit signed integer.
    I8 = 1,
    /// 16-bit signed integer.
    I16 = 3,
    /// 32-bit signed integer.
    I32 = 4,
    /// 64-bit signed integer.
    I64 = 5,
    /// IEEE 754 half precision.
    F16 = 6,
    /// IEEE 754 single precision.
    F32 = 7,
    /// IEEE 754 double precision.
    F64 = 8,
    /// Boolean, one byte: 0 is false, any other value is true; results are 0 or 1. Reductions are
    /// logical: sum and max are OR, product and min are AND; average is an error, and scale factors
    /// must be 1.
    Bool = 9,
    /// bfloat16: the upper half of a single-precision number.
    Bf16 = 10,
}

impl Dtype {
    /// Whether `wire`, the type in which elements are sent, has fewer bits and can replace this
    /// type.
    pub const fn narrows_to(self, wire: Self) -> bool {
        matches!(self, Self::F32 | Self::F64) && matches!(wire, Self::F16 | Self::Bf16)
    }

    /// Every element type, for tables and tests.
    pub const ALL: [Self; 10] = [
        Self::U8,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F16,
        Self::F32,
        Self::F64,
        Self::Bool,
        Self::Bf16,
    ];

    /// Size of one element in bytes.
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::I16 | Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::F32 => 4,
            Self::I64 | Self::F64 => 8,
        }
    }

    /// Name in timelines, profiles and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "uint8",
            Self::I8 => "int8",
            Self::I16 => "int16",
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::F16 => "float16",
            Self::F32 => "float32",
            Self::F64 => "float64",
            Self::Bool => "bool",
            Self::Bf16 => "bfloat16",
        }
    }

    /// Element type with the given wire number.
    pub fn from_wire(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| *dtype as u8 == number)
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Reduction of the ranks' elements. Discriminants are Horovod's public constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReduceOp {
    /// Sum divided by the number of ranks; integers drop the fraction.
    Average = 0,
    /// Sum; integers wrap.
    Sum = 1,
    /// Smallest element; NaN if any rank has NaN.
    Min = 3,
    /// Largest element; NaN if any rank has NaN.
    Max = 4,
    /// Product; integers wrap.
    Product = 5,
}

impl ReduceOp {
    /// Every operation, for tables and tests.
    pub const ALL: [Self; 5] = [
        Self::Average,
        Self::Sum,
        Self::Min,
        Self::Max,
        Self::Product,
    ];

    /// Lower-case name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Average => "average",
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
            Self::Product => "product",
        }
    }

    /// Operation with the given wire number.
    pub fn from_wire(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|op| *op as u8 == number)
    }
}

impl std::fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
