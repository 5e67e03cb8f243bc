//! Shared memory of the ranks of one host: a mapped region, typed views of it, and a counter to
//! wait on.
//!
//! All control data in a region is atomic, so the views are safe whatever another process writes.
//! Only the collective accesses the bytes of tensors, by address ([`Area`]) and under its own
//! protocol. A region is zero when it is created; zero is the initial state of every type in it.

#![allow(unsafe_code)] // maps memory that the ranks of a host share

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::{Pid, getpid};

use crate::error::Error;

#[deny(unsafe_code)]
pub(crate) mod primitive;

use primitive::{AtomicU32, AtomicU64, Ordering, fence, futex_wait, futex_wake};

/// Longest sleep before a waiting thread checks whether its peers are alive.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// Time that a spin does not offer its core to other threads: several times the latency of a
/// published word.
const EAGER_SPIN: Duration = Duration::from_micros(5);

/// Seals of a region's file. Without the first, a process that has the file open could truncate it,
/// and other processes would get a SIGBUS on the next access. The last one makes the set of seals
/// permanent.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// Bytes that are allocated by one call.
const ALLOCATION_BYTES: usize = 1 << 20;

/// Reason why a file of another process cannot be mapped as a region.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RegionError {
    /// The length of the file could change while it is mapped.
    #[error("it is not sealed against a change of its length")]
    Unsealed,
    /// The file has another length.
    #[error("it has {found} bytes instead of {expected}")]
    Length {
        /// Bytes of the file.
        found: u64,
        /// Bytes of the region.
        expected: usize,
    },
    /// A system call failed.
    #[error("{}", std::io::Error::from_raw_os_error(.0.raw_os_error()))]
    System(Errno),
}

/// Mapping that all ranks of a host share. Unmapped on drop; not mapped in forked children.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    bytes: usize,
    /// Process that mapped it: in a forked child the region is not mapped at this address.
    owner: Pid,
}

// SAFETY: the mapping belongs to the process, not to a thread; views hand out atomics or raw
// addresses only.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Creates an anonymous file of `bytes` zero bytes and maps it. All bytes are allocated now (no
    /// SIGBUS later), and the length is sealed.
    pub(crate) fn create(name: &str, bytes: usize) -> Result<(Self, OwnedFd), Errno> {
        let file = Self::create_file(name, bytes)?;
        Ok((Self::map(&file, bytes)?, file))
    }

    /// Creates the file of [`create`](Self::create), for other processes to [`open`](Self::open).
    pub(crate) fn create_file(name: &str, bytes: usize) -> Result<OwnedFd, Errno> {
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        // In pieces: a signal interrupts a call, which then frees what it has allocated. Beside a
        // profiler's timer a large call would begin again for ever.
        for from in (0..bytes).step_by(ALLOCATION_BYTES) {
            let (from, piece) = (from as u64, ALLOCATION_BYTES.min(bytes - from) as u64);
            rustix::io::retry_on_intr(|| {
                rustix::fs::fallocate(&file, FallocateFlags::empty(), from, piece)
            })?;
        }
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        Ok(file)
    }

    /// Maps a file of `bytes` bytes that another process made by
    /// [`create_file`](Self::create_file), after a check that it has this length and keeps
    /// it. Another process of this user could still take pages away from it (`fallocate`).
    ///
    /// # Errors
    /// A file of another length or without seals; a failed system call.
    pub(crate) fn open(file: impl AsFd, bytes: usize) -> Result<Self, RegionError> {
        match rustix::fs::fcntl_get_seals(&file) {
            Ok(seals) if seals.contains(SEALS) => {}
            // Only files in memory have seals.
            Ok(_) | Err(Errno::INVAL) => return Err(RegionError::Unsealed),
            Err(error) => return Err(RegionError::System(error)),
        }
        // The seals are in place: the length cannot change after this check.
        let stat = rustix::fs::fstat(&file).map_err(RegionError::System)?;
        let found = u64::try_from(stat.st_size).unwrap_or(0);
        if found != bytes as u64 {
            return Err(RegionError::Length {
                found,
                expected: bytes,
            });
        }
        Self::map(file, bytes).map_err(RegionError::System)
    }

    /// Maps the first `bytes` bytes of a file with a known and sealed length.
    fn map(file: impl AsFd, bytes: usize) -> Result<Self, Errno> {
        // SAFETY: a new mapping at an address that the kernel chooses does not alias other memory
        // of this process.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )?
        };
        let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::NOMEM)?;
        let region = Self {
            base,
            bytes,
            owner: getpid(),
        };
        // SAFETY: the range is the mapping just made; DONTFORK changes nothing in this process.
        unsafe {
            rustix::mm::madvise(
                region.base.as_ptr().cast(),
                bytes,
                rustix::mm::Advice::LinuxDontFork,
            )?;
        }
        Ok(region)
    }

    /// Length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if getpid() != self.owner {
            return;
        }
        // SAFETY: the mapping was made by `map` and has no more references: views hold an `Arc`. An
        // error could only mean a wrong range, and no caller could handle it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Part of a region.
#[derive(Clone, Debug)]
pub(crate) struct Area {
    region: Arc<Region>,
    offset: usize,
    bytes: usize,
}

impl Area {
    /// Returns the whole region.
    pub(crate) fn whole(region: Arc<Region>) -> Self {
        let bytes = region.bytes();
        Self {
            region,
            offset: 0,
            bytes,
        }
    }

    /// Returns `bytes` bytes from `offset` of this area.
    ///
    /// # Panics
    /// If the range is not inside: layouts are computed, never received.
    pub(crate) fn part(&self, offset: usize, bytes: usize) -> Self {
        assert!(
            offset
                .checked_add(bytes)
                .is_some_and(|end| end <= self.bytes),
            "area outside of its region"
        );
        Self {
            region: Arc::clone(&self.region),
            offset: self.offset + offset,
            bytes,
        }
    }

    /// Returns a typed view of `count` values at the start of the area.
    ///
    /// # Panics
    /// If they do not fit or are misaligned.
    pub(crate) fn view<T: Shareable>(&self, count: usize) -> View<T> {
        assert!(
            count
                .checked_mul(size_of::<T>())
                .is_some_and(|bytes| bytes <= self.bytes),
            "view does not fit"
        );
        let base = self.address();
        assert!(
            base.addr().is_multiple_of(align_of::<T>()),
            "view is misaligned"
        );
        // SAFETY: the address is inside a mapping, hence not null.
        let first = unsafe { NonNull::new_unchecked(base.cast::<T>()) };
        View {
            first,
            count,
            _region: Arc::clone(&self.region),
            _values: PhantomData,
        }
    }

    /// Returns the address of the first byte. The caller's protocol governs all accesses.
    pub(crate) fn address(&self) -> *mut u8 {
        // SAFETY: `offset` is inside the mapping (checked in `part`).
        unsafe { self.region.base.as_ptr().add(self.offset) }
    }

    /// Length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Types that may lie in memory which other processes write.
///
/// # Safety
/// Every bit pattern must be a valid value and every field must be atomic.
pub(crate) unsafe trait Shareable {}
// SAFETY: an atomic integer.
unsafe impl Shareable for AtomicU32 {}
// SAFETY: an atomic integer.
unsafe impl Shareable for AtomicU64 {}
// SAFETY: two atomic integers and padding.
unsafe impl Shareable for Counter {}

/// A slice of shared values that keeps its region mapped.
#[derive(Debug)]
pub(crate) struct View<T> {
    first: NonNull<T>,
    count: usize,
    _region: Arc<Region>,
    _values: PhantomData<T>,
}

// SAFETY: the values are atomics (`Shareable`), and the region is kept mapped.
unsafe impl<T: Shareable> Send for View<T> {}
// SAFETY: as above.
unsafe impl<T: Shareable> Sync for View<T> {}

impl<T: Shareable> Deref for View<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: checked in `Area::view` to lie inside the mapping and to be aligned; any bits are
        // valid values.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

/// Check during a long wait whether to go on waiting.
pub(crate) trait Watch: Send + Sync {
    /// Called about every 100 ms while rank `on` (in the set) is being waited for since `waited`.
    ///
    /// # Errors
    /// The reason to give up.
    fn check(&self, on: usize, waited: Duration) -> Result<(), Error>;

    /// Makes every wait that lasts beyond a time end with an error, also present ones; `None`
    /// removes the limit. Without effect for waits that cannot be ended from another thread.
    fn limit(&self, _limit: Option<(Instant, Error)>) {}

    /// Makes all waits end with `error` from now on, as [`limit`](Self::limit) does.
    fn abort(&self, error: &Error) {
        self.limit(Some((Instant::now(), error.clone())));
    }
}

/// Number that one rank raises and others wait for. It starts at zero; compared modulo 2³², so it
/// may wrap.
#[derive(Debug, Default)]
#[repr(C, align(128))] // two cache lines: the neighbouring-line prefetcher must not couple two ranks' counters
pub(crate) struct Counter {
    value: AtomicU32,
    sleepers: AtomicU32,
}

impl Counter {
    /// Raises the number to `value` and wakes its waiters. A thread that sees the value also sees
    /// all earlier writes.
    pub(crate) fn publish(&self, value: u32) {
        self.value.store(value, Ordering::Release);
        // The store must be visible before the load of `sleepers`, as in `wait` the count before
        // the load of the value. Otherwise both could miss each other.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            futex_wake(&self.value);
        }
    }

    /// Returns the present number.
    pub(crate) fn value(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }

    /// Whether the number has reached `value`.
    pub(crate) fn reached(&self, value: u32) -> bool {
        self.value().wrapping_sub(value) as i32 >= 0
    }

    /// Waits until the number has reached `value`: spins for `spin`, then sleeps and asks `watch`
    /// about rank `on` every 100 ms.
    ///
    /// # Errors
    /// The error of `watch`.
    pub(crate) fn wait(
        &self,
        value: u32,
        spin: Duration,
        on: usize,
        watch: &dyn Watch,
    ) -> Result<(), Error> {
        if self.reached(value) || self.spin(value, spin) {
            return Ok(());
        }
        let began = Instant::now();
        loop {
            self.sleepers.fetch_add(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let seen = self.value.load(Ordering::Acquire);
            if (seen.wrapping_sub(value) as i32) < 0 {
                futex_wait(&self.value, seen, WATCH_INTERVAL);
            }
            self.sleepers.fetch_sub(1, Ordering::Relaxed);
            if self.reached(value) {
                break Ok(());
            }
            if began.elapsed() >= WATCH_INTERVAL
                && let Err(error) = watch.check(on, began.elapsed())
            {
                // A rank may have raised the number before it left or died.
                break if self.reached(value) {
                    Ok(())
                } else {
                    Err(error)
                };
            }
        }
    }

    /// Spins for `limit`; returns whether the number has reached `value`. After [`EAGER_SPIN`] it
    /// offers its core to other threads between loads: the thread that raises the number may be
    /// queued on this core, because the scheduler often puts a woken thread beside its waker.
    fn spin(&self, value: u32, limit: Duration) -> bool {
        if limit.is_zero() {
            return false;
        }
        let began = Instant::now();
        loop {
            for _ in 0..64 {
                if self.reached(value) {
                    return true;
                }
                std::hint::spin_loop();
            }
            let spun = began.elapsed();
            if spun >= limit {
                return false;
            }
            if spun >= EAGER_SPIN {
                std::thread::yield_now();
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const BYTES: usize = 8192;

    fn unsealed(bytes: u64) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("ronde-test", flags).unwrap();
        rustix::fs::ftruncate(&file, bytes).unwrap();
        file
    }

    #[test]
    fn the_length_of_a_region_cannot_change() {
        let (region, file) = Region::create("ronde-test", BYTES).unwrap();
        for bytes in [0, BYTES as u64 - 1, BYTES as u64 + 1] {
            assert_eq!(
                rustix::fs::ftruncate(&file, bytes),
                Err(Errno::PERM),
                "{bytes} bytes"
            );
        }
        assert_eq!(
            rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE),
            Err(Errno::PERM),
            "a seal that would keep others from mapping it"
        );
        // Two mappings of the same memory.
        let same = Region::open(&file, BYTES).unwrap();
        let (one, other) = [region, same]
            .map(|region| Area::whole(Arc::new(region)))
            .into();
        let last = BYTES / 8 - 1;
        one.view::<AtomicU64>(last + 1)[last].store(7, Ordering::Relaxed);
        assert_eq!(
            other.view::<AtomicU64>(last + 1)[last].load(Ordering::Relaxed),
            7
        );
    }

    #[test]
    fn files_that_could_shrink_or_are_too_short_are_refused() {
        let check = |file: OwnedFd| Region::open(&file, BYTES).map(drop).unwrap_err();
        assert_eq!(check(unsealed(BYTES as u64)), RegionError::Unsealed);
        for bytes in [0, BYTES as u64 - 1, BYTES as u64 + 1] {
            let file = unsealed(bytes);
            rustix::fs::fcntl_add_seals(&file, SEALS).unwrap();
            let expected = RegionError::Length {
                found: bytes,
                expected: BYTES,
            };
            assert_eq!(check(file), expected);
        }
        // A file that could still get more seals is safe, but the runtime never makes such a file.
        let file = unsealed(BYTES as u64);
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        assert_eq!(check(file), RegionError::Unsealed);
        let ordinary = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(check(ordinary.into()), RegionError::Unsealed);
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        assert_eq!(check(pipe), RegionError::Unsealed);
    }
}
