//! Where a document's text goes: a plain file whose closing bracket is always in place, or a compressed one.
//!
//! Each write to a plain file is one `pwrite` over the closing `]`, so that the file is valid JSON at any moment
//! except after a kill inside that write. A compressed file cannot be written over: it gets its bracket at the end,
//! and all text written before a kill can be decompressed.

use std::io::{self, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::files::{Files, Output, is_gz};

/// See the module.
pub(super) enum Sink {
    Plain {
        output: Box<dyn Output>,
        /// Where the closing bracket is.
        end: u64,
    },
    Gz(Box<GzEncoder<Appender>>),
}

/// An output that is written from beginning to end.
pub(super) struct Appender {
    output: Box<dyn Output>,
    bytes: u64,
}

impl Sink {
    /// Makes the file; compressed if its name says so.
    pub(super) fn create(files: &mut dyn Files, path: &Path) -> io::Result<Self> {
        let output = files.create(path)?;
        Ok(if is_gz(path) {
            // The text is so repetitive that the fastest level leaves little to gain.
            let appender = Appender { output, bytes: 0 };
            Self::Gz(Box::new(GzEncoder::new(appender, Compression::fast())))
        } else {
            Self::Plain { output, end: 0 }
        })
    }

    /// Appends to the array, of which `text` is what comes next, and empties `text`.
    pub(super) fn write(&mut self, text: &mut Vec<u8>) -> io::Result<()> {
        let written = match self {
            Self::Plain { output, end } => {
                text.push(b']');
                let written = output.write_at(text, *end);
                if written.is_ok() {
                    *end += text.len() as u64 - 1;
                } else if *end > 0 {
                    // Best effort: the block with the old bracket is there already, so this needs no new space.
                    let _ = output.cut(*end);
                    let _ = output.write_at(b"]", *end);
                }
                written
            }
            // The flush ends on a whole byte with all of the text in it.
            Self::Gz(encoder) => encoder.write_all(text).and_then(|()| encoder.flush()),
        };
        text.clear();
        written
    }

    /// Nothing more will come.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Plain { .. } => Ok(()),
            Self::Gz(encoder) => {
                encoder.write_all(b"]")?;
                encoder.try_finish()
            }
        }
    }

    /// Length of the file.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Plain { end, .. } => *end,
            Self::Gz(encoder) => encoder.get_ref().bytes,
        }
    }
}

impl Write for Appender {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.output.write_at(text, self.bytes)?;
        self.bytes += text.len() as u64;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
