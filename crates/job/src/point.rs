//! Combination of settings on a number of ranks, as sweeps measure it and replays predict it.

use serde::{Deserialize, Serialize};

use crate::replay::Setting;
use crate::settings::Settings;

/// Combination of settings on a number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Number of ranks.
    pub np: u32,
    /// Fusion threshold, bytes; 0 = no fusion.
    pub fusion_threshold_bytes: u64,
    /// Cycle time, ms: minimum time between the starts of two cycles.
    pub cycle_time_ms: f64,
    /// Whether the response cache is on.
    pub cache: bool,
    /// Whether allreduces are hierarchical.
    pub hierarchical_allreduce: bool,
}

/// Hashable key of a point; equal points have equal keys.
pub type PointKey = (u32, u64, u64, [bool; 2]);

impl Point {
    /// Returns the default settings for this number of ranks.
    pub fn default_of(np: u32) -> Self {
        let settings = Settings::default();
        Self {
            np,
            fusion_threshold_bytes: settings.fusion_threshold_bytes,
            cycle_time_ms: settings.cycle_time_ns as f64 / 1e6,
            cache: settings.cache,
            hierarchical_allreduce: false,
        }
    }

    /// Returns a setting of the replay on this number of ranks.
    pub fn of(setting: &Setting, np: u32) -> Self {
        Self {
            np,
            fusion_threshold_bytes: setting.fusion_threshold_bytes,
            cycle_time_ms: setting.cycle_us / 1e3,
            cache: setting.cache,
            hierarchical_allreduce: setting.hierarchical,
        }
    }

    /// Returns all combinations of these settings on `np` ranks: fusion thresholds in bytes, which
    /// vary fastest, then cycle times in ms, cache and hierarchical allreduce.
    pub fn grid(
        np: u32,
        fusion_threshold_bytes: &[u64],
        cycle_time_ms: &[f64],
        cache: &[bool],
        hierarchical_allreduce: &[bool],
    ) -> Vec<Self> {
        let mut points = Vec::new();
        for &hierarchical_allreduce in hierarchical_allreduce {
            for &cache in cache {
                for &cycle_time_ms in cycle_time_ms {
                    for &fusion_threshold_bytes in fusion_threshold_bytes {
                        points.push(Self {
                            np,
                            fusion_threshold_bytes,
                            cycle_time_ms,
                            cache,
                            hierarchical_allreduce,
                        });
                    }
                }
            }
        }
        points
    }

    /// Returns the settings for the replay, which has no hierarchical allgather then.
    pub fn setting(&self) -> Setting {
        Setting {
            fusion_threshold_bytes: self.fusion_threshold_bytes,
            cycle_us: self.cycle_time_ms * 1e3,
            hierarchical: self.hierarchical_allreduce,
            hierarchical_allgather: false,
            cache: self.cache,
        }
    }

    /// Whether the point is the default of its number of ranks.
    pub fn is_default(&self) -> bool {
        *self == Self::default_of(self.np)
    }

    /// Returns the threshold in MiB, the unit of the flags.
    pub fn fusion_mb(&self) -> f64 {
        self.fusion_threshold_bytes as f64 / f64::from(1 << 20)
    }

    /// Returns the distance: the number of different settings, then the ratios of their values.
    pub fn distance(&self, other: &Self) -> f64 {
        let ratio = |a: f64, b: f64| (a.max(1e-2) / b.max(1e-2)).ln().abs();
        let fusion = ratio(self.fusion_mb(), other.fusion_mb());
        let cycle = ratio(self.cycle_time_ms, other.cycle_time_ms);
        let numbers = u8::from(fusion > 0.0) + u8::from(cycle > 0.0);
        let hierarchical = self.hierarchical_allreduce != other.hierarchical_allreduce;
        let switches = u8::from(self.cache != other.cache) + u8::from(hierarchical);
        100.0 * f64::from(numbers + switches) + fusion + cycle
    }

    /// Returns the hashable key.
    pub fn key(&self) -> PointKey {
        let switches = [self.cache, self.hierarchical_allreduce];
        // The sum converts −0 to 0.
        let cycle_bits = (self.cycle_time_ms + 0.0).to_bits();
        (self.np, self.fusion_threshold_bytes, cycle_bits, switches)
    }
}
