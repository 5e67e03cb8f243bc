//! Table of C functions through which Ronde calls MPI. A plug-in (`crates/mpi`) implements it, once
//! for each ABI of MPI.
//!
//! The runtime finds MPI's library at run time and loads the plug-in that was compiled against the
//! headers of its ABI. The plug-in exports one function, [`ENTRY`], which returns the table. Every
//! table begins with a [`Header`], whose layout never changes: the runtime uses a table only if
//! magic, version and size are its own.
//!
//! All functions but those that return a [`Comm`] return a code: 0, MPI's error code, or
//! [`SHORT_MESSAGE`]. Lengths are C integers, as in MPI. All data are bytes.

use std::ffi::{c_char, c_int};

/// Version of the table. Any change of [`Table`] or of what a function does changes it.
pub const VERSION: u32 = 2;

/// First word of every table.
pub const MAGIC: u64 = u64::from_le_bytes(*b"ronde-mp");

/// Name of the plug-in's function of type [`Entry`], zero-terminated.
pub const ENTRY: &[u8] = b"ronde_mpi_table\0";

/// Returns the plug-in's table, which lives as long as the plug-in is loaded.
pub type Entry = unsafe extern "C" fn() -> *const Header;

/// Return code: a message was shorter than its receive. `test_all` has completed.
pub const SHORT_MESSAGE: c_int = -1;

/// Length in [`Request`] of a request that is no receive.
pub const NO_LENGTH: u64 = u64::MAX;

/// Source of a receive from any rank.
pub const ANY_RANK: c_int = -1;

/// Application binary interface of an MPI library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Abi {
    /// Open MPI 4 and 5: handles are pointers.
    OpenMpi = 1,
    /// The ABI that MPICH, Intel MPI, MVAPICH and Cray MPICH share: handles are integers.
    Mpich = 2,
}

impl Abi {
    /// File name of the plug-in.
    pub fn plugin(self) -> &'static str {
        match self {
            Self::OpenMpi => "libronde_mpi_openmpi.so",
            Self::Mpich => "libronde_mpi_mpich.so",
        }
    }
}

/// Beginning of every table, of whatever version.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// Size of the table, bytes.
    pub size: u32,
    /// An [`Abi`].
    pub abi: u32,
    /// Zero.
    pub reserved: u32,
}

/// Communicator: MPI's handle in the first bytes, as it lies in memory, then zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Comm(pub u64);

/// Nonblocking call in progress.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Request {
    /// MPI's handle, as in [`Comm`].
    pub handle: u64,
    /// Bytes that the message of a receive must have; [`NO_LENGTH`] for other calls.
    pub bytes: u64,
}

/// Request before the call that starts it.
pub const NO_REQUEST: Request = Request {
    handle: 0,
    bytes: NO_LENGTH,
};

/// Level of thread support, as numbered here: `MPI_THREAD_SINGLE` is 0, `MPI_THREAD_MULTIPLE` 3.
pub const THREAD_MULTIPLE: c_int = 3;

/// The functions. Names, arguments and obligations are MPI's (`MPI_I…` where a request is
/// returned), unless stated otherwise. Memory that a request uses stays valid until it completes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Table {
    /// See [`Header`].
    pub header: Header,
    /// Whether MPI has been initialized, 0 or 1. Like the next one, may be called at any time.
    pub initialized: unsafe extern "C" fn(flag: *mut c_int) -> c_int,
    /// Whether MPI has been finalized, 0 or 1.
    pub finalized: unsafe extern "C" fn(flag: *mut c_int) -> c_int,
    /// Initializes MPI with support of [`THREAD_MULTIPLE`] where the library has it.
    pub init: unsafe extern "C" fn() -> c_int,
    /// Level of thread support in force.
    pub thread_level: unsafe extern "C" fn(level: *mut c_int) -> c_int,
    /// `MPI_Finalize`.
    pub finalize: unsafe extern "C" fn() -> c_int,
    /// Writes the text of an error code, cut to `capacity` bytes with the final zero.
    pub error_text: unsafe extern "C" fn(code: c_int, text: *mut c_char, capacity: usize) -> c_int,
    /// `MPI_COMM_WORLD`.
    pub world: unsafe extern "C" fn() -> Comm,
    /// Sets `MPI_ERRORS_RETURN`.
    pub return_errors: unsafe extern "C" fn(comm: Comm) -> c_int,
    /// `MPI_Comm_rank`.
    pub rank: unsafe extern "C" fn(comm: Comm, rank: *mut c_int) -> c_int,
    /// `MPI_Comm_size`.
    pub size: unsafe extern "C" fn(comm: Comm, size: *mut c_int) -> c_int,
    /// `MPI_Comm_idup`. `copy` is 0 before, and valid once the request has completed.
    pub duplicate:
        unsafe extern "C" fn(comm: Comm, copy: *mut Comm, request: *mut Request) -> c_int,
    /// `MPI_Comm_create_group` of these ranks of `comm`, all of which make this call.
    pub of_members: unsafe extern "C" fn(
        comm: Comm,
        ranks: *const c_int,
        count: c_int,
        tag: c_int,
        created: *mut Comm,
    ) -> c_int,
    /// `MPI_Ibarrier`.
    pub barrier: unsafe extern "C" fn(comm: Comm, request: *mut Request) -> c_int,
    /// `MPI_Isend`.
    pub send: unsafe extern "C" fn(
        from: *const u8,
        bytes: c_int,
        to: c_int,
        tag: c_int,
        comm: Comm,
        request: *mut Request,
    ) -> c_int,
    /// `MPI_Irecv`, from [`ANY_RANK`] or a rank. A message of another length is an error.
    pub receive: unsafe extern "C" fn(
        to: *mut u8,
        bytes: c_int,
        from: c_int,
        tag: c_int,
        comm: Comm,
        request: *mut Request,
    ) -> c_int,
    /// `MPI_Ibcast`.
    pub broadcast: unsafe extern "C" fn(
        memory: *mut u8,
        bytes: c_int,
        root: c_int,
        comm: Comm,
        request: *mut Request,
    ) -> c_int,
    /// `MPI_Iallgather`: `bytes` from each rank.
    pub allgather: unsafe extern "C" fn(
        from: *const u8,
        to: *mut u8,
        bytes: c_int,
        comm: Comm,
        request: *mut Request,
    ) -> c_int,
    /// `MPI_Iallgatherv`.
    pub allgather_parts: unsafe extern "C" fn(
        from: *const u8,
        bytes: c_int,
        to: *mut u8,
        counts: *const c_int,
        begins: *const c_int,
        comm: Comm,
        request: *mut Request,
    ) -> c_int,
    /// `MPI_Igather`: `bytes` from each rank.
    pub gather: unsafe extern "C" fn(
        from: *const u8,
        to: *mut u8,
        bytes: c_int,
        root: c_int,
        comm: Comm,
        request: *mut Request,
    ) -> c_int,
    /// `MPI_Ialltoallv`.
    pub alltoall_parts: unsafe extern "C" fn(
        from: *const u8,
        sent: *const c_int,
        sent_at: *const c_int,
        to: *mut u8,
        received: *const c_int,
        received_at: *const c_int,
        comm: Comm,
        request: *mut Request,
    ) -> c_int,
    /// `MPI_Testall`: `done` is 1 once all have completed, and the lengths of received messages
    /// have been checked.
    pub test_all:
        unsafe extern "C" fn(requests: *mut Request, count: c_int, done: *mut c_int) -> c_int,
    /// Cancels a receive and waits for its end.
    pub cancel: unsafe extern "C" fn(request: *mut Request) -> c_int,
}
