//! Settings of a job over TCP: where rank 0 listens, the secret, and the network interface.

use std::path::PathBuf;
use std::sync::Arc;

use ronde_net::{Destination, NetError, Secret};

use crate::identity::Lookup;
use crate::knobs::Knobs;
use crate::rendezvous::RendezvousConfig;

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
        // Generations of an elastic job may use the same address one after another.
        let run = knobs.job_id.clone();
        let run = run.or_else(|| lookup("TORCHELASTIC_RUN_ID"));
        let run = run.unwrap_or_default();
        Ok(Self {
            job: format!("{run} at {host}:{port}"),
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

    /// The variable that names the network interface, if one does.
    pub(super) fn interface_variable(&self) -> Option<&'static str> {
        self.interface.as_ref().map(|(_, variable)| *variable)
    }

    /// Where rank 0 listens, `HOST:PORT`.
    pub(super) fn server(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Returns the configuration of this rank's mesh.
    ///
    /// # Errors
    /// A name without an address, an unknown interface, a secret that cannot be read.
    pub(super) fn mesh(&self, config: &RendezvousConfig) -> Result<ronde_net::Config, NetError> {
        let mut addresses = ronde_net::resolve(&self.host, self.port)?.into_iter();
        let server = addresses.next().expect("at least one");
        let secret = match &self.secret_file {
            Some(file) => Secret::from_file(file)?,
            None => Secret::of_job(&self.job),
        };
        let interface = match &self.interface {
            Some((name, _)) => Some(ronde_net::interface_address(
                name,
                Destination::Server(server),
            )?),
            None => None,
        };
        Ok(ronde_net::Config {
            init: config.init,
            host_key: config.host_key.clone(),
            // An interface has an address of the server's IP version.
            further: addresses
                .filter(|address| interface.is_none() || address.is_ipv4() == server.is_ipv4())
                .collect(),
            interface,
            // Without a secret, the rendezvous is open to those who can reach the address alone.
            on_all_interfaces: self.secret_file.is_some(),
            contract: config.contract.clone(),
            start_timeout: config.start_timeout,
            alarm: config.alarm.clone().map(|alarm| {
                let reason = move || (alarm.0)().map(|error| error.to_string());
                ronde_net::Alarm(Arc::new(reason))
            }),
            ..ronde_net::Config::new(config.rank, config.members.len(), server, secret, &self.job)
        })
    }
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
        assert_eq!(job(&[server]), " at node1:77");
        let torchrun = ("TORCHELASTIC_RUN_ID", "run");
        assert_eq!(job(&[server, torchrun]), "run at node1:77");
        let own = ("RONDE_JOB_ID", "a1-7");
        assert_eq!(job(&[server, torchrun, own]), "a1-7 at node1:77");
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
