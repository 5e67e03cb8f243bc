//! Copy kernels, computed one element after another. The contract is that of
//! `collective/nccl/kernels/copy.cu`.

use half::{bf16, f16};

use super::super::{Entry, Kernel, Number};
use super::memory::Memory;

/// A kernel launch: kernel and table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Launch {
    pub(crate) kernel: Kernel,
    pub(crate) factor: f64,
    pub(crate) divisor: u32,
    pub(crate) entries: Vec<Entry>,
}

/// Conversions for which there are kernels, except for those of a type to itself.
const CONVERSIONS: [(Number, Number); 16] = {
    use Number::{Bf16, F16, F32, F64, I8, I16, I32, I64, U8};
    [
        (F32, F16),
        (F16, F32),
        (F32, Bf16),
        (Bf16, F32),
        (F64, F16),
        (F16, F64),
        (F64, Bf16),
        (Bf16, F64),
        (I16, I32),
        (I32, I16),
        (U8, I32),
        (I32, U8),
        (I8, I32),
        (I32, I8),
        (I32, I64),
        (I64, I32),
    ]
};

impl Launch {
    /// Executes the launch.
    pub(super) fn run(&self, memory: &mut Memory) -> Result<(), String> {
        // Blocks run in any order: memory that one entry writes must not be read or written by
        // another.
        let mut written: Vec<(u64, u64)> = Vec::new();
        let mut read: Vec<(u64, u64)> = Vec::new();
        for (at, entry) in self.entries.iter().enumerate() {
            let (from_bytes, to_bytes) = self
                .one(entry, memory)
                .map_err(|fault| format!("entry {at}, {entry:x?}: {fault}"))?;
            written.push((entry.to, entry.to + to_bytes));
            if self.kernel != Kernel::Fill {
                read.push((entry.from, entry.from + from_bytes));
            }
        }
        let meet = |a: &(u64, u64), b: &(u64, u64)| a.0 < b.1 && b.0 < a.1;
        for (at, to) in written.iter().enumerate() {
            if written[at + 1..].iter().any(|other| meet(to, other)) {
                return Err(format!("entry {at} writes where another does"));
            }
            // An entry may be in place.
            if read
                .iter()
                .enumerate()
                .any(|(other, from)| meet(to, from) && !(at == other && to == from))
            {
                return Err(format!("entry {at} writes what is read"));
            }
        }
        Ok(())
    }

    /// Executes one entry; returns the bytes read and the bytes written.
    fn one(&self, entry: &Entry, memory: &mut Memory) -> Result<(u64, u64), String> {
        let Entry { from, to, elements } = *entry;
        if elements == 0 {
            return Err("nothing to do".to_owned());
        }
        match self.kernel {
            Kernel::Copy => {
                let bytes = memory.read(from, elements)?.to_vec();
                memory.write(to, &bytes)?;
                Ok((elements as u64, elements as u64))
            }
            Kernel::Fill => {
                if !to.is_multiple_of(16) || !elements.is_multiple_of(8) {
                    return Err("not aligned".to_owned());
                }
                memory.write(to, &from.to_ne_bytes().repeat(elements / 8))?;
                Ok((0, elements as u64))
            }
            Kernel::Convert {
                from: reads,
                to: writes,
            } => {
                if reads != writes && !CONVERSIONS.contains(&(reads, writes)) {
                    return Err("there is no such kernel".to_owned());
                }
                if !from.is_multiple_of(reads.bytes() as u64)
                    || !to.is_multiple_of(writes.bytes() as u64)
                {
                    return Err("not aligned".to_owned());
                }
                let bytes = memory.read(from, elements * reads.bytes())?;
                let results: Vec<u8> = bytes
                    .chunks_exact(reads.bytes())
                    .flat_map(|element| self.convert(element, reads, writes))
                    .collect();
                memory.write(to, &results)?;
                Ok(((elements * reads.bytes()) as u64, results.len() as u64))
            }
        }
    }

    fn convert(&self, element: &[u8], from: Number, to: Number) -> Vec<u8> {
        let is_scaled = self.factor != 1.0;
        if from == to && !is_scaled && self.divisor == 1 {
            return element.to_vec();
        }
        match Value::of(element, from) {
            Value::Single(x) => {
                Value::Single(if is_scaled { x * self.factor as f32 } else { x }).rounded(to)
            }
            Value::Double(x) => {
                Value::Double(if is_scaled { x * self.factor } else { x }).rounded(to)
            }
            Value::Whole(x) if is_scaled => {
                let own = if from.bytes() < to.bytes() { from } else { to };
                let x = match Value::of(&Value::Whole(x).rounded(own), own) {
                    Value::Whole(wrapped) if self.divisor == 1 => wrapped,
                    _ => x,
                };
                let scaled = saturated(x as f64 * self.factor / f64::from(self.divisor), own);
                Value::of(&scaled, own).rounded(to)
            }
            Value::Whole(x) => Value::Whole(x / i64::from(self.divisor)).rounded(to),
        }
    }
}

/// Element in the type in which kernels compute.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value {
    Whole(i64),
    Single(f32),
    Double(f64),
}

macro_rules! read {
    ($type:ty, $bytes:expr) => {
        <$type>::from_ne_bytes($bytes.try_into().expect("one element"))
    };
}

impl Value {
    pub(super) fn of(bytes: &[u8], number: Number) -> Self {
        match number {
            Number::U8 => Self::Whole(bytes[0].into()),
            Number::I8 => Self::Whole((bytes[0] as i8).into()),
            Number::I16 => Self::Whole(read!(i16, bytes).into()),
            Number::I32 => Self::Whole(read!(i32, bytes).into()),
            Number::I64 => Self::Whole(read!(i64, bytes)),
            Number::F16 => Self::Single(read!(f16, bytes).to_f32()),
            Number::Bf16 => Self::Single(read!(bf16, bytes).to_f32()),
            Number::F32 => Self::Single(read!(f32, bytes)),
            Number::F64 => Self::Double(read!(f64, bytes)),
        }
    }

    /// Converts to an element of `number`: rounded once, or its low bits.
    pub(super) fn rounded(self, number: Number) -> Vec<u8> {
        match (self, number) {
            (Self::Whole(x), _) => x.to_le_bytes()[..number.bytes()].to_vec(),
            (Self::Single(x), Number::F16) => f16::from_f32(x).to_ne_bytes().to_vec(),
            (Self::Single(x), Number::Bf16) => bf16::from_f32(x).to_ne_bytes().to_vec(),
            (Self::Single(x), Number::F64) => f64::from(x).to_ne_bytes().to_vec(),
            (Self::Single(x), _) => x.to_ne_bytes().to_vec(),
            (Self::Double(x), Number::F16) => f16::from_f64(x).to_ne_bytes().to_vec(),
            (Self::Double(x), Number::Bf16) => bf16::from_f64(x).to_ne_bytes().to_vec(),
            (Self::Double(x), _) => x.to_ne_bytes().to_vec(),
        }
    }
}

/// Truncates toward zero, saturating at the limits of the type; NaN is 0.
fn saturated(x: f64, number: Number) -> Vec<u8> {
    let whole = match number {
        Number::U8 => i64::from(x as u8),
        Number::I8 => i64::from(x as i8),
        Number::I16 => i64::from(x as i16),
        Number::I32 => i64::from(x as i32),
        _ => x as i64,
    };
    Value::Whole(whole).rounded(number)
}
