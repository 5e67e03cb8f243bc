//! CUDA interface of a build without the feature `nccl`: every call returns an error.

use std::sync::Arc;

use super::{Gpu, GpuError};

pub(super) fn open(_: u32) -> Result<Arc<dyn Gpu>, GpuError> {
    Err(GpuError::NotBuilt)
}

pub(super) fn nccl_version() -> Option<u32> {
    None
}

pub(super) fn count() -> Result<u32, GpuError> {
    Err(GpuError::NotBuilt)
}
