//! Tests of the start of ranks: rank and host, job, command, standard input.

use super::*;
use ronde::internal::identity::MAX_RANKS;
use ronde_cli::run::LaunchSpec;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[test]
fn each_of_8_ranks_gets_its_place() {
    let script = "echo $HOROVOD_RANK/$HOROVOD_SIZE $HOROVOD_LOCAL_RANK/$HOROVOD_LOCAL_SIZE \
                  $HOROVOD_CROSS_RANK/$HOROVOD_CROSS_SIZE ${#RONDE_JOB_ID} $PYTHONUNBUFFERED";
    let outcome = outcome(run_script(8, script));
    let expected: Vec<String> = (0..8)
        .map(|r| format!("[{r}]<stdout>:{r}/8 {r}/8 0/1 32 1"))
        .collect();
    assert_eq!(sorted(&outcome.stdout), expected);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
}

#[test]
fn ranks_of_a_job_share_its_id_and_forget_outer_launchers() {
    let mut command = run_script(
        2,
        "echo $RONDE_JOB_ID ${OMPI_COMM_WORLD_RANK-none} ${SLURM_PROCID-none} \
         ${RONDE_ELASTIC_SOCKET-none} ${HOROVOD_ELASTIC-none}",
    );
    command
        .env("OMPI_COMM_WORLD_RANK", "5")
        .env("SLURM_PROCID", "5")
        .env("RONDE_ELASTIC_SOCKET", "/outer")
        .env("HOROVOD_ELASTIC", "1")
        .env("RONDE_JOB_ID", "outer");
    let outcome = outcome(command);
    let ids: Vec<&str> = outcome
        .stdout
        .lines()
        .map(|line| line.split_once(':').unwrap().1)
        .collect();
    assert_eq!(ids[0], ids[1]);
    assert!(
        ids[0].ends_with(" none none none none") && !ids[0].starts_with("outer"),
        "{}",
        ids[0]
    );
}

#[test]
fn the_command_passes_verbatim() {
    let command = ronde(&[
        "run", "-np", "1", "printf", "%s|", "-np", "--", "--help", "a b", "$HOME",
    ]);
    assert_eq!(
        outcome(command).stdout,
        "[0]<stdout>:-np|--|--help|a b|$HOME|\n"
    );
}

#[test]
fn a_command_that_cannot_start_is_said_before_anything_runs() {
    let missing = outcome(ronde(&[
        "run",
        "-np",
        "3",
        "--",
        "no-such-command-anywhere",
    ]));
    assert_eq!((missing.code, missing.stdout.as_str()), (Some(127), ""));
    assert!(
        missing
            .stderr
            .contains("no-such-command-anywhere as rank 0"),
        "{}",
        missing.stderr
    );
    assert_eq!(
        outcome(ronde(&["run", "-np", "2", "--", "/dev/null"])).code,
        Some(126)
    );
}

#[test]
fn the_limit_of_open_files_is_raised() {
    let ronde = env!("CARGO_BIN_EXE_ronde");
    let script =
        format!("ulimit -Sn 20; exec {ronde} run -np 12 --no-prefix -- sh -c 'ulimit -Sn'");
    let mut command = Command::new("sh");
    command
        .args(["-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let outcome = outcome(command);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(!outcome.stdout.contains("20\n20\n"), "{}", outcome.stdout);
}

#[test]
fn unusual_folders_are_used_or_named() {
    let folder = tempfile::tempdir().unwrap();
    let unusual = folder.path().join(OsStr::from_bytes(b"\xff"));
    let long = folder.path().join("x".repeat(100));
    for folder in [&unusual, &long] {
        std::fs::create_dir(folder).unwrap();
    }
    let elastic = |folder: &Path, script: &str| {
        let mut command = ronde(&["run", "-np", "1", "--min-np", "1", "--", "sh", "-c", script]);
        command.env("TMPDIR", folder);
        outcome(command)
    };
    let script = "test -S \"$RONDE_ELASTIC_SOCKET\" && test -f \"$RONDE_SECRET_FILE\"";
    let used = elastic(&unusual, script);
    assert_eq!(used.code, Some(0), "{}", used.stderr);
    let refused = elastic(&long, "true");
    assert_eq!(refused.code, Some(1));
    assert!(
        refused
            .stderr
            .contains("set TMPDIR to a folder with a shorter path"),
        "{}",
        refused.stderr
    );
    let mut command = ronde(&["run", "-np", "1", "--tcp", "--", "sh", "-c", "touch here"]);
    let tcp = outcome({
        command.current_dir(&unusual);
        command
    });
    assert_eq!((tcp.code, tcp.stderr.as_str()), (Some(0), ""));
    assert!(unusual.join("here").exists());
}

#[test]
fn standard_input_is_rank_0s() {
    let mut command = run_script(3, "cat; echo end");
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let outcome = of(finish(child));
    let expected = [
        "[0]<stdout>:end",
        "[0]<stdout>:hello",
        "[1]<stdout>:end",
        "[2]<stdout>:end",
    ];
    assert_eq!(sorted(&outcome.stdout), expected);
}

#[test]
fn numbers_of_ranks_that_cannot_be_are_errors() {
    let spec = LaunchSpec {
        label: "test".into(),
        command: vec!["true".into()],
        num_proc: 0,
        environment: Vec::new(),
        output: ronde_cli::run::Output::Plain,
        output_dir: None,
        verbose: false,
        guard: Vec::new(),
    };
    for num_proc in [0, MAX_RANKS + 1] {
        let error = ronde_cli::run::launch(&LaunchSpec {
            num_proc,
            ..spec.clone()
        })
        .unwrap_err();
        assert_eq!(
            (error.exit_code(), error.to_string()),
            (
                2,
                format!("{num_proc} ranks cannot be started: expected 1 to 64")
            )
        );
    }
    let error = ronde_cli::run::launch(&LaunchSpec {
        command: Vec::new(),
        num_proc: 1,
        ..spec
    })
    .unwrap_err();
    assert_eq!(error.exit_code(), 2);
}
