//! Tests of configuration files: files of horovodrun's users, and invalid files.

use super::*;
use proptest::prelude::*;
use ronde::knobs::KNOBS;

fn read(text: &str) -> Result<String, String> {
    let file = ConfigFile::parse(text, "x.yaml").map_err(|error| error.to_string())?;
    let show = |(knob, value): (&Knob, &OsStr)| format!("{}={}", knob.env, value.to_str().unwrap());
    Ok(file.settings().map(show).collect::<Vec<_>>().join(" "))
}

/// Example file of the documentation.
fn documented() -> &'static str {
    let text = include_str!("../../../../docs/KNOBS.md");
    let (_, rest) = text.split_once("```yaml\n").unwrap();
    rest.split_once("```").unwrap().0
}

#[test]
fn keys_write_horovods_variables_in_horovods_units() {
    let table = [
        ("", ""),
        ("# nothing yet\n", ""),
        ("~", ""),
        ("params:\n", ""),
        (
            "params:\n  fusion_threshold_mb: 32\n",
            "HOROVOD_FUSION_THRESHOLD=33554432",
        ),
        ("{params: {cycle_time_ms: 2.5}}", "HOROVOD_CYCLE_TIME=2.5"),
        ("params:\n  cache_capacity: 0\n", "HOROVOD_CACHE_CAPACITY=0"),
        (
            "params:\n  hierarchical_allreduce: True\n  torus_allreduce: False\n",
            "HOROVOD_HIERARCHICAL_ALLREDUCE=1 HOROVOD_TORUS_ALLREDUCE=0",
        ),
        (
            "autotune:\n  enabled: yes\n  log_file: a b.csv\n  warmup_samples:\n",
            "HOROVOD_AUTOTUNE=1 HOROVOD_AUTOTUNE_LOG=a b.csv",
        ),
        (
            "timeline: {filename: \"t.json\", mark_cycles: on}",
            "HOROVOD_TIMELINE=t.json HOROVOD_TIMELINE_MARK_CYCLES=1",
        ),
        ("timeline: {filename: 'no'}", "HOROVOD_TIMELINE=no"),
        (
            "stall_check:\n  enabled: false\n  warning_time_seconds: 5\n",
            "HOROVOD_STALL_CHECK_DISABLE=1 HOROVOD_STALL_CHECK_TIME_SECONDS=5",
        ),
        (
            "stall_check: {enabled: true}",
            "HOROVOD_STALL_CHECK_DISABLE=0",
        ),
        (
            "library_options: {thread_affinity: 3}",
            "HOROVOD_THREAD_AFFINITY=3",
        ),
        (
            "library_options: {num_nccl_streams: 2}",
            "HOROVOD_NUM_NCCL_STREAMS=2",
        ),
        (
            "logging: {level: DEBUG, with_timestamp: false}",
            "HOROVOD_LOG_LEVEL=DEBUG HOROVOD_LOG_HIDE_TIME=1",
        ),
        ("controller: gloo", "HOROVOD_CONTROLLER=gloo"),
        (
            "ronde: {early-cycle: false, link: '1000,2.5', no_stall_check: true, fusion-mb: 1}",
            "RONDE_EARLY_CYCLE=0 RONDE_LINK=1000,2.5 HOROVOD_STALL_CHECK_DISABLE=1 HOROVOD_FUSION_THRESHOLD=1048576",
        ),
        ("ronde: {no-early-cycle: true}", "RONDE_EARLY_CYCLE=0"),
    ];
    for (text, expected) in table {
        assert_eq!(read(text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn what_is_wrong_is_said_with_file_line_key_and_what_is_expected() {
    let table = [
        (
            "params:\n  cycle_time_ms: -3\n",
            "x.yaml:2: params.cycle_time_ms cannot be -3: expected a number from 0 to 60000 (ms)",
        ),
        (
            "params:\n  fusion_threshold_mb: 2000000\n",
            "x.yaml:2: params.fusion_threshold_mb cannot be 2000000: expected a number from 0 to 1048576 (MiB)",
        ),
        (
            "params:\n\n  fusion_threshold_mb: '64'\n",
            "x.yaml:3: params.fusion_threshold_mb cannot be \"64\": expected a number from 0 to 1048576 (MiB)",
        ),
        (
            "params: {cache_capacity: [1, {a: 2}]}",
            "x.yaml:1: params.cache_capacity cannot be a list: expected an integer from 0 to 1048576 (tensors)",
        ),
        (
            "params: {cache_capacity: 1.5}",
            "x.yaml:1: params.cache_capacity cannot be 1.5: expected an integer from 0 to 1048576 (tensors)",
        ),
        (
            "autotune: {enabled: maybe}",
            "x.yaml:1: autotune.enabled cannot be maybe: expected true or false",
        ),
        (
            "autotune: {enabled: 'true'}",
            "x.yaml:1: autotune.enabled cannot be \"true\": expected true or false",
        ),
        (
            "timeline: {filename: {a: b}}",
            "x.yaml:1: timeline.filename cannot be a mapping: expected a file, or DYNAMIC",
        ),
        (
            "timeline: {filename: no}",
            "x.yaml:1: timeline.filename cannot be no: expected a file, or DYNAMIC",
        ),
        (
            "timeline: {filename: ''}",
            "x.yaml:1: timeline.filename cannot be \"\": expected a file, or DYNAMIC",
        ),
        (
            "logging: {level: loud}",
            "x.yaml:1: logging.level cannot be loud: expected one of trace, debug, info, warning, error, fatal",
        ),
        (
            "params: 5",
            "x.yaml:1: params cannot be 5: expected keys, indented below it",
        ),
        (
            "params:\n  cycle_time: 3\n",
            "x.yaml:2: params.cycle_time is not a setting; did you mean params.cycle_time_ms?",
        ),
        (
            "prams:\n  cycle_time_ms: 3\n",
            "x.yaml:1: prams is not a setting; did you mean params?",
        ),
        (
            "ronde: {xyzzy: 1}",
            "x.yaml:1: ronde.xyzzy is not a setting; docs/KNOBS.md shows a file with all of them",
        ),
        (
            "params:\n  cycle_time_ms: 3\nronde:\n  cycle-ms: 4\n",
            "x.yaml:4: ronde.cycle-ms repeats the setting of params.cycle_time_ms in line 2; remove one of them",
        ),
        (
            "params:\n  cycle_time_ms: 3\nparams:\n  cycle_time_ms: 4\n",
            "x.yaml:3: params repeats the setting of params in line 1; remove one of them",
        ),
        (
            "- params\n",
            "x.yaml:1: a list instead of sections such as `params:`",
        ),
        (
            "params: &a {}\n",
            "x.yaml:1: anchors (&) and aliases (*) are not supported; write the value itself",
        ),
        (
            "params: {}\n---\nparams: {}\n",
            "x.yaml:2: a second document begins here; use one document",
        ),
        ("? [a]\n: b\n", "x.yaml:1: a list instead of a key"),
    ];
    for (text, expected) in table {
        assert_eq!(read(text).unwrap_err(), expected, "{text}");
    }
}

#[test]
fn what_is_no_yaml_is_said_with_its_place() {
    for text in [
        "params: {cycle_time_ms: 3\n",
        "params:\n\tcycle_time_ms: 3\n",
        "a: b: c\n",
        "\"open",
    ] {
        let error = read(text).unwrap_err();
        assert!(
            error.contains("this is not YAML") && error.contains("column"),
            "{text}: {error}"
        );
    }
    assert!(
        read(&"[".repeat(30))
            .unwrap_err()
            .contains("nested too deeply")
    );
    assert!(read(&"[".repeat(30_000)).is_err()); // the parser's own limit
}

#[test]
fn files_that_cannot_be_are_refused_by_name() {
    let missing = ConfigFile::read("/nowhere/x.yaml").unwrap_err().to_string();
    assert!(
        missing.starts_with("/nowhere/x.yaml: cannot read it: "),
        "{missing}"
    );
    let endless = ConfigFile::read("/dev/zero").unwrap_err().to_string();
    assert!(endless.contains("more than 65536 bytes"), "{endless}");
    let folder = tempfile::tempdir().unwrap();
    assert!(ConfigFile::read(folder.path()).is_err());
}

#[test]
fn the_documented_file_sets_every_key_that_there_is() {
    let file = ConfigFile::parse(documented(), "docs/KNOBS.md").unwrap();
    let set: Vec<&str> = file.settings().map(|(knob, _)| knob.env).collect();
    for knob in KNOBS.iter().filter(|knob| knob.flag.is_some()) {
        assert!(set.contains(&knob.env), "{} is missing", knob.env);
    }
}

proptest! {
    #[test]
    fn no_text_makes_reading_panic(text in "\\PC{0,80}|([a-z_]{1,9}[:,\\[{\\]}&*#'\"\n -]{1,4}){0,12}") {
        let _ = read(&text);
    }

    #[test]
    fn no_change_to_a_good_file_makes_reading_panic(at in 0..600usize, with in "[\\x00-\\x7f]{0,3}") {
        let good = documented();
        let at = (0..=at.min(good.len())).rev().find(|at| good.is_char_boundary(*at)).unwrap_or(0);
        let mut text = good.to_owned();
        text.insert_str(at, &with);
        let _ = read(&text);
    }
}
