//! Errors of a GPU or of NCCL, with the rank and the tensor that they belong to.

use std::sync::Arc;

use crate::gpu::GpuError;

/// A call to the GPU or to NCCL failed, or cannot be made.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// It belongs to one tensor.
    #[error("tensor {tensor} on rank {rank}: {source}")]
    Tensor {
        /// The tensor.
        tensor: String,
        /// This rank.
        rank: usize,
        /// The error of the library.
        source: Arc<GpuError>,
    },
    /// It belongs to the rank as a whole.
    #[error("rank {rank}: {source}")]
    Rank {
        /// This rank.
        rank: usize,
        /// The error of the library.
        source: Arc<GpuError>,
    },
}

impl DeviceError {
    /// This rank.
    pub fn rank(&self) -> usize {
        match self {
            Self::Tensor { rank, .. } | Self::Rank { rank, .. } => *rank,
        }
    }

    /// The tensor that the error belongs to, if it is one.
    pub fn tensor(&self) -> Option<&str> {
        match self {
            Self::Tensor { tensor, .. } => Some(tensor),
            Self::Rank { .. } => None,
        }
    }

    /// The error of the library.
    pub fn gpu_error(&self) -> &GpuError {
        match self {
            Self::Tensor { source, .. } | Self::Rank { source, .. } => source,
        }
    }

    /// The same error of the same rank, as one of `tensor`.
    pub(crate) fn of_tensor(self, tensor: String) -> Self {
        match self {
            Self::Tensor { rank, source, .. } | Self::Rank { rank, source } => {
                Self::Tensor { tensor, rank, source }
            }
        }
    }
}
