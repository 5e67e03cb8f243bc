//! Simulated device memory. Addresses are never reused and never adjacent, so that accesses beyond
//! an allocation, or after it was freed, are detected.

use std::collections::BTreeMap;

/// Alignment of allocations, as the driver's.
const ALIGNMENT: u64 = 256;

/// Allocations of a device.
pub(super) struct Memory {
    blocks: BTreeMap<u64, Block>,
    next: u64,
}

struct Block {
    bytes: Vec<u8>,
    length: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Allocated once a stream has reached the allocation.
    Promised,
    Here,
    Freed,
}

impl Memory {
    /// Makes the memory of device `at`.
    pub(super) fn new(at: usize) -> Self {
        Self {
            blocks: BTreeMap::new(),
            next: (at as u64 + 1) << 44,
        }
    }

    pub(super) fn allocate(&mut self, bytes: usize, is_here: bool) -> u64 {
        let address = self.next;
        self.next = (address + bytes as u64).next_multiple_of(ALIGNMENT) + ALIGNMENT;
        let block = Block {
            bytes: (0..bytes)
                .map(|at| (at as u8).wrapping_mul(0x3b) ^ 0xa5)
                .collect(), // memory is not zero initially
            length: bytes,
            state: if is_here {
                State::Here
            } else {
                State::Promised
            },
        };
        self.blocks.insert(address, block);
        address
    }

    /// Makes the allocation wait for its stream.
    pub(super) fn promise(&mut self, address: u64) {
        self.set(address, State::Promised);
    }

    /// The stream has reached the allocation.
    pub(super) fn arrive(&mut self, address: u64) {
        self.set(address, State::Here);
    }

    fn set(&mut self, address: u64, state: State) {
        if let Some(block) = self.blocks.get_mut(&address) {
            block.state = state;
        }
    }

    pub(super) fn free(&mut self, address: u64) -> Result<(), String> {
        match self.blocks.get_mut(&address) {
            Some(block) if block.state != State::Freed => {
                block.state = State::Freed;
                block.bytes = Vec::new();
                Ok(())
            }
            Some(_) => Err(format!("{address:#x} is freed twice")),
            None => Err(format!("{address:#x} is freed and was never allocated")),
        }
    }

    pub(super) fn live(&self) -> usize {
        self.blocks
            .values()
            .filter(|block| block.state != State::Freed)
            .count()
    }

    pub(super) fn read(&self, address: u64, bytes: usize) -> Result<&[u8], String> {
        let (base, at) = self.place(address, bytes)?;
        Ok(&self.blocks[&base].bytes[at..at + bytes])
    }

    pub(super) fn write(&mut self, address: u64, from: &[u8]) -> Result<(), String> {
        let (base, at) = self.place(address, from.len())?;
        let block = self.blocks.get_mut(&base).ok_or("just found")?;
        block.bytes[at..at + from.len()].copy_from_slice(from);
        Ok(())
    }

    /// Returns the block that contains this many bytes from `address` on, and their offset in it.
    fn place(&self, address: u64, bytes: usize) -> Result<(u64, usize), String> {
        let Some((&base, block)) = self.blocks.range(..=address).next_back() else {
            return Err(format!(
                "{bytes} bytes at {address:#x}, where there is nothing"
            ));
        };
        let at = (address - base) as usize;
        match block.state {
            _ if at + bytes > block.length => Err(format!(
                "{bytes} bytes at {address:#x}, {at} bytes into an allocation of {}",
                block.length
            )),
            State::Here => Ok((base, at)),
            State::Promised => Err(format!(
                "{bytes} bytes at {address:#x} before a stream has brought them"
            )),
            State::Freed => Err(format!(
                "{bytes} bytes at {address:#x} after they were freed"
            )),
        }
    }
}
