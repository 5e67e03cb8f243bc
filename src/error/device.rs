//! Errors of a GPU or of NCCL, with the rank and the tensor concerned.

use std::sync::Arc;

use super::GpuError;

/// A call to the GPU or to NCCL failed, or cannot be made.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// Error of one tensor's operation.
    #[error("tensor {tensor} on rank {rank}: {source}")]
    Tensor {
        /// The tensor.
        tensor: String,
        /// This rank.
        rank: usize,
        /// The error of the library.
        source: Arc<GpuError>,
    },
    /// Error of the rank as a whole.
    #[error("rank {rank}: {source}")]
    Rank {
        /// This rank.
        rank: usize,
        /// The error of the library.
        source: Arc<GpuError>,
    },
}

impl DeviceError {
    /// Makes the error of rank `rank`'s device.
    pub(crate) fn of_rank(rank: usize, source: GpuError) -> Self {
        let source = Arc::new(source);
        Self::Rank { rank, source }
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        match self {
            Self::Tensor { rank, .. } | Self::Rank { rank, .. } => *rank,
        }
    }

    /// Name of the tensor, for an error of one tensor's operation.
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

    /// Returns the error as one of `tensor`.
    pub(crate) fn of_tensor(self, tensor: String) -> Self {
        match self {
            Self::Tensor { rank, source, .. } | Self::Rank { rank, source } => Self::Tensor {
                tensor,
                rank,
                source,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn an_error_of_a_rank_becomes_one_of_a_tensor() {
        let source = Arc::new(GpuError::Capturing);
        let of_rank = DeviceError::Rank { rank: 3, source };
        let of_tensor = of_rank.clone().of_tensor("layer1".to_owned());
        assert_eq!((of_rank.tensor(), of_rank.rank()), (None, 3));
        assert_eq!((of_tensor.tensor(), of_tensor.rank()), (Some("layer1"), 3));
        assert_eq!(of_tensor.gpu_error(), &GpuError::Capturing);
        assert_eq!(
            Error::from(of_rank).to_string(),
            format!("rank 3: {}", GpuError::Capturing)
        );
        let text = Error::from(of_tensor).to_string();
        assert_eq!(
            text,
            format!("tensor layer1 on rank 3: {}", GpuError::Capturing)
        );
    }
}
