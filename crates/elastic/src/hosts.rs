//! Hosts and their slots, as a discovery script prints them.

use std::collections::BTreeMap;

/// Largest number of slots of a host.
const SLOTS_MAX: usize = 1 << 16;

/// Largest number of hosts.
const HOSTS_MAX: usize = 1 << 16;

/// Hosts that can be used, with their slots, in the order of the script's output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts(Vec<(String, usize)>);

/// Output of a discovery script that is not a list of hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, {text:?}: {problem}")]
pub struct HostsError {
    line: usize,
    text: String,
    problem: Problem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error("not a host; print one host or host:slots on each line, such as node1:4")]
    Host,
    #[error("write an IPv6 address in brackets, such as [fd00::1]:4")]
    Brackets,
    #[error("the number of slots is missing; print host:slots, or set a default with --slots")]
    NoSlots,
    #[error("the number of slots is not a whole number from 1 to {SLOTS_MAX}")]
    Slots,
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
        let mut hosts: Vec<(String, usize)> = Vec::new();
        let mut line_of = BTreeMap::new();
        for (index, text) in text.lines().map(str::trim).enumerate() {
            if text.is_empty() {
                continue;
            }
            let failed = |problem| HostsError {
                line: index + 1,
                text: text.chars().take(100).collect(),
                problem,
            };
            let (host, slots) = parse_line(text, default).map_err(failed)?;
            if line_of.insert(host.clone(), index).is_some() {
                return Err(failed(Problem::Twice));
            }
            if hosts.len() == HOSTS_MAX {
                return Err(failed(Problem::TooMany));
            }
            hosts.push((host, slots));
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

fn parse_line(text: &str, default: Option<usize>) -> Result<(String, usize), Problem> {
    // An address of IPv6 has colons of its own and is written in brackets: [fe80::1]:4.
    let (host, slots) = match text.rsplit_once(':') {
        Some((host, slots)) if !slots.ends_with(']') => (host, Some(slots)),
        _ => (text, None),
    };
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._@[]:%".contains(&byte);
    if host.is_empty() || host.starts_with('-') || !host.bytes().all(is_allowed) {
        return Err(Problem::Host);
    }
    let name = host.rsplit('@').next().unwrap_or(host);
    if name.contains(':') && !(name.starts_with('[') && name.ends_with(']')) {
        return Err(Problem::Brackets);
    }
    let slots = match slots {
        None => default.ok_or(Problem::NoSlots)?,
        Some(slots) => slots.parse().map_err(|_| Problem::Slots)?,
    };
    if !(1..=SLOTS_MAX).contains(&slots) {
        return Err(Problem::Slots);
    }
    Ok((host.to_owned(), slots))
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
        let example = "print one host or host:slots on each line, such as node1:4";
        assert_eq!(
            of("node1:4\n<html>\n", None),
            format!("line 2, \"<html>\": not a host; {example}")
        );
        assert_eq!(
            of("-oProxyCommand=x:4", None),
            format!("line 1, \"-oProxyCommand=x:4\": not a host; {example}")
        );
        assert_eq!(
            of("node1", None),
            "line 1, \"node1\": the number of slots is missing; print host:slots, or set a default with --slots"
        );
        for slots in ["0", "-1", "two", "", "99999999999999999999"] {
            let text = format!("node1:{slots}");
            let expected = "the number of slots is not a whole number from 1 to 65536";
            assert_eq!(of(&text, Some(1)), format!("line 1, {text:?}: {expected}"));
        }
        for address in ["fd00::1:2", "fd00::1", "me@fd00::1:2"] {
            let expected = "write an IPv6 address in brackets, such as [fd00::1]:4";
            assert_eq!(
                of(address, Some(1)),
                format!("line 1, {address:?}: {expected}")
            );
        }
        assert_eq!(
            of("a:1\nb:1\na:2", None),
            "line 3, \"a:2\": the host is in the list twice"
        );
    }
}
