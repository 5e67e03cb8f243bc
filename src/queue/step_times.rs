//! Times at which the tensors of a step were submitted.

use crate::clock::Nanos;

/// Most tensors of a step whose times are kept.
const TENSORS_MAX: usize = 1 << 16;

/// Submission times of the current step and of the last complete one.
#[derive(Debug, Default)]
pub(super) struct StepTimes {
    current: Vec<(Nanos, u64)>,
    /// Whether the current step has tensors in device memory, or too many.
    is_unusable: bool,
    /// Time from the first submission, ns, and size of each tensor of the last complete step;
    /// empty if that step was unusable.
    last: Vec<(u64, u64)>,
    is_new: bool,
}

impl StepTimes {
    /// A tensor of `bytes` was submitted at `at`.
    pub(super) fn submitted(&mut self, at: Nanos, bytes: u64, is_on_device: bool) {
        self.is_unusable |= is_on_device || self.current.len() >= TENSORS_MAX;
        if !self.is_unusable {
            self.current.push((at, bytes));
        }
    }

    /// Time of the first submission of the current step, if there is one.
    pub(super) fn began(&self) -> Option<Nanos> {
        self.current.first().map(|&(at, _)| at)
    }

    /// The step is complete.
    pub(super) fn complete(&mut self) {
        self.last.clear();
        if !std::mem::take(&mut self.is_unusable) {
            let first = self.current.first().map_or(Nanos(0), |&(at, _)| at);
            let since = |at: Nanos| at.0.saturating_sub(first.0);
            self.last
                .extend(self.current.iter().map(|&(at, bytes)| (since(at), bytes)));
        }
        self.current.clear();
        self.is_new = true;
    }

    /// Moves the last complete step to `into`; returns whether there is one since the last call.
    pub(super) fn take(&mut self, into: &mut Vec<(u64, u64)>) -> bool {
        let is_new = std::mem::take(&mut self.is_new);
        if is_new {
            std::mem::swap(&mut self.last, into);
        }
        is_new
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_steps_times_begin_with_its_first_tensor() {
        let (mut times, mut taken) = (StepTimes::default(), Vec::new());
        assert!(!times.take(&mut taken));
        assert_eq!(times.began(), None);
        times.submitted(Nanos(100), 8, false);
        times.submitted(Nanos(130), 16, false);
        assert_eq!(times.began(), Some(Nanos(100)));
        times.complete();
        assert!(times.take(&mut taken));
        assert_eq!(taken, [(0, 8), (30, 16)]);
        assert!(!times.take(&mut taken));
        times.submitted(Nanos(200), 8, false);
        times.submitted(Nanos(210), 8, true);
        times.complete();
        assert!(times.take(&mut taken));
        assert!(taken.is_empty());
        times.submitted(Nanos(300), 4, false);
        times.complete();
        assert!(times.take(&mut taken));
        assert_eq!(taken, [(0, 4)]);
    }
}
