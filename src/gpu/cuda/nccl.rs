//! NCCL library, loaded when the first device is opened.
//!
//! Types are cudarc's. Its loader is not used: it looks for `libnccl.so`, which only development
//! packages have, while PyTorch and packages for users have `libnccl.so.2`; and it panics if a
//! library or a function is missing.

#![allow(unsafe_code)] // calls to libnccl

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use cudarc::nccl::sys::{ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclUniqueId};
use libloading::Library;

use super::super::{Call, Combine, Combined, Communicator, GpuError, Number, UniqueId};
use crate::sync::lock;

const SUCCESS: c_int = 0;
const IN_PROGRESS: c_int = 7;

/// Names by which the library is looked up: among loaded libraries, in `LD_LIBRARY_PATH`, and in
/// the system's folders.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// Variable by which NCCL's calls block, whatever the program asks for.
const BLOCKING: &str = "NCCL_COMM_BLOCKING";

/// Oldest version with non-blocking communicators, the only ones that can be aborted while a rank
/// is missing.
const OLDEST: c_int = 21_400;

/// Time limit for a communicator that is finalized to send its pending data, and the interval of
/// checks.
const FLUSH_PATIENCE: Duration = Duration::from_secs(2);
const FLUSH_POLL: Duration = Duration::from_millis(1);

const ADVICE: &str = "PyTorch for CUDA brings it (import torch first); else pip install nvidia-nccl-cu12, or Debian's libnccl2, \
                      and put its folder into LD_LIBRARY_PATH";

/// Parameter of `ncclCommInitRankConfig` as of version 2.14: later versions read the size and use
/// defaults for the other fields.
#[repr(C)]
struct Config {
    bytes: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
}

macro_rules! functions {
    ($($field:ident = $name:literal: fn($($argument:ty),* $(,)?);)*) => {
        /// Functions of the library that are used.
        pub(super) struct Nccl {
            /// Version: major · 10000 + minor · 100 + patch.
            pub(super) version: u32,
            $($field: unsafe extern "C" fn($($argument),*) -> c_int,)*
            get_error_string: unsafe extern "C" fn(c_int) -> *const c_char,
            get_last_error: unsafe extern "C" fn(ncclComm_t) -> *const c_char,
        }

        impl Nccl {
            /// # Safety
            /// The library must be NCCL.
            unsafe fn find(library: &'static Library, version: u32) -> Result<Self, libloading::Error> {
                // SAFETY: the signatures are those of NCCL's header, unchanged since version 2.14.
                unsafe {
                    Ok(Self {
                        version,
                        $($field: *library.get(concat!($name, "\0").as_bytes())?,)*
                        get_error_string: *library.get(b"ncclGetErrorString\0")?,
                        get_last_error: *library.get(b"ncclGetLastError\0")?,
                    })
                }
            }
        }
    };
}
functions! {
    get_unique_id = "ncclGetUniqueId": fn(*mut ncclUniqueId);
    init_rank = "ncclCommInitRankConfig": fn(*mut ncclComm_t, c_int, ncclUniqueId, c_int, *mut Config);
    get_async_error = "ncclCommGetAsyncError": fn(ncclComm_t, *mut c_int);
    comm_finalize = "ncclCommFinalize": fn(ncclComm_t);
    comm_destroy = "ncclCommDestroy": fn(ncclComm_t);
    comm_abort = "ncclCommAbort": fn(ncclComm_t);
    group_start = "ncclGroupStart": fn();
    group_end = "ncclGroupEnd": fn();
    all_reduce = "ncclAllReduce":
        fn(*const c_void, *mut c_void, usize, ncclDataType_t, ncclRedOp_t, ncclComm_t, *mut c_void);
    all_gather = "ncclAllGather": fn(*const c_void, *mut c_void, usize, ncclDataType_t, ncclComm_t, *mut c_void);
    reduce_scatter = "ncclReduceScatter":
        fn(*const c_void, *mut c_void, usize, ncclDataType_t, ncclRedOp_t, ncclComm_t, *mut c_void);
    reduce = "ncclReduce":
        fn(*const c_void, *mut c_void, usize, ncclDataType_t, ncclRedOp_t, c_int, ncclComm_t, *mut c_void);
    broadcast = "ncclBroadcast":
        fn(*const c_void, *mut c_void, usize, ncclDataType_t, c_int, ncclComm_t, *mut c_void);
    send = "ncclSend": fn(*const c_void, usize, ncclDataType_t, c_int, ncclComm_t, *mut c_void);
    recv = "ncclRecv": fn(*mut c_void, usize, ncclDataType_t, c_int, ncclComm_t, *mut c_void);
}

/// Returns the library, loaded once for the life of the process. A failed attempt is repeated at
/// the next call.
pub(super) fn load() -> Result<&'static Nccl, GpuError> {
    static LOADED: OnceLock<Nccl> = OnceLock::new();
    static LOADING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = lock(&LOADING);
    if let Some(nccl) = LOADED.get() {
        return Ok(nccl);
    }
    if std::env::var(BLOCKING).is_ok_and(|value| value.trim() == "1") {
        tracing::warn!(
            "{BLOCKING}=1: a rank that is lost while NCCL connects makes the others wait without limit; unset it"
        );
    }
    // SAFETY: loading NCCL runs its initializers, which are designed for that.
    let found = NAMES
        .into_iter()
        .find_map(|name| Some((name, unsafe { Library::new(name) }.ok()?)));
    let Some((name, library)) = found else {
        return Err(GpuError::NoLibrary {
            library: "NCCL",
            looked_for: NAMES.join(", "),
            advice: ADVICE,
        });
    };
    let library: &'static Library = Box::leak(Box::new(library));
    let too_old = |found: String| GpuError::TooOld {
        library: format!("NCCL ({name})"),
        found,
        needed: "2.14",
        advice: ADVICE,
    };
    // SAFETY: every version of NCCL has this function.
    let version = unsafe {
        let get_version =
            library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"ncclGetVersion\0");
        let mut version = 0;
        get_version
            .is_ok_and(|get| get(&raw mut version) == SUCCESS)
            .then_some(version)
    };
    let version = version.ok_or_else(|| too_old("unknown".to_owned()))?;
    if version < OLDEST {
        return Err(too_old(version_text(version)));
    }
    // SAFETY: the library is NCCL, of a version that has them.
    let nccl = unsafe { Nccl::find(library, version as u32) }
        .map_err(|_| too_old(version_text(version)))?;
    Ok(LOADED.get_or_init(|| nccl))
}

/// Formats a version; the digits of its number had another meaning before 2.9.
fn version_text(version: c_int) -> String {
    let by = if version < 10_000 { 1000 } else { 10_000 };
    format!("{}.{}.{}", version / by, version % by / 100, version % 100)
}

fn communicator_of(communicator: Communicator) -> ncclComm_t {
    ptr::with_exposed_provenance_mut(communicator.0 as usize)
}

fn input(address: u64) -> *const c_void {
    ptr::with_exposed_provenance(address as usize)
}

fn output(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address as usize)
}

/// NCCL has no 16-bit integers: they are never passed.
fn data_type(number: Number) -> ncclDataType_t {
    match number {
        Number::U8 => ncclDataType_t::ncclUint8,
        Number::I8 => ncclDataType_t::ncclInt8,
        Number::I16 => unreachable!("NCCL has no 16-bit integers; they are sent as 32-bit ones"),
        Number::I32 => ncclDataType_t::ncclInt32,
        Number::I64 => ncclDataType_t::ncclInt64,
        Number::F16 => ncclDataType_t::ncclFloat16,
        Number::Bf16 => ncclDataType_t::ncclBfloat16,
        Number::F32 => ncclDataType_t::ncclFloat32,
        Number::F64 => ncclDataType_t::ncclFloat64,
    }
}

/// Converts a reduction to parameters of NCCL.
fn in_words(
    combined: Combined,
) -> (
    *const c_void,
    *mut c_void,
    usize,
    ncclDataType_t,
    ncclRedOp_t,
) {
    let Combined {
        from,
        to,
        count,
        number,
        combine,
    } = combined;
    (
        input(from),
        output(to),
        count,
        data_type(number),
        operation(combine),
    )
}

fn operation(combine: Combine) -> ncclRedOp_t {
    match combine {
        Combine::Sum => ncclRedOp_t::ncclSum,
        Combine::Product => ncclRedOp_t::ncclProd,
        Combine::Max => ncclRedOp_t::ncclMax,
        Combine::Min => ncclRedOp_t::ncclMin,
        Combine::Average => ncclRedOp_t::ncclAvg,
    }
}

impl Nccl {
    pub(super) fn unique_id(&self) -> Result<UniqueId, GpuError> {
        let mut id = ncclUniqueId { internal: [0; 128] };
        // SAFETY: writes the id.
        let result = unsafe { (self.get_unique_id)(&raw mut id) };
        self.check("ncclGetUniqueId", result, ptr::null_mut())?;
        Ok(id.internal.map(|byte| byte as u8))
    }

    pub(super) fn join(
        &self,
        id: &UniqueId,
        rank: usize,
        size: usize,
    ) -> Result<Communicator, GpuError> {
        let id = ncclUniqueId {
            internal: id.map(|byte| byte as c_char),
        };
        let mut config = Config {
            bytes: size_of::<Config>(),
            magic: 0xcafe_beef,
            version: OLDEST as c_uint,
            blocking: 0,
        };
        let mut communicator: ncclComm_t = ptr::null_mut();
        // SAFETY: the config contains its size, and is copied; the communicator's handle is
        // written.
        let result = unsafe {
            (self.init_rank)(
                &raw mut communicator,
                size as c_int,
                id,
                rank as c_int,
                &raw mut config,
            )
        };
        self.check("ncclCommInitRankConfig", result, communicator)?;
        Ok(Communicator(communicator.expose_provenance() as u64))
    }

    pub(super) fn is_ready(&self, communicator: Communicator) -> Result<bool, GpuError> {
        let communicator = communicator_of(communicator);
        let mut state = SUCCESS;
        // SAFETY: the communicator lives until it is aborted.
        let result = unsafe { (self.get_async_error)(communicator, &raw mut state) };
        self.check("ncclCommGetAsyncError", result, communicator)?;
        self.check("NCCL", state, communicator)?;
        Ok(state != IN_PROGRESS)
    }

    pub(super) fn call(
        &self,
        communicator: Communicator,
        calls: &[Call],
        stream: *mut c_void,
    ) -> Result<(), GpuError> {
        let communicator = communicator_of(communicator);
        if let [call] = calls {
            return self.one(communicator, call, stream);
        }
        // SAFETY: affects this thread alone.
        let started = unsafe { (self.group_start)() };
        self.check("ncclGroupStart", started, communicator)?;
        let outcome = calls
            .iter()
            .try_for_each(|call| self.one(communicator, call, stream));
        // SAFETY: as above. Needed also after a failed call: the group is this thread's until it
        // ends.
        let ended = self.check("ncclGroupEnd", unsafe { (self.group_end)() }, communicator);
        outcome.and(ended)
    }

    fn one(
        &self,
        communicator: ncclComm_t,
        call: &Call,
        stream: *mut c_void,
    ) -> Result<(), GpuError> {
        // SAFETY: the communicator and the stream live, by the interface's promise; wrong addresses
        // are errors of the device.
        let (name, result) = unsafe {
            match *call {
                Call::Allreduce(combined) => {
                    let (from, to, count, number, combine) = in_words(combined);
                    let result =
                        (self.all_reduce)(from, to, count, number, combine, communicator, stream);
                    ("ncclAllReduce", result)
                }
                Call::Allgather {
                    from,
                    to,
                    count,
                    number,
                } => {
                    let number = data_type(number);
                    let result = (self.all_gather)(
                        input(from),
                        output(to),
                        count,
                        number,
                        communicator,
                        stream,
                    );
                    ("ncclAllGather", result)
                }
                Call::Reducescatter(combined) => {
                    let (from, to, count, number, combine) = in_words(combined);
                    let result = (self.reduce_scatter)(
                        from,
                        to,
                        count,
                        number,
                        combine,
                        communicator,
                        stream,
                    );
                    ("ncclReduceScatter", result)
                }
                Call::Reduce(combined, root) => {
                    let (from, to, count, number, combine) = in_words(combined);
                    let root = root as c_int;
                    let result =
                        (self.reduce)(from, to, count, number, combine, root, communicator, stream);
                    ("ncclReduce", result)
                }
                Call::Broadcast {
                    from,
                    to,
                    count,
                    number,
                    root,
                } => {
                    let (number, root) = (data_type(number), root as c_int);
                    let result = (self.broadcast)(
                        input(from),
                        output(to),
                        count,
                        number,
                        root,
                        communicator,
                        stream,
                    );
                    ("ncclBroadcast", result)
                }
                Call::Send { from, count, peer } => {
                    let bytes = ncclDataType_t::ncclUint8;
                    let result = (self.send)(
                        input(from),
                        count,
                        bytes,
                        peer as c_int,
                        communicator,
                        stream,
                    );
                    ("ncclSend", result)
                }
                Call::Receive { to, count, peer } => {
                    let bytes = ncclDataType_t::ncclUint8;
                    let result = (self.recv)(
                        output(to),
                        count,
                        bytes,
                        peer as c_int,
                        communicator,
                        stream,
                    );
                    ("ncclRecv", result)
                }
            }
        };
        self.check(name, result, communicator)
    }

    pub(super) fn leave(&self, communicator: Communicator) {
        let handle = communicator_of(communicator);
        // SAFETY: the owner does not use the communicator any more, and it has no work on the
        // device.
        let finalized = self.check(
            "ncclCommFinalize",
            unsafe { (self.comm_finalize)(handle) },
            handle,
        );
        let end = Instant::now() + FLUSH_PATIENCE;
        let mut state = finalized.and_then(|()| self.is_ready(communicator));
        while state == Ok(false) && Instant::now() < end {
            std::thread::sleep(FLUSH_POLL);
            state = self.is_ready(communicator);
        }
        if state == Ok(true) {
            // SAFETY: as above, and all data is sent.
            let _ = unsafe { (self.comm_destroy)(handle) };
        } else {
            self.abort(communicator);
        }
    }

    pub(super) fn abort(&self, communicator: Communicator) {
        // SAFETY: the owner does not use the communicator any more.
        let _ = unsafe { (self.comm_abort)(communicator_of(communicator)) };
    }

    /// Converts a result of NCCL to an error, if it is one. A call in progress is not an error.
    fn check(
        &self,
        call: &'static str,
        result: c_int,
        communicator: ncclComm_t,
    ) -> Result<(), GpuError> {
        if matches!(result, SUCCESS | IN_PROGRESS) {
            return Ok(());
        }
        // SAFETY: both return strings that live as long as the library, or null; the communicator
        // may be null.
        let (what, last) = unsafe {
            (
                text((self.get_error_string)(result)),
                text((self.get_last_error)(communicator)),
            )
        };
        let text = if last.is_empty() {
            what
        } else {
            format!("{what}: {last}")
        };
        let name = name(result).to_owned();
        let advice = GpuError::advice(&name, &text);
        Err(GpuError::Call {
            call,
            name,
            text,
            advice,
        })
    }
}

/// Converts a string of the library.
///
/// # Safety
/// Null, or a C string that is not modified meanwhile.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .trim()
        .to_owned()
}

/// Returns the name of a result.
const fn name(result: c_int) -> &'static str {
    match result {
        1 => "ncclUnhandledCudaError",
        2 => "ncclSystemError",
        3 => "ncclInternalError",
        4 => "ncclInvalidArgument",
        5 => "ncclInvalidUsage",
        6 => "ncclRemoteError",
        8 => "ncclTimeout",
        _ => "an NCCL error without a name",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_people_write_them() {
        assert_eq!(version_text(2_804), "2.8.4");
        assert_eq!(version_text(21_805), "2.18.5");
        assert_eq!(version_text(22_703), "2.27.3");
    }
}
