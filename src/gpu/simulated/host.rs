//! Simulated pinned host memory: real memory of this process, looked up when a stream reaches a
//! copy.

#![allow(unsafe_code)] // simulated pinned memory

use std::collections::BTreeMap;

/// Blocks of pinned memory: lengths, by address.
#[derive(Default)]
pub(super) struct HostMemory {
    blocks: BTreeMap<usize, usize>,
}

impl HostMemory {
    pub(super) fn allocate(&mut self, bytes: usize) -> usize {
        let block = Box::into_raw(vec![0xa5u8; bytes].into_boxed_slice());
        let address = block.cast::<u8>().expose_provenance();
        self.blocks.insert(address, bytes);
        address
    }

    pub(super) fn free(&mut self, address: usize) -> Result<(), String> {
        let Some(bytes) = self.blocks.remove(&address) else {
            return Err(format!("host memory at {address:#x} is freed, and is none"));
        };
        let block = std::ptr::slice_from_raw_parts_mut(pointer(address), bytes);
        // SAFETY: allocated above, and freed once.
        drop(unsafe { Box::from_raw(block) });
        Ok(())
    }

    pub(super) fn live(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn read(&self, address: usize, bytes: usize) -> Result<Vec<u8>, String> {
        let from = self.find(address, bytes)?;
        let mut read = vec![0; bytes];
        // SAFETY: inside a block; the caller that put the copy on the stream promised that it is
        // not written meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(from.cast_const(), read.as_mut_ptr(), bytes) };
        Ok(read)
    }

    pub(super) fn write(&self, address: usize, from: &[u8]) -> Result<(), String> {
        let to = self.find(address, from.len())?;
        // SAFETY: as above, and not accessed otherwise.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
        Ok(())
    }

    /// Returns a pointer to `address`, if this many bytes from there are in one block.
    fn find(&self, address: usize, bytes: usize) -> Result<*mut u8, String> {
        let block = self.blocks.range(..=address).next_back();
        match block {
            Some((base, length)) if address + bytes <= base + length => Ok(pointer(address)),
            _ => Err(format!(
                "{bytes} bytes of host memory at {address:#x}, which the device does not know"
            )),
        }
    }
}

fn pointer(address: usize) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address)
}
