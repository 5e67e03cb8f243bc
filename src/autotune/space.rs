//! Search space of the tuner: the tunable parameters, without those that have no effect here or
//! that the user has set.

use ronde_tuner::{Error, Parameter, Point, Space};

use super::report::NotTuned;
use super::{MIB, trace};
use crate::identity::Hosts;
use crate::knobs::Knobs;
use crate::replay::Setting;
use crate::settings::Settings;

/// Positions of the parameters in a point.
pub(super) const FUSION_MB: usize = 0;
pub(super) const CYCLE_MS: usize = 1;
pub(super) const CACHE: usize = 2;
pub(super) const HIERARCHICAL_ALLREDUCE: usize = 3;
pub(super) const HIERARCHICAL_ALLGATHER: usize = 4;

/// Facts of the job that decide which parameters have an effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Facts {
    pub(super) ranks: usize,
    pub(super) hosts: Hosts,
    /// Number of tensors in a step, once it is known.
    pub(super) tensors: Option<usize>,
    /// Whether there are allgathers among them.
    pub(super) allgathers: bool,
    /// Whether there are tensors in device memory: the fusion threshold is then that of GPUs.
    pub(super) on_gpu: bool,
}

/// Search space, start and the knobs that are not tuned.
#[derive(Clone, Debug)]
pub(super) struct Tunable {
    pub(super) space: Space,
    /// Start settings.
    pub(super) start: Point,
    pub(super) not_tuned: Vec<NotTuned>,
    /// Whether the fusion threshold is that of GPUs.
    pub(super) on_gpu: bool,
    /// Thresholds of the knobs, bytes.
    fusion_threshold_bytes: u64,
    gpu_fusion_threshold_bytes: u64,
}

impl Tunable {
    /// Returns the parameters that the knobs leave to the tuner in a job with these facts.
    ///
    /// # Errors
    /// The start settings are invalid.
    pub(super) fn new(knobs: &Knobs, facts: &Facts) -> Result<Self, Error> {
        let wanted = knobs.autotune_start.unwrap_or_default();
        let fusion_mb = if knobs.disable_group_fusion {
            0.0
        } else {
            let of_gpus = match facts.on_gpu {
                true => knobs.gpu_fusion_threshold_bytes,
                false => u64::MAX,
            };
            let threshold_bytes = knobs.fusion_threshold_bytes.min(of_gpus);
            wanted.fusion_mb.unwrap_or(threshold_bytes as f64 / MIB)
        };
        let cycle_ms = wanted.cycle_ms.unwrap_or(knobs.cycle_time_ms);
        let hierarchical = facts.hosts.why_flat().is_none();
        let flags = [
            knobs.cache_capacity > 0,
            knobs.hierarchical_allreduce && hierarchical,
            knobs.hierarchical_allgather && hierarchical,
        ];
        let [cache, allreduce, allgather] = flags.map(|on| f64::from(u8::from(on)));

        let not_tuned = not_tuned(knobs, facts);
        let is_left_alone = |knob: &str| not_tuned.iter().any(|not_tuned| not_tuned.knob == knob);
        let fixed = |parameter: Parameter, value: f64| {
            if is_left_alone(parameter.name()) {
                parameter.fixed(value)
            } else {
                parameter
            }
        };
        // Threshold: 0 and 16 values from 64 KiB to 256 MiB; cycle time: 13 values from 0.1 to 100
        // ms; both log-spaced.
        let fusion = Parameter::log("fusion_mb", 1.0 / 16.0, 256.0, 16)
            .with_zero()
            .rough();
        let cycle = Parameter::log("cycle_ms", 0.1, 100.0, 13);
        let space = Space::new(vec![
            fixed(fusion, fusion_mb),
            fixed(cycle, cycle_ms),
            fixed(Parameter::boolean("cache"), cache),
            fixed(Parameter::boolean("hierarchical_allreduce"), allreduce),
            fixed(Parameter::boolean("hierarchical_allgather"), allgather),
        ])?;
        let start = space.point(&[fusion_mb, cycle_ms, cache, allreduce, allgather])?;
        Ok(Self {
            space,
            start,
            not_tuned,
            on_gpu: facts.on_gpu,
            fusion_threshold_bytes: match knobs.disable_group_fusion {
                true => 0,
                false => knobs.fusion_threshold_bytes,
            },
            gpu_fusion_threshold_bytes: knobs.gpu_fusion_threshold_bytes,
        })
    }

    /// Converts a point to settings. On GPUs the fusion threshold of host memory stays, unless that
    /// of GPUs is larger.
    pub(super) fn settings(&self, point: &Point) -> Settings {
        let settings = of_host_memory(point);
        let threshold_bytes = settings.fusion_threshold_bytes;
        if !self.on_gpu {
            return Settings {
                gpu_fusion_threshold_bytes: self.gpu_fusion_threshold_bytes,
                ..settings
            };
        }
        Settings {
            fusion_threshold_bytes: match threshold_bytes {
                0 => 0,
                _ => threshold_bytes.max(self.fusion_threshold_bytes),
            },
            gpu_fusion_threshold_bytes: threshold_bytes,
            ..settings
        }
    }

    /// Returns the point with these values, in the order of the parameters, if it is in the space.
    pub(super) fn point(&self, values: [f64; 5]) -> Option<Point> {
        // Values may be rounded: those of a log, for example.
        let lattice = self.space.lattice(&self.start);
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-5 * a.abs().max(b.abs());
        let same = |point: &&Point| point.values().iter().zip(values).all(|(&a, b)| near(a, b));
        let level = lattice.iter().find(same).copied();
        level.or_else(|| self.space.point(&values).ok())
    }
}

/// Converts a point to settings of a job whose tensors are in host memory.
fn of_host_memory(point: &Point) -> Settings {
    Settings {
        fusion_threshold_bytes: (point.value(FUSION_MB) * MIB).round() as u64,
        cycle_time_ns: (point.value(CYCLE_MS) * 1e6).round() as u64,
        cache: point.flag(CACHE),
        hierarchical_allreduce: point.flag(HIERARCHICAL_ALLREDUCE),
        hierarchical_allgather: point.flag(HIERARCHICAL_ALLGATHER),
        ..Settings::default()
    }
}

/// Formats a point as settings.
pub(super) fn words(point: &Point) -> String {
    of_host_memory(point).to_string()
}

/// Converts a point to a setting of the replay, which has no tensors in device memory.
pub(super) fn setting(point: &Point) -> Setting {
    trace::setting(&of_host_memory(point))
}

fn not_tuned(knobs: &Knobs, facts: &Facts) -> Vec<NotTuned> {
    let alone = (facts.ranks == 1).then_some("one rank sends nothing");
    let fusion = alone
        .or(knobs
            .fixed
            .fusion_threshold
            .then_some("HOROVOD_FUSION_THRESHOLD is set"))
        .or((facts.on_gpu && knobs.fixed.gpu_fusion_threshold)
            .then_some("RONDE_GPU_FUSION_THRESHOLD is set"))
        .or(knobs
            .disable_group_fusion
            .then_some("HOROVOD_DISABLE_GROUP_FUSION is set"))
        .or((facts.tensors == Some(1)).then_some("a step has one tensor"));
    let cycle = alone.or(knobs
        .fixed
        .cycle_time
        .then_some("HOROVOD_CYCLE_TIME is set"));
    let cache = alone
        .or(knobs
            .fixed
            .cache_capacity
            .then_some("HOROVOD_CACHE_CAPACITY is set"))
        .or((knobs.cache_capacity == 0).then_some("its capacity is 0"))
        .or((!knobs.autotune_cache).then_some("RONDE_AUTOTUNE_CACHE=1 has it tuned"));
    let why_flat = alone.or(facts.hosts.why_flat());
    let gathers_nothing =
        (facts.tensors.is_some() && !facts.allgathers).then_some("nothing is gathered");
    let allreduce = why_flat.or(knobs
        .fixed
        .hierarchical_allreduce
        .then_some("HOROVOD_HIERARCHICAL_ALLREDUCE is set"));
    let allgather = why_flat
        .or(knobs
            .fixed
            .hierarchical_allgather
            .then_some("HOROVOD_HIERARCHICAL_ALLGATHER is set"))
        .or(gathers_nothing);
    [
        ("fusion_mb", fusion),
        ("cycle_ms", cycle),
        ("cache", cache),
        ("hierarchical_allreduce", allreduce),
        ("hierarchical_allgather", allgather),
    ]
    .into_iter()
    .filter_map(|(knob, because)| {
        Some(NotTuned {
            knob,
            because: because?,
        })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: Facts = Facts {
        ranks: 4,
        hosts: Hosts {
            count: 1,
            least: 4,
            most: 4,
        },
        tensors: None,
        allgathers: false,
        on_gpu: false,
    };

    fn because(env: &[(&str, &str)], facts: Facts, knob: &str) -> Option<&'static str> {
        let not_tuned = not_tuned(&Knobs::of(env), &facts);
        not_tuned
            .iter()
            .find(|not_tuned| not_tuned.knob == knob)
            .map(|not_tuned| not_tuned.because)
    }

    #[test]
    fn a_knob_is_left_alone_for_a_reason() {
        assert_eq!(because(&[], JOB, "fusion_mb"), None);
        let set = [
            ("HOROVOD_FUSION_THRESHOLD", "1MB"),
            ("HOROVOD_CYCLE_TIME", "2"),
        ];
        assert_eq!(
            because(&set, JOB, "fusion_mb"),
            Some("HOROVOD_FUSION_THRESHOLD is set")
        );
        assert_eq!(
            because(&set, JOB, "cycle_ms"),
            Some("HOROVOD_CYCLE_TIME is set")
        );
        let one_tensor = Facts {
            tensors: Some(1),
            ..JOB
        };
        assert_eq!(
            because(&[], one_tensor, "fusion_mb"),
            Some("a step has one tensor")
        );
        let alone = Facts { ranks: 1, ..JOB };
        let all = ["fusion_mb", "cycle_ms", "cache", "hierarchical_allreduce"];
        assert!(
            all.iter()
                .all(|knob| because(&[], alone, knob) == Some("one rank sends nothing"))
        );
    }

    #[test]
    fn the_hierarchical_switches_are_tuned_where_they_matter() {
        let (allreduce, allgather) = ("hierarchical_allreduce", "hierarchical_allgather");
        assert_eq!(
            because(&[], JOB, allreduce),
            Some("all ranks are on one host")
        );
        let of = |hosts: Hosts| Facts { hosts, ..JOB };
        let alone = of(Hosts::of([1; 4]));
        assert_eq!(
            because(&[], alone, allgather),
            Some("every host has one rank")
        );
        let hosts = of(Hosts::of([2, 2]));
        assert_eq!(
            (
                because(&[], hosts, allreduce),
                because(&[], hosts, allgather)
            ),
            (None, None)
        );
        let learnt = |allgathers| Facts {
            tensors: Some(9),
            allgathers,
            ..hosts
        };
        assert_eq!(
            because(&[], learnt(false), allgather),
            Some("nothing is gathered")
        );
        assert_eq!(because(&[], learnt(true), allgather), None);
        // A parameter that the user sets is fixed, whatever its value.
        let set = [
            ("HOROVOD_HIERARCHICAL_ALLREDUCE", "0"),
            ("HOROVOD_HIERARCHICAL_ALLGATHER", "1"),
        ];
        assert_eq!(
            because(&set, hosts, allreduce),
            Some("HOROVOD_HIERARCHICAL_ALLREDUCE is set")
        );
        let tunable = Tunable::new(&Knobs::of(&set), &hosts).unwrap();
        let start = tunable.settings(&tunable.start);
        assert_eq!(
            (start.hierarchical_allreduce, start.hierarchical_allgather),
            (false, true)
        );
        assert_eq!(tunable.space.lattice(&tunable.start).len(), 17 * 13 + 1);
        // On one host it is off, whatever the user sets.
        let tunable = Tunable::new(&Knobs::of(&set), &JOB).unwrap();
        let start = tunable.settings(&tunable.start);
        assert_eq!(start, start.flat());
        let both = Tunable::new(&Knobs::of(&[]), &hosts).unwrap();
        assert_eq!(both.space.lattice(&both.start).len(), 4 * (17 * 13 + 1));
    }

    #[test]
    fn on_gpus_the_threshold_is_that_of_gpus() {
        let on_gpu = Facts {
            on_gpu: true,
            ..JOB
        };
        let thresholds = |tunable: &Tunable, point: &Point| {
            let settings = tunable.settings(point);
            let bytes = [
                settings.fusion_threshold_bytes,
                settings.gpu_fusion_threshold_bytes,
            ];
            (
                bytes.map(|bytes| bytes >> 20),
                settings.device_threshold_bytes() >> 20,
            )
        };
        let tunable = Tunable::new(&Knobs::of(&[]), &on_gpu).unwrap();
        assert_eq!(tunable.start.value(FUSION_MB), 32.0);
        assert_eq!(thresholds(&tunable, &tunable.start), ([128, 32], 32));
        // Every level is another setting, also beyond the threshold of host memory.
        let effective: std::collections::BTreeSet<u64> = tunable
            .space
            .lattice(&tunable.start)
            .iter()
            .map(|point| tunable.settings(point).device_threshold_bytes())
            .collect();
        assert_eq!(effective.len(), 18); // 17 levels and the start
        let of = |fusion_mb: f64| {
            tunable
                .space
                .point(&[fusion_mb, 1.0, 1.0, 0.0, 0.0])
                .unwrap()
        };
        assert_eq!(thresholds(&tunable, &of(256.0)), ([256, 256], 256));
        assert_eq!(thresholds(&tunable, &of(0.0)), ([0, 0], 0));
        // In host memory, the threshold of GPUs stays.
        let tunable =
            Tunable::new(&Knobs::of(&[("RONDE_GPU_FUSION_THRESHOLD", "8MB")]), &JOB).unwrap();
        assert_eq!(thresholds(&tunable, &tunable.start), ([128, 8], 8));
        let set = [("RONDE_GPU_FUSION_THRESHOLD", "8MB")];
        assert_eq!(
            because(&set, on_gpu, "fusion_mb"),
            Some("RONDE_GPU_FUSION_THRESHOLD is set")
        );
        assert_eq!(because(&set, JOB, "fusion_mb"), None);
    }

    #[test]
    fn the_cache_is_tuned_if_that_is_asked_for_and_left_open() {
        let asked = ("RONDE_AUTOTUNE_CACHE", "1");
        assert_eq!(because(&[asked], JOB, "cache"), None);
        assert!(because(&[], JOB, "cache").is_some());
        let set = [asked, ("HOROVOD_CACHE_CAPACITY", "64")];
        assert_eq!(
            because(&set, JOB, "cache"),
            Some("HOROVOD_CACHE_CAPACITY is set")
        );
        let tunable = Tunable::new(&Knobs::of(&[asked]), &JOB).unwrap();
        assert_eq!(tunable.space.lattice(&tunable.start).len(), 17 * 13 * 2 + 2);
    }

    #[test]
    fn a_point_and_its_settings_find_each_other() {
        let hosts = Facts {
            hosts: Hosts::of([2, 2]),
            ..JOB
        };
        let tunable = Tunable::new(
            &Knobs::of(&[
                ("RONDE_AUTOTUNE_START", "fusion_mb=3.3,cycle_ms=0.7"),
                ("RONDE_AUTOTUNE_CACHE", "1"),
            ]),
            &hosts,
        )
        .unwrap();
        for point in tunable.space.lattice(&tunable.start) {
            let settings = tunable.settings(&point);
            let rounded = [
                settings.fusion_threshold_bytes as f64 / MIB,
                settings.cycle_time_ns as f64 / 1e6,
                f64::from(u8::from(settings.cache)),
                f64::from(u8::from(settings.hierarchical_allreduce)),
                f64::from(u8::from(settings.hierarchical_allgather)),
            ];
            assert_eq!(tunable.point(rounded), Some(point), "{rounded:?}");
        }
        let fixed = Tunable::new(&Knobs::of(&[("HOROVOD_CYCLE_TIME", "2")]), &JOB).unwrap();
        assert_eq!(fixed.point([128.0, 1.0, 1.0, 0.0, 0.0]), None); // 1 ms is not in the space
        let line = NotTuned::line(&fixed.not_tuned);
        assert!(
            line.contains("cycle_ms (HOROVOD_CYCLE_TIME is set)"),
            "{line}"
        );
    }
}
