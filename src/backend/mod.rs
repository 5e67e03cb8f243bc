//! The backend: over what the ranks of a job reach one another, and how a process set's transport and collective come about.

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
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(not(feature = "mpi"))]
#[path = "no_mpi.rs"]
mod mpi;
/// Control and data of one process set, who watches over its ranks, and how they are spread.
pub(crate) struct Opened {
    pub(crate) transport: Box<dyn Transport>,
    pub(crate) collective: Box<dyn Collective>,
    pub(crate) watch: Arc<dyn Watch>,
    pub(crate) hosts: Hosts,
}

/// See the module; the same for all process sets of a context.
pub(crate) struct Backend {
    reach: Reach,
    /// Each rank has a GPU, and reports it before the rendezvous.
    on_gpu: bool,
}

/// How ranks are connected, and how data in host memory is transferred.
enum Reach {
    /// Shared memory.
    Local,
    /// MPI, whichever way that goes.
    Mpi(mpi::Mpi),
}

impl Backend {
    /// The one that the knobs name, or that the job needs.
    ///
    /// # Errors
    /// Ranks on several hosts without MPI; MPI without its feature; no GPU for this rank, if it is to have one.
    pub(crate) fn choose(knobs: &Knobs, identity: &Identity) -> Result<Self, Error> {
        let several_hosts = identity.local_size != identity.size;
        let reach = match knobs.backend {
            knobs::Backend::Mpi => Reach::Mpi(mpi::Mpi::new()?),
            knobs::Backend::Auto | knobs::Backend::Nccl if several_hosts && cfg!(feature = "mpi") => {
                Reach::Mpi(mpi::Mpi::new()?)
            }
            _ if several_hosts => {
                return Err(StartError::SeveralHosts {
                    size: identity.size,
                    local_size: identity.local_size,
                }
                .into());
            }
            knobs::Backend::Auto | knobs::Backend::Local | knobs::Backend::Nccl => Reach::Local,
        };
        let on_gpu = knobs.backend == knobs::Backend::Nccl;
        if on_gpu {
            open_gpu(identity.local_rank).map_err(|source| DeviceError::of_rank(identity.rank, source))?;
        }
        Ok(Self { reach, on_gpu })
    }

    /// Its word for `RONDE_BACKEND`.
    pub(crate) fn name(&self) -> &'static str {
        match &self.reach {
            _ if self.on_gpu => "nccl",
            Reach::Local => "local",
            Reach::Mpi(_) => "mpi",
        }
    }

    /// What this process has sent over MPI, if that is what it uses.
    pub(crate) fn traffic(&self) -> Option<MpiTraffic> {
        match &self.reach {
            Reach::Local => None,
            Reach::Mpi(mpi) => Some(mpi.traffic()),
        }
    }

    /// Meets the other ranks of a set; that of all ranks comes first.
    ///
    /// # Errors
    /// Ranks that do not come or do not fit, too little memory.
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
            let shaped = ShapedCollective::new(opened.collective, link, config.rank, config.members.len());
            opened.collective = Box::new(shaped);
        }
        Ok(opened)
    }
}

/// Opens the GPU of the rank that is number `local_rank` on this host, for all that this process will do with it.
fn open_gpu(local_rank: usize) -> Result<(), GpuError> {
    gpu::devices()
        .get(gpu::devices().ordinal_of(local_rank)?)
        .map(drop)
}
