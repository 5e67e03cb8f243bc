//! The parts of a step.

use serde::{Deserialize, Deserializer, Serialize};

/// What a step's time is spent on. An instant belongs to the first of these that applies: the rank computes (it still has
/// tensors of the step to come, or nothing is under way; where a profiler's kernels are known, one of them runs or nothing
/// is under way; in a job that waits for each result before it submits the next tensor, only nothing under way); an
/// operation is in its collective, copied in, copied out, otherwise begun; all ranks have a tensor ready; this rank waits
/// for others. These are the exposed parts. The total of a part counts what goes on behind computation as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// Until this rank's last tensor of the step is ready.
    Compute,
    /// Ready here, not on every rank.
    WaitForRanks,
    /// Ready on every rank and not moving: cycle time and negotiation.
    Negotiation,
    /// Waiting for data or the device, making buffers.
    Prepare,
    /// Copying in.
    CopyIn,
    /// The collective.
    Collective,
    /// Copying out.
    CopyOut,
    /// No kernel and no copy runs on the GPU. Known from a profiler's trace only.
    GpuIdle,
    /// The GPU copies or sets memory, or runs a kernel of unknown type. Likewise.
    GpuOther,
}

impl PartKind {
    /// How many there are.
    pub const COUNT: usize = 9;
    /// All, in order.
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

    /// What people call it: in tables, pictures and sentences the same.
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

    /// Whether time of it is spent on the work of the step itself or on none, not on communication.
    pub const fn is_communication(self) -> bool {
        !matches!(self, Self::Compute | Self::GpuIdle | Self::GpuOther)
    }
}

/// Reads times by part. Earlier versions wrote fewer parts; those that are missing are 0.
pub(super) fn times<'de, D: Deserializer<'de>>(source: D) -> Result<[f64; PartKind::COUNT], D::Error> {
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
