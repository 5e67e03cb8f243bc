//! Backend: selects shared memory, MPI or TCP for a job, and opens the transport and the collective
//! of each process set.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::collective::Collective;
use crate::collective::shaped::ShapedCollective;
use crate::error::{DeviceError, Error, Failure, StartError};
use crate::gpu::{self, GpuError};
use crate::identity::{Hosts, Identity, Lookup, Source, environment};
use crate::knobs::{self, Knobs};
use crate::rendezvous::RendezvousConfig;
use crate::shm::Watch;
use crate::traffic::MpiTraffic;
use crate::transport::Transport;

mod hosts;
mod local;

use hosts::BetweenHosts;

/// Open process set: control, data, the watch over its ranks, and their hosts.
pub(crate) struct Opened {
    pub(crate) transport: Box<dyn Transport>,
    pub(crate) collective: Box<dyn Collective>,
    pub(crate) watch: Arc<dyn Watch>,
    pub(crate) hosts: Hosts,
}

/// Selected backend, shared by all process sets of a context.
pub(crate) struct Backend {
    reach: Reach,
    /// Whether each rank uses a GPU, which it opens before the rendezvous.
    on_gpu: bool,
}

/// Connection of the ranks, and path of data in host memory.
enum Reach {
    /// Shared memory.
    Local,
    /// MPI or TCP, with shared memory within hosts where operations are hierarchical.
    Hosts(BetweenHosts),
}

impl Backend {
    /// Selects the backend that the knobs name, or the one that the job needs.
    ///
    /// # Errors
    /// Ranks on several hosts where neither MPI nor TCP can be used; a requested backend that
    /// cannot be; no GPU for this rank where the backend needs one.
    pub(crate) fn choose(knobs: &Knobs, identity: &Identity) -> Result<Self, Error> {
        let several_hosts = identity.local_size != identity.size;
        let reach = match knobs.backend {
            knobs::Backend::Mpi => {
                Reach::Hosts(BetweenHosts::over_mpi(knobs).map_err(StartError::NoMpi)?)
            }
            knobs::Backend::Tcp => {
                Reach::Hosts(BetweenHosts::over_tcp(knobs).map_err(StartError::NoTcp)?)
            }
            knobs::Backend::Auto | knobs::Backend::Nccl if several_hosts => {
                Reach::Hosts(between_hosts(knobs, identity)?)
            }
            knobs::Backend::Local if several_hosts => {
                return Err(StartError::NotLocal {
                    size: identity.size,
                    local_size: identity.local_size,
                }
                .into());
            }
            knobs::Backend::Auto | knobs::Backend::Local | knobs::Backend::Nccl => {
                check_host(identity, &environment)?;
                Reach::Local
            }
        };
        let on_gpu = knobs.backend == knobs::Backend::Nccl;
        if on_gpu {
            open_gpu(identity.local_rank)
                .map_err(|source| DeviceError::of_rank(identity.rank, source))?;
        }
        Ok(Self { reach, on_gpu })
    }

    /// Returns the name of the backend, as `RONDE_BACKEND` takes it.
    pub(crate) fn name(&self) -> &'static str {
        match &self.reach {
            _ if self.on_gpu => "nccl",
            Reach::Local => "local",
            Reach::Hosts(hosts) => hosts.name(),
        }
    }

    /// Messages that this process has sent over MPI or TCP; `None` for other backends.
    pub(crate) fn traffic(&self) -> Option<MpiTraffic> {
        match &self.reach {
            Reach::Local => None,
            Reach::Hosts(_) => Some(crate::hosts::traffic()),
        }
    }

    /// Runs the rendezvous with the other ranks of a set. The set of all ranks must be the first.
    ///
    /// # Errors
    /// Ranks that do not arrive in time or do not match this one; too little memory.
    pub(crate) fn open(
        &self,
        config: &RendezvousConfig,
        cache_words: usize,
        knobs: &Knobs,
    ) -> Result<Opened, Failure> {
        let mut opened = match &self.reach {
            Reach::Local => local::open(config, cache_words, knobs)?,
            Reach::Hosts(hosts) => hosts.open(config, knobs)?,
        };
        if let Some(link) = knobs.link {
            let shaped =
                ShapedCollective::new(opened.collective, link, config.rank, config.members.len());
            opened.collective = Box::new(shaped);
        }
        Ok(opened)
    }
}

/// Selects the connection of several hosts. Where a launcher of MPI has started the ranks, it is
/// MPI, and TCP only if no MPI can be used. Otherwise it is TCP if the environment has an address
/// for it.
fn between_hosts(knobs: &Knobs, identity: &Identity) -> Result<BetweenHosts, Error> {
    let tcp = BetweenHosts::over_tcp(knobs);
    match (tcp, is_started_by_mpi(identity, &environment)) {
        (Ok(tcp), false) => Ok(tcp),
        (tcp, _) => BetweenHosts::over_mpi(knobs).or_else(|no_mpi| match tcp {
            Ok(tcp) => {
                // On each host: it may be the only one without MPI.
                if identity.local_rank == 0 {
                    tracing::warn!(
                        "a launcher of MPI has started the ranks, and MPI cannot be used: {no_mpi}; they connect over TCP \
                         (RONDE_BACKEND=tcp is without this warning)"
                    );
                }
                Ok(tcp)
            }
            Err(no_tcp) => Err(StartError::SeveralHosts {
                size: identity.size,
                local_size: identity.local_size,
                no_mpi,
                no_tcp,
            }
            .into()),
        }),
    }
}

/// Whether a launcher that MPI knows has started this rank. `ronde run` may have been that
/// launcher's way to do so.
fn is_started_by_mpi(identity: &Identity, lookup: Lookup) -> bool {
    let is_any_set = |names: &[&str]| names.iter().any(|name| lookup(name).is_some());
    match identity.source {
        Source::OpenMpi | Source::Pmi => true,
        // Without a PMI, srun tells MPI nothing: scripts for torch start their ranks so.
        Source::Slurm => is_any_set(&["PMI_RANK", "PMI_FD", "PMI_CONTROL_PORT", "PMIX_RANK"]),
        Source::Horovod => is_any_set(&["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"]),
        Source::Torchrun | Source::Single => false,
    }
}

/// Checks the assumption that all ranks are on this host, which the variables `RANK` and
/// `WORLD_SIZE` alone do not tell. Kubeflow's operator for torch sets no others.
///
/// # Errors
/// Torch's rank 0 is on another host.
fn check_host(identity: &Identity, lookup: Lookup) -> Result<(), StartError> {
    let is_local_given = ["LOCAL_RANK", "LOCAL_WORLD_SIZE"].map(lookup) != [None, None];
    if identity.source != Source::Torchrun || identity.size == 1 || is_local_given {
        return Ok(());
    }
    let Some(master) = lookup("MASTER_ADDR") else {
        return Ok(());
    };
    let is_here =
        |address: SocketAddr| address.ip().is_loopback() || ronde_net::is_own_address(address.ip());
    match ronde_net::resolve(&master, 0) {
        Ok(addresses) if !addresses.iter().any(|address| is_here(*address)) => {
            Err(StartError::NoLocalRank {
                size: identity.size,
                master,
            })
        }
        _ => Ok(()),
    }
}

/// Opens the GPU with index `local_rank` for this process.
fn open_gpu(local_rank: usize) -> Result<(), GpuError> {
    gpu::devices()
        .get(gpu::devices().ordinal_of(local_rank)?)
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::written;

    fn identity(environment: &str) -> Identity {
        Identity::from_lookup(&written(environment)).expect("a rank")
    }

    #[test]
    fn srun_without_a_pmi_is_no_launcher_of_mpi() {
        let step = "SLURM_STEP_ID=1 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=2 \
                    SLURM_LOCALID=1 SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=2(x2)";
        let is_by_mpi = |more: &str| {
            let environment = format!("{step} {more}");
            let identity = identity(&environment);
            assert_eq!(identity.source, Source::Slurm);
            is_started_by_mpi(&identity, &written(&environment))
        };
        assert!(!is_by_mpi("MASTER_ADDR=node1"));
        assert!(is_by_mpi("MASTER_ADDR=node1 PMIX_RANK=1"));
        assert!(is_by_mpi("PMI_FD=5"));
    }

    #[test]
    fn ranks_without_local_ranks_are_refused_if_rank_0_is_on_another_host() {
        let check = |environment: &str| {
            let environment = format!("RANK=1 WORLD_SIZE=3 {environment}");
            check_host(&identity(&environment), &written(&environment))
        };
        let refused = check("MASTER_ADDR=192.0.2.1")
            .expect_err("that is no host")
            .to_string();
        assert!(refused.contains("MASTER_ADDR=192.0.2.1"), "{refused}");
        for here in ["", "MASTER_ADDR=127.0.0.1", "MASTER_ADDR=localhost"] {
            assert!(check(here).is_ok(), "{here}");
        }
        let local = "MASTER_ADDR=192.0.2.1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1";
        assert!(check(local).is_ok());
    }
}
