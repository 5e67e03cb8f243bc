//! Formats tuned settings for pasting: as environment variables or as flags.

use serde::Serialize;

/// Capacity of the response cache if it is only known to be on: Horovod's default.
const CACHE_CAPACITY: u32 = 1024;

/// Switches of a setting, in the order of the columns of Horovod's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Switch {
    /// Hierarchical allreduce.
    HierarchicalAllreduce,
    /// Hierarchical allgather.
    HierarchicalAllgather,
    /// Torus allreduce.
    TorusAllreduce,
    /// Response cache.
    CacheEnabled,
}

impl Switch {
    /// All switches.
    pub const ALL: [Self; 4] = [
        Self::HierarchicalAllreduce,
        Self::HierarchicalAllgather,
        Self::TorusAllreduce,
        Self::CacheEnabled,
    ];

    /// Name of the column in the log's header.
    pub fn column(self) -> &'static str {
        NAMES[self as usize].0
    }

    /// Name for sentences.
    pub fn name(self) -> &'static str {
        NAMES[self as usize].1
    }
}

/// Columns and names of the switches, in the order of [`Switch::ALL`].
const NAMES: [(&str, &str); 4] = [
    ("hierarchical_allreduce", "hierarchical allreduce"),
    ("hierarchical_allgather", "hierarchical allgather"),
    ("torus_allreduce", "torus allreduce"),
    ("cache_enabled", "response cache"),
];

/// Setting to format.
#[derive(Clone, Debug, Default)]
pub struct Paste {
    /// Fusion threshold, bytes.
    pub fusion_threshold_bytes: u64,
    /// Threshold of the host, bytes, if the lower one of GPUs limits the batches: then the latter
    /// is the one to change.
    pub host_threshold_bytes: Option<u64>,
    /// Cycle time, ms, formatted with the digits to print.
    pub cycle_time_ms: String,
    /// Switches, in the order of [`Switch::ALL`]; `None` is omitted.
    pub switches: [Option<bool>; 4],
}

impl Paste {
    /// Formats the setting as `HOROVOD_FUSION_THRESHOLD=16777216 HOROVOD_CYCLE_TIME=2.5`.
    pub fn environment(&self) -> String {
        let bytes = self.fusion_threshold_bytes;
        let thresholds = self.thresholds(
            format!("HOROVOD_FUSION_THRESHOLD={bytes}"),
            format!("RONDE_GPU_FUSION_THRESHOLD={bytes}"),
        );
        let mut line = format!("{thresholds} HOROVOD_CYCLE_TIME={}", self.cycle_time_ms);
        for (switch, on) in self.switches() {
            line += &match switch {
                Switch::CacheEnabled => format!(" HOROVOD_CACHE_CAPACITY={}", capacity(on)),
                other => format!(
                    " HOROVOD_{}={}",
                    other.column().to_uppercase(),
                    u8::from(on)
                ),
            };
        }
        line
    }

    /// Formats the setting as `--fusion-threshold-mb 16 --cycle-time-ms 2.5`; `fusion_mb` is the
    /// threshold in whole MiB, the only form that `horovodrun` accepts.
    pub fn flags(&self, fusion_mb: u64) -> String {
        let thresholds = self.thresholds(
            format!("--fusion-threshold-mb {fusion_mb}"),
            format!("--gpu-fusion-threshold {}", self.fusion_threshold_bytes),
        );
        let mut line = format!("{thresholds} --cycle-time-ms {}", self.cycle_time_ms);
        for (switch, on) in self.switches() {
            let no = if on { "" } else { "no-" };
            line += &match switch {
                Switch::CacheEnabled => format!(" --cache-capacity {}", capacity(on)),
                other => format!(" --{no}{}", other.column().replace('_', "-")),
            };
        }
        line
    }

    /// The threshold of the host, of GPUs, or both.
    fn thresholds(&self, of_host: String, of_gpus: String) -> String {
        match self.host_threshold_bytes {
            None => of_host,
            Some(host) if self.fusion_threshold_bytes <= host => of_gpus,
            Some(_) => format!("{of_host} {of_gpus}"),
        }
    }

    fn switches(&self) -> impl Iterator<Item = (Switch, bool)> {
        let switches = Switch::ALL.into_iter().zip(self.switches);
        switches.filter_map(|(switch, on)| Some((switch, on?)))
    }
}

fn capacity(on: bool) -> u32 {
    if on { CACHE_CAPACITY } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ronde::knobs::KNOBS;

    #[test]
    fn only_what_is_said_is_pasted() {
        let mut paste = Paste {
            fusion_threshold_bytes: 16 << 20,
            cycle_time_ms: "2.5".to_owned(),
            ..Paste::default()
        };
        assert_eq!(
            (paste.environment(), paste.flags(16)),
            (
                "HOROVOD_FUSION_THRESHOLD=16777216 HOROVOD_CYCLE_TIME=2.5".to_owned(),
                "--fusion-threshold-mb 16 --cycle-time-ms 2.5".to_owned()
            )
        );
        paste.switches = [None, Some(false), None, Some(true)];
        assert!(
            paste
                .environment()
                .ends_with("=2.5 HOROVOD_HIERARCHICAL_ALLGATHER=0 HOROVOD_CACHE_CAPACITY=1024")
        );
        assert!(
            paste
                .flags(16)
                .ends_with(" 2.5 --no-hierarchical-allgather --cache-capacity 1024")
        );
    }

    #[test]
    fn on_gpus_the_lower_threshold_is_the_one_to_change() {
        let line = |fusion_threshold_bytes| {
            let paste = Paste {
                fusion_threshold_bytes,
                host_threshold_bytes: Some(64),
                cycle_time_ms: "1".to_owned(),
                ..Paste::default()
            };
            [paste.environment(), paste.flags(1)]
        };
        assert_eq!(
            line(64),
            [
                "RONDE_GPU_FUSION_THRESHOLD=64 HOROVOD_CYCLE_TIME=1",
                "--gpu-fusion-threshold 64 --cycle-time-ms 1"
            ]
        );
        assert_eq!(
            line(65),
            [
                "HOROVOD_FUSION_THRESHOLD=65 RONDE_GPU_FUSION_THRESHOLD=65 HOROVOD_CYCLE_TIME=1",
                "--fusion-threshold-mb 1 --gpu-fusion-threshold 65 --cycle-time-ms 1"
            ]
        );
    }

    #[test]
    fn every_variable_is_one_that_is_known() {
        let paste = Paste {
            switches: [Some(true), Some(true), Some(true), Some(false)],
            ..Paste::default()
        };
        let line = paste.environment();
        assert_eq!(line.split(' ').count(), 6);
        for word in line.split(' ') {
            let (variable, _) = word.split_once('=').unwrap();
            assert!(KNOBS.iter().any(|knob| knob.env == variable), "{variable}");
        }
    }
}
