//! The backend: over what the ranks of a job reach one another, and how a process set's transport and collective come about.

use std::sync::Arc;

use crate::collective::Collective;
use crate::collective::shaped::ShapedCollective;
use crate::error::Error;
use crate::identity::{Hosts, Identity};
use crate::knobs::{self, Knobs};
use crate::shm::Watch;
use crate::transport::Transport;
use crate::transport::local::Meeting;

mod local;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(not(feature = "mpi"))]
#[path = "no_mpi.rs"]
mod mpi;
mod traffic;

pub use traffic::MpiTraffic;

/// Why the ranks of a set did not come together.
pub(crate) type Failure = Arc<dyn std::error::Error + Send + Sync>;

/// An error as that.
pub(crate) fn failure(error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    Arc::new(error)
}

/// Control and data of one process set, who watches over its ranks, and how they are spread.
pub(crate) struct Opened {
    pub(crate) transport: Box<dyn Transport>,
    pub(crate) collective: Box<dyn Collective>,
    pub(crate) watch: Arc<dyn Watch>,
    pub(crate) hosts: Hosts,
}

/// See the module; the same for all process sets of a context.
pub(crate) enum Backend {
    /// Shared memory.
    Local,
    /// MPI, whichever way that goes.
    Mpi(mpi::Mpi),
}

impl Backend {
    /// The one that the knobs name, or that the job needs.
    ///
    /// # Errors
    /// Ranks on several hosts without MPI; MPI without its feature.
    pub(crate) fn choose(knobs: &Knobs, identity: &Identity) -> Result<Self, Error> {
        let several_hosts = identity.local_size != identity.size;
        match knobs.backend {
            knobs::Backend::Mpi => Ok(Self::Mpi(mpi::Mpi::new()?)),
            knobs::Backend::Auto if several_hosts && cfg!(feature = "mpi") => Ok(Self::Mpi(mpi::Mpi::new()?)),
            knobs::Backend::Auto | knobs::Backend::Local if several_hosts => Err(Error::SeveralHosts {
                size: identity.size,
                local_size: identity.local_size,
            }),
            knobs::Backend::Auto | knobs::Backend::Local => Ok(Self::Local),
        }
    }

    /// Its word for `RONDE_BACKEND`.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Mpi(_) => "mpi",
        }
    }

    /// What this process has sent over MPI, if that is what it uses.
    pub(crate) fn traffic(&self) -> Option<MpiTraffic> {
        match self {
            Self::Local => None,
            Self::Mpi(mpi) => Some(mpi.traffic()),
        }
    }

    /// Meets the other ranks of a set; that of all ranks comes first.
    ///
    /// # Errors
    /// Ranks that do not come or do not fit, too little memory.
    pub(crate) fn open(
        &self,
        meeting: &Meeting,
        cache_words: usize,
        knobs: &Knobs,
    ) -> Result<Opened, Failure> {
        let mut opened = match self {
            Self::Local => local::open(meeting, cache_words, knobs)?,
            Self::Mpi(mpi) => mpi.open(meeting, knobs)?,
        };
        if let Some(link) = knobs.link {
            let shaped = ShapedCollective::new(opened.collective, link, meeting.rank, meeting.members.len());
            opened.collective = Box::new(shaped);
        }
        Ok(opened)
    }
}
