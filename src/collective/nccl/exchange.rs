//! Exchanges among ranks over the transport, in a cycle in which each rank knows that the others
//! take part: ids of communicators, and available memory. A rank that cannot take part sends its
//! reason instead, and the batch fails on all ranks with it.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::collective::asynchronous::{LaunchError, Peers, SetRank};
use crate::error::{DeviceError, Error, PeerError};
use crate::gpu::{GpuError, UniqueId};
use crate::transport::Transport;

/// Bytes of a [`UniqueId`] in a message.
#[derive(Serialize, Deserialize)]
struct Id(Vec<u8>);

/// Reason for which a rank of the set cannot take part.
#[derive(Serialize, Deserialize)]
struct Unable {
    rank: usize,
    reason: String,
}

/// Sends each rank's contribution to all ranks of the set: an id, nothing, or the reason why it
/// cannot take part, which is then the error on all.
pub(super) fn exchange(
    own: Result<Option<UniqueId>, GpuError>,
    set_rank: SetRank,
    peers: &mut Peers<'_>,
) -> Result<Vec<Option<UniqueId>>, LaunchError> {
    let rank = peers.members[set_rank.rank];
    let transport = &mut *peers.transport;
    let word = match &own {
        Ok(id) => Ok(id.map(|id| Id(id.to_vec()))),
        Err(error) => Err(Unable {
            rank,
            reason: error.to_string(),
        }),
    };
    let members = peers.members;
    let words = gather(transport, members, &word).map_err(LaunchError::Rank)?;
    let all: Option<Result<Vec<Option<Id>>, Unable>> =
        (set_rank.rank == 0).then(|| words.into_iter().collect());
    let all: Result<Vec<Option<Id>>, Unable> =
        broadcast(transport, members, all.as_ref()).map_err(LaunchError::Rank)?;
    let of_batch = |error| LaunchError::Batch(DeviceError::of_rank(rank, error).into());
    own.map_err(of_batch)?;
    let all = all.map_err(|Unable { rank, reason }| of_batch(GpuError::Peer { rank, reason }))?;
    let bytes = |id: Option<Id>| id.map(|Id(bytes)| bytes.try_into()).transpose();
    let ids: Result<Vec<Option<UniqueId>>, _> = all.into_iter().map(bytes).collect();
    match ids {
        Ok(ids) if ids.len() == set_rank.size => Ok(ids),
        _ => Err(LaunchError::Rank(invalid(
            members[0],
            "NCCL ids of another length or number",
        ))),
    }
}

/// Returns the minimum of all ranks' values.
pub(super) fn least(own: u64, set_rank: SetRank, peers: &mut Peers<'_>) -> Result<u64, Error> {
    let (transport, members) = (&mut *peers.transport, peers.members);
    let all = gather(transport, members, &own)?;
    let least = (set_rank.rank == 0).then(|| all.into_iter().min().unwrap_or(0));
    let least = broadcast(transport, members, least.as_ref())?;
    if least > own {
        return Err(invalid(
            members[0],
            "more than this rank has, as the least of all ranks",
        ));
    }
    Ok(least)
}

/// Gathers the values of all `members` at the first of them, in rank order; the others get nothing.
fn gather<T: Serialize + DeserializeOwned>(
    transport: &mut dyn Transport,
    members: &[usize],
    say: &T,
) -> Result<Vec<T>, Error> {
    let frame = encode(transport, members, say)?;
    let mut frames = Vec::new();
    transport.gather(&frame, &mut frames)?;
    members
        .iter()
        .zip(&frames)
        .map(|(&rank, frame)| postcard::from_bytes(frame).map_err(|error| invalid(rank, error)))
        .collect()
}

/// Broadcasts the value of the first of `members` to all; the others pass none.
fn broadcast<T: Serialize + DeserializeOwned>(
    transport: &mut dyn Transport,
    members: &[usize],
    say: Option<&T>,
) -> Result<T, Error> {
    let mut frame = match say {
        Some(say) => encode(transport, members, say)?,
        None => Vec::new(),
    };
    transport.broadcast(&mut frame)?;
    postcard::from_bytes(&frame).map_err(|error| invalid(members[0], error))
}

fn encode(
    transport: &dyn Transport,
    members: &[usize],
    say: &impl Serialize,
) -> Result<Vec<u8>, Error> {
    postcard::to_stdvec(say).map_err(|error| Error::Internal {
        rank: members[transport.rank()],
        message: format!("exchange before a batch on GPUs: {error}"),
    })
}

/// The error for invalid data from job rank `rank`.
pub(super) fn invalid(rank: usize, problem: impl std::fmt::Display) -> Error {
    Error::Peer(PeerError::InvalidData {
        rank,
        problem: format!("exchange before a batch on GPUs: {problem}"),
    })
}
