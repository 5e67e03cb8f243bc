//! Copies a few elements of many vectors between host memory and a GPU, with one kernel for all of them.
//!
//! A copy of its own for each would take longer than a training step.

use super::{CudaVec, Entry, GpuError, Kernel, Stopwatch, Table};
use crate::tensor::Element;

/// Elements of many vectors on one GPU that are copied together, to the device ([`send`](Self::send)) or from it
/// ([`fetch`](Self::fetch)). The vectors must live until then.
pub struct Shuttle {
    ordinal: u32,
    stopwatch: Stopwatch,
    /// What it carries, here and on the device, where there may be room for more.
    here: Vec<u8>,
    there: CudaVec<u8>,
    /// Address and length of each stretch, in the order in which they lie in `here`.
    stretches: Vec<(u64, usize)>,
    /// Bytes of `here` that have been unloaded.
    unloaded: usize,
}

impl Shuttle {
    /// To and from CUDA device `ordinal`.
    ///
    /// # Errors
    /// A device that cannot be had, or has no memory left.
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

    /// Adds the bytes of elements that lie at position `index` and after it in `vector`.
    ///
    /// # Panics
    /// If the vector does not have as many.
    pub fn load<T: Element>(&mut self, vector: &CudaVec<T>, index: usize, bytes: &[u8]) {
        assert!(
            index * size_of::<T>() + bytes.len() <= vector.len() * size_of::<T>(),
            "the elements are within the vector"
        );
        let address = vector.address() + (index * size_of::<T>()) as u64;
        self.here.extend_from_slice(bytes);
        self.stretches.push((address, bytes.len()));
    }

    /// Copies all that was loaded to the device, and waits until it is there.
    ///
    /// # Errors
    /// What has gone wrong on the device.
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

    /// Copies from the device the elements in the places of all that was loaded, for [`unload`](Self::unload).
    ///
    /// # Errors
    /// What has gone wrong on the device.
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

    /// The next bytes that have been fetched, as many as were loaded.
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

    /// Copies all stretches on the device: `way` makes of a place in `there` and an address elsewhere from where and to where.
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
