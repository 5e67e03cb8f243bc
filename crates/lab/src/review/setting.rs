//! Settings as they appear in logs, and their environment variables and flags.

use ronde_tuner::LogRow;
use serde::Serialize;

use crate::paste::Paste;
pub use crate::paste::Switch;
use ronde_job::units::setting as knob;

/// Bytes of one MiB, the unit of thresholds in logs.
const MIB: f64 = 1048576.0;
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
        let setting = |fusion_mb, cycle_ms| Self {
            fusion_mb,
            cycle_ms,
            switches,
        };
        let row = |&fusion_mb| {
            let settings = cycle_ms.iter();
            settings.map(move |&cycle_ms| setting(fusion_mb, cycle_ms))
        };
        fusion_mb.iter().flat_map(row).collect()
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
    /// `ronde run` and of horovodrun, which accepts only whole MiB.
    pub fn paste(&self, varied: &[Switch]) -> [String; 2] {
        let of = |switch: Switch| self.switch(switch).filter(|_| varied.contains(&switch));
        let paste = Paste {
            fusion_threshold_bytes: (self.fusion_mb * MIB).round_ties_even() as u64,
            cycle_time_ms: knob(self.cycle_ms),
            switches: Switch::ALL.map(of),
        };
        let least = f64::from(u8::from(self.fusion_mb > 0.0));
        let whole_mb = self.fusion_mb.round().max(least) as u64;
        [paste.environment(), paste.flags(whole_mb)]
    }
}

/// Returns `count` levels from `low` to `high` with a constant ratio; both are above 0.
pub fn geometric([low, high]: [f64; 2], count: usize) -> Vec<f64> {
    let ratio = (high / low).ln() / (count - 1) as f64;
    let level = |level| low * (ratio * level as f64).exp();
    (0..count).map(level).collect()
}

/// Least and largest of the values.
pub fn range(values: impl IntoIterator<Item = f64>) -> [f64; 2] {
    let values = values.into_iter();
    values.fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], value| {
        [low.min(value), high.max(value)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(fusion_mb: f64, cycle_ms: f64) -> Setting {
        Setting {
            fusion_mb,
            cycle_ms,
            switches: [Some(true), Some(false), None, Some(false)],
        }
    }

    #[test]
    fn settings_as_words_and_flags() {
        let mut setting = setting(37.2728, 14.5041);
        let varied = [Switch::HierarchicalAllreduce, Switch::CacheEnabled];
        assert_eq!(setting.words(&[]), "37.27 MiB, 14.5 ms");
        assert_eq!(
            setting.words(&varied),
            "37.27 MiB, 14.5 ms, hierarchical allreduce, no response cache"
        );
        let [environment, _] = setting.paste(&varied[1..]);
        assert_eq!(
            environment,
            "HOROVOD_FUSION_THRESHOLD=39083364 HOROVOD_CYCLE_TIME=14.5 HOROVOD_CACHE_CAPACITY=0"
        );
        for (fusion_mb, whole) in [(37.27, 37), (0.0625, 1), (0.0, 0)] {
            setting.fusion_mb = fusion_mb;
            let flags = format!("--fusion-threshold-mb {whole} --cycle-time-ms 14.5");
            assert_eq!(setting.paste(&[])[1], flags);
        }
    }

    #[test]
    fn near_is_within_a_hundredth() {
        for (a, b, near) in [
            ((17.5125, 19.66), (17.5163, 19.67), true),
            ((17.5, 19.0), (17.5, 19.5), false),
            ((0.0, 1.0), (0.0, 1.0), true),
            ((0.0, 1.0), (0.1, 1.0), false),
        ] {
            assert_eq!(setting(a.0, a.1).is_near(&setting(b.0, b.1)), near);
        }
        let mut other = setting(4.0, 5.0);
        other.switches[3] = Some(true);
        assert!(!setting(4.0, 5.0).is_near(&other));
    }
}
