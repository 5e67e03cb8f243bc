//! Output of a document: a plain file whose closing bracket is always in place, or a compressed
//! one.
//!
//! Each write to a plain file is one `pwrite` over the closing `]`, so that the file is valid JSON
//! at any moment except after a kill during that write. If a write ends early, as on a full disk,
//! the elements that were written completely stay, and the bracket is written after them. A
//! compressed file cannot be overwritten: it gets its bracket at the end, and all text written
//! before a kill or a full disk can be decompressed.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::files::{Files, Output, is_gz, write_all_at};

/// Output file of a document.
pub(super) enum Sink {
    Plain {
        output: Box<dyn Output>,
        /// Position of the closing bracket.
        end: u64,
        /// Whether the bracket is in the file: a failed write may have removed it.
        closed: bool,
    },
    Gz(Box<GzEncoder<Appender>>),
}

/// Output that is written sequentially.
pub(super) struct Appender {
    output: Box<dyn Output>,
    bytes: u64,
}

/// State of a file whose recording has ended early; prints as the predicate of a sentence about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// No readable data.
    Nothing,
    /// This many bytes of valid JSON.
    Valid { bytes: u64 },
    /// This many bytes of whole elements, without the closing bracket.
    Unclosed { bytes: u64 },
    /// This many bytes of a compressed stream without its end.
    Compressed { bytes: u64 },
}

impl Sink {
    /// Creates the file; compressed if its name says so.
    pub(super) fn create(files: &mut dyn Files, path: &Path) -> io::Result<Self> {
        let output = files.create(path)?;
        Ok(if is_gz(path) {
            // The text is so repetitive that the fastest level leaves little to gain.
            let appender = Appender { output, bytes: 0 };
            Self::Gz(Box::new(GzEncoder::new(appender, Compression::fast())))
        } else {
            Self::Plain {
                output,
                end: 0,
                closed: false,
            }
        })
    }

    /// Appends `text`, the next part of the array, and empties `text`.
    ///
    /// # Errors
    /// The system's error. A plain file then ends with the last element that was written
    /// completely, and with the bracket if that could be written.
    pub(super) fn write(&mut self, text: &mut Vec<u8>) -> io::Result<()> {
        let written = match self {
            Self::Plain {
                output,
                end,
                closed,
            } => {
                text.push(b']');
                match write_all_at(&mut **output, text, *end) {
                    Ok(()) => {
                        *end += text.len() as u64 - 1;
                        *closed = true;
                        Ok(())
                    }
                    Err(incomplete) => {
                        // The bracket replaces a byte that has been written, which needs no disk
                        // space.
                        let room = incomplete.written.saturating_sub(1);
                        *end += whole_elements(&text[..room]) as u64;
                        *closed = *end > 0 && write_all_at(&mut **output, b"]", *end).is_ok();
                        // Best effort: the rest of the text would make the file invalid.
                        *closed &= output.cut(*end + u64::from(*closed)).is_ok();
                        Err(incomplete.source)
                    }
                }
            }
            // The flush ends on a whole byte with all of the text in it.
            Self::Gz(encoder) => encoder.write_all(text).and_then(|()| encoder.flush()),
        };
        text.clear();
        written
    }

    /// Completes the file; nothing is written after it.
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

    /// State of the file after a failed write.
    pub(super) fn contents(&self) -> Contents {
        let bytes = self.bytes();
        match self {
            _ if bytes == 0 => Contents::Nothing,
            Self::Plain { closed: true, .. } => Contents::Valid { bytes: bytes + 1 },
            Self::Plain { closed: false, .. } => Contents::Unclosed { bytes },
            Self::Gz(_) => Contents::Compressed { bytes },
        }
    }
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("holds no events"),
            Self::Valid { bytes } => write!(
                f,
                "holds all events that were written before, {bytes} bytes of valid JSON"
            ),
            Self::Unclosed { bytes } => write!(
                f,
                "holds all events that were written before, {bytes} bytes without the closing bracket, \
                 which `ronde timeline` and trace viewers do not need"
            ),
            Self::Compressed { bytes } => write!(
                f,
                "holds {bytes} compressed bytes without their end; `ronde timeline` and zcat read all \
                 events in them"
            ),
        }
    }
}

/// Length of the part of `text` that consists of whole array elements and ends every bar that it
/// begins. The text before `text` must do so too.
fn whole_elements(text: &[u8]) -> usize {
    const BEGIN: &[u8] = br#"{"ph": "B""#;
    const END: &[u8] = br#"{"ph": "E""#;
    let (mut whole, mut open_bars, mut depth) = (0, 0_usize, 0_usize);
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, &byte) in text.iter().enumerate() {
        if is_quoted {
            is_quoted = is_escaped || byte != b'"';
            is_escaped = byte == b'\\' && !is_escaped;
            continue;
        }
        match byte {
            b'"' => is_quoted = true,
            b'{' => {
                if depth == 0 && text[at..].starts_with(BEGIN) {
                    open_bars += 1;
                } else if depth == 0 && text[at..].starts_with(END) {
                    open_bars = open_bars.saturating_sub(1);
                }
                depth += 1;
            }
            b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && open_bars == 0 {
                    whole = at + 1;
                }
            }
            _ => {}
        }
    }
    whole
}

impl Write for Appender {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let written = self.output.write_at(text, self.bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_elements_end_where_no_bar_is_open() {
        let text = concat!(
            "[\n",
            r#"{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "a}\\\"{"}}"#,
            ",\n",
            r#"{"ph": "B", "name": "ALLREDUCE", "ts": 1, "pid": 1},"#,
            r#"{"ph": "B", "name": "X", "ts": 1, "pid": 1},"#,
            r#"{"ph": "E", "ts": 2, "pid": 1},"#,
            r#"{"ph": "E", "ts": 2, "pid": 1, "args": {"shape": "[2]"}}"#,
            r#",{"ph": "i", "name": "STEP", "ts": 3, "s": "g"}"#,
        );
        let ends: Vec<usize> = (0..=text.len())
            .map(|length| whole_elements(&text.as_bytes()[..length]))
            .collect();
        let metadata = text.find(",\n").unwrap();
        let bars = text.find(r#",{"ph": "i""#).unwrap();
        for (length, &end) in ends.iter().enumerate() {
            let expected = match length {
                _ if length < metadata => 0,
                _ if length < bars => metadata,
                _ if length < text.len() => bars,
                _ => text.len(),
            };
            assert_eq!(end, expected, "of {length} bytes");
        }
    }
}
