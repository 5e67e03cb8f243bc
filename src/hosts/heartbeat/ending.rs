//! Errors that end a job, as the messages of the heartbeat tell of them.

use ronde_net::{Loss, NetError};

use super::message::{How, Message};
use crate::error::{Error, PeerError};
use crate::hosts::comm::CommError;

impl Message {
    /// Message of job rank `own`, for which this error has ended the job.
    pub(super) fn of_error(own: usize, error: &Error) -> Self {
        let (rank, how) = match error {
            Error::Peer(PeerError::Silent {
                rank,
                silent_seconds,
                ..
            }) => {
                let seconds = *silent_seconds;
                (*rank, How::Silent { seconds })
            }
            Error::Peer(PeerError::Stalled {
                rank,
                waited_seconds,
                limit_seconds,
            }) => {
                let how = How::Stalled {
                    waited_seconds: *waited_seconds,
                    limit_seconds: *limit_seconds,
                };
                (*rank, how)
            }
            Error::Peer(PeerError::Lost { rank, pid }) => (*rank, How::Lost { pid: *pid }),
            Error::Peer(PeerError::Disconnected { rank, reason, .. }) => {
                (*rank, How::disconnected(reason))
            }
            Error::Peer(PeerError::Left { rank }) => (*rank, How::Left),
            Error::Peer(PeerError::Failed { rank, reason }) => (*rank, How::failed(reason)),
            other => (own, How::failed(&other.to_string())),
        };
        Self::Ended { rank, how }
    }
}

impl How {
    /// Error of job rank `rank` on `host`, which has ended so.
    pub(super) fn error(self, rank: usize, host: String) -> Error {
        Error::Peer(match self {
            Self::Silent { seconds } => PeerError::Silent {
                rank,
                host,
                silent_seconds: seconds,
            },
            Self::Stalled {
                waited_seconds,
                limit_seconds,
            } => PeerError::Stalled {
                rank,
                waited_seconds,
                limit_seconds,
            },
            Self::Lost { pid } => PeerError::Lost { rank, pid },
            Self::Left => PeerError::Left { rank },
            Self::Failed { reason } => PeerError::Failed { rank, reason },
            Self::Disconnected { reason } => PeerError::Disconnected { rank, host, reason },
        })
    }
}

/// Converts an error of an operation of job rank `own` on `host`.
pub(super) fn own_failure(own: usize, host: &str, error: &CommError) -> Error {
    let disconnected = |rank, host, reason| PeerError::Disconnected { rank, host, reason };
    Error::Peer(match error.clone() {
        CommError::Mpi(error) => PeerError::Mpi {
            rank: own,
            host: host.to_owned(),
            call: error.call,
            reason: error.text,
        },
        CommError::Tcp(NetError::Left { rank, .. }) => PeerError::Left { rank },
        CommError::Tcp(NetError::InvalidData { rank, problem, .. }) => {
            PeerError::InvalidData { rank, problem }
        }
        CommError::Tcp(NetError::Lost { rank, host, loss }) => match loss {
            Loss::Silent { seconds } => PeerError::Silent {
                rank,
                host,
                silent_seconds: seconds,
            },
            loss => disconnected(rank, host, loss.to_string()),
        },
        CommError::Tcp(error) => disconnected(own, host.to_owned(), error.to_string()),
        CommError::Panicked => {
            return Error::Internal {
                rank: own,
                message: error.to_string(),
            };
        }
    })
}
