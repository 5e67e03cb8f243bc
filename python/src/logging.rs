//! The runtime's log in Python's `logging`, for programs that have set that up: logger `ronde`, and `record.rank`.
//!
//! Whoever has not gets Horovod's lines on standard error, and so does who asks for them by `HOROVOD_LOG_LEVEL`. No thread of the runtime
//! waits for Python: what it says goes through a channel to a thread that does nothing else.

use std::fmt::Write;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::IntoPyDict;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// How long leaving a job may wait until its last lines are out.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a thread of the runtime has said.
struct Line {
    level: Level,
    file: &'static str,
    number: u32,
    rank: usize,
    text: String,
}

enum Message {
    Line(Line),
    /// All before it is out.
    Flush(Sender<()>),
}

static MESSAGES: OnceLock<Mutex<Sender<Message>>> = OnceLock::new();

fn send(message: Message) {
    if let Some(messages) = MESSAGES.get() {
        let messages = messages.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = messages.send(message); // its thread ends with the process
    }
}

/// Has Python's `logging` get the log from here on, if the program has set that up and has not asked for Horovod's.
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
        return Ok(()); // somebody listens already
    }
    let (sender, messages) = channel();
    let thread = std::thread::Builder::new().name("ronde-log".into());
    thread.spawn(move || tell(&messages))?;
    let _ = MESSAGES.set(Mutex::new(sender)); // nobody else has: the subscriber was set once
    Ok(())
}

/// Waits a little until all that was said is out.
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
                    eprintln!("[{}] [{}]: {}", line.level, line.rank, line.text); // Python is ending
                }
            }
            Message::Flush(told) => {
                let _ = told.send(()); // who has waited too long is gone
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
        let record = ("ronde", level, self.file, self.number, &*self.text, (), py.None());
        let record = logger.call_method("makeRecord", record, Some(&named))?;
        logger.call_method1("handle", (record,)).map(drop)
    }
}

/// Takes events up to this level.
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

    // Spans say nothing here.
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
