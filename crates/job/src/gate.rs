//! Gate before a recommendation: conditions that the data must meet.
//!
//! Timeline analysis, replay, review and sweep call [`Evidence::check`] for every recommendation,
//! best setting and line to paste. The first condition that fails is returned as a [`Withheld`];
//! its text is one sentence for the user, and its serialized form is the reason in JSON.
//!
//! ```
//! use ronde_job::gate::{Evidence, Withheld};
//!
//! let once = Evidence { baseline_measurements: Some(1), ..Evidence::default() };
//! assert_eq!(once.check(), Err(Withheld::BaselineOnce { measurements: 1 }));
//! assert_eq!(Evidence::default().check(), Ok(()));
//! ```

use serde::{Deserialize, Serialize};

/// Largest relative error of a model whose predictions are used.
pub const MODEL_ERROR_MOST: f64 = 0.15;
/// Minimum number of measurements of the baseline that separates a difference from noise.
pub const BASELINE_LEAST: u64 = 2;

/// Facts about the data behind a recommendation. A field that does not apply keeps its default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Name of a file that is truncated or damaged.
    pub incomplete: Option<String>,
    /// Name of a file that has calls of NCCL but no events of the GPU.
    pub host_only: Option<String>,
    /// Difference that suggests that the files are of different jobs, as a predicate of the files.
    pub mixed: Option<String>,
    /// Settings that the data do not state.
    pub unknown_settings: Vec<String>,
    /// Whether settings changed while the data were recorded.
    pub tuning: bool,
    /// Measured step time and the model's step time, ms.
    pub model: Option<[f64; 2]>,
    /// Number of measurements of the baseline.
    pub baseline_measurements: Option<u64>,
    /// The recommended point, if it lies outside the measured range.
    pub outside: Option<String>,
    /// Whether the difference may be chance.
    pub chance: bool,
}

/// Reason why nothing is recommended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Withheld {
    /// A file is truncated or damaged.
    #[error(
        "No recommendation: {file} is truncated or damaged, so its last step and its totals are not reliable."
    )]
    Incomplete {
        /// Name of the file.
        file: String,
    },
    /// A profiler's trace has calls of NCCL but no events of the GPU.
    #[error(
        "No recommendation: {file} has calls of NCCL but no GPU events, so the times of collectives and of computation on the \
         GPU are not known; record it with ProfilerActivity.CUDA."
    )]
    HostOnly {
        /// Name of the file.
        file: String,
    },
    /// The files may be from different jobs.
    #[error("No recommendation: the files may be of different jobs ({difference}).")]
    Mixed {
        /// The difference.
        difference: String,
    },
    /// The settings in force are not known.
    #[error(
        "No recommendation: the recording does not state the {} in force, so there is nothing to compare other settings with.",
        settings.join(" and the ")
    )]
    UnknownSettings {
        /// Names of these settings.
        settings: Vec<String>,
    },
    /// Settings changed during the recording.
    #[error(
        "No recommendation: the settings changed during the recorded steps (autotuning); record after tuning has ended, or \
         select steps with --steps."
    )]
    Tuning,
    /// The model does not reproduce the measurement.
    #[error(
        "No recommendation: the model predicts {modelled_ms:.1} ms for the recorded step of {measured_ms:.1} ms, so its \
         predictions for other settings are not reliable."
    )]
    ModelOff {
        /// Measured step time, ms.
        measured_ms: f64,
        /// Step time of the model, ms.
        modelled_ms: f64,
    },
    /// The baseline was measured too few times.
    #[error(
        "No recommendation: the default was {}.",
        match measurements {
            0 => "never measured, so the gain over it is unknown; measure it beside the others",
            _ => "measured only once, so a difference from it may be chance; measure it again",
        }
    )]
    BaselineOnce {
        /// Number of measurements of the baseline.
        measurements: u64,
    },
    /// The point lies outside of the measured range.
    #[error("No recommendation: {point} is outside the measured range; measure it first.")]
    OutsideRange {
        /// The point and the range.
        point: String,
    },
    /// The interval of the difference contains 0.
    #[error("No recommendation: the difference may be chance; measure more rounds.")]
    Chance,
}

impl Evidence {
    /// Checks all conditions.
    ///
    /// # Errors
    /// The first condition that is not met.
    pub fn check(&self) -> Result<(), Withheld> {
        if let Some(file) = self.incomplete.clone() {
            return Err(Withheld::Incomplete { file });
        }
        if let Some(file) = self.host_only.clone() {
            return Err(Withheld::HostOnly { file });
        }
        if let Some(difference) = self.mixed.clone() {
            return Err(Withheld::Mixed { difference });
        }
        if self.tuning {
            return Err(Withheld::Tuning);
        }
        if !self.unknown_settings.is_empty() {
            let settings = self.unknown_settings.clone();
            return Err(Withheld::UnknownSettings { settings });
        }
        if let Some([measured_ms, modelled_ms]) = self.model
            && !reproduces(measured_ms, modelled_ms)
        {
            return Err(Withheld::ModelOff {
                measured_ms,
                modelled_ms,
            });
        }
        if let Some(measurements) = self.baseline_measurements
            && measurements < BASELINE_LEAST
        {
            return Err(Withheld::BaselineOnce { measurements });
        }
        if let Some(point) = self.outside.clone() {
            return Err(Withheld::OutsideRange { point });
        }
        if self.chance {
            return Err(Withheld::Chance);
        }
        Ok(())
    }
}

/// Whether the relative error of a model is at most [`MODEL_ERROR_MOST`].
pub fn reproduces(measured: f64, modelled: f64) -> bool {
    let error = (modelled / measured - 1.0).abs();
    error <= MODEL_ERROR_MOST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_condition_withholds_by_itself() {
        let none = Evidence::default;
        let cases = [
            (
                Evidence {
                    incomplete: Some("t.json".into()),
                    ..none()
                },
                "t.json is truncated",
            ),
            (
                Evidence {
                    host_only: Some("k.json".into()),
                    ..none()
                },
                "k.json has calls of NCCL but no GPU events",
            ),
            (
                Evidence {
                    mixed: Some("sizes differ".into()),
                    ..none()
                },
                "sizes differ",
            ),
            (
                Evidence {
                    tuning: true,
                    ..none()
                },
                "autotuning",
            ),
            (
                Evidence {
                    unknown_settings: vec!["cycle time".into(), "fusion threshold".into()],
                    ..none()
                },
                "the cycle time and the fusion threshold in force",
            ),
            (
                Evidence {
                    model: Some([10.0, 12.0]),
                    ..none()
                },
                "12.0 ms for the recorded step of 10.0 ms",
            ),
            (
                Evidence {
                    model: Some([10.0, f64::NAN]),
                    ..none()
                },
                "not reliable",
            ),
            (
                Evidence {
                    model: Some([0.0, 0.0]),
                    ..none()
                },
                "not reliable",
            ),
            (
                Evidence {
                    baseline_measurements: Some(0),
                    ..none()
                },
                "was never measured",
            ),
            (
                Evidence {
                    baseline_measurements: Some(1),
                    ..none()
                },
                "was measured only once",
            ),
            (
                Evidence {
                    outside: Some("256 MiB (measured: 1 to 64)".into()),
                    ..none()
                },
                "256 MiB",
            ),
            (
                Evidence {
                    chance: true,
                    ..none()
                },
                "may be chance",
            ),
        ];
        for (evidence, part) in cases {
            let withheld = evidence.check().unwrap_err();
            let sentence = withheld.to_string();
            assert!(
                sentence.starts_with("No recommendation: ") && sentence.contains(part),
                "{sentence}"
            );
            let json = serde_json::to_value(&withheld).unwrap();
            assert!(json["reason"].is_string(), "{json}");
        }
        let good = Evidence {
            model: Some([10.0, 11.0]),
            baseline_measurements: Some(2),
            ..none()
        };
        assert_eq!(good.check(), Ok(()));
    }
}
