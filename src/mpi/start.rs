//! Initialization and finalization of MPI in this process.

#![allow(unsafe_code)] // calls to MPI; registers a function for the end of the process

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use ronde_mpi_table::{THREAD_MULTIPLE, Table};

use super::calls::{MpiError, check as check_code};
use super::library::Mpi;
use super::session::Session;

/// Reason why MPI cannot be used in this process.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum MpiStartError {
    /// Another library has initialized MPI with less thread support.
    #[error(
        "MPI was initialized by another library of this process with thread support {provided}, which does not allow a \
         second thread to call it; have that library ask for MPI_THREAD_MULTIPLE (mpi4py: mpi4py.rc.thread_level = \
         \"multiple\" before its import), or create Ronde's context first"
    )]
    Threading {
        /// The level in force.
        provided: &'static str,
    },
    /// MPI was finalized before.
    #[error(
        "MPI has been finalized in this process, and cannot be initialized again; create Ronde's context before"
    )]
    Finalized,
    /// `MPI_Init_thread` does not return.
    #[error(
        "MPI_Init_thread has not returned for {waited_seconds} s: not all ranks have been started, or they cannot reach \
         one another over the network"
    )]
    Silent {
        /// Time waited.
        waited_seconds: u64,
    },
    /// The first calls failed.
    #[error(transparent)]
    Call(#[from] MpiError),
    /// No thread could be started.
    #[error("no thread for MPI: {reason}")]
    Thread {
        /// Reason.
        reason: String,
    },
    /// A former job over MPI lost a rank in this process.
    #[error(
        "a rank was lost in this process's former job, and MPI cannot be initialized twice; start the job again"
    )]
    Broken,
}

/// Initializes MPI on the calling thread, unless another library has initialized it with
/// `MPI_THREAD_MULTIPLE`.
pub(crate) fn initialize(mpi: &Mpi) -> Result<Session, MpiStartError> {
    let table = mpi.table;
    let ours = !flag(table, "MPI_Initialized", table.initialized)?;
    if ours {
        // SAFETY: nobody else has initialized it; should another thread do so at this moment, the
        // call fails.
        check_code(table, "MPI_Init_thread", unsafe { (table.init)() })?;
    } else {
        let mut level = 0;
        // SAFETY: MPI is initialized.
        let code = unsafe { (table.thread_level)(&mut level) };
        check_code(table, "MPI_Query_thread", code)?;
        if level < THREAD_MULTIPLE {
            return Err(MpiStartError::Threading {
                provided: match level {
                    0 => "MPI_THREAD_SINGLE",
                    1 => "MPI_THREAD_FUNNELED",
                    _ => "MPI_THREAD_SERIALIZED",
                },
            });
        }
    }
    Ok(Session::new(table, ours)?)
}

/// Returns the result of `MPI_Initialized` or `MPI_Finalized`, which may be called at any time.
fn flag(
    table: &Table,
    call: &'static str,
    function: unsafe extern "C" fn(*mut c_int) -> c_int,
) -> Result<bool, MpiError> {
    let mut flag = 0;
    // SAFETY: has no other obligation than an integer to write to.
    check_code(table, call, unsafe { function(&mut flag) })?;
    Ok(flag != 0)
}

/// Checks that MPI can be used in this process, or can still be initialized.
///
/// # Errors
/// An earlier job has lost a rank, or MPI was finalized; MPI's.
pub(crate) fn check(mpi: &Mpi) -> Result<(), MpiStartError> {
    if is_broken() {
        return Err(MpiStartError::Broken);
    }
    match flag(mpi.table, "MPI_Finalized", mpi.table.finalized)? {
        true => Err(MpiStartError::Finalized),
        false => Ok(()),
    }
}

/// Whether a rank was lost: `MPI_Finalize` would wait for it.
static BROKEN: AtomicBool = AtomicBool::new(false);

/// Records that this process's job has lost a rank.
pub(crate) fn set_broken() {
    BROKEN.store(true, Ordering::Release);
}

/// See [`set_broken`].
pub(crate) fn is_broken() -> bool {
    BROKEN.load(Ordering::Acquire)
}

/// Whether the last job of this process has failed: its other ranks may wait elsewhere for long.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Records whether this process's job has failed, though no rank was lost.
pub(crate) fn set_failed(has_failed: bool) {
    FAILED.store(has_failed, Ordering::Release);
}

/// See [`set_failed`].
pub(crate) fn has_failed() -> bool {
    FAILED.load(Ordering::Acquire)
}

/// Registers `finalize` to be called when the process ends, unless a rank was lost.
pub(crate) fn finalize_at_exit(finalize: fn()) {
    // The process and its function: a process that it forks has the callback too, but not the
    // thread that the function waits for.
    static FINALIZE: OnceLock<(u32, fn())> = OnceLock::new();
    extern "C" fn at_exit() {
        if let (false, Some((process, finalize))) = (is_broken(), FINALIZE.get())
            && *process == std::process::id()
        {
            finalize();
        }
    }
    if FINALIZE.set((std::process::id(), finalize)).is_ok() {
        // SAFETY: the callback lives as long as the program, unwinds nowhere and takes no argument.
        // Should there be no room for it (at least 32 are guaranteed), `mpirun` will say that MPI
        // was not finalized.
        let _ = unsafe { libc::atexit(at_exit) };
    }
}
