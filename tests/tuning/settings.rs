//! Tests of settings that a program changes itself, in jobs of several processes.

use std::time::Duration;

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
