//! Memory at a chosen alignment, with guard bytes around it.

/// Guard bytes on either side.
const GUARD_BYTES: usize = 64;
const GUARD: u8 = 0xa5;

/// Bytes with their guards.
pub(crate) struct Memory {
    all: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Memory {
    /// Creates memory with `bytes`, at an address that is `offset` more than a multiple of 64.
    pub(crate) fn holding(bytes: &[u8], offset: usize) -> Self {
        let mut all = vec![GUARD; bytes.len() + 2 * GUARD_BYTES + offset + 64];
        let start = GUARD_BYTES + all[GUARD_BYTES..].as_ptr().align_offset(64) + offset;
        all[start..][..bytes.len()].copy_from_slice(bytes);
        Self {
            all,
            start,
            bytes: bytes.len(),
        }
    }

    /// Address of the bytes, for a kernel to read or write.
    pub(crate) fn address(&mut self) -> u64 {
        self.all[self.start..].as_mut_ptr().expose_provenance() as u64
    }

    /// Returns the bytes; panics if a guard has changed.
    pub(crate) fn bytes(&self) -> &[u8] {
        let (before, rest) = self.all.split_at(self.start);
        let (bytes, after) = rest.split_at(self.bytes);
        assert!(
            before.iter().all(|&byte| byte == GUARD),
            "written before the target"
        );
        assert!(
            after.iter().all(|&byte| byte == GUARD),
            "written behind the target"
        );
        bytes
    }
}
