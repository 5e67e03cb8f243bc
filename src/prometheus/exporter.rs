//! Exporter: the listener and the file of a process.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::Job;
use super::file::TextFile;
use super::metrics::Metrics;
use super::server;
use crate::error::Error;
use crate::knobs::Knobs;
use crate::sync::{lock, shared_or};

/// Listener and file with the metrics of this process.
#[derive(Debug)]
pub(crate) struct Exporter {
    config: Config,
    pub(super) metrics: Arc<Metrics>,
    _server: Option<ronde_http::Server>,
    file: Option<TextFile>,
}

/// Settings of an exporter; a context with other settings gets another exporter.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Config {
    rank: usize,
    size: usize,
    backend: &'static str,
    address: Option<String>,
    token: Option<PathBuf>,
    file: Option<PathBuf>,
}

/// The exporter of this process; it continues when its context has ended.
static EXPORTER: Mutex<Option<Arc<Exporter>>> = Mutex::new(None);

/// Returns the exporter for a context with these settings.
///
/// # Errors
/// An address that cannot be listened on, a file that cannot be written, an invalid token.
pub(super) fn open(knobs: &Knobs, job: &Job<'_>) -> Result<Arc<Exporter>, Error> {
    let config = Config {
        rank: job.identity.rank,
        size: job.identity.size,
        backend: job.backend,
        address: knobs.metrics_addr.clone(),
        token: knobs.metrics_token_file.clone(),
        file: knobs.metrics_file.clone(),
    };
    let is_same = |exporter: &Exporter| exporter.config == config;
    let make = || Exporter::new(config.clone(), job, knobs);
    let exporter = shared_or(&EXPORTER, is_same, make)?;
    exporter.metrics.continue_with(job);
    Ok(exporter)
}

/// Ends the exporter of this process, if it has one; another process of the host has one now.
pub(super) fn close() {
    let exporter = lock(&EXPORTER).take();
    if let Some(file) = exporter
        .as_ref()
        .and_then(|exporter| exporter.file.as_ref())
    {
        file.hand_over();
    }
}

impl Exporter {
    fn new(config: Config, job: &Job<'_>, knobs: &Knobs) -> Result<Self, Error> {
        let metrics = Arc::new(Metrics::new(job, config.file.as_deref()));
        let token = config.token.as_deref();
        let start = |address| server::start(address, token, &metrics, knobs);
        let server = config.address.as_deref().map(start).transpose()?;
        let file = config.file.as_deref();
        let file = file
            .map(|path| TextFile::start(path, Arc::clone(&metrics)))
            .transpose()?;
        Ok(Self {
            config,
            metrics,
            _server: server,
            file,
        })
    }

    /// Writes the file now.
    pub(super) fn write_file(&self) {
        if let Some(file) = &self.file {
            file.write_now();
        }
    }
}
