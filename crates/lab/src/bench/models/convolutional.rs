//! ResNet-50/101, VGG-16 and Inception-V3 as in torchvision, for ImageNet's 1,000 classes.
//!
//! - ResNet: He et al., "Deep Residual Learning" (2016), table 1, with the stride in the 3×3
//!   convolution ("v1.5").
//! - VGG-16: Simonyan and Zisserman (2015), table 1, configuration D.
//! - Inception-V3: Szegedy et al., "Rethinking the Inception Architecture" (2016), with the
//!   auxiliary classifier, which training uses.

use super::builder::{Extent, NetworkBuilder};
use crate::bench::Workload;

const CLASSES: usize = 1000;

/// Bottleneck ResNet with `blocks` residual blocks in its four stages, on 224 × 224 images.
pub(super) fn resnet(name: &str, blocks: [usize; 4]) -> Workload {
    const EXPANSION: usize = 4;
    let mut net = NetworkBuilder::default();
    conv_norm(&mut net, "conv1", "bn1", 3, 64, 7, 112);
    let mut inputs = 64;
    let mut side_in = 56;
    for (stage, &count) in blocks.iter().enumerate() {
        let width = 64 << stage;
        let outputs = width * EXPANSION;
        let side = 56 >> stage;
        for block in 0..count {
            let prefix = format!("layer{}.{block}", stage + 1);
            let part = |part: &str| format!("{prefix}.{part}");
            conv_norm(
                &mut net,
                &part("conv1"),
                &part("bn1"),
                inputs,
                width,
                1,
                side_in,
            );
            conv_norm(
                &mut net,
                &part("conv2"),
                &part("bn2"),
                width,
                width,
                3,
                side,
            );
            conv_norm(
                &mut net,
                &part("conv3"),
                &part("bn3"),
                width,
                outputs,
                1,
                side,
            );
            if block == 0 {
                conv_norm(
                    &mut net,
                    &part("downsample.0"),
                    &part("downsample.1"),
                    inputs,
                    outputs,
                    1,
                    side,
                );
            }
            inputs = outputs;
            side_in = side;
        }
    }
    net.linear("fc", inputs, CLASSES, 1);
    net.finish(name)
}

/// Adds a square convolution without bias and the batch normalisation after it.
fn conv_norm(
    net: &mut NetworkBuilder,
    conv: &str,
    norm: &str,
    inputs: usize,
    outputs: usize,
    kernel: usize,
    side: usize,
) {
    net.conv(conv, inputs, outputs, (kernel, kernel), (side, side));
    net.norm(norm, outputs, side * side);
}

/// VGG-16 without batch normalisation, on 224 × 224 images.
pub(super) fn vgg16(name: &str) -> Workload {
    const STAGES: [(usize, usize); 5] = [(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)];
    let mut net = NetworkBuilder::default();
    let (mut inputs, mut side, mut index) = (3, 224, 0);
    for (convolutions, outputs) in STAGES {
        for _ in 0..convolutions {
            let conv = format!("features.{index}");
            net.conv(&conv, inputs, outputs, (3, 3), (side, side));
            net.bias(&conv, outputs, side * side);
            inputs = outputs;
            index += 2; // the convolution and its ReLU
        }
        index += 1; // the pooling layer
        side /= 2;
    }
    net.linear("classifier.0", inputs * side * side, 4096, 1);
    net.linear("classifier.3", 4096, 4096, 1);
    net.linear("classifier.6", 4096, CLASSES, 1);
    net.finish(name)
}

/// Inception-V3 with its auxiliary classifier, on 299 × 299 images.
pub(super) fn inception3(name: &str) -> Workload {
    let mut net = NetworkBuilder::default();
    basic(&mut net, "Conv2d_1a_3x3", 3, 32, (3, 3), 149);
    basic(&mut net, "Conv2d_2a_3x3", 32, 32, (3, 3), 147);
    basic(&mut net, "Conv2d_2b_3x3", 32, 64, (3, 3), 147);
    basic(&mut net, "Conv2d_3b_1x1", 64, 80, (1, 1), 73);
    basic(&mut net, "Conv2d_4a_3x3", 80, 192, (3, 3), 71);
    inception_a(&mut net, "Mixed_5b", 192, 32);
    inception_a(&mut net, "Mixed_5c", 256, 64);
    inception_a(&mut net, "Mixed_5d", 288, 64);
    inception_b(&mut net, "Mixed_6a", 288);
    for (block, width) in [
        ("Mixed_6b", 128),
        ("Mixed_6c", 160),
        ("Mixed_6d", 160),
        ("Mixed_6e", 192),
    ] {
        inception_c(&mut net, block, 768, width);
    }
    basic(&mut net, "AuxLogits.conv0", 768, 128, (1, 1), 5);
    basic(&mut net, "AuxLogits.conv1", 128, 768, (5, 5), 1);
    net.linear("AuxLogits.fc", 768, CLASSES, 1);
    inception_d(&mut net, "Mixed_7a", 768);
    inception_e(&mut net, "Mixed_7b", 1280);
    inception_e(&mut net, "Mixed_7c", 2048);
    net.linear("fc", 2048, CLASSES, 1);
    net.finish(name)
}

/// Adds Inception's basic unit: a convolution without bias and its batch normalisation, on a `side`
/// × `side` output.
fn basic(
    net: &mut NetworkBuilder,
    name: &str,
    inputs: usize,
    outputs: usize,
    kernel: Extent,
    side: usize,
) {
    net.conv(
        &format!("{name}.conv"),
        inputs,
        outputs,
        kernel,
        (side, side),
    );
    net.norm(&format!("{name}.bn"), outputs, side * side);
}

/// Branch convolution of an inception block: name, inputs, outputs, kernel, output side.
type Branch = (&'static str, usize, usize, Extent, usize);

fn branches(net: &mut NetworkBuilder, block: &str, list: &[Branch]) {
    for &(branch, inputs, outputs, kernel, side) in list {
        basic(
            net,
            &format!("{block}.{branch}"),
            inputs,
            outputs,
            kernel,
            side,
        );
    }
}

fn inception_a(net: &mut NetworkBuilder, block: &str, inputs: usize, pool: usize) {
    branches(
        net,
        block,
        &[
            ("branch1x1", inputs, 64, (1, 1), 35),
            ("branch5x5_1", inputs, 48, (1, 1), 35),
            ("branch5x5_2", 48, 64, (5, 5), 35),
            ("branch3x3dbl_1", inputs, 64, (1, 1), 35),
            ("branch3x3dbl_2", 64, 96, (3, 3), 35),
            ("branch3x3dbl_3", 96, 96, (3, 3), 35),
            ("branch_pool", inputs, pool, (1, 1), 35),
        ],
    );
}

fn inception_b(net: &mut NetworkBuilder, block: &str, inputs: usize) {
    branches(
        net,
        block,
        &[
            ("branch3x3", inputs, 384, (3, 3), 17),
            ("branch3x3dbl_1", inputs, 64, (1, 1), 35),
            ("branch3x3dbl_2", 64, 96, (3, 3), 35),
            ("branch3x3dbl_3", 96, 96, (3, 3), 17),
        ],
    );
}

fn inception_c(net: &mut NetworkBuilder, block: &str, inputs: usize, width: usize) {
    branches(
        net,
        block,
        &[
            ("branch1x1", inputs, 192, (1, 1), 17),
            ("branch7x7_1", inputs, width, (1, 1), 17),
            ("branch7x7_2", width, width, (1, 7), 17),
            ("branch7x7_3", width, 192, (7, 1), 17),
            ("branch7x7dbl_1", inputs, width, (1, 1), 17),
            ("branch7x7dbl_2", width, width, (7, 1), 17),
            ("branch7x7dbl_3", width, width, (1, 7), 17),
            ("branch7x7dbl_4", width, width, (7, 1), 17),
            ("branch7x7dbl_5", width, 192, (1, 7), 17),
            ("branch_pool", inputs, 192, (1, 1), 17),
        ],
    );
}

fn inception_d(net: &mut NetworkBuilder, block: &str, inputs: usize) {
    branches(
        net,
        block,
        &[
            ("branch3x3_1", inputs, 192, (1, 1), 17),
            ("branch3x3_2", 192, 320, (3, 3), 8),
            ("branch7x7x3_1", inputs, 192, (1, 1), 17),
            ("branch7x7x3_2", 192, 192, (1, 7), 17),
            ("branch7x7x3_3", 192, 192, (7, 1), 17),
            ("branch7x7x3_4", 192, 192, (3, 3), 8),
        ],
    );
}

fn inception_e(net: &mut NetworkBuilder, block: &str, inputs: usize) {
    branches(
        net,
        block,
        &[
            ("branch1x1", inputs, 320, (1, 1), 8),
            ("branch3x3_1", inputs, 384, (1, 1), 8),
            ("branch3x3_2a", 384, 384, (1, 3), 8),
            ("branch3x3_2b", 384, 384, (3, 1), 8),
            ("branch3x3dbl_1", inputs, 448, (1, 1), 8),
            ("branch3x3dbl_2", 448, 384, (3, 3), 8),
            ("branch3x3dbl_3a", 384, 384, (1, 3), 8),
            ("branch3x3dbl_3b", 384, 384, (3, 1), 8),
            ("branch_pool", inputs, 192, (1, 1), 8),
        ],
    );
}
