//! Plug-in for MPI: implements the table of `ronde-mpi-table` with the functions of the MPI whose
//! headers it is compiled against.
//!
//! `scripts/build-mpi` builds it for each ABI and removes MPI's library from the libraries that it
//! needs: the runtime has loaded one, under whatever name, with global symbols, before it loads the
//! plug-in.

#![allow(unsafe_code)] // calls to MPI

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::ptr;

use mpi_sys as ffi;
use ronde_mpi_table::{
    ANY_RANK, Abi, Comm, Header, MAGIC, NO_LENGTH, Request, SHORT_MESSAGE, Table, VERSION,
};
use smallvec::SmallVec;

/// The ABI, by the size of its handles.
const ABI: Abi = match size_of::<ffi::MPI_Comm>() {
    8 => Abi::OpenMpi,
    4 => Abi::Mpich,
    _ => panic!("an MPI of an unknown ABI"),
};

const SUCCESS: c_int = ffi::MPI_SUCCESS as c_int;

/// At least the size of any MPI's `MPI_MAX_ERROR_STRING`: 256 in Open MPI, up to 1024 in MPICH.
const ERROR_TEXT_BYTES: usize = 4096;

static TABLE: Table = Table {
    header: Header {
        magic: MAGIC,
        version: VERSION,
        size: size_of::<Table>() as u32,
        abi: ABI as u32,
        reserved: 0,
    },
    initialized,
    finalized,
    init,
    thread_level,
    finalize,
    error_text,
    world,
    return_errors,
    rank,
    size,
    duplicate,
    of_members,
    barrier,
    send,
    receive,
    broadcast,
    allgather,
    allgather_parts,
    gather,
    alltoall_parts,
    test_all,
    cancel,
};

/// Returns the table ([`ronde_mpi_table::Entry`]).
// SAFETY: no other library of the process defines this name; plug-ins are opened with local
// symbols.
#[unsafe(no_mangle)]
pub extern "C" fn ronde_mpi_table() -> *const Header {
    (&raw const TABLE).cast()
}

/// MPI's handle in an opaque word.
fn native<T: Copy>(word: u64) -> T {
    const { assert!(size_of::<T>() <= size_of::<u64>()) };
    // SAFETY: the word is as large, and has been written by `opaque` or by MPI; every bit pattern
    // is an integer or a raw pointer.
    unsafe { ptr::from_ref(&word).cast::<T>().read() }
}

/// The opaque word of MPI's handle.
fn opaque<T: Copy>(handle: T) -> u64 {
    const { assert!(size_of::<T>() <= size_of::<u64>()) };
    let mut word = 0u64;
    // SAFETY: the word is as large and as aligned.
    unsafe { ptr::from_mut(&mut word).cast::<T>().write(handle) };
    word
}

fn comm(comm: Comm) -> ffi::MPI_Comm {
    native(comm.0)
}

fn byte() -> ffi::MPI_Datatype {
    // SAFETY: a constant of the library.
    unsafe { ffi::RSMPI_UINT8_T }
}

/// Starts a call and stores its request, which receives `bytes` bytes.
///
/// # Safety
/// `request` is writable.
unsafe fn begin(
    request: *mut Request,
    bytes: u64,
    start: impl FnOnce(*mut ffi::MPI_Request) -> c_int,
) -> c_int {
    // SAFETY: a constant of the library.
    let mut handle = unsafe { ffi::RSMPI_REQUEST_NULL };
    let code = start(&mut handle);
    let started = Request {
        handle: opaque(handle),
        bytes,
    };
    // SAFETY: the caller's promise.
    unsafe { request.write(started) };
    code
}

// In all functions below, the SAFETY of calls to MPI is the promise of the table's caller: handles
// are live, and memory is valid until the request completes.

unsafe extern "C" fn initialized(flag: *mut c_int) -> c_int {
    // SAFETY: see above.
    unsafe { ffi::MPI_Initialized(flag) }
}

unsafe extern "C" fn finalized(flag: *mut c_int) -> c_int {
    // SAFETY: see above.
    unsafe { ffi::MPI_Finalized(flag) }
}

unsafe extern "C" fn init() -> c_int {
    let mut provided = 0;
    // SAFETY: MPI accepts null for both arguments of the program.
    unsafe {
        ffi::MPI_Init_thread(
            ptr::null_mut(),
            ptr::null_mut(),
            ffi::RSMPI_THREAD_MULTIPLE,
            &mut provided,
        )
    }
}

unsafe extern "C" fn thread_level(level: *mut c_int) -> c_int {
    let mut provided = 0;
    // SAFETY: see above; the levels are constants.
    unsafe {
        let code = ffi::MPI_Query_thread(&mut provided);
        let levels = [
            ffi::RSMPI_THREAD_SINGLE,
            ffi::RSMPI_THREAD_FUNNELED,
            ffi::RSMPI_THREAD_SERIALIZED,
            ffi::RSMPI_THREAD_MULTIPLE,
        ];
        // The standard orders the levels, but not their values.
        *level = levels.iter().filter(|level| **level < provided).count() as c_int;
        code
    }
}

unsafe extern "C" fn finalize() -> c_int {
    // SAFETY: see above.
    unsafe { ffi::MPI_Finalize() }
}

unsafe extern "C" fn error_text(code: c_int, text: *mut c_char, capacity: usize) -> c_int {
    let mut whole = [0 as c_char; ERROR_TEXT_BYTES];
    let mut length = 0;
    // SAFETY: the buffer is longer than any text of MPI's; `text` has `capacity` bytes.
    unsafe {
        let outcome = ffi::MPI_Error_string(code, whole.as_mut_ptr(), &mut length);
        let bytes = usize::try_from(length)
            .unwrap_or(0)
            .min(ERROR_TEXT_BYTES)
            .min(capacity.saturating_sub(1));
        ptr::copy_nonoverlapping(whole.as_ptr(), text, bytes);
        if capacity > 0 {
            text.add(bytes).write(0);
        }
        outcome
    }
}

unsafe extern "C" fn world() -> Comm {
    // SAFETY: a constant of the library.
    Comm(opaque(unsafe { ffi::RSMPI_COMM_WORLD }))
}

unsafe extern "C" fn return_errors(on: Comm) -> c_int {
    // SAFETY: see above.
    unsafe { ffi::MPI_Comm_set_errhandler(comm(on), ffi::RSMPI_ERRORS_RETURN) }
}

unsafe extern "C" fn rank(on: Comm, rank: *mut c_int) -> c_int {
    // SAFETY: see above.
    unsafe { ffi::MPI_Comm_rank(comm(on), rank) }
}

unsafe extern "C" fn size(on: Comm, size: *mut c_int) -> c_int {
    // SAFETY: see above.
    unsafe { ffi::MPI_Comm_size(comm(on), size) }
}

unsafe extern "C" fn duplicate(on: Comm, copy: *mut Comm, request: *mut Request) -> c_int {
    // SAFETY: see above; the word begins with the handle.
    unsafe {
        begin(request, NO_LENGTH, |request| {
            ffi::MPI_Comm_idup(comm(on), copy.cast(), request)
        })
    }
}

unsafe extern "C" fn of_members(
    on: Comm,
    ranks: *const c_int,
    count: c_int,
    tag: c_int,
    created: *mut Comm,
) -> c_int {
    // SAFETY: see above; each group is freed once, whatever the call in between returns.
    unsafe {
        let (mut all, mut some) = (ffi::RSMPI_GROUP_NULL, ffi::RSMPI_GROUP_NULL);
        let mut code = ffi::MPI_Comm_group(comm(on), &mut all);
        if code != SUCCESS {
            return code;
        }
        code = ffi::MPI_Group_incl(all, count, ranks, &mut some);
        if code == SUCCESS {
            let mut handle = ffi::RSMPI_COMM_NULL;
            code = ffi::MPI_Comm_create_group(comm(on), some, tag, &mut handle);
            *created = Comm(opaque(handle));
            let freed = ffi::MPI_Group_free(&mut some);
            code = if code == SUCCESS { freed } else { code };
        }
        let freed = ffi::MPI_Group_free(&mut all);
        if code == SUCCESS { freed } else { code }
    }
}

unsafe extern "C" fn barrier(on: Comm, request: *mut Request) -> c_int {
    // SAFETY: see above.
    unsafe {
        begin(request, NO_LENGTH, |request| {
            ffi::MPI_Ibarrier(comm(on), request)
        })
    }
}

unsafe extern "C" fn send(
    from: *const u8,
    bytes: c_int,
    to: c_int,
    tag: c_int,
    on: Comm,
    request: *mut Request,
) -> c_int {
    // SAFETY: see above.
    unsafe {
        begin(request, NO_LENGTH, |request| {
            ffi::MPI_Isend(from.cast(), bytes, byte(), to, tag, comm(on), request)
        })
    }
}

unsafe extern "C" fn receive(
    to: *mut u8,
    bytes: c_int,
    from: c_int,
    tag: c_int,
    on: Comm,
    request: *mut Request,
) -> c_int {
    // SAFETY: see above.
    unsafe {
        let from = if from == ANY_RANK {
            ffi::RSMPI_ANY_SOURCE
        } else {
            from
        };
        begin(request, bytes as u64, |request| {
            ffi::MPI_Irecv(to.cast(), bytes, byte(), from, tag, comm(on), request)
        })
    }
}

unsafe extern "C" fn broadcast(
    memory: *mut u8,
    bytes: c_int,
    root: c_int,
    on: Comm,
    request: *mut Request,
) -> c_int {
    // SAFETY: see above.
    unsafe {
        begin(request, NO_LENGTH, |request| {
            ffi::MPI_Ibcast(memory.cast(), bytes, byte(), root, comm(on), request)
        })
    }
}

unsafe extern "C" fn allgather(
    from: *const u8,
    to: *mut u8,
    bytes: c_int,
    on: Comm,
    request: *mut Request,
) -> c_int {
    // SAFETY: see above.
    unsafe {
        begin(request, NO_LENGTH, |request| {
            ffi::MPI_Iallgather(
                from.cast(),
                bytes,
                byte(),
                to.cast(),
                bytes,
                byte(),
                comm(on),
                request,
            )
        })
    }
}

unsafe extern "C" fn allgather_parts(
    from: *const u8,
    bytes: c_int,
    to: *mut u8,
    counts: *const c_int,
    begins: *const c_int,
    on: Comm,
    request: *mut Request,
) -> c_int {
    // SAFETY: see above.
    unsafe {
        begin(request, NO_LENGTH, |request| {
            ffi::MPI_Iallgatherv(
                from.cast(),
                bytes,
                byte(),
                to.cast(),
                counts,
                begins,
                byte(),
                comm(on),
                request,
            )
        })
    }
}

unsafe extern "C" fn gather(
    from: *const u8,
    to: *mut u8,
    bytes: c_int,
    root: c_int,
    on: Comm,
    request: *mut Request,
) -> c_int {
    // SAFETY: see above.
    unsafe {
        begin(request, NO_LENGTH, |request| {
            ffi::MPI_Igather(
                from.cast(),
                bytes,
                byte(),
                to.cast(),
                bytes,
                byte(),
                root,
                comm(on),
                request,
            )
        })
    }
}

unsafe extern "C" fn alltoall_parts(
    from: *const u8,
    sent: *const c_int,
    sent_at: *const c_int,
    to: *mut u8,
    received: *const c_int,
    received_at: *const c_int,
    on: Comm,
    request: *mut Request,
) -> c_int {
    // SAFETY: see above.
    unsafe {
        begin(request, NO_LENGTH, |request| {
            ffi::MPI_Ialltoallv(
                from.cast(),
                sent,
                sent_at,
                byte(),
                to.cast(),
                received,
                received_at,
                byte(),
                comm(on),
                request,
            )
        })
    }
}

unsafe extern "C" fn test_all(requests: *mut Request, count: c_int, done: *mut c_int) -> c_int {
    // SAFETY: the caller's promise: so many requests, which nobody else uses meanwhile.
    let requests = unsafe { std::slice::from_raw_parts_mut(requests, count as usize) };
    let mut handles: SmallVec<[ffi::MPI_Request; 8]> = requests
        .iter()
        .map(|request| native(request.handle))
        .collect();
    let mut statuses: SmallVec<[ffi::MPI_Status; 8]> = requests
        .iter()
        // SAFETY: a structure of integers.
        .map(|_| unsafe { MaybeUninit::zeroed().assume_init() })
        .collect();
    // SAFETY: as many handles and statuses; `done` is writable. A single request has a call of its
    // own, whose return code is the request's.
    let code = unsafe {
        match count {
            1 => ffi::MPI_Test(handles.as_mut_ptr(), done, statuses.as_mut_ptr()),
            _ => ffi::MPI_Testall(count, handles.as_mut_ptr(), done, statuses.as_mut_ptr()),
        }
    };
    for (request, handle) in requests.iter_mut().zip(handles) {
        request.handle = opaque(handle);
    }
    if code == ffi::MPI_ERR_IN_STATUS as c_int {
        let own = statuses.iter().map(|status| status.MPI_ERROR);
        let failed = |error: &c_int| *error != SUCCESS && *error != ffi::MPI_ERR_PENDING as c_int;
        return own.into_iter().find(failed).unwrap_or(code);
    }
    // SAFETY: written by the call.
    if code != SUCCESS || unsafe { *done } == 0 {
        return code;
    }
    for (request, status) in requests.iter().zip(&statuses) {
        if request.bytes == NO_LENGTH {
            continue;
        }
        let mut bytes = 0;
        // SAFETY: the status of a receive that has completed.
        let code = unsafe { ffi::MPI_Get_count(status, byte(), &mut bytes) };
        if code != SUCCESS || bytes as u64 != request.bytes {
            return SHORT_MESSAGE;
        }
    }
    SUCCESS
}

unsafe extern "C" fn cancel(request: *mut Request) -> c_int {
    // SAFETY: see above; `MPI_Wait` completes a cancelled receive without any message.
    unsafe {
        let mut handle: ffi::MPI_Request = native((*request).handle);
        let code = ffi::MPI_Cancel(&mut handle);
        if code != SUCCESS {
            return code;
        }
        let code = ffi::MPI_Wait(&mut handle, ffi::RSMPI_STATUS_IGNORE);
        (*request).handle = opaque(handle);
        code
    }
}
