//! Copies between private memory and the ring.
//!
//! Not libc's: that changes its method with the length (`rep movsb`, non-temporal stores past a share of the cache),
//! and either would push the ring out of cache or stall on lines that another core holds.

use super::Level;

/// Bytes moved at a time: one cache line.
const LINE_BYTES: usize = 64;

/// Copies with the widest registers there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copier {
    run: unsafe fn(*const u8, *mut u8, usize),
}

impl Copier {
    /// The copy for `level`.
    pub(crate) fn new(level: Level) -> Self {
        Self {
            run: match level {
                Level::Baseline => copy_baseline,
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => copy_avx2,
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => copy_avx512,
            },
        }
    }

    /// Copies `bytes` bytes.
    ///
    /// # Safety
    /// The source must be readable and the target writable for `bytes` bytes, and they must not overlap.
    pub(crate) unsafe fn copy(&self, source: *const u8, target: *mut u8, bytes: usize) {
        // SAFETY: `run` was chosen for a level that this processor has; the rest is the caller's promise.
        unsafe { (self.run)(source, target, bytes) }
    }
}

#[inline(always)]
unsafe fn copy(source: *const u8, target: *mut u8, bytes: usize) {
    let lines_bytes = bytes / LINE_BYTES * LINE_BYTES;
    let mut at = 0;
    while at < lines_bytes {
        // SAFETY: a whole line lies inside of both ranges.
        unsafe {
            let line = source.add(at).cast::<[u8; LINE_BYTES]>().read_unaligned();
            target.add(at).cast::<[u8; LINE_BYTES]>().write_unaligned(line);
        }
        at += LINE_BYTES;
    }
    // SAFETY: the rest of both ranges.
    unsafe { std::ptr::copy_nonoverlapping(source.add(at), target.add(at), bytes - at) };
}

unsafe fn copy_baseline(source: *const u8, target: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy(source, target, bytes) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn copy_avx2(source: *const u8, target: *mut u8, bytes: usize) {
    // SAFETY: as above.
    unsafe { copy(source, target, bytes) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn copy_avx512(source: *const u8, target: *mut u8, bytes: usize) {
    // SAFETY: as above.
    unsafe { copy(source, target, bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_skew() {
        let source: Vec<u8> = (0..400).map(|x| x as u8).collect();
        for level in Level::available() {
            for bytes in [0, 1, 63, 64, 65, 128, 200, 270] {
                for skew in [0, 1, 5, 64] {
                    let mut target = vec![0xff; 400];
                    // SAFETY: 128 + 270 < 400.
                    unsafe {
                        Copier::new(level).copy(
                            source[skew..].as_ptr(),
                            target[2 * skew..].as_mut_ptr(),
                            bytes,
                        )
                    };
                    let end = 2 * skew + bytes;
                    assert_eq!(target[2 * skew..end], source[skew..skew + bytes]);
                    assert!(
                        target[..2 * skew]
                            .iter()
                            .chain(&target[end..])
                            .all(|byte| *byte == 0xff)
                    );
                }
            }
        }
    }
}
