//! Reference of the conversion of one element, computed in another way than by the kernels.

use std::sync::OnceLock;

use half::{bf16, f16};

/// Element types, by their names in the kernels' names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Element {
    U8,
    I8,
    I16,
    I32,
    I64,
    F16,
    Bf16,
    F32,
    F64,
}

use Element::{Bf16, F16, F32, F64, I8, I16, I32, I64, U8};

impl Element {
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "u8" => U8,
            "i8" => I8,
            "i16" => I16,
            "i32" => I32,
            "i64" => I64,
            "f16" => F16,
            "bf16" => Bf16,
            "f32" => F32,
            "f64" => F64,
            _ => panic!("{name}"),
        }
    }

    pub(crate) fn size(self) -> usize {
        match self {
            U8 | I8 => 1,
            I16 | F16 | Bf16 => 2,
            I32 | F32 => 4,
            I64 | F64 => 8,
        }
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, F16 | Bf16 | F32 | F64)
    }
}

/// Value of an element; every element type but i64 is exact in f64.
#[derive(Clone, Copy, Debug)]
enum Value {
    Whole(i64),
    Float(f64),
}

fn value_of(bytes: &[u8], element: Element) -> Value {
    macro_rules! read {
        ($type:ty) => {
            <$type>::from_le_bytes(bytes.try_into().expect("one element"))
        };
    }
    match element {
        U8 => Value::Whole(read!(u8).into()),
        I8 => Value::Whole(read!(i8).into()),
        I16 => Value::Whole(read!(i16).into()),
        I32 => Value::Whole(read!(i32).into()),
        I64 => Value::Whole(read!(i64)),
        F16 => Value::Float(read!(f16).to_f64()),
        Bf16 => Value::Float(read!(bf16).to_f64()),
        F32 => Value::Float(read!(f32).into()),
        F64 => Value::Float(read!(f64)),
    }
}

/// All finite values of a 16-bit float from 0 up, which is also the order of their bits; then the
/// value that would follow.
struct Grid {
    values: Vec<f64>,
}

impl Grid {
    fn of(element: Element) -> &'static Self {
        static F16_GRID: OnceLock<Grid> = OnceLock::new();
        static BF16_GRID: OnceLock<Grid> = OnceLock::new();
        let make = |value: fn(u16) -> f64| {
            let mut values: Vec<f64> = (0..0x7fff)
                .map(value)
                .take_while(|x| x.is_finite())
                .collect();
            values.push(2.0_f64.powi(values[values.len() - 1].log2().ceil() as i32));
            Self { values }
        };
        match element {
            F16 => F16_GRID.get_or_init(|| make(|bits| f16::from_bits(bits).to_f64())),
            _ => BF16_GRID.get_or_init(|| make(|bits| bf16::from_bits(bits).to_f64())),
        }
    }

    /// Returns the bits of the nearest value, of two equally near ones the even one. The value that
    /// would follow is infinity, also by its bits.
    fn nearest(&self, x: f64) -> u16 {
        let sign = u16::from(x.is_sign_negative()) << 15;
        let above = self.values.partition_point(|&value| value <= x.abs());
        let index = if above == self.values.len() {
            above - 1
        } else {
            let (low, high) = (self.values[above - 1], self.values[above]);
            // Both have few bits: their mean is exact.
            let middle = low + (high - low) / 2.0;
            let upper = x.abs() > middle || (x.abs() == middle && above.is_multiple_of(2));
            above - usize::from(!upper)
        };
        sign | index as u16
    }
}

fn float_bytes(x: f64, element: Element) -> Vec<u8> {
    match element {
        F32 => (x as f32).to_le_bytes().to_vec(),
        F64 => x.to_le_bytes().to_vec(),
        F16 if x.is_nan() => f16::NAN.to_le_bytes().to_vec(),
        Bf16 if x.is_nan() => bf16::NAN.to_le_bytes().to_vec(),
        _ => Grid::of(element).nearest(x).to_le_bytes().to_vec(),
    }
}

fn saturated(x: f64, element: Element) -> Vec<u8> {
    match element {
        U8 => (x as u8).to_le_bytes().to_vec(),
        I8 => (x as i8).to_le_bytes().to_vec(),
        I16 => (x as i16).to_le_bytes().to_vec(),
        I32 => (x as i32).to_le_bytes().to_vec(),
        _ => (x as i64).to_le_bytes().to_vec(),
    }
}

/// Returns the converted element.
pub(crate) fn converted(
    bytes: &[u8],
    from: Element,
    to: Element,
    factor: f64,
    divisor: u32,
) -> Vec<u8> {
    match value_of(bytes, from) {
        Value::Float(_) if from == to && factor == 1.0 => bytes.to_vec(),
        Value::Float(x) if from == F64 || to == F64 => float_bytes(x * factor, to),
        Value::Float(x) => float_bytes((x as f32 * factor as f32).into(), to),
        // In the tensor's own type, which is the narrower one; only a sum that is divided has not
        // wrapped to it before.
        Value::Whole(x) if factor != 1.0 => {
            let own = if from.size() < to.size() { from } else { to };
            let x = match value_of(&x.to_le_bytes()[..own.size()], own) {
                Value::Whole(wrapped) if divisor == 1 => wrapped,
                _ => x,
            };
            let Value::Whole(y) =
                value_of(&saturated(x as f64 * factor / f64::from(divisor), own), own)
            else {
                unreachable!("a whole number's type has whole numbers");
            };
            y.to_le_bytes()[..to.size()].to_vec()
        }
        Value::Whole(x) => {
            let quotient = i128::from(x) / i128::from(divisor);
            quotient.to_le_bytes()[..to.size()].to_vec()
        }
    }
}

/// Whether a result is correct: the same bits, or NaN for NaN.
pub(crate) fn agrees(found: &[u8], expected: &[u8], element: Element) -> bool {
    let is_nan = |bytes| matches!(value_of(bytes, element), Value::Float(x) if x.is_nan());
    found == expected || (is_nan(found) && is_nan(expected))
}
