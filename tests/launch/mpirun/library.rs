//! MPI's library and the plug-ins at run time: the ones that are chosen, and those that cannot be
//! used.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{has_mpi, is_of_mpich, is_there, launcher, library, mpirun};
use crate::support::output::{stdout, texts};
use crate::support::program::ronde;

const BENCH: &str = "bench --model many-small --steps 2 --backend mpi";

/// Variables of a rank whose job cannot start without MPI.
const RANK: [(&str, &str); 4] = [
    ("HOROVOD_RANK", "0"),
    ("HOROVOD_SIZE", "2"),
    ("HOROVOD_LOCAL_RANK", "0"),
    ("HOROVOD_LOCAL_SIZE", "2"),
];

/// Asserts that a rank with these variables fails at once, with one line that has these parts.
fn refused(variables: &[(&str, &str)], parts: &[&str]) {
    let mut command = ronde();
    command
        .args(BENCH.split_whitespace())
        .envs(RANK)
        .envs(variables.iter().copied());
    let (_, err) = texts(&command.output().expect("runs"));
    for part in parts {
        assert!(err.contains(part), "{part:?} in {err}");
    }
    assert_eq!(err.trim_end().lines().count(), 1, "{err}");
}

/// Folder of the plug-ins that programs of this checkout find.
fn plugins() -> PathBuf {
    let program = ronde().get_program().to_owned();
    let target = Path::new(&program)
        .ancestors()
        .nth(2)
        .expect("in target/debug");
    target.join("mpi-plugins")
}

#[test]
fn a_library_that_cannot_be_used_is_refused_with_the_reason() {
    refused(
        &[("RONDE_MPI_LIBRARY", "/nonexistent/libmpi.so.40")],
        &[
            "RONDE_MPI_LIBRARY=/nonexistent/libmpi.so.40",
            "cannot open shared object file",
        ],
    );
    refused(
        &[("RONDE_MPI_LIBRARY", "libm.so.6")],
        &["libm.so.6", "is no library of MPI"],
    );
    // A text, which the loader takes for a damaged library.
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("libmpi.so.40");
    std::fs::write(&file, "no library").expect("written");
    let file = file.to_str().expect("UTF-8");
    refused(&[("RONDE_MPI_LIBRARY", file)], &[file, "cannot be loaded"]);
}

#[test]
fn without_plugins_it_is_said_where_they_were_looked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = folder.path().to_str().expect("UTF-8");
    refused(
        &[("RONDE_MPI_PLUGINS", text)],
        &[
            "no plug-in for MPI",
            "libronde_mpi_openmpi.so",
            text,
            "scripts/build-mpi",
        ],
    );
}

#[test]
fn a_plugin_of_the_other_abi_is_refused() {
    let [openmpi, mpich] =
        ["openmpi", "mpich"].map(|abi| plugins().join(format!("libronde_mpi_{abi}.so")));
    if !is_there(launcher()) || !openmpi.is_file() || !mpich.is_file() {
        return eprintln!("left out: both plug-ins are needed");
    }
    // Under the wrong name.
    let folder = tempfile::tempdir().expect("a folder");
    let names = [(&openmpi, &mpich), (&mpich, &openmpi)];
    for (file, name) in names {
        let name = folder.path().join(name.file_name().expect("a file"));
        std::fs::copy(file, name).expect("copied");
    }
    let text = folder.path().to_str().expect("UTF-8");
    let reason = match is_of_mpich() {
        true => "undefined symbol: ompi_",
        false => "it was built for another MPI than its name says",
    };
    let variables = [
        ("RONDE_MPI_PLUGINS", text),
        ("RONDE_MPI_LIBRARY", library()),
    ];
    refused(&variables, &["the plug-in", text, reason]);
}

#[test]
fn a_library_without_a_plugin_is_refused() {
    let own = match is_of_mpich() {
        true => "libronde_mpi_mpich.so",
        false => "libronde_mpi_openmpi.so",
    };
    if !has_mpi() || !is_there(launcher()) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for file in std::fs::read_dir(plugins()).expect("has_mpi").flatten() {
        if file.file_name() != own {
            std::fs::copy(file.path(), folder.path().join(file.file_name())).expect("copied");
        }
    }
    let text = folder.path().to_str().expect("UTF-8");
    let variables = [
        ("RONDE_MPI_PLUGINS", text),
        ("RONDE_MPI_LIBRARY", library()),
    ];
    refused(&variables, &["no plug-in for MPI", own, text]);
}

#[test]
fn two_mpis_in_one_process_are_refused() {
    let both = ["libmpi.so.40", "libmpich.so.12"];
    let known = Command::new("/sbin/ldconfig").arg("-p").output();
    let known = known.map_or_else(|_| String::new(), |said| texts(&said).0);
    if !has_mpi() || !both.iter().all(|name| known.contains(name)) {
        return eprintln!("left out: Debian's Open MPI and MPICH are needed");
    }
    refused(
        &[("LD_PRELOAD", &both.join(" "))],
        &["has loaded two MPIs", "libmpi.so.40", "libmpich.so.12"],
    );
    refused(
        &[("LD_PRELOAD", both[0]), ("RONDE_MPI_LIBRARY", both[1])],
        &[
            "RONDE_MPI_LIBRARY=libmpich.so.12",
            "already loaded",
            "libmpi.so.40",
        ],
    );
}

#[test]
fn the_library_is_that_of_the_launcher_or_the_one_that_is_named() {
    if !has_mpi() {
        return;
    }
    let named = [("RONDE_MPI_LIBRARY", library())];
    for variables in [&[][..], &named] {
        let Some(output) = mpirun(2, BENCH, variables) else {
            return;
        };
        let text = stdout(&output);
        assert!(text.contains("2 ranks, mpi backend"), "{text}");
    }
}

#[test]
fn check_build_lists_libraries_and_plugins() {
    let mut command = ronde();
    command.args(["run", "--check-build"]);
    let text = stdout(&command.output().expect("runs"));
    for part in ["MPI libraries:", "] Open MPI\n", "] MPICH\n"] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    assert_eq!(text.matches("\n        library: ").count(), 2, "{text}");
    assert_eq!(text.matches("\n        plug-in: ").count(), 2, "{text}");
    if has_mpi() && is_there(launcher()) {
        assert!(text.contains("[X] MPI\n"), "{text}");
        let version = if is_of_mpich() {
            "library: MPICH Version"
        } else {
            "library: Open MPI v"
        };
        assert!(text.contains(version), "{text}");
    }
}
