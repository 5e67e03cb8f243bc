//! Tests of the subcommands that only print.

use super::*;

#[test]
fn the_other_subcommands_print() {
    let knobs = outcome(ronde(&["knobs"]));
    assert!(
        knobs.code == Some(0) && knobs.stdout.contains("HOROVOD_FUSION_THRESHOLD"),
        "{}",
        knobs.stdout
    );

    let mut command = ronde(&["knobs", "--effective"]);
    command
        .env("HOROVOD_CYCLE_TIME", "2.5")
        .env("RONDE_EARLY_CICLE", "0");
    let effective = outcome(command);
    let row = effective
        .stdout
        .lines()
        .find(|line| line.starts_with("cycle_time_ms"))
        .unwrap();
    assert_eq!(
        row.split_whitespace().collect::<Vec<_>>(),
        ["cycle_time_ms", "2.5", "HOROVOD_CYCLE_TIME"]
    );
    assert!(
        effective.stderr.contains("did you mean RONDE_EARLY_CYCLE?"),
        "{}",
        effective.stderr
    );

    let mut command = ronde(&["knobs", "--effective"]);
    command.env("HOROVOD_CYCLE_TIME", "soon");
    assert_eq!(outcome(command).code, Some(2));

    let build = outcome(ronde(&["run", "-cb"]));
    assert!(
        build.code == Some(0) && build.stdout.contains("Available Controllers:"),
        "{}",
        build.stdout
    );
    for shell in ["bash", "zsh", "fish"] {
        let script = outcome(ronde(&["completions", shell]));
        assert!(
            script.code == Some(0) && script.stdout.contains("num-proc"),
            "{shell}"
        );
    }
    assert_eq!(outcome(ronde(&["completions", "tcsh"])).code, Some(2));
    assert_eq!(outcome(ronde(&[])).code, Some(2));
}

#[test]
fn manual_pages_are_printed_or_written() {
    let page = outcome(ronde(&["man"]));
    assert_eq!((page.code, page.stderr.as_str()), (Some(0), ""));
    assert!(page.stdout.contains(".TH RONDE 1"), "{}", page.stdout);

    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("man/man1");
    let written = outcome(ronde(&["man", "--dir", dir.to_str().unwrap()]));
    assert_eq!((written.code, written.stdout.as_str()), (Some(0), ""));
    assert_eq!(
        std::fs::read_to_string(dir.join("ronde.1")).unwrap(),
        page.stdout
    );
    let run = std::fs::read_to_string(dir.join("ronde-run.1")).unwrap();
    assert!(run.contains(".TH RONDE-RUN 1"), "{run}");

    let refused = outcome(ronde(&["man", "--dir", "/dev/null/no"]));
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("/dev/null/no"),
        "{}",
        refused.stderr
    );
}

/// Completions of a shell after a flag: words if it takes one of a list, files if it takes a file.
#[test]
fn completions_know_words_and_files() {
    let zsh = outcome(ronde(&["completions", "zsh"])).stdout;
    let line = |flag: &str| {
        let found = zsh
            .lines()
            .find(|line| line.contains(&format!("--{flag}=")));
        found.unwrap_or_else(|| panic!("no --{flag} in {zsh}"))
    };
    assert!(line("log-level").contains("(trace debug info warning error fatal)"));
    for flag in [
        "config-file",
        "hostfile",
        "autotune-log-file",
        "timeline-filename",
        "json",
        "profile",
    ] {
        assert!(line(flag).contains(":_files'"), "{}", line(flag));
    }
    assert!(line("output-filename").contains(":_files -/'"));
}
