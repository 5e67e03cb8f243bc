//! Ready tensor: this rank's submission, the data agreed on, and the destination of its result.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::collective::asynchronous::AsyncCollective;
use crate::delivery::{Delivery, Memory};
use crate::error::{ArgumentError, Error, LimitError};
use crate::fusion_class::{Fusible, FusionKey};
use crate::negotiation::{Agreed, OpKind};
use crate::queue::{Output, Submission};
use crate::tensor::Shape;

/// A tensor that is ready on all ranks that have not joined.
pub(crate) struct Ready {
    pub(crate) submission: Submission,
    /// Agreed data beyond the params; `None` if there is none.
    pub(crate) agreed: Option<Arc<Agreed>>,
    /// Results beyond the data written to the caller's output; `None` if there are none.
    yields: Option<Box<Yield>>,
}

#[derive(Default)]
struct Yield {
    /// Delivery to the caller at the end.
    delivery: Delivery,
    /// Reason why this rank cannot keep the result. It takes part nevertheless, because the other
    /// ranks can.
    failure: Option<Error>,
}

impl Ready {
    pub(crate) fn new(submission: Submission, agreed: Option<Arc<Agreed>>) -> Self {
        Self {
            submission,
            agreed,
            yields: None,
        }
    }

    /// Dimensions of the result on rank `rank` of the job, if the timeline shows them: as in
    /// Horovod's timeline, not of an alltoall, nor of a broadcast on its root.
    pub(crate) fn output_dimensions(&self, rank: usize) -> Option<&[usize]> {
        let params = &self.submission.params;
        match params.kind {
            OpKind::Allreduce => Some(&params.shape),
            OpKind::Broadcast => (params.root as usize != rank).then_some(&params.shape),
            OpKind::Allgather | OpKind::Reducescatter => self
                .yields
                .as_ref()
                .map(|yields| &yields.delivery.shape[..]),
            OpKind::Alltoall | OpKind::Barrier | OpKind::Join | OpKind::Agree => None,
        }
    }

    /// Bytes that count against the fusion threshold: those of one rank, or the sum over all ranks
    /// where they may differ.
    pub(crate) fn bytes(&self) -> u64 {
        let params = &self.submission.params;
        if params.kind == OpKind::Allgather {
            let rows = self
                .rows()
                .iter()
                .fold(0u64, |sum, &rows| sum.saturating_add(rows));
            rows.saturating_mul(params.row_bytes() as u64)
        } else {
            params.bytes() as u64
        }
    }

    /// Returns the key that all tensors of a batch share.
    pub(crate) fn fusion_key(&self) -> FusionKey<'_> {
        let params = &self.submission.params;
        FusionKey {
            operation: Fusible::of(params.kind),
            dtype: Some(params.dtype),
            wire_dtype: params.wire_dtype,
            op: Some(params.op),
            factors: (params.prescale, params.postscale),
            root: Some(params.root),
            is_on_gpu: params.device.is_some(),
            absent: self.absent(),
        }
    }

    /// Ranks that are absent.
    pub(crate) fn absent(&self) -> &[u32] {
        self.agreed.as_ref().map_or(&[], |agreed| &agreed.absent)
    }

    /// Every rank's rows; see [`Agreed::rows`].
    pub(crate) fn rows(&self) -> &[u64] {
        self.agreed.as_ref().map_or(&[], |agreed| &agreed.rows)
    }

    /// Provides memory for the result on set rank `rank` of `size`, job rank `job_rank`, if the
    /// caller left that to the cycle. Returns true if memory was allocated. For a tensor in device
    /// memory, `on_device` allocates.
    pub(crate) fn make_room(
        &mut self,
        rank: usize,
        size: usize,
        job_rank: usize,
        on_device: Option<&dyn AsyncCollective>,
    ) -> bool {
        let params = &self.submission.params;
        if params.kind == OpKind::Join {
            let mut yields = Box::<Yield>::default();
            yields.delivery.last_joined = self
                .agreed
                .as_ref()
                .map(|agreed| agreed.last_joined as usize);
            self.yields = Some(yields);
            return false;
        }
        let wanted = match self.submission.output {
            Output::Fixed | Output::Absent => return false,
            Output::Sized(bytes) => Some(bytes),
            Output::New => None,
        };
        let tensor = || self.submission.tensor.name.to_string();
        let Some((shape, splits)) = self.output_shape(rank, size) else {
            // An agreement is checked when it arrives; if it has no shape, this rank keeps nothing.
            let yields = self.yields.insert(Box::default());
            yields.failure = Some(LimitError::TooLarge { tensor: tensor() }.into());
            let span = &mut self.submission.span;
            *span = span.map(|span| span.keeping_nothing());
            return false;
        };
        let elements = shape
            .iter()
            .try_fold(1usize, |product, &length| product.checked_mul(length));
        let bytes = elements
            .and_then(|elements| elements.checked_mul(params.dtype.size_bytes()))
            .unwrap_or(usize::MAX);
        let mut yields = Box::<Yield>::default();
        match wanted {
            Some(found) if found != bytes => {
                yields.failure = Some(Error::Argument(ArgumentError::OutputSize {
                    tensor: tensor(),
                    shape: shape.to_vec(),
                    expected_bytes: bytes,
                    found_bytes: found,
                }));
            }
            Some(_) => {}
            None => match self.allocate(bytes, on_device) {
                Some(memory) => yields.delivery.memory = Some(memory),
                None => {
                    yields.failure = Some(Error::Limit(LimitError::Memory {
                        tensor: tensor(),
                        bytes,
                        rank: job_rank,
                    }))
                }
            },
        }
        if let Some(span) = &mut self.submission.span {
            *span = match (&yields.failure, &yields.delivery.memory) {
                (Some(_), _) => span.keeping_nothing(),
                (None, Some(memory)) => memory.as_output_of(*span),
                (None, None) => *span,
            };
        }
        let allocated = yields.delivery.memory.is_some();
        yields.delivery.shape = shape;
        yields.delivery.splits = splits;
        self.yields = Some(yields);
        allocated
    }

    /// Returns the dimensions of the result on rank `rank`, and the rows received from each rank of
    /// an alltoall. `None` if the agreed rows have another length, or their sum overflows.
    fn output_shape(&self, rank: usize, size: usize) -> Option<(Shape, Vec<usize>)> {
        let (params, rows) = (&self.submission.params, self.rows());
        let mut splits = Vec::new();
        let sum = |rows: &[usize]| {
            rows.iter()
                .try_fold(0usize, |sum, &rows| sum.checked_add(rows))
        };
        let rows_of = |place: usize| usize::try_from(*rows.get(place)?).ok();
        let output_rows = match params.kind {
            OpKind::Allgather => {
                let rows: Option<SmallVec<[usize; 16]>> = (0..size).map(rows_of).collect();
                sum(&rows?)?
            }
            OpKind::Alltoall => {
                let from_each: Option<Vec<usize>> =
                    (0..size).map(|from| rows_of(from * size + rank)).collect();
                splits = from_each?;
                sum(&splits)?
            }
            OpKind::Reducescatter => {
                share_rows(params.shape.first().copied().unwrap_or(0), rank, size)
            }
            _ => return Some((params.shape.clone(), splits)),
        };
        let inner = params.shape.iter().skip(1).copied();
        Some((std::iter::once(output_rows).chain(inner).collect(), splits))
    }

    /// Allocates `bytes` bytes for a result.
    fn allocate(&self, bytes: usize, on_device: Option<&dyn AsyncCollective>) -> Option<Memory> {
        let dtype = self.submission.params.dtype;
        match (on_device, &self.submission.on) {
            (Some(collective), Some(tensor)) => collective.allocate(dtype, bytes, tensor),
            _ => Memory::new(dtype, bytes),
        }
    }

    /// Completes the caller's ticket.
    pub(crate) fn complete(&mut self) {
        let outcome = match self.yields.take() {
            None => Ok(()),
            Some(yields) => self.hand_over(*yields),
        };
        self.submission.ticket.complete(outcome);
    }

    /// Delivers results to the caller. The observer may still ask for the dimensions.
    pub(crate) fn deliver(&mut self) -> Result<(), Error> {
        let Some(yields) = self.yields.take() else {
            return Ok(());
        };
        let mut kept = Box::<Yield>::default();
        kept.delivery.shape = yields.delivery.shape.clone();
        let outcome = self.hand_over(*yields);
        self.yields = Some(kept);
        outcome
    }

    fn hand_over(&self, yields: Yield) -> Result<(), Error> {
        match yields.failure {
            Some(error) => Err(error),
            None => {
                self.submission.ticket.deliver(yields.delivery);
                Ok(())
            }
        }
    }
}

/// Rows that rank `rank` of `size` keeps of a reducescatter of `rows` rows: split as evenly as
/// possible; the first ranks have one more, as in Horovod.
pub(crate) fn share_rows(rows: usize, rank: usize, size: usize) -> usize {
    rows / size + usize::from(rank < rows % size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_even_and_add_up() {
        for rows in [0, 1, 5, 64, 1000] {
            for size in [1, 2, 3, 7] {
                let shares: Vec<usize> =
                    (0..size).map(|rank| share_rows(rows, rank, size)).collect();
                assert_eq!(shares.iter().sum::<usize>(), rows);
                assert!(shares.is_sorted_by(|a, b| a >= b) && shares[0] - shares[size - 1] <= 1);
            }
        }
    }
}
