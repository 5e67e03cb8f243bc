//! Tests of the knobs: reading, printing, and the table as a whole.

use super::*;
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

fn read(pairs: &[(&str, &str)]) -> Result<Knobs, KnobError> {
    let pairs: HashMap<&str, &str> = pairs.iter().copied().collect();
    Knobs::from_lookup(|name| pairs.get(name).copied())
}

#[test]
fn defaults_are_horovods() {
    let knobs = Knobs::default();
    assert_eq!(knobs.fusion_threshold_bytes, 128 * 1024 * 1024);
    assert_eq!(knobs.cycle_time_ms, 1.0);
    assert_eq!(knobs.cache_capacity, 1024);
    assert_eq!(
        (knobs.stall_warning_seconds, knobs.stall_shutdown_seconds),
        (60, 0)
    );
    assert_eq!(knobs.log_level, LogLevel::Warning);
    assert!(!knobs.autotune && knobs.early_cycle);
    assert_eq!(knobs, read(&[]).unwrap());
}

#[test]
fn without_the_stall_check_a_wait_has_no_warning_and_no_limit() {
    let mut variables = vec![
        ("HOROVOD_STALL_CHECK_TIME_SECONDS", "2"),
        ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "3"),
    ];
    let waits = |variables: &[_]| {
        let knobs = read(variables).unwrap();
        (knobs.stall_warning(), knobs.stall_shutdown())
    };
    let seconds = Duration::from_secs;
    assert_eq!(waits(&variables), (seconds(2), Some(seconds(3))));
    variables.push(("HOROVOD_STALL_CHECK_DISABLE", "1"));
    assert_eq!(waits(&variables), (Duration::ZERO, None));
}

#[test]
fn every_name_variable_and_flag_is_unique() {
    let flags = |knob: &Knob| {
        let Some(flag) = knob.flag else {
            return Vec::new();
        };
        let mut names = vec![flag.long];
        names.extend(flag.aliases);
        if let FlagForm::Switch { off, off_aliases } = flag.form {
            names.push(off);
            names.extend(off_aliases);
        }
        names
    };
    let (mut seen, mut flag_names) = (HashSet::new(), HashSet::new());
    for knob in KNOBS {
        assert!(seen.insert(knob.name), "{} stands twice", knob.name);
        assert!(seen.insert(knob.env), "{} stands twice", knob.env);
        for flag in flags(knob) {
            assert!(flag_names.insert(flag), "--{flag} stands twice");
        }
        assert!(
            ["HOROVOD_", "RONDE_", "BYTEPS_TRACE_"]
                .iter()
                .any(|prefix| knob.env.starts_with(prefix)),
            "{}",
            knob.env
        );
        assert!(
            knob.doc.ends_with('.') && !knob.doc.contains("  "),
            "{}: {:?}",
            knob.name,
            knob.doc
        );
    }
    for name in IGNORED.iter().flat_map(|group| group.names) {
        assert!(seen.insert(name), "{name} stands twice");
    }
}

#[test]
fn a_bad_value_names_variable_value_and_range() {
    let error = read(&[("HOROVOD_CYCLE_TIME", "-3")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "HOROVOD_CYCLE_TIME=-3 does not fit knob cycle_time_ms: expected a number from 0 to 60000 (ms); \
         correct it or unset HOROVOD_CYCLE_TIME (default 1)"
    );
    let bad = [
        ("HOROVOD_FUSION_THRESHOLD", "64X"),
        ("HOROVOD_FUSION_THRESHOLD", "1099511627777"),
        ("HOROVOD_CACHE_CAPACITY", "many"),
        ("HOROVOD_AUTOTUNE", "yes"),
        ("HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "1.5"),
        ("HOROVOD_THREAD_AFFINITY", "0,x"),
        ("HOROVOD_STALL_CHECK_TIME_SECONDS", "0"),
        ("RONDE_LINK", "1000"),
        ("RONDE_AUTOTUNE_START", "fusion=3"),
        ("RONDE_JOB_ID", "two words"),
        ("RONDE_BACKEND", "carrier-pigeon"),
        ("RONDE_TIMELINE_STEPS", "100"),
        ("RONDE_TIMELINE_STEPS", "9..8"),
        ("RONDE_TIMELINE_STEPS", "0..8"),
        ("BYTEPS_TRACE_START_STEP", "0"),
    ];
    for (env, value) in bad {
        let error = read(&[(env, value)]).unwrap_err();
        assert_eq!((error.env, error.found.as_str()), (env, value));
    }
}

#[test]
fn an_unknown_log_level_is_warning_as_in_horovod() {
    for level in ["WARN", "off", "loud"] {
        let knobs = read(&[("HOROVOD_LOG_LEVEL", level)]).unwrap();
        assert_eq!(knobs.log_level, LogLevel::Warning);
        let found = level.to_owned();
        assert_eq!(knobs.warnings, [KnobWarning::LogLevel { found }]);
    }
    let knobs = read(&[("HOROVOD_LOG_LEVEL", "DEBUG")]).unwrap();
    assert_eq!(
        (knobs.log_level, knobs.warnings),
        (LogLevel::Debug, Vec::new())
    );
}

#[test]
fn a_set_variable_fixes_its_knob_and_an_empty_one_does_not() {
    let knobs = read(&[
        ("HOROVOD_FUSION_THRESHOLD", "134217728"),
        ("HOROVOD_CYCLE_TIME", ""),
    ])
    .unwrap();
    assert_eq!(
        knobs.fixed,
        FixedKnobs {
            fusion_threshold: true,
            gpu_fusion_threshold: false,
            cycle_time: false,
            cache_capacity: false,
            hierarchical_allreduce: false,
            hierarchical_allgather: false,
        }
    );
    assert_eq!(knobs.cycle_time_ms, 1.0);
}

#[test]
fn names_that_do_not_apply_are_accepted() {
    assert_eq!(
        read(&[
            ("HOROVOD_TORUS_ALLREDUCE", "1"),
            ("HOROVOD_CONTROLLER", "gloo")
        ])
        .unwrap(),
        Knobs::default()
    );
}

#[test]
fn switches_follow_horovods_two_styles() {
    let knobs = |value| {
        read(&[
            ("HOROVOD_TIMELINE_MARK_CYCLES", value),
            ("HOROVOD_DYNAMIC_PROCESS_SETS", value),
        ])
        .map(|knobs| (knobs.timeline_mark_cycles, knobs.dynamic_process_sets))
    };
    assert_eq!(knobs("2"), Ok((true, true)));
    assert_eq!(knobs("0"), Ok((false, false)));
    assert_eq!(knobs("-1"), Ok((false, true)));
    assert!(knobs("on").is_err());
}

#[test]
fn the_cache_may_grow_unless_its_bound_forbids_it() {
    assert_eq!(Knobs::default().cache_capacity_max, 16384);
    let knobs = read(&[("RONDE_CACHE_CAPACITY_MAX", "0")]).unwrap();
    assert_eq!((knobs.cache_capacity, knobs.cache_capacity_max), (1024, 0));
    assert!(read(&[("RONDE_CACHE_CAPACITY_MAX", "1048577")]).is_err());
}

#[test]
fn the_timeline_is_a_file_or_dynamic() {
    let knobs = read(&[("HOROVOD_TIMELINE", "t.json")]).unwrap();
    assert_eq!(knobs.timeline_path(), Some(Path::new("t.json")));
    let knobs = read(&[("HOROVOD_TIMELINE", "DYNAMIC")]).unwrap();
    assert_eq!(
        (knobs.timeline_path(), &knobs.timeline),
        (None, &Some(TimelineTarget::Dynamic))
    );
}

#[test]
fn steps_are_a_range_with_or_without_an_end() {
    let range = |text| {
        read(&[("RONDE_TIMELINE_STEPS", text)])
            .unwrap()
            .timeline_steps
            .unwrap()
    };
    let (bounded, open) = (range("100..110"), range(" 7.. "));
    assert_eq!((bounded.first, bounded.last), (100, Some(110)));
    assert_eq!(
        [99, 100, 110, 111].map(|step| bounded.holds(step)),
        [false, true, true, false]
    );
    assert_eq!(
        (open.first, open.last, open.holds(u64::MAX)),
        (7, None, true)
    );
}

#[test]
fn the_byteps_trace_ends_after_it_begins() {
    let steps = [
        ("BYTEPS_TRACE_START_STEP", "30"),
        ("BYTEPS_TRACE_END_STEP", "29"),
    ];
    assert!(read(&steps).is_ok()); // it is off
    let error = read(&[steps[0], steps[1], ("BYTEPS_TRACE_ON", "1")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "BYTEPS_TRACE_END_STEP=29 does not fit knob byteps_trace_last_step: expected a step from \
         BYTEPS_TRACE_START_STEP=30 on; correct it or unset BYTEPS_TRACE_END_STEP (default 20)"
    );
}

#[test]
fn a_shutdown_time_below_the_warning_time_is_ignored_with_a_warning() {
    let knobs = read(&[("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "10")]).unwrap();
    assert_eq!(knobs.stall_shutdown_seconds, 0);
    assert_eq!(
        knobs.warnings,
        [KnobWarning::StallShutdownIgnored {
            shutdown_seconds: 10,
            warning_seconds: 60
        }]
    );
}

#[test]
fn misspelt_variables_are_named_with_the_nearest() {
    let names = [
        "RONDE_EARLY_CICLE",
        "RONDE_FUSION_TRESHOLD",
        "RONDE_XYZZY",
        "RONDE_LINK",
        "HOROVOD_WITH_MPI",
        "HOROVOD_FUSION_TRESHOLD",
        "HOROVOD_VERSION",
        "HOROVOD_RANK",
        "CYCLE_TIME",
        "PATH",
    ];
    let warnings = unknown_variables(names.map(String::from));
    let expected = [
        ("HOROVOD_FUSION_TRESHOLD", Some("HOROVOD_FUSION_THRESHOLD")),
        ("RONDE_EARLY_CICLE", Some("RONDE_EARLY_CYCLE")),
        ("RONDE_FUSION_TRESHOLD", Some("HOROVOD_FUSION_THRESHOLD")),
        ("RONDE_XYZZY", None),
    ];
    assert_eq!(
        warnings,
        expected.map(|(env, nearest)| KnobWarning::Unknown {
            env: env.into(),
            nearest
        })
    );
    assert_eq!(
        warnings[1].to_string(),
        "RONDE_EARLY_CICLE is not a setting of Ronde and has no effect; did you mean RONDE_EARLY_CYCLE?"
    );
}

#[test]
fn a_misspelt_name_or_prefix_gives_a_warning_and_names_of_other_software_do_not() {
    let nearest = |name: &str| match &unknown_variables([name.to_owned()])[..] {
        [] => None,
        [KnobWarning::Unknown { env, nearest }] => {
            assert_eq!(env, name);
            *nearest
        }
        other => panic!("{other:?}"),
    };
    let misspelt = [
        ("HOROVOD_CYCEL_TIME", "HOROVOD_CYCLE_TIME"),
        ("HOROVOD_CYLE_TIME", "HOROVOD_CYCLE_TIME"),
        ("HOROVOD_FUSION_TRESHOLD", "HOROVOD_FUSION_THRESHOLD"),
        ("HOROVOD_TIMLINE", "HOROVOD_TIMELINE"),
        ("HOROVOD_AUTOTUNE_LOGS", "HOROVOD_AUTOTUNE_LOG"),
        (
            "HOROVOD_STALL_CHECK_TIME_SECOND",
            "HOROVOD_STALL_CHECK_TIME_SECONDS",
        ),
        ("RONDE_BACKENDS", "RONDE_BACKEND"),
        ("BYTEPS_TRACE_STRAT_STEP", "BYTEPS_TRACE_START_STEP"),
        ("HORVOD_CYCLE_TIME", "HOROVOD_CYCLE_TIME"),
        ("HOROVD_FUSION_THRESHOLD", "HOROVOD_FUSION_THRESHOLD"),
        ("RODNE_BACKEND", "RONDE_BACKEND"),
    ];
    for (name, meant) in misspelt {
        assert_eq!(nearest(name), Some(meant), "{name}");
    }
    let others = [
        "HOROVOD_VERSION",
        "BYTEPS_PARTITION_BYTES",
        "CYCLE_TIME",
        "BACKEND",
        "ROUND_TRIP_TIME",
        "MOROVOD_XYZZY",
        "HOROVODRUN",
        "HOME",
        "",
        "_",
    ];
    for name in others {
        assert_eq!(unknown_variables([name.to_owned()]), [], "{name}");
    }
}

/// Variables of Horovod 0.28.1 without effect here, except those of its build.
#[test]
fn ignored_variables_of_horovod_give_no_warning() {
    let names = [
        "HOROVOD_TORUS_ALLREDUCE",
        "HOROVOD_BATCH_D2D_MEMCOPIES",
        "HOROVOD_NUM_NCCL_STREAMS",
        "HOROVOD_DISABLE_NVTX_RANGES",
        "HOROVOD_ENABLE_ASYNC_COMPLETION",
        "HOROVOD_ENABLE_XLA_OPS",
        "HOROVOD_CONTROLLER",
        "HOROVOD_CPU_OPERATIONS",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR",
        "HOROVOD_GLOO_RENDEZVOUS_PORT",
        "HOROVOD_GLOO_TIMEOUT_SECONDS",
        "HOROVOD_HOSTNAME",
        "HOROVOD_CCL_CACHE",
        "HOROVOD_MPI_THREADS_DISABLE",
        "HOROVOD_ADASUM_MPI_CHUNK_SIZE",
        "HOROVOD_ELASTIC",
        "HOROVOD_ELASTIC_TIMEOUT",
        "HOROVOD_SECRET_KEY",
        "HOROVOD_SPARK_PYTHONPATH",
        "HOROVOD_SPARK_START_TIMEOUT",
        "HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX",
        "HOROVOD_SPARK_WORK_DIR",
        "HOROVOD_TEST_GPU",
        "HOROVOD_WITH_PYTORCH",
        "HOROVOD_GPU_OPERATIONS",
        "HOROVOD_NCCL_HOME",
        "HOROVOD_CUDA_INCLUDE",
        "HOROVOD_LOG_TIMESTAMP",
        "HOROVOD_RANK",
        "HOROVOD_LOCAL_SIZE",
        "HOROVOD_CROSS_RANK",
    ];
    assert_eq!(unknown_variables(names.map(String::from)), []);
}

#[test]
fn effective_values_have_their_origin() {
    let lookup = |name: &str| (name == "HOROVOD_CYCLE_TIME").then_some("2.5");
    let rows = Knobs::from_lookup(lookup).unwrap().effective(lookup);
    let row = |name| rows.iter().find(|row| row.name == name).unwrap();
    assert_eq!(
        (
            row("cycle_time_ms").value.to_str(),
            row("cycle_time_ms").from_env
        ),
        (Some("2.5"), true)
    );
    assert_eq!(
        (
            row("cache_capacity").value.to_str(),
            row("cache_capacity").from_env
        ),
        (Some("1024"), false)
    );
}

#[test]
fn the_longer_of_horovods_two_limits_of_the_start_holds() {
    let limit = |given: &[(&str, &'static str)]| {
        let value = |name: &str| given.iter().find(|row| row.0 == name).map(|row| row.1);
        let knobs = Knobs::from_lookup(value).unwrap();
        knobs.start_timeout(Duration::from_secs(600)).as_secs()
    };
    let (start, gloo) = ("HOROVOD_START_TIMEOUT", "HOROVOD_GLOO_TIMEOUT_SECONDS");
    assert_eq!(limit(&[]), 600);
    assert_eq!(limit(&[(start, "5")]), 5);
    assert_eq!(limit(&[(gloo, "90")]), 90);
    assert_eq!(limit(&[(start, "60"), (gloo, "30")]), 60);
}

prop_compose! {
    fn any_knobs()(
        fusion_threshold_bytes in 0..=FUSION_THRESHOLD_BYTES_MAX,
        cycle_time_ms in 0.0..=CYCLE_TIME_MS_MAX,
        switches in any::<[bool; 7]>(),
        counts in proptest::option::of((0..=1_000_000u32, 1..=100_000u32)),
        noise in proptest::option::of(0.0..=1.0),
        start in proptest::option::of((proptest::option::of(0.0..=1024.0), 0.0..=CYCLE_TIME_MS_MAX)),
        seed in proptest::option::of(any::<u64>()),
        timeline in proptest::option::of("[a-zé/ .]{1,20}"),
        level in 0..6usize,
        cores in proptest::collection::vec(0..8192usize, 0..9),
        link in proptest::option::of((0.0..=1e7, 1e-6..=1e6)),
        job_id in proptest::option::of("[!-~]{1,128}"),
        (cache_capacity, cache_capacity_max) in (0..=1usize << 20, 0..=1usize << 20),
    ) -> Knobs {
        Knobs {
            fusion_threshold_bytes,
            cycle_time_ms,
            cache_capacity,
            cache_capacity_max,
            disable_group_fusion: switches[0],
            early_cycle: switches[1],
            autotune: switches[2],
            timeline_mark_cycles: switches[3],
            stall_check_disable: switches[4],
            log_hide_time: switches[5],
            dynamic_process_sets: switches[6],
            autotune_warmup_samples: counts.map(|counts| counts.0),
            autotune_steps_per_sample: counts.map(|counts| counts.1),
            autotune_noise: noise,
            autotune_start: start.map(|(fusion_mb, cycle_ms)| AutotuneStart { fusion_mb, cycle_ms: Some(cycle_ms) }),
            autotune_seed: seed,
            timeline_steps: counts.map(|counts| StepRange { first: u64::from(counts.1), last: None }),
            byteps_trace_folder: timeline.clone().map_or("./trace".into(), PathBuf::from),
            timeline: timeline.map(|path| TimelineTarget::File(path.into())),
            log_level: LogLevel::ALL[level],
            thread_affinity: cores,
            link: link.map(|(alpha_us, gb_per_s)| Link { alpha_us, gb_per_s }),
            job_id,
            ..Knobs::default()
        }
    }
}

proptest! {
    #[test]
    fn reading_what_was_printed_gives_the_same_knobs(knobs in any_knobs()) {
        let printed: HashMap<&str, OsString> = knobs.print().into_iter().map(|(knob, text)| (knob.env, text)).collect();
        let again = Knobs::from_lookup(|name| printed.get(name).cloned()).unwrap();
        // Printing sets every variable, so all are fixed now; the values must not change.
        prop_assert_eq!(Knobs { fixed: knobs.fixed, ..again }, knobs);
    }

    #[test]
    fn no_text_makes_reading_panic(env in 0..KNOBS.len(), text in ".{0,40}") {
        let env = KNOBS[env].env;
        let outcome = Knobs::from_lookup(|name| (name == env).then(|| text.clone()));
        if let Err(error) = outcome {
            prop_assert_eq!(error.env, env);
        }
    }
}
