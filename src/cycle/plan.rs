//! Planning: packs the ready tensors of a cycle into batches.

use super::Cycle;
use crate::fusion::{Item, Plan};
use crate::fusion_class::FusionClasses;
use crate::ready::Ready;
use crate::settings::Settings;

/// Memory for planning, reused in every cycle.
#[derive(Default)]
pub(super) struct Packing {
    items: Vec<Item>,
    classes: FusionClasses,
}

impl Cycle {
    /// Packs `ready` into batches, except for incomplete groups.
    pub(super) fn plan(&mut self) {
        self.groups.sift(&mut self.ready);
        self.packing
            .pack(&self.ready, &self.settings, &mut self.plan);
    }
}

impl Packing {
    fn pack(&mut self, ready: &[Ready], settings: &Settings, plan: &mut Plan) {
        self.items.clear();
        self.classes.clear();
        for ready in ready {
            self.items.push(Item {
                class: self.classes.number(&ready.fusion_key(), None),
                bytes: ready.bytes(),
                group: ready.submission.params.group.map(|group| group.tag),
            });
        }
        if settings.fusion_threshold_bytes == 0 {
            return plan.make(&self.items, 0);
        }
        plan.make_by_class(&self.items, |class| {
            if self.classes.is_on_gpu(class) {
                settings.device_threshold_bytes()
            } else {
                settings.fusion_threshold_bytes
            }
        });
    }
}
