//! Memory that the runtime has allocated, as a DLPack capsule: any torch makes a tensor of it without a copy.
//!
//! Layout and ownership: <https://dmlc.github.io/dlpack/latest/c_api.html>, version 0; that is what all versions of torch
//! take. Whoever takes the capsule renames it and calls the deleter in the end; a capsule that nobody has taken calls it
//! itself.

#![allow(unsafe_code)] // the C interface of DLPack

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use ronde::{Device, Dtype, Memory};

const NAME: &CStr = c"dltensor";

/// kDLCPU and kDLCUDA.
const DEVICE_CPU: i32 = 1;
const DEVICE_CUDA: i32 = 2;

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct DlManagedTensor {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DlManagedTensor)>,
}

/// What a capsule points to; the first field is what others see of it.
#[repr(C)]
struct Managed {
    seen: DlManagedTensor,
    memory: Memory,
    shape: Vec<i64>,
}

/// A capsule of a tensor of this shape. Truth values go as bytes: torch takes no others before 2.1.
pub(crate) fn capsule<'py>(
    py: Python<'py>,
    memory: Memory,
    shape: &[usize],
) -> PyResult<Bound<'py, PyCapsule>> {
    let (code, bits) = code_and_bits(memory.dtype());
    let (device_type, device_id) = match memory.device() {
        Device::Cpu => (DEVICE_CPU, 0),
        Device::Cuda { ordinal, .. } => (DEVICE_CUDA, ordinal as i32),
    };
    let mut managed = Box::new(Managed {
        seen: DlManagedTensor {
            tensor: DlTensor {
                data: memory.address().cast(),
                device_type,
                device_id,
                ndim: shape.len() as i32,
                code,
                bits,
                lanes: 1,
                shape: std::ptr::null_mut(),
                strides: std::ptr::null_mut(), // rows follow one another
                byte_offset: 0,
            },
            context: std::ptr::null_mut(),
            deleter: Some(delete),
        },
        memory,
        shape: shape.iter().map(|&dimension| dimension as i64).collect(),
    });
    managed.seen.tensor.shape = managed.shape.as_mut_ptr(); // a vector's elements stay where they are when it is moved
    let pointer = NonNull::from(Box::leak(managed));
    // SAFETY: it points to a `Managed`, which lives until its deleter is called: by whoever takes the capsule, or by
    // `forget`. Neither minds the thread, as `Memory` is `Send`.
    let made = unsafe { PyCapsule::new_with_pointer_and_destructor(py, pointer.cast(), NAME, Some(forget)) };
    if made.is_err() {
        // SAFETY: from `Box::leak` just now, and no capsule has it.
        drop(unsafe { Box::from_raw(pointer.as_ptr()) });
    }
    made
}

/// Frees what [`capsule`] has made.
///
/// # Safety
/// `managed` is what a capsule points to, and is not used again.
unsafe extern "C" fn delete(managed: *mut DlManagedTensor) {
    // SAFETY: the first field of a `Managed` in a box of its own, which the caller gives up.
    drop(unsafe { Box::from_raw(managed.cast::<Managed>()) });
}

/// The end of a capsule, taken or not.
///
/// # Safety
/// Python calls it, with the capsule.
unsafe extern "C" fn forget(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule; its pointer is asked for under the name that it has only as long as nobody has taken it.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast());
        }
    }
}

/// DLPack's type code and the bits of an element.
fn code_and_bits(dtype: Dtype) -> (u8, u8) {
    const INT: u8 = 0;
    const UINT: u8 = 1;
    const FLOAT: u8 = 2;
    const BFLOAT: u8 = 4;
    let code = match dtype {
        Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => INT,
        Dtype::U8 | Dtype::Bool => UINT,
        Dtype::F16 | Dtype::F32 | Dtype::F64 => FLOAT,
        Dtype::Bf16 => BFLOAT,
    };
    (code, 8 * dtype.size_bytes() as u8)
}
