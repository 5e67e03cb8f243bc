//! What ranks tell one another over the transport, in a cycle in which each knows that the others do: ids of communicators, and how
//! much memory there is. A rank that cannot take part says so instead of staying away, and the batch fails on all with its reason.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::lane::Trouble;
use super::{Company, Place, gpu_error};
use crate::error::Error;
use crate::gpu::{GpuError, UniqueId};
use crate::transport::Transport;

/// Bytes of an [`UniqueId`], as they travel.
#[derive(Serialize, Deserialize)]
struct Id(Vec<u8>);

/// Why a rank of the set cannot.
#[derive(Serialize, Deserialize)]
struct Unable {
    rank: usize,
    reason: String,
}

/// Brings to all ranks of the set what each brings: an id, nothing, or why it cannot take part, which is then the end of it for all.
pub(super) fn exchange(
    own: Result<Option<UniqueId>, GpuError>,
    place: Place,
    company: &mut Company<'_>,
) -> Result<Vec<Option<UniqueId>>, Trouble> {
    let rank = company.members[place.rank];
    let transport = &mut *company.transport;
    let word = match &own {
        Ok(id) => Ok(id.map(|id| Id(id.to_vec()))),
        Err(error) => Err(Unable {
            rank,
            reason: error.to_string(),
        }),
    };
    let words = gather(transport, rank, &word).map_err(Trouble::OfRank)?;
    let all: Option<Result<Vec<Option<Id>>, Unable>> = (place.rank == 0).then(|| words.into_iter().collect());
    let all: Result<Vec<Option<Id>>, Unable> =
        broadcast(transport, rank, all.as_ref()).map_err(Trouble::OfRank)?;
    let of_batch = |error| Trouble::OfBatch(gpu_error(rank, error));
    own.map_err(of_batch)?;
    let all = all.map_err(|Unable { rank, reason }| of_batch(GpuError::Peer { rank, reason }))?;
    let bytes = |id: Option<Id>| id.map(|Id(bytes)| bytes.try_into()).transpose();
    let ids: Result<Vec<Option<UniqueId>>, _> = all.into_iter().map(bytes).collect();
    ids.map_err(|_| Trouble::OfRank(internal(rank, "an NCCL id of another length")))
}

/// The least of what all ranks say.
pub(super) fn least(
    own: u64,
    place: Place,
    rank: usize,
    transport: &mut dyn Transport,
) -> Result<u64, Error> {
    let all = gather(transport, rank, &own)?;
    let least = (place.rank == 0).then(|| all.into_iter().min().unwrap_or(0));
    broadcast(transport, rank, least.as_ref())
}

/// Brings what every rank says to rank 0 of the set, in rank order; nothing on the others.
fn gather<T: Serialize + DeserializeOwned>(
    transport: &mut dyn Transport,
    rank: usize,
    say: &T,
) -> Result<Vec<T>, Error> {
    let frame = postcard::to_stdvec(say).map_err(|error| internal(rank, &error))?;
    let mut frames = Vec::new();
    transport.gather(&frame, &mut frames)?;
    frames
        .iter()
        .map(|frame| postcard::from_bytes(frame).map_err(|error| internal(rank, &error)))
        .collect()
}

/// Brings what rank 0 of the set says, and the others leave out, to all.
fn broadcast<T: Serialize + DeserializeOwned>(
    transport: &mut dyn Transport,
    rank: usize,
    say: Option<&T>,
) -> Result<T, Error> {
    let mut frame = match say {
        Some(say) => postcard::to_stdvec(say).map_err(|error| internal(rank, &error))?,
        None => Vec::new(),
    };
    transport.broadcast(&mut frame)?;
    postcard::from_bytes(&frame).map_err(|error| internal(rank, &error))
}

fn internal(rank: usize, error: impl std::fmt::Display) -> Error {
    Error::Internal {
        rank,
        message: format!("meeting on GPUs: {error}"),
    }
}
