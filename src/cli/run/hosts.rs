//! The hosts a job may use, from `-H` or a host file.

use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum HostsError {
    #[error("cannot read {entry:?} as a host and its slots; write for example {example:?}")]
    Entry { entry: String, example: &'static str },
    #[error(
        "requested more processes ({num_proc}) than there are available slots ({slots}); lower -np or raise the slots"
    )]
    Slots { num_proc: usize, slots: usize },
    #[error("cannot read the host file {}: {source}", .path.display())]
    File { path: PathBuf, source: io::Error },
}

/// Where the ranks of a job are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// All on this machine, under these names with so many on each, where it was named.
    Here(Vec<(String, usize)>),
    /// On these hosts, so many on each.
    Hosts(Vec<(String, usize)>),
}

/// Where `num_proc` ranks are by the hosts given, if any.
///
/// # Errors
/// Hosts that cannot be read, or have too few slots.
pub(super) fn place(
    hosts: Option<&str>,
    hostfile: Option<&Path>,
    num_proc: usize,
) -> Result<Place, HostsError> {
    let entries = match (hosts, hostfile) {
        (Some(hosts), _) => parse_list(hosts)?,
        (None, Some(path)) => {
            let text = std::fs::read_to_string(path);
            parse_file(&text.map_err(|source| HostsError::File {
                path: path.into(),
                source,
            })?)?
        }
        (None, None) => return Ok(Place::Here(Vec::new())),
    };
    let slots = entries
        .iter()
        .map(|(_, slots)| slots)
        .fold(0usize, |sum, slots| sum.saturating_add(*slots));
    if num_proc > slots {
        return Err(HostsError::Slots { num_proc, slots });
    }
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Ok(if entries.iter().all(|(host, _)| is_local(host, &name)) {
        Place::Here(entries)
    } else {
        Place::Hosts(entries)
    })
}

fn is_local(host: &str, own_name: &str) -> bool {
    let short = own_name.split('.').next().unwrap_or(own_name);
    ["localhost", "127.0.0.1", "::1", own_name, short].contains(&host)
}

/// Reads `host:slots,…`; a host without slots has one.
fn parse_list(text: &str) -> Result<Vec<(String, usize)>, HostsError> {
    let error = |entry: &str| HostsError::Entry {
        entry: entry.into(),
        example: "localhost:4",
    };
    let entry = |entry: &str| {
        let entry = entry.trim();
        let (host, slots) = match entry.rsplit_once(':') {
            Some((host, slots)) if host != ":" => (host, slots.parse().map_err(|_| error(entry))?),
            _ => (entry, 1), // no slots, or the address ::1
        };
        if host.is_empty() {
            Err(error(entry))
        } else {
            Ok((host.to_owned(), slots))
        }
    };
    text.split(',').map(entry).collect()
}

/// Reads lines `host slots=n`; `#` begins a comment.
fn parse_file(text: &str) -> Result<Vec<(String, usize)>, HostsError> {
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or("").trim())
        .filter(|line| !line.is_empty());
    let entry = |line: &str| {
        let error = || HostsError::Entry {
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
        Ok((host.to_owned(), slots))
    };
    lines.map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_files_give_hosts_and_slots() {
        let four = |host: &str| vec![(host.to_owned(), 4)];
        assert_eq!(parse_list("localhost:4").unwrap(), four("localhost"));
        assert_eq!(parse_list("::1:4").unwrap(), four("::1"));
        assert_eq!(parse_list("::1").unwrap(), [("::1".to_owned(), 1)]);
        assert_eq!(
            parse_list("a, b:2").unwrap(),
            [("a".to_owned(), 1), ("b".to_owned(), 2)]
        );
        assert_eq!(
            parse_file("# ours\nlocalhost slots=4 # all\n\n").unwrap(),
            four("localhost")
        );
        for bad in ["", "localhost:x", ":4", "a,,b"] {
            assert!(parse_list(bad).is_err(), "{bad:?}");
        }
        assert!(parse_file("localhost 4").is_err());
    }

    #[test]
    fn hosts_are_this_machine_or_not_and_too_few_slots_are_refused() {
        let of = |hosts, num_proc| place(Some(hosts), None, num_proc).map_err(|error| error.to_string());
        let here = vec![("localhost".to_owned(), 2), ("127.0.0.1".to_owned(), 2)];
        assert_eq!(of("localhost:2,127.0.0.1:2", 4), Ok(Place::Here(here)));
        let both = vec![("localhost".to_owned(), 2), ("far-away".to_owned(), 2)];
        assert_eq!(of("localhost:2,far-away:2", 4), Ok(Place::Hosts(both)));
        assert!(
            of("localhost:2", 3)
                .unwrap_err()
                .contains("processes (3) than there are available slots (2)")
        );
        assert!(
            place(None, Some(Path::new("/no/such/file")), 1)
                .unwrap_err()
                .to_string()
                .contains("/no/such/file")
        );
    }
}
