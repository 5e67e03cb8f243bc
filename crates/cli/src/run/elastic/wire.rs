//! Messages between the launcher of an elastic job and the agent on another host: lines of text on
//! the agent's standard input and standard output.
//!
//! ```text
//! launcher                               agent
//!                                        ronde agent 0.1.0
//! {"host":"node2",…}  (Task)
//!                                        r10.0.0.2 40123,40124    ready; rank 0 can listen there
//! start 3 2                              process 3; the host has 2 slots
//!                                        q3 started               process 3 says
//! tell 3 seat 1 2 1 0 2,2 10.0.0.1:7     to process 3
//!                                        o3 a line of its standard output
//! alive                                  a                        once a second
//!                                        n3                       process 3 does not answer
//! kill 3
//!                                        x3 s9                    it was killed by signal 9
//!                                        z3                       its output has ended
//! signal 15                              to all processes
//! ```
//!
//! The secret is in the task and therefore on no command line. The end of standard input, or
//! silence, means that the launcher has ended or the network has failed: the agent then kills its
//! processes.

use super::super::output::Target;
use super::super::process::Exit;
use super::super::ssh::wire::{output_prefix, parse_output};
use ronde_elastic::wire::{Reply, Request};
use ronde_elastic::{MemberId, Ready};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

/// Interval of the signs of life, in both directions.
pub(super) const ALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Most ports that an agent offers.
const PORTS_MAX: usize = 64;

/// Part of an elastic job for one host. It has no `Debug` text, because it contains the secret.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Task {
    /// Name of the host, as the user gives it.
    pub(super) host: String,
    pub(super) job_id: String,
    /// The secret, as a file has it.
    pub(super) secret: String,
    /// Network interface between the hosts.
    pub(super) interface: Option<String>,
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) command: Vec<OsString>,
    /// Working folder, if the host has it; as a `PathBuf`, it would have to be UTF-8.
    pub(super) folder: OsString,
    /// Whether the processes share the host's cores by `OMP_NUM_THREADS`.
    pub(super) limit_threads: bool,
    pub(super) verbose: bool,
}

/// Line from the launcher, after the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Start a process; the host has this many slots.
    Start(MemberId, usize),
    /// Pass a message on to a process.
    Tell(MemberId, Reply),
    Kill(MemberId),
    /// Pass a signal on to all processes.
    Signal(i32),
    /// The launcher lives.
    Alive,
}

impl Order {
    /// Reads a line; `None` if it is not valid.
    pub(super) fn parse(line: &[u8]) -> Option<Order> {
        let line = std::str::from_utf8(line).ok()?;
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        Some(match word {
            "alive" => Order::Alive,
            "start" => {
                let (member, slots) = rest.split_once(' ')?;
                Order::Start(parse_member(member)?, slots.parse().ok()?)
            }
            "tell" => {
                let (member, reply) = rest.split_once(' ')?;
                Order::Tell(parse_member(member)?, reply.parse().ok()?)
            }
            "kill" => Order::Kill(parse_member(rest)?),
            "signal" => Order::Signal(rest.parse().ok()?),
            _ => return None,
        })
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::Start(member, slots) => write!(f, "start {} {slots}", member.0),
            Order::Tell(member, reply) => write!(f, "tell {} {reply}", member.0),
            Order::Kill(member) => write!(f, "kill {}", member.0),
            Order::Signal(number) => write!(f, "signal {number}"),
            Order::Alive => f.write_str("alive"),
        }
    }
}

/// Where rank 0 can listen on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listening {
    /// Address by which other hosts reach it, if it is known.
    pub(super) address: Option<IpAddr>,
    /// Ports that are reserved, at least one; generations use them by turns.
    pub(super) ports: Vec<u16>,
}

/// Line from an agent, after its first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// Processes can be started.
    Ready(Listening),
    /// The agent lives.
    Alive,
    /// Message for the user.
    Message(String),
    /// The host cannot be used.
    Failed(String),
    /// A process could not be started.
    NotStarted(MemberId, String),
    /// A process asks for its place.
    Asks(MemberId, Ready),
    /// A process has given no sign of life for too long.
    Silent(MemberId),
    /// A process has ended. Output of others that it has left behind may follow.
    Ended(MemberId, Exit),
    /// No output of an ended process follows.
    Cleared(MemberId),
    /// Line of a process's output.
    Output(MemberId, Target, Vec<u8>),
}

impl Report {
    /// Reads a line; `None` if it is not valid.
    pub(super) fn parse(line: &[u8]) -> Option<Report> {
        if let Some((number, target, line)) = parse_output(line) {
            let member = MemberId(number as u64);
            return Some(Report::Output(member, target, line.to_vec()));
        }
        let (kind, rest) = line.split_first()?;
        let text = String::from_utf8_lossy(rest);
        let with_member = || {
            let (member, rest) = text.split_once(' ')?;
            Some((parse_member(member)?, rest))
        };
        Some(match kind {
            b'a' => Report::Alive,
            b'r' => Report::Ready(Listening::parse(&text)?),
            b's' => Report::Message(text.into_owned()),
            b'f' => Report::Failed(text.into_owned()),
            b'd' => {
                let (member, reason) = with_member()?;
                Report::NotStarted(member, reason.to_owned())
            }
            b'q' => {
                let (member, request) = with_member()?;
                match request.parse().ok()? {
                    Request::Ready(why) => Report::Asks(member, why),
                    Request::Hello(_) | Request::Alive => return None,
                }
            }
            b'n' => Report::Silent(parse_member(&text)?),
            b'x' => {
                let (member, exit) = with_member()?;
                Report::Ended(member, parse_exit(exit)?)
            }
            b'z' => Report::Cleared(parse_member(&text)?),
            _ => return None,
        })
    }
}

fn parse_member(text: &str) -> Option<MemberId> {
    text.parse().ok().map(MemberId)
}

/// Reads `c3`, exit code 3, `s9`, signal 9, or `u10`, unknown by error 10.
fn parse_exit(text: &str) -> Option<Exit> {
    if let Some(code) = text.strip_prefix('c') {
        return code.parse().ok().map(Exit::Code);
    }
    if let Some(error) = text.strip_prefix('u') {
        let error = error.parse().ok().filter(|error| *error > 0)?;
        return Some(Exit::Unknown(error));
    }
    let signal = text.strip_prefix('s')?.parse().ok()?;
    (1..=64).contains(&signal).then_some(Exit::Signal(signal))
}

impl Listening {
    fn parse(text: &str) -> Option<Self> {
        let (address, ports) = text.split_once(' ')?;
        let address = match address {
            "-" => None,
            address => Some(address.parse().ok()?),
        };
        let ports: Vec<u16> = ports
            .split(',')
            .map(|port| port.parse().ok().filter(|port| *port > 0))
            .collect::<Option<_>>()?;
        (ports.len() <= PORTS_MAX).then_some(Self { address, ports })
    }

    /// Port of a generation. The rank 0 of the last one may not have closed its own yet.
    pub(super) fn port(&self, generation: u64) -> u16 {
        self.ports[(generation % self.ports.len() as u64) as usize]
    }
}

impl fmt::Display for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "{address} ")?,
            None => write!(f, "- ")?,
        }
        let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
        f.write_str(&ports.join(","))
    }
}

impl fmt::Display for Report {
    /// Writes the line; line ends in texts become blanks. The output of processes is not text: see
    /// [`output_prefix`], whose rank is the number of the process.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |text: &str| text.replace(['\n', '\r'], " ");
        match self {
            Report::Ready(listening) => write!(f, "r{listening}"),
            Report::Alive => f.write_str("a"),
            Report::Message(text) => write!(f, "s{}", line(text)),
            Report::Failed(text) => write!(f, "f{}", line(text)),
            Report::NotStarted(member, reason) => write!(f, "d{} {}", member.0, line(reason)),
            Report::Asks(member, why) => write!(f, "q{} {}", member.0, Request::Ready(why.clone())),
            Report::Silent(member) => write!(f, "n{}", member.0),
            Report::Ended(member, Exit::Code(code)) => write!(f, "x{} c{code}", member.0),
            Report::Ended(member, Exit::Signal(signal)) => write!(f, "x{} s{signal}", member.0),
            Report::Ended(member, Exit::Unknown(error)) => write!(f, "x{} u{error}", member.0),
            Report::Cleared(member) => write!(f, "z{}", member.0),
            Report::Output(member, target, bytes) => {
                let text = String::from_utf8_lossy(bytes);
                write!(f, "{}{text}", output_prefix(member.0 as usize, *target))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MEMBER: MemberId = MemberId(3);

    #[test]
    fn reports_survive_their_lines_and_invalid_lines_are_refused() {
        let listening = |address: Option<&str>| Listening {
            address: address.map(|address| address.parse().unwrap()),
            ports: vec![40_123, 7],
        };
        let failed = Ready::Failed {
            generation: 2,
            has_state: true,
            lost: vec![1, 3],
        };
        for report in [
            Report::Ready(listening(Some("fd00::1"))),
            Report::Ready(listening(None)),
            Report::Alive,
            Report::Message("größer".into()),
            Report::Failed("no folder".into()),
            Report::NotStarted(MEMBER, "No such file".into()),
            Report::Asks(MEMBER, Ready::Started),
            Report::Asks(MEMBER, failed),
            Report::Silent(MEMBER),
            Report::Ended(MEMBER, Exit::Code(0)),
            Report::Ended(MEMBER, Exit::Signal(9)),
            Report::Ended(MEMBER, Exit::Unknown(10)),
            Report::Cleared(MEMBER),
            Report::Output(MEMBER, Target::Stderr, b"a b".to_vec()),
            Report::Output(MEMBER, Target::Stdout, Vec::new()),
        ] {
            let line = report.to_string();
            assert_eq!(Report::parse(line.as_bytes()), Some(report), "{line}");
        }
        for line in [
            "",
            "?",
            "r",
            "r- ",
            "r- 0",
            "r- 70000",
            "r- 7,",
            "rnode1 7",
            "q3 alive",
            "q3 hello 3",
            "q3",
            "qx started",
            "n",
            "x3",
            "x3 9",
            "x3 c256",
            "x3 s0",
            "x3 s65",
            "x3 u0",
            "z-1",
            "o",
            "o3",
            "ox a",
        ] {
            assert_eq!(Report::parse(line.as_bytes()), None, "{line}");
        }
        let many = format!("r- {}", vec!["7"; PORTS_MAX + 1].join(","));
        assert_eq!(Report::parse(many.as_bytes()), None);
        let bytes = Report::parse(b"o3 \xff\0");
        let expected = Report::Output(MEMBER, Target::Stdout, b"\xff\0".to_vec());
        assert_eq!(bytes, Some(expected));
    }

    #[test]
    fn orders_survive_their_lines_and_invalid_lines_are_refused() {
        for order in [
            Order::Start(MEMBER, 2),
            Order::Tell(MEMBER, Reply::Over(4)),
            Order::Kill(MEMBER),
            Order::Signal(15),
            Order::Alive,
        ] {
            let line = order.to_string();
            assert_eq!(Order::parse(line.as_bytes()), Some(order));
        }
        for line in [
            "",
            "start 3",
            "start 3 x",
            "tell 3",
            "tell 3 leave now",
            "kill",
            "signal x",
        ] {
            assert_eq!(Order::parse(line.as_bytes()), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_line_makes_the_other_side_panic(line: Vec<u8>) {
            let _ = (Report::parse(&line), Order::parse(&line));
        }
    }
}
