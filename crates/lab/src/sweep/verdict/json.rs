//! Fields of findings in JSON: changes in percent, points without their number of ranks.

use serde::{Serialize, Serializer};

use super::Estimate;
use crate::sweep::Point;

/// [`Point`] without its number of ranks, which a finding states once.
#[derive(Serialize)]
#[serde(remote = "Point")]
struct Settings {
    #[serde(skip)]
    np: u32,
    fusion_threshold_bytes: u64,
    cycle_time_ms: f64,
    cache: bool,
    hierarchical_allreduce: bool,
}

/// Serializes a point without its number of ranks.
///
/// # Errors
/// Those of the serializer.
pub fn settings<S: Serializer>(point: &Point, serializer: S) -> Result<S::Ok, S::Error> {
    Settings::serialize(point, serializer)
}

/// Serializes a share in percent.
pub(super) fn percent<S: Serializer>(
    share: &(impl Copy + Into<Option<f64>>),
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let share: Option<f64> = (*share).into();
    share.map(|share| share * 100.0).serialize(serializer)
}

pub(super) fn percent_of_estimate<S: Serializer>(
    estimate: &Option<Estimate>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let percent = |estimate: Estimate| estimate.map(|share| share * 100.0);
    estimate.map(percent).serialize(serializer)
}
