//! Copies a few elements of many vectors between host memory and a GPU, with one kernel for all of
//! them.
//!
//! One copy for each vector would take longer than a training step.

use std::fmt;

use super::{CudaVec, Entry, GpuError, Kernel, Stopwatch, Table};
use crate::tensor::Element;

/// Elements of many vectors on one GPU that are copied together, to the device
/// ([`send`](Self::send)) or from it ([`fetch`](Self::fetch)). The vectors must live until then.
pub struct Shuttle {
    ordinal: u32,
    stopwatch: Stopwatch,
    /// Bytes to copy, in host memory and on the device; the device may have room for more.
    here: Vec<u8>,
    there: CudaVec<u8>,
    /// Address and length of each part, in the order in which they lie in `here`.
    stretches: Vec<(u64, usize)>,
    /// Bytes of `here` that have been unloaded.
    unloaded: usize,
}

impl fmt::Debug for Shuttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shuttle")
            .field("device", &self.ordinal)
            .finish_non_exhaustive()
    }
}

impl Shuttle {
    /// Makes a shuttle to and from CUDA device `ordinal`.
    ///
    /// # Errors
    /// The device cannot be opened, or has no memory left.
    pub fn new(ordinal: u32) -> Result<Self, GpuError> {
        Ok(Self {
            ordinal,
            stopwatch: Stopwatch::new(ordinal)?,
            here: Vec::new(),
            there: CudaVec::from_slice(ordinal, &[])?,
            stretches: Vec::new(),
            unloaded: 0,
        })
    }

    /// Adds the bytes of the elements from position `index` on in `vector`.
    ///
    /// # Panics
    /// If the vector has too few elements.
    pub fn load<T: Element>(&mut self, vector: &CudaVec<T>, index: usize, bytes: &[u8]) {
        assert!(
            index * size_of::<T>() + bytes.len() <= vector.len() * size_of::<T>(),
            "the elements are within the vector"
        );
        let address = vector.address() + (index * size_of::<T>()) as u64;
        self.here.extend_from_slice(bytes);
        self.stretches.push((address, bytes.len()));
    }

    /// Copies all loaded elements to the device, and waits for the copy.
    ///
    /// # Errors
    /// The device has failed.
    pub fn send(&mut self) -> Result<(), GpuError> {
        if self.stretches.is_empty() {
            return Ok(());
        }
        self.make_room()?;
        self.there.write_front(&self.here)?;
        self.carry(|place, address| (place, address))?;
        self.here.clear();
        self.stretches.clear();
        Ok(())
    }

    /// Copies the elements at the positions of all loaded ones from the device, for
    /// [`unload`](Self::unload).
    ///
    /// # Errors
    /// The device has failed.
    pub fn fetch(&mut self) -> Result<(), GpuError> {
        if self.stretches.is_empty() {
            return Ok(());
        }
        self.make_room()?;
        self.carry(|place, address| (address, place))?;
        self.stretches.clear();
        self.unloaded = 0;
        self.there.read_front(&mut self.here)
    }

    /// Returns the next bytes that have been fetched, as many as were loaded.
    ///
    /// # Panics
    /// If fewer are left.
    pub fn unload(&mut self, bytes: &mut [u8]) {
        let next = self.unloaded..self.unloaded + bytes.len();
        bytes.copy_from_slice(&self.here[next.clone()]);
        self.unloaded = next.end;
        if next.end == self.here.len() {
            self.here.clear();
        }
    }

    fn make_room(&mut self) -> Result<(), GpuError> {
        if self.there.len() < self.here.len() {
            self.there = CudaVec::from_slice(self.ordinal, &self.here)?;
        }
        Ok(())
    }

    /// Copies all parts on the device: `way` returns source and target for a position in `there`
    /// and an address elsewhere.
    fn carry(&self, way: impl Fn(u64, u64) -> (u64, u64)) -> Result<(), GpuError> {
        let mut place = self.there.address();
        let entry = |&(address, elements): &(u64, usize)| {
            let (from, to) = way(place, address);
            place += elements as u64;
            Entry { from, to, elements }
        };
        let entries: Vec<Entry> = self.stretches.iter().map(entry).collect();
        let kernel = Kernel::Copy;
        let gpu = &self.stopwatch.device.gpu;
        let tables = Table::of(kernel, 1.0, 1, &entries);
        let copied = self.stopwatch.time(|stream| {
            tables
                .iter()
                .try_for_each(|table| gpu.launch(kernel, table, stream))
        });
        copied.map(drop)
    }
}
