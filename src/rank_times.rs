//! Times of the ranks of a host: each rank writes its own to a file in shared memory, and the first
//! rank of the host reads all.
//!
//! A rank waits while it has submitted a tensor that another rank has not. The slow rank of a job
//! is the one that waits least.
//!
//! The file is deleted when all ranks have opened it, so a process that is killed later leaves
//! nothing behind. What is in it comes from other processes: an entry is only numbers, and one
//! with an impossible rank is ignored.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::OFlags;

use crate::clock::Nanos;
use crate::identity::{Identity, digest};

/// Shortest time between two writes of this rank's times.
const WRITE_INTERVAL: Duration = Duration::from_millis(200);

/// Bytes of an entry: the rank's number plus one, its wait and its transfers in nanoseconds.
const ENTRY_BYTES: usize = 24;

/// Times of a rank since the start of its context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RankTimes {
    /// Time that it had tensors which other ranks had not.
    pub(crate) waited: Duration,
    /// Time of its transfers, without waiting for other ranks.
    pub(crate) transferred: Duration,
}

/// Measures the times of this rank and writes them to the file, if there is one.
#[derive(Debug)]
pub(crate) struct Recorder {
    waits: WaitMeter,
    transferred: Duration,
    file: Option<Arc<Shared>>,
    written: Nanos,
}

impl Recorder {
    pub(crate) fn new(file: Option<Arc<Shared>>) -> Self {
        Self {
            waits: WaitMeter::default(),
            transferred: Duration::ZERO,
            file,
            written: Nanos(0),
        }
    }

    /// All ranks have opened the file.
    pub(crate) fn connected(&self) {
        if let Some(file) = &self.file {
            file.all_have_opened();
        }
    }

    /// A tensor was submitted here at `submitted` and was ready on all ranks at `agreed`. Tensors
    /// come in the order of `agreed`.
    pub(crate) fn waited(&mut self, submitted: Nanos, agreed: Nanos) {
        self.waits.add(submitted, agreed);
    }

    /// A batch was transferred in this time.
    pub(crate) fn transferred(&mut self, took: Duration) {
        self.transferred += took;
    }

    /// Writes the times if the last write was long enough ago.
    pub(crate) fn cycle_ended(&mut self, now: Nanos) {
        if now - self.written >= WRITE_INTERVAL {
            self.written = now;
            self.write();
        }
    }

    fn write(&self) {
        if let Some(file) = &self.file {
            let times = RankTimes {
                waited: self.waits.total,
                transferred: self.transferred,
            };
            let _ = file.write(&times); // memory: it could be written at the start
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.write();
    }
}

/// Time that a rank has waited for others.
#[derive(Debug, Default)]
struct WaitMeter {
    total: Duration,
    /// Time up to which waits are counted: those of several tensors overlap.
    until: Nanos,
}

impl WaitMeter {
    fn add(&mut self, submitted: Nanos, agreed: Nanos) {
        self.total += agreed.since(submitted.max(self.until));
        self.until = self.until.max(agreed);
    }
}

/// Folder and beginning of the names of the files.
const FOLDER: &str = "/dev/shm";
const NAME: &str = "ronde-times-";
/// Age of a file from which on its job is no longer starting. Later a file has no name.
const LEFT_AFTER: Duration = Duration::from_secs(3600);

/// Removes files of this user's jobs that were killed while they started.
fn remove_left_files() {
    let own = rustix::process::geteuid().as_raw();
    let entries = std::fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let named = entries.filter(|entry| {
        entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(NAME.as_bytes())
    });
    for entry in named {
        let is_left = entry.metadata().is_ok_and(|found| {
            let age = found.modified().ok().and_then(|at| at.elapsed().ok());
            found.uid() == own && age.is_some_and(|age| age > LEFT_AFTER)
        });
        if is_left {
            let _ = std::fs::remove_file(entry.path()); // another job may have
        }
    }
}

/// The file with the times of the ranks of a host.
#[derive(Debug)]
pub(crate) struct Shared {
    file: File,
    path: PathBuf,
    is_deleted: AtomicBool,
    /// Entry of this rank.
    own: usize,
    rank: usize,
    /// Number of entries, and of ranks in the job.
    entries: usize,
    ranks: usize,
}

impl Shared {
    /// Opens the file of the ranks that share `key`; `None`, with a warning, if it cannot be
    /// opened: then these times are missing.
    pub(crate) fn open(key: &str, identity: &Identity) -> Option<Arc<Self>> {
        if identity.local_rank == 0 {
            remove_left_files();
        }
        let path = Path::new(FOLDER).join(format!("{NAME}{}", digest(key.as_bytes())));
        let opened = Self::open_file(&path).and_then(|file| {
            let shared = Self {
                file,
                path,
                is_deleted: AtomicBool::new(identity.local_rank != 0),
                own: identity.local_rank,
                rank: identity.rank,
                entries: identity.local_size,
                ranks: identity.size,
            };
            shared.write(&RankTimes::default())?;
            Ok(Arc::new(shared))
        });
        let warn = |error: &std::io::Error| {
            tracing::warn!("metrics and live page without the times of ranks: /dev/shm: {error}");
        };
        opened.inspect_err(warn).ok()
    }

    fn open_file(path: &Path) -> std::io::Result<File> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false) // another rank may have written to it
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(path)?;
        let owner = file.metadata()?;
        if owner.uid() != rustix::process::geteuid().as_raw() || !owner.is_file() {
            return Err(std::io::ErrorKind::PermissionDenied.into());
        }
        Ok(file)
    }

    /// Deletes the file's name, on the first rank: all ranks have opened it.
    fn all_have_opened(&self) {
        if !self.is_deleted.swap(true, Ordering::Relaxed) {
            let _ = std::fs::remove_file(&self.path); // somebody else may have
        }
    }

    /// Writes this rank's times.
    fn write(&self, times: &RankTimes) -> std::io::Result<()> {
        let nanos = |time: Duration| time.as_nanos() as u64;
        let words = [
            self.rank as u64 + 1,
            nanos(times.waited),
            nanos(times.transferred),
        ];
        let mut entry = [0; ENTRY_BYTES];
        for (bytes, word) in entry.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        self.file
            .write_all_at(&entry, (self.own * ENTRY_BYTES) as u64)
    }

    /// Reads the times of all ranks of this host, in the order of the ranks.
    pub(crate) fn read(&self) -> Vec<(usize, RankTimes)> {
        let read = |index: usize| {
            let mut entry = [0; ENTRY_BYTES];
            self.file
                .read_exact_at(&mut entry, (index * ENTRY_BYTES) as u64)
                .ok()?;
            let mut words = entry
                .chunks_exact(8)
                .filter_map(|bytes| bytes.try_into().ok());
            let mut word = || words.next().map(u64::from_ne_bytes);
            let rank = usize::try_from(word()?).ok()?.checked_sub(1)?;
            let times = RankTimes {
                waited: Duration::from_nanos(word()?),
                transferred: Duration::from_nanos(word()?),
            };
            (rank < self.ranks).then_some((rank, times))
        };
        let mut all: Vec<_> = (0..self.entries).filter_map(read).collect();
        all.sort_by_key(|&(rank, _)| rank);
        all.dedup_by_key(|&mut (rank, _)| rank); // a rank is there once
        all
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.all_have_opened(); // also if the rendezvous failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_that_overlap_count_once() {
        let mut meter = WaitMeter::default();
        meter.add(Nanos(100), Nanos(300));
        meter.add(Nanos(150), Nanos(300));
        meter.add(Nanos(250), Nanos(400));
        meter.add(Nanos(600), Nanos(500)); // clocks of a device
        meter.add(Nanos(600), Nanos(700));
        assert_eq!(meter.total, Duration::from_nanos(200 + 100 + 100));
    }

    fn times(waited_ms: u64, transferred_ms: u64) -> RankTimes {
        let ms = Duration::from_millis;
        RankTimes {
            waited: ms(waited_ms),
            transferred: ms(transferred_ms),
        }
    }

    #[test]
    fn the_first_rank_reads_what_all_have_written_and_deletes_the_file() {
        let key = format!("test {}", std::process::id());
        let open = |rank| Shared::open(&key, &Identity::on_one_host(rank, 3)).expect("/dev/shm");
        let (first, third) = (open(0), open(2));
        third.write(&times(7, 3)).unwrap();
        assert_eq!(first.read(), [(0, times(0, 0)), (2, times(7, 3))]);
        let forged = [9u64, 1, 1].map(u64::to_ne_bytes).concat();
        first
            .file
            .write_all_at(&forged, ENTRY_BYTES as u64)
            .unwrap();
        let read = first.read();
        assert_eq!(
            read,
            [(0, times(0, 0)), (2, times(7, 3))],
            "there is no rank 8"
        );
        assert!(first.path.exists());
        first.all_have_opened();
        assert!(!first.path.exists());
        third.write(&times(8, 3)).unwrap();
        assert_eq!(first.read()[1], (2, times(8, 3)));
    }
}
