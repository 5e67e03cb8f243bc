//! Complaints about a file: damage and oddities, counted by kind, each with the place of its first
//! occurrence.

use memchr::memchr_iter;

/// Place in the text that is being read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FilePosition<'a> {
    /// Bytes before the place, after decompression.
    pub(super) offset: u64,
    /// Lines that ended before `before`.
    pub(super) lines: u64,
    /// The text before it that is still in memory.
    pub(super) before: &'a [u8],
}

impl FilePosition<'_> {
    /// Line number, from 1.
    pub(super) fn line(self) -> u64 {
        1 + self.lines + memchr_iter(b'\n', self.before).count() as u64
    }
}

/// Kind of complaint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Complaint {
    /// A compressed file ends early.
    CompressedShort,
    /// A compressed file is damaged.
    CompressedBroken,
    /// The operating system reported an error while reading.
    Unreadable,
    /// Text that is not valid JSON or has no event.
    Damaged,
    /// The file ends within an event.
    Unfinished,
    /// The file ends before the end of the array or object that holds the events.
    NotClosed,
    /// An event longer than the limit.
    TooLong,
    /// An object that is not an event.
    NoEvent,
    /// A time that is not a number.
    BadTime,
    /// An event without `pid` or `tid`.
    NoProcess,
    /// An end without a beginning.
    NoBegin,
    /// A beginning without an end.
    NoEnd,
    /// An end before its beginning.
    Backwards,
    /// An event without a duration.
    NoDuration,
    /// A pid was assigned to another tensor.
    Renamed,
    /// A tensor without a name.
    Unnamed,
    /// A rank's tick outside a negotiation.
    StrayTick,
    /// Operations in flight at the end of the file.
    InFlight,
    /// Tensors that were not ready on all ranks.
    Waiting,
    /// Rows that belong to no `total` row.
    Orphan,
    /// GPU work of unknown type.
    UnknownKernel,
    /// Work of further GPUs.
    OtherGpu,
}

#[derive(Debug)]
struct Entry {
    complaint: Complaint,
    count: u64,
    offset: u64,
    line: u64,
    detail: String,
    lost_bytes: u64,
}

/// All complaints about a file.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    entries: Vec<Entry>,
}

impl Complaints {
    /// Counts a complaint; `detail` is called only for the first of its kind.
    pub(super) fn add(
        &mut self,
        complaint: Complaint,
        place: FilePosition<'_>,
        detail: impl FnOnce() -> String,
    ) {
        match self.entry(complaint) {
            Some(entry) => entry.count += 1,
            None => self.entries.push(Entry {
                complaint,
                count: 1,
                offset: place.offset,
                line: place.line(),
                detail: detail(),
                lost_bytes: 0,
            }),
        }
    }

    /// Adds to the bytes lost by a complaint that was added before.
    pub(super) fn lost(&mut self, complaint: Complaint, bytes: u64) {
        if let Some(entry) = self.entry(complaint) {
            entry.lost_bytes += bytes;
        }
    }

    fn entry(&mut self, complaint: Complaint) -> Option<&mut Entry> {
        self.entries
            .iter_mut()
            .find(|entry| entry.complaint == complaint)
    }

    /// Whether reading the input failed.
    pub(super) fn has_input_errors(&self) -> bool {
        self.entries.iter().any(|entry| {
            matches!(
                entry.complaint,
                Complaint::CompressedShort | Complaint::CompressedBroken | Complaint::Unreadable
            )
        })
    }

    /// Whether text of the file is missing.
    pub(super) fn lost_text(&self) -> bool {
        self.has_input_errors()
            || self.entries.iter().any(|entry| {
                matches!(
                    entry.complaint,
                    Complaint::Unfinished
                        | Complaint::Damaged
                        | Complaint::TooLong
                        | Complaint::NotClosed
                )
            })
    }

    /// Returns one sentence for each kind of complaint.
    pub(super) fn sentences(&self) -> Vec<String> {
        self.entries.iter().map(Entry::sentence).collect()
    }
}

impl Entry {
    fn sentence(&self) -> String {
        let Self {
            count,
            lost_bytes,
            detail,
            ..
        } = self;
        let many = |one: &str, several: &str| {
            if *count == 1 {
                format!("1 {one}")
            } else {
                format!("{count} {several}")
            }
        };
        let first = if *count == 1 { "" } else { "the first " };
        let place = format!("{first}at byte {}, line {}", self.offset, self.line);
        let about = if detail.is_empty() {
            String::new()
        } else {
            format!(" ({detail})")
        };
        match self.complaint {
            Complaint::CompressedShort => format!(
                "the compressed file is truncated; read up to byte {} of the text, line {}",
                self.offset, self.line
            ),
            Complaint::CompressedBroken => format!(
                "the compressed file is damaged{about}; read up to byte {} of the text, line {}, the rest is lost",
                self.offset, self.line
            ),
            Complaint::Unreadable => format!(
                "reading stopped at byte {}, line {}{about}; the rest is lost",
                self.offset, self.line
            ),
            Complaint::Damaged => format!(
                "{}, {lost_bytes} bytes left out, {place}{about}",
                many("damaged place", "damaged places")
            ),
            Complaint::Unfinished => format!(
                "the file ends within an event; its last {lost_bytes} bytes are left out, from byte {}, line {}",
                self.offset, self.line
            ),
            Complaint::NotClosed => format!(
                "the file is truncated: it ends before its list of events does, {place}; later events are missing"
            ),
            Complaint::TooLong => format!(
                "{}, {lost_bytes} bytes left out, {place}{about}",
                many("event is too long", "events are too long")
            ),
            Complaint::NoEvent => format!(
                "{} left out, {place}",
                many(
                    "object that is not an event (no \"ph\")",
                    "objects that are not events (no \"ph\")"
                )
            ),
            Complaint::BadTime => format!(
                "{}, {place}; such an event gets the time of the one before it",
                many(
                    "time is missing, invalid or out of range",
                    "times are missing, invalid or out of range"
                )
            ),
            Complaint::NoProcess => format!(
                "{} left out, {place}{about}",
                many("event without a pid", "events without a pid")
            ),
            Complaint::NoBegin => format!(
                "{} left out, {place}{about}",
                many("end without a beginning", "ends without a beginning")
            ),
            Complaint::NoEnd => format!(
                "{}, {place}{about}",
                many("beginning without an end", "beginnings without an end")
            ),
            Complaint::Backwards => format!(
                "{}, {place}{about}; taken as no time at all",
                many("bar ends before it begins", "bars end before they begin")
            ),
            Complaint::NoDuration => format!(
                "{}, {place}{about}; taken as 0",
                many(
                    "duration is missing or negative",
                    "durations are missing or negative"
                )
            ),
            Complaint::Renamed => format!(
                "{}, {place}{about}; events from there on are the new tensor's",
                many(
                    "pid was given to another tensor",
                    "pids were given to another tensor"
                )
            ),
            Complaint::Unnamed => format!(
                "{}, {place}{about}; called by the pid",
                many("tensor has no name", "tensors have no name")
            ),
            Complaint::StrayTick => format!(
                "{} left out, {place}{about}",
                many(
                    "rank's tick outside a negotiation",
                    "ranks' ticks outside a negotiation"
                )
            ),
            Complaint::InFlight => format!(
                "{} not counted as executed{about}",
                many(
                    "operation was in progress when the file ended:",
                    "operations were in progress when the file ended:"
                )
            ),
            Complaint::Waiting => format!(
                "{}{about}",
                many(
                    "tensor was still waiting for ranks when the file ended",
                    "tensors were still waiting for ranks when the file ended"
                )
            ),
            Complaint::UnknownKernel => format!(
                "{} on the GPU counted neither as computation nor as a collective, {place}{about}",
                many("event of unknown type", "events of unknown type")
            ),
            Complaint::OtherGpu => format!(
                "{} left out{about}",
                many("event of another GPU", "events of other GPUs")
            ),
            Complaint::Orphan => format!(
                "{}, {place}{about}",
                many(
                    "row that belongs to no complete synchronization",
                    "rows that belong to no complete synchronization"
                )
            ),
        }
    }
}
