//! Atomics and futexes, replaced by loom's models in loom tests (`RUSTFLAGS="--cfg loom" cargo test
//! --lib loom_`).
//!
//! The futex words lie in memory that processes share, so none of these calls uses the
//! process-private kind.

#[cfg(all(loom, test))]
pub(crate) use modelled::*;
#[cfg(not(all(loom, test)))]
pub(crate) use real::*;

#[cfg(not(all(loom, test)))]
mod real {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use rustix::io::Errno;
    use rustix::thread::futex;
    use rustix::time::Timespec;

    use crate::clock::Nanos;

    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    /// Sleeps while `word` is `seen`, at most for `timeout`. The caller must check its condition
    /// again, whatever ended the sleep.
    pub(crate) fn futex_wait(word: &AtomicU32, seen: u32, timeout: Duration) {
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        // Woken, timed out, interrupted, or the value has changed: in each case the caller checks
        // again.
        let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&timeout));
    }

    /// Wakes all threads that sleep on `word`.
    pub(crate) fn futex_wake(word: &AtomicU32) {
        // The number of woken threads is not needed, and waking cannot fail on a mapped word.
        let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
    }

    /// Sleeps as [`futex_wait`] does, until `deadline` on the monotonic clock; only a wake-up with
    /// one of `bits` ends the sleep. Returns whether the deadline has passed.
    pub(crate) fn futex_wait_bits(
        word: &AtomicU32,
        seen: u32,
        deadline: Option<Nanos>,
        bits: NonZeroU32,
    ) -> bool {
        let deadline = deadline.map(|at| Timespec {
            tv_sec: (at.0 / 1_000_000_000) as i64,
            tv_nsec: (at.0 % 1_000_000_000) as i64,
        });
        futex::wait_bitset(word, futex::Flags::empty(), seen, deadline.as_ref(), bits)
            == Err(Errno::TIMEDOUT)
    }

    /// Wakes the threads that sleep on `word` with one of `bits`.
    pub(crate) fn futex_wake_bits(word: &AtomicU32, bits: NonZeroU32) {
        // As in `futex_wake`.
        let _ = futex::wake_bitset(word, futex::Flags::empty(), i32::MAX as u32, bits);
    }
}

/// Model of the kernel's futex for loom: a queue under a lock, and a comparison of the word under
/// the same lock after a full barrier. Sleeps never time out, so that a lost wake-up shows as a
/// deadlock.
#[cfg(all(loom, test))]
mod modelled {
    use std::num::NonZeroU32;
    use std::sync::Arc;
    use std::time::Duration;

    use loom::sync::{Condvar, Mutex};

    use crate::clock::Nanos;

    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    struct Sleeper {
        word: usize,
        bits: u32,
        bell: Arc<Condvar>,
    }

    loom::lazy_static! {
        static ref QUEUE: Mutex<Vec<Sleeper>> = Mutex::new(Vec::new());
    }

    fn sleep(word: &AtomicU32, seen: u32, bits: u32) {
        let mut queue = QUEUE.lock().unwrap();
        fence(Ordering::SeqCst);
        if word.load(Ordering::Relaxed) != seen {
            return;
        }
        let bell = Arc::new(Condvar::new());
        queue.push(Sleeper {
            word: std::ptr::from_ref(word).addr(),
            bits,
            bell: Arc::clone(&bell),
        });
        while queue
            .iter()
            .any(|sleeper| Arc::ptr_eq(&sleeper.bell, &bell))
        {
            queue = bell.wait(queue).unwrap();
        }
    }

    fn wake(word: &AtomicU32, bits: u32) {
        let word = std::ptr::from_ref(word).addr();
        QUEUE.lock().unwrap().retain(|sleeper| {
            let woken = sleeper.word == word && sleeper.bits & bits != 0;
            if woken {
                sleeper.bell.notify_one();
            }
            !woken
        });
    }

    pub(crate) fn futex_wait(word: &AtomicU32, seen: u32, _timeout: Duration) {
        sleep(word, seen, u32::MAX);
    }

    pub(crate) fn futex_wake(word: &AtomicU32) {
        wake(word, u32::MAX);
    }

    pub(crate) fn futex_wait_bits(
        word: &AtomicU32,
        seen: u32,
        _deadline: Option<Nanos>,
        bits: NonZeroU32,
    ) -> bool {
        sleep(word, seen, bits.get());
        false
    }

    pub(crate) fn futex_wake_bits(word: &AtomicU32, bits: NonZeroU32) {
        wake(word, bits.get());
    }
}
