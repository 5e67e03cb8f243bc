//! File in Horovod's format: plain, which is valid JSON at any moment, or compressed. A file that
//! reaches the size limit is replaced by a new one.

use std::io;
use std::path::{Path, PathBuf};

use super::files::{Files, older};
use super::horovod::Format;
use super::line::Line;
use super::options::Options;
use super::sink::Sink;
use crate::settings::Settings;

/// Length at which text is written to the file; bounds the buffer.
const TEXT_MAX_BYTES: usize = 1 << 20;

/// Open file in Horovod's format.
pub(super) struct Document {
    path: PathBuf,
    sink: Sink,
    /// File that `sink` writes: `path`, or the older file if no new one could be created.
    sink_path: PathBuf,
    pub(super) format: Format,
    /// Cycles dropped before this file began.
    dropped_before: u64,
    dropped_said: u64,
    /// Half of the size limit of this and the older file together; 0 for no limit.
    half_bytes: u64,
}

impl Document {
    /// Writes the head of the file. `settings` are in force, and `dropped` cycles have been lost
    /// before.
    pub(super) fn create(
        files: &mut dyn Files,
        path: &Path,
        options: &Options,
        line: Line,
        settings: Settings,
        dropped: u64,
    ) -> io::Result<Self> {
        let mut document = Self {
            path: path.to_owned(),
            sink: Sink::create(files, path)?,
            sink_path: path.to_owned(),
            format: Format::new(options, line, settings, 1),
            dropped_before: dropped,
            dropped_said: 0,
            half_bytes: options.max_bytes / 2,
        };
        document.flush()?;
        Ok(document)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the text is long enough to be written to the file.
    pub(super) fn is_long(&self) -> bool {
        self.format.text().len() >= self.text_max_bytes()
    }

    /// Whether another text might not fit in this file's half of the limit.
    pub(super) fn is_full(&self) -> bool {
        self.half_bytes > 0 && self.sink.bytes() + self.text_max_bytes() as u64 > self.half_bytes
    }

    /// Whether the file has reached the whole limit.
    pub(super) fn is_overfull(&self) -> bool {
        self.half_bytes > 0 && self.sink.bytes() > 2 * self.half_bytes
    }

    fn text_max_bytes(&self) -> usize {
        match self.half_bytes {
            0 => TEXT_MAX_BYTES,
            half => TEXT_MAX_BYTES.min(half as usize / 8),
        }
    }

    /// Records the number of cycles dropped so far; returns whether it has changed.
    pub(super) fn dropped(&mut self, dropped: u64) -> bool {
        let here = dropped.saturating_sub(self.dropped_before);
        let news = here > self.dropped_said;
        if news {
            self.dropped_said = here;
            self.format.dropped(here);
        }
        news
    }

    /// Writes the text that the format holds.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let text = self.format.text_mut();
        if text.is_empty() {
            return Ok(());
        }
        self.sink.write(text)
    }

    /// Renames this file to the older file and begins the next one.
    pub(super) fn rotate(
        &mut self,
        files: &mut dyn Files,
        options: &Options,
        line: Line,
        settings: Settings,
    ) -> io::Result<()> {
        self.flush()?;
        self.sink.finish()?;
        let older = older(&self.path);
        files.rename(&self.path, &older)?;
        self.sink_path = older;
        self.sink = Sink::create(files, &self.path)?;
        self.sink_path = self.path.clone();
        self.format = Format::new(options, line, settings, self.format.segment() + 1);
        self.dropped_before += self.dropped_said;
        self.dropped_said = 0;
        self.flush()
    }

    /// Writes the remaining text and closes the file.
    pub(super) fn close(mut self) {
        let written = self.flush().and_then(|()| self.sink.finish());
        if let Err(error) = written {
            let path = self.path.display();
            let remains = self.remains();
            tracing::error!("cannot write the end of the timeline {path}: {error}. {remains}");
        }
    }

    /// Describes the state of the file after a failed write, in one or two sentences.
    pub(super) fn remains(&self) -> String {
        let contents = format!("{} {}", self.sink_path.display(), self.sink.contents());
        let older = older(&self.path);
        if self.format.segment() == 1 || self.sink_path == older {
            return contents;
        }
        format!("{contents}. Earlier events are in {}", older.display())
    }
}
