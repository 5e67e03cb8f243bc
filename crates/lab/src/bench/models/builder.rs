//! Network builder: converts parameters, in definition order, to a workload.
//!
//! The backward pass visits layers last to first. Inside a layer PyTorch's hooks report parameters
//! in reverse definition order too, so the workload is the reversed definition order.
//!
//! The cost of a parameter is the number of floating-point operations of its layer for one sample.
//! The backward pass does about twice the forward work in every layer (gradients of the input and
//! of the weight), so forward counts give the right *proportions*, which are sufficient for ready
//! fractions.

use crate::bench::workload::{TensorSpec, Workload, ready_fractions};
use ronde::tensor::Dtype;

/// Parameter: name, shape and number of floating-point operations of its part of the layer, for one
/// sample.
struct Parameter {
    name: String,
    shape: Vec<usize>,
    flops: f64,
}

/// Size of a window or an image, height then width.
pub(super) type Extent = (usize, usize);

/// Collects parameters in definition order.
#[derive(Default)]
pub(super) struct NetworkBuilder {
    parameters: Vec<Parameter>,
}

impl NetworkBuilder {
    fn push(&mut self, name: String, shape: &[usize], flops: usize) {
        self.parameters.push(Parameter {
            name,
            shape: shape.to_vec(),
            flops: flops as f64,
        });
    }

    /// Adds the weight of a 2-D convolution: shape `(outputs, inputs, height, width)`,
    /// 2·kh·kw·inputs·outputs·H·W operations, where H × W is the *output* image.
    pub(super) fn conv(
        &mut self,
        name: &str,
        inputs: usize,
        outputs: usize,
        kernel: Extent,
        image: Extent,
    ) {
        let flops = 2 * kernel.0 * kernel.1 * inputs * outputs * image.0 * image.1;
        self.push(
            format!("{name}.weight"),
            &[outputs, inputs, kernel.0, kernel.1],
            flops,
        );
    }

    /// Adds the bias of a layer with `outputs` features at `positions` positions: one addition
    /// each.
    pub(super) fn bias(&mut self, name: &str, outputs: usize, positions: usize) {
        self.push(format!("{name}.bias"), &[outputs], outputs * positions);
    }

    /// Adds a batch or layer normalisation: weight and bias of `features`, with two operations per
    /// value for each of them.
    pub(super) fn norm(&mut self, name: &str, features: usize, positions: usize) {
        for part in ["weight", "bias"] {
            self.push(
                format!("{name}.{part}"),
                &[features],
                2 * features * positions,
            );
        }
    }

    /// Adds a fully connected layer as `torch.nn.Linear`: weight `(outputs, inputs)`, then bias.
    pub(super) fn linear(&mut self, name: &str, inputs: usize, outputs: usize, positions: usize) {
        self.push(
            format!("{name}.weight"),
            &[outputs, inputs],
            2 * inputs * outputs * positions,
        );
        self.bias(name, outputs, positions);
    }

    /// Adds a transposed fully connected layer of GPT-2 (`Conv1D` in its code): weight `(inputs,
    /// outputs)`, then bias.
    pub(super) fn linear_transposed(
        &mut self,
        name: &str,
        inputs: usize,
        outputs: usize,
        positions: usize,
    ) {
        self.push(
            format!("{name}.weight"),
            &[inputs, outputs],
            2 * inputs * outputs * positions,
        );
        self.bias(name, outputs, positions);
    }

    /// Adds an embedding table `(entries, features)`: one addition per value looked up.
    pub(super) fn embedding(
        &mut self,
        name: &str,
        entries: usize,
        features: usize,
        positions: usize,
    ) {
        self.push(
            format!("{name}.weight"),
            &[entries, features],
            features * positions,
        );
    }

    /// Adds a parameter without a layer, with a cost of one.
    pub(super) fn plain(&mut self, name: String, elements: usize) {
        self.push(name, &[elements], 1);
    }

    /// Adds work without parameters (attention scores) to the last parameter.
    pub(super) fn add_flops(&mut self, flops: usize) {
        let last = self
            .parameters
            .last_mut()
            .expect("work is added after the layer that owns it");
        last.flops += flops as f64;
    }

    /// Returns the workload: reversed definition order, every tensor `float32`.
    pub(super) fn finish(self, name: &str) -> Workload {
        let backward: Vec<Parameter> = self.parameters.into_iter().rev().collect();
        let costs: Vec<f64> = backward.iter().map(|parameter| parameter.flops).collect();
        let tensors = backward
            .into_iter()
            .zip(ready_fractions(&costs))
            .map(
                |(Parameter { name, shape, .. }, ready_fraction)| TensorSpec {
                    name,
                    dtype: Dtype::F32,
                    shape,
                    ready_fraction,
                },
            )
            .collect();
        Workload {
            name: name.to_owned(),
            tensors,
            recorded_backward_ms: None,
        }
    }
}
