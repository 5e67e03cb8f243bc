//! Space that several tests search.

use ronde_tuner::{Parameter, Space};

pub(crate) const MIB: f64 = 1048576.0;

/// Threshold, cycle time and one boolean, as a job has them.
pub(crate) fn space() -> Space {
    Space::new(vec![
        Parameter::log("fusion_threshold_bytes", 65536.0, 256.0 * MIB, 16)
            .with_zero()
            .rough(),
        Parameter::log("cycle_time_ms", 0.1, 100.0, 13),
        Parameter::boolean("hierarchical_allreduce"),
    ])
    .unwrap()
}
