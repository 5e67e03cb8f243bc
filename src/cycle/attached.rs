//! Small allreduces whose inputs travel with the ranks' blocks.
//!
//! A rank attaches the inputs of all its ready tensors to its block, if these are few and small. If
//! every rank has attached the same tensors, all ranks have all inputs as soon as they have agreed,
//! and each combines them by itself: the operation takes one exchange among the ranks instead of
//! two. Otherwise the attached inputs are ignored, and the tensors take the usual way.
//!
//! All ranks decide alike, because the agreement, the settings and rank 0's answer decide.

use super::Cycle;
use super::execute::reduction;
use crate::collective::attached;
use crate::negotiation::OpKind;
use crate::queue::Submission;
use crate::tensor::Span;
use crate::transport::bit_indices;

impl Cycle {
    /// Attaches the inputs of all tensors that are ready here to this rank's block. Returns false
    /// if there are none, or if one of them cannot be attached.
    pub(super) fn attach(&mut self) -> bool {
        let words = &mut self.block.attached;
        if !(1..=8 * words.len()).contains(&self.hits_held) {
            return false;
        }
        let mut end = 0;
        for slot in bit_indices(&self.block.ready) {
            let Some(span) = self.hits[slot].as_ref().and_then(attachable) else {
                return false;
            };
            let Some(next) = attached::write(span, words, end) else {
                return false;
            };
            end = next;
        }
        true
    }

    /// Whether the agreement has the inputs of all tensors of this cycle. `is_answered`: rank 0 has
    /// answered requests in it. The bits of hierarchical allreduces are others.
    pub(super) fn has_inputs(&self, is_answered: bool) -> bool {
        !is_answered && !self.settings.hierarchical_allreduce && self.agreed.attached().is_some()
    }

    /// Executes a batch whose inputs the agreement has.
    pub(super) fn reduce_attached(&self, batch: &[u32]) {
        let words = self.agreed.attached().unwrap_or_default();
        let span = |position: usize| self.ready[position].submission.span;
        for position in batch.iter().map(|&position| position as usize) {
            // The tensors are in the order of their slots, as in `attach`.
            let before = (0..position).filter_map(span).map(|span| span.bytes());
            if let Some(own) = span(position) {
                let reduction = reduction(&self.ready[position].submission.params);
                attached::allreduce(words, self.transport.size(), before.sum(), &own, &reduction);
            }
        }
    }
}

/// Returns the data of a submission that can be attached: an allreduce in host memory, outside of
/// groups, which may be held back.
fn attachable(submission: &Submission) -> Option<&Span> {
    let params = &submission.params;
    let is_plain = params.kind == OpKind::Allreduce
        && params.device.is_none()
        && params.wire_dtype.is_none()
        && params.group.is_none();
    submission
        .span
        .as_ref()
        .filter(|span| is_plain && !span.is_absent())
}
