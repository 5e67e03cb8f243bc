//! Waits of the ranks of a host: each rank writes its own to a file in shared memory, and the first
//! rank of the host reads all.
//!
//! A rank waits while it has submitted a tensor that another rank has not. The slow rank of a job
//! is the one that waits least.
//!
//! The file is deleted when all ranks have opened it, so a process that is killed later leaves
//! nothing behind. What is in it comes from other processes: an entry is only a number, and one
//! with an impossible rank is ignored.

use std::fmt::Error;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Unit;
use rustix::fs::OFlags;

use super::metrics::Sources;
use crate::clock::Nanos;
use crate::identity::{Identity, digest};
use crate::sync::lock;

/// Bytes of an entry: the rank's number plus one, and its wait in nanoseconds.
const ENTRY_BYTES: usize = 16;

/// Time that a rank has waited for others.
#[derive(Debug, Default)]
pub(super) struct WaitMeter {
    total: Duration,
    /// Time up to which waits are counted: those of several tensors overlap.
    until: Nanos,
}

impl WaitMeter {
    /// A tensor was submitted here at `submitted` and was ready on all ranks at `agreed`. Tensors
    /// come in the order of `agreed`.
    pub(super) fn add(&mut self, submitted: Nanos, agreed: Nanos) {
        self.total += agreed.since(submitted.max(self.until));
        self.until = self.until.max(agreed);
    }

    pub(super) fn total(&self) -> Duration {
        self.total
    }
}

/// The file with the waits of the ranks of a host.
#[derive(Debug)]
pub(super) struct Shared {
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
    /// opened: then waits are missing.
    pub(super) fn open(key: &str, identity: &Identity) -> Option<Arc<Self>> {
        let path = PathBuf::from(format!("/dev/shm/ronde-waits-{}", digest(key.as_bytes())));
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
            shared.write(Duration::ZERO)?;
            Ok(Arc::new(shared))
        });
        let warn = |error: &std::io::Error| {
            tracing::warn!("metrics without ronde_rank_wait_seconds: /dev/shm: {error}");
        };
        opened.inspect_err(warn).ok()
    }

    fn open_file(path: &PathBuf) -> std::io::Result<File> {
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
    pub(super) fn all_have_opened(&self) {
        if !self.is_deleted.swap(true, Ordering::Relaxed) {
            let _ = std::fs::remove_file(&self.path); // somebody else may have
        }
    }

    /// Writes this rank's wait.
    pub(super) fn write(&self, waited: Duration) -> std::io::Result<()> {
        let mut entry = [0; ENTRY_BYTES];
        entry[..8].copy_from_slice(&(self.rank as u64 + 1).to_ne_bytes());
        entry[8..].copy_from_slice(&(waited.as_nanos() as u64).to_ne_bytes());
        self.file
            .write_all_at(&entry, (self.own * ENTRY_BYTES) as u64)
    }

    /// Reads the waits of all ranks: rank and wait.
    fn read(&self) -> Vec<(usize, Duration)> {
        let read = |index: usize| {
            let mut entry = [0; ENTRY_BYTES];
            self.file
                .read_exact_at(&mut entry, (index * ENTRY_BYTES) as u64)
                .ok()?;
            let (rank, ns) = entry.split_at(8);
            let number = |bytes: &[u8]| Some(u64::from_ne_bytes(bytes.try_into().ok()?));
            let rank = usize::try_from(number(rank)?).ok()?.checked_sub(1)?;
            (rank < self.ranks).then_some((rank, Duration::from_nanos(number(ns)?)))
        };
        let mut waits: Vec<_> = (0..self.entries).filter_map(read).collect();
        waits.sort_unstable();
        waits.dedup_by_key(|&mut (rank, _)| rank); // a series is there once
        waits
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.all_have_opened(); // also if the rendezvous failed
    }
}

/// Encodes the waits of this host's ranks.
#[derive(Debug)]
pub(super) struct WaitsCollector(pub(super) Arc<Sources>);

impl Collector for WaitsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let Some(shared) = lock(&self.0.waits).clone() else {
            return Ok(());
        };
        let mut family = encoder.encode_descriptor(
            "rank_wait",
            "Time that a rank of this host had tensors which other ranks had not; the slowest rank \
             has the least",
            Some(&Unit::Seconds),
            MetricType::Counter,
        )?;
        for (rank, waited) in shared.read() {
            let counter = ConstCounter::new(waited.as_secs_f64());
            counter.encode(family.encode_family(&[("rank", rank as u64)])?)?;
        }
        Ok(())
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
        assert_eq!(meter.total(), Duration::from_nanos(200 + 100 + 100));
    }

    #[test]
    fn the_first_rank_reads_what_all_have_written_and_deletes_the_file() {
        let key = format!("test {}", std::process::id());
        let open = |rank| Shared::open(&key, &Identity::on_one_host(rank, 3)).expect("/dev/shm");
        let (first, third) = (open(0), open(2));
        third.write(Duration::from_millis(7)).unwrap();
        let ms = Duration::from_millis;
        assert_eq!(first.read(), [(0, ms(0)), (2, ms(7))]);
        let forged = [9u64.to_ne_bytes(), 1u64.to_ne_bytes()].concat();
        first
            .file
            .write_all_at(&forged, ENTRY_BYTES as u64)
            .unwrap();
        assert_eq!(first.read(), [(0, ms(0)), (2, ms(7))], "there is no rank 8");
        assert!(first.path.exists());
        first.all_have_opened();
        assert!(!first.path.exists());
        third.write(ms(8)).unwrap();
        assert_eq!(first.read()[1], (2, ms(8)));
    }
}
