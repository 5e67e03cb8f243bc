//! Who may go onto the device yet.
//!
//! While the device works off one batch and has the next one already, tensors that come wait here, and travel together afterwards:
//! small batches in a row would each cost a collective's latency, and none would end earlier. So batches grow by themselves where
//! communication does not keep pace with what comes. A batch that still waits for its data holds nobody up.
//!
//! A tensor also waits for its own operation before, where its caller need not have: what happens to one is told in order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::collective::nccl::Launched;
use crate::gpu::Mark;
use crate::negotiation::OpKind;
use crate::queue::Submission;

/// Batches that the device may have before others wait.
const BATCHES: usize = 2;

/// See the module.
#[derive(Default)]
pub(in crate::cycle) struct Gate {
    waiting: Vec<Submission>,
    on_stream: VecDeque<Stretch>,
}

/// A batch on the stream.
struct Stretch {
    began: Arc<Mark>,
    ended: Arc<Mark>,
}

impl Gate {
    /// Notes a batch.
    pub(super) fn launched(&mut self, launched: &Launched) {
        self.on_stream.push_back(Stretch {
            began: Arc::clone(&launched.began),
            ended: Arc::clone(&launched.ended),
        });
    }

    /// Keeps back what must wait, and lets go what need not any more: the device's tensors stay in the order in which they came.
    pub(in crate::cycle) fn sift(&mut self, incoming: &mut Vec<Submission>) {
        let is_concerned = |submission: &Submission| submission.on.is_some();
        if self.waiting.is_empty() && !incoming.iter().any(is_concerned) {
            return;
        }
        let is_busy = self.is_busy();
        let mut is_closed = false;
        let mut passes = |submission: &Submission| {
            let must_wait = is_busy || submission.tensor.is_on_device.load(Ordering::Acquire);
            is_closed |= is_concerned(submission) && must_wait;
            // Who has joined must have sent all that came before.
            !is_closed || !(is_concerned(submission) || submission.params.kind == OpKind::Join)
        };
        let came = std::mem::take(&mut self.waiting)
            .into_iter()
            .chain(incoming.drain(..));
        let (passed, waiting) = came.partition(|submission| passes(submission));
        (*incoming, self.waiting) = (passed, waiting);
    }

    /// Whether somebody waits who need not any more.
    pub(in crate::cycle) fn may_open(&mut self) -> bool {
        let first = self.waiting.first();
        first.is_some_and(|first| !first.tensor.is_on_device.load(Ordering::Acquire)) && !self.is_busy()
    }

    /// Tensors that wait.
    pub(in crate::cycle) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Lets all go.
    pub(in crate::cycle) fn give_up(&mut self) -> Vec<Submission> {
        self.on_stream.clear();
        std::mem::take(&mut self.waiting)
    }

    /// Whether the device has enough to do. (What is wrong with it comes out elsewhere.)
    fn is_busy(&mut self) -> bool {
        let has_come = |mark: &Mark| mark.device().gpu.has_come(mark.event);
        while let Some(first) = self.on_stream.front()
            && !matches!(has_come(&first.ended), Ok(false))
        {
            self.on_stream.pop_front();
        }
        let first = self.on_stream.front().filter(|_| self.on_stream.len() >= BATCHES);
        first.is_some_and(|first| matches!(has_come(&first.began), Ok(true)))
    }
}
