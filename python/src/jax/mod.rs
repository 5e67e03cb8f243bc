//! The handler of JAX's custom calls, registered through XLA's foreign function interface.
//!
//! One handler serves all operations; which one it is, is in the attributes of the call. It submits
//! the operands and returns a future, which another thread completes. So no thread of XLA blocks,
//! and the order in which a program's operations run does not matter: ranks match them by name.

#![allow(unsafe_code)] // a function that XLA calls, as a capsule

use std::ptr::NonNull;

use pyo3::prelude::*;
use pyo3::types::PyCapsule;

mod completion;
mod ffi;
mod handler;

/// Returns the handler for `jax.ffi.register_ffi_target`. `major`, `minor`: the version of XLA's
/// interface in the loaded jaxlib.
#[pyfunction]
#[pyo3(signature = (major, minor, /))]
pub(crate) fn jax_handler(
    py: Python<'_>,
    major: i32,
    minor: i32,
) -> PyResult<Bound<'_, PyCapsule>> {
    ffi::accept_version(major, minor)?;
    let address = NonNull::new(handler::handle as *mut std::ffi::c_void);
    let address = address
        .ok_or_else(|| pyo3::exceptions::PyRuntimeError::new_err("the handler has no address"))?;
    // SAFETY: a function lives as long as the library, which Python never unloads; there is nothing
    // to free.
    unsafe { PyCapsule::new_with_pointer(py, address, c"xla._CUSTOM_CALL_TARGET") }
}
