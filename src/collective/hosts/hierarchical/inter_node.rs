//! Inter-node stage for tensors on GPUs, whose intra-node stage uses NCCL.

use super::HierarchicalCollective;
use crate::collective::stream::Stream;
use crate::collective::{HostPlace, InterNode, Reduction};
use crate::error::Error;
use crate::tensor::Span;

impl InterNode for HierarchicalCollective {
    fn place(&self) -> HostPlace {
        let hosts = &self.map.hosts;
        HostPlace {
            hosts: hosts.len(),
            first: hosts[self.map.own][0],
            rank: self.intra_node.rank,
            size: self.intra_node.size,
            lanes: self.map.lanes,
            is_even: self.is_even,
        }
    }

    fn activity(&self) -> &'static str {
        self.flat.names.hierarchical.allreduce.collective
    }

    fn begin(&mut self, part: Span, reduction: &Reduction, ranks: usize) {
        let lane = self
            .lane
            .as_mut()
            .expect("a rank that begins an operation has a lane");
        let mut own = Stream::default();
        own.push_span(&part);
        self.lent
            .push_back(lane.collective.begin_allreduce(own, reduction, ranks));
    }

    fn keep(&mut self) -> Result<(), Error> {
        match (self.lent.pop_front(), self.lane.as_mut()) {
            (Some(promise), Some(lane)) => lane.collective.wait(promise).map(drop),
            _ => Ok(()),
        }
    }

    fn give_up(&mut self) {
        self.lent.clear();
    }
}
