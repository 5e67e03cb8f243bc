//! Test case: a batch of tensors in the simulated GPUs' memory, executed and checked.

#![allow(unsafe_code)] // spans over simulated device memory

use std::ops::Range;
use std::sync::Arc;

use super::super::{Batch, Scratch, SetRank};
use super::expected::{differs, elements, expected};
use crate::collective::Reduction;
use crate::gpu::simulated::{Did, Fabric, SimulatedGpu};
use crate::gpu::{Communicator, Device, Mark, Stream};
use crate::negotiation::OpKind;
use crate::tensor::{Dtype, Span};

/// A batch of tensors of all ranks.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) kind: OpKind,
    pub(super) size: usize,
    pub(super) root: usize,
    pub(super) reduction: Reduction,
    /// For reductions of wide floats.
    pub(super) wire_dtype: Option<Dtype>,
    pub(super) tensors: Vec<Tensor>,
    /// Bit mask of the ranks without data.
    pub(super) absent: u32,
    /// Limit of the fusion buffer, in bytes.
    pub(super) limit: Option<usize>,
    pub(super) seed: u64,
}

/// One tensor of all ranks.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    /// Rows: of each rank (allgather), from each rank to each (alltoall), otherwise the first is
    /// that of all.
    pub(super) rows: Vec<usize>,
    /// Elements of a row.
    pub(super) inner: usize,
    /// In place, if the operation allows it.
    pub(super) is_in_place: bool,
    /// Bit mask of the ranks that keep no result.
    pub(super) dropping: u32,
    /// Elements by which it is offset from the alignment of allocations.
    pub(super) shift: usize,
}

/// A tensor on one rank.
struct Lying {
    span: Span,
    /// Input; empty for an absent rank.
    input: Vec<u8>,
    /// Address and expected bytes of the result, if it is kept.
    output: Option<(u64, Vec<u8>)>,
    /// Allocations, the bytes before the tensors in them, and the address of the input if it must
    /// stay unchanged.
    margins: Vec<u64>,
    kept: Option<u64>,
}

const MARGIN: u8 = 0xee;

impl Case {
    fn wire_dtype(&self) -> Option<Dtype> {
        let is_wide = matches!(self.reduction.dtype, Dtype::F32 | Dtype::F64);
        self.wire_dtype
            .filter(|_| is_wide && self.kind.is_reduction())
    }

    fn is_absent(&self, rank: usize) -> bool {
        let is_needed = self.kind == OpKind::Broadcast && rank == self.root;
        let all = (1u32 << self.size) - 1;
        self.absent & all != all && self.absent >> rank & 1 == 1 && !is_needed
    }

    fn present(&self) -> Vec<usize> {
        (0..self.size)
            .filter(|&rank| !self.is_absent(rank))
            .collect()
    }

    /// Rows from rank `from` to rank `to`; those of an allgather are for all.
    fn rows(&self, tensor: &Tensor, from: usize, to: usize) -> usize {
        match self.kind {
            OpKind::Allgather | OpKind::Alltoall if self.is_absent(from) => 0,
            OpKind::Allgather => tensor.rows[from],
            OpKind::Alltoall => tensor.rows[from * self.size + to],
            OpKind::Reducescatter => {
                tensor.rows[0] / self.size + usize::from(to < tensor.rows[0] % self.size)
            }
            _ => tensor.rows[0],
        }
    }

    /// Bytes of a row.
    fn row_bytes(&self, tensor: &Tensor) -> usize {
        tensor.inner * self.reduction.dtype.size_bytes()
    }

    /// Bytes that rank `rank` contributes.
    fn input_bytes(&self, tensor: &Tensor, rank: usize) -> usize {
        let rows = match self.kind {
            OpKind::Alltoall => (0..self.size).map(|to| self.rows(tensor, rank, to)).sum(),
            OpKind::Reducescatter => tensor.rows[0],
            _ => self.rows(tensor, rank, rank),
        };
        rows * self.row_bytes(tensor)
    }

    /// The table of lengths; see [`crate::collective::Collective`].
    fn table(&self) -> Vec<usize> {
        let lengths = self.tensors.iter().flat_map(|tensor| {
            let rows =
                move |from: usize, to: usize| self.rows(tensor, from, to) * self.row_bytes(tensor);
            let all = 0..self.size;
            match self.kind {
                OpKind::Alltoall => all
                    .clone()
                    .flat_map(|from| all.clone().map(move |to| rows(from, to)))
                    .collect(),
                OpKind::Allgather | OpKind::Reducescatter => {
                    all.map(|rank| rows(rank, rank)).collect()
                }
                _ => Vec::new(),
            }
        });
        lengths.collect()
    }

    /// Returns the expected result of a tensor on rank `rank`, from the inputs of all ranks.
    fn result(&self, tensor: &Tensor, inputs: &[Vec<u8>], rank: usize) -> Vec<u8> {
        let row_bytes = self.row_bytes(tensor);
        let present: Vec<Vec<u8>> = self
            .present()
            .into_iter()
            .map(|rank| inputs[rank].clone())
            .collect();
        let reduced = || expected(&present, self.size, &self.reduction);
        match self.kind {
            OpKind::Broadcast => inputs[self.root].clone(),
            OpKind::Allgather => inputs.concat(),
            OpKind::Alltoall => {
                let from_each = (0..self.size).map(|from| {
                    let before: usize = (0..rank)
                        .map(|to| self.rows(tensor, from, to) * row_bytes)
                        .sum();
                    inputs[from][before..][..self.rows(tensor, from, rank) * row_bytes].to_vec()
                });
                from_each.collect::<Vec<_>>().concat()
            }
            OpKind::Reducescatter => {
                let before: usize = (0..rank)
                    .map(|to| self.rows(tensor, to, to) * row_bytes)
                    .sum();
                reduced()[before..][..self.rows(tensor, rank, rank) * row_bytes].to_vec()
            }
            _ => reduced(),
        }
    }

    /// Puts a tensor of rank `rank` into memory.
    fn lay(&self, gpu: &SimulatedGpu, tensor: &Tensor, inputs: &[Vec<u8>], rank: usize) -> Lying {
        let input = inputs[rank].clone();
        let mut lying = Lying {
            span: Span::absent(self.input_bytes(tensor, rank)),
            input: input.clone(),
            output: None,
            margins: Vec::new(),
            kept: None,
        };
        if self.is_absent(rank) {
            return lying;
        }
        let shift = tensor.shift * self.reduction.dtype.size_bytes();
        let mut place = |bytes: &[u8]| {
            let whole = [&vec![MARGIN; shift][..], bytes].concat();
            let address = gpu.allocate_with(&whole);
            lying.margins.push(address);
            address + shift as u64
        };
        let result = self.result(tensor, inputs, rank);
        let is_dropped = tensor.dropping >> rank & 1 == 1;
        let own = inputs[..rank].iter().map(Vec::len).sum::<usize>(); // of an allgather
        let (from, to) = match self.kind {
            _ if is_dropped => (place(&input), 0),
            OpKind::Allreduce | OpKind::Broadcast if tensor.is_in_place => {
                let at = place(&input);
                (at, at)
            }
            OpKind::Allgather if tensor.is_in_place => {
                let mut there = vec![0x77; result.len()];
                there[own..own + input.len()].copy_from_slice(&input);
                let at = place(&there);
                (at + own as u64, at)
            }
            _ => (place(&input), place(&vec![0x77; result.len()])),
        };
        let is_apart =
            to == 0 || from + input.len() as u64 <= to || to + result.len() as u64 <= from;
        lying.kept = is_apart.then_some(from);
        let pointer = |address: u64| std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
        // SAFETY: these addresses are never dereferenced: they are the simulated GPU's, and looked
        // up there.
        lying.span = unsafe { Span::new(pointer(from), pointer(to), input.len()) };
        lying.output = (to != 0).then_some((to, result));
        lying
    }

    /// Executes the batch on all ranks and checks all results; returns the number of kernels that
    /// one rank launched.
    pub(super) fn check(&self) -> usize {
        let fabric = Fabric::new(self.seed, self.size);
        let inputs: Vec<Vec<Vec<u8>>> = (self.tensors.iter().enumerate())
            .map(|(at, tensor)| {
                let of_rank = |rank: usize| {
                    let bytes = if self.is_absent(rank) {
                        0
                    } else {
                        self.input_bytes(tensor, rank)
                    };
                    elements(&self.reduction, bytes, self.seed ^ (at * 8 + rank) as u64)
                };
                (0..self.size).map(of_rank).collect()
            })
            .collect();
        let table = self.table();
        let ranks = Ranks::join(&fabric, self.size);
        let lying: Vec<Vec<Lying>> = (0..self.size)
            .map(|rank| {
                let tensors = self.tensors.iter().zip(&inputs);
                tensors
                    .map(|(tensor, inputs)| self.lay(&ranks.gpus[rank], tensor, inputs, rank))
                    .collect()
            })
            .collect();
        let spans: Vec<Vec<Span>> = lying
            .iter()
            .map(|lying| lying.iter().map(|lying| lying.span).collect())
            .collect();
        let mut common = None;
        let batches = spans.iter().enumerate().map(|(rank, spans)| {
            let batch = Batch {
                kind: self.kind,
                spans,
                bytes: &table,
                reduction: self.reduction,
                wire_dtype: self.wire_dtype(),
                root: self.root,
            };
            let set_rank = SetRank {
                rank,
                size: self.size,
            };
            let parts = self.parts(&batch, set_rank);
            assert_eq!(*common.get_or_insert(parts.clone()), parts, "rank {rank}");
            let scratch = ranks.scratch(&batch, set_rank, &parts);
            (batch, set_rank, scratch)
        });
        let batches: Vec<_> = batches.collect();
        for (part, _) in common.unwrap_or_default() {
            for (batch, set_rank, scratch) in &batches {
                ranks.put(&batch.part(part.clone()), *set_rank, *scratch);
            }
        }
        let mark = |(device, stream): (&Arc<Device>, &Stream)| {
            device.mark(*stream, true).expect("nothing is broken")
        };
        let marks: Vec<Mark> = ranks.devices.iter().zip(&ranks.streams).map(mark).collect();
        let stuck = fabric.run_dry();
        let come = |mark: &Mark| mark.has_come() == Ok(true);
        assert!(marks.iter().all(come), "{stuck}\n{:#?}", fabric.failures());
        for (rank, lying) in lying.iter().enumerate() {
            for (at, lying) in lying.iter().enumerate() {
                self.look(
                    &ranks.gpus[rank],
                    lying,
                    self.tensors[at].shift,
                    &format!("rank {rank}, tensor {at}"),
                );
            }
        }
        let launches = ranks.gpus[0].notes().into_iter();
        launches
            .filter(|did| matches!(did, Did::Launched(..)))
            .count()
    }

    /// Returns the batch's parts, and the bytes of the fusion buffer that they need.
    fn parts(&self, batch: &Batch<'_>, set_rank: SetRank) -> Vec<(Range<usize>, usize)> {
        let parts = match self.limit {
            Some(limit) => batch.parts(set_rank, limit),
            None => std::iter::once(0..batch.spans.len()).collect(),
        };
        assert!(
            parts.iter().cloned().flatten().eq(0..batch.spans.len()),
            "{parts:?}"
        );
        let wanted = |part: Range<usize>| (part.clone(), batch.part(part).buffer_bytes(set_rank));
        let parts: Vec<(Range<usize>, usize)> = parts.into_iter().map(wanted).collect();
        let fits = |(part, wanted): &(Range<usize>, usize)| {
            self.limit
                .is_none_or(|limit| part.len() == 1 || *wanted <= limit)
        };
        assert!(parts.iter().all(fits), "{parts:?}");
        parts
    }

    fn look(&self, gpu: &SimulatedGpu, lying: &Lying, shift: usize, whose: &str) {
        if let Some((at, expected)) = &lying.output {
            let found = gpu.read(*at, expected.len());
            let wire = self.wire_dtype().unwrap_or(self.reduction.dtype);
            let difference = differs(
                &found,
                expected,
                self.reduction.dtype,
                wire,
                self.kind.is_reduction(),
            );
            assert_eq!(difference, None, "{whose}");
        }
        if let Some(at) = lying.kept {
            assert_eq!(
                gpu.read(at, lying.input.len()),
                lying.input,
                "{whose}: the input is written"
            );
        }
        for &margin in &lying.margins {
            let bytes = shift * self.reduction.dtype.size_bytes();
            assert_eq!(
                gpu.read(margin, bytes),
                vec![MARGIN; bytes],
                "{whose}: what is before it is written"
            );
        }
    }
}

/// Ranks with a communicator and a stream each.
struct Ranks {
    gpus: Vec<Arc<SimulatedGpu>>,
    devices: Vec<Arc<Device>>,
    communicators: Vec<Communicator>,
    streams: Vec<Stream>,
}

impl Ranks {
    fn join(fabric: &Arc<Fabric>, size: usize) -> Self {
        let gpus: Vec<Arc<SimulatedGpu>> = (0..size).map(|rank| fabric.gpu(rank)).collect();
        let device = |(rank, gpu): (usize, &Arc<SimulatedGpu>)| {
            let gpu = Arc::clone(gpu) as Arc<dyn crate::gpu::Gpu>;
            Arc::new(Device::new(rank as u32, gpu))
        };
        let devices: Vec<Arc<Device>> = gpus.iter().enumerate().map(device).collect();
        let id = devices[0].gpu.unique_id().expect("nothing is broken");
        let join = |(rank, device): (usize, &Arc<Device>)| {
            device.gpu.join(&id, rank, size).expect("nothing is broken")
        };
        Self {
            communicators: devices.iter().enumerate().map(join).collect(),
            streams: gpus.iter().map(|gpu| gpu.stream()).collect(),
            gpus,
            devices,
        }
    }

    /// Allocates exactly the memory that the parts of a batch need.
    fn scratch(
        &self,
        batch: &Batch<'_>,
        set_rank: SetRank,
        parts: &[(Range<usize>, usize)],
    ) -> Scratch {
        let allocated = |bytes: Option<usize>| match bytes {
            None | Some(0) => 0, // no memory
            Some(bytes) => self.devices[set_rank.rank]
                .gpu
                .allocate(bytes)
                .expect("there is memory"),
        };
        let sunk = parts
            .iter()
            .map(|(part, _)| batch.part(part.clone()).sink_bytes(set_rank));
        Scratch {
            buffer: allocated(parts.iter().map(|(_, wanted)| *wanted).max()),
            sink: allocated(sunk.max()),
        }
    }

    /// Puts a batch on the rank's stream.
    fn put(&self, batch: &Batch<'_>, set_rank: SetRank, scratch: Scratch) {
        let (device, stream) = (&self.devices[set_rank.rank], self.streams[set_rank.rank]);
        let program = batch.program(set_rank, scratch);
        let outcome = program
            .copy_in(device, stream)
            .and_then(|()| program.call(device, self.communicators[set_rank.rank], stream))
            .and_then(|()| program.copy_out(device, stream));
        outcome.expect("nothing is broken");
    }
}
