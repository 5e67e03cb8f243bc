//! Errors of a mesh. Ranks are ranks of the mesh.

use std::net::{IpAddr, SocketAddr};

use crate::late::who;
use crate::secret::SecretError;

/// Sign by which a rank was found to be lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Loss {
    /// Its connection ended without a closing message: its process has ended.
    #[error("its connection has ended: was the process killed?")]
    Closed,
    /// The connection failed.
    #[error("its connection has failed: {reason}")]
    Failed {
        /// The operating system's reason.
        reason: String,
    },
    /// It has sent nothing for so long.
    #[error(
        "it has sent nothing for {seconds} s: is the process stopped, or the network interrupted?"
    )]
    Silent {
        /// Time since the last byte.
        seconds: u64,
    },
    /// Another rank has reported it.
    #[error("rank {by} reports: {reason}")]
    Reported {
        /// The rank that has sent the report.
        by: usize,
        /// Its reason.
        reason: String,
    },
}

/// Error of a mesh.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The secret.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// A name has no address.
    #[error("the host name {name} has no address: {reason}")]
    Resolve {
        /// The name.
        name: String,
        /// The resolver's reason.
        reason: String,
    },
    /// There is no such network interface.
    #[error("this host has no network interface {name} with {address}; it has {found}")]
    Interface {
        /// The interface.
        name: String,
        /// Kind of address that it lacks.
        address: &'static str,
        /// Interfaces with addresses.
        found: String,
    },
    /// The network interface does not lead to other hosts.
    #[error(
        "{name} is a loopback interface ({address}), which does not lead to other hosts; name the \
         interface between the hosts: this host has {found}"
    )]
    Loopback {
        /// The interface.
        name: String,
        /// Its address.
        address: IpAddr,
        /// Interfaces with other addresses.
        found: String,
    },
    /// This process cannot listen.
    #[error(
        "rank {rank} cannot listen on {address}: {reason}; if another program uses the port, \
         choose another one"
    )]
    Listen {
        /// This rank.
        rank: usize,
        /// The address.
        address: SocketAddr,
        /// The operating system's reason.
        reason: String,
    },
    /// This process cannot listen at an address that is not its host's.
    #[error("rank {rank} cannot listen on {address}, which is not an address of this host")]
    NotOwnAddress {
        /// This rank.
        rank: usize,
        /// The address.
        address: SocketAddr,
    },
    /// Rank 0 was not reached.
    #[error(
        "rank {rank} on {host} has not reached rank 0 at {address} within {waited_seconds} s: \
         {reason}{}",
        loopback_hint(address, "rank 0 is on another host")
    )]
    Unreachable {
        /// This rank.
        rank: usize,
        /// Its host.
        host: String,
        /// Rank 0's address.
        address: SocketAddr,
        /// Time waited.
        waited_seconds: u64,
        /// Why the last attempt failed.
        reason: String,
    },
    /// Another program answers.
    #[error(
        "rank {rank} on {host} has reached another program at {address}, or another version of \
         ronde: is the port of rank 0 in use by something else?"
    )]
    NotRonde {
        /// This rank.
        rank: usize,
        /// Its host.
        host: String,
        /// The address.
        address: SocketAddr,
    },
    /// The other side has another secret.
    #[error(
        "rank {rank} on {host} and the process at {address} do not have the same secret: give all \
         ranks of a job the same one, and each job its own port"
    )]
    WrongSecret {
        /// This rank.
        rank: usize,
        /// Its host.
        host: String,
        /// The other side.
        address: SocketAddr,
    },
    /// Not all ranks have come.
    #[error(
        "{} not connected to rank 0 on {host} at {address} within {waited_seconds} s{}{}",
        who(missing),
        list_of(refused),
        loopback_hint(address, "some ranks are on other hosts")
    )]
    Missing {
        /// Ranks without a connection.
        missing: Vec<usize>,
        /// Host of rank 0.
        host: String,
        /// Where rank 0 listens.
        address: SocketAddr,
        /// Time waited.
        waited_seconds: u64,
        /// Connections that were refused, with the reasons.
        refused: Vec<String>,
    },
    /// The alarm of this rank's configuration has ended the rendezvous.
    #[error("{reason}")]
    Ended {
        /// Its reason.
        reason: String,
    },
    /// Rank 0 has sent no answer.
    #[error(
        "rank {rank} on {host} has waited {waited_seconds} s for rank 0 at {address} to start the \
         job: have all ranks been started?"
    )]
    NotStarted {
        /// This rank.
        rank: usize,
        /// Its host.
        host: String,
        /// Rank 0's address.
        address: SocketAddr,
        /// Time waited.
        waited_seconds: u64,
    },
    /// The job cannot start, because ranks differ, or rank 0 has refused this one.
    #[error("{reason}")]
    Refused {
        /// The difference, with ranks and hosts.
        reason: String,
    },
    /// A rank is lost.
    #[error("rank {rank} on {host} is lost: {loss}")]
    Lost {
        /// The rank.
        rank: usize,
        /// Its host.
        host: String,
        /// Sign by which it was found.
        loss: Loss,
    },
    /// A rank has left the mesh in order.
    #[error("rank {rank} on {host} has left the job")]
    Left {
        /// The rank.
        rank: usize,
        /// Its host.
        host: String,
    },
    /// A rank has sent what no rank sends.
    #[error(
        "rank {rank} on {host} has sent invalid data: {problem}; do all ranks run the same program?"
    )]
    InvalidData {
        /// The rank.
        rank: usize,
        /// Its host.
        host: String,
        /// The problem with the data.
        problem: String,
    },
    /// The others have given this rank up.
    #[error("the other ranks have given up rank {rank}, which is this process: {reason}")]
    GivenUp {
        /// This rank.
        rank: usize,
        /// Their reason.
        reason: String,
    },
    /// A system call failed.
    #[error("{call}: {reason}")]
    System {
        /// The call.
        call: &'static str,
        /// The operating system's reason.
        reason: String,
    },
}

impl NetError {
    /// Converts the error of the system call `call`.
    pub(crate) fn system(call: &'static str) -> impl Fn(std::io::Error) -> Self {
        move |error| Self::System {
            call,
            reason: error.to_string(),
        }
    }
}

/// The refused connections, if there are any.
fn list_of(refused: &[String]) -> String {
    match refused {
        [] => String::new(),
        refused => format!("; refused: {}", refused.join("; ")),
    }
}

/// A remark on an address that only one host can reach.
fn loopback_hint(address: &SocketAddr, unless: &str) -> String {
    if !address.ip().is_loopback() {
        return String::new();
    }
    format!(
        ". {} is a loopback address of this host: if {unless}, use a name or an address that all \
         hosts can reach",
        address.ip()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_ranks_are_listed_with_what_may_explain_it() {
        let error = NetError::Missing {
            missing: vec![1, 3],
            host: "node1".into(),
            address: "127.0.1.1:29501".parse().unwrap(),
            waited_seconds: 30,
            refused: vec!["a connection from 10.0.0.9 without the secret".into()],
        };
        assert_eq!(
            error.to_string(),
            "ranks [1, 3] have not connected to rank 0 on node1 at 127.0.1.1:29501 within 30 s; \
             refused: a connection from 10.0.0.9 without the secret. 127.0.1.1 is a loopback \
             address of this host: if some ranks are on other hosts, use a name or an address that \
             all hosts can reach"
        );
    }
}
