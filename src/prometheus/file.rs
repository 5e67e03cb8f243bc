//! Text file with the metrics, for node-exporter's textfile collector: replaced as a whole, so that
//! a reader never sees half of it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use atomic_write_file::AtomicWriteFile;

use super::metrics::Metrics;
use crate::error::{Error, SettingsError};
use crate::sync::lock;

/// Variable that names the file.
const FILE: &str = "RONDE_METRICS_FILE";

/// Time between two writes: shorter than the usual interval of a scrape.
const INTERVAL: Duration = Duration::from_secs(10);

/// A thread that writes the file until it is dropped.
#[derive(Debug)]
pub(super) struct TextFile {
    shared: Arc<Written>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Written {
    path: PathBuf,
    metrics: Arc<Metrics>,
    state: Mutex<State>,
    ends: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_over: bool,
    /// Whether another process writes the file from now on.
    is_handed_over: bool,
    /// Whether the last write failed: the first failure is a warning.
    failed: bool,
}

impl TextFile {
    /// Writes the file for the first time, and starts the thread.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn start(path: &Path, metrics: Arc<Metrics>) -> Result<Self, Error> {
        let shared = Arc::new(Written {
            // The file that a link points to is replaced, not the link.
            path: std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()),
            metrics,
            state: Mutex::default(),
            ends: Condvar::new(),
        });
        let refused = |source: std::io::Error| {
            Error::Settings(SettingsError::Output {
                what: "the metrics",
                path: path.to_owned(),
                variable: FILE,
                source: Arc::new(source),
            })
        };
        shared.write().map_err(refused)?;
        let thread = std::thread::Builder::new()
            .name("ronde-metrics-file".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || shared.run()
            });
        Ok(Self {
            shared,
            thread: Some(thread.map_err(refused)?),
        })
    }

    /// Leaves the file to another process: does not write it again.
    pub(super) fn hand_over(&self) {
        lock(&self.shared.state).is_handed_over = true;
    }

    /// Writes the file now.
    pub(super) fn write_now(&self) {
        self.shared.try_write(&mut lock(&self.shared.state));
    }
}

impl Drop for TextFile {
    fn drop(&mut self) {
        lock(&self.shared.state).is_over = true;
        self.shared.ends.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Written {
    fn run(&self) {
        let mut state = lock(&self.state);
        while !state.is_over {
            let waited = self.ends.wait_timeout(state, INTERVAL);
            state = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
            self.try_write(&mut state);
        }
    }

    fn try_write(&self, state: &mut State) {
        if state.is_handed_over {
            return;
        }
        let outcome = self.write();
        if let (Err(error), false) = (&outcome, state.failed) {
            let path = self.path.display();
            tracing::warn!("cannot write the metrics to {path} ({FILE}): {error}; the job goes on");
        }
        state.failed = outcome.is_err();
    }

    fn write(&self) -> std::io::Result<()> {
        let text = self.metrics.prometheus().map_err(std::io::Error::other)?;
        let mut file = AtomicWriteFile::open(&self.path)?;
        file.write_all(text.as_bytes())?;
        file.commit()
    }
}
