//! Hosts of a job, parsed from `-H` or a host file.
//!
//! `mpirun` gets their names on its command line and passes them to `ssh`. Names that one of them
//! could take for an option, or a shell for a command, are rejected here.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub(crate) enum HostsError {
    #[error(
        "{origin}: cannot read {entry:?} as a host and its slots; write for example {example:?}"
    )]
    Entry {
        /// The flag, or the file and the line.
        origin: String,
        entry: String,
        example: &'static str,
    },
    #[error(
        "--hosts: {entry:?} is an address of IPv6 with or without a number of slots; write the \
         address in brackets, for example [fd00::1]:2"
    )]
    Ambiguous { entry: String },
    #[error(
        "{origin}: the host name {host:?} {reason}; write a host name, user@host or an address"
    )]
    Name {
        origin: String,
        host: String,
        reason: String,
    },
    #[error(
        "requested more processes ({num_proc}) than there are available slots ({slots}); lower -np \
         or raise the slots"
    )]
    Slots { num_proc: usize, slots: usize },
    #[error("cannot read the host file {}: {source}", .path.display())]
    File { path: PathBuf, source: io::Error },
}

/// Hosts on which the ranks of a job run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RankPlacement {
    /// All ranks on this machine; its names in the list with their slots, empty without a list.
    Here(Vec<(String, usize)>),
    /// Ranks on these hosts, with their slots.
    Hosts(Vec<(String, usize)>),
}

/// Returns the hosts on which `num_proc` ranks run, from the list or file of hosts if there is one.
///
/// # Errors
/// Hosts that cannot be parsed, or that have too few slots.
pub(super) fn place(
    hosts: Option<&str>,
    hostfile: Option<&Path>,
    num_proc: usize,
) -> Result<RankPlacement, HostsError> {
    let entries = match (hosts, hostfile) {
        (Some(hosts), _) => parse_list(hosts)?,
        (None, Some(path)) => {
            let text = std::fs::read_to_string(path).map_err(|source| HostsError::File {
                path: path.into(),
                source,
            })?;
            parse_file(&text, path)?
        }
        (None, None) => return Ok(RankPlacement::Here(Vec::new())),
    };
    let slots = entries.iter().map(|(_, slots)| *slots);
    let slots = slots.fold(0, usize::saturating_add);
    if num_proc > slots {
        return Err(HostsError::Slots { num_proc, slots });
    }
    Ok(if entries.iter().all(|(host, _)| is_this_machine(host)) {
        RankPlacement::Here(entries)
    } else {
        RankPlacement::Hosts(entries)
    })
}

/// Whether `host` is a name of this machine that needs no resolver.
pub(super) fn is_this_machine(host: &str) -> bool {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy();
    let short = name.split('.').next().unwrap_or(&name);
    ["localhost", "127.0.0.1", "::1", "[::1]", &name, short].contains(&host)
}

/// Name or address in `host`, without the user and the brackets of an IPv6 address.
pub(super) fn address_of(host: &str) -> &str {
    let name = host.rsplit_once('@').map_or(host, |(_, name)| name);
    let bare = name.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    bare.unwrap_or(name)
}

/// Whether `host` has an address, and none of IPv4.
pub(super) fn has_only_ipv6(host: &str) -> bool {
    const PORT: u16 = 22; // any
    let addresses = ronde_net::resolve(address_of(host), PORT);
    addresses.is_ok_and(|addresses| addresses.iter().all(SocketAddr::is_ipv6))
}

/// Parses `host:slots,…`; a host without slots has one. Addresses of IPv6 are in brackets.
fn parse_list(text: &str) -> Result<Vec<(String, usize)>, HostsError> {
    const FLAG: &str = "--hosts";
    let error = |entry: &str| HostsError::Entry {
        origin: FLAG.into(),
        entry: entry.into(),
        example: "localhost:4",
    };
    let is_bare_ipv6 =
        |entry: &str| !entry.ends_with(']') && address_of(entry).parse::<Ipv6Addr>().is_ok();
    let entry = |entry: &str| {
        let entry = entry.trim();
        let (host, slots) = match entry.rsplit_once(':') {
            // No slots, with an address in brackets or the address ::1.
            Some((host, slots)) if slots.ends_with(']') || host == ":" => (entry, 1),
            Some((host, _)) if host != "::1" && is_bare_ipv6(entry) => {
                let entry = entry.to_owned();
                return Err(HostsError::Ambiguous { entry });
            }
            Some((host, slots)) => (host, slots.parse().map_err(|_| error(entry))?),
            None => (entry, 1),
        };
        if host.is_empty() {
            return Err(error(entry));
        }
        Ok((checked(host, FLAG)?, slots))
    };
    text.split(',').map(entry).collect()
}

/// Parses lines `host slots=n` of the file at `path`; `#` begins a comment.
fn parse_file(text: &str, path: &Path) -> Result<Vec<(String, usize)>, HostsError> {
    let lines = text
        .lines()
        .zip(1..)
        .map(|(line, number)| (line.split('#').next().unwrap_or("").trim(), number))
        .filter(|(line, _)| !line.is_empty());
    let entry = |(line, number): (&str, usize)| {
        let origin = format!("{}:{number}", path.display());
        let error = || HostsError::Entry {
            origin: origin.clone(),
            entry: line.into(),
            example: "localhost slots=4",
        };
        let mut words = line.split_whitespace();
        let host = words.next().ok_or_else(error)?;
        let slots = match words.next() {
            None => 1,
            Some(word) => word
                .strip_prefix("slots=")
                .and_then(|n| n.parse().ok())
                .ok_or_else(error)?,
        };
        Ok((checked(host, &origin)?, slots))
    };
    lines.map(entry).collect()
}

/// Returns `host` if it is a host name or an address, optionally with `user@` before it.
fn checked(host: &str, origin: &str) -> Result<String, HostsError> {
    // Includes the characters of addresses (`fe80::1%eth0`, `[::1]`) and of Open MPI's relative
    // names (`+n1`).
    let is_allowed =
        |character: &char| character.is_alphanumeric() || ".-_:[]%@+".contains(*character);
    let mut parts = host.split('@');
    let reason = if parts.clone().any(|part| part.starts_with('-')) {
        "begins with '-', so mpirun or ssh would read it as an option".to_owned()
    } else if let Some(character) = host.chars().find(|character| !is_allowed(character)) {
        format!("contains {character:?}, which host names cannot contain")
    } else if parts.any(str::is_empty) {
        "has no user before '@', or no host after it".to_owned()
    } else {
        return Ok(host.to_owned());
    };
    Err(HostsError::Name {
        origin: origin.to_owned(),
        host: host.to_owned(),
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answer to a number of ranks and a list, or to the lines of a host file.
    fn answer(input: &str) -> String {
        let placed = match input.split_once(" ranks: ") {
            Some((ranks, hosts)) => place(Some(hosts), None, ranks.parse().unwrap()),
            None => parse_file(input, Path::new("my hosts")).map(RankPlacement::Hosts),
        };
        placed.map_or_else(|error| error.to_string(), |hosts| format!("{hosts:?}"))
    }

    #[test]
    fn hosts_of_ipv6_alone_are_known_by_their_addresses() {
        assert!(has_only_ipv6("me@[fd00::1]") && has_only_ipv6("fd00::1"));
        for host in ["127.0.0.1", "me@10.0.0.1", "no-such-host.invalid"] {
            assert!(!has_only_ipv6(host), "{host}");
        }
    }

    #[test]
    fn hosts_are_here_or_not_and_names_that_could_be_options_are_refused() {
        ronde_cases::check("hosts.txt", answer);
        let error = place(None, Some(Path::new("/no/such/file")), 1).unwrap_err();
        assert!(error.to_string().contains("/no/such/file"), "{error}");
    }
}
