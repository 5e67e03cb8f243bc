//! Models: gradients in the order of the backward pass, with the times at which they are ready.

use std::path::Path;

/// Least time of each layer, whatever its size, µs.
const LAYER_LEAST_US: f64 = 8.0;

/// Gradients of one step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Model {
    /// Bytes of each, in the order in which they become ready.
    pub(crate) bytes: Vec<u64>,
    /// Ready time of each, µs after the start of the backward pass.
    pub(crate) ready_us: Vec<f64>,
    /// Time of the forward pass, µs.
    pub(crate) forward_us: f64,
}

/// A layer's parameters, and its work in the backward pass, in any unit.
type Layer = (u64, f64);

impl Model {
    /// Makes a model of layers in forward order; the backward pass's time is divided in proportion
    /// to the work.
    fn new(layers: &[Layer], forward_ms: f64, backward_ms: f64) -> Self {
        let work: f64 = layers.iter().map(|(_, work)| work).sum();
        let shared_us = backward_ms * 1e3 - LAYER_LEAST_US * layers.len() as f64;
        let mut now = 0.0;
        let ready_us = layers.iter().rev().map(|(_, share)| {
            now += LAYER_LEAST_US + shared_us * share / work;
            now
        });
        Self {
            ready_us: ready_us.collect(),
            bytes: layers
                .iter()
                .rev()
                .map(|(elements, _)| 4 * elements)
                .collect(),
            forward_us: forward_ms * 1e3,
        }
    }

    /// Returns the model on a machine that computes `speedup` times as fast.
    pub(crate) fn faster(mut self, speedup: f64) -> Self {
        self.ready_us.iter_mut().for_each(|ready| *ready /= speedup);
        self.forward_us /= speedup;
        self
    }

    /// Time of forward and backward pass, µs.
    pub(crate) fn compute_us(&self) -> f64 {
        self.forward_us + self.ready_us.last().copied().unwrap_or(0.0)
    }

    /// He et al. 2016, at 224 x 224: 161 tensors, 25.6 M parameters.
    pub(crate) fn resnet50() -> Self {
        let mut layers = Vec::new();
        let mut convolution = |inputs: u64, outputs: u64, kernel: u64, side: u64| {
            let elements = inputs * outputs * kernel * kernel;
            layers.push((elements, (elements * side * side) as f64));
            layers.extend([(outputs, 0.0); 2]); // batch normalisation
        };
        convolution(3, 64, 7, 112);
        let mut inputs = 64;
        for (width, blocks, side) in [(64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7)] {
            for block in 0..blocks {
                convolution(inputs, width, 1, side);
                convolution(width, width, 3, side);
                convolution(width, 4 * width, 1, side);
                if block == 0 {
                    convolution(inputs, 4 * width, 1, side);
                }
                inputs = 4 * width;
            }
        }
        layers.extend([(2_048_000, 2_048_000.0), (1000, 0.0)]);
        Self::new(&layers, 60.0, 120.0)
    }

    /// Simonyan and Zisserman 2015: 32 tensors, 138 M parameters, most of them in one layer.
    pub(crate) fn vgg16() -> Self {
        let mut layers = Vec::new();
        let mut inputs = 3;
        let stages = [
            (64, 224, 2),
            (128, 112, 2),
            (256, 56, 3),
            (512, 28, 3),
            (512, 14, 3),
        ];
        for (outputs, side, count) in stages {
            for _ in 0..count {
                let elements = inputs * outputs * 9;
                layers.extend([(elements, (elements * side * side) as f64), (outputs, 0.0)]);
                inputs = outputs;
            }
        }
        for (inputs, outputs) in [(25_088, 4096), (4096, 4096), (4096, 1000)] {
            let elements = inputs * outputs;
            layers.extend([(elements, elements as f64), (outputs, 0.0)]);
        }
        Self::new(&layers, 65.0, 130.0)
    }

    /// Devlin et al. 2019, base: 199 tensors, 110 M parameters, the largest of them last.
    pub(crate) fn bert() -> Self {
        const WIDTH: u64 = 768;
        const TOKENS: f64 = 128.0;
        let mut layers = vec![
            (30_522 * WIDTH, 2e6),
            (512 * WIDTH, 1e5),
            (2 * WIDTH, 0.0),
            (WIDTH, 0.0),
            (WIDTH, 0.0),
        ];
        let matrix = |elements: u64| (elements, elements as f64 * TOKENS);
        for _ in 0..12 {
            for _ in 0..4 {
                layers.extend([matrix(WIDTH * WIDTH), (WIDTH, 0.0)]);
            }
            layers.extend([(WIDTH, 0.0); 2]);
            layers.extend([matrix(WIDTH * 4 * WIDTH), (4 * WIDTH, 0.0)]);
            layers.extend([matrix(WIDTH * 4 * WIDTH), (WIDTH, 0.0)]);
            layers.extend([(WIDTH, 0.0); 2]);
        }
        layers.extend([(WIDTH * WIDTH, (WIDTH * WIDTH) as f64), (WIDTH, 0.0)]);
        Self::new(&layers, 40.0, 85.0)
    }

    /// A thousand tensors of 4 KiB.
    pub(crate) fn small() -> Self {
        Self::new(&[(1024, 1.0); 1000], 10.0, 25.0)
    }

    /// Gradient list of a real model: a line for each tensor's elements, in the order of the
    /// backward pass. Lists do not contain the work: each tensor's is taken to be in proportion to
    /// the root of its elements.
    pub(crate) fn read(path: &Path, forward_ms: f64, backward_ms: f64) -> std::io::Result<Self> {
        let text = std::fs::read_to_string(path)?;
        let mut layers = Vec::new();
        for (index, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
        {
            let elements: u64 = line.trim().parse().map_err(|error| {
                let place = format!("{}:{}", path.display(), index + 1);
                std::io::Error::other(format!(
                    "{place}: not a number of elements: {line:?} ({error})"
                ))
            })?;
            layers.push((elements, (elements as f64).sqrt()));
        }
        layers.reverse();
        Ok(Self::new(&layers, forward_ms, backward_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_have_the_parameters_of_their_papers() {
        let of = |model: Model| (model.bytes.len(), model.bytes.iter().sum::<u64>() / 4);
        assert_eq!(of(Model::resnet50()), (161, 25_557_032));
        assert_eq!(of(Model::vgg16()), (32, 138_357_544));
        assert_eq!(of(Model::small()), (1000, 1_024_000));
        assert_eq!(of(Model::bert()), (199, 109_482_240));
    }

    #[test]
    fn gradients_come_last_layer_first_and_fill_the_backward_pass() {
        let model = Model::vgg16();
        assert_eq!(model.bytes[..2], [4000, 16_384_000]);
        assert!(model.ready_us.is_sorted());
        assert!((model.ready_us[31] - 130_000.0).abs() < 1e-6);
        assert!((model.faster(2.0).compute_us() - 97_500.0).abs() < 1e-6);
    }
}
