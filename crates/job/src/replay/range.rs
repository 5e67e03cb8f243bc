//! Range of a recording: the messages of its steps. Predictions far beyond it are extrapolations.
//!
//! A fit has a log-normal uncertainty: the costs of a message that is cheap in the recording have
//! almost no absolute uncertainty, even if the recording has only a few such messages. So a
//! recommendation for a setting also needs messages like those that were recorded.

use serde::{Deserialize, Serialize};

use super::{Fit, Rules, Setting, Simulator, Trace};

/// Factor beyond which messages are unlike the recorded ones. A fit extrapolates over small factors
/// well; of shared memory it predicted forty times as many messages a step to be faster, and they
/// were 45 % slower.
const FAR: f64 = 4.0;

/// Messages of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Messages {
    /// Number of messages (batches) in a step.
    pub per_step: f64,
    /// Payload of the largest one, bytes.
    pub largest_bytes: f64,
}

impl Messages {
    /// Most messages in a step of the traces, and the largest of all messages; `None` without a
    /// message.
    pub(super) fn recorded(traces: &[Trace]) -> Option<Self> {
        let mut recorded = Self::default();
        for step in traces.iter().flat_map(|trace| &trace.steps) {
            let batches = || step.cycles.iter().flat_map(|cycle| &cycle.batches);
            let largest_bytes = batches().map(|batch| batch.bytes).max().unwrap_or(0) as f64;
            recorded.per_step = recorded.per_step.max(batches().count() as f64);
            recorded.largest_bytes = recorded.largest_bytes.max(largest_bytes);
        }
        (recorded.per_step > 0.0).then_some(recorded)
    }

    /// Whether these messages are far more, or the largest far larger, than those of `recorded`.
    pub fn exceed(&self, recorded: &Self) -> bool {
        self.per_step > FAR * recorded.per_step || self.largest_bytes > FAR * recorded.largest_bytes
    }
}

impl Fit {
    /// Returns the messages of a step under `setting`, with the most likely costs.
    pub fn messages(&self, rules: Rules, setting: &Setting) -> Messages {
        Simulator::new(&self.workload, rules).messages(&self.costs, setting)
    }

    /// Whether a step under `setting` has messages far beyond those of the recording. Costs that
    /// were not fitted to a recording have no such limit.
    pub fn is_outside(&self, rules: Rules, setting: &Setting) -> bool {
        self.recorded
            .is_some_and(|recorded| self.messages(rules, setting).exceed(&recorded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_times_the_recorded_messages_are_still_like_them() {
        let of = |per_step, largest_bytes| Messages {
            per_step,
            largest_bytes,
        };
        let recorded = of(8.0, 1e6);
        for (messages, exceed) in [
            (of(32.0, 4e6), false),
            (of(33.0, 1e6), true),
            (of(1.0, 4.1e6), true),
        ] {
            assert_eq!(messages.exceed(&recorded), exceed, "{messages:?}");
        }
    }
}
