//! Hosts of a job, parsed from `-H` or a host file.
//!
//! `mpirun` gets their names on its command line and passes them to `ssh`.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use ronde_elastic::{HostError, check_host, parse_host, parse_slots};

#[derive(Debug, thiserror::Error)]
pub(crate) enum HostsError {
    #[error("{origin}: {entry:?}: {error}")]
    Entry {
        /// The flag, or the file and the line.
        origin: String,
        entry: String,
        error: HostError,
    },
    #[error(
        "{origin}: cannot read {line:?} as a host and its slots; write for example \"localhost \
         slots=4\""
    )]
    Line { origin: String, line: String },
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

/// Whether `host` is an address of this machine, or a name of it that needs no resolver.
pub(super) fn is_this_machine(host: &str) -> bool {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy();
    let short = name.split('.').next().unwrap_or(&name);
    if ["localhost", "127.0.0.1", "::1", "[::1]", &name, short].contains(&host) {
        return true;
    }
    let address: Result<IpAddr, _> = host.trim_matches(['[', ']']).parse();
    address.is_ok_and(ronde_net::is_own_address)
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

/// Parses `host:slots,…`; a host without slots has one.
fn parse_list(text: &str) -> Result<Vec<(String, usize)>, HostsError> {
    let entries = text.split(',').map(str::trim);
    let parsed = entries.map(|entry| match parse_host(entry) {
        Ok((host, slots)) => Ok((host.to_owned(), slots.unwrap_or(1))),
        Err(error) => Err(HostsError::Entry {
            origin: "--hosts".into(),
            entry: entry.into(),
            error,
        }),
    });
    parsed.collect()
}

/// Parses lines `host slots=n` or `host:n` of the file at `path`; `#` begins a comment.
fn parse_file(text: &str, path: &Path) -> Result<Vec<(String, usize)>, HostsError> {
    let lines = text
        .lines()
        .zip(1..)
        .map(|(line, number)| (line.split('#').next().unwrap_or("").trim(), number))
        .filter(|(line, _)| !line.is_empty());
    let entry = |(line, number): (&str, usize)| {
        let origin = || format!("{}:{number}", path.display());
        let mut words = line.split_whitespace();
        let host = words.next().unwrap_or_default();
        let word = words.next();
        let slots = word.map_or(Some("1"), |word| word.strip_prefix("slots="));
        let slots = slots.ok_or_else(|| HostsError::Line {
            origin: origin(),
            line: line.into(),
        })?;
        let parsed = match check_host(host) {
            // Hydra's form.
            Err(HostError::Colons) if word.is_none() => {
                parse_host(host).map(|(host, slots)| (host, slots.unwrap_or(1)))
            }
            checked => checked.and_then(|()| Ok((host, parse_slots(slots)?))),
        };
        let (host, slots) = parsed.map_err(|error| HostsError::Entry {
            origin: origin(),
            entry: line.into(),
            error,
        })?;
        Ok((host.to_owned(), slots))
    };
    lines.map(entry).collect()
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
    fn this_machine_is_known_by_its_addresses() {
        let towards = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        // Without a route there is no other address.
        let own = match towards.connect("192.0.2.1:9") {
            Ok(()) => towards.local_addr().unwrap().ip().to_string(),
            Err(_) => "127.0.0.1".to_owned(),
        };
        assert!(is_this_machine(&own), "{own}");
        for other in ["192.0.2.1", "[2001:db8::1]", "0.0.0.0"] {
            assert!(!is_this_machine(other), "{other}");
        }
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
