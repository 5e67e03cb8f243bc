//! Launch throttle: back-pressure for device batches; it limits the launches in flight.
//!
//! While the device executes one batch and has the next in its queue, further GPU tensors wait here
//! and are launched together afterwards: several small batches in a row would each cost a
//! collective's latency, and none would finish earlier. Batches therefore grow where communication
//! is slower than submission. A batch whose data is not ready yet delays no other tensor.
//!
//! A tensor also waits until the previous operation of the same name has finished on the device:
//! events of one tensor are reported in order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::collective::asynchronous::Launched;
use crate::device::Mark;
use crate::negotiation::OpKind;
use crate::queue::Submission;

/// Batches in flight on the device above which further tensors wait.
const BATCHES: usize = 2;

/// Launches in flight and the tensors that wait for them.
#[derive(Default)]
pub(in crate::cycle) struct LaunchThrottle {
    waiting: Vec<Submission>,
    on_stream: VecDeque<BatchMarks>,
}

/// Events at the start and the end of a batch in flight.
struct BatchMarks {
    began: Arc<Mark>,
    ended: Arc<Mark>,
}

impl LaunchThrottle {
    /// Records that a batch was launched.
    pub(super) fn launched(&mut self, launched: &Launched) {
        self.forget_ended(); // a rank that has joined launches, and asks for nothing
        self.on_stream.push_back(BatchMarks {
            began: Arc::clone(&launched.began),
            ended: Arc::clone(&launched.ended),
        });
    }

    /// Removes tensors that must wait from `incoming` and adds those whose wait is over. GPU
    /// tensors stay in submission order.
    pub(in crate::cycle) fn sift(&mut self, incoming: &mut Vec<Submission>) {
        let is_on_gpu = |submission: &Submission| submission.on.is_some();
        if self.waiting.is_empty() && !incoming.iter().any(is_on_gpu) {
            return;
        }
        let is_busy = self.is_busy();
        let mut is_closed = false;
        let mut passes = |submission: &Submission| {
            let must_wait = is_busy || submission.tensor.is_on_device.load(Ordering::Acquire);
            is_closed |= is_on_gpu(submission) && must_wait;
            // A join is submitted after all earlier tensors.
            !is_closed || !(is_on_gpu(submission) || submission.params.kind == OpKind::Join)
        };
        let came = std::mem::take(&mut self.waiting)
            .into_iter()
            .chain(incoming.drain(..));
        let (passed, waiting) = came.partition(|submission| passes(submission));
        (*incoming, self.waiting) = (passed, waiting);
    }

    /// Whether the first waiting tensor may be launched now.
    pub(in crate::cycle) fn may_open(&mut self) -> bool {
        let first = self.waiting.first();
        first.is_some_and(|first| !first.tensor.is_on_device.load(Ordering::Acquire))
            && !self.is_busy()
    }

    /// Number of waiting tensors.
    pub(in crate::cycle) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Empties the throttle and returns the waiting tensors.
    pub(in crate::cycle) fn give_up(&mut self) -> Vec<Submission> {
        self.on_stream.clear();
        std::mem::take(&mut self.waiting)
    }

    /// Whether the limit of launches in flight is reached. Device errors count as not busy; they
    /// are reported elsewhere.
    fn is_busy(&mut self) -> bool {
        self.forget_ended();
        let first = self
            .on_stream
            .front()
            .filter(|_| self.on_stream.len() >= BATCHES);
        first.is_some_and(|first| matches!(first.began.has_come(), Ok(true)))
    }

    fn forget_ended(&mut self) {
        while let Some(first) = self.on_stream.front()
            && !matches!(first.ended.has_come(), Ok(false))
        {
            self.on_stream.pop_front();
        }
    }
}
