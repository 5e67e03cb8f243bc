//! Simulated collective: the members of a [`SimulatedSet`] rendezvous, and each computes its
//! results from all inputs, one tensor after another. It implements the contract of [`Collective`]
//! literally; reductions use the kernels' reference. Members that do not make the same call fail at
//! once, also if one is hierarchical and another is not.

#![allow(unsafe_code)] // copies from and to memory of the caller

use std::fmt::Debug;
use std::sync::Arc;

use super::kernels::reference::reduce_present;
use super::{Activities, Collective, Hierarchy, Phases, Reduction, Stages};
use crate::error::Error;
use crate::tensor::Span;
use crate::transport::simulated::SimulatedSet;

mod device;

pub(crate) use device::SimulatedDevice;

/// Names of the operations, flat and hierarchical.
const FLAT: Activities = Activities {
    allreduce: Stages::streamed("SIM_ALLREDUCE"),
    allgather: Stages::streamed("SIM_ALLGATHER"),
    broadcast: Stages::streamed("SIM_BCAST"),
    alltoall: Stages::streamed("SIM_ALLTOALL"),
    reducescatter: Stages::streamed("SIM_REDUCESCATTER"),
};
static HIERARCHICAL: Activities = Activities {
    allreduce: Stages::streamed("SIM_ALLREDUCE_HIERARCHICAL"),
    allgather: Stages::streamed("SIM_ALLGATHER_HIERARCHICAL"),
    ..FLAT
};

/// Collective of one member of a [`SimulatedSet`].
pub(crate) struct SimulatedCollective {
    set: Arc<SimulatedSet>,
    rank: usize,
    hierarchy: Hierarchy,
    was_hierarchical: bool,
}

impl SimulatedCollective {
    /// Creates the collective of set rank `rank`.
    pub(crate) fn new(set: &Arc<SimulatedSet>, rank: usize) -> Self {
        Self {
            set: Arc::clone(set),
            rank,
            hierarchy: Hierarchy::default(),
            was_hierarchical: false,
        }
    }

    /// Returns the names of an operation, flat or hierarchical, which is a part of the call that
    /// all ranks must make alike.
    fn way(&mut self, is_hierarchical: bool) -> &'static str {
        self.was_hierarchical = is_hierarchical;
        if is_hierarchical {
            "hierarchical"
        } else {
            "flat"
        }
    }

    fn size(&self) -> usize {
        self.set.members().len()
    }

    /// Runs one operation. `call` must be equal on all ranks; `length(tensor, rank)` is the length
    /// of an input in bytes, and `result(tensor, inputs)` computes this rank's output.
    fn perform(
        &self,
        call: impl Debug,
        spans: &[Span],
        length: impl Fn(usize, usize) -> usize,
        result: impl Fn(usize, &[&[u8]]) -> Vec<u8>,
    ) -> Result<Phases, Error> {
        let mut own = Vec::new();
        for (tensor, span) in spans.iter().enumerate() {
            let bytes = length(tensor, self.rank);
            if bytes > 0 {
                assert!(
                    !span.is_absent() && span.bytes() == bytes,
                    "{call:?}: {span:?}"
                );
                // SAFETY: `Span::new` guarantees that the input is readable while the operation
                // runs.
                own.extend_from_slice(unsafe { std::slice::from_raw_parts(span.input(), bytes) });
            }
        }
        let tensors = spans.len();
        let bytes = own.len();
        let results: Vec<Vec<u8>> =
            self.set
                .share(self.rank, own, &format!("{call:?}"), |all| {
                    let mut rest = all.to_vec();
                    let results = (0..tensors).map(|tensor| {
                        let inputs = rest.iter_mut().enumerate().map(|(rank, rest)| {
                            let input = rest.split_off(..length(tensor, rank));
                            input.expect("as many bytes as agreed")
                        });
                        let inputs: Vec<&[u8]> = inputs.collect();
                        result(tensor, &inputs)
                    });
                    let results = results.collect();
                    assert!(
                        rest.iter().all(|rest| rest.is_empty()),
                        "{call:?}: bytes left over"
                    );
                    results
                })?;
        self.set.transfer(bytes);
        for (span, result) in spans.iter().zip(results) {
            if !span.keeps_nothing() && !result.is_empty() {
                // SAFETY: `Span::new` guarantees that the output is writable and not accessed
                // elsewhere meanwhile.
                unsafe {
                    std::ptr::copy_nonoverlapping(result.as_ptr(), span.output(), result.len())
                };
            }
        }
        Ok(Phases::default())
    }
}

/// Reduces the inputs at `place` of the ranks that are not `absent`.
fn reduce(
    inputs: &[&[u8]],
    place: std::ops::Range<usize>,
    reduction: &Reduction,
    absent: &[usize],
) -> Vec<u8> {
    let ranks = inputs.iter().enumerate();
    let present = ranks.filter(|(rank, _)| !absent.contains(rank));
    let present: Vec<Vec<u8>> = present
        .map(|(_, input)| input[place.clone()].to_vec())
        .collect();
    reduce_present(&present, inputs.len(), reduction)
}

/// Returns the range of the `index`th of consecutive pieces.
fn place(lengths: &[usize], index: usize) -> std::ops::Range<usize> {
    let start = lengths[..index].iter().sum();
    start..start + lengths[index]
}

impl Collective for SimulatedCollective {
    fn activities(&self) -> &'static Activities {
        match self.was_hierarchical {
            true => &HIERARCHICAL,
            false => &FLAT,
        }
    }

    fn set_hierarchy(&mut self, hierarchy: Hierarchy) {
        self.hierarchy = hierarchy;
    }

    fn allreduce(
        &mut self,
        spans: &[Span],
        reduction: &Reduction,
        absent: &[usize],
    ) -> Result<Phases, Error> {
        let bytes: Vec<usize> = spans.iter().map(Span::bytes).collect();
        let length = |tensor: usize, rank: usize| {
            if absent.contains(&rank) {
                0
            } else {
                bytes[tensor]
            }
        };
        let way = self.way(self.hierarchy.allreduce);
        let call = ("allreduce", way, &bytes, reduction, absent);
        self.perform(call, spans, length, |tensor, inputs| {
            reduce(inputs, 0..bytes[tensor], reduction, absent)
        })
    }

    fn broadcast(&mut self, spans: &[Span], root: usize) -> Result<Phases, Error> {
        let bytes: Vec<usize> = spans.iter().map(Span::bytes).collect();
        let length = |tensor: usize, rank: usize| if rank == root { bytes[tensor] } else { 0 };
        let call = ("broadcast", &bytes, root);
        self.perform(call, spans, length, |_, inputs| inputs[root].to_vec())
    }

    fn allgather(&mut self, spans: &[Span], bytes: &[usize]) -> Result<Phases, Error> {
        let size = self.size();
        let length = |tensor: usize, rank: usize| bytes[tensor * size + rank];
        let way = self.way(self.hierarchy.allgather);
        let call = ("allgather", way, bytes);
        self.perform(call, spans, length, |_, inputs| inputs.concat())
    }

    fn alltoall(&mut self, spans: &[Span], bytes: &[usize]) -> Result<Phases, Error> {
        let size = self.size();
        let sent = |tensor: usize, from: usize| &bytes[(tensor * size + from) * size..][..size];
        let length = |tensor: usize, rank: usize| sent(tensor, rank).iter().sum();
        self.perform(("alltoall", bytes), spans, length, |tensor, inputs| {
            let parts = inputs.iter().enumerate();
            let parts = parts.map(|(from, input)| &input[place(sent(tensor, from), self.rank)]);
            parts.collect::<Vec<_>>().concat()
        })
    }

    fn reducescatter(
        &mut self,
        spans: &[Span],
        bytes: &[usize],
        reduction: &Reduction,
        absent: &[usize],
    ) -> Result<Phases, Error> {
        let size = self.size();
        let shares = |tensor: usize| &bytes[tensor * size..][..size];
        let length = |tensor: usize, rank: usize| {
            if absent.contains(&rank) {
                0
            } else {
                shares(tensor).iter().sum()
            }
        };
        let call = ("reducescatter", bytes, reduction, absent);
        self.perform(call, spans, length, |tensor, inputs| {
            reduce(inputs, place(shares(tensor), self.rank), reduction, absent)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::sync::lock;
    use crate::tensor::{Dtype, ReduceOp};
    use crate::transport::simulated::World;

    /// Runs `operation` on the inputs of each rank; returns each rank's outputs of `output_bytes`
    /// bytes, concatenated. A rank without inputs is absent, for tensors of two bytes.
    fn run(
        inputs: [&[&[u8]]; 3],
        output_bytes: usize,
        operation: impl Fn(&mut SimulatedCollective, &[Span]) -> Result<Phases, Error>
        + Send
        + Sync
        + 'static,
    ) -> [Vec<u8>; 3] {
        let world = World::new(3, 5);
        let set = SimulatedSet::new(&world, &[0, 1, 2]);
        let operation = Arc::new(operation);
        let results = Arc::new(Mutex::new([const { Vec::new() }; 3]));
        let tensors = inputs.iter().map(|inputs| inputs.len()).max().unwrap_or(0);
        for (rank, inputs) in inputs.into_iter().enumerate() {
            let mut collective = SimulatedCollective::new(&set, rank);
            let mut inputs: Vec<Vec<u8>> = inputs.iter().map(|input| input.to_vec()).collect();
            let (operation, results) = (Arc::clone(&operation), Arc::clone(&results));
            world.spawn(rank, "its program".into(), move || {
                let mut outputs = vec![vec![0; output_bytes]; inputs.len()];
                let spans = inputs.iter_mut().zip(&mut outputs);
                // SAFETY: both buffers outlive the operation, and no other reference to them
                // exists.
                let span = |(input, output): (&mut Vec<u8>, &mut Vec<u8>)| unsafe {
                    Span::new(input.as_ptr(), output.as_mut_ptr(), input.len())
                };
                let mut spans: Vec<Span> = spans.map(span).collect();
                spans.resize(tensors, Span::absent(2));
                operation(&mut collective, &spans).expect("no rank dies");
                lock(&results)[rank] = outputs.concat();
            });
        }
        world.run();
        lock(&results).clone()
    }

    fn reduction(op: ReduceOp) -> Reduction {
        Reduction {
            dtype: Dtype::U8,
            op,
            prescale: 1.0,
            postscale: 1.0,
        }
    }

    #[test]
    fn allreduce_skips_the_absent_but_averages_over_all() {
        let inputs: [&[&[u8]]; 3] = [&[&[2, 9], &[5, 6]], &[], &[&[7, 1], &[1, 0]]];
        let min = run(inputs, 2, |all, spans| {
            all.allreduce(spans, &reduction(ReduceOp::Min), &[1])
        });
        assert_eq!(min, [vec![2, 1, 1, 0], vec![], vec![2, 1, 1, 0]]);
        let average = run(inputs, 2, |all, spans| {
            all.allreduce(spans, &reduction(ReduceOp::Average), &[1])
        });
        assert_eq!(average[2], [3, 3, 2, 2], "9/3, 10/3, 6/3, 6/3");
    }

    #[test]
    fn broadcast_brings_the_roots_bytes_to_those_who_take_them() {
        let inputs: [&[&[u8]]; 3] = [&[&[1, 2]], &[], &[&[5, 6]]];
        let results = run(inputs, 2, |all, spans| all.broadcast(spans, 2));
        assert_eq!(results, [vec![5, 6], vec![], vec![5, 6]]);
    }

    #[test]
    fn allgather_lays_inputs_side_by_side_tensor_by_tensor() {
        let inputs: [&[&[u8]]; 3] = [&[&[1], &[]], &[], &[&[2, 3], &[4]]];
        let results = run(inputs, 3, |all, spans| {
            all.allgather(spans, &[1, 0, 2, 0, 0, 1])
        });
        assert_eq!(
            results,
            [vec![1, 2, 3, 4, 0, 0], vec![], vec![1, 2, 3, 4, 0, 0]]
        );
    }

    #[test]
    fn alltoall_sends_parts_and_drops_what_is_for_the_absent() {
        let inputs: [&[&[u8]]; 3] = [&[&[1, 2, 3]], &[], &[&[7, 8]]];
        // Rank 0 sends one byte to each, rank 2 one to rank 0 and one to rank 1.
        let table = [1, 1, 1, 0, 0, 0, 1, 1, 0];
        let results = run(inputs, 2, move |all, spans| all.alltoall(spans, &table));
        assert_eq!(results, [vec![1, 7], vec![], vec![3, 0]]);
    }

    #[test]
    fn reducescatter_gives_each_rank_its_share_of_the_sum() {
        let inputs: [&[&[u8]]; 3] = [&[&[1, 2, 3]], &[&[10, 20, 30]], &[&[100, 100, 100]]];
        let results = run(inputs, 2, |all, spans| {
            all.reducescatter(spans, &[2, 0, 1], &reduction(ReduceOp::Sum), &[])
        });
        assert_eq!(results, [vec![111, 122], vec![0, 0], vec![133, 0]]);
        let without_1: [&[&[u8]]; 3] = [inputs[0], &[], inputs[2]];
        let results = run(without_1, 2, |all, spans| {
            all.reducescatter(spans, &[1, 1, 1], &reduction(ReduceOp::Sum), &[1])
        });
        assert_eq!(results, [vec![101, 0], vec![], vec![103, 0]]);
    }

    #[test]
    #[should_panic(expected = "the members of [0, 1, 2] call differently")]
    fn ranks_that_disagree_about_the_way_fail() {
        run([&[&[1]], &[&[2]], &[&[3]]], 1, |all, spans| {
            all.set_hierarchy(Hierarchy {
                allreduce: all.rank == 2,
                allgather: true,
            });
            all.allreduce(spans, &reduction(ReduceOp::Sum), &[])
        });
    }

    #[test]
    #[should_panic(expected = "the members of [0, 1, 2] call differently")]
    fn ranks_that_disagree_about_the_call_fail() {
        run([&[&[1]], &[&[2]], &[&[3]]], 1, |all, spans| {
            let root = all.rank / 2;
            all.broadcast(spans, root)
        });
    }
}
