//! Launchers that set a process's identity, and the variables they set.

use super::slurm::{self, Tasks};
use super::{Found, IdentityError, Lookup};

/// Source of a process's rank, in order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `HOROVOD_*`, set by `ronde run`, by horovodrun or by hand.
    Horovod,
    /// `OMPI_COMM_WORLD_*`, set by Open MPI's mpirun.
    OpenMpi,
    /// `PMI_*`, set by the launchers of MPICH and Intel MPI.
    Pmi,
    /// `SLURM_*`, inside a step started by srun.
    Slurm,
    /// `RANK`, `WORLD_SIZE` and so on, set by torchrun.
    Torchrun,
    /// None: the process is a job of its own.
    Single,
}

/// Values from one source.
pub(super) struct Claim {
    pub(super) source: Source,
    pub(super) rank: Found,
    pub(super) size: Found,
    pub(super) local: Option<(Found, Found)>,
    pub(super) cross: Option<(Found, Found)>,
}

impl Claim {
    /// Whether `other` gives the same rank and size.
    fn equals(&self, other: &Claim) -> bool {
        (self.rank.value, self.size.value) == (other.rank.value, other.size.value)
    }
}

/// A pair of variables, rank and size.
type Pair = (&'static str, &'static str);

/// The variables of one source.
struct Names {
    source: Source,
    world: Pair,
    /// Names of the local pair; the first that is set counts.
    local: &'static [Pair],
    cross: Option<Pair>,
    /// Whether a single variable of the `world` pair is an error. The other sources' names are too
    /// general for that.
    insist: bool,
}

const HOROVOD: Names = Names {
    source: Source::Horovod,
    world: ("HOROVOD_RANK", "HOROVOD_SIZE"),
    local: &[("HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE")],
    cross: Some(("HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE")),
    insist: true,
};
const OPEN_MPI: Names = Names {
    source: Source::OpenMpi,
    world: ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    local: &[("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")],
    cross: None,
    insist: true,
};
const PMI: Names = Names {
    source: Source::Pmi,
    world: ("PMI_RANK", "PMI_SIZE"),
    // Hydra's, and those of PALS, Cray's launcher.
    local: &[
        ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
        ("PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"),
    ],
    cross: None,
    insist: false,
};
const TORCHRUN: Names = Names {
    source: Source::Torchrun,
    world: ("RANK", "WORLD_SIZE"),
    local: &[("LOCAL_RANK", "LOCAL_WORLD_SIZE")],
    cross: Some(("GROUP_RANK", "GROUP_WORLD_SIZE")),
    insist: false,
};

/// All variables by which a launcher gives a process its rank and size. `ronde run` removes those
/// that it does not set itself, so that an outer launcher's variables cannot contradict it.
pub const IDENTITY_VARIABLES: &[&str] = &[
    "HOROVOD_RANK",
    "HOROVOD_SIZE",
    "HOROVOD_LOCAL_RANK",
    "HOROVOD_LOCAL_SIZE",
    "HOROVOD_CROSS_RANK",
    "HOROVOD_CROSS_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "PMI_LOCAL_RANK",
    "PMI_LOCAL_SIZE",
    PMIX_RANK,
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
];

/// The rank that a PMIx server gives its process; the process asks the server for everything else.
const PMIX_RANK: &str = "PMIX_RANK";

/// Returns the values of each source that is present, in order of precedence.
///
/// A Slurm step of one task per node often belongs to a launcher: `mpirun` and Hydra start a daemon
/// on each node through srun, and `srun torchrun` starts an agent. The variables of such a step are
/// also in the environment of the ranks, but do not describe them; the same is true of the `PMI_*`
/// variables that srun adds. So they count only if no other source gives this process a rank. Nor do
/// those of a step with a terminal, `srun --pty bash`, whatever its number of tasks.
pub(super) fn claims(lookup: Lookup) -> Result<Vec<Claim>, IdentityError> {
    let (step, one_per_node) = match slurm(lookup)? {
        Some((claim, one_per_node)) => (Some(claim), one_per_node),
        None => (None, false),
    };
    let by_step = |claim: &Claim| step.as_ref().is_some_and(|step| step.equals(claim));
    let pmi = PMI.claim(lookup)?;
    let pmi_of_step = pmi.as_ref().is_some_and(by_step);
    let others = [
        HOROVOD.claim(lookup)?,
        OPEN_MPI.claim(lookup)?,
        TORCHRUN.claim(lookup)?,
    ];
    let nearer = others.iter().flatten().count() > 0 || (pmi.is_some() && !pmi_of_step);
    let has_terminal = lookup("SLURM_PTY_PORT").is_some();
    let of_daemon = (one_per_node || has_terminal) && nearer;
    let [horovod, open_mpi, torchrun] = others;
    let claims = [
        horovod,
        open_mpi,
        pmi.filter(|_| !(of_daemon && pmi_of_step)),
        step.filter(|_| !of_daemon),
        torchrun,
    ];
    let claims: Vec<Claim> = claims.into_iter().flatten().collect();
    match number(lookup, PMIX_RANK)? {
        Some(rank) if claims.is_empty() => Err(IdentityError::NoSize { rank }),
        _ => Ok(claims),
    }
}

impl Names {
    fn claim(&self, lookup: Lookup) -> Result<Option<Claim>, IdentityError> {
        let (rank, size) = match (number(lookup, self.world.0)?, number(lookup, self.world.1)?) {
            (Some(rank), Some(size)) => (rank, size),
            (Some(present), None) if self.insist => {
                return Err(IdentityError::Incomplete {
                    present,
                    missing: self.world.1,
                });
            }
            (None, Some(present)) if self.insist => {
                return Err(IdentityError::Incomplete {
                    present,
                    missing: self.world.0,
                });
            }
            _ => return Ok(None),
        };
        let mut local = None;
        for names in self.local {
            local = local.or(pair(lookup, *names)?);
        }
        let cross = self
            .cross
            .map(|names| pair(lookup, names))
            .transpose()?
            .flatten();
        Ok(Some(Claim {
            source: self.source,
            rank,
            size,
            local,
            cross,
        }))
    }
}

/// Returns Slurm's values, and whether the step has one task on each node. Only inside a step: in a
/// batch script `SLURM_PROCID` is 0, and `SLURM_NTASKS` is the size of later steps.
fn slurm(lookup: Lookup) -> Result<Option<(Claim, bool)>, IdentityError> {
    if !slurm::inside_step(lookup) {
        return Ok(None);
    }
    let either = |first, second| match number(lookup, first)? {
        Some(found) => Ok(Some(found)),
        None => number(lookup, second),
    };
    let size = either("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")?;
    let nodes = either("SLURM_STEP_NUM_NODES", "SLURM_NNODES")?;
    let (Some(rank), Some(size)) = (number(lookup, "SLURM_PROCID")?, size) else {
        return Ok(None);
    };
    let (mut local, mut cross) = (None, None);
    if let (Some(local_rank), Some(tasks)) =
        (number(lookup, "SLURM_LOCALID")?, Tasks::find(lookup)?)
    {
        let node = number(lookup, "SLURM_NODEID")?.unwrap_or(Found {
            variable: "SLURM_NODEID",
            value: 0,
        });
        let local_size = Found {
            variable: tasks.variable,
            value: tasks.on_node(node.value)?,
        };
        let (cross_rank, cross_size) = tasks.cross(node.value, local_rank.value);
        local = Some((local_rank, local_size));
        // The check of the local pair reports a local rank that is out of range for its node.
        cross = (local_rank.value < local_size.value).then_some((
            Found {
                variable: "SLURM_NODEID",
                value: cross_rank,
            },
            Found {
                variable: tasks.variable,
                value: cross_size,
            },
        ));
    }
    let claim = Claim {
        source: Source::Slurm,
        rank,
        size,
        local,
        cross,
    };
    Ok(Some((
        claim,
        nodes.is_some_and(|nodes| nodes.value == size.value),
    )))
}

fn pair(lookup: Lookup, names: Pair) -> Result<Option<(Found, Found)>, IdentityError> {
    Ok(number(lookup, names.0)?.zip(number(lookup, names.1)?))
}

pub(super) fn number(
    lookup: Lookup,
    variable: &'static str,
) -> Result<Option<Found>, IdentityError> {
    match lookup(variable).filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => match text.trim().parse() {
            Ok(value) => Ok(Some(Found { variable, value })),
            Err(_) => Err(IdentityError::NotANumber {
                variable,
                value: text,
            }),
        },
    }
}
