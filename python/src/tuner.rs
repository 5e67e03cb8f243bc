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

    /// Whether the next step is measured: during the search, and in a check after its verdict.
    fn measures(&self) -> bool {
        self.service().measures()
    }

    /// Reports steps as lines with `step_ms` do, up to the first one whose answer is not to keep
    /// the setting; returns that answer, or None.
    #[pyo3(signature = (steps_ms, /))]
    fn steps(&self, py: Python<'_>, steps_ms: Vec<f64>) -> Option<String> {
        py.detach(|| self.service().steps(&steps_ms))
    }
}
