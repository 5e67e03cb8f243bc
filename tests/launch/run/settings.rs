//! Tests of the ranks' settings, from flags and files, and of refused ones.

use super::*;

#[test]
fn flags_become_variables_and_unset_ones_do_not() {
    let script = "echo ${HOROVOD_FUSION_THRESHOLD-unset} ${HOROVOD_CYCLE_TIME-unset} ${HOROVOD_AUTOTUNE-unset}";
    let mut command = ronde(&[
        "run",
        "-np",
        "1",
        "--fusion-threshold-mb",
        "32",
        "--no-autotune",
        "sh",
        "-c",
        script,
    ]);
    assert_eq!(outcome(command).stdout, "[0]<stdout>:33554432 unset 0\n");
    command = run_script(1, script);
    command.env("HOROVOD_CYCLE_TIME", "2.5");
    assert_eq!(outcome(command).stdout, "[0]<stdout>:unset 2.5 unset\n");
}

#[test]
fn wrong_usage_is_refused_by_name() {
    let table: [(&[&str], &str); 21] = [
        (&["-np", "0", "true"], "from 1 to 1048576"),
        (
            &["-np", "65", "true"],
            "65 ranks cannot be started: expected 1 to 64",
        ),
        (&["-np", "two", "true"], "two"),
        (&["true"], "--num-proc"),
        (&["-np", "2"], "CMD"),
        (
            &["-np", "4", "-H", "localhost:2", "true"],
            "processes (4) than there are available slots (2)",
        ),
        (
            &["-np", "2", "--max-np", "2", "true"],
            "--max-np is for elastic jobs",
        ),
        (
            &["-np", "2", "--min-np", "1", "-H", "a:1,a:1", "true"],
            "host 2, \"a\": the host is in the list twice",
        ),
        (
            &["-np", "2", "--min-np", "3", "true"],
            "-np 2 is not between --min-np 3",
        ),
        (
            &["-np", "2", "--host-discovery-script", "find.sh", "true"],
            "--host-discovery-script find.sh: No such file",
        ),
        (
            &["-np", "2", "--blacklist-cooldown-range", "1", "2", "true"],
            "--blacklist-cooldown-range",
        ),
        (
            &["-np", "2", "--min-np", "1", "--print-command", "true"],
            "ranks that mpirun starts are fixed",
        ),
        (&["-np", "2", "--jsrun", "true"], "--jsrun"),
        (
            &["-np", "2", "--cycle-time-ms", "-3", "true"],
            "for '--cycle-time-ms <VALUE>': expected a number from 0 to 60000 (ms)",
        ),
        (&["-np", "2", "--fusion-mb", "much", "true"], "much"),
        (&["-np", "2", "--no-such-flag", "true"], "--no-such-flag"),
        (
            &["-np", "2", "-H", "localhost:1,-oProxyCommand=x:1", "true"],
            "--hosts: \"-oProxyCommand=x:1\": the host name begins with '-'",
        ),
        (
            &["-np", "2", "--hosts=--rsh:2", "true"],
            "--hosts: \"--rsh:2\": the host name begins with '-'",
        ),
        (
            &["-np", "2", "--hosts=me@-oProxyCommand=x:2", "true"],
            "--hosts: \"me@-oProxyCommand=x:2\": the host name begins with '-'",
        ),
        (
            &[
                "-np",
                "2",
                "--hostfile",
                "tests/launch/run/hosts-with-option",
                "true",
            ],
            "tests/launch/run/hosts-with-option:3: \"-oProxyCommand=x slots=1\": the host name begins with '-'",
        ),
        (
            &["-np", "2", "-H", "localhost:1,far;reboot:1", "true"],
            "--hosts: \"far;reboot:1\": a host name cannot contain ';'",
        ),
    ];
    for (arguments, expected) in table {
        let outcome = outcome(ronde(&[&["run"], arguments].concat()));
        assert_eq!(outcome.code, Some(2), "{arguments:?}: {}", outcome.stderr);
        assert!(
            outcome.stderr.contains(expected),
            "{arguments:?}: {}",
            outcome.stderr
        );
        assert_eq!(outcome.stdout, "");
    }
}

#[test]
fn accepted_flags_of_horovodrun_change_nothing() {
    let flags = [
        "--gloo",
        "--disable-cache",
        "-H",
        "localhost:4",
        "--hierarchical-allreduce",
        "--start-timeout",
        "9",
    ];
    let outcome = outcome(ronde(
        &[&["run", "-np", "1"], &flags[..], &["echo", "on"]].concat(),
    ));
    assert_eq!(
        (outcome.code, outcome.stdout.as_str()),
        (Some(0), "[0]<stdout>:on\n")
    );
}

#[test]
fn a_misspelt_variable_is_warned_of_once_by_rank_0() {
    let bench = [
        "bench",
        "--model",
        "many-small",
        "--steps",
        "1",
        "--warmup",
        "1",
    ];
    let program = env!("CARGO_BIN_EXE_ronde");
    // The benchmark reads its settings from flags and environment, other ranks from the environment
    // alone.
    for line in [
        [&bench[..], &["-np", "2"]].concat(),
        [&["run", "-np", "2", "--", program], &bench[..]].concat(),
    ] {
        let mut command = ronde(&line);
        command
            .env("HOROVOD_CYCEL_TIME", "5")
            .env("HOROVOD_SPARK_START_TIMEOUT", "9") // Horovod's own
            .env("HOROVOD_VERSION", "1"); // of other software
        let outcome = outcome(command);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let told: Vec<&str> = outcome
            .stderr
            .lines()
            .filter(|line| line.contains("is not a setting"))
            .collect();
        assert_eq!(told.len(), 1, "{line:?}: {}", outcome.stderr);
        let warning = "[0]: HOROVOD_CYCEL_TIME is not a setting of Ronde and has no effect; \
                       did you mean HOROVOD_CYCLE_TIME?";
        assert!(told[0].ends_with(warning), "{told:?}");
    }
}

/// Creates a file that contains `text`, in a folder of its own.
fn config_file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("horovod.yaml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

#[test]
fn a_file_wins_over_the_environment_and_flags_win_over_the_file() {
    let (_folder, path) = config_file(
        "params:\n  fusion_threshold_mb: 32\n  cycle_time_ms: 2.5\nstall_check:\n  enabled: false\n",
    );
    let script = "echo $HOROVOD_FUSION_THRESHOLD $HOROVOD_CYCLE_TIME $HOROVOD_STALL_CHECK_DISABLE $HOROVOD_CACHE_CAPACITY";
    let with = |flags: &[&str]| {
        let start = ["run", "-np", "2", "--config-file", &path];
        let mut command = ronde(&[&start, flags, &["--", "sh", "-c", script]].concat());
        command
            .env("HOROVOD_FUSION_THRESHOLD", "1")
            .env("HOROVOD_CACHE_CAPACITY", "7");
        outcome(command).stdout
    };
    let expected = |values| format!("[0]<stdout>:{values}\n[1]<stdout>:{values}");
    assert_eq!(sorted(&with(&[])).join("\n"), expected("33554432 2.5 1 7"));
    let flags = ["--cycle-time-ms", "9", "--stall-check"];
    assert_eq!(sorted(&with(&flags)).join("\n"), expected("33554432 9 0 7"));
}

#[test]
fn a_file_that_is_wrong_starts_nothing() {
    let (_folder, path) = config_file("params:\n  cycle_tme_ms: 3\n");
    for (path, expected) in [
        (
            path.as_str(),
            "horovod.yaml:2: params.cycle_tme_ms is not a setting; did you mean params.cycle_time_ms?",
        ),
        (
            "/nowhere/horovod.yaml",
            "/nowhere/horovod.yaml: cannot read it",
        ),
    ] {
        let outcome = outcome(ronde(&[
            "run",
            "-np",
            "2",
            "--config-file",
            path,
            "echo",
            "on",
        ]));
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(2), ""));
        assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
    }
}
