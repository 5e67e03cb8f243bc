//! Frames: the header in front of every piece of a message.
//!
//! All numbers are little-endian. A data frame is a piece of one message; the pieces of a message
//! follow each other within their channel, and frames of other channels may come between them.

/// Length of a header.
pub(crate) const HEADER_BYTES: usize = 40;

/// Longest payload of a data frame: long enough that headers and system calls are cheap, and short
/// enough that a small message of another channel does not wait long behind it.
pub(crate) const FRAGMENT_BYTES_MAX: usize = 256 << 10;

/// Longest control frame: the addresses of 40,000 ranks.
pub(crate) const CONTROL_BYTES_MAX: usize = 8 << 20;

/// Longest message: more than any caller sends at once.
pub(crate) const MESSAGE_BYTES_MAX: u64 = 1 << 40;

const CONTROL: u32 = 1;
const DATA: u32 = 2;

/// Content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A whole control message.
    Control,
    /// A piece of a message.
    Data {
        /// Channel of the message.
        channel: u64,
        /// Tag of the message.
        tag: u32,
        /// Length of the whole message.
        total: u64,
    },
}

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// Length of the payload.
    pub(crate) bytes: usize,
    /// Number of the frame in its direction of the connection.
    pub(crate) sequence: u64,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let (kind, channel, tag, total) = match self.kind {
            Kind::Control => (CONTROL, 0, 0, 0),
            Kind::Data {
                channel,
                tag,
                total,
            } => (DATA, channel, tag, total),
        };
        let bytes = u32::try_from(self.bytes).expect("frames are short");
        let mut header = [0; HEADER_BYTES];
        for (place, word) in header.chunks_exact_mut(4).zip([kind, bytes, tag, 0]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let longs = [channel, total, self.sequence];
        for (place, long) in header[16..].chunks_exact_mut(8).zip(longs) {
            place.copy_from_slice(&long.to_le_bytes());
        }
        header
    }

    /// Reads a header, which must be frame number `sequence`.
    ///
    /// # Errors
    /// The value that no rank sends.
    pub(crate) fn decode(header: &[u8; HEADER_BYTES], sequence: u64) -> Result<Self, String> {
        let word = |index: usize| {
            u32::from_le_bytes(header[4 * index..][..4].try_into().expect("four bytes"))
        };
        let long = |index: usize| {
            u64::from_le_bytes(header[8 * index..][..8].try_into().expect("eight bytes"))
        };
        let (bytes, tag, channel, total) = (word(1) as usize, word(2), long(2), long(3));
        if long(4) != sequence {
            return Err(format!("frame {} in place of frame {sequence}", long(4)));
        }
        if word(3) != 0 {
            return Err(format!("a frame with {:#x} in the unused word", word(3)));
        }
        let (kind, limit) = match word(0) {
            CONTROL if channel == 0 && tag == 0 && total == 0 => (Kind::Control, CONTROL_BYTES_MAX),
            DATA if total <= MESSAGE_BYTES_MAX && bytes as u64 <= total => (
                Kind::Data {
                    channel,
                    tag,
                    total,
                },
                FRAGMENT_BYTES_MAX,
            ),
            DATA => {
                return Err(format!("a frame of {bytes} bytes of a message of {total}"));
            }
            kind => return Err(format!("a frame of unknown kind {kind:#x}")),
        };
        if bytes > limit {
            return Err(format!(
                "a frame of {bytes} bytes, where the limit is {limit}"
            ));
        }
        if bytes == 0 && total != 0 {
            return Err(format!("an empty frame of a message of {total} bytes"));
        }
        Ok(Self {
            kind,
            bytes,
            sequence,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers() -> impl Strategy<Value = Header> {
        let data = (
            any::<u64>(),
            any::<u32>(),
            1..=FRAGMENT_BYTES_MAX,
            0..1u64 << 30,
        )
            .prop_map(|(channel, tag, bytes, more)| {
                let total = bytes as u64 + more;
                (
                    Kind::Data {
                        channel,
                        tag,
                        total,
                    },
                    bytes,
                )
            });
        let control = (0..CONTROL_BYTES_MAX).prop_map(|bytes| (Kind::Control, bytes));
        (prop_oneof![data, control], any::<u64>()).prop_map(|((kind, bytes), sequence)| Header {
            kind,
            bytes,
            sequence,
        })
    }

    proptest! {
        #[test]
        fn decoding_reverses_encoding(header in headers()) {
            prop_assert_eq!(Header::decode(&header.encode(), header.sequence), Ok(header));
            prop_assert!(Header::decode(&header.encode(), header.sequence ^ 1).is_err());
        }

        #[test]
        fn what_decodes_is_within_the_limits(bytes in any::<[u8; HEADER_BYTES]>()) {
            let sequence = u64::from_le_bytes(bytes[32..].try_into().unwrap());
            if let Ok(header) = Header::decode(&bytes, sequence) {
                prop_assert!(header.bytes <= CONTROL_BYTES_MAX);
                prop_assert_eq!(header.encode(), bytes);
            }
        }
    }

    #[test]
    fn frames_that_no_rank_sends_are_refused() {
        let data = |bytes, total| {
            let kind = Kind::Data {
                channel: 1,
                tag: 2,
                total,
            };
            Header {
                kind,
                bytes,
                sequence: 0,
            }
            .encode()
        };
        let refused = |header: [u8; HEADER_BYTES]| Header::decode(&header, 0).unwrap_err();
        assert_eq!(refused(data(9, 8)), "a frame of 9 bytes of a message of 8");
        assert_eq!(
            refused(data(0, 8)),
            "an empty frame of a message of 8 bytes"
        );
        assert!(Header::decode(&data(0, 0), 0).is_ok());
        assert!(refused(data(1, u64::MAX)).starts_with("a frame of 1 bytes"));
        assert!(refused(data(FRAGMENT_BYTES_MAX + 1, 1 << 30)).contains("limit"));
        assert_eq!(refused([0; HEADER_BYTES]), "a frame of unknown kind 0x0");
        let mut control = Header {
            kind: Kind::Control,
            bytes: 1,
            sequence: 0,
        }
        .encode();
        control[8] = 1;
        assert_eq!(refused(control), "a frame of unknown kind 0x1");
    }
}
