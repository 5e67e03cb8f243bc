//! Jobs without MPI: the ranks are started through `ssh`, and connect to each other over TCP.
//!
//! The launcher starts an *agent* on each host: this program with a hidden subcommand, through one
//! `ssh` per host, or directly on the launcher's own host. An agent gets the job's secret and the
//! environment on standard input, starts its host's ranks and supervises them as `ronde run` does
//! on one machine, and reports their output and end. `wire` has the messages.
//!
//! The host of rank 0 chooses the address and the port at which rank 0 listens (`server`). All
//! ranks get them in `RONDE_TCP_SERVER`, and the file with the secret in `RONDE_SECRET_FILE`.

pub(super) mod agent;
pub(super) mod command;
pub(super) mod failure;
pub(super) mod host;
mod job;
pub(super) mod plan;
pub(super) mod server;
pub(super) mod wire;

pub use agent::{AGENT, agent_main};

use super::mpirun::is_exported;
use super::output::say;
use super::rank::ELASTIC_VARIABLES;
use super::{LaunchError, LaunchSpec, threads};
use crate::argv::quoted;
use crate::program;
use command::{SshOptions, agent_line};
use host::Host;
use ronde::internal::identity::{IDENTITY_VARIABLES, random_job_key};
use ronde_net::{Secret, SecretError};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;
use wire::Task;

/// Variables that the job sets itself.
const OWN: [&str; 6] = [
    "RONDE_JOB_ID",
    SERVER,
    "RONDE_SECRET_FILE",
    "RONDE_BACKEND",
    INTERFACE,
    OWN_INTERFACE,
];
pub(super) const SERVER: &str = "RONDE_TCP_SERVER";
pub(super) const INTERFACE: &str = "HOROVOD_GLOO_IFACE";
/// Replaces [`INTERFACE`] where both are set.
pub(super) const OWN_INTERFACE: &str = "RONDE_NETWORK_INTERFACE";

/// Reason why a job cannot be started through `ssh`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SshError {
    #[error(transparent)]
    Plan(#[from] plan::PlanError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error("{flag}: {value:?} {reason}")]
    Value {
        flag: &'static str,
        value: String,
        reason: &'static str,
    },
    #[error("the job cannot be described to the hosts: {0}")]
    Task(#[from] serde_json::Error),
}

impl SshError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Plan(_) | Self::Value { .. } => super::EXIT_USAGE,
            Self::Launch(error) => error.exit_code(),
            Self::Secret(_) | Self::Task(_) => 1,
        }
    }
}

/// Options of a job through `ssh`.
#[derive(Clone, Debug, Default)]
pub(super) struct SshFlags {
    pub(super) ssh_port: Option<u16>,
    pub(super) ssh_identity_file: Option<OsString>,
    /// Network interface between the hosts.
    pub(super) interfaces: Vec<String>,
    /// Command that starts this program on other hosts.
    pub(super) agent: Option<String>,
    /// Backend that the user requests.
    pub(super) backend: Option<OsString>,
    /// Time for the hosts to become ready.
    pub(super) timeout: Duration,
    pub(super) limits_threads: bool,
}

/// Starts the ranks of `spec` on `hosts`, which have enough slots, and waits for their end. Returns
/// the exit code of the job.
///
/// # Errors
/// Invalid options; a process that cannot be started.
pub(super) fn launch(
    spec: &LaunchSpec,
    hosts: &[(String, usize)],
    flags: &SshFlags,
) -> Result<u8, SshError> {
    let plans = plan::plan(hosts, spec.num_proc)?;
    let interface = interface(&flags.interfaces)?;
    let given = std::env::var(SERVER).ok();
    let given = given.filter(|server| !server.is_empty());
    let server = given.as_deref().map(parse_server).transpose()?;
    if interface.is_none() && server.is_none() {
        plan::check_first(&plans)?;
    }
    let options = options(flags, AGENT)?;
    let backend = flags.backend.clone().unwrap_or_else(|| "tcp".into());
    let mut task = Task {
        ranks_per_host: plans.iter().map(|plan| plan.ranks.len()).collect(),
        host: 0,
        job_id: random_job_key().map_err(LaunchError::system("draw a name for the job"))?,
        secret: Secret::random()?.to_line(),
        is_server_given: server.is_some(),
        server: server.unwrap_or_else(|| (server_name(&plans), 0)),
        interface: interface.clone(),
        environment: environment(spec, Some(backend), interface),
        command: spec.command.clone(),
        folder: std::env::current_dir().map_or_else(|_| "/".into(), PathBuf::into_os_string),
        limit_threads: flags.limits_threads(),
        verbose: spec.verbose,
    };
    let mut started = Vec::new();
    for (number, plan) in plans.into_iter().enumerate() {
        task.host = number;
        let mut line = serde_json::to_vec(&task)?;
        line.push(b'\n');
        let command = agent_line(&plan, &options);
        if spec.verbose {
            say(&spec.label, &format!("{}: {}", plan.name, quoted(&command)));
        }
        // On an error the agents that were started are dropped, which ends them.
        started.push(Host::start(plan, &command, line)?);
    }
    Ok(job::Job::new(spec, started, flags.timeout)?.run()?)
}

impl SshFlags {
    /// Whether the ranks of a host share its cores by a variable that is not set yet.
    pub(super) fn limits_threads(&self) -> bool {
        self.limits_threads && std::env::var_os(threads::VARIABLE).is_none()
    }
}

/// Options for `ssh`, which starts the hidden `subcommand`.
///
/// # Errors
/// An agent that is not a command.
pub(super) fn options(flags: &SshFlags, subcommand: &'static str) -> Result<SshOptions, SshError> {
    Ok(SshOptions {
        port: flags.ssh_port,
        identity_file: flags.ssh_identity_file.clone(),
        agent: match &flags.agent {
            Some(text) => words(text)?,
            None => with_search_paths(program::again()),
        },
        subcommand,
        timeout: flags.timeout,
    })
}

/// Variables by which this program, or its Python, finds its libraries: a module may have set them,
/// and a shell that `ssh` starts loads no modules.
const SEARCH_PATHS: [&str; 3] = ["LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME"];

/// The command with this process's values of these variables.
fn with_search_paths(command: Vec<OsString>) -> Vec<OsString> {
    let set = SEARCH_PATHS.into_iter().filter_map(|name| {
        let mut word = OsString::from(name);
        word.push("=");
        word.push(std::env::var_os(name)?);
        Some(word)
    });
    let set: Vec<OsString> = set.collect();
    if set.is_empty() {
        return command;
    }
    std::iter::once("env".into())
        .chain(set)
        .chain(command)
        .collect()
}

/// Variables of the ranks: those of this process that have the same meaning on another host, and
/// the job's.
pub(super) fn environment(
    spec: &LaunchSpec,
    backend: Option<OsString>,
    interface: Option<String>,
) -> Vec<(OsString, OsString)> {
    let is_here = |name: &OsStr| {
        let name = name.to_string_lossy();
        [IDENTITY_VARIABLES, &ELASTIC_VARIABLES, &OWN]
            .iter()
            .any(|names| names.contains(&&*name))
    };
    let inherited = std::env::vars_os();
    let mut environment: Vec<(OsString, OsString)> = inherited
        .filter(|(name, _)| is_exported(name) && !is_here(name))
        .collect();
    environment.extend(spec.environment.iter().cloned());
    environment.extend(backend.map(|backend| ("RONDE_BACKEND".into(), backend)));
    environment.extend(interface.map(|name| (INTERFACE.into(), name.into())));
    environment
}

/// Name of rank 0's host by which the other hosts reach it.
fn server_name(plans: &[plan::HostPlan]) -> String {
    let Some(first) = plans.first().filter(|plan| plan.is_this_machine) else {
        return plans.first().map_or("", plan::HostPlan::address).to_owned();
    };
    match plans.get(1) {
        None => "127.0.0.1".to_owned(),
        Some(other) => match server::towards(other.address()) {
            Some(address) => address.to_string(),
            // A name that only ssh knows.
            None if first.address() == "localhost" => {
                let name = rustix::system::uname();
                name.nodename().to_string_lossy().into_owned()
            }
            None => first.address().to_owned(),
        },
    }
}

/// The network interface that the flag or a variable names, if any: of several the first one, as
/// with Horovod's Gloo.
///
/// # Errors
/// A name that cannot be that of an interface.
pub(super) fn interface(names: &[String]) -> Result<Option<String>, SshError> {
    let names: Vec<&str> = names.iter().flat_map(|names| names.split(',')).collect();
    let refuse = |value: &str, reason| {
        Err(SshError::Value {
            flag: "--network-interfaces",
            value: value.to_owned(),
            reason,
        })
    };
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:@".contains(&byte);
    match names.as_slice() {
        [] => Ok([OWN_INTERFACE, INTERFACE].into_iter().find_map(|variable| {
            let name = std::env::var(variable).ok();
            name.filter(|name| !name.is_empty())
        })),
        [first, others @ ..] => {
            let is_name = |name: &&str| !name.is_empty() && name.bytes().all(is_allowed);
            if let Some(name) = names.iter().find(|name| !is_name(name)) {
                return refuse(
                    name,
                    "is not the name of a network interface; write for example eth0",
                );
            }
            if !others.is_empty() {
                let note = format!("a job over TCP uses one network interface: {first}");
                say("ronde run", &note);
            }
            Ok(Some((*first).to_owned()))
        }
    }
}

/// Host and port of `RONDE_TCP_SERVER`.
fn parse_server(text: &str) -> Result<(String, u16), SshError> {
    let parts = text.rsplit_once(':');
    let parts = parts.and_then(|(host, port)| Some((host, port.parse().ok()?)));
    match parts {
        Some((host, port)) if !host.is_empty() && port != 0 => {
            let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
            Ok((bare.unwrap_or(host).to_owned(), port))
        }
        _ => Err(SshError::Value {
            flag: SERVER,
            value: text.to_owned(),
            reason: "is not the address and port of rank 0; write for example 10.0.0.1:29400, or \
                     unset it to have one chosen",
        }),
    }
}

/// Words of `--agent`.
fn words(text: &str) -> Result<Vec<OsString>, SshError> {
    match shlex::split(text) {
        Some(words) if !words.is_empty() => Ok(words.into_iter().map(OsString::from).collect()),
        _ => Err(SshError::Value {
            flag: "--agent",
            value: text.to_owned(),
            reason: "is not a command, or has an open quote; write for example /opt/ronde/bin/ronde",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_interfaces_and_agents_are_checked() {
        assert_eq!(parse_server("a:7").unwrap(), ("a".into(), 7));
        assert_eq!(parse_server("[::1]:7").unwrap(), ("::1".into(), 7));
        for bad in ["", "a", "a:", ":7", "a:0", "a:70000", "a:x"] {
            let error = parse_server(bad).unwrap_err();
            assert!(error.to_string().starts_with(SERVER), "{error}");
            assert_eq!(error.exit_code(), super::super::EXIT_USAGE);
        }
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            interface(&names).map_err(|error| error.to_string())
        };
        assert_eq!(of(&["eth0"]), Ok(Some("eth0".into())));
        assert_eq!(of(&["eth0,eth1"]), Ok(Some("eth0".into())));
        assert_eq!(of(&["eth1", "eth0"]), Ok(Some("eth1".into())));
        assert!(of(&["eth0,"]).unwrap_err().contains("eth0"));
        assert!(of(&["10.0.0.0/8"]).unwrap_err().contains("eth0"));
        assert_eq!(words("python -m 'a b'").unwrap(), ["python", "-m", "a b"]);
        for bad in ["", "a 'b"] {
            assert!(words(bad).unwrap_err().to_string().starts_with("--agent"));
        }
    }

    #[test]
    fn the_name_of_the_server_is_one_for_other_hosts() {
        let name = |hosts: &[&str]| {
            let hosts: Vec<_> = hosts.iter().map(|name| ((*name).to_owned(), 1)).collect();
            server_name(&plan::plan(&hosts, hosts.len()).unwrap())
        };
        assert_eq!(name(&["me@a.invalid", "localhost"]), "a.invalid");
        assert_eq!(name(&["localhost"]), "127.0.0.1");
        assert_eq!(name(&["localhost", "127.0.0.2"]), "127.0.0.1");
        assert_ne!(name(&["localhost", "a.invalid"]), "localhost");
    }
}
