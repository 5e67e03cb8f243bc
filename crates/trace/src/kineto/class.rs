//! Classification of a profiler's events by category and name.

use super::super::event::Event;
use super::super::json::Value;

/// Prefixes of a process group's annotations.
const BACKENDS: [&str; 4] = ["nccl:", "gloo:", "mpi:", "ucc:"];

/// Category of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Step,
    Kernel,
    Copy,
    UnknownGpu,
    Annotation,
    Parameters,
    Launch,
    Operator,
    Other,
}

impl Class {
    pub(super) fn of(event: &Event<'_>) -> Self {
        let name = event.name.raw;
        match event.category.raw {
            b"kernel" | b"Kernel" | b"concurrent_kernel" => Self::Kernel,
            b"gpu_memcpy" | b"Memcpy" | b"gpu_memset" | b"Memset" => Self::Copy,
            b"cuda_runtime" | b"cuda_driver" | b"Runtime" => Self::Launch,
            b"cpu_op" | b"user_annotation" | b"Operator" if name.starts_with(b"ProfilerStep#") => {
                Self::Step
            }
            b"cpu_op" | b"user_annotation" | b"Operator" if name == b"record_param_comms" => {
                Self::Parameters
            }
            b"cpu_op" | b"user_annotation" | b"Operator"
                if BACKENDS
                    .iter()
                    .any(|backend| name.starts_with(backend.as_bytes())) =>
            {
                Self::Annotation
            }
            // Calls into the process group wait for other ranks: not computation.
            b"cpu_op" | b"Operator" if !name.starts_with(b"c10d::") => Self::Operator,
            b"gpu_user_annotation" | b"cuda_sync" | b"cuda_event" | b"overhead" | b"Trace" => {
                Self::Other
            }
            // Only GPU work has a device and a stream.
            category if !category.starts_with(b"cpu_") && on_gpu_stream(event) => Self::UnknownGpu,
            _ => Self::Other,
        }
    }
}

fn on_gpu_stream(event: &Event<'_>) -> bool {
    let has = |key| event.argument(key).and_then(Value::count).is_some();
    has("stream") && has("device")
}

/// Whether this is a kernel of NCCL, RCCL or MSCCL, in any version:
/// `ncclKernel_AllReduce_RING_LL_Sum_float`, `ncclDevKernel_…`.
pub(super) fn is_nccl(name: &str) -> bool {
    name.contains("nccl") && name.contains("Kernel") || name.starts_with("mscclKernel")
}

/// Whether this is a collective of another library: not computation, and not described by PyTorch.
pub(super) fn is_unknown_collective(name: &str) -> bool {
    const PARTS: [&str; 8] = [
        "nccl",
        "nvshmem",
        "allreduce",
        "allgather",
        "reducescatter",
        "alltoall",
        "crossdevicereduce",
        "mscclpp",
    ];
    let plain: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|character| character.to_ascii_lowercase())
        .collect();
    PARTS.iter().any(|part| plain.contains(part))
}
