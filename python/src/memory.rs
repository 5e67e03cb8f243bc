//! Results of rank 0's tuner as text, for the other ranks of an elastic job.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use ronde::internal::autotune;

/// Number of changes so far of what tuners of this process, or of an earlier rank 0, have learned.
#[pyfunction]
pub(crate) fn tuner_revision() -> u64 {
    autotune::revision()
}

/// Text of the tuner's results, if they have changed since that revision; otherwise None.
#[pyfunction]
#[pyo3(signature = (revision, /))]
pub(crate) fn tuner_memory(revision: u64) -> Option<String> {
    autotune::told(revision)
}

/// Replaces what this process has learned by the text of another rank, if that is later.
#[pyfunction]
#[pyo3(signature = (text, /))]
pub(crate) fn learn_tuner_memory(text: &str) -> PyResult<()> {
    autotune::learn(text).map_err(PyValueError::new_err)
}
