//! Jobs over TCP: the rendezvous, which starts an engine for the context.

use std::time::Duration;

use ronde_net::{Comm as MeshComm, Mesh, NetError};

use super::comm::Comm;
use super::engine::{Engine, NotStarted};
use super::job::{Communicators, HostsJob, OfAll, RankHost};
use super::world::{Carrier, World};
use crate::error::{Failure, failure};
use crate::rendezvous::{Patience, RendezvousConfig};

mod settings;

pub(crate) use settings::TcpSettings;

/// How much longer the engine's thread may take than the rendezvous, which limits its own time.
const START_SLACK: Duration = Duration::from_secs(60);

/// Errors of the rendezvous over TCP.
#[derive(Clone, Debug, thiserror::Error)]
enum TcpRendezvousError {
    /// Rank 0 cannot listen.
    #[error("{error} ({variable}, equal on all ranks)")]
    Port {
        error: NetError,
        variable: &'static str,
    },
    /// Rank 0's address is not one of its host.
    #[error(
        "{error}: set RONDE_TCP_SERVER to one that the other hosts reach, or RONDE_SECRET_FILE, with which \
         rank 0 listens on all interfaces"
    )]
    Address { error: NetError },
    /// The network interface cannot be used.
    #[error("{variable}: {error}")]
    Interface {
        variable: &'static str,
        error: NetError,
    },
    /// The process at rank 0's address has another secret, and no file gives it.
    #[error(
        "{error}; RONDE_SECRET_FILE is not set, so the secret is made of the job's name and port: \
         another job may use this port, or the ranks differ in RONDE_JOB_ID or TORCHELASTIC_RUN_ID"
    )]
    OtherJob { error: NetError },
    /// Any other error of the rendezvous.
    #[error(transparent)]
    Net(NetError),
    /// No thread.
    #[error("cannot start the thread for TCP: {reason}")]
    Thread { reason: String },
    /// The thread has not answered.
    #[error("the rendezvous over TCP has not ended within {waited_seconds} s")]
    Silent { waited_seconds: u64 },
}

/// Ranks that have not come to a rendezvous that has failed for this reason, as far as this rank
/// knows; `None` if the reason is this process alone.
pub fn missing_ranks<'a>(
    reason: &'a (dyn std::error::Error + Send + Sync + 'static),
) -> Option<&'a [usize]> {
    match reason.downcast_ref() {
        Some(TcpRendezvousError::Net(NetError::Missing { missing, .. })) => Some(missing),
        Some(
            TcpRendezvousError::Interface { .. }
            | TcpRendezvousError::Thread { .. }
            | TcpRendezvousError::Net(
                NetError::Secret(_) | NetError::Interface { .. } | NetError::System { .. },
            ),
        ) => None,
        // The next attempt has another port, and a resolver may fail for a moment.
        _ => Some(&[]),
    }
}

/// Connects the ranks of the job. `patience` is called with the number of ranks on this host.
///
/// # Errors
/// Settings that cannot be used; ranks that do not come in time or do not match this one.
pub(crate) fn connect_job(
    settings: &TcpSettings,
    config: &RendezvousConfig,
    patience: impl FnOnce(usize) -> Patience,
) -> Result<(HostsJob, Communicators), Failure> {
    let mesh_config = settings.mesh(config).map_err(|error| {
        failure(match (error, settings.interface_variable()) {
            (error @ (NetError::Interface { .. } | NetError::Loopback { .. }), Some(variable)) => {
                TcpRendezvousError::Interface { variable, error }
            }
            (error, _) => TcpRendezvousError::Net(error),
        })
    })?;
    let members = config.members.clone();
    let open = move || {
        let mesh = Mesh::join(&mesh_config)?;
        mesh.connect_all()?;
        let world = World::new(Carrier::Tcp(mesh.clone()));
        // Channels of process sets are hashes, with which these small numbers do not coincide.
        let add = |channel| {
            let comm = MeshComm::new(&mesh, channel, &members)?;
            Ok::<_, NetError>(world.add(|moved| Comm::over_tcp(comm, moved)))
        };
        let comms = OfAll {
            control: add(0)?,
            data: add(1)?,
            heartbeat: add(2)?,
            lobby: add(3)?,
        };
        let hosts = mesh.peers().iter().map(|peer| RankHost {
            name: peer.host.clone(),
            key: peer.host_key.clone(),
        });
        let hosts = hosts.collect();
        Ok((world, (comms, hosts)))
    };
    let limit = 2 * config.start_timeout + START_SLACK;
    let (engine, (comms, hosts)) =
        Engine::start("ronde-tcp", limit, &|| {}, open).map_err(|error| {
            failure(match error {
                NotStarted::Failed(error @ NetError::Listen { .. }) => TcpRendezvousError::Port {
                    error,
                    variable: settings.port_variable(),
                },
                NotStarted::Failed(error @ NetError::NotOwnAddress { .. }) => {
                    TcpRendezvousError::Address { error }
                }
                NotStarted::Failed(error @ NetError::WrongSecret { .. })
                    if !settings.has_secret_file() =>
                {
                    TcpRendezvousError::OtherJob { error }
                }
                NotStarted::Failed(error) => TcpRendezvousError::Net(error),
                NotStarted::Thread(error) => TcpRendezvousError::Thread {
                    reason: error.to_string(),
                },
                NotStarted::Silent => TcpRendezvousError::Silent {
                    waited_seconds: limit.as_secs(),
                },
            })
        })?;
    tracing::debug!(
        server = settings.server(),
        "the ranks are connected over TCP"
    );
    Ok(HostsJob::new(engine, comms, config, hosts, patience))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_have_not_come_are_known_from_the_failure() {
        let missing =
            |error| missing_ranks(&*failure(TcpRendezvousError::Net(error))).map(<[usize]>::to_vec);
        let late = NetError::Missing {
            missing: vec![1, 3],
            host: "node1".into(),
            address: "127.0.0.1:7".parse().unwrap(),
            waited_seconds: 30,
            refused: Vec::new(),
        };
        assert_eq!(missing(late), Some(vec![1, 3]));
        let refused = NetError::Refused {
            reason: "rank 1 has not come".into(),
        };
        assert_eq!(missing(refused), Some(vec![]));
        let own = NetError::System {
            call: "socket",
            reason: "too many open files".into(),
        };
        assert_eq!(missing(own), None);
    }
}
