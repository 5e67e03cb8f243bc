//! Hosts and their slots, as a discovery script prints them.

use std::collections::BTreeSet;

use crate::host::{HostError, parse_host};

/// Largest number of hosts.
const HOSTS_MAX: usize = 1 << 16;

/// Hosts that can be used, with their slots, in the order of the script's output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts(Vec<(String, usize)>);

/// Entries that are not a list of hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{unit} {number}, {text:?}: {problem}")]
pub struct HostsError {
    /// Kind of the entries: `line` or `host`.
    unit: &'static str,
    /// Number of the first entry with an error, from 1.
    number: usize,
    /// Beginning of that entry.
    text: String,
    problem: Problem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("the number of slots is missing; print host:slots, or set a default with --slots")]
    NoSlots,
    #[error("the host is in the list twice")]
    Twice,
    #[error("more than {HOSTS_MAX} hosts")]
    TooMany,
}

impl Hosts {
    /// Parses lines `host` or `host:slots`; `default` is the number of slots of the first form.
    /// Empty lines do not count.
    ///
    /// # Errors
    /// The first line that is neither, has no valid number of slots, or repeats a host.
    pub fn parse(text: &str, default: Option<usize>) -> Result<Self, HostsError> {
        let lines = text.lines().map(str::trim).zip(1..);
        let lines = lines.filter(|(line, _)| !line.is_empty());
        let read = |line| {
            let (host, slots) = parse_host(line)?;
            Ok((host, slots.or(default).ok_or(Problem::NoSlots)?))
        };
        Self::collect(
            "line",
            lines.map(|(line, number)| (number, line, read(line))),
        )
    }

    /// The hosts of a list that was parsed before.
    ///
    /// # Errors
    /// The first host that is in the list twice.
    pub fn new(list: &[(String, usize)]) -> Result<Self, HostsError> {
        let hosts = list.iter().map(|(host, slots)| (host.as_str(), *slots));
        let entries = hosts
            .zip(1..)
            .map(|(host, number)| (number, host.0, Ok(host)));
        Self::collect("host", entries)
    }

    /// Makes a list of entries: the number and the text of each, and what it says.
    fn collect<'a>(
        unit: &'static str,
        entries: impl Iterator<Item = (usize, &'a str, Result<(&'a str, usize), Problem>)>,
    ) -> Result<Self, HostsError> {
        let (mut hosts, mut known) = (Vec::new(), BTreeSet::new());
        for (number, text, entry) in entries {
            let failed = |problem| HostsError {
                unit,
                number,
                text: text.chars().take(100).collect(),
                problem,
            };
            let (host, slots) = entry.map_err(failed)?;
            if !known.insert(host) {
                return Err(failed(Problem::Twice));
            }
            if hosts.len() == HOSTS_MAX {
                return Err(failed(Problem::TooMany));
            }
            hosts.push((host.to_owned(), slots));
        }
        Ok(Self(hosts))
    }

    /// Returns these hosts with at most `most` slots each.
    #[must_use]
    pub fn with_slots_max(self, most: usize) -> Self {
        let hosts = self.0.into_iter();
        Self(hosts.map(|(host, slots)| (host, slots.min(most))).collect())
    }

    /// Hosts and slots, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0.iter().map(|(host, slots)| (host.as_str(), *slots))
    }

    /// Whether there is no host: nothing was found, or was looked for.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Slots of a host; 0 if it is not in the list.
    pub fn slots(&self, host: &str) -> usize {
        let mut found = self.iter().filter(|(name, _)| *name == host);
        found.next().map_or(0, |(_, slots)| slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str, default: Option<usize>) -> Result<Vec<(String, usize)>, String> {
        let hosts = Hosts::parse(text, default).map_err(|error| error.to_string())?;
        Ok(hosts.0)
    }

    #[test]
    fn hosts_are_read_with_their_own_or_the_default_number_of_slots() {
        let of = |text| parsed(text, Some(2)).unwrap();
        assert_eq!(
            of("node1:4\n\n  node2 \n"),
            [("node1".into(), 4), ("node2".into(), 2)]
        );
        assert_eq!(
            of("[fe80::1]:3\n[::1]\n"),
            [("[fe80::1]".into(), 3), ("[::1]".into(), 2)]
        );
        assert_eq!(of(""), []);
        let limited = Hosts::parse("a:4\nb:1", None).unwrap().with_slots_max(2);
        assert_eq!(limited.0, [("a".into(), 2), ("b".into(), 1)]);
    }

    #[test]
    fn a_line_that_is_not_a_host_is_an_error_that_names_it() {
        let of = |text: &str, default| parsed(text, default).unwrap_err();
        assert_eq!(
            of("node1:4\n<html>\n", None),
            "line 2, \"<html>\": a host name cannot contain '<'; write a host name, user@host or an \
             address"
        );
        assert_eq!(
            of("node1", None),
            "line 1, \"node1\": the number of slots is missing; print host:slots, or set a default with --slots"
        );
        assert_eq!(
            of("fd00::1:2", Some(1)),
            "line 1, \"fd00::1:2\": this is an IPv6 address with or without a number of slots; write \
             the address in brackets, for example [fd00::1]:2"
        );
        assert_eq!(
            of("a:1\nb:1\na:2", None),
            "line 3, \"a:2\": the host is in the list twice"
        );
        let error = Hosts::new(&[("fd00::1".into(), 2), ("fd00::1".into(), 1)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "host 2, \"fd00::1\": the host is in the list twice"
        );
    }
}
