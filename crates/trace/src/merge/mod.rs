//! Merged trace: the files of all ranks as one trace on one clock, for Perfetto or
//! chrome://tracing.
//!
//! Each rank is a process, each tensor a thread of it. Negotiation, operation and activities are
//! complete events (`X`); marks and ready times are instants. Every file is read a second time,
//! because the clock data may be at the end of a file.

mod events;
mod process;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use crate::{ReadError, Source};
use events::Events;
use process::{Merger, Process};

/// Error of [`merge`].
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// A file can no longer be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The trace cannot be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// Writes the merged trace of files that [`read`](crate::read) has read, and returns warnings.
/// `progress` gets the index of a file and the number of bytes read from it.
///
/// # Errors
/// [`MergeError`].
pub fn merge(
    sources: &[Source],
    sink: &mut dyn Write,
    progress: &mut dyn FnMut(usize, u64),
) -> Result<Vec<String>, MergeError> {
    let (places, warnings) = place(sources);
    let mut events = Events::begin(sink)?;
    // Segments of one rank's recording share its process.
    let mut processes: BTreeMap<u32, Process> = BTreeMap::new();
    for (index, (source, (pid, shift_ns))) in sources.iter().zip(places).enumerate() {
        let process = processes.entry(pid).or_insert_with(|| {
            let name = match source.rank {
                Some(rank) => format!("rank {rank}"),
                None => format!("{} ({pid})", source.path.display()),
            };
            Process::new(pid, &name, &mut events)
        });
        let mut merger = Merger::new(&mut events, process, source.rank, shift_ns);
        crate::read(&source.path, &mut merger, &mut |bytes| {
            progress(index, bytes);
        })?;
    }
    events.end()?;
    Ok(warnings)
}

/// Process number and time shift, in nanoseconds, of each file, and warnings. The process number is
/// the rank, if known. The clock of the lowest rank is the reference; the file that begins first
/// begins at zero.
fn place(sources: &[Source]) -> (Vec<(u32, i64)>, Vec<String>) {
    let by_rank = |source: &&Source| source.rank.unwrap_or(u32::MAX);
    let Some(reference) = sources.iter().min_by_key(by_rank) else {
        return (Vec::new(), Vec::new());
    };
    let taken: BTreeSet<u32> = sources.iter().filter_map(|source| source.rank).collect();
    let mut free = (0..=u32::MAX).filter(|pid| !taken.contains(pid));
    let mut warnings = Vec::new();
    let mut begin_of = |source: &Source| {
        let path = source.path.display();
        match source.shift_to(reference) {
            _ if source.path == reference.path => 0,
            Some(begin) => {
                if source.clock.and(reference.clock).is_none() {
                    warnings.push(format!(
                        "{path} does not say how its clock relates to rank 0's: it is placed by \
                         the wall clock, which may be off by milliseconds"
                    ));
                }
                begin
            }
            None => {
                warnings.push(format!(
                    "{path} does not say when it began: its zero is laid on that of {}",
                    reference.path.display()
                ));
                0
            }
        }
    };
    let begins: Vec<i64> = sources.iter().map(&mut begin_of).collect();
    let first = begins.iter().copied().min().unwrap_or(0);
    let place = |(source, begin): (&Source, i64)| {
        let pid = source.rank.or_else(|| free.next()).unwrap_or(u32::MAX);
        (pid, begin.saturating_sub(first))
    };
    let places = sources.iter().zip(begins).map(place).collect();
    (places, warnings)
}
