//! Converts a profile to a fit for replay; missing values are replaced by assumptions.

use super::check::TIME_MOST_US;
use super::{ELEMENTS_MAX, PROFILE_DTYPES};
use super::{Profile, ProfileError, ProfileTensor};
use crate::Dtype;
use crate::fusion::Item;
use crate::replay::fit::{likeliest, unsaid_error};
use crate::replay::{
    Copying, Fit, Hosts, JobTopology, Linear, Rules, Setting, Simulator, Spread, WorkTensor,
    Workload,
};

/// Uncertainty, in ln, of the costs of a profile without `replay`: about a fifth; and of assumed
/// costs.
const GIVEN_SD: f64 = 0.2;
const GUESS_SD: f64 = 0.7;
/// Assumed costs for missing ones, µs and µs per MiB: a few hops and a few GB/s.
const ALPHA_US: f64 = 50.0;
const US_PER_MIB: f64 = 200.0;
const NEGOTIATE_US: f64 = 50.0;
/// Defaults of the knobs.
const CYCLE_MS: f64 = 1.0;
const THRESHOLD_BYTES: u64 = 128 << 20;
/// Smallest cost whose logarithm is taken: a hundredth of a ns, which is also small for one byte in
/// fast memory.
const COST_LEAST: f64 = 1e-5;
const BYTE_LEAST: f64 = 1e-9;

impl Profile {
    /// Returns the fit for replay, and the assumptions as sentences.
    ///
    /// # Errors
    /// [`ProfileError`] if a tensor is invalid.
    pub fn fit(&self) -> Result<(Fit, Vec<String>), ProfileError> {
        if let Some(fit) = &self.replay {
            return Ok((fit.clone(), Vec::new()));
        }
        let mut assumed = Vec::new();
        let workload = self.workload(&mut assumed)?;
        let place = JobTopology::one_host(self.np.unwrap_or(2).max(1)).with_hosts(Hosts::Assumed);
        match self.np {
            None => assumed.push(format!(
                "the profile does not state the number of ranks: {} ranks on one host are assumed",
                place.ranks
            )),
            Some(1) => assumed.push("the profile is of one rank".into()),
            Some(_) => assumed.push(
                "the profile does not state the hosts of its ranks: one host is assumed".into(),
            ),
        }
        let spread = self.spread(classes(&workload), &mut assumed);
        let reference = Setting {
            fusion_threshold_bytes: self.fusion_threshold_bytes.unwrap_or(THRESHOLD_BYTES),
            cycle_us: self.cycle_time_ms.unwrap_or(CYCLE_MS) * 1e3,
            hierarchical: false,
            hierarchical_allgather: false,
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
            measured_error: GIVEN_SD,
            recorded: None,
        };
        fit.modelled_us =
            Simulator::new(&fit.workload, fit.rules).step_us(&fit.costs, &fit.reference);
        fit.measured_us = fit.modelled_us;
        if let Some(step_ms) = self.step_ms.filter(|ms| *ms > 0.0) {
            fit.measured_us = step_ms * 1e3;
            fit.measured_error = unsaid_error();
            // The remaining time after communication is attributed to the optimizer, at the end of
            // the step.
            let tail_us = (fit.measured_us - fit.modelled_us).max(0.0);
            fit.workload.tail_us = tail_us;
            fit.modelled_us += tail_us;
        } else {
            assumed.push(
                "the profile does not state step_ms: the step time of the model is used".into(),
            );
        }
        Ok((fit, assumed))
    }

    fn workload(&self, assumed: &mut Vec<String>) -> Result<Workload, ProfileError> {
        let mut dtypes: Vec<Dtype> = Vec::new();
        let mut tensors = Vec::with_capacity(self.tensors.len());
        let known = self
            .tensors
            .iter()
            .filter(|tensor| tensor.is_timed())
            .count();
        let timed = known == self.tensors.len();
        if !timed {
            assumed.push(format!(
                "{} no ready time: even distribution over the step is assumed",
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
                    "costs.{name} is missing: {otherwise} is assumed, with an uncertainty of a factor of two"
                ));
                (otherwise, GUESS_SD)
            }
        };
        let alpha = given(costs.alpha_us, ALPHA_US, "alpha_us");
        let (us_per_mib, byte_sd) = given(costs.us_per_mib, US_PER_MIB, "us_per_mib");
        let cached = given(costs.negotiate_cached, NEGOTIATE_US, "negotiate_cached");
        let nothing = (BYTE_LEAST, GIVEN_SD);
        let flat = linear(alpha, (us_per_mib / f64::from(1 << 20), byte_sd));
        // Twice, since it covers both directions.
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
            operations: Vec::new(),
            cached: linear(cached, nothing),
            uncached: costs
                .negotiate_uncached
                .map(|us| linear((us, GIVEN_SD), nothing)),
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
        let dtype = PROFILE_DTYPES
            .into_iter()
            .find(|known| known.name() == self.dtype)
            .ok_or_else(|| {
                let known = PROFILE_DTYPES.map(Dtype::name).join(", ");
                self.wrong(format!("dtype `{}` is not one of {known}", self.dtype))
            })?;
        if !(1..=ELEMENTS_MAX).contains(&self.elements) {
            return Err(self.wrong(format!(
                "{} elements; give 1 to {ELEMENTS_MAX}",
                self.elements
            )));
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

    /// Returns the times at which the first rank and all ranks have it.
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

/// Cost in two independent parts, each with its value and its standard deviation in ln.
fn linear(first: (f64, f64), second: (f64, f64)) -> Linear {
    Linear {
        ln: [first.0.max(COST_LEAST).ln(), second.0.max(BYTE_LEAST).ln()],
        covariance: [[first.1 * first.1, 0.0], [0.0, second.1 * second.1]],
        loss: 0.0,
    }
}
