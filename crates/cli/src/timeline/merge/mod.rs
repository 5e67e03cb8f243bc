//! `--merge`: writes the files of all ranks as one trace on one clock, for Perfetto or
//! chrome://tracing.
//!
//! Each rank is a process, each tensor a thread of it. Negotiation, operation and activities are
//! complete events (`X`); marks and ready times are instants. The files are read a second time for
//! the merge, because the clock data may be at the end of a file.

mod events;
mod lanes;
mod merger;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

use ronde_trace::Source;

use super::error::Error;
use super::progress::Progress;
use crate::present::output::Output;
use events::Events;
use merger::{Merger, Process};

/// Rejects files that cannot be read a second time: opening a pipe again would wait for a writer
/// that has ended.
///
/// # Errors
/// [`Error::MergeOfPipe`].
pub(super) fn check_inputs(files: &[PathBuf]) -> Result<(), Error> {
    let pipe = files.iter().find(|file| {
        file.metadata()
            .is_ok_and(|metadata| metadata.file_type().is_fifo())
    });
    pipe.map_or(Ok(()), |path| {
        Err(Error::MergeOfPipe { path: path.clone() })
    })
}

/// Writes the merged trace of `sources` and returns warnings.
///
/// # Errors
/// A file that can no longer be read, or an output that cannot be written.
pub(super) fn write(output: Output, sources: &[Source]) -> Result<Vec<String>, Error> {
    let (places, warnings) = place(sources);
    let paths: Vec<PathBuf> = sources.iter().map(|source| source.path.clone()).collect();
    let mut progress = Progress::new("merging", &paths);
    let mut unread = None;
    let written = output.finish(|sink| {
        let mut events = Events::begin(sink)?;
        // Segments of one rank's recording share its process.
        let mut processes: Vec<Process> = Vec::new();
        for (source, place) in sources.iter().zip(&places) {
            let index = match processes
                .iter()
                .position(|process| process.pid() == place.pid)
            {
                Some(index) => index,
                None => {
                    processes.push(Process::new(
                        place.pid,
                        &name(source, place.pid),
                        &mut events,
                    ));
                    processes.len() - 1
                }
            };
            let mut merger = Merger::new(
                &mut events,
                &mut processes[index],
                source.rank,
                place.shift_ns,
            );
            let read = progress.during(&source.path, |told| {
                ronde_trace::read(&source.path, &mut merger, told)
            });
            if let Err(error) = read {
                unread = Some(error);
                return Err(io::ErrorKind::Other.into());
            }
        }
        events.end()
    });
    match unread {
        Some(error) => Err(error.into()),
        None => Ok(written.map(|()| warnings)?),
    }
}

/// Process and time shift of a file's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TrackOffset {
    /// Number of the process: the rank, if known.
    pid: u32,
    /// Shift in nanoseconds, added to the times of the file.
    shift_ns: i64,
}

/// Returns the process and the time shift of each file, and warnings. The clock of the lowest rank
/// is the reference; the file that begins first begins at zero.
fn place(sources: &[Source]) -> (Vec<TrackOffset>, Vec<String>) {
    let mut taken: BTreeSet<u32> = sources.iter().filter_map(|source| source.rank).collect();
    let mut pid = |source: &Source| {
        source.rank.unwrap_or_else(|| {
            let free = (0..=u32::MAX)
                .find(|pid| !taken.contains(pid))
                .unwrap_or(u32::MAX);
            taken.insert(free);
            free
        })
    };
    let pids: Vec<u32> = sources.iter().map(&mut pid).collect();
    let Some(reference) = sources
        .iter()
        .min_by_key(|source| source.rank.unwrap_or(u32::MAX))
    else {
        return (Vec::new(), Vec::new());
    };
    let mut warnings = Vec::new();
    let begins: Vec<i64> = sources
        .iter()
        .map(|source| {
            if source.path == reference.path {
                return 0;
            }
            let path = source.path.display();
            match (source.clock, reference.clock, source.epoch_ns, reference.epoch_ns) {
                (Some(here), Some(there), _, _) => here.zero_ns.saturating_sub(there.zero_ns),
                (_, _, Some(here), Some(there)) => {
                    warnings.push(format!(
                        "{path} does not say how its clock relates to rank 0's: it is placed by the wall clock, which \
                         may be off by milliseconds"
                    ));
                    here.saturating_sub(there)
                }
                _ => {
                    warnings.push(format!(
                        "{path} does not say when it began: its zero is laid on that of {}",
                        reference.path.display()
                    ));
                    0
                }
            }
        })
        .collect();
    let first = begins.iter().copied().min().unwrap_or(0);
    let places = pids.into_iter().zip(begins);
    let places = places.map(|(pid, began)| TrackOffset {
        pid,
        shift_ns: began.saturating_sub(first),
    });
    (places.collect(), warnings)
}

/// Name of a process.
fn name(source: &Source, pid: u32) -> String {
    match source.rank {
        Some(rank) => format!("rank {rank}"),
        None => format!("{} ({pid})", source.path.display()),
    }
}
