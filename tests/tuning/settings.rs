//! Tests of settings that a program changes itself, and of settings of the environment that take
//! effect at the start, in jobs of processes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::{job, job_with};
use ronde::settings::{PartialSettings, Settings, Versioned};
use ronde::{Context, Error, ReduceOp, SettingsError};

fn context() -> Context {
    Context::from_env().expect("the job starts")
}

fn refusal(context: &Context, change: PartialSettings) -> String {
    match context.set_settings(change) {
        Err(error @ Error::Settings(SettingsError::Refused { .. })) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

const FUSION: PartialSettings = PartialSettings {
    fusion_threshold_bytes: Some(1 << 20),
    gpu_fusion_threshold_bytes: None,
    cycle_time: None,
    cache: None,
    hierarchical_allreduce: None,
    hierarchical_allgather: None,
};

#[test]
fn every_rank_goes_on_with_what_rank_0_has_set() {
    job(
        "settings::every_rank_goes_on_with_what_rank_0_has_set",
        3,
        || {
            let context = context();
            for round in 0..20_u64 {
                let change = PartialSettings {
                    fusion_threshold_bytes: Some(round << 10),
                    cycle_time: Some(Duration::from_micros(100 + round)),
                    cache: Some(round % 2 == 0),
                    ..PartialSettings::default()
                };
                if context.rank() == 0 {
                    let set = context.set_settings(change).expect("rank 0 may");
                    assert_eq!(set, context.settings());
                }
                // An operation submitted after a change runs in a later cycle than the one that
                // applies the change.
                let sum = context
                    .allreduce("x", vec![1.0_f32; 100], ReduceOp::Sum)
                    .expect("in");
                assert_eq!(sum.wait().expect("out"), vec![3.0; 100]);
                let expected = Versioned {
                    version: round + 1,
                    value: Settings {
                        fusion_threshold_bytes: round << 10,
                        cycle_time_ns: (100 + round) * 1_000,
                        cache: round % 2 == 0,
                        ..Settings::default()
                    },
                };
                // Rank 0's next change may have been applied already.
                let settings = context.settings();
                assert!(
                    settings == expected || (context.rank() > 0 && settings.version == round + 2),
                    "{settings:?}"
                );
            }
            if context.rank() > 0 {
                let message = refusal(&context, FUSION);
                assert!(
                    message.contains(&format!("this is rank {}", context.rank())),
                    "{message}"
                );
            }
        },
    );
}

#[test]
fn what_the_knobs_could_not_be_is_refused() {
    job_with(
        "settings::what_the_knobs_could_not_be_is_refused",
        1,
        &[
            ("HOROVOD_CACHE_CAPACITY", "0"),
            ("HOROVOD_DISABLE_GROUP_FUSION", "1"),
        ],
        || {
            let context = context();
            let before = context.settings();
            let message = refusal(&context, FUSION);
            assert!(
                message.contains("HOROVOD_DISABLE_GROUP_FUSION"),
                "{message}"
            );
            let cache = PartialSettings {
                cache: Some(true),
                ..PartialSettings::default()
            };
            assert!(refusal(&context, cache).contains("HOROVOD_CACHE_CAPACITY=0"));
            let cycle_time = Some(Duration::from_secs(1_000_000));
            let slow = PartialSettings {
                cycle_time,
                ..PartialSettings::default()
            };
            assert!(
                refusal(&context, slow)
                    .contains("a cycle time of 1000000000 ms is more than 60000 ms")
            );
            let bytes = PartialSettings {
                fusion_threshold_bytes: Some(u64::MAX),
                ..PartialSettings::default()
            };
            assert!(refusal(&context, bytes).contains("fusion threshold"));
            let hierarchical = PartialSettings {
                hierarchical_allgather: Some(true),
                ..PartialSettings::default()
            };
            assert!(refusal(&context, hierarchical).contains("all ranks are on one host"));
            assert_eq!(context.settings(), before);
        },
    );
}

#[test]
fn the_tuner_is_not_interfered_with() {
    job_with(
        "settings::the_tuner_is_not_interfered_with",
        1,
        &[("HOROVOD_AUTOTUNE", "1")],
        || {
            assert!(refusal(&context(), FUSION).contains("HOROVOD_AUTOTUNE=1"));
        },
    );
}

#[test]
fn on_one_host_no_operation_is_hierarchical_and_one_line_says_so() {
    let name = "settings::on_one_host_no_operation_is_hierarchical_and_one_line_says_so";
    let asked = [
        ("HOROVOD_HIERARCHICAL_ALLREDUCE", "1"),
        ("HOROVOD_HIERARCHICAL_ALLGATHER", "1"),
    ];
    let outcomes = job_with(name, 2, &asked, || {
        let context = context();
        let is_flat = |settings: Versioned<Settings>| {
            !settings.hierarchical_allreduce && !settings.hierarchical_allgather
        };
        assert!(is_flat(context.settings()));
        let sum = context
            .allreduce("x", vec![1_i32; 3], ReduceOp::Sum)
            .expect("in");
        assert_eq!(sum.wait().expect("out"), [2; 3]);
        assert!(is_flat(context.settings()));
    });
    let told: Vec<&str> = outcomes
        .iter()
        .flat_map(|outcome| outcome.output.lines())
        .filter(|line| line.contains("HIERARCHICAL"))
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    let words = "HOROVOD_HIERARCHICAL_ALLREDUCE and HOROVOD_HIERARCHICAL_ALLGATHER without effect: all ranks are on one host";
    assert!(told[0].ends_with(words), "{told:?}");
}

#[test]
fn the_threshold_of_gpus_is_that_of_the_environment() {
    let name = "settings::the_threshold_of_gpus_is_that_of_the_environment";
    job_with(name, 1, &[("RONDE_GPU_FUSION_THRESHOLD", "8MB")], || {
        let expected = Settings {
            gpu_fusion_threshold_bytes: 8 << 20,
            ..Settings::default()
        };
        assert_eq!(context().settings().value, expected);
    });
}

/// Cores that a thread of this process may use, such as `0-3,8`; `None` if it has ended.
fn allowed_cores(thread: &Path) -> Option<String> {
    let status = std::fs::read_to_string(thread.join("status")).ok()?;
    let cores = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    cores.map(|cores| cores.trim().to_owned())
}

#[test]
fn the_cycle_thread_of_each_local_rank_has_its_core() {
    let name = "settings::the_cycle_thread_of_each_local_rank_has_its_core";
    let own = Path::new("/proc/thread-self");
    let all = allowed_cores(own).expect("it runs");
    let (first, last) = (all.split(['-', ',']).next(), all.rsplit(['-', ',']).next());
    // On a machine of one core both are the same.
    let cores = [last, first].map(|core| core.expect("a core").to_owned());
    let variable = ("HOROVOD_THREAD_AFFINITY", &*cores.join(","));
    job_with(name, 2, &[variable], || {
        let context = context();
        let of_cycle = |thread: &PathBuf| {
            let name = std::fs::read_to_string(thread.join("comm"));
            name.is_ok_and(|name| name.trim() == "ronde-cycle")
        };
        let found = || -> Vec<String> {
            let threads = std::fs::read_dir("/proc/self/task").expect("procfs");
            let threads = threads.map(|thread| thread.expect("a thread").path());
            let of_cycle = threads.filter(of_cycle);
            of_cycle
                .filter_map(|thread| allowed_cores(&thread))
                .collect()
        };
        // The thread may not have run yet.
        let (began, expected) = (Instant::now(), [cores[context.local_rank()].clone()]);
        while found() != expected && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(found(), expected);
        assert_eq!(
            allowed_cores(own).as_deref(),
            Some(&*all),
            "only that thread"
        );
        context.barrier().expect("all come");
    });
}
