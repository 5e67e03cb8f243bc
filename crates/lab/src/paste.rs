//! Formats tuned settings for pasting: as environment variables or as flags.

/// Capacity of the response cache if it is only known to be on: Horovod's default.
const CACHE_CAPACITY: u32 = 1024;

/// Setting to format. Switches that are `None` are omitted.
#[derive(Clone, Debug, Default)]
pub struct Paste {
    /// Fusion threshold, bytes.
    pub fusion_threshold_bytes: u64,
    /// Cycle time, ms, formatted with the digits to print.
    pub cycle_time_ms: String,
    /// Hierarchical allreduce.
    pub hierarchical_allreduce: Option<bool>,
    /// Hierarchical allgather.
    pub hierarchical_allgather: Option<bool>,
    /// Torus allreduce.
    pub torus_allreduce: Option<bool>,
    /// Response cache.
    pub cache: Option<bool>,
}

impl Paste {
    /// Formats the setting as `HOROVOD_FUSION_THRESHOLD=16777216 HOROVOD_CYCLE_TIME=2.5`.
    pub fn environment(&self) -> String {
        let mut line = format!(
            "HOROVOD_FUSION_THRESHOLD={} HOROVOD_CYCLE_TIME={}",
            self.fusion_threshold_bytes, self.cycle_time_ms
        );
        for (variable, _, on) in self.switches() {
            line += &format!(" {variable}={}", u8::from(on));
        }
        if let Some(cache) = self.cache {
            line += &format!(" HOROVOD_CACHE_CAPACITY={}", capacity(cache));
        }
        line
    }

    /// Formats the setting as `--fusion-threshold-mb 16 --cycle-time-ms 2.5`; `fusion_mb` is the
    /// threshold in whole MiB, the only form that `horovodrun` accepts.
    pub fn flags(&self, fusion_mb: u64) -> String {
        let mut line = format!(
            "--fusion-threshold-mb {fusion_mb} --cycle-time-ms {}",
            self.cycle_time_ms
        );
        for (_, flag, on) in self.switches() {
            line += &format!(" --{}{flag}", if on { "" } else { "no-" });
        }
        if let Some(cache) = self.cache {
            line += &format!(" --cache-capacity {}", capacity(cache));
        }
        line
    }

    /// Variable, flag and value of the switches.
    fn switches(&self) -> impl Iterator<Item = (&'static str, &'static str, bool)> {
        let switches = [
            (
                "HOROVOD_HIERARCHICAL_ALLREDUCE",
                "hierarchical-allreduce",
                self.hierarchical_allreduce,
            ),
            (
                "HOROVOD_HIERARCHICAL_ALLGATHER",
                "hierarchical-allgather",
                self.hierarchical_allgather,
            ),
            (
                "HOROVOD_TORUS_ALLREDUCE",
                "torus-allreduce",
                self.torus_allreduce,
            ),
        ];
        switches
            .into_iter()
            .filter_map(|(variable, flag, on)| Some((variable, flag, on?)))
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
        (paste.hierarchical_allgather, paste.cache) = (Some(false), Some(true));
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
    fn every_variable_is_one_that_is_known() {
        let paste = Paste {
            hierarchical_allreduce: Some(true),
            hierarchical_allgather: Some(true),
            torus_allreduce: Some(true),
            cache: Some(false),
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
