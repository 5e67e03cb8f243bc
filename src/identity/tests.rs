//! Tests of the identity: environments, and the identities that follow from them.

use super::*;

fn identity(text: &str) -> Result<Identity, IdentityError> {
    Identity::from_lookup(&written(text))
}

#[test]
fn each_launcher_is_understood() {
    use Source::*;
    // environment → rank, size, local rank, local size, cross rank, cross size
    let table = [
        ("", [0, 1, 0, 1, 0, 1], Single),
        ("HOROVOD_RANK=1 HOROVOD_SIZE=2", [1, 2, 1, 2, 0, 1], Horovod),
        (
            "HOROVOD_RANK=3 HOROVOD_SIZE=4 HOROVOD_LOCAL_RANK=1 HOROVOD_LOCAL_SIZE=2 HOROVOD_CROSS_RANK=1 HOROVOD_CROSS_SIZE=2",
            [3, 4, 1, 2, 1, 2],
            Horovod,
        ),
        (
            "OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=4",
            [5, 8, 1, 4, 1, 2],
            OpenMpi,
        ),
        (
            "PMI_RANK=2 PMI_SIZE=3 MPI_LOCALRANKID=2 MPI_LOCALNRANKS=3",
            [2, 3, 2, 3, 0, 1],
            Pmi,
        ),
        ("PMI_RANK=1 PMI_SIZE=2 PMI_FD=7", [1, 2, 1, 2, 0, 1], Pmi),
        (
            "PMI_RANK=5 PMI_SIZE=8 PMI_LOCAL_RANK=1 PMI_LOCAL_SIZE=4",
            [5, 8, 1, 4, 1, 2],
            Pmi,
        ),
        (
            "SLURM_STEP_ID=0 SLURM_PROCID=6 SLURM_STEP_NUM_TASKS=7 SLURM_NTASKS=16 SLURM_LOCALID=0 SLURM_NODEID=3 \
             SLURM_STEP_TASKS_PER_NODE=2(x3),1",
            [6, 7, 0, 1, 3, 4],
            Slurm,
        ),
        (
            "SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_NTASKS=7 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_TASKS_PER_NODE=2(x3),1",
            [3, 7, 1, 2, 1, 3],
            Slurm,
        ),
        (
            "RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2",
            [1, 4, 1, 2, 0, 2],
            Torchrun,
        ),
        (
            "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 GROUP_WORLD_SIZE=2",
            [3, 4, 1, 2, 1, 2],
            Torchrun,
        ),
    ];
    for (environment, [rank, size, local_rank, local_size, cross_rank, cross_size], source) in table
    {
        let expected = Identity {
            rank,
            size,
            local_rank,
            local_size,
            cross_rank,
            cross_size,
            source,
        };
        assert_eq!(identity(environment), Ok(expected), "{environment}");
    }
}

#[test]
fn variables_outside_a_step_or_incomplete_are_not_used() {
    for environment in [
        "SLURM_PROCID=0 SLURM_NTASKS=8", // an allocation's shell
        "SLURM_STEP_ID=4294967291 SLURM_PROCID=0 SLURM_NTASKS=8", // a batch script
        "RANK=4",
        "WORLD_SIZE=4",
        "PMI_SIZE=4",
        "HOROVOD_RANK= HOROVOD_SIZE=",
        // salloc's shell as a step of Slurm's own
        "SLURM_STEP_ID=4294967290 SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=1 SLURM_LOCALID=0 SLURM_NODEID=0",
        // one task of an allocation for four
        "SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=1 SLURM_LOCALID=0 SLURM_NODEID=0 \
         SLURM_TASKS_PER_NODE=4 SLURM_STEP_TASKS_PER_NODE=1",
    ] {
        let found = identity(environment).map(|found| Identity {
            source: Source::Single,
            ..found
        });
        assert_eq!(found, Ok(Identity::single()), "{environment}");
    }
}

#[test]
fn a_step_of_one_task_per_node_may_be_a_launchers_daemons() {
    // The second daemon of two, on its node two of four ranks.
    let step = "SLURM_STEP_ID=1 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=2 SLURM_LOCALID=0 \
                SLURM_NODEID=1 SLURM_STEP_TASKS_PER_NODE=1(x2)";
    let pmi2 = "PMI_RANK=1 PMI_SIZE=2"; // srun's, for the same tasks
    let table = [
        (
            "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2",
            Source::OpenMpi,
        ),
        (
            "PMI_RANK=3 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2",
            Source::Pmi,
        ),
        (
            "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2",
            Source::Torchrun,
        ),
        (
            "HOROVOD_RANK=3 HOROVOD_SIZE=4 HOROVOD_LOCAL_RANK=1 HOROVOD_LOCAL_SIZE=2",
            Source::Horovod,
        ),
    ];
    for (ranks, source) in table {
        let mut environments = vec![format!("{step} {ranks}")];
        if source != Source::Pmi {
            environments.push(format!("{step} {pmi2} {ranks}"));
        }
        for environment in environments {
            let found = identity(&environment).unwrap();
            let numbers = [found.rank, found.size, found.local_rank, found.local_size];
            assert_eq!(
                (numbers, found.source),
                ([3, 4, 1, 2], source),
                "{environment}"
            );
        }
    }
    // If no other source is present, the tasks are the ranks.
    for (environment, source) in [
        (step.to_owned(), Source::Slurm),
        (format!("{step} {pmi2}"), Source::Pmi),
    ] {
        let found = identity(&environment).unwrap();
        let numbers = [found.rank, found.size, found.local_rank, found.local_size];
        assert_eq!(
            (numbers, found.source),
            ([1, 2, 0, 1], source),
            "{environment}"
        );
    }
    // The shell of `srun --ntasks-per-node=4 --pty bash` is the first of its tasks.
    let shell = "SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=1 SLURM_PTY_PORT=40001";
    let found = identity(&format!("{shell} RANK=1 WORLD_SIZE=2")).unwrap();
    assert_eq!(
        (found.rank, found.size, found.source),
        (1, 2, Source::Torchrun)
    );
    let found = identity(shell).unwrap();
    assert_eq!(
        (found.rank, found.size, found.source),
        (0, 4, Source::Slurm)
    );
    // Steps with two tasks per node do not consist of daemons.
    let two = "SLURM_STEP_ID=1 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=2 RANK=0 WORLD_SIZE=2";
    let message = identity(two).unwrap_err().to_string();
    assert!(
        message.contains("SLURM_STEP_NUM_TASKS=4") && message.contains("WORLD_SIZE=2"),
        "{message}"
    );
}

#[test]
fn a_rank_without_a_size_from_pmix_is_refused() {
    let message = identity("PMIX_RANK=1 PMIX_NAMESPACE=prterun-1")
        .unwrap_err()
        .to_string();
    assert!(
        message.starts_with("PMIX_RANK=1 is set") && message.contains("HOROVOD_SIZE"),
        "{message}"
    );
    // With a launcher that also gives the size it is accepted.
    let found = identity("PMIX_RANK=1 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2").unwrap();
    assert_eq!(
        (found.rank, found.size, found.source),
        (1, 2, Source::OpenMpi)
    );
    let found =
        identity("PMIX_RANK=0 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=1 RANK=2 WORLD_SIZE=3")
            .unwrap();
    assert_eq!(
        (found.rank, found.size, found.source),
        (2, 3, Source::Torchrun)
    );
}

#[test]
fn the_source_of_a_rank_is_reported_with_its_variables() {
    let environment = |name: &str| match name {
        "PMI_RANK" => Some("1".to_owned()),
        "PMI_SIZE" => Some("2".to_owned()),
        _ => None,
    };
    let (source, [rank, size]) = said_by(&environment, 1, 2).unwrap();
    assert_eq!(source, Source::Pmi);
    assert_eq!(format!("{rank} {size}"), "PMI_RANK=1 PMI_SIZE=2");
    assert!(said_by(&environment, 0, 2).is_none()); // the program gave other values
    assert!(said_by(&|_| None, 0, 1).is_none());
}

#[test]
fn sources_that_agree_complete_each_other() {
    let environment =
        "HOROVOD_RANK=1 HOROVOD_SIZE=4 RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2";
    let identity = identity(environment).unwrap();
    assert_eq!(
        (identity.local_rank, identity.local_size, identity.source),
        (1, 2, Source::Horovod)
    );
}

#[test]
fn a_launcher_may_be_the_single_task_of_another_launcher() {
    let outer = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1";
    let identity = identity(&format!("{outer} RANK=2 WORLD_SIZE=4")).unwrap();
    assert_eq!(
        (identity.rank, identity.size, identity.source),
        (2, 4, Source::Torchrun)
    );
}

#[test]
fn contradictions_name_both_variables_and_values() {
    let table = [
        (
            "HOROVOD_RANK=0 HOROVOD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2",
            "HOROVOD_RANK=0",
            "OMPI_COMM_WORLD_RANK=1",
        ),
        (
            "HOROVOD_RANK=0 HOROVOD_SIZE=2 PMI_RANK=0 PMI_SIZE=3",
            "HOROVOD_SIZE=2",
            "PMI_SIZE=3",
        ),
        (
            "SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2 RANK=0 WORLD_SIZE=2",
            "SLURM_PROCID=1",
            "RANK=0",
        ),
        (
            "HOROVOD_RANK=2 HOROVOD_SIZE=2",
            "HOROVOD_RANK=2",
            "HOROVOD_SIZE=2",
        ),
        (
            "HOROVOD_RANK=0 HOROVOD_SIZE=0",
            "HOROVOD_RANK=0",
            "HOROVOD_SIZE=0",
        ),
        ("HOROVOD_RANK=1", "HOROVOD_RANK=1", "HOROVOD_SIZE"),
        (
            "HOROVOD_RANK=1 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2",
            "HOROVOD_RANK=1",
            "HOROVOD_SIZE",
        ),
        (
            "OMPI_COMM_WORLD_SIZE=2",
            "OMPI_COMM_WORLD_SIZE=2",
            "OMPI_COMM_WORLD_RANK",
        ),
        (
            "RANK=0 WORLD_SIZE=2 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2",
            "LOCAL_RANK=2",
            "LOCAL_WORLD_SIZE=2",
        ),
        (
            "RANK=0 WORLD_SIZE=2 LOCAL_RANK=2 LOCAL_WORLD_SIZE=4",
            "WORLD_SIZE=2",
            "LOCAL_WORLD_SIZE=4",
        ),
        (
            "HOROVOD_RANK=x HOROVOD_SIZE=2",
            "HOROVOD_RANK=x",
            "HOROVOD_RANK",
        ),
        (
            "HOROVOD_RANK=-1 HOROVOD_SIZE=2",
            "HOROVOD_RANK=-1",
            "HOROVOD_RANK",
        ),
        ("RANK=0 WORLD_SIZE=65", "WORLD_SIZE=65", "64"),
        (
            "SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_NODEID=2 SLURM_TASKS_PER_NODE=1(x2)",
            "SLURM_TASKS_PER_NODE=1(x2)",
            "node 2",
        ),
    ];
    for (environment, first, second) in table {
        let message = identity(environment).unwrap_err().to_string();
        assert!(
            message.contains(first) && message.contains(second),
            "{environment}: {message}"
        );
    }
}

#[test]
fn every_variable_read_for_rank_and_size_is_one_that_run_removes() {
    let asked = std::cell::RefCell::new(Vec::new());
    let lookup = |name: &str| {
        asked.borrow_mut().push(name.to_owned());
        // Within a step and with a task list, so that all sources read all their variables.
        Some(if name == "SLURM_STEP_TASKS_PER_NODE" {
            "1".to_owned()
        } else {
            "0".to_owned()
        })
    };
    let _ = sources::claims(&lookup);
    // Without a task's number, Slurm's variables of the step and its nodes give no rank.
    let kept = [
        "SLURM_STEP_ID",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_STEP_NUM_NODES",
        "SLURM_NODEID",
        "SLURM_STEP_TASKS_PER_NODE",
        "SLURM_PTY_PORT",
    ];
    for name in asked
        .borrow()
        .iter()
        .filter(|name| !kept.contains(&name.as_str()))
    {
        assert!(IDENTITY_VARIABLES.contains(&name.as_str()), "{name}");
    }
}
