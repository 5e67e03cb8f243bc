//! Readers of all formats as one type, and the output that they write to.

use std::path::Path;

use super::byteps::Byteps;
use super::complaint::{Complaint, Complaints, FilePosition};
use super::event::{Event, Time};
use super::horovod::Horovod;
use super::json::NS_MAX;
use super::kineto::Kineto;
use super::model::{Format, NameId, Source, Span, Visitor};
use super::names::Names;

/// Output of a reader.
pub(super) struct Out<'v> {
    /// Receives the content.
    pub(super) visitor: &'v mut dyn Visitor,
    /// Names met so far.
    pub(super) names: Names,
    /// Damage and oddities.
    pub(super) complaints: Complaints,
    /// Properties of the file.
    pub(super) source: Source,
}

impl<'v> Out<'v> {
    /// Returns the output for a file of unknown format.
    pub(super) fn new(path: &Path, visitor: &'v mut dyn Visitor) -> Self {
        Self {
            visitor,
            names: Names::default(),
            complaints: Complaints::default(),
            source: Source::new(path, Format::Horovod),
        }
    }

    /// Span of a complete event (`X`); `None`, with a complaint, without a time. Without a duration
    /// the span is empty.
    pub(super) fn span(&mut self, event: &Event<'_>, place: FilePosition<'_>) -> Option<Span> {
        let Time::Ns(began) = event.at else {
            self.complaints.add(Complaint::BadTime, place, String::new);
            return None;
        };
        let duration = match event.duration {
            Time::Ns(ns) if ns >= 0 => ns,
            _ => {
                let detail = || format!("{:?}", event.name.decode());
                self.complaints.add(Complaint::NoDuration, place, detail);
                0
            }
        };
        let ended = (began + duration).min(NS_MAX);
        Some(Span { began, ended })
    }

    /// Returns the name's number.
    pub(super) fn name(&mut self, name: &str) -> NameId {
        self.names.id(name, self.visitor)
    }
}

/// Reader of one format.
pub(super) enum Reader {
    Horovod(Horovod),
    Byteps(Byteps),
    Kineto(Box<Kineto>),
}

impl Reader {
    /// Returns the reader of a format.
    pub(super) fn new(format: Format) -> Self {
        match format {
            Format::Horovod | Format::Ronde => Self::Horovod(Horovod::default()),
            Format::Byteps => Self::Byteps(Byteps::default()),
            Format::Kineto => Self::Kineto(Box::default()),
        }
    }

    /// Reads the next event.
    #[inline]
    pub(super) fn event(&mut self, event: &Event<'_>, place: FilePosition<'_>, out: &mut Out<'_>) {
        match self {
            Self::Horovod(reader) => reader.event(event, place, out),
            Self::Byteps(reader) => reader.event(event, place, out),
            Self::Kineto(reader) => reader.event(event, place, out),
        }
    }

    /// Reads a member beside the events.
    pub(super) fn header(&mut self, key: &str, value: &[u8], out: &mut Out<'_>) {
        match self {
            // Horovod writes an array, which has no members. If some tool has wrapped the array in
            // an object, the added members are not needed.
            Self::Horovod(_) => {}
            Self::Byteps(reader) => reader.header(key, value, out),
            Self::Kineto(reader) => reader.header(key, value, out),
        }
    }

    /// Ends the file.
    pub(super) fn finish(self, mut out: Out<'_>) -> Source {
        match self {
            Self::Horovod(reader) => reader.finish(&mut out),
            Self::Byteps(reader) => reader.finish(&mut out),
            Self::Kineto(reader) => reader.finish(&mut out),
        }
        out.source.incomplete = out.complaints.lost_text();
        out.source.warnings = out.complaints.sentences();
        out.source
    }
}
