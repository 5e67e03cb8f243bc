//! Execution: runs the batches of a cycle one after another; a tensor's handle completes with its
//! batch.

use smallvec::SmallVec;

use super::{Cycle, internal};
use crate::clock::Nanos;
use crate::collective::asynchronous::Batch;
use crate::collective::{Collective, Phases, Reduction, Stages, attached};
use crate::error::Error;
use crate::negotiation::{OpKind, Params};
use crate::observer::Executed;
use crate::queue::Submission;
use crate::ready::{Ready, share_rows};
use crate::tensor::Span;

/// Description of one batch for the collective; reused to keep its memory.
#[derive(Default)]
pub(super) struct Load {
    spans: Vec<Span>,
    /// Lengths that each rank sends or receives, tensor by tensor; see [`Collective`].
    bytes: Vec<usize>,
    absent: Vec<usize>,
}

impl Cycle {
    /// Executes the batches of the plan. Negotiation ended at `agreed`.
    pub(super) fn execute(&mut self, agreed: Nanos) -> Result<(), Error> {
        let plan = std::mem::take(&mut self.plan); // so that the other fields can be borrowed
        let mut began = agreed;
        let outcome = plan.batches().try_for_each(|batch| {
            let first = &self.ready[batch[0] as usize].submission.params;
            if first.device.is_some() && first.kind.moves_data() {
                return self.launch(batch);
            }
            began = self.execute_batch(batch, began)?;
            Ok(())
        });
        self.plan = plan;
        outcome?;
        self.launches.hand_over(&mut self.ready);
        Ok(())
    }

    /// Executes a batch in host memory, after earlier work that ended at `began`; returns the time
    /// of its end.
    fn execute_batch(&mut self, batch: &[u32], began: Nanos) -> Result<Nanos, Error> {
        let (rank, size) = (self.transport.rank(), self.transport.size());
        let job_rank = self.job_rank();
        let mut made_room = false;
        for &position in batch {
            made_room |= self.ready[position as usize].make_room(rank, size, job_rank, None);
        }
        let allocated = made_room.then(|| self.queue.clock.now());
        let members = || batch.iter().map(|&position| &self.ready[position as usize]);
        self.load
            .fill(members(), size)
            .map_err(|problem| internal(self.members[rank], "execute a batch", &problem))?;
        let first = &self.ready[batch[0] as usize].submission;
        let root = self.members.binary_search(&(first.params.root as usize));
        let (phases, stages) = if self.is_attached {
            self.reduce_attached(batch);
            (Phases::default(), Some(&attached::STAGES))
        } else {
            self.load
                .send(&mut *self.collective, first, root.unwrap_or(0))?
        };
        let ended = self.queue.clock.now();
        let is_sent = first.params.kind == OpKind::Allreduce && !self.is_attached;
        if is_sent && self.load.absent.is_empty() {
            let bytes = self.load.spans.iter().map(|span| span.bytes() as u64).sum();
            let since = allocated.unwrap_or(began);
            let took_ns = ended.0.saturating_sub(since.0);
            self.holding
                .executed(bytes, took_ns.saturating_sub(phases.late_ns));
        }
        let members: SmallVec<[&Ready; 16]> = members().collect();
        self.observer.executed(&Executed {
            members: &members,
            stages,
            began,
            allocated,
            ended,
            phases,
            on_device: None,
        });
        let own = members
            .iter()
            .filter(|member| !member.submission.is_absent())
            .count();
        drop(members);
        self.queue.release(own);
        for &position in batch {
            self.ready[position as usize].complete();
        }
        self.queue.completions().announce();
        Ok(ended)
    }
}

/// Returns the reduction that the params describe.
pub(super) fn reduction(params: &Params) -> Reduction {
    Reduction {
        dtype: params.dtype,
        op: params.op,
        prescale: params.prescale,
        postscale: params.postscale,
    }
}

impl Load {
    /// Describes a batch of `members` among `size` ranks.
    ///
    /// # Errors
    /// Lengths whose sum exceeds the memory. Agreements are checked when they arrive, so this is a
    /// bug of this rank.
    pub(super) fn fill<'a>(
        &mut self,
        members: impl Iterator<Item = &'a Ready>,
        size: usize,
    ) -> Result<(), &'static str> {
        self.spans.clear();
        self.bytes.clear();
        self.absent.clear();
        for (index, member) in members.enumerate() {
            let params = &member.submission.params;
            self.spans.extend(member.submission.span);
            if index == 0 {
                self.absent
                    .extend(member.absent().iter().map(|&rank| rank as usize));
            }
            let row_bytes = params.row_bytes();
            match params.kind {
                OpKind::Allgather | OpKind::Alltoall => {
                    for &rows in member.rows() {
                        let rows = usize::try_from(rows).ok();
                        let bytes = rows.and_then(|rows| rows.checked_mul(row_bytes));
                        self.bytes.push(bytes.ok_or("a length that overflows")?);
                    }
                }
                OpKind::Reducescatter => {
                    let rows = params.shape.first().copied().unwrap_or(0);
                    let bytes = (0..size).map(|rank| share_rows(rows, rank, size) * row_bytes);
                    self.bytes.extend(bytes);
                }
                _ => {}
            }
        }
        let total = self
            .bytes
            .iter()
            .try_fold(0usize, |sum, &bytes| sum.checked_add(bytes));
        let fits = total.is_some_and(|bytes| isize::try_from(bytes).is_ok());
        fits.then_some(()).ok_or("lengths whose sum overflows")
    }

    /// Returns the description as a batch for a device.
    pub(super) fn on_device(&self, params: &Params, root: usize) -> Batch<'_> {
        Batch {
            kind: params.kind,
            spans: &self.spans,
            bytes: &self.bytes,
            reduction: reduction(params),
            wire_dtype: params.wire_dtype,
            root,
        }
    }

    /// Executes the description by `collective`, with the params that `first` shares with all
    /// members; returns the activity name for the timeline.
    fn send(
        &self,
        collective: &mut dyn Collective,
        first: &Submission,
        root: usize,
    ) -> Result<(Phases, Option<&'static Stages>), Error> {
        let Self {
            spans,
            bytes,
            absent,
        } = self;
        let params = &first.params;
        let reduction = reduction(params);
        let phases = match params.kind {
            OpKind::Allreduce => collective.allreduce(spans, &reduction, absent)?,
            OpKind::Allgather => collective.allgather(spans, bytes)?,
            OpKind::Broadcast => collective.broadcast(spans, root)?,
            OpKind::Alltoall => collective.alltoall(spans, bytes)?,
            OpKind::Reducescatter => collective.reducescatter(spans, bytes, &reduction, absent)?,
            OpKind::Join | OpKind::Barrier | OpKind::Agree => Phases::default(),
        };
        let activities = collective.activities();
        let stages = match params.kind {
            OpKind::Allreduce => Some(&activities.allreduce),
            OpKind::Allgather => Some(&activities.allgather),
            OpKind::Broadcast => Some(&activities.broadcast),
            OpKind::Alltoall => Some(&activities.alltoall),
            OpKind::Reducescatter => Some(&activities.reducescatter),
            OpKind::Join | OpKind::Barrier | OpKind::Agree => None,
        };
        Ok((phases, stages))
    }
}
