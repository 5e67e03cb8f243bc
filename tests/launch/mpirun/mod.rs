//! Jobs that `mpirun` starts, with and without plug-ins for MPI. Skipped if there is no `mpirun`.

mod different;
mod elsewhere;
mod launchers;
mod library;
mod lost;
mod mixed;

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::output::{assert_failed, stdout, texts};
use crate::support::program::{ronde, write_program};

/// Variables that allow Open MPI as root, with more ranks than cores; MPICH needs none.
const PERMISSIONS: [(&str, &str); 4] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("OMPI_MCA_hwloc_base_binding_policy", "none"),
];

/// Shell expression for the rank that `mpirun` gives a process.
const RANK: &str = "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}";

/// Returns the launcher under test.
fn launcher() -> OsString {
    std::env::var_os("TEST_RONDE_MPIRUN").unwrap_or_else(|| "mpirun".into())
}

/// Whether the program exists; prints a line if not.
fn is_there(program: impl Into<OsString>) -> bool {
    let program = program.into();
    let found = Command::new(&program).arg("--version").output().is_ok();
    if !found {
        eprintln!("left out: no {}", program.display());
    }
    found
}

/// Whether MPI can be used; prints a line if not.
fn has_mpi() -> bool {
    let found = ronde::internal::mpi::has_mpi_plugin();
    if !found {
        eprintln!("left out: no plug-in for MPI (scripts/build-mpi)");
    }
    found
}

/// Whether this process can start a job over MPI, or is a rank of one.
fn can_start_over_mpi() -> bool {
    std::env::var_os("TEST_RONDE_BODY").is_some() || (has_mpi() && is_there(launcher()))
}

/// Whether the launcher under test is MPICH's.
fn is_of_mpich() -> bool {
    let said = Command::new(launcher()).arg("--version").output();
    said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("HYDRA"))
}

/// Name of the library of the MPI of the launcher under test, for the loader.
fn library() -> &'static str {
    let names: &[&str] = match is_of_mpich() {
        true => &["libmpi.so.12", "libmpich.so.12"],
        false => &["libmpi.so.40"],
    };
    // Not opened here: this process is to stay without MPI.
    let linker = Command::new("/sbin/ldconfig").arg("-p").output();
    let known = linker.map_or_else(|_| String::new(), |said| texts(&said).0);
    let is_known = |name: &&&str| known.contains(&format!("\t{name} "));
    names
        .iter()
        .find(is_known)
        .unwrap_or(&names[names.len() - 1])
}

/// Returns a command in an environment without launchers and settings.
fn clean(program: impl Into<OsString>) -> Command {
    let mut command = Command::new(program.into());
    for (name, value) in ronde().get_envs() {
        assert!(value.is_none(), "the environment is only cleaned");
        command.env_remove(name);
    }
    command.envs(PERMISSIONS);
    command
}

/// Runs `mpirun` with `ranks` ranks of `ronde` with these arguments; returns `None`, and prints a
/// line, without `mpirun`.
fn mpirun(ranks: usize, arguments: &str, variables: &[(&str, &str)]) -> Option<Output> {
    said_by(ranks, &[], arguments, variables)
}

/// Runs [`mpirun`], where each rank first runs a line of shell, in which `$rank` is its number.
fn mpirun_after(line: &str, ranks: usize, arguments: &str) -> Option<Output> {
    let script = format!("rank={RANK}; {line}; exec \"$0\" \"$@\"");
    said_by(ranks, &["sh", "-c", &script], arguments, &[])
}

/// Runs [`mpirun`] with these words before `ronde`.
fn said_by(
    ranks: usize,
    words: &[&str],
    arguments: &str,
    variables: &[(&str, &str)],
) -> Option<Output> {
    let mut command = clean(launcher());
    command
        .args(["-np", &ranks.to_string()])
        .args(words)
        .arg(ronde().get_program())
        .args(arguments.split_whitespace())
        .envs(variables.iter().copied());
    is_there(launcher()).then(|| command.output().expect("starts"))
}

fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(path).expect("written")).expect("JSON")
}

#[test]
fn ranks_of_one_host_use_shared_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.json");
    let arguments = format!(
        "bench --model many-small --steps 10 --json {}",
        path.display()
    );
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
fn the_mpi_backend_needs_a_plugin_and_then_does_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.json");
    let arguments = format!(
        "bench --model many-small --steps 10 --backend mpi --json {}",
        path.display()
    );
    let without = [("RONDE_MPI_PLUGINS", "/nonexistent")];
    let Some(output) = mpirun(2, &arguments, &without) else {
        return;
    };
    let (out, err) = texts(&output);
    assert!(!output.status.success(), "{out}");
    assert!(
        err.contains("RONDE_BACKEND=mpi: this installation of ronde has no plug-in"),
        "{err}"
    );
    if has_mpi() {
        let text = stdout(&mpirun(2, &arguments, &[]).expect("it was there before"));
        assert!(text.contains("2 ranks, mpi backend"), "{text}");
        assert_eq!(json(&path)["backend"], "mpi");
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
    if !is_there("mpirun") {
        return;
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

#[test]
fn without_mpirun_in_the_path_it_is_said_what_to_install() {
    let mut command = ronde();
    command
        .args(["run", "--mpi", "-np", "2", "-H", "node1:2", "--", "true"])
        .env("PATH", "/nonexistent");
    let output = command.output().expect("runs");
    assert_failed(&output, 127, &["mpirun", "Open MPI or MPICH", "--tcp"]);
}

#[test]
fn more_ranks_than_cores_are_explained_before_mpirun_refuses_them() {
    let version = Command::new("mpirun").arg("--version").output();
    let is_open_mpi =
        version.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("Open MPI"));
    if !is_open_mpi {
        return eprintln!("left out: no mpirun of Open MPI's");
    }
    let cores = std::thread::available_parallelism().expect("known").get();
    let ranks = (2 * cores).to_string();
    let run = |slots: &[&str]| {
        let mut command = clean(ronde().get_program());
        command.env_remove("OMPI_MCA_rmaps_base_oversubscribe");
        command.env("OMP_NUM_THREADS", "1"); // otherwise the launcher's note on it names the cores
        command
            .args(["run", "--mpi", "-np", &ranks])
            .args(slots)
            .args(["--", "true"]);
        command.output().expect("runs")
    };
    let (_, err) = texts(&run(&[]));
    assert!(
        err.contains(&format!("{ranks} ranks on a machine of {cores} cores"))
            && err.contains("not enough slots"),
        "{err}"
    );
    for told in [
        "--mpi-args=--oversubscribe".to_owned(),
        format!("-Hlocalhost:{ranks}"),
    ] {
        let output = run(&[&told]);
        let (_, err) = texts(&output);
        assert!(
            output.status.success() && !err.contains("cores"),
            "{told}: {err}"
        );
    }
}

#[test]
fn run_has_the_mpirun_in_the_path_start_ranks_with_their_settings() {
    let Some(path) = std::env::var_os("PATH") else {
        return;
    };
    let name = launcher();
    let Some(found) = std::env::split_paths(&path)
        .map(|folder| folder.join(&name))
        .find(|file| file.is_file())
    else {
        return eprintln!("left out: no {}", name.display());
    };
    // First in the path, under any name; Hydra looks for its parts in its own folder.
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("mpirun");
    write_program(
        &script,
        &format!("#!/bin/sh\nexec {} \"$@\"\n", found.display()),
    );
    let folders = std::env::split_paths(&path);
    let path =
        std::env::join_paths([folder.path().to_owned()].into_iter().chain(folders)).expect("paths");
    let backend = if has_mpi() { "mpi" } else { "local" };
    let mut command = clean(ronde().get_program());
    command
        .env("PATH", path)
        .args([
            "run",
            "--mpi",
            "-np",
            "3",
            "--fusion-threshold-mb",
            "3",
            "--",
        ])
        .arg(ronde().get_program())
        .args([
            "bench",
            "--model",
            "many-small",
            "--steps",
            "2",
            "--backend",
            backend,
        ]);
    let output = command.output().expect("runs");
    let text = stdout(&output);
    assert!(
        text.contains(&format!("3 ranks, {backend} backend")),
        "{text}"
    );
    assert!(text.contains("fusion 3 MiB"), "{text}");
}
