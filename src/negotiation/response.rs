//! What rank 0 tells every rank about tensors that were not in the response cache.

use std::sync::Arc;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::order::Order;
use super::request::{Group, Params};
use crate::error::{Error, Mismatch};

/// Why a tensor will not travel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Refusal {
    /// Two ranks submitted different things under its name.
    Mismatch {
        /// What differs.
        what: String,
        /// The rank that `expected` was taken from.
        first_rank: u32,
        /// What that rank submitted.
        expected: String,
        /// The rank that differs from it.
        rank: u32,
        /// What the latter submitted.
        found: String,
    },
    /// It needs a rank that has joined: the root of a broadcast, every rank in an agreement and where the program says so.
    Joined {
        /// The rank.
        rank: u32,
    },
}

impl Refusal {
    /// The error that every rank's handle gets.
    pub fn into_error(self, tensor: &str) -> Error {
        let tensor = tensor.to_owned();
        match self {
            Self::Mismatch {
                what,
                first_rank,
                expected,
                rank,
                found,
            } => Error::Mismatch(Box::new(Mismatch {
                tensor,
                what,
                first_rank: first_rank as usize,
                expected,
                rank: rank as usize,
                found,
            })),
            Self::Joined { rank } => Error::RankJoined {
                tensor,
                rank: rank as usize,
            },
        }
    }
}

/// What the ranks agreed on for one tensor, beyond the [`Params`] that each of them has itself. Ranks are those of
/// the process set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Agreed {
    /// Allgather: each rank's rows. Alltoall: the rows from each rank to each, `rows[from · size + to]`.
    pub rows: Vec<u64>,
    /// Ranks that have joined and take no part.
    pub absent: Vec<u32>,
    /// What they need to know of the tensor, if there are any.
    pub params: Option<Params>,
    /// The last rank that joined, as a rank of the job ([`OpKind::Join`](super::OpKind::Join)).
    pub last_joined: u32,
}

impl Agreed {
    /// The same with `absent` ranks, of `size`, bringing nothing.
    pub fn without(&self, absent: Vec<u32>, size: usize) -> Self {
        let mut rows = self.rows.clone();
        let rows_each = rows.len() / size; // 0, 1 or `size`
        for &rank in &absent {
            rows[rank as usize * rows_each..][..rows_each].fill(0);
        }
        Self {
            rows,
            absent,
            ..self.clone()
        }
    }
}

/// The fate of one tensor that all ranks have asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// Name of the tensor.
    pub name: Arc<str>,
    /// Its group, as the first rank named it.
    pub group: Option<Group>,
    /// What all ranks agreed on, or why they could not.
    pub outcome: Result<Agreed, Refusal>,
}

/// Rank 0's answer in one cycle. Every rank handles it in this order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResponseList {
    /// Cache slots that no longer hold: a rank asked for their tensor with other parameters.
    pub evict: Vec<u32>,
    /// Tensors that are complete, in the order in which they became so.
    pub responses: Vec<Response>,
    /// What every rank is to do at the end of this cycle, in this order.
    pub orders: Vec<Order>,
}

/// Version of the frames below; ranks of one job have the same (checked when they meet).
pub const WIRE_VERSION: u8 = 6;

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

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use crate::settings::SettingsChange;
    use crate::timeline;

    #[test]
    fn orders_travel_with_any_path_that_linux_takes() {
        let paths = [&b"t.json"[..], b"", b"\xff\xfe not UTF-8"];
        let start = |path: &[u8]| {
            Order::Timeline(timeline::Order::Start {
                path: OsStr::from_bytes(path).into(),
                mark_cycles: true,
            })
        };
        let change = SettingsChange {
            fusion_threshold_bytes: Some(1 << 40),
            ..SettingsChange::default()
        };
        let others = [Order::Timeline(timeline::Order::Stop), Order::Settings(change)];
        let answer = ResponseList {
            orders: paths.map(start).into_iter().chain(others).collect(),
            ..ResponseList::default()
        };
        let mut frame = Vec::new();
        encode(&answer, &mut frame).expect("memory");
        assert_eq!(decode::<ResponseList>(&frame), Ok(answer));
        // Cut short anywhere it is refused.
        for length in 0..frame.len() {
            assert!(decode::<ResponseList>(&frame[..length]).is_err());
        }
    }
}
