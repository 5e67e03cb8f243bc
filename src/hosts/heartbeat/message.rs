//! Messages of the heartbeat between neighbours: liveness, requests for a cycle, departures and
//! failures.

use serde::{Deserialize, Serialize};

/// Length of every message: a receive is posted before its sender is known.
pub(super) const MESSAGE_BYTES: usize = 384;

/// Most characters of a reason: with four bytes each they fit.
const REASON_CHARS: usize = 80;

/// A message on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Envelope {
    /// The job rank that sends it; it may forward the message of another one.
    pub(super) from: usize,
    pub(super) message: Message,
}

/// Content of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Message {
    /// The sender is alive, and has entered this cycle of the set of all ranks.
    Beat { entered: u64 },
    /// A rank requests this cycle of this process set.
    Ring { set: u64, cycle: u64 },
    /// This rank has left this process set.
    Left { set: u64, rank: usize },
    /// This rank has ended the job for all ranks.
    Ended { rank: usize, how: How },
}

/// Why a rank has ended the job for all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum How {
    /// It has sent no heartbeat for so long.
    Silent { seconds: u64 },
    /// Its process has ended, as the ranks of its host report.
    Lost { pid: u32 },
    /// It is alive and has not entered a cycle.
    Stalled {
        waited_seconds: u64,
        limit_seconds: u64,
    },
    /// It left while operations were pending.
    Left,
    /// An error of its own.
    Failed { reason: String },
    /// Its connection has ended.
    Disconnected { reason: String },
}

impl How {
    /// An error of the rank's own, cut to what fits.
    pub(super) fn failed(reason: &str) -> Self {
        let reason = reason.chars().take(REASON_CHARS).collect();
        Self::Failed { reason }
    }

    /// The end of the rank's connection, likewise.
    pub(super) fn disconnected(reason: &str) -> Self {
        let reason = reason.chars().take(REASON_CHARS).collect();
        Self::Disconnected { reason }
    }
}

impl Envelope {
    /// As it travels.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes =
            postcard::to_stdvec(self).expect("a message has no length that is not known");
        assert!(bytes.len() <= MESSAGE_BYTES, "{self:?}");
        bytes.resize(MESSAGE_BYTES, 0);
        bytes
    }

    /// The message in `bytes`; `None` if they are no message of this version, or name a rank that a
    /// job of `size` ranks does not have.
    pub(super) fn decode(bytes: &[u8], size: usize) -> Option<Self> {
        let (envelope, _) = postcard::take_from_bytes::<Self>(bytes).ok()?;
        let named = match envelope.message {
            Message::Left { rank, .. } | Message::Ended { rank, .. } => rank,
            Message::Beat { .. } | Message::Ring { .. } => envelope.from,
        };
        (envelope.from < size && named < size).then_some(envelope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_as_it_was_sent_and_the_longest_fits() {
        let reason = "\u{10ffff}".repeat(3 * REASON_CHARS);
        let messages = [
            Message::Beat { entered: u64::MAX },
            Message::Ring {
                set: u64::MAX,
                cycle: u64::MAX,
            },
            Message::Ended {
                rank: usize::MAX - 1,
                how: How::failed(&reason),
            },
        ];
        for message in messages {
            let envelope = Envelope {
                from: usize::MAX - 1,
                message,
            };
            let bytes = envelope.encode();
            assert_eq!(bytes.len(), MESSAGE_BYTES);
            assert_eq!(Envelope::decode(&bytes, usize::MAX), Some(envelope));
        }
        assert_eq!(Envelope::decode(&[0xff; MESSAGE_BYTES], 4), None);
    }

    #[test]
    fn a_message_that_names_a_rank_outside_of_the_job_is_none() {
        let ended = |from, rank| {
            let how = How::Left;
            let message = Message::Ended { rank, how };
            Envelope::decode(&Envelope { from, message }.encode(), 4).is_some()
        };
        assert!(ended(3, 0));
        assert!(!ended(3, 4));
        assert!(!ended(4, 0));
        let beat = Message::Beat { entered: 1 };
        let bytes = Envelope {
            from: 4,
            message: beat,
        }
        .encode();
        assert_eq!(Envelope::decode(&bytes, 4), None);
    }
}
