//! Format detection: determines from its first events which program wrote a file.

use super::complaint::FilePosition;
use super::event::{Event, Id};
use super::model::Format;
use super::reader::{Out, Reader};
use super::vocabulary;

/// Maximum number of events held back until the format is known. A file that begins with more
/// metadata than this is read as the most likely format.
const HELD_EVENTS_MAX: usize = 1024;

/// Maximum length of a held-back member beside the events.
const HEADER_BYTES_MAX: usize = 64 << 10;

/// Members beside the events that are specific to PyTorch's profiler.
const KINETO_KEYS: [&str; 5] = [
    "schemaVersion",
    "distributedInfo",
    "deviceProperties",
    "baseTimeNanoseconds",
    "record_shapes",
];

/// Event categories of PyTorch's profiler, including those of older versions.
const KINETO_CATEGORIES: [&[u8]; 18] = [
    b"kernel",
    b"Kernel",
    b"gpu_memcpy",
    b"Memcpy",
    b"gpu_memset",
    b"Memset",
    b"cpu_op",
    b"Operator",
    b"cpu_instant_event",
    b"user_annotation",
    b"gpu_user_annotation",
    b"python_function",
    b"cuda_runtime",
    b"Runtime",
    b"cuda_driver",
    b"ac2g",
    b"fwdbwd",
    b"Trace",
];

/// Evidence seen so far, for a file of unknown format.
#[derive(Debug, Default)]
pub(super) struct Detector {
    held: Vec<Held>,
    headers: Vec<(String, Vec<u8>)>,
    /// Keys beside the events, for a message.
    keys: Vec<String>,
    /// Names of events, for a message.
    names: Vec<String>,
    /// Whether there was metadata in the form of Horovod's timeline, or ends of bars. Only
    /// Horovod's format has these, but they are weak evidence.
    perhaps_horovod: bool,
}

#[derive(Debug)]
struct Held {
    raw: Box<[u8]>,
    offset: u64,
    line: u64,
}

impl Detector {
    /// Examines an event. Returns the format once it is known; the event is not held back then.
    pub(super) fn event(&mut self, event: &Event<'_>, place: FilePosition<'_>) -> Option<Format> {
        if let Some(format) = self.verdict(event) {
            return Some(format);
        }
        if self.held.len() == HELD_EVENTS_MAX {
            return self.guess();
        }
        if self.names.len() < 3 && !event.name.raw.is_empty() {
            let name = event.name.decode().chars().take(40).collect();
            if !self.names.contains(&name) {
                self.names.push(name);
            }
        }
        self.held.push(Held {
            raw: event.raw.into(),
            offset: place.offset,
            line: place.line(),
        });
        None
    }

    fn verdict(&mut self, event: &Event<'_>) -> Option<Format> {
        let (category, name) = (event.category.raw, event.name.raw);
        let comm = |id| matches!(id, Id::Text(text) if text.starts_with(b"Comm."));
        if category == b"Comm" || comm(event.process) {
            return Some(Format::Byteps);
        }
        if KINETO_CATEGORIES.contains(&category) {
            return Some(Format::Kineto);
        }
        if !category.is_empty() {
            return None;
        }
        match event.phase {
            b'i' | b'I' if matches!(name, b"CYCLE_START" | b"STEP" | b"EPOCH" | b"SETTINGS") => {
                Some(Format::Horovod)
            }
            b'B' if name.starts_with(b"NEGOTIATE_")
                || vocabulary::kind(name).is_some()
                || vocabulary::phase(name).is_some() =>
            {
                Some(Format::Horovod)
            }
            b'X' if event.thread == Id::None
                && !name.is_empty()
                && name.iter().all(u8::is_ascii_digit) =>
            {
                Some(Format::Horovod)
            }
            b'M' if event.argument("start_time_since_epoch_in_micros").is_some()
                || event.argument("ronde").is_some() =>
            {
                Some(Format::Horovod)
            }
            b'M' | b'E' if event.thread == Id::None && matches!(event.process, Id::Number(_)) => {
                self.perhaps_horovod = true;
                None
            }
            _ => None,
        }
    }

    /// Examines a member beside the events.
    pub(super) fn header(&mut self, key: &str, value: &[u8]) -> Option<Format> {
        if self.keys.len() < 6 {
            self.keys.push(key.chars().take(40).collect());
        }
        if value.len() <= HEADER_BYTES_MAX && self.headers.len() < 64 {
            self.headers.push((key.to_owned(), value.to_vec()));
        }
        KINETO_KEYS.contains(&key).then_some(Format::Kineto)
    }

    /// Returns the most likely format at the end of the file.
    pub(super) fn guess(&self) -> Option<Format> {
        self.perhaps_horovod.then_some(Format::Horovod)
    }

    /// Passes the held-back events to the reader.
    pub(super) fn replay(&mut self, reader: &mut Reader, out: &mut Out<'_>) {
        for (key, value) in self.headers.drain(..) {
            reader.header(&key, &value, out);
        }
        for held in self.held.drain(..) {
            // The text has been parsed before, so parsing cannot fail.
            if let Ok((event, _)) = Event::read(&held.raw, 0) {
                let place = FilePosition {
                    offset: held.offset,
                    lines: held.line - 1,
                    before: &[],
                };
                reader.event(&event, place, out);
            }
        }
    }

    /// First few keys beside the events.
    pub(super) fn keys(&self) -> &[String] {
        &self.keys
    }

    /// First few names of events that did not determine the format.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }
}
