//! Process sets by number, as Python functions.

use std::collections::BTreeMap;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::{context, on_a_thread, unnamed};
use crate::error::raise;

pub(crate) fn unknown(id: u32) -> PyErr {
    PyValueError::new_err(unknown_message(id))
}

/// Message for the number of a process set that does not exist.
pub(crate) fn unknown_message(id: u32) -> String {
    format!("Process set {id} does not exist, or has not been registered.")
}

/// Creates the process set of `ranks`, called by all ranks; returns its number.
#[pyfunction]
#[pyo3(signature = (ranks, /))]
pub(crate) fn add_process_set(py: Python<'_>, ranks: Vec<usize>) -> PyResult<u32> {
    let context = context()?;
    let add = move || context.add_process_set(&ranks).map(|set| set.id());
    let set = on_a_thread(py, add, |py| py.check_signals())?;
    set.map_err(|error| raise(py, &error))
}

/// Removes a process set, called by all ranks. False for an unknown number and for the set of all
/// ranks.
#[pyfunction]
#[pyo3(signature = (id, /))]
pub(crate) fn remove_process_set(py: Python<'_>, id: u32) -> PyResult<bool> {
    let context = context()?;
    match context.process_set(id) {
        Some(set) if id != 0 => {
            let remove = move || context.remove_process_set(&set);
            let removed = on_a_thread(py, remove, |py| py.check_signals())?;
            removed.map_err(|error| raise(py, &error))?;
            unnamed().counts.remove(&id);
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// The process sets with their ranks.
#[pyfunction]
pub(crate) fn process_sets() -> PyResult<BTreeMap<u32, Vec<usize>>> {
    let sets = context()?.process_sets();
    Ok(sets
        .iter()
        .map(|set| (set.id(), set.ranks().to_vec()))
        .collect())
}

/// This process's rank within a set; None if it is not a member.
#[pyfunction]
#[pyo3(signature = (id, /))]
pub(crate) fn process_set_rank(id: u32) -> PyResult<Option<usize>> {
    let set = context()?.process_set(id).ok_or_else(|| unknown(id))?;
    Ok(set.rank())
}
