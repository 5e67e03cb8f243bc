//! Planning: packs the ready tensors of a cycle into batches.

use super::Cycle;
use crate::fusion::{Item, Plan};
use crate::fusion_class::FusionClasses;
use crate::ready::Ready;

/// Memory for planning, reused in every cycle.
pub(super) struct Packing {
    items: Vec<Item>,
    classes: FusionClasses,
    /// Most bytes of a batch on a GPU, even if the settings allow more.
    gpu_threshold_bytes: u64,
}

impl Cycle {
    /// Packs `ready` into batches, except for incomplete groups.
    pub(super) fn plan(&mut self) {
        self.groups.sift(&mut self.ready);
        self.packing.pack(
            &self.ready,
            self.settings.fusion_threshold_bytes,
            &mut self.plan,
        );
    }
}

impl Packing {
    pub(super) fn new(gpu_threshold_bytes: u64) -> Self {
        Self {
            items: Vec::new(),
            classes: FusionClasses::default(),
            gpu_threshold_bytes,
        }
    }

    fn pack(&mut self, ready: &[Ready], threshold_bytes: u64, plan: &mut Plan) {
        self.items.clear();
        self.classes.clear();
        for ready in ready {
            self.items.push(Item {
                class: self.classes.number(&ready.fusion_key(), None),
                bytes: ready.bytes(),
                group: ready.submission.params.group.map(|group| group.tag),
            });
        }
        if threshold_bytes == 0 {
            return plan.make(&self.items, 0);
        }
        let gpu_threshold_bytes = threshold_bytes.min(self.gpu_threshold_bytes);
        plan.make_by_class(&self.items, |class| {
            if self.classes.is_on_gpu(class) {
                gpu_threshold_bytes
            } else {
                threshold_bytes
            }
        });
    }
}
