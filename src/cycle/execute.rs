//! Execution: moves the batches of a cycle one after another; a tensor's handle completes with its batch.

use smallvec::SmallVec;

use super::Cycle;
use super::ready::{Ready, share_rows};
use crate::clock::Nanos;
use crate::collective::{Collective, Phases, Reduction};
use crate::error::Error;
use crate::negotiation::OpKind;
use crate::observer::Executed;
use crate::queue::Submission;
use crate::tensor::Span;

/// One batch as the collective wants it; kept for its memory.
#[derive(Default)]
pub(super) struct Load {
    spans: Vec<Span>,
    /// What each rank brings or gets, tensor by tensor; see [`Collective`].
    bytes: Vec<usize>,
    absent: Vec<usize>,
}

impl Cycle {
    /// Moves the batches of the plan. Negotiation ended at `agreed`.
    pub(super) fn execute(&mut self, agreed: Nanos) -> Result<(), Error> {
        let (rank, size) = (self.transport.rank(), self.transport.size());
        let mut began = agreed;
        for batch in self.plan.batches() {
            let mut made_room = false;
            for &position in batch {
                made_room |= self.ready[position as usize].make_room(rank, size);
            }
            let allocated = made_room.then(|| self.front.clock.now());
            let first = &self.ready[batch[0] as usize];
            let members = batch.iter().map(|&position| &self.ready[position as usize]);
            self.load.fill(members, size);
            let root = self
                .members
                .binary_search(&(first.submission.params.root as usize));
            let (phases, activity) =
                self.load
                    .send(&mut *self.collective, &first.submission, root.unwrap_or(0))?;
            let ended = self.front.clock.now();
            {
                let members = batch.iter().map(|&position| &self.ready[position as usize]);
                let members: SmallVec<[&Ready; 16]> = members.collect();
                self.observer.executed(&Executed {
                    members: &members,
                    activity,
                    began,
                    allocated,
                    ended,
                    phases,
                });
            }
            let own = |&&position: &&u32| !self.ready[position as usize].submission.is_absent();
            self.front.release(batch.iter().filter(own).count());
            for &position in batch {
                self.ready[position as usize].complete();
            }
            self.front.completions().announce();
            began = ended;
        }
        Ok(())
    }
}

impl Load {
    fn fill<'a>(&mut self, members: impl Iterator<Item = &'a Ready>, size: usize) {
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
                    let bytes = member.rows().iter().map(|&rows| rows as usize * row_bytes);
                    self.bytes.extend(bytes);
                }
                OpKind::Reducescatter => {
                    let rows = params.shape.first().copied().unwrap_or(0);
                    let bytes = (0..size).map(|rank| share_rows(rows, rank, size) * row_bytes);
                    self.bytes.extend(bytes);
                }
                _ => {}
            }
        }
    }

    /// Has `collective` move what was filled in, under the params that `first` shares with all; says what the timeline
    /// calls that.
    fn send(
        &self,
        collective: &mut dyn Collective,
        first: &Submission,
        root: usize,
    ) -> Result<(Phases, Option<&'static str>), Error> {
        let Self { spans, bytes, absent } = self;
        let params = &first.params;
        let reduction = Reduction {
            dtype: params.dtype,
            op: params.op,
            prescale: params.prescale,
            postscale: params.postscale,
        };
        let activities = collective.activities();
        let (phases, activity) = match params.kind {
            OpKind::Allreduce => (
                collective.allreduce(spans, &reduction, absent)?,
                activities.allreduce,
            ),
            OpKind::Allgather => (collective.allgather(spans, bytes)?, activities.allgather),
            OpKind::Broadcast => (collective.broadcast(spans, root)?, activities.broadcast),
            OpKind::Alltoall => (collective.alltoall(spans, bytes)?, activities.alltoall),
            OpKind::Reducescatter => (
                collective.reducescatter(spans, bytes, &reduction, absent)?,
                activities.reducescatter,
            ),
            OpKind::Join | OpKind::Barrier | OpKind::Agree => return Ok((Phases::default(), None)),
        };
        Ok((phases, Some(activity)))
    }
}
