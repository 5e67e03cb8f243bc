//! A workload: the tensors that one step reduces, in submission order, and when each becomes ready.

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
    fn ready_fractions_follow_cost() {
        assert_eq!(ready_fractions(&[1.0, 2.0, 1.0]), [0.25, 0.75, 1.0]);
        assert_eq!(ready_fractions(&[0.0, 0.0]), [0.5, 1.0]);
        assert!(ready_fractions(&[]).is_empty());
    }
}
