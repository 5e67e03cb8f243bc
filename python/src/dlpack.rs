//! DLPack capsules: give torch the runtime's output buffers without a copy.
//!
//! Layout and ownership: <https://dmlc.github.io/dlpack/latest/c_api.html>, version 0, which all
//! versions of torch accept. A consumer renames the capsule and calls the deleter when it is done;
//! an unused capsule calls the deleter itself.

#![allow(unsafe_code)] // the C interface of DLPack

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use ronde::{Device, Dtype, Memory};

const NAME: &CStr = c"dltensor";

/// `kDLCPU` and `kDLCUDA`.
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

/// Target of a capsule's pointer; consumers see only the first field.
#[repr(C)]
struct Managed {
    seen: DlManagedTensor,
    memory: Memory,
    shape: Vec<i64>,
}

/// Creates the capsule of a tensor of this shape. Booleans are passed as bytes: torch before 2.1
/// accepts no boolean capsules.
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
                strides: std::ptr::null_mut(), // contiguous rows
                byte_offset: 0,
            },
            context: std::ptr::null_mut(),
            deleter: Some(delete),
        },
        memory,
        shape: shape.iter().map(|&dimension| dimension as i64).collect(),
    });
    managed.seen.tensor.shape = managed.shape.as_mut_ptr(); // moving a vector does not move its elements
    let pointer = NonNull::from(Box::leak(managed));
    // SAFETY: it points to a `Managed`, which lives until its deleter is called, by the consumer of
    // the capsule or by `forget`. Both may run on any thread, as `Memory` is `Send`.
    let made = unsafe {
        PyCapsule::new_with_pointer_and_destructor(py, pointer.cast(), NAME, Some(forget))
    };
    if made.is_err() {
        // SAFETY: the pointer is from `Box::leak` above, and no capsule has it.
        drop(unsafe { Box::from_raw(pointer.as_ptr()) });
    }
    made
}

/// Frees the memory of a [`capsule`].
///
/// # Safety
/// `managed` is the pointer of a capsule, and is not used again.
unsafe extern "C" fn delete(managed: *mut DlManagedTensor) {
    // SAFETY: the first field of a `Managed` in a box of its own, which the caller gives up.
    drop(unsafe { Box::from_raw(managed.cast::<Managed>()) });
}

/// Destructor of a capsule, used or not.
///
/// # Safety
/// Called by Python, with the capsule.
unsafe extern "C" fn forget(capsule: *mut ffi::PyObject) {
    // SAFETY: `capsule` is a capsule; it has the name asked for only while no consumer has used it.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast());
        }
    }
}

/// DLPack's type code and the number of bits of an element.
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
