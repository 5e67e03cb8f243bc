//! `TunerService`: the service of `ronde tune` within this process, for `ronde.tune`.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use ronde_cli::TuneService;

/// Tuner that answers lines of JSON, as `ronde tune` does. It computes proposals during the next
/// step.
#[pyclass(frozen)]
pub(crate) struct TunerService(Mutex<TuneService>);

impl TunerService {
    /// A panic leaves the service as it was after the last line, so the lock may be used after it.
    fn service(&self) -> MutexGuard<'_, TuneService> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl TunerService {
    /// Creates a tuner; `state` is the path of its state file.
    #[new]
    #[pyo3(signature = (state=None, /))]
    fn new(state: Option<PathBuf>) -> Self {
        Self(Mutex::new(TuneService::new(state).computing_ahead()))
    }

    /// Returns the answer to a line of the protocol in docs/TUNE.md.
    #[pyo3(signature = (line, /))]
    fn reply(&self, py: Python<'_>, line: &str) -> String {
        // An answer may wait for a proposal, which takes some milliseconds.
        py.detach(|| self.service().reply(line))
    }

    /// Writes the state file, if there is one and something was measured.
    fn save(&self, py: Python<'_>) -> PyResult<()> {
        let saved = py.detach(|| self.service().save());
        saved.map_err(|error| PyOSError::new_err(error.to_string()))
    }

    /// Reports a step as the line `{"step_ms":…}` does; returns the answer, or None if the setting
    /// is kept.
    #[pyo3(signature = (step_ms, /))]
    fn step(&self, py: Python<'_>, step_ms: f64) -> Option<String> {
        py.detach(|| self.service().step(step_ms))
    }
}
