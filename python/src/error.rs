//! Converts the runtime's errors into the exceptions that Horovod's users catch: `ValueError` for an invalid argument,
//! `HorovodInternalError` (a `RuntimeError`) for everything else.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use ronde::{Error, GpuError};

/// What is said where nothing has been initialized.
pub(crate) const NOT_INITIALIZED: &str = "Horovod has not been initialized; use hvd.init().";

/// An exception of the type that `error` has in Horovod, with the rank and the tensor it names as attributes.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let message = message(error);
    if is_callers_fault(error) {
        return raised(&py.get_type::<PyValueError>(), &message, about(error));
    }
    internal(py, &message, about(error))
}

/// A `HorovodInternalError`.
pub(crate) fn internal(py: Python<'_>, message: &str, about: About<'_>) -> PyErr {
    match internal_error(py) {
        Ok(class) => raised(class, message, about),
        Err(error) => error,
    }
}

fn raised(class: &Bound<'_, PyType>, message: &str, about: About<'_>) -> PyErr {
    let made = || {
        let exception = class.call1((message,))?;
        for (name, rank) in [("rank", about.rank), ("first_rank", about.first_rank)] {
            if let Some(rank) = rank {
                exception.setattr(name, rank)?;
            }
        }
        if let Some(tensor) = about.tensor {
            exception.setattr("tensor", tensor)?;
        }
        Ok(PyErr::from_value(exception))
    };
    made().unwrap_or_else(|error: PyErr| error)
}

/// What an exception's attributes tell.
#[derive(Clone, Copy, Default)]
pub(crate) struct About<'a> {
    tensor: Option<&'a str>,
    /// The rank at fault.
    rank: Option<usize>,
    /// The rank that it differs from.
    first_rank: Option<usize>,
}

fn internal_error(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.import(py, "ronde.common.exceptions", "HorovodInternalError")
}

/// Whether Horovod's Python tells of it by `ValueError`: what the calling rank alone has done wrong.
fn is_callers_fault(error: &Error) -> bool {
    if let Error::Gpu { source, .. } = error {
        // Not: calls that fail, memory that runs out, and what other ranks have said.
        return matches!(
            **source,
            GpuError::NotBuilt
                | GpuError::NoLibrary { .. }
                | GpuError::TooOld { .. }
                | GpuError::NoDevice { .. }
                | GpuError::Capturing
                | GpuError::OtherDevice { .. }
        );
    }
    matches!(
        error,
        Error::DuplicateName { .. }
            | Error::ReservedName { .. }
            | Error::InvalidDtype { .. }
            | Error::InvalidSplits { .. }
            | Error::UnevenRows { .. }
            | Error::OutputSize { .. }
            | Error::NotAMember { .. }
            | Error::InvalidProcessSet { .. }
            | Error::StaticProcessSets
            | Error::ProcessSetRemoved { .. }
            | Error::RootNotAMember { .. }
            | Error::InvalidRoot { .. }
            | Error::ShapeMismatch { .. }
            | Error::Configuration(_)
            | Error::TimelineNotEnabled
    )
}

fn about(error: &Error) -> About<'_> {
    match error {
        Error::PeerLost { rank, .. }
        | Error::PeerLeft { rank }
        | Error::PeerSilent { rank, .. }
        | Error::PeerFailed { rank, .. }
        | Error::PeerStalled { rank, .. }
        | Error::Internal { rank, .. }
        | Error::NotAMember { rank, .. } => About {
            rank: Some(*rank),
            ..About::default()
        },
        Error::Gpu { rank, tensor, .. } => About {
            tensor: tensor.as_deref(),
            rank: Some(*rank),
            first_rank: None,
        },
        Error::Mismatch(mismatch) => About {
            tensor: Some(&mismatch.tensor),
            rank: Some(mismatch.rank),
            first_rank: Some(mismatch.first_rank),
        },
        Error::RankJoined { tensor, rank }
        | Error::HasJoined { tensor, rank }
        | Error::DuplicateName { tensor, rank } => About {
            tensor: Some(tensor),
            rank: Some(*rank),
            first_rank: None,
        },
        Error::TensorStalled { tensor, missing, .. } => About {
            tensor: Some(tensor),
            rank: missing.first().copied(),
            first_rank: None,
        },
        Error::NoRows { tensor, .. }
        | Error::OutOfMemory { tensor, .. }
        | Error::Unsupported { tensor, .. }
        | Error::ReservedName { tensor }
        | Error::InvalidDtype { tensor, .. }
        | Error::InvalidSplits { tensor, .. }
        | Error::UnevenRows { tensor, .. }
        | Error::InvalidRoot { tensor, .. }
        | Error::RootNotAMember { tensor, .. } => About {
            tensor: Some(tensor),
            ..About::default()
        },
        _ => About::default(),
    }
}

/// The error's own words, and those by which Horovod's users know it.
fn message(error: &Error) -> String {
    let known = match error {
        Error::Mismatch(_) => {
            // Horovod's begin with a capital, and programs look for them.
            let text = error.to_string();
            return text.replacen("mismatched", "Mismatched", 1);
        }
        Error::DuplicateName { .. } => {
            "Requested to process a tensor of the same name as another tensor that is currently being processed"
        }
        Error::RankJoined { .. } => "This operation is not supported with Join at this time",
        Error::NotAMember { .. } => "This rank is not a member of the provided process set",
        Error::ProcessSetRemoved { .. } => "The process set does not exist, or has not been registered",
        Error::TimelineNotEnabled => "HOROVOD_TIMELINE is not set; HOROVOD_TIMELINE=DYNAMIC allows this",
        Error::StaticProcessSets => {
            "Set HOROVOD_DYNAMIC_PROCESS_SETS=1, or initialize with process_sets=\"dynamic\""
        }
        Error::ShutDown => "Horovod has been shut down. Look for the first exception of any rank",
        error if error.is_peer_gone() => {
            "Horovod has been shut down. Look for the first exception of any rank"
        }
        _ => return error.to_string(),
    };
    format!("{known}: {error}")
}
