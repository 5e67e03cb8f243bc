//! Design of a sweep: the settings to measure, and the number of measurements.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::Point;

/// Grid of settings, with the numbers of repeats and steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Design {
    /// Numbers of ranks.
    pub np: Vec<u32>,
    /// Fusion thresholds, bytes.
    pub fusion_threshold_bytes: Vec<u64>,
    /// Cycle times, ms.
    pub cycle_time_ms: Vec<f64>,
    /// Response cache on or off.
    pub cache: Vec<bool>,
    /// Hierarchical allreduce on or off.
    pub hierarchical_allreduce: Vec<bool>,
    /// Number of blocks; each measures the whole grid.
    pub repeats: u32,
    /// Number of rounds in which the best points and the default take turns after the grid.
    pub confirm: u32,
    /// Untimed steps of each measurement.
    pub warmup: u32,
    /// Timed steps of each measurement.
    pub steps: u32,
    /// Minimum duration of the timed steps, ms; faster points get more steps.
    #[serde(default)]
    pub at_least_ms: f64,
    /// Maximum duration of the sweep, seconds.
    pub budget_s: Option<f64>,
    /// Seed of the random order.
    pub seed: u64,
}

impl Design {
    /// Returns the distinct points of the grid on `np` ranks, without the default.
    pub fn grid(&self, np: u32) -> Vec<Point> {
        let mut seen = HashSet::from([Point::default_of(np).key()]);
        let (fusion, cycles) = (&self.fusion_threshold_bytes, &self.cycle_time_ms);
        let hierarchical = &self.hierarchical_allreduce;
        let mut points = Point::grid(np, fusion, cycles, &self.cache, hierarchical);
        points.retain(|point| seen.insert(point.key()));
        points
    }

    /// Returns all points: for each number of ranks the default, then the rest of the grid.
    pub fn points(&self) -> Vec<Point> {
        let of_ranks = |&np: &u32| [Point::default_of(np)].into_iter().chain(self.grid(np));
        self.np.iter().flat_map(of_ranks).collect()
    }
}
