//! The writer thread: empties the ring into the file.
//!
//! It sleeps until the ring is a quarter full or a second has passed, so that an idle job wakes it once a second
//! and a busy one a few times. Each flush is one `pwrite` over the closing `]`, so that the file is valid JSON at
//! any moment except after a kill inside that write. A write that fails (disk full) is said once in the log and
//! ends the recording; the file is cut back to its last valid state and the job goes on.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use rtrb::Consumer;

use super::horovod::Format;
use super::record;

/// Longest time that an event stays unwritten.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// Text is written out as soon as it is this long; bounds the buffer.
const TEXT_MAX_BYTES: usize = 1 << 20;

/// What the producer and the writer thread share besides the ring.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Cycles that found no room in the ring.
    pub(super) dropped_cycles: AtomicU64,
    /// The producer has rung the writer, which has not come round yet: one wake-up is enough.
    pub(super) rung: AtomicBool,
    /// The producer will send no more.
    pub(super) finished: AtomicBool,
    /// A write has failed: nobody listens any more.
    pub(super) broken: AtomicBool,
}

/// Names travel beside the ring: seldom, and whole. One is sent before the first record that uses it is.
#[derive(Debug)]
pub(super) enum Name {
    /// The tensor with the next number.
    Tensor(Arc<str>),
    /// The operation or activity with the next number.
    Constant(&'static str),
}

/// Where text goes; a file, and in tests one that fails.
pub(super) trait Output: Send {
    /// Writes all of `text` at `offset`.
    fn write_at(&mut self, text: &[u8], offset: u64) -> io::Result<()>;
    /// Cuts what is behind `length`.
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

impl Output for File {
    fn write_at(&mut self, text: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(text, offset)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

/// A file in Horovod's format, its closing bracket in place.
#[derive(Debug)]
pub(super) struct Document<O> {
    output: O,
    /// Where the closing bracket is.
    end: u64,
    pub(super) format: Format,
}

impl<O: Output> Document<O> {
    /// Writes the head of the file.
    pub(super) fn create(output: O, format: Format) -> io::Result<Self> {
        let mut document = Self {
            output,
            end: 0,
            format,
        };
        document.flush()?;
        Ok(document)
    }

    /// Writes what the format holds, over the closing bracket.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let text = self.format.text();
        if text.is_empty() {
            return Ok(());
        }
        text.push(b']');
        let written = self.output.write_at(text, self.end);
        if written.is_ok() {
            self.end += text.len() as u64 - 1;
        } else if self.end > 0 {
            // Best effort: the block with the old bracket is there already, so this needs no new space.
            let _ = self.output.cut(self.end);
            let _ = self.output.write_at(b"]", self.end);
        }
        text.clear();
        written
    }
}

/// The thread's state.
pub(super) struct Writer<O> {
    pub(super) document: Document<O>,
    pub(super) path: PathBuf,
    pub(super) ring: Consumer<u64>,
    pub(super) names: Receiver<Name>,
    pub(super) shared: Arc<Shared>,
    pub(super) words: Vec<u64>,
    pub(super) dropped_said: u64,
}

impl<O: Output> Writer<O> {
    /// Runs until the producer is finished or a write fails.
    pub(super) fn run(mut self) {
        loop {
            // Read before the ring: what was sent before it was set is then seen.
            let finished = self.shared.finished.load(Ordering::Acquire);
            self.shared.rung.store(false, Ordering::Release);
            if let Err(error) = self.drain() {
                self.shared.broken.store(true, Ordering::Release);
                let path = self.path.display();
                tracing::error!(
                    "cannot write the timeline {path}: {error}; recording ends here, the job goes on. \
                     What was written before is valid"
                );
                return;
            }
            if finished {
                return;
            }
            std::thread::park_timeout(FLUSH_INTERVAL);
        }
    }

    /// Writes everything that is in the ring now.
    fn drain(&mut self) -> io::Result<()> {
        let Self {
            document,
            ring,
            names,
            shared,
            words,
            ..
        } = self;
        words.resize(ring.slots(), 0);
        // As many words as there are: cannot fail.
        let taken = ring.pop_entire_slice(words).is_ok();
        debug_assert!(taken);
        // After the ring: a name is sent before the first record that uses it.
        for name in names.try_iter() {
            match name {
                Name::Tensor(name) => document.format.tensor(&name),
                Name::Constant(name) => document.format.name(name),
            }
        }
        let mut rest = &words[..];
        while let Some(record) = record::take(&mut rest) {
            document.format.record(record);
            if document.format.text().len() >= TEXT_MAX_BYTES {
                document.flush()?;
            }
        }
        debug_assert!(rest.is_empty(), "a record was cut");
        let dropped = shared.dropped_cycles.load(Ordering::Relaxed);
        if dropped > self.dropped_said {
            if self.dropped_said == 0 {
                tracing::warn!(
                    "the timeline {} cannot keep up: {dropped} cycles dropped so far; the file counts them \
                     (\"dropped_cycles\"). Try a faster disk",
                    self.path.display()
                );
            }
            self.dropped_said = dropped;
            document.format.dropped(dropped);
        }
        document.flush()
    }
}
