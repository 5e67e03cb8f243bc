//! Parts of a step: their kinds, names and order.

use serde::{Deserialize, Deserializer, Serialize};

/// Part of a step's time. An instant belongs to the first of these that applies: the rank computes;
/// an operation is in its collective, copied in, copied out, or has begun otherwise; all ranks have
/// a tensor ready; this rank waits for others. These are the exposed parts. The total of a part
/// includes time that computation hides.
///
/// A rank is assumed to compute while tensors of the step are not ready yet, or while no operation
/// is in progress. If a profiler's kernels are known, it computes while a kernel runs. In a job
/// that waits for each result before it submits the next tensor, it computes only while no
/// operation is in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// Computation, until this rank's last tensor of the step is ready.
    Compute,
    /// A tensor is ready on this rank, but not on every rank.
    WaitForRanks,
    /// A tensor is ready on every rank and not moved yet: cycle time and negotiation.
    Negotiation,
    /// Waiting for data or the device, and allocation of buffers.
    Prepare,
    /// Copying in.
    CopyIn,
    /// The collective.
    Collective,
    /// Copying out.
    CopyOut,
    /// No kernel and no copy runs on the GPU. Known from a profiler's trace only.
    GpuIdle,
    /// The GPU copies or sets memory, or runs a kernel of unknown type. Known from a profiler's
    /// trace only.
    GpuOther,
}

impl PartKind {
    /// Number of parts.
    pub const COUNT: usize = 9;
    /// All parts, in order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Compute,
        Self::WaitForRanks,
        Self::Negotiation,
        Self::Prepare,
        Self::CopyIn,
        Self::Collective,
        Self::CopyOut,
        Self::GpuIdle,
        Self::GpuOther,
    ];

    /// Name in tables, pictures and sentences.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compute => "computation",
            Self::WaitForRanks => "waiting for ranks",
            Self::Negotiation => "negotiation",
            Self::Prepare => "preparation",
            Self::CopyIn => "copying in",
            Self::Collective => "collective",
            Self::CopyOut => "copying out",
            Self::GpuIdle => "GPU idle",
            Self::GpuOther => "other GPU work",
        }
    }

    /// Whether the part is communication, in contrast to work of the step itself or idle time.
    pub const fn is_communication(self) -> bool {
        !matches!(self, Self::Compute | Self::GpuIdle | Self::GpuOther)
    }
}

/// Reads times by part. Earlier versions wrote fewer parts; missing ones are 0.
pub(super) fn times<'de, D: Deserializer<'de>>(
    source: D,
) -> Result<[f64; PartKind::COUNT], D::Error> {
    let read = Vec::<f64>::deserialize(source)?;
    if read.len() > PartKind::COUNT {
        return Err(serde::de::Error::invalid_length(
            read.len(),
            &"times of at most 9 parts",
        ));
    }
    let mut times = [0.0; PartKind::COUNT];
    times[..read.len()].copy_from_slice(&read);
    Ok(times)
}
