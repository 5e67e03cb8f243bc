//! The readers of the formats behind one face, and what they write into.

use std::path::Path;

use super::byteps::Byteps;
use super::complaint::{Complaint, Complaints, FilePosition};
use super::event::{Event, Time};
use super::horovod::Horovod;
use super::json::NS_MAX;
use super::kineto::Kineto;
use super::model::{Format, NameId, Source, Span, Visitor};
use super::names::Names;

/// Where a reader's findings go.
pub(super) struct Out<'v> {
    /// Takes them.
    pub(super) visitor: &'v mut dyn Visitor,
    /// Names met so far.
    pub(super) names: Names,
    /// What was odd.
    pub(super) complaints: Complaints,
    /// What is known of the file.
    pub(super) source: Source,
}

impl<'v> Out<'v> {
    /// For a file of which nothing is known.
    pub(super) fn new(path: &Path, visitor: &'v mut dyn Visitor) -> Self {
        Self {
            visitor,
            names: Names::default(),
            complaints: Complaints::default(),
            source: Source::new(path, Format::Horovod),
        }
    }

    /// When a whole event (`X`) was; none, with a complaint, if it does not say. Without a duration it took no time.
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

    /// The name's number.
    pub(super) fn name(&mut self, name: &str) -> NameId {
        self.names.id(name, self.visitor)
    }
}

/// A reader of one format.
pub(super) enum Reader {
    Horovod(Horovod),
    Byteps(Byteps),
    Kineto(Box<Kineto>),
}

impl Reader {
    /// The reader of a format.
    pub(super) fn new(format: Format) -> Self {
        match format {
            Format::Horovod | Format::Ronde => Self::Horovod(Horovod::default()),
            Format::Byteps => Self::Byteps(Byteps::default()),
            Format::Kineto => Self::Kineto(Box::default()),
        }
    }

    /// The next event.
    #[inline]
    pub(super) fn event(&mut self, event: &Event<'_>, place: FilePosition<'_>, out: &mut Out<'_>) {
        match self {
            Self::Horovod(reader) => reader.event(event, place, out),
            Self::Byteps(reader) => reader.event(event, place, out),
            Self::Kineto(reader) => reader.event(event, place, out),
        }
    }

    /// A member beside the events.
    pub(super) fn header(&mut self, key: &str, value: &[u8], out: &mut Out<'_>) {
        match self {
            // An array has none; a timeline that some tool has wrapped says nothing that is missed here.
            Self::Horovod(_) => {}
            Self::Byteps(reader) => reader.header(key, value, out),
            Self::Kineto(reader) => reader.header(key, value, out),
        }
    }

    /// The file ends.
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
