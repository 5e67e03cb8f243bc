//! Sequential reference: computes the results of a program's operations one after another from all
//! inputs.

use super::program::{Action, Deed, Program};
use super::work::{Combine, Task, Work, place};
use crate::collective::{Reduction, reference};
use crate::error::{Error, NegotiationError};

/// Result of an operation on one rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Output {
    pub(super) bytes: Vec<u8>,
    pub(super) shape: Vec<usize>,
    /// Alltoall: rows received from each member.
    pub(super) splits: Vec<usize>,
}

/// Reason why an operation fails.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Refused {
    /// This rank submits a mismatch.
    Odd(usize),
    /// The root of a broadcast has joined.
    Joined(usize),
}

impl Refused {
    /// Whether `error` reports exactly this.
    pub(super) fn is(&self, error: &Error) -> bool {
        match (self, error) {
            (Self::Odd(odd), Error::Negotiation(NegotiationError::Mismatch(mismatch))) => {
                [mismatch.rank, mismatch.first_rank].contains(odd)
            }
            (Self::Joined(root), Error::Negotiation(NegotiationError::RankJoined { rank, .. })) => {
                rank == root
            }
            _ => false,
        }
    }
}

/// Returns the result of `rank`, one of those that perform the action, for its tensor `tensor`.
pub(super) fn expected(
    program: &Program,
    step: usize,
    action: usize,
    tensor: usize,
    rank: usize,
) -> Result<Output, Refused> {
    let submitted = |member| submitted(program, step, action, tensor, member);
    expected_of(&submitted, program, step, action, tensor, rank)
}

/// Input of `member` for the tensor `tensor` of an action; `None` if it takes no part.
pub(super) fn submitted(
    program: &Program,
    step: usize,
    action: usize,
    tensor: usize,
    member: usize,
) -> Option<Vec<u8>> {
    let acts = program.steps[step][action].ranks.contains(&member);
    acts.then(|| program.input(step, action, tensor, member))
}

/// Returns the result as [`expected`] does, if the members' inputs are those of `input`.
pub(super) fn expected_of(
    input: &dyn Fn(usize) -> Option<Vec<u8>>,
    program: &Program,
    step: usize,
    action: usize,
    tensor: usize,
    rank: usize,
) -> Result<Output, Refused> {
    let acting = &program.steps[step][action];
    let members = &program.sets[acting.set];
    let work = &acting.deed.tensors()[tensor];
    let is_here =
        |(of_step, of_action, of_tensor)| (of_step, of_action, of_tensor) == (step, action, tensor);
    if let Some(odd) = &program.odd
        && is_here((odd.step, odd.action, odd.tensor))
    {
        return Err(Refused::Odd(odd.rank));
    }
    let inputs: Vec<Option<Vec<u8>>> = members.iter().map(|member| input(*member)).collect();
    let own_place = place(members, rank);
    Ok(match &work.task {
        Task::Allreduce(combine) => Output {
            bytes: reduce(work, *combine, &inputs),
            shape: work.dims.clone(),
            splits: Vec::new(),
        },
        Task::Reducescatter(combine) => {
            let (rows, size) = (work.dims[0], members.len());
            let share = |place: usize| rows / size + usize::from(place < rows % size);
            let begin: usize = (0..own_place).map(share).sum();
            let place = begin * work.row_bytes()..(begin + share(own_place)) * work.row_bytes();
            Output {
                bytes: reduce(work, *combine, &inputs)[place].to_vec(),
                shape: work.with_rows(share(own_place)),
                splits: Vec::new(),
            }
        }
        Task::Broadcast(root) => Output {
            bytes: inputs[place(members, *root)]
                .clone()
                .ok_or(Refused::Joined(*root))?,
            shape: work.dims.clone(),
            splits: Vec::new(),
        },
        Task::Allgather(rows) => {
            let present = rows
                .iter()
                .zip(&inputs)
                .filter(|(_, input)| input.is_some());
            Output {
                shape: work.with_rows(present.map(|(rows, _)| *rows).sum()),
                bytes: inputs.iter().flatten().flatten().copied().collect(),
                splits: Vec::new(),
            }
        }
        Task::Alltoall(splits) => {
            let mut output = Output::default();
            for (sent, input) in splits.iter().zip(&inputs) {
                let rows = if input.is_some() { sent[own_place] } else { 0 };
                let begin: usize = sent[..own_place].iter().sum();
                let place = begin * work.row_bytes()..(begin + rows) * work.row_bytes();
                output
                    .bytes
                    .extend(input.iter().flat_map(|input| &input[place.clone()]));
                output.splits.push(rows);
            }
            output.shape = work.with_rows(output.splits.iter().sum());
            output
        }
    })
}

fn reduce(work: &Work, combine: Combine, inputs: &[Option<Vec<u8>>]) -> Vec<u8> {
    let present: Vec<Vec<u8>> = inputs.iter().flatten().cloned().collect();
    let Combine {
        op,
        prescale,
        postscale,
    } = combine;
    let reduction = Reduction {
        dtype: work.dtype,
        op,
        prescale,
        postscale,
    };
    reference::reduce_present(&present, inputs.len(), &reduction)
}

/// Returns the members that may be the last to join in a round whose last step is `over`.
pub(super) fn last_to_join(program: &Program, set: usize, over: usize) -> Vec<usize> {
    let mut last = Vec::new();
    for (step, actions) in program.steps[..=over].iter().enumerate() {
        let of_set = || actions.iter().filter(|action| action.set == set);
        let joins = |action: &&Action| matches!(action.deed, Deed::Join { .. });
        // A rank that joins in a later step has waited for all operations of this one, and
        // therefore for the earlier joins.
        if step < over && !of_set().all(|action| joins(&action)) {
            last.clear();
        }
        let of_round =
            of_set().filter(|action| matches!(action.deed, Deed::Join { over: at } if at == over));
        last.extend(of_round.flat_map(|action| action.ranks.iter().copied()));
    }
    last
}
