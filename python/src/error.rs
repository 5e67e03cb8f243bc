//! Conversion of the runtime's errors to Horovod's exceptions: `ValueError` for an invalid
//! argument, `HorovodInternalError` (a `RuntimeError`) for everything else.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use ronde::{
    ArgumentError, Error, GpuError, LimitError, NegotiationError, PeerError, ProcessSetError,
    SettingsError,
};

/// Message of calls before `init`.
pub(crate) const NOT_INITIALIZED: &str = "Horovod has not been initialized; use hvd.init().";

/// Creates the exception that Horovod raises for `error`, with the rank and the tensor it names as
/// attributes.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let message = message(error);
    if is_callers_fault(error) {
        return raised(&py.get_type::<PyValueError>(), &message, about(error));
    }
    internal(py, &message, about(error))
}

/// Creates a `HorovodInternalError`.
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

/// Values of an exception's attributes.
#[derive(Clone, Copy, Default)]
pub(crate) struct About<'a> {
    tensor: Option<&'a str>,
    /// The rank at fault.
    rank: Option<usize>,
    /// The rank that the rank at fault differs from.
    first_rank: Option<usize>,
}

fn internal_error(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.import(py, "ronde.common.exceptions", "HorovodInternalError")
}

/// Whether Horovod raises `ValueError` for it: errors that the calling rank alone has caused.
pub(crate) fn is_callers_fault(error: &Error) -> bool {
    match error {
        // Excluded: failed calls, lack of memory, and errors caused by other ranks.
        Error::Device(error) => matches!(
            error.gpu_error(),
            GpuError::NotBuilt
                | GpuError::NoLibrary { .. }
                | GpuError::TooOld { .. }
                | GpuError::NoDevice { .. }
                | GpuError::Capturing
                | GpuError::OtherDevice { .. }
        ),
        Error::Argument(error) => !matches!(
            error,
            ArgumentError::HasJoined { .. }
                | ArgumentError::NoRows { .. }
                | ArgumentError::InvalidCompression { .. }
        ),
        Error::ProcessSet(error) => !matches!(
            error,
            ProcessSetError::Busy { .. } | ProcessSetError::Start { .. }
        ),
        Error::Settings(error) => {
            matches!(
                error,
                SettingsError::Invalid(_) | SettingsError::TimelineNotEnabled
            )
        }
        _ => false,
    }
}

fn about(error: &Error) -> About<'_> {
    let (tensor, rank, first_rank) = match error {
        Error::Peer(
            PeerError::Lost { rank, .. }
            | PeerError::Left { rank }
            | PeerError::Silent { rank, .. }
            | PeerError::Disconnected { rank, .. }
            | PeerError::Failed { rank, .. }
            | PeerError::Stalled { rank, .. },
        )
        | Error::Internal { rank, .. }
        | Error::ProcessSet(ProcessSetError::NotAMember { rank, .. }) => (None, Some(*rank), None),
        Error::Device(error) => (error.tensor(), Some(error.rank()), None),
        Error::Negotiation(NegotiationError::Mismatch(mismatch)) => (
            Some(mismatch.tensor.as_str()),
            Some(mismatch.rank),
            Some(mismatch.first_rank),
        ),
        Error::Negotiation(NegotiationError::RankJoined { tensor, rank })
        | Error::Argument(
            ArgumentError::HasJoined { tensor, rank }
            | ArgumentError::DuplicateName { tensor, rank },
        ) => (Some(tensor.as_str()), Some(*rank), None),
        Error::Negotiation(NegotiationError::Stalled {
            tensor, missing, ..
        }) => (Some(tensor.as_str()), missing.first().copied(), None),
        Error::Argument(
            ArgumentError::NoRows { tensor, .. }
            | ArgumentError::ShapeTooLarge { tensor, .. }
            | ArgumentError::ReservedName { tensor }
            | ArgumentError::InvalidDtype { tensor, .. }
            | ArgumentError::InvalidSplits { tensor, .. }
            | ArgumentError::UnevenRows { tensor, .. }
            | ArgumentError::InvalidRoot { tensor, .. }
            | ArgumentError::RootNotAMember { tensor, .. },
        )
        | Error::Limit(LimitError::TooLarge { tensor }) => (Some(tensor.as_str()), None, None),
        Error::Limit(LimitError::Memory { tensor, rank, .. }) => {
            (Some(tensor.as_str()), Some(*rank), None)
        }
        _ => (None, None, None),
    };
    About {
        tensor,
        rank,
        first_rank,
    }
}

/// The error's message, with the words that Horovod's users search for.
pub(crate) fn message(error: &Error) -> String {
    let known = match error {
        Error::Negotiation(NegotiationError::Mismatch(_)) => {
            // Horovod's messages begin with a capital, and programs search for them.
            let text = error.to_string();
            return text.replacen("mismatched", "Mismatched", 1);
        }
        Error::Argument(ArgumentError::DuplicateName { .. }) => {
            "Requested to process a tensor of the same name as another tensor that is currently being processed"
        }
        Error::Negotiation(NegotiationError::RankJoined { .. }) => {
            "This operation is not supported with Join at this time"
        }
        Error::ProcessSet(ProcessSetError::NotAMember { .. }) => {
            "This rank is not a member of the provided process set"
        }
        Error::ProcessSet(ProcessSetError::Removed { .. }) => {
            "The process set does not exist, or has not been registered"
        }
        Error::Settings(SettingsError::TimelineNotEnabled) => {
            "HOROVOD_TIMELINE is not set; HOROVOD_TIMELINE=DYNAMIC allows this"
        }
        Error::ProcessSet(ProcessSetError::Static) => {
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
