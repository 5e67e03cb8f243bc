//! Models of `ronde bench --model`: real parameter shapes in the order of the backward pass.
//!
//! Each model is built from its architecture and checked against its published number of
//! parameters, so a workload has the gradients of the real network and not only its total size.

mod builder;
mod convolutional;
mod transformer;

use builder::NetworkBuilder;

use super::Workload;

/// Names that `--model` accepts, in the order of the help text.
pub const NAMES: [&str; 8] = [
    "resnet50",
    "resnet101",
    "vgg16",
    "inception3",
    "bert-base",
    "bert-large",
    "gpt2",
    "many-small",
];

/// Unknown `--model` name: it is not in [`NAMES`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown model `{name}`: choose one of {}, or give a list of sizes with --profile FILE", NAMES.join(", "))]
pub struct UnknownModelError {
    /// The name given.
    pub name: String,
}

/// Returns the gradients of the model called `name`.
///
/// # Errors
/// [`UnknownModelError`] if `name` is not in [`NAMES`].
///
/// ```
/// let resnet50 = ronde_lab::bench::models::workload("resnet50")?;
/// assert_eq!(resnet50.tensors.len(), 161);
/// assert_eq!(resnet50.elements(), 25_557_032);
/// assert_eq!(resnet50.tensors[0].name, "fc.bias"); // the last layer's gradient is ready first
/// # Ok::<(), ronde_lab::bench::models::UnknownModelError>(())
/// ```
pub fn workload(name: &str) -> Result<Workload, UnknownModelError> {
    Ok(match name {
        "resnet50" => convolutional::resnet(name, [3, 4, 6, 3]),
        "resnet101" => convolutional::resnet(name, [3, 4, 23, 3]),
        "vgg16" => convolutional::vgg16(name),
        "inception3" => convolutional::inception3(name),
        "bert-base" => transformer::bert(name, 12, 768),
        "bert-large" => transformer::bert(name, 24, 1024),
        "gpt2" => transformer::gpt2(name),
        "many-small" => many_small(name),
        _ => {
            return Err(UnknownModelError {
                name: name.to_owned(),
            });
        }
    })
}

/// 1,000 tensors of 1 KiB: mostly overhead, little data.
fn many_small(name: &str) -> Workload {
    const TENSORS: usize = 1000;
    const ELEMENTS: usize = 256; // 1 KiB of float32
    let mut net = NetworkBuilder::default();
    // Numbered backwards, because `finish` reverses the order: the first tensor submitted is
    // `small.0`.
    for index in (0..TENSORS).rev() {
        net.plain(format!("small.{index}"), ELEMENTS);
    }
    net.finish(name)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Published parameter counts: torchvision's model table, transformers' `num_parameters()`.
    #[test]
    fn parameter_and_tensor_counts_are_the_published_ones() {
        for (name, tensors, parameters) in [
            ("resnet50", 161, 25_557_032),
            ("resnet101", 314, 44_549_160),
            ("vgg16", 32, 138_357_544),
            ("inception3", 292, 27_161_264), // with the auxiliary classifier; 23,834,568 without
            ("bert-base", 199, 109_482_240), // BertModel
            ("bert-large", 391, 335_141_888),
            ("gpt2", 148, 124_439_808),
            ("many-small", 1000, 256_000),
        ] {
            let workload = workload(name).unwrap();
            assert_eq!(
                (workload.tensors.len(), workload.elements()),
                (tensors, parameters),
                "{name}"
            );
        }
    }

    #[test]
    fn inception_without_its_auxiliary_classifier_has_the_published_count() {
        let inception = workload("inception3").unwrap();
        let auxiliary: usize = inception
            .tensors
            .iter()
            .filter(|tensor| tensor.name.starts_with("AuxLogits"))
            .map(|tensor| tensor.elements())
            .sum();
        assert_eq!(inception.elements() - auxiliary, 23_834_568);
    }

    #[test]
    fn names_are_unique_and_ready_fractions_rise_to_one() {
        for name in NAMES {
            let workload = workload(name).unwrap();
            let names: HashSet<_> = workload.tensors.iter().map(|tensor| &tensor.name).collect();
            assert_eq!(names.len(), workload.tensors.len(), "{name}");
            let fractions: Vec<f64> = workload
                .tensors
                .iter()
                .map(|tensor| tensor.ready_fraction)
                .collect();
            assert!(fractions.is_sorted() && fractions[0] > 0.0, "{name}");
            assert_eq!(fractions.last(), Some(&1.0), "{name}");
        }
    }

    #[test]
    fn order_is_the_reverse_of_definition() {
        let names = |model: &str| -> Vec<String> {
            workload(model)
                .unwrap()
                .tensors
                .into_iter()
                .map(|tensor| tensor.name)
                .collect()
        };
        let resnet = names("resnet50");
        assert_eq!(resnet[..3], ["fc.bias", "fc.weight", "layer4.2.bn3.bias"]);
        assert_eq!(resnet[160], "conv1.weight");
        assert_eq!(names("vgg16")[31], "features.0.weight");
        assert_eq!(names("bert-base")[198], "embeddings.word_embeddings.weight");
        assert_eq!(names("many-small")[..2], ["small.0", "small.1"]);
    }

    /// The first ready tensors of VGG-16 are large and cheap: 124 M parameters in the first 1 % of
    /// the work.
    #[test]
    fn cost_is_work_and_not_size() {
        let vgg = workload("vgg16").unwrap();
        let classifier = vgg
            .tensors
            .iter()
            .rfind(|tensor| tensor.name.starts_with("classifier"))
            .unwrap();
        assert_eq!(classifier.name, "classifier.0.weight");
        assert!(
            classifier.ready_fraction < 0.01,
            "{}",
            classifier.ready_fraction
        );
    }

    #[test]
    fn unknown_model_names_the_known_ones() {
        let message = workload("resnet5").unwrap_err().to_string();
        assert!(
            message.contains("`resnet5`") && message.contains("resnet50, resnet101"),
            "{message}"
        );
    }

    fn recorded_elements(model: &str) -> Vec<usize> {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let file = format!("tests/fixtures/tensor-elements/{model}.txt");
        let mut paths = package.ancestors().map(|folder| folder.join(&file));
        let path = paths.find(|path| path.exists()).expect(&file);
        let text = fs::read_to_string(path).unwrap();
        text.lines()
            .map(|line| line.trim().parse().unwrap())
            .collect()
    }

    fn elements(model: &str) -> Vec<usize> {
        workload(model)
            .unwrap()
            .tensors
            .iter()
            .map(|tensor| tensor.elements())
            .collect()
    }

    #[test]
    fn vgg16_equals_the_order_recorded_from_horovod() {
        assert_eq!(elements("vgg16"), recorded_elements("vgg16"));
    }

    /// The recording comes from TensorFlow, where the first block of a stage defines its shortcut
    /// *before* the main branch, while torchvision defines it after. The backward pass therefore
    /// yields the shortcut last there and first here; moving our four shortcuts (bias, weight,
    /// convolution) behind their block gives exactly the recorded order.
    #[test]
    fn resnet50_equals_the_order_recorded_from_horovod_but_for_shortcuts() {
        let recorded = recorded_elements("resnet50");
        let mut tensors = workload("resnet50").unwrap().tensors;
        let shortcuts: Vec<usize> = (0..tensors.len())
            .filter(|&index| tensors[index].name.contains(".0.downsample.1.bias"))
            .collect();
        assert_eq!(shortcuts.len(), 4);
        for start in shortcuts {
            tensors[start..start + 12].rotate_left(3); // 3 tensors of the shortcut, 9 of the main branch
        }
        let moved: Vec<usize> = tensors.iter().map(|tensor| tensor.elements()).collect();
        assert_eq!(moved, recorded);
    }
}
