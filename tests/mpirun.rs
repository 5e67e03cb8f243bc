//! Jobs that `mpirun` starts, as a user starts them: with and without the feature `mpi`. Left out where there is no `mpirun`.

#[path = "support/output.rs"]
mod output;
#[path = "support/program.rs"]
mod program;

use std::path::Path;
use std::process::{Command, Output};

use output::{assert_failed, stdout, texts};
use program::ronde;

/// `mpirun` with `ranks` ranks of `ronde` and these arguments; none, and a word about it, without `mpirun`.
fn mpirun(ranks: usize, arguments: &str, variables: &[(&str, &str)]) -> Option<Output> {
    let program = std::env::var("TEST_RONDE_MPIRUN").unwrap_or_else(|_| "mpirun".into());
    let ronde = ronde();
    let mut command = Command::new(program);
    for (name, value) in ronde.get_envs() {
        assert!(value.is_none(), "the environment is only cleaned");
        command.env_remove(name);
    }
    command
        .args(["-np", &ranks.to_string()])
        .arg(ronde.get_program())
        .args(arguments.split_whitespace())
        // Open MPI as root, with more ranks than cores; MPICH does not ask.
        .envs([
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
            ("OMPI_MCA_hwloc_base_binding_policy", "none"),
        ])
        .envs(variables.iter().copied());
    match command.output() {
        Ok(output) => Some(output),
        Err(error) => {
            eprintln!("left out: mpirun cannot be started: {error}");
            None
        }
    }
}

fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(path).expect("written")).expect("JSON")
}

#[test]
fn ranks_of_one_host_use_shared_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.json");
    let arguments = format!("bench --model many-small --steps 10 --json {}", path.display());
    let Some(output) = mpirun(3, &arguments, &[]) else {
        return;
    };
    let text = stdout(&output);
    assert!(text.contains("3 ranks, local backend"), "{text}");
    let result = json(&path);
    assert_eq!(
        (result["np"].as_u64(), result["backend"].as_str()),
        (Some(3), Some("local"))
    );
}

#[test]
fn the_mpi_backend_needs_its_feature_and_then_does_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.json");
    let arguments = format!(
        "bench --model many-small --steps 10 --backend mpi --json {}",
        path.display()
    );
    let Some(output) = mpirun(2, &arguments, &[]) else {
        return;
    };
    if cfg!(feature = "mpi") {
        let text = stdout(&output);
        assert!(text.contains("2 ranks, mpi backend"), "{text}");
        assert_eq!(json(&path)["backend"], "mpi");
    } else {
        let (out, err) = texts(&output);
        assert!(!output.status.success(), "{out}");
        assert!(err.contains("--features mpi"), "{err}");
    }
}

#[test]
fn launchers_that_disagree_are_named() {
    let Some(output) = mpirun(
        2,
        "bench --model many-small --steps 2",
        &[("HOROVOD_SIZE", "3"), ("HOROVOD_RANK", "0")],
    ) else {
        return;
    };
    let (_, err) = texts(&output);
    assert!(!output.status.success());
    assert!(
        err.contains("HOROVOD_SIZE=3") && err.contains("contradicts"),
        "{err}"
    );
}

#[test]
fn the_command_line_for_other_hosts_is_shown() {
    if Command::new("mpirun").arg("--version").output().is_err() {
        return eprintln!("left out: no mpirun");
    }
    let run = |arguments: &[&str]| {
        let mut command = ronde();
        command.arg("run").args(arguments).output().expect("runs")
    };
    let output = run(&[
        "-np",
        "4",
        "-H",
        "node1:2,node2:2",
        "--autotune",
        "--print-command",
        "--",
        "train",
        "a b",
    ]);
    let line = stdout(&output);
    assert!(
        line.starts_with("mpirun ") && line.ends_with(" train 'a b'\n"),
        "{line}"
    );
    assert!(
        line.contains("node1:2,node2:2") && line.contains("HOROVOD_AUTOTUNE"),
        "{line}"
    );
    let output = run(&[
        "-np",
        "5",
        "-H",
        "node1:2,node2:2",
        "--print-command",
        "--",
        "train",
    ]);
    assert_failed(&output, 2, &["(5)", "(4)"]);
}
