//! The plan of a cycle: which of the ready tensors may share a batch, and which then do.

use super::Cycle;
use super::ready::Ready;
use crate::fusion::{Item, Plan};
use crate::negotiation::OpKind;
use crate::tensor::{Dtype, ReduceOp};

/// Memory for planning, kept from cycle to cycle.
pub(super) struct Packing {
    items: Vec<Item>,
    classes: Vec<Class>,
    /// Bytes that a batch on a GPU may hold, where the settings allow more.
    gpu_threshold_bytes: u64,
}

/// What tensors must have in common to share a batch.
struct Class {
    kind: OpKind,
    dtype: Dtype,
    wire_dtype: Option<Dtype>,
    op: ReduceOp,
    prescale: f64,
    postscale: f64,
    root: u32,
    /// Not which: a rank has one, and one that has joined knows others' tensors by the others' devices.
    is_on_gpu: bool,
    absent: Vec<u32>,
}

impl Class {
    /// The class that `ready` opens.
    fn of(ready: &Ready) -> Self {
        let params = &ready.submission.params;
        Self {
            kind: params.kind,
            dtype: params.dtype,
            wire_dtype: params.wire_dtype,
            op: params.op,
            prescale: params.prescale,
            postscale: params.postscale,
            root: params.root,
            is_on_gpu: params.device.is_some(),
            absent: ready.absent().to_vec(),
        }
    }

    fn admits(&self, ready: &Ready) -> bool {
        let params = &ready.submission.params;
        params.kind.fuses()
            && (self.kind, self.dtype, self.op) == (params.kind, params.dtype, params.op)
            && (self.prescale, self.postscale, self.wire_dtype)
                == (params.prescale, params.postscale, params.wire_dtype)
            && (self.root, self.is_on_gpu) == (params.root, params.device.is_some())
            && same(&self.absent, ready.absent())
    }
}

/// Whether two lists, mostly empty, are equal. Comparing empty slices is not free: `memcmp` looks at the dangling address
/// of an empty vector, which takes a processor with masked loads longer than all the rest of the plan.
fn same(some: &[u32], others: &[u32]) -> bool {
    some.len() == others.len() && (some.is_empty() || some == others)
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
    pub(super) fn new(gpu_threshold_bytes: u64) -> Self {
        Self {
            items: Vec::new(),
            classes: Vec::new(),
            gpu_threshold_bytes,
        }
    }

    fn pack(&mut self, ready: &[Ready], threshold_bytes: u64, plan: &mut Plan) {
        self.items.clear();
        self.classes.clear();
        for ready in ready {
            let known = self.classes.iter().rposition(|known| known.admits(ready));
            let class = known.unwrap_or_else(|| {
                self.classes.push(Class::of(ready));
                self.classes.len() - 1
            });
            self.items.push(Item {
                class: class as u32,
                bytes: ready.bytes(),
                group: ready.submission.params.group.map(|group| group.tag),
            });
        }
        if threshold_bytes == 0 {
            return plan.make(&self.items, 0);
        }
        let gpu_threshold_bytes = threshold_bytes.min(self.gpu_threshold_bytes);
        plan.make_by_class(&self.items, |class| {
            if self.classes[class as usize].is_on_gpu {
                gpu_threshold_bytes
            } else {
                threshold_bytes
            }
        });
    }
}
