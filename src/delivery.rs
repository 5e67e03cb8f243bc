//! Output buffer allocated by the runtime (allgather, alltoall, reducescatter), with its shape.

#![allow(unsafe_code)] // memory that the runtime allocates for results

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::error::GpuError;
use crate::gpu;
use crate::tensor::{Device, Dtype, Element, Shape, Span};

/// Output of an operation, beside the data written to the caller's memory.
#[derive(Debug, Default)]
pub struct Delivery {
    /// The elements, if the caller asked the runtime to allocate the output.
    pub memory: Option<Memory>,
    /// Dimensions of the output.
    pub shape: Shape,
    /// Alltoall: the rows received from each rank of the process set.
    pub splits: Vec<usize>,
    /// Join: the last rank that joined.
    pub last_joined: Option<usize>,
}

/// Memory for the elements of one tensor: in host memory allocated as a `Vec` of its element type
/// would be, or on a GPU.
#[derive(Debug)]
pub struct Memory {
    address: NonNull<u8>,
    layout: Layout,
    dtype: Dtype,
    /// `None` for host memory.
    on: Option<OnGpu>,
}

/// Memory on a GPU.
struct OnGpu {
    device: Arc<gpu::Device>,
    /// The caller's stream: the memory is freed when the work that is on that stream then has
    /// completed.
    stream: gpu::Stream,
    /// Another stream on which the memory is used.
    also: Option<gpu::Stream>,
}

impl std::fmt::Debug for OnGpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CUDA device {}", self.device.ordinal)
    }
}

// SAFETY: it is the only owner of its allocation, which any thread may write and free.
unsafe impl Send for Memory {}

impl Memory {
    /// Allocates `bytes` bytes for elements of type `dtype`, with unspecified contents; `None` if
    /// there is not enough memory.
    pub(crate) fn new(dtype: Dtype, bytes: usize) -> Option<Self> {
        // Every element type is aligned to its size; `into_vec` checks.
        let layout = Layout::from_size_align(bytes, dtype.size_bytes()).ok()?;
        let address = if bytes == 0 {
            NonNull::without_provenance(layout.align().try_into().ok()?)
        } else {
            // SAFETY: the layout is not empty.
            NonNull::new(unsafe { std::alloc::alloc(layout) })?
        };
        Some(Self {
            address,
            layout,
            dtype,
            on: None,
        })
    }

    /// Allocates memory on a GPU. It is usable for work that is submitted to `stream` from now on,
    /// and freed in the order of the caller's stream.
    pub(crate) fn on_device(
        dtype: Dtype,
        bytes: usize,
        device: &Arc<gpu::Device>,
        stream: gpu::Stream,
        callers: gpu::Stream,
    ) -> Option<Self> {
        let layout = Layout::from_size_align(bytes, dtype.size_bytes()).ok()?;
        // At least one byte, because a null address would mean an absent tensor.
        let address = device.gpu.allocate_on(bytes.max(1), stream).ok()?;
        Some(Self {
            address: NonNull::new(std::ptr::with_exposed_provenance_mut(address as usize))?,
            layout,
            dtype,
            on: Some(OnGpu {
                device: Arc::clone(device),
                stream: callers,
                also: None,
            }),
        })
    }

    /// Device that holds the memory.
    pub fn device(&self) -> Device {
        self.on.as_ref().map_or(Device::Cpu, |on| Device::Cuda {
            ordinal: on.device.ordinal,
            stream: on.stream.0,
        })
    }

    /// The memory is used on this CUDA stream too, and is freed when the work that is then on both
    /// has completed. No effect on host memory.
    ///
    /// # Safety
    /// `stream` is 0, or a stream of the memory's device that exists until the memory is freed.
    pub unsafe fn also_used_on(&mut self, stream: u64) {
        if let Some(on) = &mut self.on {
            on.also = Some(gpu::Stream(stream)).filter(|also| *also != on.stream);
        }
    }

    /// Address of the first byte.
    pub fn address(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    /// Returns `span` with this memory as its output. The memory must be kept until the operation
    /// has completed; the caller has allocated it with the length of the result.
    pub(crate) fn as_output_of(&self, span: Span) -> Span {
        // SAFETY: writable, aligned, and disjoint from all other memory; no other code has the
        // address yet.
        unsafe { span.with_output(self.address()) }
    }

    /// Length in bytes.
    pub fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// Element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Returns the elements, copied to host memory if they are on a GPU; `None` if they are not of
    /// type `T`.
    ///
    /// # Errors
    /// Their device has failed.
    ///
    /// # Safety
    /// All elements must have been written.
    pub(crate) unsafe fn into_vec<T: Element>(self) -> Result<Option<Vec<T>>, GpuError> {
        if self.dtype != T::DTYPE || align_of::<T>() != self.layout.align() {
            return Ok(None);
        }
        let elements = self.layout.size() / size_of::<T>();
        if let Some(on) = &self.on {
            let mut vector = Vec::<T>::with_capacity(elements);
            let from = self.address.as_ptr().expose_provenance() as u64;
            // SAFETY: there is room for all elements, and all of them are written, on the device by
            // the caller's contract.
            unsafe {
                let to = vector.as_mut_ptr().cast();
                on.device.gpu.download(to, from, self.layout.size())?;
                vector.set_len(elements);
            }
            return Ok(Some(vector));
        }
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: allocated by the global allocator with the layout of `elements` values of `T`, or
        // dangling if there are none; written, by the caller's contract; and no longer owned by
        // `this`.
        let vector =
            unsafe { Vec::from_raw_parts(this.address.as_ptr().cast(), elements, elements) };
        Ok(Some(vector))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(on) = &self.on {
            if let Some(also) = on.also {
                // An error means that the device has failed, and does no more work.
                let mark = on.device.mark(also, false);
                let _ = mark.and_then(|mark| mark.precede(on.stream));
            }
            on.device
                .gpu
                .free_on(self.address.as_ptr().expose_provenance() as u64, on.stream);
        } else if self.layout.size() > 0 {
            // SAFETY: allocated in `new` with this layout, and not moved to a vector.
            unsafe { std::alloc::dealloc(self.address.as_ptr(), self.layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_becomes_a_vector_of_its_own_type_and_of_no_other() {
        let memory = Memory::new(Dtype::I64, 24).unwrap();
        for index in 0..3 {
            // SAFETY: within the 24 bytes.
            unsafe {
                memory
                    .address()
                    .cast::<i64>()
                    .add(index)
                    .write(index as i64)
            };
        }
        // SAFETY: all three elements are written.
        let vector = unsafe { memory.into_vec::<i64>() }.unwrap();
        assert_eq!(vector, Some(vec![0, 1, 2]));
        // SAFETY: refused before anything is read.
        let other = unsafe { Memory::new(Dtype::I64, 24).unwrap().into_vec::<f64>() }.unwrap();
        assert_eq!(other, None);
        let empty = Memory::new(Dtype::F32, 0).unwrap();
        // SAFETY: there are no elements.
        assert_eq!(unsafe { empty.into_vec::<f32>() }.unwrap(), Some(vec![]));
    }

    #[test]
    fn an_allocation_beyond_the_memory_is_none() {
        assert!(Memory::new(Dtype::F32, isize::MAX as usize - 3).is_none());
        assert!(Memory::new(Dtype::F32, usize::MAX).is_none());
    }
}
