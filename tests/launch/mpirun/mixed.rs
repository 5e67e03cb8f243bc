//! Contradictions between MPI and the launcher's variables: the launcher of another MPI, or none.

use super::{clean, has_mpi, is_of_mpich, is_there, launcher, library, mpirun_after};
use crate::support::output::texts;
use crate::support::program::ronde;

const BENCH: [&str; 7] = [
    "bench",
    "--model",
    "many-small",
    "--steps",
    "2",
    "--backend",
    "mpi",
];

#[test]
fn the_launcher_of_another_mpi_is_found_out() {
    let own = library();
    let (other, variable, parts) = match is_of_mpich() {
        true => (
            "mpirun.openmpi",
            "OMPI_COMM_WORLD_SIZE=2",
            ["MPICH Version", "start it with that one's mpiexec"],
        ),
        false => (
            "mpiexec.mpich",
            "PMI_SIZE=2",
            ["Open MPI v", "start it with Open MPI's mpirun"],
        ),
    };
    if !has_mpi() || !is_there(launcher()) || !is_there(other) {
        return;
    }
    let mut command = clean(other);
    command
        .args(["-np", "2"])
        .arg(ronde().get_program())
        .args(BENCH)
        .env("RONDE_MPI_LIBRARY", own);
    let (out, err) = texts(&command.output().expect("starts"));
    assert!(!out.contains("mpi backend"), "{out}{err}");
    assert!(
        err.contains(variable) && err.contains("two MPIs are mixed"),
        "{err}"
    );
    assert!(
        parts.iter().all(|part| err.contains(part)),
        "{parts:?} in {err}"
    );
    // On one host, where MPI was not requested, it does not matter.
    let mut command = clean(other);
    let plain = &BENCH[..5];
    command
        .args(["-np", "2"])
        .arg(ronde().get_program())
        .args(plain);
    let output = command.output().expect("starts");
    let (out, err) = texts(&output);
    assert!(
        output.status.success() && out.contains("2 ranks, local backend"),
        "{out}{err}"
    );
}

#[test]
fn ranks_without_any_mpirun_are_told_so() {
    if !has_mpi() || !is_there(launcher()) {
        return;
    }
    let mut command = ronde();
    command
        .args(["run", "-np", "2", "--"])
        .arg(ronde().get_program())
        .args(BENCH);
    let output = command.output().expect("runs");
    let (_, err) = texts(&output);
    assert!(!output.status.success(), "{err}");
    for part in [
        "HOROVOD_SIZE=2",
        "of 1: the ranks were not started by MPI",
        "ronde run --mpi",
    ] {
        assert!(err.contains(part), "{part:?} in {err}");
    }
}

/// Variables of a step on two nodes, as srun with this MPI's PMI would set them; `$task` is the
/// number of the task.
const STEP: &str = "export SLURM_JOB_ID=$PPID SLURM_STEP_ID=0 SLURM_PROCID=$task SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 \
                    SLURM_LOCALID=0 SLURM_NODEID=$task SLURM_STEP_TASKS_PER_NODE='1(x2)'; \
                    unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK \
                    OMPI_COMM_WORLD_LOCAL_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS";

#[test]
fn srun_on_several_hosts_uses_mpi_and_is_compared_with_it() {
    if !has_mpi() {
        return;
    }
    let bench = "bench --model many-small --steps 2";
    let Some(output) = mpirun_after(&format!("task=$rank; {STEP}"), 2, bench) else {
        return;
    };
    let (out, err) = texts(&output);
    assert!(
        output.status.success() && out.contains("2 ranks, mpi backend"),
        "{out}{err}"
    );
    // Slurm and MPI number the ranks differently.
    let output = mpirun_after(&format!("task=$((1 - rank)); {STEP}"), 2, bench)
        .expect("it was there before");
    let (_, err) = texts(&output);
    assert!(
        !output.status.success() && err.contains("SLURM_PROCID=1"),
        "{err}"
    );
    let says = err.contains("says rank 0 of 2") || err.contains("PMI_RANK=0 contradicts");
    assert!(says, "{err}");
}
