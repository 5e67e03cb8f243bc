//! Frames of the rendezvous: eight magic bytes, a length, a JSON object.
//!
//! The magic bytes, the length and the fields `version` and `layout` never change: by them two
//! versions of Ronde detect that they differ. All else may change with the version.

use crate::rendezvous::JobContract;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::RendezvousError;
use super::layout;

/// First bytes of a frame.
const MAGIC: [u8; 8] = *b"ronde\0\0\x01";
/// Number of bytes before the object: the magic and its length, little-endian.
const HEAD_BYTES: usize = MAGIC.len() + 4;
/// Longest object: an error about 64 ranks takes a few thousand bytes.
pub(super) const BODY_BYTES_MAX: usize = 64 << 10;
/// Longest text that a message carries unchanged: two of them fit, even with every character
/// escaped.
const TEXT_BYTES_MAX: usize = 4096;

/// Build of the sender; readable by every version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Origin {
    /// Version of the crate.
    pub(super) version: String,
    /// Hash of protocol and memory layout.
    pub(super) layout: u64,
}

impl Origin {
    /// This build.
    pub(super) fn own() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            layout: layout::HASH,
        }
    }
}

/// Message of this version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Message {
    #[serde(flatten)]
    pub(super) origin: Origin,
    pub(super) body: Body,
}

/// Messages between rank 0 and the other ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Body {
    /// A rank has arrived.
    Hello(Hello),
    /// The rank matches, and has to wait until all have arrived.
    Admitted,
    /// All ranks have arrived. The message carries the region's file and the ranks' pidfds.
    Welcome(Welcome),
    /// The rank has mapped the region.
    Ready,
    /// All ranks have mapped it.
    Go,
    /// The rendezvous has failed.
    Refused(RendezvousError),
}

/// First message of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    /// The set rank.
    pub(super) rank: usize,
    pub(super) members: Vec<usize>,
    /// Process id in the rank's own namespace.
    pub(super) pid: u32,
    pub(super) cache_words: usize,
    pub(super) region_bytes: usize,
    /// Time that the rank will wait from now on, milliseconds.
    pub(super) left_ms: u64,
    pub(super) host_key: String,
    pub(super) contract: JobContract,
}

/// Data that rank 0 sends to a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Welcome {
    /// Process id of each rank, as rank 0 sees it.
    pub(super) pids: Vec<u32>,
    /// For each rank, the index of its pidfd among those sent; ranks of one process share one.
    pub(super) pidfds: Vec<Option<usize>>,
}

/// Reason why bytes are not a frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    #[error("wrong magic bytes")]
    Magic,
    #[error("length {0} above {BODY_BYTES_MAX}")]
    Length(usize),
    #[error("not the expected object: {0}")]
    Object(String),
    /// A valid frame of another build.
    #[error("from ronde {} (layout {:x})", .0.version, .0.layout)]
    Foreign(Origin),
}

/// Encodes the frame of a message from this build. A refusal that is too long is replaced by its
/// text, cut.
///
/// # Errors
/// Another message that is too long.
pub(super) fn encode(body: Body) -> Result<Vec<u8>, TooLong> {
    let origin = Origin::own();
    let short = match &body {
        Body::Refused(error) => Some(RendezvousError::Ended {
            reason: shorten(&error.to_string()),
        }),
        _ => None,
    };
    let framed = frame(&Message {
        origin: origin.clone(),
        body,
    });
    match (framed, short) {
        (Err(TooLong), Some(error)) => frame(&Message {
            origin,
            body: Body::Refused(error),
        }),
        (framed, _) => framed,
    }
}

/// Error: the object of a message would have more than [`BODY_BYTES_MAX`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Returns a text as messages carry it: a text that is too long is cut, and ends in a hash of the
/// whole, so that different texts stay different.
pub(super) fn shorten(text: &str) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text.to_owned();
    }
    let hash = layout::fnv1a(layout::FNV_OFFSET, text.as_bytes());
    let tail = format!("… ({} bytes, hash {hash:016x})", text.len());
    let mut end = TEXT_BYTES_MAX - tail.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{tail}", &text[..end])
}

/// Encodes the frame of any message; tests make frames of other versions.
///
/// # Errors
/// The message is too long.
pub(super) fn frame(message: &impl Serialize) -> Result<Vec<u8>, TooLong> {
    let object = serde_json::to_vec(message).expect("plain data has a JSON form");
    if object.len() > BODY_BYTES_MAX {
        return Err(TooLong);
    }
    let mut frame = Vec::with_capacity(HEAD_BYTES + object.len());
    frame.extend_from_slice(&MAGIC);
    frame.extend_from_slice(&(object.len() as u32).to_le_bytes());
    frame.extend_from_slice(&object);
    Ok(frame)
}

/// Decodes the message at the beginning of `bytes`, and returns it with its number of bytes; `None`
/// if the message is incomplete.
///
/// # Errors
/// Bytes that cannot become a message of this build.
pub(super) fn decode(bytes: &[u8]) -> Result<Option<(Body, usize)>, FrameError> {
    let magic = bytes.len().min(MAGIC.len());
    if bytes[..magic] != MAGIC[..magic] {
        return Err(FrameError::Magic);
    }
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
    if length > BODY_BYTES_MAX {
        return Err(FrameError::Length(length));
    }
    let Some(rest) = rest.get(..length) else {
        return Ok(None);
    };
    let mut origin: Origin = object(rest)?;
    if origin != Origin::own() {
        origin.version = shorten(&origin.version);
        return Err(FrameError::Foreign(origin));
    }
    Ok(Some((object::<Message>(rest)?.body, HEAD_BYTES + length)))
}

fn object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FrameError> {
    serde_json::from_slice(bytes).map_err(|error| FrameError::Object(shorten(&error.to_string())))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hello() -> Body {
        Body::Hello(Hello {
            rank: 1,
            members: vec![4, 7],
            pid: 3,
            cache_words: 16,
            region_bytes: 4096,
            left_ms: 30_000,
            host_key: "host".to_owned(),
            contract: vec![("process sets".to_owned(), "[4, 7]".to_owned())],
        })
    }

    #[test]
    fn every_beginning_of_a_frame_is_unfinished_and_the_whole_is_the_message() {
        let frame = encode(hello()).unwrap();
        for length in 0..frame.len() {
            assert_eq!(decode(&frame[..length]), Ok(None), "{length} bytes");
        }
        assert_eq!(decode(&frame), Ok(Some((hello(), frame.len()))));
        // The bytes that follow stay unread.
        let two = [&frame[..], &encode(Body::Go).unwrap()].concat();
        assert_eq!(decode(&two), Ok(Some((hello(), frame.len()))));
        assert_eq!(
            decode(&two[frame.len()..]),
            Ok(Some((Body::Go, two.len() - frame.len())))
        );
    }

    #[test]
    fn another_build_is_recognised_whatever_its_body() {
        let origin = Origin {
            version: "9.0.0".to_owned(),
            layout: 1,
        };
        assert_eq!(
            decode(&frame(&origin).unwrap()),
            Err(FrameError::Foreign(origin))
        );
    }

    #[test]
    fn texts_of_any_length_fit_and_differ_where_they_differ() {
        let long = "\u{1}é".repeat(20_000);
        let texts = [&long, &format!("{long}x"), &format!("y{long}")].map(|text| shorten(text));
        assert!(texts.iter().all(|text| text.len() <= TEXT_BYTES_MAX));
        assert!(texts[0] != texts[1] && texts[0] != texts[2]);
        assert!(texts[0].contains("é… (60000 bytes, hash "), "{}", texts[0]);
        assert_eq!(shorten(&texts[0]), texts[0]);
        let refusal = Body::Refused(RendezvousError::Disagreement {
            what: "process sets".to_owned(),
            first_rank: 0,
            expected: "\u{1}".repeat(TEXT_BYTES_MAX),
            rank: 1,
            found: "\u{1}".repeat(TEXT_BYTES_MAX),
        });
        let frame = encode(refusal.clone()).unwrap();
        assert_eq!(decode(&frame), Ok(Some((refusal, frame.len()))));
    }

    /// A refusal may quote a peer's text, with escapes that make it longer.
    #[test]
    fn a_refusal_too_long_for_a_message_is_cut_and_nothing_else_is() {
        let refusal = Body::Refused(RendezvousError::Malformed {
            rank: 3,
            bytes: 7,
            problem: "\u{1}".repeat(BODY_BYTES_MAX),
        });
        let frame = encode(refusal).unwrap();
        let Ok(Some((Body::Refused(RendezvousError::Ended { reason }), _))) = decode(&frame) else {
            panic!("{} bytes", frame.len());
        };
        assert!(reason.starts_with("rank 3 sent 7 bytes"), "{reason}");
        let Body::Hello(mut hello) = hello() else {
            panic!()
        };
        hello.host_key = "x".repeat(BODY_BYTES_MAX);
        assert_eq!(encode(Body::Hello(hello)), Err(TooLong));
        let origin = Origin {
            version: "9".repeat(BODY_BYTES_MAX - 100),
            layout: 1,
        };
        let Err(FrameError::Foreign(origin)) = decode(&super::frame(&origin).unwrap()) else {
            panic!("not of this build");
        };
        assert!(origin.version.len() <= TEXT_BYTES_MAX);
    }

    #[test]
    fn lengths_beyond_the_limit_are_refused_before_they_are_read() {
        let mut bytes = encode(Body::Go).unwrap();
        bytes.truncate(HEAD_BYTES);
        bytes[8..].copy_from_slice(&(BODY_BYTES_MAX as u32 + 1).to_le_bytes());
        assert_eq!(decode(&bytes), Err(FrameError::Length(BODY_BYTES_MAX + 1)));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, magic: bool) {
            let head: &[u8] = if magic { &MAGIC } else { &[] };
            let _ = decode(&[head, &bytes].concat());
        }
    }
}
