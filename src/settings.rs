//! The settings in force: the part of the knobs that a tuner may change while the job runs.

/// The settings that can change while a job runs; every rank uses the same in the same cycle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Counts the changes; a larger number is newer.
    pub version: u64,
    /// Bytes that one batch may hold; 0 = no fusion.
    pub fusion_threshold_bytes: u64,
    /// Least time between the starts of two cycles, nanoseconds.
    pub cycle_time_ns: u64,
}

impl Default for Settings {
    /// Horovod's defaults: 128 MiB, 1 ms.
    fn default() -> Self {
        Self {
            version: 0,
            fusion_threshold_bytes: 128 << 20,
            cycle_time_ns: 1_000_000,
        }
    }
}
