//! Split of surfaces and step-time processes: those with which settings of the tuner are chosen,
//! and those that only report what was chosen.
//!
//! A table of surfaces says which part it is of. Constants of the tuner, of the guard and of the
//! drift detection may be compared on [`Part::Chosen`] only; a claim about the tuner is about
//! [`Part::Reported`]. Constants older than this split were chosen on all surfaces of `lab` and on
//! the step-time processes A to I, so that only the other reported surfaces are new to them. Parts of
//! the tuner were removed or mended for what they did on reported surfaces, with seeds below 1000:
//! tables are of seeds from 2000 on.
//!
//! | truth | chosen | reported |
//! | --- | --- | --- |
//! | `lab`, `drawn` | the seven surfaces of [`CHOSEN`] | the seven others |
//! | `held-out`, `foreign`, `gradients`, `recorded` | none | all |
//! | step-time processes | A to I, flat, base (`attacks::CHOSEN`) | `attacks::APART` |

use std::fmt;

use super::truth::{Surface, Truth};

/// Surfaces of `lab` and `drawn` with which settings are chosen: each model and each network is on
/// both sides.
const CHOSEN: [&str; 7] = [
    "resnet50/nv 16x8",
    "resnet50/g25 16x4",
    "vgg16/g25 16x1",
    "vgg16/g1 2x1",
    "bert/nv 128x8",
    "small/g1 128x8",
    "resnet50/g1 128x1",
];

/// A side of the split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// To choose settings with.
    Chosen,
    /// To report results with.
    Reported,
    /// Both.
    All,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Chosen => "chosen",
            Self::Reported => "reported",
            Self::All => "all",
        })
    }
}

impl Part {
    /// Whether a surface of `truth` is in this part.
    pub(crate) fn has(self, truth: Truth, surface: &Surface) -> bool {
        let is_split = matches!(truth, Truth::Lab | Truth::Drawn);
        let is_chosen = is_split && CHOSEN.contains(&surface.name.as_str());
        match self {
            Self::Chosen => is_chosen,
            Self::Reported => !is_chosen,
            Self::All => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::truth::surfaces;

    #[test]
    fn every_surface_is_on_one_side() {
        let lab = surfaces(Truth::Lab, 1.0, None).unwrap();
        let count = |part: Part| lab.iter().filter(|s| part.has(Truth::Lab, s)).count();
        assert_eq!(
            [Part::Chosen, Part::Reported, Part::All].map(count),
            [7, 7, 14]
        );
        let held_out = surfaces(Truth::HeldOut, 1.0, None).unwrap();
        assert!(
            held_out
                .iter()
                .all(|s| Part::Reported.has(Truth::HeldOut, s))
        );
    }
}
