//! Error of a process whose rank or size in MPI differs from that in the launcher's variables,
//! mostly because it was started by a launcher that MPI does not know. The advice in the text
//! follows from the variables and from the library's name.

use super::library::short;
use crate::identity::{self, Source};

/// MPI and the launcher's variables contradict each other.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "{teller} that this is rank {rank} of {size}, MPI ({library}) says rank {mpi_rank} of {mpi_size}: {advice}"
)]
pub(crate) struct Contradiction {
    teller: String,
    rank: usize,
    size: usize,
    library: String,
    mpi_rank: usize,
    mpi_size: usize,
    advice: &'static str,
}

impl Contradiction {
    /// Error of a process that is rank `own.0` of `own.1` by the launcher's variables or the
    /// program, and rank `mpi.0` of `mpi.1` in MPI. `library` is the text by which MPI's library
    /// identifies itself.
    pub(crate) fn new(own: (usize, usize), mpi: (usize, usize), library: &str) -> Self {
        Self::of(own, mpi, library, &identity::environment)
    }

    fn of(
        (rank, size): (usize, usize),
        (mpi_rank, mpi_size): (usize, usize),
        library: &str,
        lookup: identity::Lookup,
    ) -> Self {
        let said = identity::said_by(lookup, rank, size);
        let source = said.map_or(Source::Single, |(source, _)| source);
        let library = short(library);
        Self {
            teller: match said {
                Some((_, [rank, size])) => format!("{rank} and {size} say"),
                None => "the program says".into(),
            },
            rank,
            size,
            advice: advice(source, &library, mpi_size),
            library,
            mpi_rank,
            mpi_size,
        }
    }
}

fn advice(source: Source, library: &str, mpi_size: usize) -> &'static str {
    let is_open_mpi = library.starts_with("Open MPI");
    match source {
        _ if mpi_size > 1 => {
            "two launchers, or variables set by hand, describe this process; unset those of the one that did not start it"
        }
        Source::OpenMpi if !is_open_mpi => {
            "two MPIs are mixed: Open MPI's mpirun has started a process that has loaded another MPI; start it with that one's \
             mpiexec, or unset RONDE_MPI_LIBRARY and import no library of the other MPI"
        }
        Source::Pmi if is_open_mpi => {
            "two MPIs are mixed: a launcher that speaks PMI (MPICH's or Intel's mpiexec, srun --mpi=pmi2) has started a process \
             that has loaded Open MPI; start it with Open MPI's mpirun, or unset RONDE_MPI_LIBRARY and import no library of Open MPI"
        }
        Source::OpenMpi | Source::Pmi => {
            "two installations of MPI are mixed: start the program with the mpirun of this library, or set RONDE_MPI_LIBRARY to \
             the library of that mpirun"
        }
        Source::Slurm => {
            "srun has not told this MPI of the job; choose what it understands, of those that srun --mpi=list shows \
             (Open MPI: --mpi=pmix, MPICH: --mpi=pmi2), start the job with mpirun, or give the ranks an address for TCP \
             (RONDE_TCP_SERVER, or MASTER_ADDR and MASTER_PORT)"
        }
        Source::Torchrun => {
            "torchrun does not start MPI, which ranks on several hosts need; start them with mpirun or srun"
        }
        Source::Horovod | Source::Single => {
            "the ranks were not started by MPI; start them with mpirun, srun or ronde run --mpi, or leave RONDE_BACKEND at \
             auto where all are on one host"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN_MPI: &str =
        "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022\0";
    const MPICH: &str =
        "MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7 12:34:45 CDT 2022\n";

    fn said(environment: &str, mpi: (usize, usize), library: &str) -> String {
        let lookup = identity::written(environment);
        Contradiction::of((1, 2), mpi, library, &lookup).to_string()
    }

    #[test]
    fn two_mpis_that_are_mixed_are_both_named() {
        let text = said("PMI_RANK=1 PMI_SIZE=2", (0, 1), OPEN_MPI);
        assert!(
            text.starts_with(
                "PMI_RANK=1 and PMI_SIZE=2 say that this is rank 1 of 2, MPI (Open MPI v4.1.4) says rank 0 of 1: two MPIs are \
                 mixed: a launcher that speaks PMI"
            ),
            "{text}"
        );
        let text = said(
            "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2",
            (0, 1),
            MPICH,
        );
        assert!(
            text.starts_with(
                "OMPI_COMM_WORLD_RANK=1 and OMPI_COMM_WORLD_SIZE=2 say that this is rank 1 of 2, MPI (MPICH Version: 4.0.2) says \
                 rank 0 of 1: two MPIs are mixed: Open MPI's mpirun"
            ),
            "{text}"
        );
    }

    #[test]
    fn what_to_do_depends_on_who_started_the_ranks() {
        let slurm = "SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2";
        let table = [
            (
                "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2",
                OPEN_MPI,
                "two installations",
            ),
            ("PMI_RANK=1 PMI_SIZE=2", MPICH, "two installations"),
            (slurm, MPICH, "srun --mpi=list"),
            (
                "RANK=1 WORLD_SIZE=2",
                OPEN_MPI,
                "torchrun does not start MPI",
            ),
            ("HOROVOD_RANK=1 HOROVOD_SIZE=2", OPEN_MPI, "ronde run --mpi"),
            ("", OPEN_MPI, "the program says that this is rank 1 of 2"),
        ];
        for (environment, library, part) in table {
            let text = said(environment, (0, 1), library);
            assert!(text.contains(part), "{environment}: {text}");
        }
        // MPI was told of a job, but of another rank in it.
        let text = said(slurm, (0, 2), OPEN_MPI);
        assert!(
            text.contains("SLURM_PROCID=1") && text.contains("unset those"),
            "{text}"
        );
    }
}
