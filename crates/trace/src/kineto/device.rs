//! Selection of one GPU, if a trace has work of several.
//!
//! A process may use several GPUs, and traces can be merged. Their kernels are not added up: idle
//! time of one GPU would be hidden by the work of another.

use std::collections::BTreeMap;

use super::super::event::Event;
use super::super::json::Value;
use super::super::model::{Span, Work};
use super::collectives::Kernel;

/// Work of a GPU other than NCCL kernels.
#[derive(Clone, Copy, Debug)]
pub(super) struct GpuWork {
    pub(super) span: Span,
    pub(super) work: Work,
    /// Number of the GPU, if the event has one.
    pub(super) device: Option<u64>,
}

/// Number of the GPU that executed the event.
pub(super) fn of(event: &Event<'_>) -> Option<u64> {
    event.argument("device").and_then(Value::count)
}

/// Selects the GPU with the most time in collectives, or, without collectives, in kernels.
/// `None` if the trace has work of one GPU only.
pub(super) fn select(kernels: &[Kernel], gpu: &[GpuWork]) -> Option<u64> {
    let mut times: BTreeMap<u64, [u64; 2]> = BTreeMap::new();
    let collectives = kernels.iter().map(|kernel| (kernel.device, 0, kernel.span));
    let others = gpu.iter().map(|work| (work.device, 1, work.span));
    for (device, class, span) in collectives.chain(others) {
        if let Some(device) = device {
            times.entry(device).or_default()[class] += span.ns();
        }
    }
    // Of equal GPUs, the one with the lowest number.
    let most = times
        .iter()
        .max_by_key(|&(device, times)| (times, std::cmp::Reverse(device)));
    most.map(|(&device, _)| device).filter(|_| times.len() > 1)
}
