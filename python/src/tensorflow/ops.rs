//! Definitions of the ops and registration of their kernels.

#![allow(unsafe_code)] // the C interface of TensorFlow

use std::ffi::CStr;

use super::kernels::{
    compute_collective, compute_query, compute_submit, compute_wait, create_collective,
    create_query, create_wait, delete_collective, delete_query, delete_wait,
};
use super::library::{Compute, Create, Delete, Opaque, Status, table};

/// An op and its kernel.
struct Op {
    name: &'static CStr,
    attributes: &'static [&'static [&'static CStr]],
    inputs: &'static [&'static CStr],
    outputs: &'static [&'static CStr],
    /// Names of the arguments, all in host memory.
    arguments: &'static [&'static CStr],
    create: Create,
    compute: Compute,
    delete: Delete,
}

/// Attributes of [`Call`](crate::collective::Call), factors as the bits of 64-bit floats; and
/// element types of the tensors.
const CALL: &[&CStr] = &[
    c"kind: int",
    c"op: int",
    c"prescale: int",
    c"postscale: int",
    c"root: int",
    c"process_set: int",
    c"flags: int",
    c"names: list(string)",
    c"T: list(type) >= 0",
];

/// Element types of the results.
const RESULTS: &[&CStr] = &[c"R: list(type) >= 0"];

/// Operations whose results have the types of the tensors: each list of types costs time in eager
/// execution.
const COLLECTIVE: Op = Op {
    name: c"RondeCollective",
    attributes: &[CALL],
    inputs: &[c"tensors: T"],
    outputs: &[c"results: T"],
    arguments: &[c"tensors", c"results"],
    create: create_collective,
    compute: compute_collective,
    delete: delete_collective,
};

const OPS: &[Op] = &[
    COLLECTIVE,
    // Alltoall and join, whose results have other types.
    Op {
        name: c"RondeExchange",
        attributes: &[CALL, RESULTS],
        outputs: &[c"results: R"],
        ..COLLECTIVE
    },
    Op {
        name: c"RondeSubmit",
        attributes: &[CALL, RESULTS],
        outputs: &[c"token: int64", c"values: R"],
        arguments: &[c"tensors", c"token", c"values"],
        compute: compute_submit,
        ..COLLECTIVE
    },
    Op {
        name: c"RondeWait",
        attributes: &[&[c"N: int >= 1", c"step: int"], RESULTS],
        inputs: &[c"tokens: N * int64"],
        outputs: &[c"results: R"],
        arguments: &[c"tokens", c"results"],
        create: create_wait,
        compute: compute_wait,
        delete: delete_wait,
    },
    Op {
        name: c"RondeQuery",
        attributes: &[&[c"what: int", c"process_set: int"]],
        inputs: &[],
        outputs: &[c"value: int32"],
        arguments: &[c"value"],
        create: create_query,
        compute: compute_query,
        delete: delete_query,
    },
];

/// Devices with kernels. TensorFlow copies tensors on GPUs to pinned memory of the host and back.
const DEVICES: [&CStr; 2] = [c"CPU", c"GPU"];

/// Registers all ops and kernels.
///
/// # Errors
/// TensorFlow's message.
pub(super) fn register() -> Result<(), String> {
    for op in OPS {
        define(op)?;
        for device in DEVICES {
            implement(op, device)?;
        }
    }
    Ok(())
}

fn told(op: &Op, status: &Status) -> Result<(), String> {
    let outcome = status.outcome();
    outcome.map_err(|failure| format!("{}: {}", op.name.to_string_lossy(), failure.message))
}

fn define(op: &Op) -> Result<(), String> {
    let (table, status) = (table(), Status::new());
    // SAFETY: texts end with a null byte and are copied; registration takes the builder over.
    unsafe {
        let builder = (table.new_op)(op.name.as_ptr());
        for attribute in op.attributes.iter().copied().flatten() {
            (table.op_attribute)(builder, attribute.as_ptr());
        }
        for input in op.inputs {
            (table.op_input)(builder, input.as_ptr());
        }
        for output in op.outputs {
            (table.op_output)(builder, output.as_ptr());
        }
        // Neither removed, nor merged, nor computed while the graph is optimized.
        (table.op_is_stateful)(builder, true);
        (table.op_shapes)(builder, infer_shapes);
        (table.register_op)(builder, status.as_ptr());
    }
    told(op, &status)
}

fn implement(op: &Op, device: &CStr) -> Result<(), String> {
    let (table, status) = (table(), Status::new());
    // SAFETY: as above, and the functions are those of the op's kernel.
    unsafe {
        let builder = (table.new_kernel)(
            op.name.as_ptr(),
            device.as_ptr(),
            op.create,
            op.compute,
            op.delete,
        );
        for argument in op.arguments {
            (table.host_memory)(builder, argument.as_ptr());
        }
        (table.register_kernel)(op.name.as_ptr(), builder, status.as_ptr());
    }
    told(op, &status)
}

/// Leaves shapes to Python, which knows the operation.
///
/// # Safety
/// Called by TensorFlow, with a context and a status.
unsafe extern "C" fn infer_shapes(context: *mut Opaque, status: *mut Opaque) {
    // SAFETY: the arguments are passed on.
    unsafe { (table().unknown_shapes)(context, status) };
}
