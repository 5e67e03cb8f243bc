//! Scanner that finds the events of a trace in a stream of text, including damaged text.
//!
//! The text is held in a window that moves over the file and grows only for an event that does not
//! fit. Events may be in an array, in an array within an object (`{"traceEvents": […], …}`), or one
//! after the other; commas and closing brackets between them may be missing. In damaged text the
//! scanner searches for the next place that looks like the start of an event (`{"ph":`, `{"name":`,
//! …), also within the damaged event, and counts the bytes that it skips.

use std::io::Read;

use memchr::{memchr, memchr_iter};

use super::complaint::{Complaint, Complaints, FilePosition};
use super::event::{Event, is_event_key};
use super::json::{Cursor, Stop};

/// Initial size of the window: large enough that the cost of refills is negligible, small enough
/// for the cache.
const WINDOW_BYTES: usize = 256 << 10;

/// Maximum size of the window; a longer object is not accepted as an event.
pub(super) const EVENT_BYTES_MAX: usize = 16 << 20;
/// Largest number of bytes that are read of elements without an end, as a multiple of the bytes of
/// the text.
const UNFINISHED_MAX: u64 = 4;

/// Receives the results of a scan.
pub(super) trait Sink {
    /// Receives an event.
    fn event(&mut self, event: &Event<'_>, place: FilePosition<'_>);
    /// Receives a member of the object that holds the events, beside the events; `value` is
    /// unparsed text.
    fn header(&mut self, key: &str, value: &[u8]);
    /// Complaints about the file.
    fn complaints(&mut self) -> &mut Complaints;
    /// Called after each refill of the window.
    fn progress(&mut self);
}

/// Totals of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Bytes of text.
    pub(super) bytes: u64,
    /// Events.
    pub(super) events: u64,
}

/// Position in the structure of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Only white space and brackets so far.
    Start,
    /// Between events.
    Events,
    /// Between events of an array within an object.
    EventsInObject,
    /// Between members of the object.
    Members,
}

/// A scan in progress.
pub(super) struct Scanner<R> {
    input: R,
    compressed: bool,
    window: Vec<u8>,
    /// Bytes of text in the window.
    filled: usize,
    /// Index of the next byte in the window.
    at: usize,
    /// Bytes of text before the window.
    offset: u64,
    /// Line ends before the window.
    lines: u64,
    ended: bool,
    state: State,
    /// Start of the damage that is being skipped, and its kind.
    lost: Option<(u64, Complaint)>,
    /// Bytes that were read of elements without an end.
    unfinished: u64,
    seen: Seen,
}

impl<R: Read> Scanner<R> {
    /// Begins a scan of text; `compressed` selects the wording of input errors.
    pub(super) fn new(input: R, compressed: bool) -> Self {
        Self {
            input,
            compressed,
            window: vec![0; WINDOW_BYTES],
            filled: 0,
            at: 0,
            offset: 0,
            lines: 0,
            ended: false,
            state: State::Start,
            lost: None,
            unfinished: 0,
            seen: Seen::default(),
        }
    }

    /// Returns the first bytes of the text, for format detection. Must be called before
    /// [`run`](Self::run).
    pub(super) fn head(&mut self, sink: &mut impl Sink) -> &[u8] {
        self.fill(sink);
        &self.window[..self.filled]
    }

    /// Reads to the end.
    pub(super) fn run(mut self, sink: &mut impl Sink) -> Seen {
        while self.step(sink) {}
        self.recovered(sink);
        let open = matches!(self.state, State::EventsInObject | State::Members);
        if open && self.seen.events > 0 && !sink.complaints().lost_text() {
            let place = FilePosition {
                offset: self.offset + self.at as u64,
                lines: self.lines,
                before: &self.window[..self.at.min(self.filled)],
            };
            sink.complaints()
                .add(Complaint::NotClosed, place, String::new);
        }
        self.seen.bytes = self.offset + self.filled as u64;
        self.seen
    }

    /// Processes the next element; false at the end.
    fn step(&mut self, sink: &mut impl Sink) -> bool {
        let text = &self.window[..self.filled];
        let mut cursor = Cursor::new(text, self.at);
        let byte = cursor.peek();
        self.at = cursor.at;
        let Ok(byte) = byte else {
            return self.fill(sink);
        };
        match (self.state, byte) {
            (_, b',') => self.at += 1,
            (State::Members, b'"') => return self.member(sink),
            (State::Members, b'}') => self.enter(State::Events),
            (State::EventsInObject, b']') => self.enter(State::Members),
            (State::Start, b'{') => match self.opens_object() {
                Ok(true) => self.enter(State::Members),
                Ok(false) => return self.event(sink),
                Err(Stop::More) => return self.more(sink),
                Err(Stop::Broken) => return self.event(sink),
            },
            (_, b'{') => return self.event(sink),
            // A byte-order mark.
            (State::Start, 0xef | 0xbb | 0xbf) => self.at += 1,
            (State::Start, b'[') => self.enter(State::Events),
            (State::Events | State::EventsInObject, b'[' | b']' | b'}') => self.at += 1,
            _ => {
                self.lose(Complaint::Damaged, sink);
                return self.resync(sink);
            }
        }
        true
    }

    /// Consumes one byte and changes the state.
    fn enter(&mut self, state: State) {
        self.at += 1;
        self.state = state;
    }

    /// Whether the brace at the current position opens the object that holds the events, and not an
    /// event.
    fn opens_object(&self) -> Result<bool, Stop> {
        let mut cursor = Cursor::new(&self.window[..self.filled], self.at);
        cursor.expect(b'{')?;
        if cursor.peek()? == b'}' {
            return Ok(true);
        }
        Ok(!is_event_key(cursor.string()?.raw))
    }

    /// Reads the event at the current position.
    fn event(&mut self, sink: &mut impl Sink) -> bool {
        let text = &self.window[..self.filled];
        match Event::read(text, self.at) {
            Ok((event, end)) => {
                let place = FilePosition {
                    offset: self.offset + self.at as u64,
                    lines: self.lines,
                    before: &text[..self.at],
                };
                if event.phase != 0 {
                    if let Some((from, complaint)) = self.lost.take() {
                        sink.complaints().lost(complaint, place.offset - from);
                    }
                    self.seen.events += 1;
                    sink.event(&event, place);
                    if self.state == State::Start {
                        self.state = State::Events;
                    }
                } else if self.lost.is_none() {
                    // Within damage the object is probably an event's arguments.
                    sink.complaints()
                        .add(Complaint::NoEvent, place, String::new);
                }
                self.at = end;
                true
            }
            Err(stop) => self.stop(stop, sink),
        }
    }

    /// Reads a member of the object that holds the events.
    fn member(&mut self, sink: &mut impl Sink) -> bool {
        let text = &self.window[..self.filled];
        let mut cursor = Cursor::new(text, self.at);
        let read = cursor.string().and_then(|key| {
            cursor.expect(b':')?;
            if key.raw == b"traceEvents" && cursor.peek()? == b'[' {
                return Ok((key, None));
            }
            Ok((key, Some(cursor.value()?)))
        });
        match read {
            Ok((_, None)) => {
                self.at = cursor.at;
                self.enter(State::EventsInObject);
                true
            }
            Ok((key, Some(value))) => {
                let raw = match value {
                    super::json::Value::Nested(raw) => raw,
                    other => other.characters(),
                };
                sink.header(&key.decode(), raw);
                self.at = cursor.at;
                true
            }
            Err(stop) => self.stop(stop, sink),
        }
    }

    /// Handles text at the current position that cannot be parsed.
    fn stop(&mut self, stop: Stop, sink: &mut impl Sink) -> bool {
        match stop {
            Stop::More => self.more(sink),
            Stop::Broken => self.pass(Complaint::Damaged, sink),
        }
    }

    /// Skips the byte at the current position, which cannot be parsed.
    fn pass(&mut self, complaint: Complaint, sink: &mut impl Sink) -> bool {
        self.lose(complaint, sink);
        self.at += 1;
        self.resync(sink)
    }

    /// Handles an element that does not end in the window: reads more text, or skips the first
    /// byte. Where very many elements do not end, it skips the window: each was read to the end of
    /// the window, and the time must not grow with the square of a size.
    fn more(&mut self, sink: &mut impl Sink) -> bool {
        if self.fill(sink) {
            return true;
        }
        // The window is full, or the text has ended.
        let complaint = if self.ended {
            Complaint::Unfinished
        } else {
            Complaint::TooLong
        };
        self.unfinished += (self.filled - self.at) as u64;
        let text = self.offset + self.filled as u64 + EVENT_BYTES_MAX as u64;
        if self.unfinished > UNFINISHED_MAX * text {
            self.lose(complaint, sink);
            self.at = self.filled;
            return self.fill(sink);
        }
        self.pass(complaint, sink)
    }

    /// Records that damage begins at the current position, unless it is already within damage.
    fn lose(&mut self, complaint: Complaint, sink: &mut impl Sink) {
        if self.lost.is_some() {
            return;
        }
        if self.state != State::EventsInObject {
            self.state = State::Events;
        }
        let offset = self.offset + self.at as u64;
        self.lost = Some((offset, complaint));
        let before = &self.window[..self.at];
        let excerpt = &self.window[self.at..self.filled.min(self.at + 40)];
        let place = FilePosition {
            offset,
            lines: self.lines,
            before,
        };
        sink.complaints().add(complaint, place, || {
            let excerpt = String::from_utf8_lossy(excerpt);
            format!("{:?} …", excerpt.trim_end_matches('\u{fffd}'))
        });
    }

    /// Ends the current damage, if any, at the current position.
    fn recovered(&mut self, sink: &mut impl Sink) {
        if let Some((from, complaint)) = self.lost.take() {
            let here = self.offset + self.at as u64;
            sink.complaints().lost(complaint, here.saturating_sub(from));
        }
    }

    /// Goes to the next place that looks like the start of an event; false if there is none.
    fn resync(&mut self, sink: &mut impl Sink) -> bool {
        loop {
            let text = &self.window[..self.filled];
            while let Some(brace) = memchr(b'{', &text[self.at.min(text.len())..]) {
                self.at += brace;
                let mut cursor = Cursor::new(text, self.at + 1);
                match cursor
                    .string()
                    .and_then(|key| cursor.expect(b':').map(|()| key))
                {
                    Ok(key) if is_event_key(key.raw) => return true,
                    // The window ends within a key.
                    Err(Stop::More) if text.len() - self.at < 64 && !self.ended => break,
                    _ => self.at += 1,
                }
            }
            if memchr(b'{', &text[self.at.min(text.len())..]).is_none() {
                self.at = text.len();
            }
            if !self.fill(sink) {
                self.at = self.filled;
                return false;
            }
        }
    }

    /// Moves the window forward and fills it, and doubles it if it is full. False if there is no
    /// more text, or if the window cannot grow (the text has not `ended` then).
    fn fill(&mut self, sink: &mut impl Sink) -> bool {
        if self.ended {
            return false;
        }
        self.lines += memchr_iter(b'\n', &self.window[..self.at]).count() as u64;
        self.offset += self.at as u64;
        self.window.copy_within(self.at..self.filled, 0);
        self.filled -= self.at;
        self.at = 0;
        if self.filled == self.window.len() {
            if self.filled >= EVENT_BYTES_MAX {
                return false;
            }
            self.window.resize(2 * self.filled, 0);
        }
        let before = self.filled;
        while self.filled < self.window.len() {
            match self.input.read(&mut self.window[self.filled..]) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(bytes) => self.filled += bytes,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.ended = true;
                    self.stopped(error, sink);
                    break;
                }
            }
        }
        sink.progress();
        self.filled > before
    }

    /// Reports an input error, after which no more text can be read.
    fn stopped(&mut self, error: std::io::Error, sink: &mut impl Sink) {
        let complaint = match error.kind() {
            std::io::ErrorKind::UnexpectedEof if self.compressed => Complaint::CompressedShort,
            std::io::ErrorKind::InvalidData | std::io::ErrorKind::InvalidInput
                if self.compressed =>
            {
                Complaint::CompressedBroken
            }
            _ => Complaint::Unreadable,
        };
        let place = FilePosition {
            offset: self.offset + self.filled as u64,
            lines: self.lines,
            before: &self.window[..self.filled],
        };
        sink.complaints()
            .add(complaint, place, || error.to_string());
    }
}

#[cfg(test)]
mod tests;
