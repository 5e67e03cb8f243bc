//! Control messages of a connection: what the ranks of a mesh tell each other beside data.
//!
//! A message is encoded by postcard. The version is the first field of the first message, whatever
//! the version: two versions recognize each other by it.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Longest text that another rank may have shown here, characters.
const TEXT_CHARS_MAX: usize = 2_000;

/// A rank as the others know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Name of its host.
    pub host: String,
    /// Key of its host: equal for ranks that share memory.
    pub host_key: String,
    /// Where it accepts connections.
    pub address: SocketAddr,
}

/// First message of a connecting rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Version of the package.
    pub(crate) version: String,
    /// Name of the job.
    pub(crate) job: String,
    /// Number of meshes that the job has had before.
    pub(crate) init: u32,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) peer: Peer,
    /// Names and values that must be equal on all ranks.
    pub(crate) contract: Vec<(String, String)>,
}

/// Control message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Control {
    /// A connecting rank introduces itself.
    Hello(Hello),
    /// Rank 0's answer to all, once every rank has come: the ranks in order.
    Start(Vec<Peer>),
    /// Rank 0's answer to a rank that it refuses, or to all if the job cannot start.
    Refused(String),
    /// An accepting rank's answer to one of another job, or of another start of its own.
    Later(String),
    /// The sender is alive.
    Beat,
    /// So many bytes of a channel have reached their receivers since the connection began.
    Credit { channel: u64, taken: u64 },
    /// A rank is lost, for this reason.
    Gone { rank: u32, reason: String },
    /// The sender needs nothing more of the mesh.
    Bye,
}

impl Control {
    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("lengths are known")
    }

    /// Reads a message that the same version has encoded.
    ///
    /// # Errors
    /// Another version's hello, or bytes that no version sends.
    pub(crate) fn decode(bytes: &[u8], version: &str) -> Result<Self, NotUnderstood> {
        let malformed = || NotUnderstood::Malformed { bytes: bytes.len() };
        // A hello is the first variant, and its version the first field.
        if let Ok((0, found)) = postcard::take_from_bytes::<(u32, String)>(bytes).map(|(it, _)| it)
            && found != version
        {
            return Err(NotUnderstood::Version {
                found: shortened(&found),
            });
        }
        let (message, rest) = postcard::take_from_bytes::<Self>(bytes).map_err(|_| malformed())?;
        if !rest.is_empty() {
            return Err(malformed());
        }
        Ok(match message {
            Self::Refused(text) => Self::Refused(shortened(&text)),
            Self::Later(text) => Self::Later(shortened(&text)),
            Self::Gone { rank, reason } => Self::Gone {
                rank,
                reason: shortened(&reason),
            },
            message => message,
        })
    }
}

/// Why a message cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotUnderstood {
    /// It is of another version.
    Version { found: String },
    /// It is no message.
    Malformed { bytes: usize },
}

/// Another rank's text, without control characters and not too long for an error.
pub(crate) fn shortened(text: &str) -> String {
    let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    printable.take(TEXT_CHARS_MAX).collect()
}

#[cfg(test)]
pub(crate) fn hello(rank: u32, size: u32) -> Hello {
    Hello {
        version: crate::config::VERSION.into(),
        job: "job".into(),
        init: 0,
        rank,
        size,
        peer: Peer {
            host: format!("host{rank}"),
            host_key: format!("key{rank}"),
            address: ([127, 0, 0, 1], 1).into(),
        },
        contract: vec![("cache capacity".into(), "1024".into())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let peer = hello(3, 4).peer;
        for message in [
            Control::Hello(hello(3, 4)),
            Control::Start(vec![peer.clone(), peer]),
            Control::Refused("no".into()),
            Control::Later("not yet".into()),
            Control::Beat,
            Control::Credit {
                channel: 7,
                taken: u64::MAX,
            },
            Control::Gone {
                rank: 9,
                reason: "killed".into(),
            },
            Control::Bye,
        ] {
            let bytes = message.encode();
            assert_eq!(Control::decode(&bytes, crate::config::VERSION), Ok(message));
            let longer = [&bytes[..], &[0]].concat();
            assert_eq!(
                Control::decode(&longer, crate::config::VERSION),
                Err(NotUnderstood::Malformed {
                    bytes: longer.len()
                })
            );
        }
    }

    #[test]
    fn another_version_is_recognized_whatever_follows_its_number() {
        let mut bytes = postcard::to_stdvec(&(0u32, "9.9.9")).unwrap();
        bytes.extend_from_slice(b"fields of the future");
        assert_eq!(
            Control::decode(&bytes, "0.1.0"),
            Err(NotUnderstood::Version {
                found: "9.9.9".into()
            })
        );
    }

    #[test]
    fn texts_of_others_are_made_printable() {
        let refused = Control::Refused(format!("a\x1b[2J{}", "x".repeat(1 << 16))).encode();
        match Control::decode(&refused, "0").unwrap() {
            Control::Refused(text) => {
                assert!(text.starts_with("a [2Jxx"));
                assert_eq!(text.chars().count(), TEXT_CHARS_MAX);
            }
            other => panic!("{other:?}"),
        }
    }
}
