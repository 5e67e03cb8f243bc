//! A workload: the tensors that one step reduces, in submission order, and when each becomes ready.

use std::fmt;
use std::str::FromStr;

/// Element type of a tensor in a workload, by the name that profiles and timelines use (`float32`, …).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DtypeName {
    /// IEEE 754 binary16.
    Float16,
    /// bfloat16: the upper half of a `float32`.
    Bfloat16,
    /// IEEE 754 binary32.
    Float32,
    /// IEEE 754 binary64.
    Float64,
    /// Two's-complement 32-bit integer.
    Int32,
    /// Two's-complement 64-bit integer.
    Int64,
}

impl DtypeName {
    /// Every element type a workload may hold.
    pub const ALL: [Self; 6] = [
        Self::Float16,
        Self::Bfloat16,
        Self::Float32,
        Self::Float64,
        Self::Int32,
        Self::Int64,
    ];

    /// Bytes of one element.
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::Float16 | Self::Bfloat16 => 2,
            Self::Float32 | Self::Int32 => 4,
            Self::Float64 | Self::Int64 => 8,
        }
    }

    /// The name as written in profiles and timelines.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
        }
    }
}

impl fmt::Display for DtypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for DtypeName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL
            .into_iter()
            .find(|dtype| dtype.as_str() == text)
            .ok_or(())
    }
}

/// One tensor of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorSpec {
    /// Name under which it is submitted, e.g. `layer1.0.conv1.weight`; unique within its workload.
    pub name: String,
    /// Element type.
    pub dtype: DtypeName,
    /// Shape, outermost dimension first; its product is [`TensorSpec::elements`].
    pub shape: Vec<usize>,
    /// When it is ready, as a fraction of the backward pass: 0 at its start, 1 at its end. Never decreases along the list.
    pub ready_fraction: f64,
}

impl TensorSpec {
    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Size of the tensor in bytes.
    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.size_bytes()
    }
}

/// The tensors of one step, in submission order.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Name for reports: the model's, or the profile's file name.
    pub name: String,
    /// The tensors, first submitted first.
    pub tensors: Vec<TensorSpec>,
    /// Length of the backward pass that the source recorded, in ms; `None` where it recorded no times.
    pub recorded_backward_ms: Option<f64>,
}

impl Workload {
    /// Number of elements in all tensors together.
    pub fn elements(&self) -> usize {
        self.tensors.iter().map(TensorSpec::elements).sum()
    }

    /// Bytes that one step reduces, per rank.
    pub fn bytes(&self) -> usize {
        self.tensors.iter().map(TensorSpec::bytes).sum()
    }
}

/// Ready fractions from each tensor's cost: tensor i is ready when the work of 0..=i is done.
///
/// Costs of zero everywhere count as equal ones, so the fractions are always finite.
pub(super) fn ready_fractions(costs: &[f64]) -> Vec<f64> {
    let total: f64 = costs.iter().sum();
    let count = costs.len();
    let mut done = 0.0;
    costs
        .iter()
        .enumerate()
        .map(|(index, cost)| {
            done += cost;
            let fraction = if total > 0.0 {
                done / total
            } else {
                (index + 1) as f64 / count as f64
            };
            // Rounding of the running sum must not put the last tensor before or after the end of the pass.
            if index + 1 == count {
                1.0
            } else {
                fraction.min(1.0)
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dtype_names_parse_back() {
        for dtype in DtypeName::ALL {
            assert_eq!(dtype.as_str().parse(), Ok(dtype));
        }
        assert_eq!("f32".parse::<DtypeName>(), Err(()));
    }

    #[test]
    fn ready_fractions_follow_cost() {
        assert_eq!(ready_fractions(&[1.0, 2.0, 1.0]), [0.25, 0.75, 1.0]);
        assert_eq!(ready_fractions(&[0.0, 0.0]), [0.5, 1.0]);
        assert!(ready_fractions(&[]).is_empty());
    }
}
