//! Workload: the tensors that one step reduces, in submission order, with their ready times.

use ronde::tensor::Dtype;

/// One tensor of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorSpec {
    /// Name under which it is submitted, e.g. `layer1.0.conv1.weight`; unique within its workload.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Shape, outermost dimension first; its product is [`TensorSpec::elements`].
    pub shape: Vec<usize>,
    /// Ready time as a fraction of the backward pass: 0 at its start, 1 at its end. Does not
    /// decrease along the list.
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
    /// Name for reports: that of the model or of the profile's file.
    pub name: String,
    /// Tensors, in submission order.
    pub tensors: Vec<TensorSpec>,
    /// Duration of the recorded backward pass, ms; `None` if the source has no times.
    pub recorded_backward_ms: Option<f64>,
}

impl Workload {
    /// Returns the number of elements of all tensors.
    pub fn elements(&self) -> usize {
        self.tensors.iter().map(TensorSpec::elements).sum()
    }

    /// Returns the number of bytes that one step reduces, per rank.
    pub fn bytes(&self) -> usize {
        self.tensors.iter().map(TensorSpec::bytes).sum()
    }
}

/// Computes ready fractions from the cost of each tensor: tensor i is ready when the work of
/// tensors 0..=i is done.
///
/// If all costs are zero, they count as equal, so the fractions are always finite.
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
            // Rounding of the running sum must not move the last tensor before or after the end of
            // the pass.
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
    fn ready_fractions_follow_cost() {
        assert_eq!(ready_fractions(&[1.0, 2.0, 1.0]), [0.25, 0.75, 1.0]);
        assert_eq!(ready_fractions(&[0.0, 0.0]), [0.5, 1.0]);
        assert!(ready_fractions(&[]).is_empty());
    }
}
