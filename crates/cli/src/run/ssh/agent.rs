//! Agent: starts the ranks of one host for the launcher, which runs on this host or another one.
//!
//! The launcher starts it through `ssh`, or directly on its own host, as this program's hidden
//! subcommand. It reads its task from standard input and reports on standard output (`wire`). The
//! file with the job's secret is in a temporary folder that only this user can access, and is
//! removed at the end; if the agent is killed, the guard process removes it.

use super::super::job::{Link, Part, SecretFile, run};
use super::super::{LaunchError, LaunchSpec, Output, threads};
use super::server::{self, InterfaceError};
use super::wire::{HELLO, Order, Orders, Report, Task};
use crate::program;
use ronde_net::Reservation;
use std::cell::RefCell;
use std::fs::Permissions;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::process::ExitCode;
use tempfile::TempDir;

/// Name of the hidden subcommand that runs the agent.
pub const AGENT: &str = "__agent";

/// Exit code if the launcher ends the job before the ranks have started.
const EXIT_NOT_STARTED: u8 = 128 + 15;

/// Reason why this host's ranks cannot be started.
#[derive(Debug, thiserror::Error)]
enum AgentError {
    #[error("the launcher's task cannot be read: {0}; install the same version on all hosts")]
    Task(String),
    #[error("the launcher has sent an invalid order; install the same version on all hosts")]
    Order,
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    #[error(
        "port {port}, at which rank 0 is to listen, cannot be used: {source}; end the program that \
         uses it, or set RONDE_TCP_SERVER to another port or not at all"
    )]
    Port { port: u16, source: io::Error },
    #[error(
        "the job's secret needs a temporary folder: {0}; set TMPDIR on this host to a folder that \
         can be written to"
    )]
    Secret(io::Error),
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

impl AgentError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Launch(error) => error.exit_code(),
            _ => 1,
        }
    }
}

/// Runs the agent.
pub fn agent_main() -> ExitCode {
    say(&format!("{HELLO}{}", env!("CARGO_PKG_VERSION")));
    let input = io::stdin();
    let mut orders = Orders::new(input.as_fd());
    let Some(task) = orders.line() else {
        return ExitCode::FAILURE; // the launcher has ended
    };
    let task = serde_json::from_slice(&task);
    let task = task.map_err(|error| AgentError::Task(error.to_string()));
    let code = task
        .and_then(|task| work(&task, orders))
        .unwrap_or_else(|error| {
            let code = error.exit_code();
            report(&Report::Failed(code, error.to_string()));
            code
        });
    report(&Report::Ended(code));
    ExitCode::SUCCESS
}

/// Starts the ranks when the launcher says so, and returns their exit code.
fn work(task: &Task, mut orders: Orders<'_>) -> Result<u8, AgentError> {
    let Some(&num_proc) = task.ranks_per_host.get(task.host) else {
        let reason = format!("it has no host number {}", task.host);
        return Err(AgentError::Task(reason));
    };
    if let Err(error) = std::env::set_current_dir(&task.folder) {
        let here = std::env::current_dir().unwrap_or_default();
        report(&Report::Message(format!(
            "the folder {} cannot be used here ({error}); the ranks start in {}",
            task.folder.display(),
            here.display()
        )));
    }
    let folder = secret_folder().map_err(AgentError::Secret)?;
    let is_alone = task.ranks_per_host.len() == 1;
    let interface = task.interface.as_deref();
    let interface = interface.map(|name| server::of_interface(name, is_alone));
    let interface = interface.transpose()?;
    // Rank 0 can listen on the port while it is reserved.
    let (server, _reservation) = match task.host {
        0 => reserve(task, interface).map(|(server, reserved)| (server, Some(reserved)))?,
        _ => (String::new(), None),
    };
    report(&Report::Ready(server));
    let server = match orders.order() {
        Order::Start(server) => server,
        Order::Signal(_) | Order::End => return Ok(EXIT_NOT_STARTED),
        Order::Invalid => return Err(AgentError::Order),
    };

    let mut environment = task.environment.clone();
    if task.limit_threads && std::env::var_os(threads::VARIABLE).is_none() {
        let (threads, note) = threads::limit(true, num_proc, threads::cores());
        environment.extend(threads.map(|n| (threads::VARIABLE.into(), n.to_string().into())));
        note.into_iter()
            .for_each(|note| report(&Report::Message(note)));
    }
    environment.push(("RONDE_TCP_SERVER".into(), server.into()));
    let file = folder.path().join(SECRET);
    environment.push(("RONDE_SECRET_FILE".into(), file.clone().into()));
    let spec = LaunchSpec {
        label: "ronde run".into(),
        command: task.command.clone(),
        num_proc,
        environment,
        output: Output::Plain,
        output_dir: None,
        verbose: task.verbose,
        guard: program::again(),
    };
    let part = Part {
        ranks_per_host: task.ranks_per_host.clone(),
        host: task.host,
        job_id: task.job_id.clone(),
        link: Link::Launcher(RefCell::new(orders)),
        secret: Some(SecretFile {
            folder: folder.path(),
            path: &file,
            content: &task.secret,
        }),
    };
    Ok(run(&spec, &part)?.code)
}

/// Name of the file with the secret, in its folder.
pub(in super::super) const SECRET: &str = "secret";

/// Creates the folder of the secret, of mode 0700, which is removed with the returned value.
pub(in super::super) fn secret_folder() -> io::Result<TempDir> {
    tempfile::Builder::new()
        .prefix("ronde-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir()
}

/// Chooses the address of rank 0's server, which is on this host, and reserves its port.
fn reserve(task: &Task, interface: Option<IpAddr>) -> Result<(String, Reservation), AgentError> {
    let (name, port) = &task.server;
    let reserved = Reservation::new(*port);
    let reserved = reserved.map_err(|source| AgentError::Port {
        port: *port,
        source,
    })?;
    let connection = std::env::var("SSH_CONNECTION").unwrap_or_default();
    let better = match task.is_server_given {
        true => None,
        false => interface.or_else(|| server::of_connection(&connection)),
    };
    Ok((address(better, name, reserved.port()), reserved))
}

/// Text of an address; names of IPv6 addresses get brackets.
pub(in super::super) fn address(better: Option<IpAddr>, name: &str, port: u16) -> String {
    match better.or_else(|| name.parse().ok()) {
        Some(ip) => SocketAddr::new(ip, port).to_string(),
        None => format!("{name}:{port}"),
    }
}

fn report(report: &Report) {
    say(&report.to_string());
}

/// Writes a line to the launcher. An error means that it has ended, which the end of standard input
/// reports too.
fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_user_can_access_the_secret_and_it_is_removed() {
        let secret = ronde_net::Secret::random().unwrap();
        let folder = secret_folder().unwrap();
        let file = folder.path().join(SECRET);
        let content = secret.to_line();
        let secret_file = SecretFile {
            folder: folder.path(),
            path: &file,
            content: &content,
        };
        secret_file.write().unwrap();
        let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(folder.path()), mode(&file)), (0o700, 0o600));
        assert_eq!(ronde_net::Secret::from_file(&file), Ok(secret));
        let path = folder.path().to_owned();
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn addresses_are_written_with_their_port() {
        let text = |better: Option<&str>, name| {
            address(better.map(|better| better.parse().unwrap()), name, 7)
        };
        assert_eq!(text(None, "node1"), "node1:7");
        assert_eq!(text(None, "::1"), "[::1]:7");
        assert_eq!(text(None, "10.0.0.1"), "10.0.0.1:7");
        assert_eq!(text(Some("fd00::1"), "node1"), "[fd00::1]:7");
    }
}
