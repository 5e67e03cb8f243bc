//! Schedule of the submissions of a step: all at once, or spread over a simulated backward pass.
//!
//! Times are absolute from the start of the step. A late submission does not delay the next one, as
//! a GPU would not wait for its host, so the pass always has the requested duration.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Workload;

/// Activity during the simulated backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ComputeKind {
    /// Sleeps: models an accelerator that computes and leaves the CPU free.
    #[default]
    Sleep,
    /// Computes: models a backward pass that runs on the CPU and competes for it.
    Spin,
}

impl ComputeKind {
    /// Returns the value of `--compute-kind` and of the field in `--json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sleep => "sleep",
            Self::Spin => "spin",
        }
    }
}

/// Submission times of a workload's tensors.
#[derive(Clone, Debug)]
pub struct Schedule {
    due: Vec<Duration>,
    kind: ComputeKind,
}

impl Schedule {
    /// Spreads the submissions of `workload` over a backward pass of length `compute`, in
    /// proportion to the cost of the layers.
    pub fn new(workload: &Workload, compute: Duration, kind: ComputeKind) -> Self {
        let due = workload
            .tensors
            .iter()
            .map(|tensor| compute.mul_f64(tensor.ready_fraction))
            .collect();
        Self { due, kind }
    }

    /// Returns the time from the start of the step at which tensor `index` is ready.
    ///
    /// # Panics
    /// If the workload has no tensor `index`.
    pub fn due(&self, index: usize) -> Duration {
        self.due[index]
    }

    /// Waits until tensor `index` of the step that began at `step_start` is ready; returns
    /// immediately if that time is past.
    ///
    /// # Panics
    /// If the workload has no tensor `index`.
    pub fn wait(&self, index: usize, step_start: Instant) {
        let ready = step_start + self.due(index);
        match self.kind {
            ComputeKind::Sleep => {
                // One call is sufficient: `sleep` never returns early.
                let left = ready.saturating_duration_since(Instant::now());
                if !left.is_zero() {
                    thread::sleep(left);
                }
            }
            ComputeKind::Spin => {
                let mut work = 1.0_f32;
                while Instant::now() < ready {
                    // Arithmetic instead of a pause hint, which would leave the core to a sibling
                    // thread.
                    for _ in 0..64 {
                        work = black_box(work) * 1.000_1 + 0.000_1;
                    }
                }
                black_box(work);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::models;

    #[test]
    fn times_are_fractions_of_the_pass() {
        let workload = models::workload("many-small").unwrap();
        let schedule = Schedule::new(&workload, Duration::from_millis(40), ComputeKind::Sleep);
        assert_eq!(schedule.due(0), Duration::from_micros(40)); // 1,000 equal shares
        assert_eq!(schedule.due(999), Duration::from_millis(40));
    }

    #[test]
    fn never_before_its_time_of_either_kind() {
        let workload = models::workload("vgg16").unwrap();
        for kind in [ComputeKind::Sleep, ComputeKind::Spin] {
            let schedule = Schedule::new(&workload, Duration::from_millis(3), kind);
            let start = Instant::now();
            for index in 0..workload.tensors.len() {
                schedule.wait(index, start);
                assert!(start.elapsed() >= schedule.due(index), "{}", kind.as_str());
            }
        }
    }

    /// A start in the past makes every tensor due: with a relative schedule, this would take
    /// another hour.
    #[test]
    fn lateness_is_not_passed_on() {
        let workload = models::workload("vgg16").unwrap();
        let hour = Duration::from_secs(3600);
        let schedule = Schedule::new(&workload, hour, ComputeKind::Sleep);
        let Some(start) = Instant::now().checked_sub(hour) else {
            return;
        };
        (0..workload.tensors.len()).for_each(|index| schedule.wait(index, start));
        assert!(start.elapsed() < 2 * hour);
    }
}
