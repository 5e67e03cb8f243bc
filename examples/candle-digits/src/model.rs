//! The network: 64 pixels, two hidden layers with tanh, 10 digits; 6,570 numbers to train in 6
//! tensors.
//!
//! tanh instead of ReLU, for the comparison with one process: where different rounding changes the
//! sign of a ReLU's input, the two trainings diverge (by up to 0.04 in a weight; with tanh, 1e-6).

use candle_core::{Device, Result, Tensor, Var};
use candle_nn::{Linear, Module};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use crate::data::{CLASSES, PIXELS};

/// Width of the input, of each hidden layer and of the output.
const WIDTHS: [usize; 4] = [PIXELS, 64, 32, CLASSES];

/// A trained tensor, and its name, which is equal on all ranks.
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) var: Var,
}

/// The network. (candle's `VarMap` could hold the parameters, but has no fixed order, and does not
/// initialize weights from a seed.)
pub(crate) struct Model {
    /// A weight and a bias for each layer, in the order of the forward pass.
    parameters: Vec<Parameter>,
    layers: Vec<Linear>,
}

impl Model {
    /// A network with random weights, uniform within `±1 / sqrt(inputs)` of each layer, as in
    /// PyTorch.
    ///
    /// # Errors
    /// Those of candle; likewise below.
    pub(crate) fn random(seed: u64) -> Result<Self> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut parameters = Vec::new();
        for (layer, widths) in WIDTHS.windows(2).enumerate() {
            let (inputs, outputs) = (widths[0], widths[1]);
            let bound = 1.0 / (inputs as f32).sqrt();
            for (part, shape) in [("weight", vec![outputs, inputs]), ("bias", vec![outputs])] {
                let values = (0..shape.iter().product()).map(|_| rng.random_range(-bound..bound));
                parameters.push(Parameter {
                    name: format!("layer{layer}.{part}"),
                    var: Var::from_vec(values.collect::<Vec<f32>>(), shape, &Device::Cpu)?,
                });
            }
        }
        Ok(Self::new(parameters))
    }

    /// Another network with the same weights.
    pub(crate) fn copy(&self) -> Result<Self> {
        let copy = |parameter: &Parameter| {
            Ok(Parameter {
                name: parameter.name.clone(),
                var: Var::from_tensor(&parameter.var.copy()?.detach())?,
            })
        };
        Ok(Self::new(
            self.parameters.iter().map(copy).collect::<Result<_>>()?,
        ))
    }

    fn new(parameters: Vec<Parameter>) -> Self {
        let tensor = |parameter: &Parameter| parameter.var.as_tensor().clone(); // shares the memory
        let (pairs, _) = parameters.as_chunks();
        let layers = pairs
            .iter()
            .map(|[weight, bias]| Linear::new(tensor(weight), Some(tensor(bias))))
            .collect();
        Self { parameters, layers }
    }

    /// The trained tensors, in the order of the forward pass.
    pub(crate) fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Forward pass, `digits x PIXELS` to `digits x CLASSES`: the scores of the classes.
    pub(crate) fn forward(&self, pixels: &Tensor) -> Result<Tensor> {
        let mut values = pixels.clone();
        for (depth, layer) in self.layers.iter().enumerate() {
            if depth > 0 {
                values = values.tanh()?;
            }
            values = layer.forward(&values)?;
        }
        Ok(values)
    }

    /// All weights, concatenated.
    pub(crate) fn weights(&self) -> Result<Vec<f32>> {
        let weights = |parameter: &Parameter| parameter.var.flatten_all()?.to_vec1::<f32>();
        let weights: Vec<_> = self.parameters.iter().map(weights).collect::<Result<_>>()?;
        Ok(weights.concat())
    }

    /// Largest absolute difference of a weight from that of `other`; infinite if it is not a
    /// number.
    pub(crate) fn distance(&self, other: &Self) -> Result<f32> {
        let differences = self.weights()?.into_iter().zip(other.weights()?);
        Ok(differences.fold(0.0, |largest, (a, b)| {
            let difference = (a - b).abs();
            if difference.is_nan() {
                f32::INFINITY
            } else {
                difference.max(largest)
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_weights_and_goes_its_own_way() {
        let model = Model::random(1).expect("made");
        assert_eq!(
            model.weights().expect("read").len(),
            64 * 64 + 64 + 64 * 32 + 32 + 32 * 10 + 10
        );
        let copy = model.copy().expect("copied");
        assert_eq!(model.distance(&copy).expect("read"), 0.0);
        let bias = &copy.parameters()[1].var;
        bias.set(&(bias.as_tensor() + 0.5).expect("sum"))
            .expect("set");
        let distance = model.distance(&copy).expect("read");
        assert!((distance - 0.5).abs() < 1e-6, "{distance}");
        bias.set(&(bias.as_tensor() * f64::NAN).expect("product"))
            .expect("set");
        assert_eq!(model.distance(&copy).expect("read"), f32::INFINITY);
        assert!(
            model
                .distance(&Model::random(2).expect("made"))
                .expect("read")
                > 0.01
        );
    }
}
