//! Control channel between the supervisor of a sweep and rank 0 of its job: JSON lines over a Unix
//! socket.
//!
//! The socket has a random abstract name, so that no file remains. Both ends must belong to the
//! same user. The supervisor sends a [`MeasurementRequest`] for each measurement; rank 0 sends
//! [`Message`]s. When the channel is closed, the job ends.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use ronde_lab::bench::{Series, SeriesTimes};
use ronde_lab::sweep::Point;

/// Longest line in bytes: enough for more than a million step times.
const LINE_BYTES_MOST: u64 = 64 << 20;

/// Request to make a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct MeasurementRequest {
    /// Settings to measure.
    pub(super) point: Point,
    pub(super) series: Series,
    /// Time limit of the measurement.
    pub(super) time: Option<Duration>,
}

/// Message of rank 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Message {
    /// All ranks have started.
    Ready,
    /// Sign of life: steps are running.
    Alive,
    /// The measurement is complete.
    Done(SeriesTimes),
    /// The job has failed, with the reason.
    Failed(String),
}

/// Socket on which the supervisor waits for rank 0.
pub(super) struct Listener {
    socket: UnixListener,
    name: String,
}

impl Listener {
    /// Binds a socket with a new name.
    pub(super) fn bind() -> io::Result<Self> {
        let name = format!("ronde-sweep-{:032x}", rand::random::<u128>());
        let socket = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        Ok(Self { socket, name })
    }

    /// Name of the socket, for rank 0.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Waits for the connection of rank 0. If the job ends before, the supervisor itself connects,
    /// and closes the connection. Connections of other users are closed.
    pub(super) fn accept(&self) -> io::Result<UnixStream> {
        loop {
            let (stream, _) = self.socket.accept()?;
            if is_own(&stream)? {
                return Ok(stream);
            }
        }
    }
}

/// Connects to the supervisor.
pub(super) fn connect(name: &str) -> io::Result<UnixStream> {
    let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    if is_own(&stream)? {
        Ok(stream)
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

/// Whether the process at the other end belongs to the same user.
fn is_own(stream: &UnixStream) -> io::Result<bool> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?;
    Ok(peer.uid == rustix::process::geteuid())
}

/// Sends a message as one line.
pub(super) fn send(mut stream: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Reader of the received lines.
pub(super) struct Lines(BufReader<UnixStream>);

impl Lines {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self(BufReader::new(stream))
    }

    /// Returns the next message, or `None` if the other end has closed the channel.
    pub(super) fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let mut line = Vec::new();
        let count = self
            .0
            .by_ref()
            .take(LINE_BYTES_MOST)
            .read_until(b'\n', &mut line)?;
        match line.last() {
            None => Ok(None),
            Some(b'\n') => Ok(Some(serde_json::from_slice(&line)?)),
            // The line is incomplete: the other end has ended, or the line is too long.
            Some(_) if (count as u64) < LINE_BYTES_MOST => Ok(None),
            Some(_) => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_arrive_as_they_were_sent() {
        let listener = Listener::bind().unwrap();
        let rank = connect(listener.name()).unwrap();
        let supervisor = listener.accept().unwrap();
        let messages = [
            Message::Ready,
            Message::Failed("a \"reason\"\nof two lines".to_owned()),
        ];
        messages
            .iter()
            .for_each(|message| send(&rank, message).unwrap());
        (&rank).write_all(b"{\"cut").unwrap();
        drop(rank);
        let mut lines = Lines::new(supervisor);
        for message in messages {
            assert_eq!(lines.next::<Message>().unwrap(), Some(message));
        }
        assert_eq!(
            lines.next::<Message>().unwrap(),
            None,
            "a truncated line is no message"
        );
    }

    #[test]
    fn nobody_is_waited_for_when_the_job_is_over() {
        let listener = Listener::bind().unwrap();
        drop(connect(listener.name()).unwrap());
        let mut lines = Lines::new(listener.accept().unwrap());
        assert_eq!(lines.next::<Message>().unwrap(), None);
    }

    #[test]
    fn a_line_that_is_no_message_is_an_error() {
        let (left, right) = UnixStream::pair().unwrap();
        (&left).write_all(b"hello\n").unwrap();
        assert!(Lines::new(right).next::<Message>().is_err());
    }
}
