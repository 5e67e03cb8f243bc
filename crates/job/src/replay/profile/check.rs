//! Validation of a profile: all numbers are within limits that keep predictions finite.

use super::TENSORS_MAX;
use super::{Profile, ProfileError};
use crate::replay::Fit;
use serde::de::{Deserialize, Deserializer, Error};

/// Maximum time in a profile, µs: a day.
pub(super) const TIME_MOST_US: f64 = 86_400e6;

/// Maximum number of ranks of a job.
const RANKS_MOST: u32 = 1 << 20;

impl Profile {
    pub(super) fn check(&self) -> Result<(), ProfileError> {
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
            (
                "costs.negotiate_cached",
                costs.negotiate_cached,
                TIME_MOST_US,
            ),
            (
                "costs.negotiate_uncached",
                costs.negotiate_uncached,
                TIME_MOST_US,
            ),
        ];
        for (field, value, most) in numbers {
            check(field, value.unwrap_or(0.0), most)?;
        }
        match &self.replay {
            Some(fit) => check_fit(fit),
            None => Ok(()),
        }
    }
}

/// Reads the number of ranks of a profile.
///
/// # Errors
/// The parser's error, with the range, if it is 0 or more than any job has.
pub fn ranks<'de, D: Deserializer<'de>>(source: D) -> Result<Option<u32>, D::Error> {
    let np = Option::<u64>::deserialize(source)?;
    let checked = |np| {
        let ranks = u32::try_from(np).ok();
        ranks
            .filter(|ranks| (1..=RANKS_MOST).contains(ranks))
            .ok_or_else(|| {
                D::Error::custom(format!(
                    "np is {np}; give the number of ranks, 1 to {RANKS_MOST}"
                ))
            })
    };
    np.map(checked).transpose()
}

fn check(field: &'static str, value: f64, most: f64) -> Result<(), ProfileError> {
    if (0.0..=most).contains(&value) {
        Ok(())
    } else {
        Err(ProfileError::Number { field, value, most })
    }
}

/// Checks a fit from a file that may have been edited: all numbers must keep predictions finite.
fn check_fit(fit: &Fit) -> Result<(), ProfileError> {
    /// Limit of logarithms and of their covariances.
    const LN_MOST: f64 = 40.0;
    let Fit {
        workload, spread, ..
    } = fit;
    for tensor in &workload.tensors {
        check(
            "replay.workload.tensors.ready_us",
            tensor.ready_us,
            TIME_MOST_US,
        )?;
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
    check("replay.measured_error", fit.measured_error, 1.0)?;
    let recorded = fit.recorded.unwrap_or_default();
    check("replay.recorded.per_step", recorded.per_step, f64::MAX)?;
    check(
        "replay.recorded.largest_bytes",
        recorded.largest_bytes,
        f64::MAX,
    )?;
    check(
        "replay.reference.cycle_us",
        fit.reference.cycle_us,
        TIME_MOST_US,
    )?;
    check("replay.rules.phases", f64::from(fit.rules.phases), 64.0)?;
    for np in [fit.place.ranks, fit.place.ranks_per_host] {
        if !(1..=RANKS_MOST).contains(&np) {
            return Err(ProfileError::Ranks {
                np,
                most: RANKS_MOST,
            });
        }
    }
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
    let linears = spread
        .flat
        .iter()
        .chain(spread.hierarchical.iter().flatten());
    let linears = linears
        .chain([&spread.cached])
        .chain(&spread.uncached)
        .chain(copying.map(|(_, linear)| linear));
    for linear in linears {
        for value in linear.ln.iter().chain(linear.covariance.iter().flatten()) {
            check(
                "replay.spread: the size of a logarithm",
                value.abs(),
                LN_MOST,
            )?;
        }
        check(
            "replay.spread: the size of a loss",
            linear.loss.abs(),
            f64::MAX,
        )?;
    }
    Ok(())
}
