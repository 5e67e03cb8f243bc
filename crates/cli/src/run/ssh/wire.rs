//! Messages between the launcher and the agent on a host: lines of text on the agent's standard
//! input and standard output.
//!
//! ```text
//! launcher                                agent
//!                                         ronde agent 0.1.0
//! {"ranks_per_host":[2,2],…}  (Task)
//!                                         r10.0.0.1:40123      ready; rank 0's host adds the server
//! start 10.0.0.1:40123
//!                                         a                    alive, every 30 s
//!                                         o2 a line of rank 2's standard output
//!                                         e3 a line of rank 3's standard error
//!                                         sa message
//! signal 2
//!                                         x3 rank 3 exited with code 3
//!                                         z3                   ended, with the code
//! ```
//!
//! The secret is in the task and therefore on no command line. The end of standard input means that
//! the launcher has ended, or the network has failed: the agent then ends its ranks.

use super::super::output::Target;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt;
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// First line of an agent, before its version. Lines before it are those of a shell's start-up
/// files.
pub(in super::super) const HELLO: &str = "ronde agent ";

/// Longest line that an agent accepts: an environment has at most a few MiB.
const LINE_BYTES_MAX: usize = 64 << 20;

/// Largest number of bytes that [`output_prefix`] adds to a line.
pub(in super::super) const PREFIX_BYTES_MAX: usize = 32;

/// Part of a job for one host. It has no `Debug` text, because it contains the secret.
#[derive(Clone, Serialize, Deserialize, PartialEq, Eq)]
pub(in super::super) struct Task {
    pub(in super::super) ranks_per_host: Vec<usize>,
    /// Number of the host.
    pub(in super::super) host: usize,
    pub(in super::super) job_id: String,
    /// The secret, as a file has it.
    pub(in super::super) secret: String,
    /// Name or address of rank 0's host, as the launcher knows it, and the port, 0 to choose one.
    pub(in super::super) server: (String, u16),
    /// Whether `server` was given by the user, and is not replaced by a better address.
    pub(in super::super) is_server_given: bool,
    /// Network interface between the hosts.
    pub(in super::super) interface: Option<String>,
    pub(in super::super) environment: Vec<(OsString, OsString)>,
    pub(in super::super) command: Vec<OsString>,
    /// Working folder, if the host has it; as a `PathBuf`, it would have to be UTF-8.
    pub(in super::super) folder: OsString,
    /// Whether the ranks share the host's cores by `OMP_NUM_THREADS`.
    pub(in super::super) limit_threads: bool,
    pub(in super::super) verbose: bool,
}

/// Line from the launcher, after the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Order {
    /// Start the ranks, with this address of the server.
    Start(String),
    /// Pass a signal on to the ranks.
    Signal(i32),
    /// The line is none of these.
    Invalid,
    /// The launcher has ended.
    End,
}

impl Order {
    fn parse(line: &[u8]) -> Order {
        let line = std::str::from_utf8(line).unwrap_or_default();
        match line.split_once(' ') {
            Some(("start", server)) => Order::Start(server.to_owned()),
            Some(("signal", number)) => number.parse().map_or(Order::Invalid, Order::Signal),
            _ => Order::Invalid,
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::Start(server) => write!(f, "start {server}"),
            Order::Signal(number) => write!(f, "signal {number}"),
            Order::Invalid | Order::End => Ok(()),
        }
    }
}

/// Reader of the launcher's lines.
pub(in super::super) struct Orders<'a> {
    input: BorrowedFd<'a>,
    unread: Vec<u8>,
}

impl<'a> Orders<'a> {
    pub(in super::super) fn new(input: BorrowedFd<'a>) -> Self {
        let unread = Vec::new();
        Self { input, unread }
    }

    /// Descriptor that polls as readable when [`Orders::read`] will return something.
    pub(in super::super) fn descriptor(&self) -> BorrowedFd<'a> {
        self.input
    }

    /// Reads once, which waits unless the descriptor is readable; returns the orders of complete
    /// lines.
    pub(in super::super) fn read(&mut self) -> Vec<Order> {
        let (lines, is_open) = self.lines();
        let mut orders: Vec<Order> = lines.iter().map(|line| Order::parse(line)).collect();
        if !is_open {
            orders.push(Order::End);
        }
        orders
    }

    /// Returns the orders of the complete lines that were read together with those before.
    pub(in super::super) fn rest(&mut self) -> Vec<Order> {
        let lines = std::iter::from_fn(|| self.take_line());
        lines.map(|line| Order::parse(&line)).collect()
    }

    /// Like [`read`](Self::read), and returns the complete lines, and whether the input goes on.
    pub(in super::super) fn lines(&mut self) -> (Vec<Vec<u8>>, bool) {
        let is_open = self.fill();
        let lines = std::iter::from_fn(|| self.take_line()).collect();
        (lines, is_open)
    }

    /// Waits for a line; `None` if the launcher has ended before its end.
    pub(in super::super) fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(line) = self.take_line() {
                return Some(line);
            }
            if !self.fill() {
                return None;
            }
        }
    }

    /// Waits for an order.
    pub(in super::super) fn order(&mut self) -> Order {
        self.line().map_or(Order::End, |line| Order::parse(&line))
    }

    /// Reads once; returns false at the end of the input, or if a line is too long.
    fn fill(&mut self) -> bool {
        let mut bytes = [0; 16 << 10];
        match rustix::io::read(self.input, &mut bytes) {
            Ok(0) => false,
            Ok(count) => {
                self.unread.extend_from_slice(&bytes[..count]);
                self.unread.len() <= LINE_BYTES_MAX
            }
            Err(Errno::INTR | Errno::AGAIN) => true,
            Err(_) => false, // a pipe that cannot be read is treated as ended
        }
    }

    fn take_line(&mut self) -> Option<Vec<u8>> {
        let end = memchr::memchr(b'\n', &self.unread)?;
        let mut line: Vec<u8> = self.unread.drain(..=end).collect();
        line.pop();
        Some(line)
    }
}

/// Line from an agent, after its first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Report {
    /// The ranks can start; the agent of rank 0's host names the server.
    Ready(String),
    /// The agent lives.
    Alive,
    /// Message for the user.
    Message(String),
    /// A rank has failed with this code, or the ranks cannot be started.
    Failed(u8, String),
    /// All ranks have ended; code of the host's ranks.
    Ended(u8),
    /// Line of a rank's output.
    Output(usize, Target, Vec<u8>),
}

impl Report {
    /// Reads a line of the agent of the host with these ranks; `None` if it is not valid.
    pub(in super::super) fn parse(line: &[u8], ranks: &Range<usize>) -> Option<Report> {
        if let Some((rank, target, line)) = parse_output(line) {
            let is_there = ranks.contains(&rank);
            return is_there.then(|| Report::Output(rank, target, line.to_vec()));
        }
        let (kind, rest) = line.split_first()?;
        let text = String::from_utf8_lossy(rest).into_owned();
        Some(match kind {
            b'a' => Report::Alive,
            b'r' => Report::Ready(text),
            b's' => Report::Message(text),
            b'x' => {
                let (code, cause) = text.split_once(' ')?;
                Report::Failed(code.parse().ok()?, cause.to_owned())
            }
            b'z' => Report::Ended(text.parse().ok()?),
            _ => return None,
        })
    }
}

impl fmt::Display for Report {
    /// Writes the line; line ends in texts become blanks. The output of ranks is not text: see
    /// [`output_prefix`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |text: &str| text.replace(['\n', '\r'], " ");
        match self {
            Report::Alive => f.write_str("a"),
            Report::Ready(server) => write!(f, "r{}", line(server)),
            Report::Message(text) => write!(f, "s{}", line(text)),
            Report::Failed(code, cause) => write!(f, "x{code} {}", line(cause)),
            Report::Ended(code) => write!(f, "z{code}"),
            Report::Output(rank, target, bytes) => {
                let text = String::from_utf8_lossy(bytes);
                write!(f, "{}{text}", output_prefix(*rank, *target))
            }
        }
    }
}

/// Beginning of the report of a line of a rank's output.
pub(in super::super) fn output_prefix(rank: usize, target: Target) -> String {
    match target {
        Target::Stdout => format!("o{rank} "),
        Target::Stderr => format!("e{rank} "),
    }
}

/// Reads the report of a line of a rank's output, which [`output_prefix`] begins: the rank, the
/// stream, and the line.
pub(in super::super) fn parse_output(report: &[u8]) -> Option<(usize, Target, &[u8])> {
    let (kind, rest) = report.split_first()?;
    let target = match kind {
        b'o' => Target::Stdout,
        b'e' => Target::Stderr,
        _ => return None,
    };
    let blank = memchr::memchr(b' ', rest)?;
    let rank = std::str::from_utf8(&rest[..blank]).ok()?.parse().ok()?;
    Some((rank, target, &rest[blank + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn reports_survive_their_lines_and_invalid_lines_are_refused() {
        for report in [
            Report::Ready("10.0.0.1:40123".into()),
            Report::Ready(String::new()),
            Report::Alive,
            Report::Message("größer".into()),
            Report::Failed(137, "rank 3 was killed by signal 9 (SIGKILL)".into()),
            Report::Ended(0),
            Report::Output(3, Target::Stderr, b"a b".to_vec()),
            Report::Output(2, Target::Stdout, Vec::new()),
        ] {
            let line = report.to_string();
            assert_eq!(Report::parse(line.as_bytes(), &(2..4)), Some(report));
        }
        for line in [
            "", "?", "x", "x300 a", "x7", "z", "z-1", "zz", "o", "o1 a", "o4 a", "o2", "e-2 a",
        ] {
            assert_eq!(Report::parse(line.as_bytes(), &(2..4)), None, "{line}");
        }
        let bytes = Report::parse(b"o2 \xff\0", &(2..4));
        let expected = Report::Output(2, Target::Stdout, b"\xff\0".to_vec());
        assert_eq!(bytes, Some(expected));
    }

    proptest! {
        #[test]
        fn no_line_of_an_agent_makes_the_launcher_panic(line: Vec<u8>) {
            let report = Report::parse(&line, &(2..4));
            if let Some(Report::Output(rank, ..)) = report {
                prop_assert!((2..4).contains(&rank));
            }
        }
    }

    #[test]
    fn orders_survive_a_pipe_that_divides_them_and_its_end_is_one() {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut writer = Some(writer);
        let mut orders = Orders::new(reader.as_fd());
        let start = Order::Start("[::1]:7".into());
        let text = format!("task\n{start}\nsignal");
        writer.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
        assert_eq!(orders.line().unwrap(), b"task");
        assert_eq!(orders.order(), start);
        writer
            .as_mut()
            .unwrap()
            .write_all(b" 15\nsignal x\n\xff\nsignal 1")
            .unwrap();
        let read = orders.read();
        assert_eq!(read, [Order::Signal(15), Order::Invalid, Order::Invalid]);
        drop(writer.take());
        assert_eq!(orders.read(), [Order::End]);
        assert_eq!(orders.order(), Order::End);
    }
}
