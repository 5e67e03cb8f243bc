//! The plan of a cycle: which of the ready tensors may share a batch, and which then do.

use super::Cycle;
use super::ready::Ready;
use crate::fusion::{Item, Plan};
use crate::negotiation::OpKind;
use crate::tensor::{Dtype, ReduceOp};

/// Memory for planning, kept from cycle to cycle.
#[derive(Default)]
pub(super) struct Packing {
    items: Vec<Item>,
    classes: Vec<Class>,
}

/// What tensors must have in common to share a batch.
#[derive(Clone, PartialEq)]
struct Class {
    kind: OpKind,
    dtype: Dtype,
    op: ReduceOp,
    prescale: f64,
    postscale: f64,
    root: u32,
    device: Option<u32>,
    absent: Vec<u32>,
    /// Tells those apart that never share one.
    alone: Option<usize>,
}

impl Class {
    fn of(ready: &Ready, position: usize) -> Self {
        let params = &ready.submission.params;
        Self {
            kind: params.kind,
            dtype: params.dtype,
            op: params.op,
            prescale: params.prescale,
            postscale: params.postscale,
            root: params.root,
            device: params.device,
            absent: ready.absent().to_vec(),
            alone: (!params.kind.fuses()).then_some(position),
        }
    }
}

/// Bytes that count against the fusion threshold: what one rank brings, or, where that may differ, what all bring.
fn bytes(ready: &Ready) -> u64 {
    let params = &ready.submission.params;
    if params.kind == OpKind::Allgather {
        let rows: u64 = ready.rows().iter().sum();
        rows.saturating_mul(params.row_bytes() as u64)
    } else {
        params.bytes() as u64
    }
}

impl Cycle {
    /// Packs `ready` into batches, but for groups that are not complete.
    pub(super) fn plan(&mut self) {
        self.groups.sift(&mut self.ready);
        self.packing
            .pack(&self.ready, self.settings.fusion_threshold_bytes, &mut self.plan);
    }
}

impl Packing {
    fn pack(&mut self, ready: &[Ready], threshold_bytes: u64, plan: &mut Plan) {
        self.items.clear();
        self.classes.clear();
        for (position, ready) in ready.iter().enumerate() {
            let class = Class::of(ready, position);
            let known = self.classes.iter().rposition(|known| *known == class);
            let class = known.unwrap_or_else(|| {
                self.classes.push(class);
                self.classes.len() - 1
            });
            self.items.push(Item {
                class: class as u32,
                bytes: bytes(ready),
                group: ready.submission.params.group.map(|group| group.tag),
            });
        }
        plan.make(&self.items, threshold_bytes);
    }
}
