//! Settings of a job over TCP: where rank 0 listens, the secret, and the network interface.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ronde_net::{Destination, NetError, Secret};

use crate::identity::Lookup;
use crate::knobs::Knobs;
use crate::rendezvous::RendezvousConfig;

/// Time within which the name of rank 0's host must have an address, and pause between attempts.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(60);
const RESOLVE_PAUSE: Duration = Duration::from_millis(500);

/// A setting of the rendezvous over TCP is missing or invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TcpSettingsError {
    /// There is no address.
    #[error(
        "no variable gives the address of rank 0: start the ranks with torchrun or `ronde run`, or \
         set RONDE_TCP_SERVER=HOST:PORT for all of them"
    )]
    NoServer,
    /// The address is none.
    #[error(
        "RONDE_TCP_SERVER={value}: expected HOST:PORT, the address where rank 0 listens; an IPv6 \
         address is written in brackets"
    )]
    Server { value: String },
    /// torchrun's port is none, or the next one is not.
    #[error(
        "MASTER_PORT={value}: the rendezvous needs the next port; set RONDE_TCP_PORT to a free port \
         on the host of rank 0, for all ranks"
    )]
    MasterPort { value: String },
}

/// Settings of a job over TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TcpSettings {
    /// Name or address of rank 0's host.
    host: String,
    port: u16,
    /// The variable that changes the port.
    port_variable: &'static str,
    secret_file: Option<PathBuf>,
    /// Network interface, and the variable that names it.
    interface: Option<(String, &'static str)>,
    /// Name of the job, equal on all ranks.
    job: String,
}

impl TcpSettings {
    /// Reads the settings from the knobs, and torchrun's address of rank 0 through `lookup`.
    ///
    /// # Errors
    /// Any [`TcpSettingsError`].
    pub(crate) fn find(knobs: &Knobs, lookup: Lookup) -> Result<Self, TcpSettingsError> {
        let lookup = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let (host, port, port_variable) = match (&knobs.tcp_server, lookup("MASTER_ADDR")) {
            (Some(server), _) => {
                let (host, port) = split(server).ok_or_else(|| TcpSettingsError::Server {
                    value: server.clone(),
                })?;
                (host, port, "RONDE_TCP_SERVER")
            }
            (None, Some(host)) => {
                let port = match knobs.tcp_port {
                    Some(port) => port as u16, // the knob's range is that of ports
                    None => port_after(&lookup("MASTER_PORT").unwrap_or_default())?,
                };
                (host, port, "RONDE_TCP_PORT")
            }
            (None, None) => return Err(TcpSettingsError::NoServer),
        };
        // Ranks may spell rank 0's host differently, so it is not part of the job's name.
        // Generations of an elastic job may use the same address one after another.
        let run = knobs.job_id.clone();
        let run = run.or_else(|| lookup("TORCHELASTIC_RUN_ID"));
        let run = run.unwrap_or_default();
        Ok(Self {
            job: format!("{run} at port {port}"),
            host,
            port,
            port_variable,
            secret_file: knobs.secret_file.clone(),
            interface: [
                (&knobs.network_interface, "RONDE_NETWORK_INTERFACE"),
                (&knobs.gloo_iface, "HOROVOD_GLOO_IFACE"),
            ]
            .into_iter()
            .find_map(|(name, variable)| Some((name.clone()?, variable))),
        })
    }

    /// The variable that changes rank 0's port.
    pub(super) fn port_variable(&self) -> &'static str {
        self.port_variable
    }

    /// Whether a file has the secret, and not only the job's name.
    pub(super) fn has_secret_file(&self) -> bool {
        self.secret_file.is_some()
    }

    /// The variable that names the network interface, if one does.
    pub(super) fn interface_variable(&self) -> Option<&'static str> {
        self.interface.as_ref().map(|(_, variable)| *variable)
    }

    /// Where rank 0 listens, `HOST:PORT`.
    pub(super) fn server(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Whether rank 0 listens on all interfaces. Without a secret, the rendezvous is open to those
    /// who can reach the address alone; a loopback address is one of a job on one machine.
    fn on_all_interfaces(&self) -> bool {
        let bare = self.host.trim_start_matches('[').trim_end_matches(']');
        let is_loopback = bare.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        self.has_secret_file() && !is_loopback
    }

    /// Whether rank 0 listens at a name that other hosts may use too.
    fn is_of_other_hosts(&self) -> bool {
        let is_address = self.host.starts_with('[') || self.host.parse::<IpAddr>().is_ok();
        !self.has_secret_file() && !is_address && self.host != "localhost"
    }

    /// Returns rank 0's addresses. In Kubernetes, its name appears when its container runs.
    fn resolve(&self, config: &RendezvousConfig) -> Result<Vec<SocketAddr>, NetError> {
        let began = Instant::now();
        let limit = config.start_timeout.min(RESOLVE_TIMEOUT);
        let mut is_first = true;
        loop {
            let error = match ronde_net::resolve(&self.host, self.port) {
                Ok(addresses) => return Ok(addresses),
                Err(error) => error,
            };
            if began.elapsed() >= limit {
                return Err(error);
            }
            if std::mem::take(&mut is_first) {
                tracing::warn!("{error}; trying again for {} s", limit.as_secs());
            }
            std::thread::sleep(RESOLVE_PAUSE);
        }
    }

    /// Returns the configuration of this rank's mesh.
    ///
    /// # Errors
    /// A name without an address, an unknown interface, a secret that cannot be read.
    pub(super) fn mesh(&self, config: &RendezvousConfig) -> Result<ronde_net::Config, NetError> {
        let addresses = self.resolve(config)?;
        let own = self.interface.as_ref().map(|(name, _)| {
            move |server| ronde_net::interface_address(name, Destination::Server(server))
        });
        let (server, further, interface) = choose(addresses, config.rank, own)?;
        if config.rank == 0 && server.ip().is_loopback() && self.is_of_other_hosts() {
            tracing::warn!(
                "{} is {} on this host, where only this host's ranks reach rank 0: give an address, or \
                 RONDE_SECRET_FILE, with which rank 0 listens on all interfaces",
                self.host,
                server.ip()
            );
        }
        let secret = match &self.secret_file {
            Some(file) => Secret::from_file(file)?,
            None => Secret::of_job(&self.job),
        };
        Ok(ronde_net::Config {
            init: config.init,
            host_key: config.host_key.clone(),
            further,
            interface,
            on_all_interfaces: self.on_all_interfaces(),
            contract: config.contract.clone(),
            start_timeout: config.start_timeout,
            warn_after: config.warn_after,
            alarm: config.alarm.clone().map(|alarm| {
                let reason = move || (alarm.0)().map(|error| error.to_string());
                ronde_net::Alarm(Arc::new(reason))
            }),
            ..ronde_net::Config::new(config.rank, config.members.len(), server, secret, &self.job)
        })
    }
}

/// Chooses the one of rank 0's `addresses`, at least one, that rank `rank` uses first; returns it,
/// the further ones, and this rank's address for connections. `own` gives the address of the
/// network interface for connections to a server, if one is named.
///
/// # Errors
/// That of `own` for the first address, if there is none for any.
fn choose(
    mut addresses: Vec<SocketAddr>,
    rank: usize,
    own: Option<impl Fn(SocketAddr) -> Result<IpAddr, NetError>>,
) -> Result<(SocketAddr, Vec<SocketAddr>, Option<IpAddr>), NetError> {
    let (server, interface) = match own {
        None => (addresses[0], None),
        Some(own) => {
            // The interface may have no address of the IP version of the first one.
            let with_own = |&server: &SocketAddr| own(server).map(|own| (server, own));
            let mut found = addresses.iter().map(with_own);
            let first = found.next().expect("at least one address");
            let (server, own) = first.or_else(|error| found.find_map(Result::ok).ok_or(error))?;
            (server, Some(own))
        }
    };
    // Both sides of a connection have the same IP version. Rank 0 begins no connections, and
    // listens at all addresses.
    let is_any = interface.is_none() || rank == 0;
    addresses.retain(|it| *it != server && (is_any || it.is_ipv4() == server.is_ipv4()));
    Ok((server, addresses, interface))
}

/// Splits `HOST:PORT`.
fn split(server: &str) -> Option<(String, u16)> {
    let (host, port) = server.rsplit_once(':')?;
    let is_bare_ipv6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
    let port = port.parse().ok().filter(|port| *port != 0)?;
    (!host.is_empty() && !is_bare_ipv6).then(|| (host.to_owned(), port))
}

/// The port after torchrun's.
fn port_after(master: &str) -> Result<u16, TcpSettingsError> {
    let next = master
        .trim()
        .parse()
        .ok()
        .and_then(|port: u16| port.checked_add(1));
    next.ok_or_else(|| TcpSettingsError::MasterPort {
        value: master.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(variables: &[(&str, &str)]) -> Result<TcpSettings, TcpSettingsError> {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let knobs = Knobs::from_lookup(|name: &str| lookup(name).map(std::ffi::OsString::from))
            .expect("valid knobs");
        TcpSettings::find(&knobs, &lookup)
    }

    #[test]
    fn the_server_comes_from_its_variable_or_from_torchrun() {
        let torchrun = [("MASTER_ADDR", "node1"), ("MASTER_PORT", "29500")];
        let address = |variables: &[(&str, &str)]| {
            let found = find(variables).unwrap();
            (found.host, found.port, found.port_variable)
        };
        assert_eq!(
            address(&torchrun),
            ("node1".into(), 29501, "RONDE_TCP_PORT")
        );
        let port = [&torchrun[..], &[("RONDE_TCP_PORT", "4000")]].concat();
        assert_eq!(address(&port), ("node1".into(), 4000, "RONDE_TCP_PORT"));
        let server = [&port[..], &[("RONDE_TCP_SERVER", "[fe00::1]:77")]].concat();
        assert_eq!(
            address(&server),
            ("[fe00::1]".into(), 77, "RONDE_TCP_SERVER")
        );
    }

    #[test]
    fn jobs_at_the_same_address_are_told_apart_by_their_names() {
        let server = ("RONDE_TCP_SERVER", "node1:77");
        let job = |variables: &[_]| find(variables).unwrap().job;
        assert_eq!(job(&[server]), " at port 77");
        let same = ("RONDE_TCP_SERVER", "10.0.0.1:77");
        assert_eq!(job(&[same]), job(&[server]));
        let torchrun = ("TORCHELASTIC_RUN_ID", "run");
        assert_eq!(job(&[server, torchrun]), "run at port 77");
        let own = ("RONDE_JOB_ID", "a1-7");
        assert_eq!(job(&[server, torchrun, own]), "a1-7 at port 77");
    }

    #[test]
    fn rank_0_listens_on_all_interfaces_with_a_secret_unless_its_address_is_a_loopback_one() {
        let secret = ("RONDE_SECRET_FILE", "secret");
        for (server, expected) in [
            ("node1:77", true),
            ("10.0.0.1:77", true),
            ("localhost:77", true), // also a name for this host in the list of another one
            ("127.0.0.1:77", false),
            ("127.0.1.1:77", false),
            ("[::1]:77", false),
        ] {
            let server = ("RONDE_TCP_SERVER", server);
            let settings = find(&[server, secret]).unwrap();
            assert_eq!(settings.on_all_interfaces(), expected, "{server:?}");
            assert!(!find(&[server]).unwrap().on_all_interfaces());
        }
    }

    #[test]
    fn the_interface_decides_which_address_of_rank_0_is_used() {
        let all: Vec<SocketAddr> = ["[fd00::1]:7", "10.0.0.1:7", "10.1.0.1:7"]
            .map(|address| address.parse().unwrap())
            .to_vec();
        let unknown = |name: &str| NetError::Interface {
            name: name.into(),
            address: "an address",
            found: "none".into(),
        };
        let own: IpAddr = [10, 0, 0, 9].into();
        let v4_only = |server: SocketAddr| match server.is_ipv4() {
            true => Ok(own),
            false => Err(unknown("v6")),
        };
        let chosen = |rank| choose(all.clone(), rank, Some(v4_only)).unwrap();
        assert_eq!(chosen(1), (all[1], vec![all[2]], Some(own)));
        // Rank 0 listens at all.
        assert_eq!(chosen(0), (all[1], vec![all[0], all[2]], Some(own)));
        let none = |server: SocketAddr| Err(unknown(&server.to_string()));
        let error = choose(all.clone(), 1, Some(none)).unwrap_err();
        assert_eq!(error, unknown("[fd00::1]:7"));
        let any = choose(all.clone(), 1, None::<fn(SocketAddr) -> _>).unwrap();
        assert_eq!(any, (all[0], all[1..].to_vec(), None));
    }

    #[test]
    fn what_is_no_address_is_named() {
        assert_eq!(find(&[]), Err(TcpSettingsError::NoServer));
        for value in [
            "node1",
            "node1:",
            ":77",
            "node1:0",
            "node1:70000",
            "fe00::1:77",
        ] {
            let error = find(&[("RONDE_TCP_SERVER", value)]).unwrap_err();
            let value = value.to_owned();
            assert_eq!(error, TcpSettingsError::Server { value });
        }
        let last = [("MASTER_ADDR", "node1"), ("MASTER_PORT", "65535")];
        assert!(
            find(&last)
                .unwrap_err()
                .to_string()
                .contains("RONDE_TCP_PORT")
        );
    }

    #[test]
    fn ronde_s_own_interface_variable_precedes_horovods() {
        let server = ("RONDE_TCP_SERVER", "node1:77");
        let horovod = ("HOROVOD_GLOO_IFACE", "eth1");
        let own = ("RONDE_NETWORK_INTERFACE", "eth0");
        let interface = |variables: &[_]| find(variables).unwrap().interface;
        let eth1 = ("eth1".to_owned(), "HOROVOD_GLOO_IFACE");
        assert_eq!(interface(&[server, horovod]), Some(eth1));
        let eth0 = ("eth0".to_owned(), "RONDE_NETWORK_INTERFACE");
        assert_eq!(interface(&[server, horovod, own]), Some(eth0));
    }
}
