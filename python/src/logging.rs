//! Forwards the runtime's log to Python's `logging`, logger `ronde`, with the rank as
//! `record.rank`.
//!
//! Only for programs that have configured `logging`; otherwise, and if `HOROVOD_LOG_LEVEL` is set,
//! log lines go to standard error in Horovod's format. Threads of the runtime never wait for
//! Python: lines go through a channel to a thread of their own.

use std::fmt::Write;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::IntoPyDict;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Longest wait for the last lines when the job ends.
const PATIENCE: Duration = Duration::from_secs(1);

/// A log line of a thread of the runtime.
struct Line {
    level: Level,
    file: &'static str,
    number: u32,
    rank: usize,
    text: String,
}

enum Message {
    Line(Line),
    /// Request to answer once all earlier lines are written.
    Flush(Sender<()>),
}

static MESSAGES: OnceLock<Mutex<Sender<Message>>> = OnceLock::new();

fn send(message: Message) {
    if let Some(messages) = MESSAGES.get() {
        let messages = messages.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = messages.send(message); // the receiving thread ends with the process
    }
}

/// Forwards the log to Python's `logging` from now on, if the program has configured it and
/// `HOROVOD_LOG_LEVEL` is not set.
pub(crate) fn begin(py: Python<'_>) -> PyResult<()> {
    if MESSAGES.get().is_some()
        || std::env::var_os("HOROVOD_LOG_LEVEL").is_some_and(|level| !level.is_empty())
    {
        return Ok(());
    }
    let logger = logger(py)?;
    if !logger.call_method0("hasHandlers")?.is_truthy()? {
        return Ok(());
    }
    let level: i32 = logger.call_method0("getEffectiveLevel")?.extract()?;
    let most_verbose = match level {
        ..10 => Level::TRACE,
        10..20 => Level::DEBUG,
        20..30 => Level::INFO,
        30..40 => Level::WARN,
        _ => Level::ERROR,
    };
    if tracing::subscriber::set_global_default(Lines(most_verbose)).is_err() {
        return Ok(()); // the program has its own subscriber
    }
    let (sender, messages) = channel();
    let thread = std::thread::Builder::new().name("ronde-log".into());
    thread.spawn(move || tell(&messages))?;
    let _ = MESSAGES.set(Mutex::new(sender)); // not set before: the subscriber was set once
    Ok(())
}

/// Waits up to [`PATIENCE`] until all lines are written.
pub(crate) fn flush(py: Python<'_>) {
    if MESSAGES.get().is_none() {
        return;
    }
    let (sender, told) = channel();
    send(Message::Flush(sender));
    let _ = py.detach(move || told.recv_timeout(PATIENCE));
}

fn logger(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("logging")?.call_method1("getLogger", ("ronde",))
}

fn tell(messages: &Receiver<Message>) {
    for message in messages {
        match message {
            Message::Line(line) => {
                let told = Python::try_attach(|py| line.handle(py));
                if !matches!(told, Some(Ok(()))) {
                    eprintln!("[{}] [{}]: {}", line.level, line.rank, line.text); // the interpreter is shutting down
                }
            }
            Message::Flush(told) => {
                let _ = told.send(()); // fails if the caller has stopped waiting
            }
        }
    }
}

impl Line {
    fn handle(&self, py: Python<'_>) -> PyResult<()> {
        let level = match self.level {
            Level::ERROR => 40,
            Level::WARN => 30,
            Level::INFO => 20,
            Level::DEBUG => 10,
            Level::TRACE => 5,
        };
        let logger = logger(py)?;
        if !logger.call_method1("isEnabledFor", (level,))?.is_truthy()? {
            return Ok(());
        }
        let named = [("extra", [("rank", self.rank)].into_py_dict(py)?)].into_py_dict(py)?;
        let record = (
            "ronde",
            level,
            self.file,
            self.number,
            &*self.text,
            (),
            py.None(),
        );
        let record = logger.call_method("makeRecord", record, Some(&named))?;
        logger.call_method1("handle", (record,)).map(drop)
    }
}

/// Subscriber for events up to this level.
struct Lines(Level);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.0
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(self.0.into())
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let metadata = event.metadata();
        send(Message::Line(Line {
            level: *metadata.level(),
            file: metadata.file().unwrap_or("unknown"),
            number: metadata.line().unwrap_or(0),
            rank: ronde::internal::logging::rank(),
            text: text.0,
        }));
    }

    // Spans are not logged.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The message, and fields as `name=value`.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
