//! Log: prints events of `tracing` as lines in Horovod's form.
//!
//! ```text
//! [2026-11-20 12:31:25.123456: W stall.rs:88] [0]: tensor layer1 waits for ranks 1, 3
//!  local time                  │ file:line     rank  text, then fields as name=value
//!                              level: T D I W E
//! ```
//!
//! As in Horovod, TRACE, DEBUG and INFO go to standard output and the rest to standard error;
//! `HOROVOD_LOG_LEVEL` and `HOROVOD_LOG_HIDE_TIME` apply. Level `fatal` hides errors too, because
//! they are returned to the caller.

use crate::knobs::{Knobs, LogLevel};
use std::fmt;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::writer::MakeWriter;
use tracing_subscriber::registry::LookupSpan;

/// Rank in log lines: that of the last [`set_rank`], because a process can have another rank after it
/// has joined another job.
static RANK: AtomicUsize = AtomicUsize::new(0);

/// Sends this process's log to its standard output and error.
///
/// It may be called several times: the level and form of the first call stay, as in Horovod; the
/// rank is that of the last call. If the program has set a `tracing` subscriber, that one stays and
/// receives the events. Returns whether this call set the subscriber.
pub(crate) fn init(knobs: &Knobs, rank: usize) -> bool {
    set_rank(rank);
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(filter(knobs.log_level))
        .with_writer(Standard)
        .log_internal_errors(false) // a closed standard output is no reason to write to standard error
        .event_format(Line {
            hide_time: knobs.log_hide_time,
        })
        .finish();
    tracing::subscriber::set_global_default(subscriber).is_ok()
}

/// Writes a line to standard error, whatever the log level. A full disk or a closed pipe there must
/// not end the job, as `eprintln!` would by its panic.
pub(crate) fn tell(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "ronde: {text}");
}

/// Sets the rank that this process's log lines show.
pub(crate) fn set_rank(rank: usize) {
    RANK.store(rank, Ordering::Relaxed);
}

/// Returns the rank that this process's log lines show.
pub fn rank() -> usize {
    RANK.load(Ordering::Relaxed)
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Trace => LevelFilter::TRACE,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warning => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Fatal => LevelFilter::OFF,
    }
}

/// Writer that sends informative levels to standard output, and warnings and errors to standard
/// error.
struct Standard;

impl<'a> MakeWriter<'a> for Standard {
    type Writer = Box<dyn std::io::Write + 'a>;

    fn make_writer(&'a self) -> Self::Writer {
        Box::new(std::io::stderr())
    }

    fn make_writer_for(&'a self, metadata: &Metadata) -> Self::Writer {
        if only_informs(metadata.level()) {
            Box::new(std::io::stdout())
        } else {
            Box::new(std::io::stderr())
        }
    }
}

/// Whether an event of this level goes to standard output.
fn only_informs(level: &Level) -> bool {
    *level >= Level::INFO // tracing orders levels by verbosity
}

/// Formatter of a log line in Horovod's form.
struct Line {
    hide_time: bool,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<S, N>,
        mut writer: Writer,
        event: &Event,
    ) -> fmt::Result {
        let time = if self.hide_time {
            String::new()
        } else {
            local_time()
        };
        let metadata = event.metadata();
        let location = SourceLocation {
            file: metadata.file().unwrap_or("unknown"),
            line: metadata.line().unwrap_or(0),
        };
        write!(
            writer,
            "{}",
            head(
                &time,
                *metadata.level(),
                location,
                RANK.load(Ordering::Relaxed)
            )
        )?;
        context
            .field_format()
            .format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

/// Source location of an event.
struct SourceLocation<'a> {
    file: &'a str,
    line: u32,
}

/// Returns the part of a line before its text; `time` is empty if it is hidden.
fn head(time: &str, level: Level, location: SourceLocation, rank: usize) -> String {
    let letter = match level {
        Level::TRACE => 'T',
        Level::DEBUG => 'D',
        Level::INFO => 'I',
        Level::WARN => 'W',
        Level::ERROR => 'E',
    };
    let separator = if time.is_empty() { "" } else { ": " };
    let file = Path::new(location.file)
        .file_name()
        .map_or(location.file.into(), |name| name.to_string_lossy());
    format!(
        "[{time}{separator}{letter} {file}:{}] [{rank}]: ",
        location.line
    )
}

fn local_time() -> String {
    jiff::Zoned::now()
        .strftime("%Y-%m-%d %H:%M:%S.%6f")
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn lines_begin_as_horovods_do() {
        let location = || SourceLocation {
            file: "src/negotiation/stall.rs",
            line: 88,
        };
        assert_eq!(
            head("2026-11-20 12:31:25.123456", Level::WARN, location(), 0),
            "[2026-11-20 12:31:25.123456: W stall.rs:88] [0]: "
        );
        assert_eq!(
            head("", Level::TRACE, location(), 3),
            "[T stall.rs:88] [3]: "
        );
    }

    #[test]
    fn events_print_as_text_and_fields() {
        let written = tempfile::NamedTempFile::new().unwrap();
        let line = Line { hide_time: true };
        let subscriber = tracing_subscriber::fmt()
            .with_writer(Arc::new(written.reopen().unwrap()))
            .event_format(line)
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(tensor = "layer1", ranks = 2, "waits")
        });
        let text = std::fs::read_to_string(written.path()).unwrap();
        let tail = "]: waits tensor=\"layer1\" ranks=2\n"; // the rank before it is another test's to set
        assert!(
            text.starts_with("[W logging.rs:") && text.ends_with(tail),
            "{text}"
        );
    }

    #[test]
    fn only_warnings_and_errors_go_to_standard_error() {
        let informing = [Level::TRACE, Level::DEBUG, Level::INFO]
            .iter()
            .all(only_informs);
        assert!(informing && ![Level::WARN, Level::ERROR].iter().any(only_informs));
    }

    #[test]
    fn times_have_microseconds() {
        let time = local_time();
        let shape: String = time
            .chars()
            .map(|c| if c.is_ascii_digit() { '0' } else { c })
            .collect();
        assert_eq!(shape, "0000-00-00 00:00:00.000000");
    }

    #[test]
    fn a_level_hides_the_levels_below_it() {
        assert!(filter(LogLevel::Info) >= Level::INFO && filter(LogLevel::Info) < Level::DEBUG);
        assert!(filter(LogLevel::Fatal) < Level::ERROR);
    }

    #[test]
    fn init_may_be_called_again() {
        init(&Knobs::default(), 0);
        assert!(!init(&Knobs::default(), 1));
        assert_eq!(RANK.load(Ordering::Relaxed), 1);
    }
}
