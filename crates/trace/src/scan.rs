//! Finds the events of a trace in a stream of text, however the text is damaged.
//!
//! The text is held in a window that is moved over the file and grows only for an event that does not fit. Events may
//! stand in an array, in an array within an object (`{"traceEvents": […], …}`), or just one after the other; commas
//! and closing brackets between them are not insisted on. Where the text makes no sense, the next place that looks like
//! the beginning of an event (`{"ph":`, `{"name":`, …) is looked for, within the damaged event too, and what was passed
//! over is counted.

use std::io::Read;

use memchr::{memchr, memchr_iter};

use super::complaint::{Complaint, Complaints, FilePosition};
use super::event::{Event, is_event_key};
use super::json::{Cursor, Stop};

/// Size of the window to begin with: large enough that refills cost nothing, small enough for the cache.
const WINDOW_BYTES: usize = 256 << 10;

/// How far it grows for one event; a longer one is none.
pub(super) const EVENT_BYTES_MAX: usize = 16 << 20;

/// Takes what is found.
pub(super) trait Sink {
    /// An event.
    fn event(&mut self, event: &Event<'_>, place: FilePosition<'_>);
    /// A member beside the events of the object they are in; `value` as it stands in the file.
    fn header(&mut self, key: &str, value: &[u8]);
    /// Where complaints go.
    fn complaints(&mut self) -> &mut Complaints;
    /// Called now and then.
    fn progress(&mut self);
}

/// What a scan has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Bytes of text.
    pub(super) bytes: u64,
    /// Events.
    pub(super) events: u64,
}

/// Where in the file the scan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but blanks and brackets yet.
    Start,
    /// Between events.
    Events,
    /// Between events of an array within an object.
    EventsInObject,
    /// Between members of that object.
    Members,
}

/// A scan under way.
pub(super) struct Scanner<R> {
    input: R,
    compressed: bool,
    window: Vec<u8>,
    /// How much of the window is text.
    filled: usize,
    /// Next byte to look at.
    at: usize,
    /// Bytes of text before the window.
    offset: u64,
    /// Lines ended before the window.
    lines: u64,
    ended: bool,
    state: State,
    /// Where the damage began that is being passed over, and what it is.
    lost: Option<(u64, Complaint)>,
    seen: Seen,
}

impl<R: Read> Scanner<R> {
    /// A scan of text; `compressed` says how its errors are to be called.
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
            seen: Seen::default(),
        }
    }

    /// The first bytes of the text, for whoever wants to know what it is: to be asked before [`run`](Self::run).
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
            sink.complaints().add(Complaint::NotClosed, place, String::new);
        }
        self.seen.bytes = self.offset + self.filled as u64;
        self.seen
    }

    /// Handles what comes next; false at the end.
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

    /// Steps over one byte and is elsewhere.
    fn enter(&mut self, state: State) {
        self.at += 1;
        self.state = state;
    }

    /// Whether the brace at the window's place opens the object that everything is in, and not an event.
    fn opens_object(&self) -> Result<bool, Stop> {
        let mut cursor = Cursor::new(&self.window[..self.filled], self.at);
        cursor.expect(b'{')?;
        if cursor.peek()? == b'}' {
            return Ok(true);
        }
        Ok(!is_event_key(cursor.string()?.raw))
    }

    /// The event at the window's place.
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
                    // Within damage it is as likely an event's arguments.
                    sink.complaints().add(Complaint::NoEvent, place, String::new);
                }
                self.at = end;
                true
            }
            Err(stop) => self.stop(stop, sink),
        }
    }

    /// A member of the object that everything is in.
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

    /// What begins at the window's place cannot be read: see why.
    fn stop(&mut self, stop: Stop, sink: &mut impl Sink) -> bool {
        match stop {
            Stop::More => self.more(sink),
            Stop::Broken => self.pass(Complaint::Damaged, sink),
        }
    }

    /// Passes over the byte at the window's place, which cannot be used.
    fn pass(&mut self, complaint: Complaint, sink: &mut impl Sink) -> bool {
        self.lose(complaint, sink);
        self.at += 1;
        self.resync(sink)
    }

    /// What begins at the window's place does not end in the window: gets more text, or passes over the beginning.
    fn more(&mut self, sink: &mut impl Sink) -> bool {
        if self.fill(sink) {
            return true;
        }
        // There is no room for more, or no more.
        let complaint = if self.ended {
            Complaint::Unfinished
        } else {
            Complaint::TooLong
        };
        self.pass(complaint, sink)
    }

    /// Notes that damage begins at the window's place, unless that is within damage.
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

    /// The damage, if any, reaches up to the window's place.
    fn recovered(&mut self, sink: &mut impl Sink) {
        if let Some((from, complaint)) = self.lost.take() {
            let here = self.offset + self.at as u64;
            sink.complaints().lost(complaint, here.saturating_sub(from));
        }
    }

    /// Goes to the next place that looks like the beginning of an event; false if there is none.
    fn resync(&mut self, sink: &mut impl Sink) -> bool {
        loop {
            let text = &self.window[..self.filled];
            while let Some(brace) = memchr(b'{', &text[self.at.min(text.len())..]) {
                self.at += brace;
                let mut cursor = Cursor::new(text, self.at + 1);
                match cursor.string().and_then(|key| cursor.expect(b':').map(|()| key)) {
                    Ok(key) if is_event_key(key.raw) => return true,
                    // The window ends here; a key is short.
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

    /// Moves the window on and fills it, growing it if all of it is in use. False if there is no more text, or no
    /// room to grow (then the text has not `ended`).
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

    /// The input gives no more because of an error.
    fn stopped(&mut self, error: std::io::Error, sink: &mut impl Sink) {
        let complaint = match error.kind() {
            std::io::ErrorKind::UnexpectedEof if self.compressed => Complaint::CompressedShort,
            std::io::ErrorKind::InvalidData | std::io::ErrorKind::InvalidInput if self.compressed => {
                Complaint::CompressedBroken
            }
            _ => Complaint::Unreadable,
        };
        let place = FilePosition {
            offset: self.offset + self.filled as u64,
            lines: self.lines,
            before: &self.window[..self.filled],
        };
        sink.complaints().add(complaint, place, || error.to_string());
    }
}

#[cfg(test)]
mod tests;
