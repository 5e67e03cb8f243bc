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

use std::fmt;

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
///
/// `{:?}` prints the text, as `{}` does, because that is what a program shows whose `main` returns
/// an error. `{:#?}` prints variant and fields.
#[derive(Clone, thiserror::Error)]
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

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return fmt::Display::fmt(self, f);
        }
        let mut variant = |name, inner: &dyn fmt::Debug| f.debug_tuple(name).field(inner).finish();
        match self {
            Self::Peer(error) => variant("Peer", error),
            Self::Argument(error) => variant("Argument", error),
            Self::Negotiation(error) => variant("Negotiation", error),
            Self::ProcessSet(error) => variant("ProcessSet", error),
            Self::Device(error) => variant("Device", error),
            Self::Limit(error) => variant("Limit", error),
            Self::Settings(error) => variant("Settings", error),
            Self::Start(error) => variant("Start", error),
            Self::ShutDown => f.write_str("ShutDown"),
            Self::Aborted { reason } => f.debug_struct("Aborted").field("reason", reason).finish(),
            Self::Forked => f.write_str("Forked"),
            Self::Internal { rank, message } => f
                .debug_struct("Internal")
                .field("rank", rank)
                .field("message", message)
                .finish(),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A program whose `main` returns an error prints `Error: {error:?}`.
    #[test]
    fn debug_prints_the_text() {
        let members = vec![0, 2];
        let error = Error::from(ProcessSetError::NotAMember {
            set: 1,
            rank: 1,
            members,
        });
        let text = "rank 1 is not a member of process set 1, whose ranks are [0, 2]";
        assert_eq!(format!("{error:?}"), text);
        assert_eq!(format!("{:?}", Err::<(), _>(error)), format!("Err({text})"));
        assert_eq!(
            format!("{:?}", Error::ShutDown),
            Error::ShutDown.to_string()
        );
    }

    #[test]
    fn alternate_debug_prints_the_fields() {
        let aborted = Error::Aborted {
            reason: "no disk".into(),
        };
        let internal = Error::Internal {
            rank: 3,
            message: "index".to_owned(),
        };
        let lost = Error::from(PeerError::Lost { rank: 4, pid: 77 });
        for (error, expected) in [
            (
                lost,
                "Peer(\n    Lost {\n        rank: 4,\n        pid: 77,\n    },\n)",
            ),
            (aborted, "Aborted {\n    reason: \"no disk\",\n}"),
            (
                internal,
                "Internal {\n    rank: 3,\n    message: \"index\",\n}",
            ),
            (Error::ShutDown, "ShutDown"),
        ] {
            assert_eq!(format!("{error:#?}"), expected);
        }
    }
}
