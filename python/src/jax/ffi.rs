//! Types of XLA's foreign function interface (`xla/ffi/api/c_api.h`), as far as the handler uses
//! them, and checked views of a call's arguments.
//!
//! Versions 0.1 to 0.3 have the same layout of these types.

#![allow(unsafe_code)] // the C interface of XLA

use std::ffi::{CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicI32, Ordering};

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use ronde::Dtype;
use smallvec::SmallVec;

use crate::collective::Failure;

/// Prefix of error messages, by which Python distinguishes them from those of other operations.
const MARK: &str = "ronde: ";

const MAJOR: i32 = 0;
const MINORS: std::ops::RangeInclusive<i32> = 1..=3;

static MINOR: AtomicI32 = AtomicI32::new(*MINORS.end());

/// Checks the version of the loaded jaxlib, and answers XLA's queries with it.
///
/// # Errors
/// ImportError for an unknown version.
pub(super) fn accept_version(major: i32, minor: i32) -> PyResult<()> {
    if major != MAJOR || !MINORS.contains(&minor) {
        return Err(PyImportError::new_err(format!(
            "jaxlib has version {major}.{minor} of XLA's foreign function interface; ronde.jax knows {MAJOR}.{} to {MAJOR}.{}",
            MINORS.start(),
            MINORS.end()
        )));
    }
    MINOR.store(minor, Ordering::Relaxed);
    Ok(())
}

const EXTENSION_METADATA: c_int = 1;
const STAGE_EXECUTE: c_int = 3;
const KIND_BUFFER: c_int = 1;
const ATTRIBUTE_SCALAR: c_int = 3;
const ATTRIBUTE_STRING: c_int = 4;
const TYPE_I64: c_int = 5;
const TYPE_F64: c_int = 12;

/// Most arrays or attributes of a call; XLA has no limit.
const COUNT_MAX: i64 = 1 << 20;

#[repr(C)]
struct Extension {
    struct_size: usize,
    kind: c_int,
    next: *mut Extension,
}

#[repr(C)]
struct Version {
    struct_size: usize,
    extensions: *mut Extension,
    major: c_int,
    minor: c_int,
}

#[repr(C)]
struct Metadata {
    struct_size: usize,
    version: Version,
    traits: u32,
    state_type: i64,
}

#[repr(C)]
struct MetadataExtension {
    base: Extension,
    metadata: *mut Metadata,
}

#[repr(C)]
struct Buffer {
    struct_size: usize,
    extensions: *mut Extension,
    dtype: c_int,
    data: *mut c_void,
    rank: i64,
    dims: *mut i64,
}

#[repr(C)]
struct Span {
    data: *const c_char,
    len: usize,
}

#[repr(C)]
struct Scalar {
    dtype: c_int,
    value: *mut c_void,
}

/// `XLA_FFI_Args` and `XLA_FFI_Rets`.
#[repr(C)]
struct Buffers {
    struct_size: usize,
    extensions: *mut Extension,
    size: i64,
    types: *mut c_int,
    buffers: *mut *mut Buffer,
}

#[repr(C)]
struct Attributes {
    struct_size: usize,
    extensions: *mut Extension,
    size: i64,
    types: *mut c_int,
    names: *mut *mut Span,
    values: *mut *mut c_void,
}

/// An error or a future of XLA, only passed on.
#[repr(C)]
pub(super) struct Opaque {
    _private: [u8; 0],
}

#[repr(C)]
struct CreateError {
    struct_size: usize,
    extensions: *mut Extension,
    message: *const c_char,
    code: c_int,
}

#[repr(C)]
struct CreateFuture {
    struct_size: usize,
    extensions: *mut Extension,
    future: *mut Opaque,
}

#[repr(C)]
struct SetAvailable {
    struct_size: usize,
    extensions: *mut Extension,
    future: *mut Opaque,
}

#[repr(C)]
struct SetError {
    struct_size: usize,
    extensions: *mut Extension,
    future: *mut Opaque,
    error: *mut Opaque,
}

type Unused = *const c_void;

/// XLA's functions.
#[repr(C)]
pub(super) struct Api {
    struct_size: usize,
    extensions: *mut Extension,
    version: Version,
    internal: Unused,
    create_error: Option<unsafe extern "C" fn(*mut CreateError) -> *mut Opaque>,
    get_message: Unused,
    destroy_error: Option<unsafe extern "C" fn(*mut DestroyError)>,
    register_handler: Unused,
    get_stream: Unused,
    register_type: Unused,
    get_context: Unused,
    set_state: Unused,
    get_state: Unused,
    allocate: Unused,
    free: Unused,
    schedule: Unused,
    count_threads: Unused,
    create_future: Option<unsafe extern "C" fn(*mut CreateFuture) -> *mut Opaque>,
    set_available: Option<unsafe extern "C" fn(*mut SetAvailable) -> *mut Opaque>,
    set_error: Option<unsafe extern "C" fn(*mut SetError) -> *mut Opaque>,
}

#[repr(C)]
struct DestroyError {
    struct_size: usize,
    extensions: *mut Extension,
    error: *mut Opaque,
}

/// A call of the handler.
#[repr(C)]
pub(super) struct Frame {
    struct_size: usize,
    extensions: *mut Extension,
    api: *const Api,
    context: *mut c_void,
    stage: c_int,
    arguments: Buffers,
    results: Buffers,
    attributes: Attributes,
    future: *mut Opaque,
}

/// A call to execute.
pub(super) struct Call<'a> {
    frame: *mut Frame,
    lifetime: PhantomData<&'a ()>,
}

/// An array of a call.
pub(super) struct Array {
    pub(super) dtype: c_int,
    pub(super) address: *mut u8,
    pub(super) shape: SmallVec<[usize; 4]>,
}

impl<'a> Call<'a> {
    /// The call, if the frame is one; a query of the version is answered.
    ///
    /// # Safety
    /// `frame` is the argument of a handler, used during its call.
    pub(super) unsafe fn new(frame: *mut Frame) -> Option<Self> {
        // SAFETY: the frame is valid, and extensions are a list that ends with null.
        unsafe {
            let mut extension = (*frame).extensions;
            while !extension.is_null() {
                if (*extension).kind == EXTENSION_METADATA {
                    let metadata = (*extension.cast::<MetadataExtension>()).metadata;
                    (*metadata).version = Version {
                        struct_size: size_of::<Version>(),
                        extensions: std::ptr::null_mut(),
                        major: MAJOR,
                        minor: MINOR.load(Ordering::Relaxed),
                    };
                    (*metadata).traits = 0;
                    return None;
                }
                extension = (*extension).next;
            }
            ((*frame).stage == STAGE_EXECUTE).then_some(Self {
                frame,
                lifetime: PhantomData,
            })
        }
    }

    pub(super) fn functions(&self) -> Functions {
        // SAFETY: XLA's table of functions lives as long as the process.
        Functions(unsafe { (*self.frame).api })
    }

    /// Tells XLA that the results come later.
    pub(super) fn set_future(&self, future: &Future) {
        // SAFETY: the frame is ours during the call.
        unsafe { (*self.frame).future = future.future };
    }

    pub(super) fn arguments(&self) -> Result<Vec<Array>, Failure> {
        // SAFETY: as above.
        unsafe { arrays(&(*self.frame).arguments) }
    }

    pub(super) fn results(&self) -> Result<Vec<Array>, Failure> {
        // SAFETY: as above.
        unsafe { arrays(&(*self.frame).results) }
    }

    /// The value of an attribute of this type.
    fn attribute(&self, name: &str, kind: c_int) -> Result<*mut c_void, Failure> {
        // SAFETY: as above; the lists have `size` entries.
        unsafe {
            let attributes = &(*self.frame).attributes;
            for index in 0..count(attributes.size)? {
                let span = &**attributes.names.add(index);
                let found = std::slice::from_raw_parts(span.data.cast::<u8>(), span.len);
                if found == name.as_bytes() && *attributes.types.add(index) == kind {
                    return Ok(*attributes.values.add(index));
                }
            }
        }
        Err(Failure::internal(format!(
            "the call has no attribute {name}"
        )))
    }

    fn scalar(&self, name: &str, dtype: c_int) -> Result<*const c_void, Failure> {
        let scalar = self.attribute(name, ATTRIBUTE_SCALAR)?.cast::<Scalar>();
        // SAFETY: as above, with the type that was found.
        unsafe {
            match (*scalar).dtype {
                found if found == dtype => Ok((*scalar).value.cast_const()),
                found => Err(Failure::internal(format!(
                    "attribute {name} is of XLA's type {found}, not {dtype}"
                ))),
            }
        }
    }

    pub(super) fn integer(&self, name: &str) -> Result<i64, Failure> {
        let value = self.scalar(name, TYPE_I64)?;
        // SAFETY: a scalar of this type.
        Ok(unsafe { value.cast::<i64>().read_unaligned() })
    }

    pub(super) fn float(&self, name: &str) -> Result<f64, Failure> {
        let value = self.scalar(name, TYPE_F64)?;
        // SAFETY: as above.
        Ok(unsafe { value.cast::<f64>().read_unaligned() })
    }

    pub(super) fn text(&self, name: &str) -> Result<String, Failure> {
        let span = self.attribute(name, ATTRIBUTE_STRING)?.cast::<Span>();
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts((*span).data.cast::<u8>(), (*span).len) };
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }
}

fn count(size: i64) -> Result<usize, Failure> {
    match size {
        0..=COUNT_MAX => Ok(size as usize),
        _ => Err(Failure::internal(format!("a call with {size} arrays"))),
    }
}

/// The arrays of a list.
///
/// # Safety
/// The list is one of a frame in use.
unsafe fn arrays(list: &Buffers) -> Result<Vec<Array>, Failure> {
    let array = |index| {
        // SAFETY: the lists have `size` entries, and an array `rank` dimensions.
        unsafe {
            if *list.types.add(index) != KIND_BUFFER {
                return Err(Failure::internal("an argument that is no array"));
            }
            let buffer = &**list.buffers.add(index);
            let dimension = |axis| {
                let size = *buffer.dims.add(axis);
                usize::try_from(size)
                    .map_err(|_| Failure::internal(format!("an array with a dimension of {size}")))
            };
            let shape = (0..count(buffer.rank)?).map(dimension);
            let address: *mut u8 = buffer.data.cast();
            Ok(Array {
                dtype: buffer.dtype,
                // An empty array may have no memory, but the runtime expects an address.
                address: match address.is_null() {
                    true => std::ptr::without_provenance_mut(64),
                    false => address,
                },
                shape: shape.collect::<Result<_, _>>()?,
            })
        }
    };
    (0..count(list.size)?).map(array).collect()
}

/// The runtime's element type for XLA's; `only_moves`: any type of the same size will do.
pub(super) fn dtype(number: c_int, only_moves: bool) -> Option<Dtype> {
    Some(match number {
        1 => Dtype::Bool,
        2 => Dtype::I8,
        3 => Dtype::I16,
        4 => Dtype::I32,
        TYPE_I64 => Dtype::I64,
        6 => Dtype::U8,
        10 => Dtype::F16,
        11 => Dtype::F32,
        TYPE_F64 => Dtype::F64,
        16 => Dtype::Bf16,
        7 if only_moves => Dtype::I16,      // u16
        8 if only_moves => Dtype::I32,      // u32
        9 | 15 if only_moves => Dtype::I64, // u64, complex64
        _ => return None,
    })
}

/// XLA's functions.
#[derive(Clone, Copy)]
pub(super) struct Functions(*const Api);

// SAFETY: a table of functions that never changes; XLA's futures are completed from any thread.
unsafe impl Send for Functions {}

/// Result of a call that another thread completes.
pub(super) struct Future {
    functions: Functions,
    future: *mut Opaque,
}

// SAFETY: as for the functions.
unsafe impl Send for Future {}

impl Functions {
    /// An error to return to XLA, which then owns it.
    pub(super) fn error(self, failure: &Failure) -> *mut Opaque {
        let message = format!("{MARK}{}", failure.message.replace('\0', " "));
        let message = CString::new(message).unwrap_or_default();
        let mut arguments = CreateError {
            struct_size: size_of::<CreateError>(),
            extensions: std::ptr::null_mut(),
            message: message.as_ptr(),
            code: failure.code as c_int,
        };
        // SAFETY: the table is valid; the message is copied.
        unsafe {
            match (*self.0).create_error {
                Some(create) => create(&raw mut arguments),
                None => std::ptr::null_mut(),
            }
        }
    }

    /// A future, if XLA has them.
    pub(super) fn future(self) -> Option<Future> {
        // SAFETY: the table is valid, and its size says how much of it there is.
        unsafe {
            if (*self.0).struct_size < size_of::<Api>() || (*self.0).set_error.is_none() {
                return None;
            }
            let mut arguments = CreateFuture {
                struct_size: size_of::<CreateFuture>(),
                extensions: std::ptr::null_mut(),
                future: std::ptr::null_mut(),
            };
            let error = (*self.0).create_future?(&raw mut arguments);
            self.destroy(error);
            (error.is_null() && !arguments.future.is_null()).then_some(Future {
                functions: self,
                future: arguments.future,
            })
        }
    }

    fn destroy(self, error: *mut Opaque) {
        if error.is_null() {
            return;
        }
        let mut arguments = DestroyError {
            struct_size: size_of::<DestroyError>(),
            extensions: std::ptr::null_mut(),
            error,
        };
        // SAFETY: the error is ours and not used again.
        unsafe {
            if let Some(destroy) = (*self.0).destroy_error {
                destroy(&raw mut arguments);
            }
        }
    }
}

impl Future {
    /// Gives XLA the outcome.
    pub(super) fn complete(self, outcome: Result<(), Failure>) {
        let Self { functions, future } = self;
        // SAFETY: `Functions::future` has checked that the table has these functions; the future
        // is completed once.
        let error = unsafe {
            match outcome {
                Ok(()) => {
                    let mut arguments = SetAvailable {
                        struct_size: size_of::<SetAvailable>(),
                        extensions: std::ptr::null_mut(),
                        future,
                    };
                    match (*functions.0).set_available {
                        Some(set) => set(&raw mut arguments),
                        None => std::ptr::null_mut(),
                    }
                }
                Err(failure) => {
                    let mut arguments = SetError {
                        struct_size: size_of::<SetError>(),
                        extensions: std::ptr::null_mut(),
                        future,
                        error: functions.error(&failure),
                    };
                    match (*functions.0).set_error {
                        Some(set) => set(&raw mut arguments),
                        None => std::ptr::null_mut(),
                    }
                }
            }
        };
        functions.destroy(error);
    }
}
