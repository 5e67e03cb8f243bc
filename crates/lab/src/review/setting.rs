//! Settings as they appear in logs, and their environment variables and flags.

use ronde_tuner::LogRow;
use serde::Serialize;

use crate::paste::Paste;
pub use crate::paste::Switch;
use ronde_job::units::setting as knob;

/// Bytes of one MiB, the unit of thresholds in logs.
const MIB: f64 = 1048576.0;
/// Threshold of tensors in host memory, bytes, beside a tuned one of GPUs: Horovod's default, since a
/// threshold that is set is not tuned.
const HOST_THRESHOLD_BYTES: u64 = 128 << 20;
/// Settings within this relative difference count as one setting.
const NEAR: f64 = 0.01;

/// Combination of knobs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// Fusion threshold, MiB; 0 = no fusion.
    pub fusion_mb: f64,
    /// Cycle time, ms.
    pub cycle_ms: f64,
    /// Switches, in the order of [`Switch::ALL`]; `None` if the log has no such column.
    pub switches: [Option<bool>; 4],
}

impl Setting {
    pub(super) fn of(row: &LogRow) -> Option<Self> {
        Some(Self {
            fusion_mb: row.fusion_mb?,
            cycle_ms: row.cycle_time_ms?,
            switches: [
                row.hierarchical_allreduce,
                row.hierarchical_allgather,
                row.torus_allreduce,
                row.cache_enabled,
            ],
        })
    }

    /// Returns all combinations of these thresholds and cycle times, cycle times varying fastest.
    pub fn grid(fusion_mb: &[f64], cycle_ms: &[f64], switches: [Option<bool>; 4]) -> Vec<Self> {
        let setting = |(fusion_mb, cycle_ms)| Self {
            fusion_mb,
            cycle_ms,
            switches,
        };
        let row = |&fusion_mb| cycle_ms.iter().map(move |&cycle_ms| (fusion_mb, cycle_ms));
        fusion_mb.iter().flat_map(row).map(setting).collect()
    }

    /// Returns the value of a switch, if the log contains it.
    pub fn switch(&self, switch: Switch) -> Option<bool> {
        self.switches[switch as usize]
    }

    /// Whether measurements cannot distinguish the settings: numbers within 1 %, switches equal.
    pub fn is_near(&self, other: &Self) -> bool {
        let near = |a: f64, b: f64| (a - b).abs() <= NEAR * a.abs().max(b.abs());
        self.switches == other.switches
            && near(self.fusion_mb, other.fusion_mb)
            && near(self.cycle_ms, other.cycle_ms)
    }

    /// Formats the setting as `37.27 MiB, 14.5 ms`, with unusual switches among `varied`.
    pub fn words(&self, varied: &[Switch]) -> String {
        let mut words = format!("{} MiB, {} ms", knob(self.fusion_mb), knob(self.cycle_ms));
        for &switch in varied {
            match (switch, self.switch(switch)) {
                (Switch::CacheEnabled, Some(false)) => words += ", no response cache",
                (Switch::CacheEnabled, _) | (_, Some(false) | None) => {}
                (_, Some(true)) => words += &format!(", {}", switch.name()),
            }
        }
        words
    }

    /// Formats the setting with the switches in `varied` as environment variables, and as flags of
    /// `ronde run` and of horovodrun, which accepts only whole MiB. `on_gpu` if the threshold is that
    /// of GPUs, which horovodrun does not have.
    pub fn paste(&self, varied: &[Switch], on_gpu: bool) -> [String; 2] {
        let of = |switch: Switch| self.switch(switch).filter(|_| varied.contains(&switch));
        let paste = Paste {
            fusion_threshold_bytes: (self.fusion_mb * MIB).round_ties_even() as u64,
            cycle_time_ms: knob(self.cycle_ms),
            switches: Switch::ALL.map(of),
            host_threshold_bytes: on_gpu.then_some(HOST_THRESHOLD_BYTES),
        };
        let least = f64::from(self.fusion_mb > 0.0);
        let whole_mb = self.fusion_mb.round().max(least) as u64;
        [paste.environment(), paste.flags(whole_mb)]
    }
}
