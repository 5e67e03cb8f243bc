//! Writer of the trace-event format: bars, instants, and names of processes and threads.

use std::io::{self, Write};

use serde::{Serialize, Serializer};

use crate::{Operation, Span};

/// Writer of a trace's events.
pub(super) struct Events<'a> {
    sink: &'a mut dyn Write,
    separator: &'static [u8],
    /// First error. It is stored because a visitor cannot return it.
    failed: Option<io::Error>,
}

/// Event of the trace-event format; times are in microseconds.
#[derive(Default, Serialize)]
struct Event<'a> {
    ph: &'static str,
    name: &'a str,
    pid: u32,
    tid: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<Micros>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<Micros>,
    /// Scope of an instant: its thread or its process.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Args>,
}

/// Further properties of an event.
#[derive(Serialize)]
#[serde(untagged)]
enum Args {
    Value(serde_json::Value),
    Details(Details),
}

/// Time in nanoseconds, written in microseconds. Whole microseconds are written exactly, however
/// large.
#[derive(Clone, Copy)]
pub(super) struct Micros(pub(super) i64);

impl Micros {
    fn of(ns: u64) -> Self {
        Self(i64::try_from(ns).unwrap_or(i64::MAX))
    }
}

impl Serialize for Micros {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 % 1000 {
            0 => serializer.serialize_i64(self.0 / 1000),
            _ => serializer.serialize_f64(self.0 as f64 / 1e3),
        }
    }
}

/// Properties of a tensor besides its times, and sums over the chunks of its batch.
#[derive(Serialize)]
pub(super) struct Details {
    #[serde(skip_serializing_if = "Option::is_none")]
    dtype: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    elements: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    sums: Option<Sums>,
}

#[derive(Serialize)]
struct Sums {
    copy_in_us: Micros,
    reduce_us: Micros,
    copy_out_us: Micros,
    wait_us: Micros,
}

impl Details {
    pub(super) fn of(operation: &Operation) -> Self {
        Self {
            dtype: operation.dtype.map(ronde_job::Dtype::name),
            elements: operation.elements,
            bytes: operation.bytes,
            sums: operation.sums.map(|sums| Sums {
                copy_in_us: Micros::of(sums.copy_in_ns),
                reduce_us: Micros::of(sums.reduce_ns),
                copy_out_us: Micros::of(sums.copy_out_ns),
                wait_us: Micros::of(sums.wait_ns),
            }),
        }
    }
}

impl<'a> Events<'a> {
    /// Writes the text before the first event. Readers of traces identify the file by its first
    /// member `ronde_merge`.
    ///
    /// # Errors
    /// An error of the sink.
    pub(super) fn begin(sink: &'a mut dyn Write) -> io::Result<Self> {
        sink.write_all(b"{\"ronde_merge\":1,\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
        Ok(Self {
            sink,
            separator: b"\n",
            failed: None,
        })
    }

    /// Writes the text after the last event.
    ///
    /// # Errors
    /// The first error of the sink, including those of earlier events.
    pub(super) fn end(self) -> io::Result<()> {
        match self.failed {
            Some(error) => Err(error),
            None => self.sink.write_all(b"\n]}\n"),
        }
    }

    fn write(&mut self, event: &Event<'_>) {
        if self.failed.is_none() {
            let separator = std::mem::replace(&mut self.separator, b",\n");
            let written = self.sink.write_all(separator);
            let written = written.and_then(|()| Ok(serde_json::to_writer(&mut *self.sink, event)?));
            self.failed = written.err();
        }
    }

    /// Writes the name or sort position of a process or thread.
    pub(super) fn metadata(&mut self, name: &str, pid: u32, tid: u64, args: serde_json::Value) {
        self.write(&Event {
            ph: "M",
            name,
            pid,
            tid,
            args: Some(Args::Value(args)),
            ..Event::default()
        });
    }

    /// Writes an instant. Its `scope` is its thread (`t`) or its process (`p`).
    pub(super) fn instant(
        &mut self,
        name: &str,
        (pid, tid): (u32, u64),
        at: i64,
        scope: &'static str,
        args: Option<serde_json::Value>,
    ) {
        self.write(&Event {
            ph: "i",
            name,
            pid,
            tid,
            ts: Some(Micros(at)),
            s: Some(scope),
            args: args.map(Args::Value),
            ..Event::default()
        });
    }

    /// Writes a bar: a complete event with its beginning and duration.
    pub(super) fn bar(
        &mut self,
        name: &str,
        (pid, tid): (u32, u64),
        span: Span,
        details: Option<Details>,
    ) {
        self.write(&Event {
            ph: "X",
            name,
            pid,
            tid,
            ts: Some(Micros(span.began)),
            dur: Some(Micros::of(span.ns())),
            args: details.map(Args::Details),
            ..Event::default()
        });
    }
}
