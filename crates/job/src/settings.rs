//! Settings that can change while a job runs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Largest fusion threshold: 1 TiB, beyond any set of gradients and far from overflow in sums of
/// sizes.
pub const FUSION_THRESHOLD_BYTES_MAX: u64 = 1 << 40;

/// Longest cycle time: one minute, the stall inspector's default warning time. A longer one looks
/// like a hang.
pub const CYCLE_TIME_MS_MAX: f64 = 60_000.0;

/// The operations that are hierarchical if the ranks are on several hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hierarchy {
    /// Allreduces.
    pub allreduce: bool,
    /// Allgathers.
    pub allgather: bool,
}

/// Settings that can change while a job runs; in one cycle, every rank uses the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// Largest number of bytes of a batch of several tensors; 0 disables fusion.
    pub fusion_threshold_bytes: u64,
    /// Largest number of bytes of a batch of several tensors in device memory, if the fusion
    /// threshold is larger.
    pub gpu_fusion_threshold_bytes: u64,
    /// Shortest time between the starts of two cycles, nanoseconds.
    pub cycle_time_ns: u64,
    /// Whether known tensors are negotiated through the response cache.
    pub cache: bool,
    /// Whether allreduces are hierarchical.
    pub hierarchical_allreduce: bool,
    /// Whether allgathers are hierarchical.
    pub hierarchical_allgather: bool,
}

impl Settings {
    /// The operations that are hierarchical.
    pub fn hierarchy(&self) -> Hierarchy {
        Hierarchy {
            allreduce: self.hierarchical_allreduce,
            allgather: self.hierarchical_allgather,
        }
    }

    /// Largest number of bytes of a batch of several tensors in device memory.
    pub fn device_threshold_bytes(&self) -> u64 {
        self.fusion_threshold_bytes
            .min(self.gpu_fusion_threshold_bytes)
    }

    /// These settings without hierarchical operations.
    pub fn flat(self) -> Self {
        Self {
            hierarchical_allreduce: false,
            hierarchical_allgather: false,
            ..self
        }
    }

    /// The switches as bits of a word, as they are sent between ranks and stored in timelines.
    pub fn switches(&self) -> u64 {
        let switches = [
            self.cache,
            self.hierarchical_allreduce,
            self.hierarchical_allgather,
        ];
        (0..)
            .zip(switches)
            .map(|(bit, on)| u64::from(on) << bit)
            .sum()
    }

    /// Describes the first value outside of its setting's range; `None` if all are valid. Checked
    /// before a user's change is sent and when settings arrive from another rank.
    pub fn problem(&self) -> Option<String> {
        let cycle_time_ms = self.cycle_time_ns as f64 / 1e6;
        let threshold_bytes = self
            .fusion_threshold_bytes
            .max(self.gpu_fusion_threshold_bytes);
        if threshold_bytes > FUSION_THRESHOLD_BYTES_MAX {
            Some(format!(
                "a fusion threshold of {threshold_bytes} bytes is more than \
                 {FUSION_THRESHOLD_BYTES_MAX}"
            ))
        } else if cycle_time_ms > CYCLE_TIME_MS_MAX {
            Some(format!(
                "a cycle time of {cycle_time_ms} ms is more than {CYCLE_TIME_MS_MAX} ms"
            ))
        } else {
            None
        }
    }

    /// These settings with the switches of `word`, the format of [`switches`](Self::switches).
    pub fn with_switches(self, word: u64) -> Self {
        let is_on = |bit: u32| word >> bit & 1 == 1;
        Self {
            cache: is_on(0),
            hierarchical_allreduce: is_on(1),
            hierarchical_allgather: is_on(2),
            ..self
        }
    }
}

/// A value and the number of changes so far. A larger number is newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Versioned<T> {
    /// Number of changes.
    pub version: u64,
    /// Value after the last change.
    pub value: T,
}

impl<T: std::fmt::Display> std::fmt::Display for Versioned<T> {
    /// The value, without its version.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.value.fmt(f)
    }
}

impl<T> std::ops::Deref for Versioned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// A change of some settings. `None` leaves a setting as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartialSettings {
    /// Largest number of bytes of a batch of several tensors; 0 disables fusion.
    pub fusion_threshold_bytes: Option<u64>,
    /// Largest number of bytes of a batch of several tensors in device memory, if the fusion
    /// threshold is larger.
    #[serde(default)]
    pub gpu_fusion_threshold_bytes: Option<u64>,
    /// Shortest time between the starts of two cycles.
    pub cycle_time: Option<Duration>,
    /// Whether known tensors are negotiated through the response cache.
    pub cache: Option<bool>,
    /// Whether allreduces are hierarchical.
    pub hierarchical_allreduce: Option<bool>,
    /// Whether allgathers are hierarchical.
    pub hierarchical_allgather: Option<bool>,
}

/// The former name of [`PartialSettings`].
#[deprecated(note = "renamed to PartialSettings")]
pub type SettingsChange = PartialSettings;

impl PartialSettings {
    /// `settings` after this change.
    pub fn applied_to(&self, settings: &Settings) -> Settings {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Settings {
            fusion_threshold_bytes: self
                .fusion_threshold_bytes
                .unwrap_or(settings.fusion_threshold_bytes),
            gpu_fusion_threshold_bytes: self
                .gpu_fusion_threshold_bytes
                .unwrap_or(settings.gpu_fusion_threshold_bytes),
            cycle_time_ns: self.cycle_time.map_or(settings.cycle_time_ns, nanos),
            cache: self.cache.unwrap_or(settings.cache),
            hierarchical_allreduce: self
                .hierarchical_allreduce
                .unwrap_or(settings.hierarchical_allreduce),
            hierarchical_allgather: self
                .hierarchical_allgather
                .unwrap_or(settings.hierarchical_allgather),
        }
    }
}

impl Default for Settings {
    /// Horovod's defaults: 128 MiB, 1 ms, response cache on, no operation hierarchical; 32 MiB in
    /// device memory.
    fn default() -> Self {
        Self {
            fusion_threshold_bytes: 128 << 20,
            gpu_fusion_threshold_bytes: 32 << 20,
            cycle_time_ns: 1_000_000,
            cache: true,
            hierarchical_allreduce: false,
            hierarchical_allgather: false,
        }
    }
}

impl std::fmt::Display for Settings {
    /// Fusion threshold in MiB, which Horovod's flags call MB, and cycle time in ms. The threshold
    /// of GPUs is shown if it is not the default.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (fusion_mb, cycle_ms) = (
            self.fusion_threshold_bytes as f64 / f64::from(1 << 20),
            self.cycle_time_ns as f64 / 1e6,
        );
        write!(
            f,
            "{} MiB, cycle {} ms",
            Rounded(fusion_mb),
            Rounded(cycle_ms)
        )?;
        if self.gpu_fusion_threshold_bytes != Self::default().gpu_fusion_threshold_bytes {
            let gpu_mb = self.gpu_fusion_threshold_bytes as f64 / f64::from(1 << 20);
            write!(f, ", {} MiB on GPUs", Rounded(gpu_mb))?;
        }
        f.write_str(if self.cache {
            ""
        } else {
            ", no response cache"
        })?;
        f.write_str(
            match (self.hierarchical_allreduce, self.hierarchical_allgather) {
                (false, false) => "",
                (true, false) => ", hierarchical allreduce",
                (false, true) => ", hierarchical allgather",
                (true, true) => ", hierarchical allreduce and allgather",
            },
        )
    }
}

/// A number with three significant digits and no trailing zeros.
struct Rounded(f64);

impl std::fmt::Display for Rounded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let decimals = if self.0 >= 100.0 {
            0
        } else if self.0 >= 10.0 {
            1
        } else {
            2
        };
        let text = format!("{:.decimals$}", self.0);
        f.write_str(if decimals == 0 {
            &text
        } else {
            text.trim_end_matches('0').trim_end_matches('.')
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_survive_as_bits() {
        for word in 0..8 {
            let settings = Settings {
                cycle_time_ns: 3,
                ..Settings::default()
            };
            let switched = settings.with_switches(word);
            assert_eq!((switched.switches(), switched.cycle_time_ns), (word, 3));
        }
        assert_eq!(Settings::default().switches(), 1);
        let all = Settings::default().with_switches(7);
        assert!(all.hierarchy().allreduce && all.hierarchy().allgather);
        assert_eq!(all.flat().switches(), 1);
    }

    #[test]
    fn a_change_touches_what_it_names() {
        let change = PartialSettings {
            hierarchical_allgather: Some(true),
            ..PartialSettings::default()
        };
        let after = change.applied_to(&Settings::default());
        assert_eq!(after.switches(), 0b101);
        assert_eq!(
            after.to_string(),
            "128 MiB, cycle 1 ms, hierarchical allgather"
        );
        let change = PartialSettings {
            gpu_fusion_threshold_bytes: Some(8 << 20),
            ..PartialSettings::default()
        };
        let after = change.applied_to(&Settings::default());
        assert_eq!(after.to_string(), "128 MiB, cycle 1 ms, 8 MiB on GPUs");
        assert_eq!(after.device_threshold_bytes(), 8 << 20);
    }
}
