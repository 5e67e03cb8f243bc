//! One connection of a mesh: its authentication, its frames, and the state of both directions.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;

use crate::authentication::{
    Acceptor, CHALLENGE_BYTES, CONFIRMATION_BYTES, Connector, RESPONSE_BYTES,
};
use crate::control::Control;
use crate::error::NetError;
use crate::inbound::Inbound;
use crate::inbox::{MESSAGE_COST, WINDOW_BYTES};
use crate::outbound::Outbound;
use crate::secret::Secret;

/// Time that the accepting side gives a connection to authenticate itself.
pub(crate) const ACCEPT_TIMEOUT: Duration = Duration::from_millis(900);

/// Time that the connecting side gives an attempt. Longer than the first retransmission of TCP,
/// after 1 s.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// A receiver reports what it has taken of the window in steps of this size.
const CREDIT_BYTES: u64 = WINDOW_BYTES / 4;

/// Most channels on which the other side sends. A process set has two, or four with hierarchical
/// operations, and none is removed before the job ends.
const CHANNELS_MAX: usize = 1 << 16;

/// State of a connection.
pub(crate) enum Stage {
    /// The operating system is connecting.
    Connecting,
    /// The connecting side waits for the challenge.
    Challenge,
    /// The connecting side waits for the confirmation.
    Confirmation(Connector),
    /// The accepting side waits for the response.
    Response(Acceptor),
    /// The accepting side waits for the hello; the other side is authenticated.
    Hello,
    /// Both sides send frames.
    Open,
}

/// Why a connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The other side has closed it.
    Closed,
    /// It has failed.
    Failed(String),
    /// The other side took too long.
    Timeout,
    /// The other side is another program.
    NotRonde,
    /// The other side does not have the secret.
    WrongSecret,
    /// The other side refuses this rank.
    Refused(String),
    /// The other side does not know this rank yet, or belongs to another job.
    Later(String),
    /// The other side has sent what no rank sends.
    Invalid(String),
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("the connection was closed"),
            Self::Failed(reason)
            | Self::Refused(reason)
            | Self::Later(reason)
            | Self::Invalid(reason) => f.write_str(reason),
            Self::Timeout => f.write_str("no answer"),
            Self::NotRonde => f.write_str("another program answers"),
            Self::WrongSecret => f.write_str("the secrets differ"),
        }
    }
}

impl From<std::io::Error> for End {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Use of one channel's window by the other side, since the connection began.
#[derive(Default)]
struct Flow {
    arrived: u64,
    taken: u64,
    /// Part of `taken` that was reported to the sender.
    reported: u64,
}

/// One connection of a mesh.
pub(crate) struct Link {
    pub(crate) stream: TcpStream,
    /// Address of the other side.
    pub(crate) address: SocketAddr,
    pub(crate) stage: Stage,
    /// The other rank: known from the start on the connecting side, from the hello on the other.
    pub(crate) rank: Option<usize>,
    /// When the stage must be `Open`.
    pub(crate) deadline: Option<Instant>,
    pub(crate) inbound: Inbound,
    pub(crate) outbound: Outbound,
    /// When the last byte arrived.
    pub(crate) heard: Instant,
    /// The other side needs nothing more.
    pub(crate) is_leaving: bool,
    /// The end of what it sends, or an error, was reported: there is no further event.
    pub(crate) is_ending: bool,
    /// Bytes of an authentication message that is arriving.
    partial: Vec<u8>,
    flows: HashMap<u64, Flow>,
}

impl Link {
    /// The accepting side of a new connection from `address`.
    pub(crate) fn accepted(stream: TcpStream, address: SocketAddr) -> Result<Self, NetError> {
        let (acceptor, challenge) = Acceptor::challenge()?;
        let mut link = Self::new(stream, address, Stage::Response(acceptor), ACCEPT_TIMEOUT);
        link.outbound.push_raw(&challenge);
        Ok(link)
    }

    /// The connecting side of a connection to `rank` at `address` that has begun.
    pub(crate) fn connecting(stream: TcpStream, address: SocketAddr, rank: usize) -> Self {
        Self {
            rank: Some(rank),
            ..Self::new(stream, address, Stage::Connecting, CONNECT_TIMEOUT)
        }
    }

    fn new(stream: TcpStream, address: SocketAddr, stage: Stage, timeout: Duration) -> Self {
        let now = Instant::now();
        Self {
            stream,
            address,
            stage,
            rank: None,
            deadline: Some(now + timeout),
            inbound: Inbound::default(),
            outbound: Outbound::default(),
            heard: now,
            is_leaving: false,
            is_ending: false,
            partial: Vec::new(),
            flows: HashMap::new(),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    /// Whether this side has accepted the connection, and the other has not proved that it knows
    /// the secret.
    pub(crate) fn is_unauthenticated(&self) -> bool {
        matches!(self.stage, Stage::Response(_))
    }

    /// Asks whether the operating system has connected.
    pub(crate) fn check_connected(&mut self) -> Result<(), End> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error.into());
        }
        match self.stream.peer_addr() {
            // The kernel has chosen the port of the other side for this one, too: TCP connects the
            // socket with itself.
            Ok(address) if address == self.stream.local_addr()? => {
                Err(End::Failed("nobody listens there yet".to_owned()))
            }
            Ok(_) => {
                crate::address::configure(&self.stream)?;
                self.stage = Stage::Challenge;
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotConnected => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes in bytes of the authentication, and no others; returns the rest. After that, the
    /// connecting side is [`Stage::Open`], and the caller sends its hello.
    pub(crate) fn authenticate<'a>(
        &mut self,
        mut bytes: &'a [u8],
        secret: &Secret,
    ) -> Result<&'a [u8], End> {
        while !bytes.is_empty() {
            let expected = match self.stage {
                Stage::Connecting | Stage::Hello | Stage::Open => break,
                Stage::Challenge => CHALLENGE_BYTES,
                Stage::Confirmation(_) => CONFIRMATION_BYTES,
                Stage::Response(_) => RESPONSE_BYTES,
            };
            let (head, rest) = bytes.split_at(bytes.len().min(expected - self.partial.len()));
            self.partial.extend_from_slice(head);
            bytes = rest;
            if self.partial.len() == expected {
                let message = std::mem::take(&mut self.partial);
                self.step(&message, secret)?;
            }
        }
        Ok(bytes)
    }

    /// Takes in a whole message of the authentication.
    fn step(&mut self, message: &[u8], secret: &Secret) -> Result<(), End> {
        const LENGTH: &str = "a message is collected to its length";
        self.stage = match &self.stage {
            Stage::Challenge => {
                let (connector, response) =
                    Connector::respond(secret, message.try_into().expect(LENGTH))
                        .map_err(|error| End::Failed(error.to_string()))?
                        .ok_or(End::NotRonde)?;
                self.outbound.push_raw(&response);
                Stage::Confirmation(connector)
            }
            Stage::Confirmation(connector) => {
                if !connector.accepts(secret, message.try_into().expect(LENGTH)) {
                    return Err(End::WrongSecret);
                }
                Stage::Open
            }
            Stage::Response(acceptor) => {
                let confirmation = acceptor.confirm(secret, message.try_into().expect(LENGTH));
                // No code is zero: the other side learns that the secrets differ, and nothing else.
                let answer = confirmation.unwrap_or([0; CONFIRMATION_BYTES]);
                self.outbound.push_raw(&answer);
                if confirmation.is_none() {
                    self.outbound.write(&mut self.stream)?;
                    return Err(End::WrongSecret);
                }
                Stage::Hello
            }
            Stage::Connecting | Stage::Hello | Stage::Open => unreachable!("not collected"),
        };
        Ok(())
    }

    /// Counts `count` bytes of a message on `channel`, the first ones if `offset` is 0; `taken` of
    /// the window are free again.
    pub(crate) fn count(
        &mut self,
        channel: u64,
        offset: usize,
        count: usize,
        taken: u64,
    ) -> Result<(), End> {
        let flow = self.flow(channel)?;
        let cost = if offset == 0 { MESSAGE_COST } else { 0 };
        flow.arrived += cost + count as u64;
        self.take(channel, taken)?;
        let flow = &self.flows[&channel];
        if flow.arrived.saturating_sub(flow.taken) > WINDOW_BYTES {
            return Err(End::Invalid(format!(
                "more than {WINDOW_BYTES} bytes that nobody receives"
            )));
        }
        Ok(())
    }

    /// Frees `taken` bytes of the window of `channel`, and tells the other side when it matters.
    pub(crate) fn take(&mut self, channel: u64, taken: u64) -> Result<(), End> {
        let flow = self.flow(channel)?;
        flow.taken += taken;
        if flow.taken - flow.reported >= CREDIT_BYTES {
            flow.reported = flow.taken;
            let taken = flow.taken;
            self.outbound
                .push_control(&Control::Credit { channel, taken });
        }
        Ok(())
    }

    /// Use of the window of `channel`.
    fn flow(&mut self, channel: u64) -> Result<&mut Flow, End> {
        let is_full = self.flows.len() >= CHANNELS_MAX;
        match self.flows.entry(channel) {
            Entry::Vacant(_) if is_full => Err(End::Invalid(format!(
                "messages on more than {CHANNELS_MAX} channels"
            ))),
            entry => Ok(entry.or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::address;

    /// A connection that has begun, to its own address.
    fn link_to_itself() -> Link {
        let socket: OwnedFd = address::bound("127.0.0.1:0".parse().unwrap()).unwrap();
        let own = SocketAddr::try_from(rustix::net::getsockname(&socket).unwrap()).unwrap();
        if let Err(error) = rustix::net::connect(&socket, &own) {
            assert_eq!(error, rustix::io::Errno::INPROGRESS);
        }
        let stream = TcpStream::from_std(std::net::TcpStream::from(socket));
        Link::connecting(stream, own, 0)
    }

    #[test]
    fn a_socket_that_is_connected_with_itself_is_no_connection() {
        let mut link = link_to_itself();
        let end = loop {
            match link.check_connected() {
                Ok(()) => assert!(matches!(link.stage, Stage::Connecting), "connected"),
                Err(end) => break end,
            }
        };
        assert_eq!(end.to_string(), "nobody listens there yet");
        address::listener(link.address).unwrap();
    }

    #[test]
    fn the_number_of_channels_is_limited() {
        let mut link = link_to_itself();
        for channel in 0..CHANNELS_MAX as u64 {
            link.count(channel, 0, 1, 1).unwrap();
        }
        link.count(7, 0, 1, 1).unwrap();
        let end = link.count(u64::MAX, 0, 1, 1).unwrap_err();
        assert_eq!(link.take(u64::MAX, 1), Err(end.clone()));
        let text = "messages on more than 65536 channels";
        assert_eq!(end, End::Invalid(text.into()));
    }
}
