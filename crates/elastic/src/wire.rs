//! Messages between the launcher and a process of the job, as lines of text.
//!
//! Both sides check what they read: the other one may be another version, or another program.

use crate::{Ready, Seat};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Longest line in bytes.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// Message of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// First message: the number of the process.
    Hello(u64),
    /// It lives. Sent once a second.
    Alive,
    /// It asks for its place.
    Ready(Ready),
}

/// Message of the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Place in the next generation.
    Seat {
        /// The place.
        seat: Seat,
        /// Address at which rank 0 listens for the other ranks, `HOST:PORT`; `None` if all ranks
        /// share memory.
        server: Option<String>,
    },
    /// The generation is over.
    Over(u64),
    /// The hosts have changed.
    Updated {
        /// Whether processes were added.
        added: bool,
        /// Whether hosts or slots were removed.
        removed: bool,
    },
    /// The process is no longer needed.
    Leave,
}

/// A line that is no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a message of an elastic job")]
pub struct WireError(String);

impl WireError {
    fn new(line: &str) -> Self {
        Self(line.chars().take(100).collect())
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Hello(member) => write!(f, "hello {member}"),
            Request::Alive => write!(f, "alive"),
            Request::Ready(Ready::Started) => write!(f, "started"),
            Request::Ready(Ready::Interrupted) => write!(f, "interrupted"),
            Request::Ready(Ready::Failed {
                generation,
                has_state,
                lost,
            }) => {
                write!(
                    f,
                    "failed {generation} {} {}",
                    u8::from(*has_state),
                    list(lost)
                )
            }
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Seat { seat, server } => {
                let Seat {
                    generation,
                    rank,
                    host,
                    local_rank,
                    ranks_per_host,
                } = seat;
                write!(
                    f,
                    "seat {generation} {rank} {host} {local_rank} {} {}",
                    list(ranks_per_host),
                    server.as_deref().unwrap_or("-")
                )
            }
            Reply::Over(generation) => write!(f, "over {generation}"),
            Reply::Updated { added, removed } => {
                write!(f, "updated {} {}", u8::from(*added), u8::from(*removed))
            }
            Reply::Leave => write!(f, "leave"),
        }
    }
}

/// Numbers with commas between them; a hyphen if there are none.
fn list(numbers: &[usize]) -> String {
    match numbers {
        [] => "-".to_owned(),
        numbers => numbers
            .iter()
            .map(usize::to_string)
            .collect::<Vec<_>>()
            .join(","),
    }
}

fn parse_list(text: &str) -> Option<Vec<usize>> {
    match text {
        "-" => Some(Vec::new()),
        text => text.split(',').map(|number| number.parse().ok()).collect(),
    }
}

fn parse_flag(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// Whether `text` is an address and a port.
fn is_server(text: &str) -> bool {
    let parts = text.rsplit_once(':');
    let port = parts.and_then(|(_, port)| port.parse::<u16>().ok());
    let has_host = parts.is_some_and(|(host, _)| !host.is_empty());
    has_host
        && port.is_some_and(|port| port > 0)
        && text.bytes().all(|byte| byte.is_ascii_graphic())
}

impl FromStr for Request {
    type Err = WireError;

    fn from_str(line: &str) -> Result<Self, WireError> {
        let words: Vec<&str> = line.split(' ').collect();
        let parsed = || {
            Some(match words.as_slice() {
                ["hello", member] => Request::Hello(member.parse().ok()?),
                ["alive"] => Request::Alive,
                ["started"] => Request::Ready(Ready::Started),
                ["interrupted"] => Request::Ready(Ready::Interrupted),
                ["failed", generation, has_state, lost] => Request::Ready(Ready::Failed {
                    generation: generation.parse().ok()?,
                    has_state: parse_flag(has_state)?,
                    lost: parse_list(lost)?,
                }),
                _ => return None,
            })
        };
        parsed().ok_or_else(|| WireError::new(line))
    }
}

impl FromStr for Reply {
    type Err = WireError;

    fn from_str(line: &str) -> Result<Self, WireError> {
        let words: Vec<&str> = line.split(' ').collect();
        let parsed = || {
            Some(match words.as_slice() {
                [
                    "seat",
                    generation,
                    rank,
                    host,
                    local_rank,
                    ranks_per_host,
                    server,
                ] => {
                    let seat = Seat {
                        generation: generation.parse().ok()?,
                        rank: rank.parse().ok()?,
                        host: host.parse().ok()?,
                        local_rank: local_rank.parse().ok()?,
                        ranks_per_host: Arc::from(parse_list(ranks_per_host)?),
                    };
                    let server = match *server {
                        "-" => None,
                        server => Some(is_server(server).then(|| server.to_owned())?),
                    };
                    let seat = seat.is_valid().then_some(seat)?;
                    Reply::Seat { seat, server }
                }
                ["over", generation] => Reply::Over(generation.parse().ok()?),
                ["updated", added, removed] => Reply::Updated {
                    added: parse_flag(added)?,
                    removed: parse_flag(removed)?,
                },
                ["leave"] => Reply::Leave,
                _ => return None,
            })
        };
        parsed().ok_or_else(|| WireError::new(line))
    }
}

impl Seat {
    /// Whether the numbers fit each other.
    fn is_valid(&self) -> bool {
        let mut size: usize = 0;
        for (host, ranks) in self.ranks_per_host.iter().enumerate() {
            if host == self.host && self.rank != size.saturating_add(self.local_rank) {
                return false;
            }
            let Some(sum) = size.checked_add(*ranks) else {
                return false;
            };
            size = sum;
        }
        let of_host = self.ranks_per_host.get(self.host);
        of_host.is_some_and(|ranks| self.local_rank < *ranks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let failed = |lost: &[usize]| {
            Request::Ready(Ready::Failed {
                generation: 7,
                has_state: true,
                lost: lost.to_vec(),
            })
        };
        let requests = [
            Request::Hello(3),
            Request::Alive,
            Request::Ready(Ready::Started),
            Request::Ready(Ready::Interrupted),
            failed(&[]),
            failed(&[1, 30]),
        ];
        for request in requests {
            assert_eq!(request.to_string().parse(), Ok(request));
        }
        let seat = Seat {
            generation: 2,
            rank: 5,
            host: 1,
            local_rank: 1,
            ranks_per_host: Arc::from([4, 2]),
        };
        let updated = Reply::Updated {
            added: true,
            removed: false,
        };
        let between_hosts = Reply::Seat {
            seat: seat.clone(),
            server: Some("[fd00::1]:4000".to_owned()),
        };
        let on_one_host = Reply::Seat { seat, server: None };
        for reply in [
            between_hosts,
            on_one_host,
            Reply::Over(9),
            updated,
            Reply::Leave,
        ] {
            assert_eq!(reply.to_string().parse(), Ok(reply));
        }
    }

    #[test]
    fn other_lines_and_seats_that_do_not_fit_are_errors() {
        for line in [
            "",
            "hello",
            "hello -1",
            "failed 1 2 -",
            "failed 1 1",
            "GET / HTTP/1.1",
        ] {
            assert_eq!(line.parse::<Request>(), Err(WireError::new(line)));
        }
        for line in [
            "seat 1 0 0 0 - -",
            "seat 1 2 0 2 2,2 -",
            "seat 1 1 0 0 2,2 -",
            "seat 1 0 2 0 2,2 -",
            "seat 1 0 0 0 2,18446744073709551615 -",
            "seat 1 0 0 0 2,2",
            "seat 1 0 0 0 2,2 node1",
            "seat 1 0 0 0 2,2 :7",
            "seat 1 0 0 0 2,2 node1:0",
            "seat 1 0 0 0 2,2 node1:70000",
            "seat 1 0 0 0 2,2 nöde:7",
            "updated 1",
            "leave now",
        ] {
            assert_eq!(line.parse::<Reply>(), Err(WireError::new(line)), "{line}");
        }
        let error = "GET / HTTP/1.1".parse::<Request>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"GET / HTTP/1.1\" is not a message of an elastic job"
        );
    }
}
