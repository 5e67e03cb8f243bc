//! Data in an event's name and arguments: rank, output type and shape, measured phases.

use super::super::event::Event;
use super::super::json::Value;
use super::super::model::{Activity, NameId, Operation, Phase, PhaseSums, Span};
use super::super::vocabulary;
use super::tracks::Open;

/// Rank that a tick's name states.
pub(super) fn rank(name: &[u8]) -> Option<u32> {
    // A rank has few digits; a longer name is not a rank.
    if name.is_empty() || name.len() > 9 {
        return None;
    }
    name.iter().try_fold(0, |rank: u32, &byte| {
        byte.is_ascii_digit()
            .then(|| 10 * rank + u32::from(byte - b'0'))
    })
}

/// Phase sums that Ronde measured within a collective.
pub(super) fn sums(event: &Event<'_>) -> Option<PhaseSums> {
    if event.arguments.is_empty() {
        return None;
    }
    let ns = |key| {
        let ns = event.argument(key).and_then(Value::us_as_ns);
        ns.and_then(|ns| u64::try_from(ns).ok())
    };
    let found = [
        ns("copy_in_us"),
        ns("reduce_us"),
        ns("copy_out_us"),
        ns("wait_us"),
    ];
    found.iter().any(Option::is_some).then(|| {
        let [copy_in_ns, reduce_ns, copy_out_ns, wait_ns] = found.map(Option::unwrap_or_default);
        PhaseSums {
            copy_in_ns,
            reduce_ns,
            copy_out_ns,
            wait_ns,
        }
    })
}

impl Open {
    /// Reads element type and shape at the end of an operation; false if the event has none.
    pub(super) fn output(&mut self, event: &Event<'_>) -> bool {
        if event.arguments.is_empty() {
            return false;
        }
        let Some(name) = event.argument("dtype") else {
            return false;
        };
        let name = name.decode();
        let shape = event.argument("shape");
        let Operation {
            dtype,
            elements,
            bytes,
            ..
        } = &mut self.operation;
        *dtype = vocabulary::dtype(&name);
        *elements = shape.and_then(|shape| vocabulary::elements(&shape.decode()));
        let size = vocabulary::dtype_bytes(&name);
        *bytes = size
            .zip(*elements)
            .and_then(|(size, elements)| size.checked_mul(elements));
        true
    }

    /// Opens an activity.
    pub(super) fn push(&mut self, name: NameId, phase: Phase, at: i64) {
        let span = Span {
            began: at,
            ended: at,
        };
        self.stack.push(self.operation.activities.len());
        self.operation
            .activities
            .push(Activity { name, phase, span });
    }
}
