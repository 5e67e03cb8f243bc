//! What rank 0 tells every rank about tensors that were not in the response cache.

use std::sync::Arc;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::request::Params;
use crate::error::{Error, Mismatch};

/// Why a tensor will not travel: two ranks submitted different things under its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// What differs.
    pub what: String,
    /// The rank that `expected` was taken from.
    pub first_rank: u32,
    /// What that rank submitted.
    pub expected: String,
    /// The rank that differs from it.
    pub rank: u32,
    /// What the latter submitted.
    pub found: String,
}

impl Refusal {
    /// The error that every rank's handle gets.
    pub fn into_error(self, tensor: &str) -> Error {
        Error::Mismatch(Box::new(Mismatch {
            tensor: tensor.to_owned(),
            what: self.what,
            first_rank: self.first_rank as usize,
            expected: self.expected,
            rank: self.rank as usize,
            found: self.found,
        }))
    }
}

/// The fate of one tensor that all ranks have asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// Name of the tensor.
    pub name: Arc<str>,
    /// What all ranks agreed on, or why they could not.
    pub outcome: Result<Params, Refusal>,
}

/// Rank 0's answer in one cycle. Every rank handles it in this order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResponseList {
    /// Cache slots that no longer hold: a rank asked for their tensor with other parameters.
    pub evict: Vec<u32>,
    /// Tensors that are complete, in the order in which they became so.
    pub responses: Vec<Response>,
}

/// Version of the frames below; ranks of one job have the same (checked when they meet).
pub const WIRE_VERSION: u8 = 1;

/// A frame: the version, then the message in postcard's format.
///
/// # Errors
/// If the message cannot be encoded, which for these types means that memory ran out.
pub fn encode(message: &impl Serialize, frame: &mut Vec<u8>) -> Result<(), postcard::Error> {
    frame.clear();
    frame.push(WIRE_VERSION);
    let owned = std::mem::take(frame);
    *frame = postcard::to_extend(message, owned)?;
    Ok(())
}

/// The message in a frame made by [`encode`].
///
/// # Errors
/// A frame of another version, cut short, too long, or with values that do not exist.
pub fn decode<T: DeserializeOwned>(frame: &[u8]) -> Result<T, postcard::Error> {
    match frame.split_first() {
        Some((&WIRE_VERSION, body)) => {
            let (message, rest) = postcard::take_from_bytes(body)?;
            if rest.is_empty() {
                Ok(message)
            } else {
                Err(postcard::Error::SerdeDeCustom)
            }
        }
        _ => Err(postcard::Error::DeserializeBadEncoding),
    }
}
