//! Responses: results of the negotiation that rank 0 sends to every rank, and their checks on the
//! receiver.

use std::sync::Arc;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::Group;
use super::request::{OpKind, Params};
use crate::command::TimelineCommand;
use crate::error::{Error, LimitError, Mismatch, Mismatched, NegotiationError, Submitted};

/// Reason why a tensor is refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// Two ranks submitted different parameters under its name.
    Mismatch {
        /// Job rank that `expected` was taken from.
        first_rank: u32,
        /// Parameters of that rank.
        expected: Box<Params>,
        /// Job rank that differs from it.
        rank: u32,
        /// Parameters of that rank.
        found: Box<Params>,
    },
    /// The number of rows of all ranks, or their number of bytes, overflows.
    TooLarge {
        /// Rows as in [`Agreed::rows`].
        rows: Vec<u64>,
    },
    /// The operation needs a rank that has joined: the root of a broadcast, every rank of an
    /// agreement, and every rank with strict joins.
    Joined {
        /// The rank.
        rank: u32,
    },
}

impl Refusal {
    /// Returns the error for the handles of every rank.
    pub(crate) fn into_error(self, tensor: &str) -> Error {
        let tensor = tensor.to_owned();
        match self {
            Self::Mismatch {
                first_rank,
                expected,
                rank,
                found,
            } => {
                // `check` rejects a refusal without a difference.
                let same = Submitted::Operation(found.kind);
                let (what, [expected, found]) = expected
                    .difference(&found)
                    .unwrap_or((Mismatched::Operation, [same.clone(), same]));
                Mismatch {
                    tensor,
                    what,
                    first_rank: first_rank as usize,
                    expected,
                    rank: rank as usize,
                    found,
                }
                .into()
            }
            Self::TooLarge { .. } => LimitError::TooLarge { tensor }.into(),
            Self::Joined { rank } => Error::Negotiation(NegotiationError::RankJoined {
                tensor,
                rank: rank as usize,
            }),
        }
    }
}

/// Agreement on one tensor, beyond the [`Params`] that each rank has itself. Ranks are set ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Agreed {
    /// Allgather: each rank's rows. Alltoall: the rows from each rank to each, `rows[from · size +
    /// to]`.
    pub rows: Vec<u64>,
    /// Joined ranks that do not take part.
    pub absent: Vec<u32>,
    /// Parameters for the absent ranks, if there are any.
    pub params: Option<Params>,
    /// Last rank that joined, as a job rank ([`OpKind::Join`]). Not sent:
    /// every rank knows it from rank 0's answers.
    #[serde(skip)]
    pub last_joined: u32,
}

/// State of a receiver that it checks rank 0's responses against. Ranks are set ranks unless stated
/// otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receiver<'a> {
    /// This rank.
    pub(crate) rank: usize,
    /// The job rank of each rank.
    pub(crate) members: &'a [usize],
    /// Ranks that have joined, ascending.
    pub(crate) joined: &'a [usize],
    /// Parameters that this rank submitted under the tensor's name, if any.
    pub(crate) own: Option<&'a Params>,
}

impl Receiver<'_> {
    fn is_member(&self, job_rank: u32) -> bool {
        self.members.contains(&(job_rank as usize))
    }

    fn has_joined(&self, job_rank: u32) -> bool {
        self.joined
            .iter()
            .any(|&rank| self.members[rank] == job_rank as usize)
    }
}

impl Refusal {
    /// Checks a refusal from rank 0 against the receiver's state.
    ///
    /// # Errors
    /// Reason why a correct rank 0 cannot have sent it.
    pub(crate) fn check(&self, receiver: &Receiver<'_>) -> Result<(), String> {
        let is_right = match self {
            Self::Mismatch {
                first_rank,
                expected,
                rank,
                found,
            } => {
                let own_rank = receiver.members[receiver.rank] as u32;
                let is_own = |rank: u32, params: &Params| {
                    rank != own_rank
                        || receiver
                            .own
                            .is_some_and(|own| own.difference(params).is_none())
                };
                // Joins are equal on all ranks, or refused when they are requested.
                let is_join = receiver.own.is_some_and(|own| own.kind == OpKind::Join);
                let are_members = receiver.is_member(*rank) && receiver.is_member(*first_rank);
                let is_mismatch = rank != first_rank && expected.difference(found).is_some();
                !is_join
                    && are_members
                    && is_mismatch
                    && is_own(*first_rank, expected)
                    && is_own(*rank, found)
            }
            Self::Joined { rank } => {
                let needs = |own: &Params| own.needs_rank(*rank as usize);
                receiver.has_joined(*rank) && receiver.own.is_none_or(needs)
            }
            Self::TooLarge { rows } => {
                let own_rows = receiver.own.map(Params::own_rows).unwrap_or_default();
                let each = rows.len() / receiver.members.len();
                let of_own = rows
                    .get(receiver.rank * each..)
                    .and_then(|rows| rows.get(..each));
                let is_own = match receiver.own {
                    Some(_) => of_own == Some(&own_rows[..]) && each > 0,
                    None => of_own.is_some_and(|rows| rows.iter().all(|&rows| rows == 0)),
                };
                let row_bytes = receiver.own.map_or(usize::MAX, Params::row_bytes);
                is_own && !rows_fit_memory(rows, row_bytes)
            }
        };
        if is_right {
            return Ok(());
        }
        Err(format!(
            "a refusal that does not fit what this rank knows: {self:?}"
        ))
    }
}

impl Agreed {
    /// Checks an agreement from rank 0 against `params`, the tensor's parameters, and the
    /// receiver's state. After the check, sums and products of [`rows`](Self::rows) and row bytes
    /// do not overflow.
    ///
    /// # Errors
    /// Reason why a correct rank 0 cannot have sent it.
    pub(crate) fn check(&self, params: &Params, receiver: &Receiver<'_>) -> Result<(), String> {
        let size = receiver.members.len();
        let (absent, joined) = (&self.absent, receiver.joined);
        let may_be_absent = |&rank: &u32| joined.binary_search(&(rank as usize)).is_ok();
        let takes_part = !absent.contains(&(receiver.rank as u32));
        let lacks = |&rank: &u32| params.needs_rank(receiver.members[rank as usize]);
        if absent.len() == size
            || !absent.is_sorted_by(|a, b| a < b)
            || !absent.iter().all(may_be_absent)
        {
            return Err(format!(
                "ranks {absent:?} take no part, and {joined:?} have joined"
            ));
        }
        if takes_part != receiver.own.is_some() {
            let submitted = if takes_part {
                "not submitted"
            } else {
                "submitted"
            };
            return Err(format!(
                "ranks {absent:?} take no part, and this rank has {submitted} the tensor"
            ));
        }
        if absent.iter().any(lacks) {
            return Err(format!(
                "ranks {absent:?} take no part, and one of them is needed"
            ));
        }
        let fits = |agreed: &Params| agreed.difference(params).is_none();
        if self.params.is_some() == absent.is_empty() || !self.params.iter().all(fits) {
            return Err(format!(
                "params {:?}, with ranks {absent:?} absent",
                self.params
            ));
        }
        if params.kind == OpKind::Join && joined.len() < size {
            return Err(format!(
                "the end of a join, but of {size} ranks only {joined:?} have joined"
            ));
        }
        self.check_rows(params, receiver, takes_part)
    }

    fn check_rows(
        &self,
        params: &Params,
        receiver: &Receiver<'_>,
        takes_part: bool,
    ) -> Result<(), String> {
        let size = receiver.members.len();
        let rows_each = params.kind.rows_each(size);
        if self.rows.len() != size * rows_each {
            return Err(format!(
                "rows of {} ranks, where there are {size}",
                self.rows.len()
            ));
        }
        if rows_each == 0 {
            return Ok(());
        }
        let of = |rank: usize| &self.rows[rank * rows_each..][..rows_each];
        let own = params.own_rows();
        if takes_part && of(receiver.rank) != &own[..] {
            let found = of(receiver.rank);
            return Err(format!("rows {found:?} of this rank, which has {own:?}"));
        }
        if let Some(rank) = self
            .absent
            .iter()
            .find(|&&rank| of(rank as usize).iter().any(|&rows| rows > 0))
        {
            return Err(format!("rows of rank {rank}, which takes no part"));
        }
        if !rows_fit_memory(&self.rows, params.row_bytes()) {
            return Err(format!("more rows than fit memory: {:?}", self.rows));
        }
        Ok(())
    }

    /// Returns the agreement with the `absent` ranks, of `size`, contributing no rows.
    pub(crate) fn without(&self, absent: Vec<u32>, size: usize) -> Self {
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

/// Whether the number of all ranks' rows, and their number of bytes, fit memory.
pub(super) fn rows_fit_memory(rows: &[u64], row_bytes: usize) -> bool {
    let mut rows = rows.iter();
    let sum = rows.try_fold(0u64, |sum, &rows| sum.checked_add(rows));
    let bytes = sum.and_then(|sum| sum.checked_mul(row_bytes as u64));
    let fits = |count: Option<u64>| count.is_some_and(|count| isize::try_from(count).is_ok());
    fits(sum) && fits(bytes)
}

/// Result of the negotiation of one tensor that all ranks have requested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Response {
    /// Name of the tensor.
    pub name: Arc<str>,
    /// Group of the tensor, from the first rank's request.
    pub group: Option<Group>,
    /// The agreement, or the reason of the refusal.
    pub outcome: Result<Agreed, Refusal>,
}

/// Rank 0's answer in one cycle. Every rank processes it in this order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ResponseList {
    /// Set ranks that have joined in this cycle, ascending. The next cycle does not wait for them.
    pub joined: Vec<u32>,
    /// Cache slots to evict: a rank requested their tensor with other parameters.
    pub evict: Vec<u32>,
    /// Tensors that are complete, in the order of completion.
    pub responses: Vec<Response>,
    /// Commands that every rank applies at the end of this cycle, in this order.
    pub commands: Vec<TimelineCommand>,
}

/// Version of the frames below; all ranks of a job have the same (checked at the rendezvous).
pub(crate) const WIRE_VERSION: u8 = 9;

/// Encodes a frame: the version, then the message in postcard's format.
///
/// # Errors
/// The message cannot be encoded, which for these types means that memory ran out.
pub(crate) fn encode(message: &impl Serialize, frame: &mut Vec<u8>) -> Result<(), postcard::Error> {
    frame.clear();
    frame.push(WIRE_VERSION);
    let owned = std::mem::take(frame);
    *frame = postcard::to_extend(message, owned)?;
    Ok(())
}

/// Decodes the message of a frame made by [`encode`].
///
/// # Errors
/// A frame of another version, too short, too long, or with invalid values.
pub(crate) fn decode<T: DeserializeOwned>(frame: &[u8]) -> Result<T, postcard::Error> {
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
    use crate::tensor::Dtype;

    /// An allgather of `rows` rows of eight bytes.
    fn gather(rows: usize) -> Params {
        let shape = [rows, 2].into_iter().collect();
        Params::plain(OpKind::Allgather, Dtype::F32, shape)
    }

    fn receiver<'a>(own: Option<&'a Params>, joined: &'a [usize]) -> Receiver<'a> {
        Receiver {
            rank: 1,
            members: &[3, 5, 8],
            joined,
            own,
        }
    }

    fn agreed(rows: &[u64]) -> Agreed {
        Agreed {
            rows: rows.to_vec(),
            ..Agreed::default()
        }
    }

    #[test]
    fn an_agreement_that_does_not_fit_what_a_rank_submitted_is_refused() {
        let own = gather(4);
        let check = |agreed: &Agreed| agreed.check(&own, &receiver(Some(&own), &[]));
        assert_eq!(check(&agreed(&[7, 4, 0])), Ok(()));
        // Wrong rows of this rank: it would send memory behind its tensor.
        assert!(
            check(&agreed(&[7, 2048, 0]))
                .unwrap_err()
                .starts_with("rows [2048] of this rank")
        );
        // Wrong rows of the others: sums and products that overflow.
        for rows in [u64::MAX, u64::MAX / 8 + 1, 1 << 60] {
            let problem = check(&agreed(&[rows, 4, 0])).unwrap_err();
            assert!(
                problem.starts_with("more rows than fit memory"),
                "{rows}: {problem}"
            );
        }
        assert!(check(&agreed(&[7, 4])).is_err());
        assert!(check(&agreed(&[])).is_err());
        // No rank has joined, so no rank may be absent.
        let absent = Agreed {
            absent: vec![2],
            params: Some(own.clone()),
            ..agreed(&[7, 4, 0])
        };
        assert!(check(&absent).is_err());
    }

    #[test]
    fn an_agreement_without_some_ranks_is_checked_against_the_joined_ranks() {
        let own = gather(4);
        let without = |absent: &[u32], rows: &[u64]| Agreed {
            absent: absent.to_vec(),
            params: Some(own.clone()),
            ..agreed(rows)
        };
        let check =
            |agreed: &Agreed, own_params| agreed.check(&own, &receiver(own_params, &[1, 2]));
        assert_eq!(check(&without(&[2], &[7, 4, 0]), Some(&own)), Ok(()));
        assert_eq!(check(&without(&[1, 2], &[7, 0, 0]), None), Ok(()));
        // This rank has submitted it, or has not; an absent rank has rows; one has not joined.
        assert!(check(&without(&[1, 2], &[7, 0, 0]), Some(&own)).is_err());
        assert!(check(&without(&[2], &[7, 4, 0]), None).is_err());
        assert!(check(&without(&[2], &[7, 4, 1]), Some(&own)).is_err());
        assert!(check(&without(&[0, 2], &[0, 4, 0]), Some(&own)).is_err());
        assert!(check(&without(&[2, 2], &[7, 4, 0]), Some(&own)).is_err());
        assert!(check(&without(&[1, 7], &[7, 0, 0]), None).is_err());
    }

    #[test]
    fn a_refusal_with_parameters_that_a_rank_did_not_submit_is_rejected() {
        let (own, other) = (
            gather(4),
            Params::plain(OpKind::Barrier, Dtype::U8, Default::default()),
        );
        let mismatch = |first_rank, expected: &Params, rank, found: &Params| Refusal::Mismatch {
            first_rank,
            expected: Box::new(expected.clone()),
            rank,
            found: Box::new(found.clone()),
        };
        let check = |refusal: &Refusal| refusal.check(&receiver(Some(&own), &[2]));
        assert_eq!(check(&mismatch(3, &other, 5, &own)), Ok(()));
        assert_eq!(check(&mismatch(5, &own, 8, &other)), Ok(()));
        assert!(check(&mismatch(3, &own, 5, &other)).is_err());
        assert!(check(&mismatch(3, &own, 8, &own)).is_err());
        assert!(check(&mismatch(3, &other, 4, &own)).is_err());
        assert!(
            check(&Refusal::Joined { rank: 8 }).is_err(),
            "it does not need that rank"
        );
        let rows = vec![u64::MAX, 4, 0];
        assert_eq!(check(&Refusal::TooLarge { rows }), Ok(()));
        assert!(
            check(&Refusal::TooLarge {
                rows: vec![1, 4, 0]
            })
            .is_err()
        );
    }

    #[test]
    fn commands_are_sent_with_any_path_that_linux_accepts() {
        let paths = [&b"t.json"[..], b"", b"\xff\xfe not UTF-8"];
        let start = |path: &[u8]| TimelineCommand::Start {
            path: OsStr::from_bytes(path).into(),
            mark_cycles: true,
        };
        let others = [TimelineCommand::Stop, TimelineCommand::Stop];
        let answer = ResponseList {
            commands: paths.map(start).into_iter().chain(others).collect(),
            ..ResponseList::default()
        };
        let mut frame = Vec::new();
        encode(&answer, &mut frame).expect("memory");
        assert_eq!(decode::<ResponseList>(&frame), Ok(answer));
        // A frame cut at any length is refused.
        for length in 0..frame.len() {
            assert!(decode::<ResponseList>(&frame[..length]).is_err());
        }
    }
}
