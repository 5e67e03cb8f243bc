//! The runtime's one public error, [`Error`], over one enum for each kind of error.
//!
//! Errors carry fields (rank, tensor, values), and their text names the next thing to try.
//!
//! ```
//! use ronde::{Error, PeerError};
//!
//! fn lost_rank(error: &Error) -> Option<usize> {
//!     match error {
//!         Error::Peer(PeerError::Lost { rank, .. }) => Some(*rank),
//!         _ => None,
//!     }
//! }
//!
//! let error = Error::from(PeerError::Lost { rank: 4, pid: 77 });
//! assert!(error.is_peer_gone());
//! assert_eq!(lost_rank(&error), Some(4));
//! ```

mod argument;
mod device;
mod gpu;
mod limit;
mod mismatch;
mod negotiation;
mod peer;
mod process_set;
mod settings;
mod start;

pub use argument::ArgumentError;
pub use device::DeviceError;
pub use gpu::GpuError;
pub use limit::LimitError;
pub use mismatch::{Mismatch, Mismatched, Submitted};
pub use negotiation::NegotiationError;
pub use peer::PeerError;
pub use process_set::{ProcessSetError, ProcessSetProblem};
pub use ronde_job::OpKind;
pub use settings::SettingsError;
pub use start::StartError;
pub(crate) use start::{Failure, failure};

/// Any error between a submission and its result. Cloneable, because the loss of one peer fails
/// every pending tensor.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another rank is lost: no further operation is possible in this context.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// An invalid argument of this rank's own call.
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    /// The ranks did not agree on a tensor.
    #[error(transparent)]
    Negotiation(#[from] NegotiationError),
    /// A process set cannot be added, used or removed.
    #[error(transparent)]
    ProcessSet(#[from] ProcessSetError),
    /// A GPU or NCCL has failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A limit of the runtime or of the machine.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A setting is invalid, or does not allow the call.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The ranks of the job cannot be connected.
    #[error(transparent)]
    Start(#[from] StartError),
    /// This context has been shut down.
    #[error("the context has been shut down; create a new one before submitting tensors")]
    ShutDown,
    /// [`Context::abort`](crate::Context::abort) was called.
    #[error("the job was aborted: {reason}")]
    Aborted {
        /// The caller's reason.
        reason: std::sync::Arc<str>,
    },
    /// The process was made by `fork` from one that had created a context.
    #[error(
        "this process was forked from one that had joined a job, and cannot join one: start it as a new \
         program (in Python, multiprocessing's method \"spawn\"), or submit from the parent process"
    )]
    Forked,
    /// The cycle thread panicked: a bug in Ronde.
    #[error("internal error on rank {rank}: {message}; please report it")]
    Internal {
        /// This rank.
        rank: usize,
        /// Message of the panic.
        message: String,
    },
}

impl Error {
    /// Whether the job has lost a rank, for whatever reason: no further operation is possible in
    /// this context.
    pub fn is_peer_gone(&self) -> bool {
        matches!(self, Self::Peer(_))
    }

    /// Whether ranks disagreed about one tensor; the context goes on.
    pub fn is_mismatch(&self) -> bool {
        matches!(self, Self::Negotiation(NegotiationError::Mismatch(_)))
    }

    /// Whether the context has ended in an orderly way.
    pub fn is_shut_down(&self) -> bool {
        matches!(self, Self::ShutDown)
    }

    /// Whether the error ends a cycle without a failure.
    pub(crate) fn is_orderly(&self) -> bool {
        matches!(
            self,
            Self::ShutDown | Self::ProcessSet(ProcessSetError::Removed { .. })
        )
    }
}

impl From<Mismatch> for Error {
    fn from(mismatch: Mismatch) -> Self {
        NegotiationError::Mismatch(Box::new(mismatch)).into()
    }
}
