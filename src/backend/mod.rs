//! Backend: selects shared memory or MPI for a job, and opens the transport and the collective of
//! each process set.

use std::sync::Arc;

use crate::collective::Collective;
use crate::collective::shaped::ShapedCollective;
use crate::error::{DeviceError, Error, Failure, StartError};
use crate::gpu::{self, GpuError};
use crate::identity::{Hosts, Identity};
use crate::knobs::{self, Knobs};
use crate::rendezvous::RendezvousConfig;
use crate::shm::Watch;
use crate::traffic::MpiTraffic;
use crate::transport::Transport;

mod local;
mod mpi;

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
    /// MPI, with shared memory within hosts where operations are hierarchical.
    Mpi(mpi::Mpi),
}

impl Backend {
    /// Selects the backend that the knobs name, or the one that the job needs.
    ///
    /// # Errors
    /// Ranks on several hosts, or `RONDE_BACKEND=mpi`, where no MPI can be used; no GPU for this rank
    /// where the backend needs one.
    pub(crate) fn choose(knobs: &Knobs, identity: &Identity) -> Result<Self, Error> {
        let several_hosts = identity.local_size != identity.size;
        let reach = match knobs.backend {
            knobs::Backend::Mpi => Reach::Mpi(mpi::Mpi::new(knobs).map_err(StartError::NoMpi)?),
            knobs::Backend::Auto | knobs::Backend::Nccl if several_hosts => {
                let mpi = mpi::Mpi::new(knobs).map_err(|reason| StartError::SeveralHosts {
                    size: identity.size,
                    local_size: identity.local_size,
                    reason,
                })?;
                Reach::Mpi(mpi)
            }
            knobs::Backend::Local if several_hosts => {
                return Err(StartError::NotLocal {
                    size: identity.size,
                    local_size: identity.local_size,
                }
                .into());
            }
            knobs::Backend::Auto | knobs::Backend::Local | knobs::Backend::Nccl => Reach::Local,
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
            Reach::Mpi(_) => "mpi",
        }
    }

    /// Messages that this process has sent over MPI; `None` for other backends.
    pub(crate) fn traffic(&self) -> Option<MpiTraffic> {
        match &self.reach {
            Reach::Local => None,
            Reach::Mpi(mpi) => Some(mpi.traffic()),
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
            Reach::Mpi(mpi) => mpi.open(config, knobs)?,
        };
        if let Some(link) = knobs.link {
            let shaped =
                ShapedCollective::new(opened.collective, link, config.rank, config.members.len());
            opened.collective = Box::new(shaped);
        }
        Ok(opened)
    }
}

/// Opens the GPU with index `local_rank` for this process.
fn open_gpu(local_rank: usize) -> Result<(), GpuError> {
    gpu::devices()
        .get(gpu::devices().ordinal_of(local_rank)?)
        .map(drop)
}
