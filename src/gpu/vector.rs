//! Vectors in GPU memory, for programs without another library for it.

#![allow(unsafe_code)] // copies between the device and host memory

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::layout::places;
use super::{Device, Entry, GpuError, Kernel, Stream, Table, devices};
use crate::buffer::Buffer;
use crate::tensor::{self, Element};

/// A fixed number of elements in the memory of a CUDA device: a [`Buffer`] that reductions and
/// broadcasts work on in place.
///
/// ```no_run
/// use ronde::{Context, CudaVec, ReduceOp};
/// let context = Context::from_env()?;
/// let gradient = CudaVec::from_slice(context.local_rank() as u32, &[0.5f32; 1000])?;
/// let gradient = context.allreduce("gradient", gradient, ReduceOp::Average)?.wait()?;
/// assert_eq!(gradient.to_vec()?, [0.5; 1000]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CudaVec<T: Element> {
    device: Arc<Device>,
    address: u64,
    elements: usize,
    element: PhantomData<T>,
}

/// Without the elements, which are on the GPU: [`CudaVec::to_vec`] copies them.
impl<T: Element> fmt::Debug for CudaVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaVec")
            .field("dtype", &T::DTYPE)
            .field("len", &self.elements)
            .field("device", &self.device.ordinal)
            .finish_non_exhaustive()
    }
}

impl<T: Element> CudaVec<T> {
    /// Copies the elements of `from` to CUDA device `ordinal`.
    ///
    /// # Errors
    /// The device cannot be opened, or has no memory left.
    pub fn from_slice(ordinal: u32, from: &[T]) -> Result<Self, GpuError> {
        let device = devices().get(ordinal)?;
        let address = device.gpu.allocate(size_of_val(from).max(1))?;
        let mut vector = Self {
            device,
            address,
            elements: from.len(),
            element: PhantomData,
        };
        vector.copy_from(from)?;
        Ok(vector)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.elements
    }

    /// Whether the vector is empty.
    pub fn is_empty(&self) -> bool {
        self.elements == 0
    }

    /// Copies the elements to host memory, after the earlier work of the device.
    ///
    /// # Errors
    /// The device has failed.
    pub fn to_vec(&self) -> Result<Vec<T>, GpuError> {
        let mut to = Vec::<T>::with_capacity(self.elements);
        // SAFETY: the vector has the capacity, and all elements are written.
        unsafe {
            let bytes = self.elements * size_of::<T>();
            self.device
                .gpu
                .download(to.as_mut_ptr().cast(), self.address, bytes)?;
            to.set_len(self.elements);
        }
        Ok(to)
    }

    /// Overwrites all elements.
    ///
    /// # Errors
    /// The device has failed.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_from(&mut self, from: &[T]) -> Result<(), GpuError> {
        assert_eq!(from.len(), self.elements, "as many elements are needed");
        self.write_front(from)
    }

    /// Overwrites the first elements.
    ///
    /// # Errors
    /// As for [`copy_from`](Self::copy_from).
    ///
    /// # Panics
    /// If there are more elements than the vector has.
    #[doc(hidden)]
    pub fn write_front(&mut self, from: &[T]) -> Result<(), GpuError> {
        assert!(from.len() <= self.elements, "no more than there are");
        // SAFETY: the slice is readable.
        unsafe {
            self.device
                .gpu
                .upload(self.address, from.as_ptr().cast(), size_of_val(from))
        }
    }

    /// Reads the first elements, as [`to_vec`](Self::to_vec) reads all.
    ///
    /// # Errors
    /// The device has failed.
    ///
    /// # Panics
    /// If there are more elements than the vector has.
    #[doc(hidden)]
    pub fn read_front(&self, to: &mut [T]) -> Result<(), GpuError> {
        assert!(to.len() <= self.elements, "no more than there are");
        // SAFETY: the slice is writable, and the bytes are valid elements.
        unsafe {
            self.device
                .gpu
                .download(to.as_mut_ptr().cast(), self.address, size_of_val(to))
        }
    }

    /// Returns a copy on the same device; `stream` has copied the elements when it has finished its
    /// current work.
    ///
    /// # Errors
    /// The device has no memory left.
    #[doc(hidden)]
    pub fn cloned_on(&self, stream: Stream) -> Result<Self, GpuError> {
        let mut copy = Self {
            device: Arc::clone(&self.device),
            address: self.device.gpu.allocate(self.bytes().max(1))?,
            elements: self.elements,
            element: PhantomData,
        };
        copy.copy_on(self, stream)?;
        Ok(copy)
    }

    /// Puts a copy of all elements of `from`, on the same device, on `stream`.
    ///
    /// # Errors
    /// The device has failed.
    ///
    /// # Panics
    /// If the lengths or the devices differ.
    #[doc(hidden)]
    pub fn copy_on(&mut self, from: &Self, stream: Stream) -> Result<(), GpuError> {
        assert_eq!(from.elements, self.elements, "as many elements are needed");
        self.check_device(from);
        if self.elements == 0 {
            return Ok(());
        }
        self.device
            .gpu
            .copy(self.address, from.address, self.bytes(), stream)
    }

    /// Number of elements that `parts` take when they are [packed](Self::pack_on).
    #[doc(hidden)]
    pub fn packed_len(parts: &[Self]) -> usize {
        places(parts.iter().map(Self::bytes))
            .last()
            .map_or(0, |bytes| bytes / size_of::<T>())
    }

    /// Puts copies of `parts`, on the same device, into this vector, as the runtime packs a batch
    /// into its fusion buffer: by one kernel, each at a multiple of 16 bytes. The copies run on
    /// `stream`.
    ///
    /// # Errors
    /// The device has failed.
    ///
    /// # Panics
    /// If the vector has fewer than [`packed_len`](Self::packed_len) elements, or is on another
    /// device.
    #[doc(hidden)]
    pub fn pack_on(&mut self, parts: &[Self], stream: Stream) -> Result<(), GpuError> {
        self.copy_parts(parts, stream, |part, place| (part, place))
    }

    /// Copies the elements of `parts` back from the places where [`pack_on`](Self::pack_on) puts
    /// them.
    ///
    /// # Errors
    /// The device has failed.
    ///
    /// # Panics
    /// If the vector has fewer than [`packed_len`](Self::packed_len) elements, or is on another
    /// device.
    #[doc(hidden)]
    pub fn unpack_on(&self, parts: &mut [Self], stream: Stream) -> Result<(), GpuError> {
        self.copy_parts(parts, stream, |part, place| (place, part))
    }

    /// Copies parts by one kernel: `way` returns source and target for the address of a part and
    /// its place in this vector.
    fn copy_parts(
        &self,
        parts: &[Self],
        stream: Stream,
        way: impl Fn(u64, u64) -> (u64, u64),
    ) -> Result<(), GpuError> {
        assert!(Self::packed_len(parts) <= self.elements, "all parts fit");
        parts.iter().for_each(|part| self.check_device(part));
        let places = places(parts.iter().map(Self::bytes));
        let entry = |(part, place): (&Self, usize)| {
            let (from, to) = way(part.address, self.address + place as u64);
            let elements = part.bytes();
            (elements > 0).then_some(Entry { from, to, elements })
        };
        let entries: Vec<Entry> = parts.iter().zip(places).filter_map(entry).collect();
        Table::of(Kernel::Copy, 1.0, 1, &entries)
            .iter()
            .try_for_each(|table| self.device.gpu.launch(Kernel::Copy, table, stream))
    }

    fn check_device(&self, other: &Self) {
        let [ours, theirs] = [self, other].map(|vector| vector.device.ordinal);
        assert_eq!(ours, theirs, "both vectors are on one device");
    }

    fn bytes(&self) -> usize {
        self.elements * size_of::<T>()
    }

    /// Address on the device.
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl<T: Element> Drop for CudaVec<T> {
    fn drop(&mut self) {
        self.device.gpu.free(self.address);
    }
}

// SAFETY: the device's memory stays where it is until it is dropped.
unsafe impl<T: Element> Buffer for CudaVec<T> {
    type Element = T;

    fn elements(&self) -> usize {
        self.elements
    }

    fn address(&mut self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address as usize)
    }

    fn device(&self) -> tensor::Device {
        tensor::Device::Cuda {
            ordinal: self.device.ordinal,
            stream: 0, // copies to it are complete when they return
        }
    }
}
