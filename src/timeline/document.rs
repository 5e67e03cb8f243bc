//! A file in Horovod's format: plain, which is valid JSON at any moment, or compressed. A file that reaches the size
//! limit is started anew.

use std::io;
use std::path::{Path, PathBuf};

use super::files::{Files, older};
use super::horovod::Format;
use super::line::Line;
use super::options::Options;
use super::sink::Sink;
use crate::settings::Settings;

/// Text is written out as soon as it is this long; bounds the buffer.
const TEXT_MAX_BYTES: usize = 1 << 20;

/// See the module.
pub(super) struct Document {
    path: PathBuf,
    sink: Sink,
    /// The file that `sink` writes: `path`, or the older file if no new one could be made.
    sink_path: PathBuf,
    pub(super) format: Format,
    /// Cycles dropped before it began.
    dropped_before: u64,
    dropped_said: u64,
    /// Half of what it and the older file may come to; 0 for no bound.
    half_bytes: u64,
}

impl Document {
    /// Writes the head of the file. `settings` are in force now, and `dropped` cycles have been lost before.
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

    /// Whether there is so much text that it should be written.
    pub(super) fn is_long(&self) -> bool {
        self.format.text().len() >= self.text_max_bytes()
    }

    /// Whether another text might not fit in its half of the bound.
    pub(super) fn is_full(&self) -> bool {
        self.half_bytes > 0 && self.sink.bytes() + self.text_max_bytes() as u64 > self.half_bytes
    }

    /// Whether it has come to the whole bound.
    pub(super) fn is_overfull(&self) -> bool {
        self.half_bytes > 0 && self.sink.bytes() > 2 * self.half_bytes
    }

    fn text_max_bytes(&self) -> usize {
        match self.half_bytes {
            0 => TEXT_MAX_BYTES,
            half => TEXT_MAX_BYTES.min(half as usize / 8),
        }
    }

    /// Says how many cycles have been dropped so far; true if that is news.
    pub(super) fn dropped(&mut self, dropped: u64) -> bool {
        let here = dropped.saturating_sub(self.dropped_before);
        let news = here > self.dropped_said;
        if news {
            self.dropped_said = here;
            self.format.dropped(here);
        }
        news
    }

    /// Writes what the format holds.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let text = self.format.text_mut();
        if text.is_empty() {
            return Ok(());
        }
        self.sink.write(text)
    }

    /// Makes this the older file and begins the next one.
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

    /// Writes the rest and closes the file.
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
