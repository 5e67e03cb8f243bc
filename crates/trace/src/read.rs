//! Reads a file of any format into a [`Visitor`].

use std::path::Path;

use super::complaint::{Complaints, FilePosition};
use super::detect::Detector;
use super::error::ReadError;
use super::event::Event;
use super::input::{Counter, Input};
use super::model::{Format, Source, Visitor};
use super::reader::{Out, Reader};
use super::scan::{Scanner, Seen, Sink};
use super::sniff;

/// Reads a file from front to back and passes its content to the visitor. `progress` is called
/// repeatedly with the number of bytes read from the file, before decompression.
///
/// Damage does not stop the reader: [`Source::warnings`] report the loss and its place.
///
/// # Errors
/// The file cannot be read, or is not a trace; the error then describes its content.
pub fn read(
    path: &Path,
    visitor: &mut dyn Visitor,
    progress: &mut dyn FnMut(u64),
) -> Result<Source, ReadError> {
    read_input(Input::open(path)?, None, visitor, progress)
}

/// Reads an input that is already open. `format` is the format, or `None` to detect it.
///
/// # Errors
/// As for [`read`].
pub fn read_input(
    input: Input,
    format: Option<Format>,
    visitor: &mut dyn Visitor,
    progress: &mut dyn FnMut(u64),
) -> Result<Source, ReadError> {
    let path = input.path().to_path_buf();
    let compressed = input.compressed();
    let mut reading = Reading {
        out: Out::new(&path, visitor),
        reader: None,
        detector: Detector::default(),
        counter: input.counter(),
        progress,
    };
    if let Some(format) = format {
        reading.reader = Some(reading.decide(format));
    }
    let mut scanner = Scanner::new(input, compressed);
    let head = scanner.head(&mut reading);
    let head = head[..head.len().min(sniff::HEAD_BYTES)].to_vec();
    if let Some(found) = sniff::never_a_trace(&head) {
        return Err(ReadError::NotATrace { path, found });
    }
    let seen = scanner.run(&mut reading);
    reading.finish(&head, seen)
}

/// State of reading one file.
struct Reading<'v> {
    out: Out<'v>,
    reader: Option<Reader>,
    detector: Detector,
    counter: Counter,
    progress: &'v mut dyn FnMut(u64),
}

impl Reading<'_> {
    /// Sets the format: the events held back go to its reader.
    fn decide(&mut self, format: Format) -> Reader {
        self.out.source.format = format;
        let mut reader = Reader::new(format);
        self.detector.replay(&mut reader, &mut self.out);
        reader
    }

    fn finish(mut self, head: &[u8], seen: Seen) -> Result<Source, ReadError> {
        if self.reader.is_none()
            && let Some(format) = self.detector.guess()
        {
            self.reader = Some(self.decide(format));
        }
        self.out.source.bytes = seen.bytes;
        self.out.source.events = seen.events;
        match self.reader {
            Some(reader) if seen.events > 0 => Ok(reader.finish(self.out)),
            _ => {
                let found = sniff::looks_like(head, seen, &self.detector, &self.out.complaints);
                let path = self.out.source.path;
                Err(ReadError::NotATrace { path, found })
            }
        }
    }
}

impl Sink for Reading<'_> {
    #[inline]
    fn event(&mut self, event: &Event<'_>, place: FilePosition<'_>) {
        if let Some(reader) = &mut self.reader {
            reader.event(event, place, &mut self.out);
        } else if let Some(format) = self.detector.event(event, place) {
            let mut reader = self.decide(format);
            reader.event(event, place, &mut self.out);
            self.reader = Some(reader);
        }
    }

    fn header(&mut self, key: &str, value: &[u8]) {
        if let Some(reader) = &mut self.reader {
            reader.header(key, value, &mut self.out);
        } else if let Some(format) = self.detector.header(key, value) {
            self.reader = Some(self.decide(format));
        }
    }

    fn complaints(&mut self) -> &mut Complaints {
        &mut self.out.complaints
    }

    fn progress(&mut self) {
        (self.progress)(self.counter.bytes());
    }
}
