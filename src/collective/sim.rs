//! A simulated collective: the members of a [`SimSet`] meet, and each combines all contributions by itself.
//!
//! It knows sums of `f32` and `i64`, which is what the simulated programs submit; the arithmetic of every other
//! case is the local collective's, tested there.

use std::sync::Arc;

use super::{Activities, Collective, Phases, Reduction};
use crate::error::Error;
use crate::tensor::{Dtype, ReduceOp, Span};
use crate::transport::sim::SimSet;

/// One member's collective in a [`SimSet`].
pub(crate) struct SimCollective {
    set: Arc<SimSet>,
    rank: usize,
}

impl SimCollective {
    /// The collective of set rank `rank`.
    pub(crate) fn new(set: &Arc<SimSet>, rank: usize) -> Self {
        Self {
            set: Arc::clone(set),
            rank,
        }
    }

    fn exchange(&self, spans: &[Span], combine: impl FnOnce(&[&[u8]]) -> Vec<u8>) -> Result<Phases, Error> {
        let mut bytes = Vec::new();
        for span in spans {
            // SAFETY: `Span::new` promised that the input is readable while the operation runs.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(span.input(), span.bytes()) });
        }
        let result = self.set.share(self.rank, bytes, |all| {
            assert!(
                all.iter().all(|bytes| bytes.len() == all[0].len()),
                "every rank plans the same batch"
            );
            combine(all)
        })?;
        let mut rest = &result[..];
        for span in spans {
            let (head, tail) = rest.split_at(span.bytes());
            // SAFETY: `Span::new` promised that the output is writable and untouched by others meanwhile.
            unsafe { std::ptr::copy_nonoverlapping(head.as_ptr(), span.output(), head.len()) };
            rest = tail;
        }
        Ok(Phases::default())
    }
}

macro_rules! sum {
    ($type:ty, $all:expr) => {{
        let mut sums = vec![<$type>::default(); $all[0].len() / size_of::<$type>()];
        for bytes in $all {
            for (sum, bytes) in sums.iter_mut().zip(bytes.chunks_exact(size_of::<$type>())) {
                *sum += <$type>::from_ne_bytes(bytes.try_into().unwrap_or_default());
            }
        }
        sums.iter().flat_map(|sum| sum.to_ne_bytes()).collect()
    }};
}

impl Collective for SimCollective {
    fn activities(&self) -> &'static Activities {
        &Activities {
            allreduce: "SIM_ALLREDUCE",
            allgather: "SIM_ALLGATHER",
            broadcast: "SIM_BCAST",
            alltoall: "SIM_ALLTOALL",
            reducescatter: "SIM_REDUCESCATTER",
        }
    }

    fn allreduce(
        &mut self,
        spans: &[Span],
        reduction: &Reduction,
        _absent: &[usize],
    ) -> Result<Phases, Error> {
        assert_eq!(reduction.op, ReduceOp::Sum, "simulated programs submit sums");
        self.exchange(spans, |all| match reduction.dtype {
            Dtype::F32 => sum!(f32, all),
            Dtype::I64 => sum!(i64, all),
            other => panic!("simulated programs submit no {other}"),
        })
    }

    fn broadcast(&mut self, spans: &[Span], root: usize) -> Result<Phases, Error> {
        self.exchange(spans, |all| all[root].to_vec())
    }

    fn allgather(&mut self, spans: &[Span], _bytes: &[usize]) -> Result<Phases, Error> {
        self.exchange(spans, |all| all[0].to_vec())
    }

    fn alltoall(&mut self, spans: &[Span], _bytes: &[usize]) -> Result<Phases, Error> {
        self.exchange(spans, |all| all[0].to_vec())
    }

    fn reducescatter(
        &mut self,
        spans: &[Span],
        _bytes: &[usize],
        _reduction: &Reduction,
        _absent: &[usize],
    ) -> Result<Phases, Error> {
        self.exchange(spans, |all| all[0].to_vec())
    }
}
