//! Shared memory between the ranks of one host: a mapped region, typed views of it, and a counter to wait on.
//!
//! All control data in a region is atomic, so the views are safe to use whatever a peer does; only the tensor
//! bytes are reached by raw address ([`Area`]), by the collective, under its own protocol. A region is zero when
//! created; every type in it means "nothing yet" at zero.

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;

use crate::error::Error;

/// How long a sleep may last before the sleeper looks whether its peers still live.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// How long a spin keeps its core to itself: several times what a published word takes to arrive.
const EAGER_SPIN: Duration = Duration::from_micros(5);

/// A mapping shared by all ranks of a host. Unmapped on drop; absent in forked children.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; views hand out atomics or raw addresses only.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Creates an anonymous file of `bytes` zero bytes, all of them allocated now (no SIGBUS later), and maps it.
    pub(crate) fn create(name: &str, bytes: usize) -> Result<(Self, OwnedFd), Errno> {
        let file = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes as u64)?;
        Ok((Self::map(&file, bytes)?, file))
    }

    /// Maps the first `bytes` bytes of a file made by [`create`](Self::create) in another process.
    pub(crate) fn map(file: impl AsFd, bytes: usize) -> Result<Self, Errno> {
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours.
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
        let region = Self { base, bytes };
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
        // SAFETY: the mapping was made by `map` and nothing can refer to it any more: views hold an `Arc`.
        // An error could only mean that the range was wrong, and is of no use to anyone here.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// A part of a region.
#[derive(Clone, Debug)]
pub(crate) struct Area {
    region: Arc<Region>,
    offset: usize,
    bytes: usize,
}

impl Area {
    /// The whole region.
    pub(crate) fn whole(region: Arc<Region>) -> Self {
        let bytes = region.bytes();
        Self {
            region,
            offset: 0,
            bytes,
        }
    }

    /// `bytes` bytes from `offset` of this area.
    ///
    /// # Panics
    /// If that is not inside: layouts are computed, never received.
    pub(crate) fn part(&self, offset: usize, bytes: usize) -> Self {
        assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= self.bytes),
            "area outside of its region"
        );
        Self {
            region: Arc::clone(&self.region),
            offset: self.offset + offset,
            bytes,
        }
    }

    /// A typed view of `count` values at the start of the area.
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
        assert!(base.addr().is_multiple_of(align_of::<T>()), "view is misaligned");
        // SAFETY: the address is inside a mapping, hence not null.
        let first = unsafe { NonNull::new_unchecked(base.cast::<T>()) };
        View {
            first,
            count,
            _region: Arc::clone(&self.region),
            _values: PhantomData,
        }
    }

    /// Address of the first byte. What is read or written there is the caller's protocol.
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
        // SAFETY: checked in `Area::view` to lie inside the mapping and to be aligned; any bits are valid values.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

/// Decides, during a long wait, whether it still makes sense.
pub(crate) trait Watch: Send + Sync {
    /// Called about every 100 ms while rank `on` (in the set) is being waited for since `waited`.
    ///
    /// # Errors
    /// The reason to give up.
    fn check(&self, on: usize, waited: Duration) -> Result<(), Error>;
}

/// A number that one rank raises and others wait for. Zero at first; compared modulo 2³², so it may wrap.
#[derive(Debug, Default)]
#[repr(C, align(128))] // two cache lines: the neighbouring-line prefetcher must not couple two ranks' counters
pub(crate) struct Counter {
    value: AtomicU32,
    sleepers: AtomicU32,
}

impl Counter {
    /// Raises the number to `value` and wakes who waits for it. What was written before is seen by who sees it.
    pub(crate) fn publish(&self, value: u32) {
        self.value.store(value, Ordering::Release);
        // The store must be visible before the look at `sleepers`, as in `wait` the count before the value:
        // otherwise both could miss one another.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            // The count of woken sleepers is of no interest, and waking cannot fail on a mapped word.
            let _ = futex::wake(&self.value, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// The number as it is now.
    pub(crate) fn value(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }

    /// Whether the number has come to `value` or gone beyond.
    pub(crate) fn reached(&self, value: u32) -> bool {
        self.value().wrapping_sub(value) as i32 >= 0
    }

    /// Waits until the number has come to `value`: spins for `spin`, then sleeps, asking `watch` about rank `on`
    /// every 100 ms.
    ///
    /// # Errors
    /// What `watch` says.
    pub(crate) fn wait(&self, value: u32, spin: Duration, on: usize, watch: &dyn Watch) -> Result<(), Error> {
        if self.reached(value) || self.spin(value, spin) {
            return Ok(());
        }
        let began = Instant::now();
        loop {
            self.sleepers.fetch_add(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let seen = self.value.load(Ordering::Acquire);
            if (seen.wrapping_sub(value) as i32) < 0 {
                let timeout = rustix::time::Timespec {
                    tv_sec: 0,
                    tv_nsec: WATCH_INTERVAL.as_nanos() as i64,
                };
                // Woken, timed out, interrupted or the value has changed: in each case look again.
                let _ = futex::wait(&self.value, futex::Flags::empty(), seen, Some(&timeout));
            }
            self.sleepers.fetch_sub(1, Ordering::Relaxed);
            if self.reached(value) {
                break Ok(());
            }
            if began.elapsed() >= WATCH_INTERVAL
                && let Err(error) = watch.check(on, began.elapsed())
            {
                break Err(error);
            }
        }
    }

    /// Spins for `limit`; whether the number has come to `value`. After [`EAGER_SPIN`] it offers its core to others
    /// between looks: the one waited for may be queued on this very core, as the scheduler likes to put a woken
    /// thread beside its waker.
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
