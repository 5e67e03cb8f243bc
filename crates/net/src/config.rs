//! Configuration of a mesh.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::secret::Secret;

/// Version that all ranks must have.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Default of [`Config::start_timeout`].
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest time for two ranks that both run to connect: between them is a firewall otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Check that is called at least twice a second while a rank waits for others to connect. It
/// returns the reason why waiting has become useless, if it has.
#[derive(Clone)]
pub struct Alarm(pub Arc<dyn Fn() -> Option<String> + Send + Sync>);

impl std::fmt::Debug for Alarm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Alarm")
    }
}

/// Configuration of one rank's mesh.
#[derive(Clone, Debug)]
pub struct Config {
    /// This rank, `0..size`.
    pub rank: usize,
    /// Number of ranks.
    pub size: usize,
    /// Where the other ranks reach rank 0. No other program listens on that port.
    pub server: SocketAddr,
    /// Further addresses of rank 0, which the other ranks try in turn, and at which rank 0 listens
    /// too where it can: names may have several, and another order on another host.
    pub further: Vec<SocketAddr>,
    /// Whether rank 0 listens on all of its network interfaces instead of that of `server`: names
    /// of this host may have an address that only this host can use.
    pub on_all_interfaces: bool,
    /// Secret of the job.
    pub secret: Secret,
    /// Name of the job, equal on all ranks. Compared.
    pub job: String,
    /// Number of meshes that the job has had before. Compared.
    pub init: u32,
    /// Name of this rank's host, for errors.
    pub host: String,
    /// Key of this rank's host: equal for ranks that share memory.
    pub host_key: String,
    /// Address of the network interface to use; `None`: the one that reaches rank 0.
    pub interface: Option<IpAddr>,
    /// Names and values that must be equal on all ranks, in the same order. Compared.
    pub contract: Vec<(String, String)>,
    /// Time limit of the rendezvous.
    pub start_timeout: Duration,
    /// Time after which a rank that waits for others logs which, repeated after each such interval;
    /// zero: never.
    pub warn_after: Duration,
    /// Ends a rendezvous early.
    pub alarm: Option<Alarm>,
}

impl Config {
    /// Time limit for this rank to connect to others, once all have come to the rendezvous.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.start_timeout.min(CONNECT_TIMEOUT)
    }

    /// Returns the configuration of rank `rank` of `size`, with this host's name as its key, the
    /// interface that reaches `server`, an empty contract, and 30 s for the rendezvous.
    pub fn new(rank: usize, size: usize, server: SocketAddr, secret: Secret, job: &str) -> Self {
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        Self {
            rank,
            size,
            server,
            further: Vec::new(),
            on_all_interfaces: false,
            secret,
            job: job.to_owned(),
            init: 0,
            host_key: host.clone(),
            host,
            interface: None,
            contract: Vec::new(),
            start_timeout: START_TIMEOUT,
            warn_after: Duration::ZERO,
            alarm: None,
        }
    }
}
