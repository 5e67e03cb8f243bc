//! Resources of this process that a context must give back: descriptors, shared memory, threads.

use std::time::{Duration, Instant};

/// Time in which they are given back, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(30);

/// Numbers of open files, of mappings of shared memory and of threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holdings {
    files: usize,
    mappings: usize,
    pub(crate) threads: usize,
}

impl Holdings {
    pub(crate) fn now() -> Self {
        let count = |path: &str| std::fs::read_dir(path).expect("procfs").count();
        let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs");
        Self {
            files: count("/proc/self/fd"),
            mappings: maps.lines().filter(|line| line.contains("memfd:")).count(),
            threads: count("/proc/self/task"),
        }
    }

    /// Returns what this process has once it has no more than `before`. The kernel lists a thread
    /// for a moment after it was joined, so `before` may have one too many.
    ///
    /// # Panics
    /// If something is not given back.
    #[track_caller]
    pub(crate) fn no_more_than(before: Option<Self>, when: &str) -> Self {
        let began = Instant::now();
        loop {
            let now = Self::now();
            let grows = before.is_some_and(|before| {
                (now.files, now.mappings) != (before.files, before.mappings)
                    || now.threads > before.threads
            });
            if !grows {
                return now;
            }
            assert!(began.elapsed() < PATIENCE, "{when}: {now:?}, {before:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
