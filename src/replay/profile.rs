//! A profile: what replay and `ronde bench --profile` need to know of a job.
//!
//! ```json
//! {"ronde_profile": 1, "np": 4, "step_ms": 51.3, "cycle_time_ms": 1.0, "fusion_threshold_bytes": 134217728,
//!  "tensors": [{"name": "fc.bias", "op": "allreduce", "dtype": "float32", "elements": 1000, "ready_us": 812.5,
//!               "ready_us_by_rank": [812.5, 830.1, null, 811.0], "ready_jitter_us": 12.0}],
//!  "costs": {"alpha_us": 20.1, "us_per_mib": 410.0, "copy": 96.0, "negotiate_cached": 55.0, "negotiate_uncached": 140.0},
//!  "left_out": [{"name": "loss", "op": "allgather", "why": "not an allreduce"}],
//!  "replay": {"workload": {}, "costs": {}, "spread": {}, "rules": {}, "place": {}}}
//! ```
//!
//! `ready_us` counts from the beginning of the step on the reference rank, median over the steady steps; tensors stand
//! in its order. In `costs`, `alpha_us` and `us_per_mib` are the line fitted through the times of the commonest
//! allreduce by size, `copy` the microseconds a MiB of copying in and out, and the two of negotiation microseconds from
//! ready on all ranks to the batch's beginning. What the files do not tell is null. `replay` is the whole fit of a
//! recording, with covariances and with tensors that the benchmark cannot run; where it is there, replay goes by it alone. A
//! profile written by hand needs `ronde_profile`, `tensors` with name, dtype and elements, and as much else as is known.

use serde::{Deserialize, Serialize};

use super::fit::likeliest;
use super::{Copying, Fit, Linear, Place, Rules, Setting, Simulator, Spread, WorkTensor, Workload};
use crate::bench::profile::{ELEMENTS_MAX, PROFILE_VERSION, TENSORS_MAX};
use crate::fusion::Item;
use crate::tensor::Dtype;

/// How sure the costs of a profile without `replay` are, in ln: about a fifth; and what nobody gave.
const GIVEN_SD: f64 = 0.2;
const GUESS_SD: f64 = 0.7;
/// Costs that stand in for those that are missing, µs and µs for a MiB: a few hops and a few GB/s.
const ALPHA_US: f64 = 50.0;
const US_PER_MIB: f64 = 200.0;
const NEGOTIATE_US: f64 = 50.0;
/// The knobs' defaults.
const CYCLE_MS: f64 = 1.0;
const THRESHOLD_BYTES: u64 = 128 << 20;
/// Times that a profile may hold, µs: a day.
const TIME_MOST_US: f64 = 86_400e6;
/// The least cost whose logarithm is taken: a hundredth of a ns, and as little for a byte of a fast memory.
const COST_LEAST: f64 = 1e-5;
const BYTE_LEAST: f64 = 1e-9;

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Profile {
    /// Version of the format, 1.
    pub ronde_profile: u32,
    /// Ranks.
    #[serde(default)]
    pub np: Option<u32>,
    /// Median step.
    #[serde(default)]
    pub step_ms: Option<f64>,
    /// In force when it was recorded.
    #[serde(default)]
    pub cycle_time_ms: Option<f64>,
    /// Likewise.
    #[serde(default)]
    pub fusion_threshold_bytes: Option<u64>,
    /// In order of their ready times.
    pub tensors: Vec<ProfileTensor>,
    /// What parts of the step take.
    #[serde(default)]
    pub costs: ProfileCosts,
    /// Tensors that the benchmark cannot run.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
    /// The fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Fit>,
}

/// A tensor of a profile.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProfileTensor {
    /// Its name.
    pub name: String,
    /// Its operation.
    #[serde(default)]
    pub op: Option<String>,
    /// Its type, such as `float32`.
    pub dtype: String,
    /// Its number of elements.
    pub elements: u64,
    /// Either every tensor has it or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_us: Option<f64>,
    /// Medians, as far as they are known.
    #[serde(default)]
    pub ready_us_by_rank: Vec<Option<f64>>,
    /// Half of the distance from the p10 to the p90.
    #[serde(default)]
    pub ready_jitter_us: f64,
}

/// Costs of a profile.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProfileCosts {
    /// α of the commonest allreduce.
    pub alpha_us: Option<f64>,
    /// Its β.
    pub us_per_mib: Option<f64>,
    /// Copying in and out, µs for a MiB.
    pub copy: Option<f64>,
    /// µs for a cycle of known tensors.
    pub negotiate_cached: Option<f64>,
    /// µs for a cycle of new ones.
    pub negotiate_uncached: Option<f64>,
}

/// A tensor that the benchmark cannot run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LeftOut {
    /// Its name.
    pub name: String,
    /// Its operation.
    pub op: String,
    /// Why.
    pub why: String,
}

/// A profile that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// It is no JSON, or a field is missing or of another kind.
    #[error("line {}: {source}", source.line())]
    Json {
        /// What is wrong.
        #[from]
        source: serde_json::Error,
    },
    /// Another version.
    #[error(
        "ronde_profile is {found}; this ronde reads {PROFILE_VERSION}: make it again with `ronde timeline FILE --profile OUT`"
    )]
    Version {
        /// What the file says.
        found: u32,
    },
    /// Nothing to move.
    #[error("it has no tensors")]
    Empty,
    /// Too much.
    #[error("it has {count} tensors; at most {TENSORS_MAX} are supported")]
    TooMany {
        /// How many there are.
        count: usize,
    },
    /// A tensor that cannot be.
    #[error("tensor `{name}`: {what}")]
    Tensor {
        /// Its name.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// A number that cannot be.
    #[error("{field} is {value}; give a number from 0 to {most}")]
    Number {
        /// The field.
        field: &'static str,
        /// What it says.
        value: f64,
        /// The largest that is taken.
        most: f64,
    },
}

impl Profile {
    /// Reads the profile in `bytes`.
    ///
    /// # Errors
    /// [`ProfileError`] for what is none, or makes no sense.
    pub fn parse(bytes: &[u8]) -> Result<Self, ProfileError> {
        #[derive(Deserialize)]
        struct Version {
            ronde_profile: u32,
        }
        // First, so that a later version's fields do not hide what is the matter.
        let Version { ronde_profile: found } = serde_json::from_slice(bytes)?;
        if found != PROFILE_VERSION {
            return Err(ProfileError::Version { found });
        }
        let profile: Self = serde_json::from_slice(bytes)?;
        profile.check()?;
        Ok(profile)
    }

    /// What replay goes by, and in sentences what had to be assumed.
    ///
    /// # Errors
    /// [`ProfileError`] where a tensor makes no sense.
    pub fn fit(&self) -> Result<(Fit, Vec<String>), ProfileError> {
        if let Some(fit) = &self.replay {
            return Ok((fit.clone(), Vec::new()));
        }
        let mut assumed = Vec::new();
        let workload = self.workload(&mut assumed)?;
        let place = Place::one_host(self.np.unwrap_or(2).max(1));
        match self.np {
            Some(1) | None => assumed.push(format!(
                "the profile {}; it is taken for one of {} on one host",
                if self.np.is_none() {
                    "does not say how many ranks it is of"
                } else {
                    "is of one rank"
                },
                place.ranks
            )),
            Some(_) => assumed.push(
                "the profile does not say where its ranks are: they are taken to be on one host".into(),
            ),
        }
        let spread = self.spread(classes(&workload), &mut assumed);
        let reference = Setting {
            fusion_threshold_bytes: self.fusion_threshold_bytes.unwrap_or(THRESHOLD_BYTES),
            cycle_us: self.cycle_time_ms.unwrap_or(CYCLE_MS) * 1e3,
            hierarchical: false,
            cache: true,
        };
        let costs = likeliest(&spread, &place);
        let mut fit = Fit {
            workload,
            costs,
            spread,
            rules: Rules::RONDE,
            place,
            reference,
            measured_us: 0.0,
            modelled_us: 0.0,
        };
        fit.modelled_us = Simulator::new(&fit.workload, fit.rules).step_us(&fit.costs, &fit.reference);
        fit.measured_us = fit.modelled_us;
        if let Some(step_ms) = self.step_ms.filter(|ms| *ms > 0.0) {
            fit.measured_us = step_ms * 1e3;
            // What communication does not account for is the optimizer's, at the step's end.
            let tail_us = (fit.measured_us - fit.modelled_us).max(0.0);
            fit.workload.tail_us = tail_us;
            fit.modelled_us += tail_us;
        } else {
            assumed.push(
                "the profile does not say how long a step took: the model's own step stands for it".into(),
            );
        }
        Ok((fit, assumed))
    }

    fn check(&self) -> Result<(), ProfileError> {
        if self.tensors.is_empty()
            && self
                .replay
                .as_ref()
                .is_none_or(|fit| fit.workload.tensors.is_empty())
        {
            return Err(ProfileError::Empty);
        }
        let count = self
            .replay
            .as_ref()
            .map_or(0, |fit| fit.workload.tensors.len())
            .max(self.tensors.len());
        if count > TENSORS_MAX {
            return Err(ProfileError::TooMany { count });
        }
        let costs = &self.costs;
        let ms_most = TIME_MOST_US / 1e3;
        let numbers = [
            ("step_ms", self.step_ms, ms_most),
            ("cycle_time_ms", self.cycle_time_ms, ms_most),
            ("costs.alpha_us", costs.alpha_us, TIME_MOST_US),
            ("costs.us_per_mib", costs.us_per_mib, TIME_MOST_US),
            ("costs.copy", costs.copy, TIME_MOST_US),
            ("costs.negotiate_cached", costs.negotiate_cached, TIME_MOST_US),
            ("costs.negotiate_uncached", costs.negotiate_uncached, TIME_MOST_US),
        ];
        for (field, value, most) in numbers {
            check(field, value.unwrap_or(0.0), most)?;
        }
        match &self.replay {
            Some(fit) => check_fit(fit),
            None => Ok(()),
        }
    }

    fn workload(&self, assumed: &mut Vec<String>) -> Result<Workload, ProfileError> {
        let mut dtypes: Vec<Dtype> = Vec::new();
        let mut tensors = Vec::with_capacity(self.tensors.len());
        let known = self.tensors.iter().filter(|tensor| tensor.is_timed()).count();
        let timed = known == self.tensors.len();
        if !timed {
            assumed.push(format!(
                "{} no time at which all is ready: tensors are spread evenly over the step",
                if known == 0 {
                    "tensors have"
                } else {
                    "some tensors have"
                }
            ));
        }
        let over_us = self.step_ms.unwrap_or(0.0) * 1e3 / self.tensors.len().max(1) as f64;
        for (index, tensor) in self.tensors.iter().enumerate() {
            let (dtype, bytes) = tensor.size()?;
            let class = dtypes
                .iter()
                .position(|&known| known == dtype)
                .unwrap_or_else(|| {
                    dtypes.push(dtype);
                    dtypes.len() - 1
                });
            let evenly_us = over_us * (index + 1) as f64;
            let (pending_us, ready_us) = if timed {
                tensor.times()?
            } else {
                (evenly_us, evenly_us)
            };
            tensors.push(WorkTensor {
                item: Item {
                    class: class as u32,
                    bytes,
                    group: None,
                },
                pending_us,
                ready_us,
            });
        }
        tensors.sort_by(|a, b| a.ready_us.total_cmp(&b.ready_us));
        Ok(Workload {
            tensors,
            tail_us: 0.0,
        })
    }

    fn spread(&self, classes: usize, assumed: &mut Vec<String>) -> Spread {
        let costs = &self.costs;
        let mut given = |value: Option<f64>, otherwise: f64, name: &str| match value {
            Some(value) => (value, GIVEN_SD),
            None => {
                assumed.push(format!(
                    "costs.{name} is not given: {otherwise} stands for it, right to a factor of two"
                ));
                (otherwise, GUESS_SD)
            }
        };
        let alpha = given(costs.alpha_us, ALPHA_US, "alpha_us");
        let (us_per_mib, byte_sd) = given(costs.us_per_mib, US_PER_MIB, "us_per_mib");
        let cached = given(costs.negotiate_cached, NEGOTIATE_US, "negotiate_cached");
        let nothing = (BYTE_LEAST, GIVEN_SD);
        let flat = linear(alpha, (us_per_mib / f64::from(1 << 20), byte_sd));
        // Twice, since it is both ways.
        let copying = costs.copy.filter(|us| *us > 0.0).map(|us| {
            let us_per_byte = us / 2.0 / f64::from(1 << 20);
            let shape = Copying {
                us_per_byte,
                ..Copying::default()
            };
            (shape, linear(nothing, (us_per_byte, GIVEN_SD)))
        });
        Spread {
            flat: vec![flat; classes],
            hierarchical: vec![None; classes],
            cached: linear(cached, nothing),
            uncached: costs.negotiate_uncached.map(|us| linear((us, GIVEN_SD), nothing)),
            copying: copying.into_iter().collect(),
            overlaps: None,
        }
    }
}

impl ProfileTensor {
    fn wrong(&self, what: impl Into<String>) -> ProfileError {
        ProfileError::Tensor {
            name: self.name.chars().take(80).collect(),
            what: what.into(),
        }
    }

    fn size(&self) -> Result<(Dtype, u64), ProfileError> {
        let dtype = crate::bench::verify::PATTERN_DTYPES
            .into_iter()
            .find(|known| known.name() == self.dtype)
            .ok_or_else(|| {
                let known = crate::bench::verify::PATTERN_DTYPES.map(Dtype::name).join(", ");
                self.wrong(format!("dtype `{}` is not one of {known}", self.dtype))
            })?;
        if !(1..=ELEMENTS_MAX).contains(&self.elements) {
            return Err(self.wrong(format!("{} elements; give 1 to {ELEMENTS_MAX}", self.elements)));
        }
        Ok((dtype, self.elements * dtype.size_bytes() as u64))
    }

    fn known(&self) -> impl Iterator<Item = f64> + '_ {
        self.ready_us_by_rank
            .iter()
            .copied()
            .flatten()
            .chain(self.ready_us)
    }

    fn is_timed(&self) -> bool {
        self.known().next().is_some()
    }

    /// When the first rank has it and when all have.
    fn times(&self) -> Result<(f64, f64), ProfileError> {
        if let Some(wrong) = self.known().find(|us| !(0.0..=TIME_MOST_US).contains(us)) {
            return Err(self.wrong(format!("ready after {wrong} µs; give 0 to {TIME_MOST_US}")));
        }
        let first = self.known().fold(f64::INFINITY, f64::min);
        Ok((first, self.known().fold(0.0, f64::max)))
    }
}

fn classes(workload: &Workload) -> usize {
    let classes = workload
        .tensors
        .iter()
        .map(|tensor| tensor.item.class as usize + 1);
    classes.max().unwrap_or(1)
}

/// A cost in two parts with their standard deviations in ln, independent.
fn linear(first: (f64, f64), second: (f64, f64)) -> Linear {
    Linear {
        ln: [first.0.max(COST_LEAST).ln(), second.0.max(BYTE_LEAST).ln()],
        covariance: [[first.1 * first.1, 0.0], [0.0, second.1 * second.1]],
        loss: 0.0,
    }
}

fn check(field: &'static str, value: f64, most: f64) -> Result<(), ProfileError> {
    if (0.0..=most).contains(&value) {
        Ok(())
    } else {
        Err(ProfileError::Number { field, value, most })
    }
}

/// A fit as it may stand in a file that somebody has edited: no number that a prediction could not bear.
fn check_fit(fit: &Fit) -> Result<(), ProfileError> {
    /// Of logarithms and their covariances.
    const LN_MOST: f64 = 40.0;
    let Fit { workload, spread, .. } = fit;
    for tensor in &workload.tensors {
        check("replay.workload.tensors.ready_us", tensor.ready_us, TIME_MOST_US)?;
        check(
            "replay.workload.tensors.pending_us",
            tensor.pending_us,
            tensor.ready_us,
        )?;
        check(
            "replay.workload.tensors.item.class",
            f64::from(tensor.item.class),
            TENSORS_MAX as f64,
        )?;
    }
    check("replay.workload.tail_us", workload.tail_us, TIME_MOST_US)?;
    check("replay.measured_us", fit.measured_us, TIME_MOST_US)?;
    check("replay.modelled_us", fit.modelled_us, TIME_MOST_US)?;
    check("replay.reference.cycle_us", fit.reference.cycle_us, TIME_MOST_US)?;
    check("replay.rules.phases", f64::from(fit.rules.phases), 64.0)?;
    check("replay.place.ranks", f64::from(fit.place.ranks), 1e6)?;
    check(
        "replay.place.ranks_per_host",
        f64::from(fit.place.ranks_per_host),
        1e6,
    )?;
    check(
        "replay.place.local.alpha_us",
        fit.place.local.alpha_us,
        TIME_MOST_US,
    )?;
    check(
        "replay.place.local.us_per_byte",
        fit.place.local.us_per_byte,
        TIME_MOST_US,
    )?;
    check(
        "replay.place.hierarchical_us",
        fit.place.hierarchical_us,
        TIME_MOST_US,
    )?;
    let copying = spread.copying.iter();
    for (shape, _) in copying.clone() {
        check("replay.spread.copying.slowdown", shape.slowdown, 1e3)?;
        check("replay.spread.copying.knee_bytes", shape.knee_bytes, 1e18)?;
    }
    let linears = spread.flat.iter().chain(spread.hierarchical.iter().flatten());
    let linears = linears
        .chain([&spread.cached])
        .chain(&spread.uncached)
        .chain(copying.map(|(_, linear)| linear));
    for linear in linears {
        for value in linear.ln.iter().chain(linear.covariance.iter().flatten()) {
            check("replay.spread: the size of a logarithm", value.abs(), LN_MOST)?;
        }
        check("replay.spread: the size of a loss", linear.loss.abs(), f64::MAX)?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "profile_tests.rs"]
mod tests;
