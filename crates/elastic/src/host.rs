//! A host and its slots, as users write them: in a list of hosts, or in the output of a discovery
//! script.
//!
//! ```
//! use ronde_elastic::{HostError, parse_host};
//!
//! assert_eq!(parse_host("node1:4"), Ok(("node1", Some(4))));
//! assert_eq!(parse_host("me@[fd00::1]"), Ok(("me@[fd00::1]", None)));
//! assert_eq!(parse_host("fd00::1:2"), Err(HostError::Ambiguous));
//! ```

use std::net::Ipv6Addr;

/// Largest number of slots of a host.
const SLOTS_MAX: usize = 1 << 16;

/// Text that is not a host and its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// There is no name before the colon.
    #[error("there is no host name; write host or host:slots, for example node1:4")]
    Empty,
    /// The last group of an IPv6 address may be a number of slots.
    #[error(
        "this is an IPv6 address with or without a number of slots; write the address in brackets, \
         for example [fd00::1]:2"
    )]
    Ambiguous,
    /// More than one colon, and no IPv6 address.
    #[error("this is neither host:slots nor an IPv6 address; write for example node1:4")]
    Colons,
    /// `ssh` or `mpirun` would take a part of it for an option.
    #[error(
        "the host name begins with '-', so mpirun or ssh would read it as an option; write a host \
         name, user@host or an address"
    )]
    Option,
    /// A character that the name of a host does not contain.
    #[error("a host name cannot contain {0:?}; write a host name, user@host or an address")]
    Character(char),
    /// Slurm's form of several hosts.
    #[error(
        "this is a list of hosts in Slurm's form; write each of them, as `scontrol show hostnames` does"
    )]
    List,
    /// `@` without a user or a host.
    #[error("there is no user before '@', or no host after it")]
    User,
    /// The number of slots is not a number, or out of range.
    #[error("the number of slots is not a whole number from 1 to {SLOTS_MAX}")]
    Slots,
}

/// Splits `host` or `host:slots`. The host is a name or an address, with `user@` before it if need
/// be. An IPv6 address is in brackets, unless it can be read in one way only: as `::1`, or with all
/// of its groups before the slots.
///
/// # Errors
/// See [`HostError`].
pub fn parse_host(text: &str) -> Result<(&str, Option<usize>), HostError> {
    let (host, slots) = match text.rsplit_once(':') {
        Some((host, slots)) if !slots.ends_with(']') && name_of(text) != "::1" => {
            if name_of(host) != "::1" && name_of(text).parse::<Ipv6Addr>().is_ok() {
                return Err(HostError::Ambiguous);
            }
            (host, Some(slots))
        }
        _ => (text, None),
    };
    check_host(host)?;
    Ok((host, slots.map(parse_slots).transpose()?))
}

/// Parses a number of slots.
///
/// # Errors
/// [`HostError::Slots`].
pub fn parse_slots(text: &str) -> Result<usize, HostError> {
    let slots = text.parse().map_err(|_| HostError::Slots)?;
    match slots {
        1..=SLOTS_MAX => Ok(slots),
        _ => Err(HostError::Slots),
    }
}

/// Checks that `host` is a name or an address, optionally with `user@` before it, that neither
/// `ssh` nor `mpirun` takes for an option, and no shell for a command.
///
/// # Errors
/// See [`HostError`].
pub fn check_host(host: &str) -> Result<(), HostError> {
    // Includes the characters of addresses (`fe80::1%eth0`, `[::1]`) and of Open MPI's relative
    // names (`+n1`).
    let is_allowed =
        |character: &char| character.is_alphanumeric() || ".-_:[]%@+".contains(*character);
    let mut parts = host.split('@');
    if host.is_empty() {
        Err(HostError::Empty)
    } else if parts.clone().any(|part| part.starts_with('-')) {
        Err(HostError::Option)
    } else if let Some(character) = host.chars().find(|character| !is_allowed(character)) {
        Err(HostError::Character(character))
    } else if parts.any(str::is_empty) {
        Err(HostError::User)
    } else if name_of(host).find('[').is_some_and(|at| at > 0) {
        Err(HostError::List)
    } else if name_of(host).contains(':') && !is_ipv6(name_of(host)) {
        Err(HostError::Colons)
    } else {
        Ok(())
    }
}

/// The part of `host` after the user.
fn name_of(host: &str) -> &str {
    host.rsplit_once('@').map_or(host, |(_, name)| name)
}

/// Whether `name` is an address of IPv6, perhaps in brackets and with a scope.
fn is_ipv6(name: &str) -> bool {
    let bare = name.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let address = bare.unwrap_or(name).split('%').next().unwrap_or(name);
    address.parse::<Ipv6Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_slots_after_its_last_colon() {
        for (text, host, slots) in [
            ("node1", "node1", None),
            ("node1:4", "node1", Some(4)),
            (
                "me@node_2.example.org:65536",
                "me@node_2.example.org",
                Some(65536),
            ),
            ("größe", "größe", None),
            ("+n1:2", "+n1", Some(2)),
            ("192.168.0.1:3", "192.168.0.1", Some(3)),
            ("[fd00::1]", "[fd00::1]", None),
            ("me@[fe80::1%eth0]:2", "me@[fe80::1%eth0]", Some(2)),
            ("::1", "::1", None),
            ("me@::1", "me@::1", None),
            ("::1:4", "::1", Some(4)),
            ("fd00:1:2:3:4:5:6:7:2", "fd00:1:2:3:4:5:6:7", Some(2)),
            ("fe80::1%eth0:2", "fe80::1%eth0", Some(2)),
        ] {
            assert_eq!(parse_host(text), Ok((host, slots)), "{text}");
        }
    }

    #[test]
    fn an_ipv6_address_that_can_be_read_in_two_ways_is_refused() {
        for text in ["fd00::1:2", "fd00::1", "me@fd00::1:2", "fd00:1:2:3:4:5:6:7"] {
            assert_eq!(parse_host(text), Err(HostError::Ambiguous), "{text}");
            assert_eq!(check_host(text), Ok(()), "{text} without slots");
        }
    }

    #[test]
    fn text_that_is_not_a_host_is_refused() {
        use HostError::{Character, Colons, Empty, Option, Slots, User};
        for (text, error) in [
            ("", Empty),
            (":4", Empty),
            ("node1:", Slots),
            ("node1:0", Slots),
            ("node1:-1", Slots),
            ("node1:two", Slots),
            ("node1:65537", Slots),
            ("node1:99999999999999999999", Slots),
            ("a:b:2", Colons),
            ("[node1]:x:2", Colons),
            ("fd00::12345:2", Colons),
            ("-oProxyCommand=x:4", Option),
            ("me@-o:2", Option),
            ("@a", User),
            ("me@:2", User),
            ("a;reboot", Character(';')),
            ("a b", Character(' ')),
        ] {
            assert_eq!(parse_host(text), Err(error), "{text:?}");
        }
    }
}
