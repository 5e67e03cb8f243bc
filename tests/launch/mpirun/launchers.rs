//! Simulated variables of every launcher: with them, ranks of one host find each other without MPI;
//! ranks on several hosts need MPI. On one host MPI is not even initialized: it would refuse
//! variables without their launcher.

use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;

use crate::support::free_port;
use crate::support::output::{stdout, texts};
use crate::support::program::ronde;

/// Returns a launcher's variables for rank `rank` of two, in a job of this test alone; on different
/// hosts if `apart`.
type Tells = fn(rank: usize, apart: bool) -> Vec<(&'static str, String)>;

const LAUNCHERS: [(&str, Tells); 6] = [
    ("ronde run", horovod),
    ("mpirun of Open MPI", open_mpi),
    ("mpiexec of MPICH", hydra),
    ("srun", slurm),
    ("srun --mpi=pmix", slurm_with_pmix),
    ("torchrun", torchrun),
];

/// The port of a job's rank 0 over TCP, which is torchrun's and one.
static PORT: LazyLock<u16> = LazyLock::new(free_port);

/// Returns local rank and local size.
fn local(rank: usize, apart: bool) -> [String; 2] {
    match apart {
        true => ["0".into(), "1".into()],
        false => [rank.to_string(), "2".into()],
    }
}

fn horovod(rank: usize, apart: bool) -> Vec<(&'static str, String)> {
    let [local_rank, local_size] = local(rank, apart);
    vec![
        ("HOROVOD_RANK", rank.to_string()),
        ("HOROVOD_SIZE", "2".into()),
        ("HOROVOD_LOCAL_RANK", local_rank),
        ("HOROVOD_LOCAL_SIZE", local_size),
        (
            "RONDE_JOB_ID",
            format!("fake-horovod-{}", std::process::id()),
        ),
    ]
}

fn open_mpi(rank: usize, apart: bool) -> Vec<(&'static str, String)> {
    let [local_rank, local_size] = local(rank, apart);
    vec![
        ("OMPI_COMM_WORLD_RANK", rank.to_string()),
        ("OMPI_COMM_WORLD_SIZE", "2".into()),
        ("OMPI_COMM_WORLD_LOCAL_RANK", local_rank),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", local_size),
    ]
}

fn hydra(rank: usize, apart: bool) -> Vec<(&'static str, String)> {
    let [local_rank, local_size] = local(rank, apart);
    vec![
        ("PMI_RANK", rank.to_string()),
        ("PMI_SIZE", "2".into()),
        ("MPI_LOCALRANKID", local_rank),
        ("MPI_LOCALNRANKS", local_size),
    ]
}

fn slurm(rank: usize, apart: bool) -> Vec<(&'static str, String)> {
    let [local_rank, _] = local(rank, apart);
    let (nodes, tasks) = if apart { ("2", "1(x2)") } else { ("1", "2") };
    vec![
        ("SLURM_JOB_ID", std::process::id().to_string()),
        ("SLURM_STEP_ID", "3".into()),
        ("SLURM_PROCID", rank.to_string()),
        ("SLURM_NTASKS", "2".into()),
        ("SLURM_STEP_NUM_TASKS", "2".into()),
        ("SLURM_STEP_NUM_NODES", nodes.into()),
        ("SLURM_LOCALID", local_rank),
        ("SLURM_NODEID", if apart { rank } else { 0 }.to_string()),
        ("SLURM_STEP_TASKS_PER_NODE", tasks.into()),
    ]
}

fn slurm_with_pmix(rank: usize, apart: bool) -> Vec<(&'static str, String)> {
    let mut tells = slurm(rank, apart);
    tells.push(("PMIX_RANK", rank.to_string()));
    tells.push((
        "PMIX_NAMESPACE",
        format!("slurm.pmix.{}.3", std::process::id()),
    ));
    tells
}

fn torchrun(rank: usize, apart: bool) -> Vec<(&'static str, String)> {
    let [local_rank, local_size] = local(rank, apart);
    let (group, groups) = if apart { (rank, "2") } else { (0, "1") };
    vec![
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", "2".into()),
        ("LOCAL_RANK", local_rank),
        ("LOCAL_WORLD_SIZE", local_size),
        ("GROUP_RANK", group.to_string()),
        ("GROUP_WORLD_SIZE", groups.into()),
        (
            "TORCHELASTIC_RUN_ID",
            format!("fake-{}", std::process::id()),
        ),
        ("MASTER_ADDR", "127.0.0.1".into()),
        ("MASTER_PORT", (*PORT - 1).to_string()),
    ]
}

/// Starts both ranks with a launcher's variables but without the launcher.
fn start(tells: Tells, apart: bool) -> [Output; 2] {
    let rank = |rank: usize| -> Child {
        let mut command: Command = ronde();
        command
            .args([
                "bench",
                "--model",
                "many-small",
                "--steps",
                "2",
                "--warmup",
                "1",
            ])
            .envs(tells(rank, apart))
            .env("HOROVOD_START_TIMEOUT", "20")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().expect("ronde starts")
    };
    [rank(0), rank(1)].map(|child| child.wait_with_output().expect("ends"))
}

#[test]
fn ranks_of_one_host_meet_whoever_started_them() {
    for (launcher, tells) in LAUNCHERS {
        let [first, second] = start(tells, false);
        let text = stdout(&first);
        assert!(
            text.contains("2 ranks, local backend"),
            "{launcher}: {text}"
        );
        assert!(second.status.success(), "{launcher}: {:?}", texts(&second));
    }
}

/// On several hosts with MPI, whose own launcher did not set these variables.
#[test]
fn ranks_on_several_hosts_that_mpi_has_not_started_are_told_so() {
    if !super::has_mpi() || !super::is_there(super::launcher()) {
        return;
    }
    // torchrun's variables are enough for TCP.
    let others = LAUNCHERS
        .into_iter()
        .filter(|(launcher, _)| *launcher != "torchrun");
    for (launcher, tells) in others {
        for (rank, output) in start(tells, true).iter().enumerate() {
            let (_, err) = texts(output);
            assert_eq!(output.status.code(), Some(1), "{launcher}: {err}");
            let by_us = err.contains(&format!("this is rank {rank} of 2, MPI ("))
                && err.contains("says rank 0 of 1: ");
            // Open MPI itself detects that it runs under srun, and ends the process.
            let by_open_mpi =
                launcher.starts_with("srun") && err.contains("direct launched using \"srun\"");
            // There may be no library of the family that the launcher starts, or no plug-in for it.
            let missing =
                err.contains("no MPI was found") || err.contains("has no plug-in for MPI");
            assert!(by_us || by_open_mpi || missing, "{launcher}: {err}");
        }
    }
}

#[test]
fn ranks_of_torchrun_on_several_hosts_use_tcp() {
    let [first, second] = start(torchrun, true);
    let text = stdout(&first);
    assert!(text.contains("2 ranks, tcp backend"), "{text}");
    assert!(second.status.success(), "{:?}", texts(&second));
}

/// Variables of a shell in an allocation for four, without srun: it is a job of one process.
#[test]
fn a_lone_process_in_an_allocation_is_alone() {
    let mut command = ronde();
    command
        .args(["bench", "--model", "many-small", "--steps", "2", "-n", "1"])
        .envs([
            ("SLURM_JOB_ID", "7"),
            ("SLURM_NTASKS", "4"),
            ("SLURM_NPROCS", "4"),
            ("SLURM_JOB_NUM_NODES", "2"),
            ("SLURM_NNODES", "2"),
            ("SLURM_TASKS_PER_NODE", "2(x2)"),
        ]);
    let text = stdout(&command.output().expect("runs"));
    assert!(text.contains("1 rank"), "{text}");
    // Also in a batch script, where the rank is set to 0.
    command.envs([
        ("SLURM_STEP_ID", "4294967291"),
        ("SLURM_PROCID", "0"),
        ("SLURM_LOCALID", "0"),
    ]);
    let text = stdout(&command.output().expect("runs"));
    assert!(text.contains("1 rank"), "{text}");
}

/// Variables of `prterun` without Open MPI: a rank, and a size that only PMIx knows.
#[test]
fn a_rank_without_a_size_is_refused() {
    let mut command = ronde();
    command
        .args(["bench", "--model", "many-small"])
        .envs([("PMIX_RANK", "1"), ("PMIX_NAMESPACE", "prte")]);
    let output = command.output().expect("runs");
    super::assert_failed(&output, 1, &["PMIX_RANK=1", "HOROVOD_SIZE"]);
}
