//! The handler: submits the arrays of a call.

#![allow(unsafe_code)] // a function that XLA calls, and memory of its arrays

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::completion::{self, Pending};
use super::ffi::{self, Array, Frame, Opaque};
use crate::collective::{Call, Failure, Kind, Operand, byte_count, is_adasum, submit};

/// Separates the names in their attribute.
const SEPARATOR: char = '\n';

/// Runs a call: returns null, an error, or null with a future in the frame.
///
/// # Safety
/// Called by XLA, with a frame.
pub(super) unsafe extern "C" fn handle(frame: *mut Frame) -> *mut Opaque {
    // SAFETY: XLA passes a valid frame.
    let Some(call) = (unsafe { ffi::Call::new(frame) }) else {
        return std::ptr::null_mut();
    };
    // A panic must not reach XLA.
    let outcome = catch_unwind(AssertUnwindSafe(|| start(&call)))
        .unwrap_or_else(|_| Err(Failure::internal("the handler of ronde has panicked")));
    match outcome {
        Ok(()) => std::ptr::null_mut(),
        Err(failure) => call.functions().error(&failure),
    }
}

fn start(frame: &ffi::Call<'_>) -> Result<(), Failure> {
    let call = attributes(frame)?;
    let marks_step = frame.integer("step")? != 0;
    let (arguments, results) = (frame.arguments()?, frame.results()?);
    if arguments.len() != results.len() {
        return Err(Failure::internal(format!(
            "{} arrays and {} results",
            arguments.len(),
            results.len()
        )));
    }
    let operands = arguments.iter().zip(&results);
    let operands = operands.map(|(argument, result)| operand(&call, argument, result));
    let operands = operands.collect::<Result<Vec<_>, _>>()?;
    let outputs = operands.iter().map(|operand| operand.output).collect();
    // SAFETY: the operands are checked; XLA keeps all arrays until the future is completed, or the
    // handler has returned.
    let handles = unsafe { submit(&call, &operands) }?;
    let pending = Pending::new(call, handles, outputs, marks_step);
    match frame.functions().future() {
        Some(future) if !pending.is_done() => {
            frame.set_future(&future);
            completion::later(pending, future);
            Ok(())
        }
        Some(future) => {
            frame.set_future(&future);
            future.complete(pending.finish());
            Ok(())
        }
        None => pending.finish(),
    }
}

/// Numbers and names of a call, by which it is found again.
type Attributes = ([i64; 7], String);

/// Most calls that are kept, the newest ones.
const CALLS_MAX: usize = 32;

/// The call with these attributes: the names of a large tree are made once.
fn attributes(frame: &ffi::Call<'_>) -> Result<Arc<Call>, Failure> {
    static CALLS: Mutex<Vec<(Attributes, Arc<Call>)>> = Mutex::new(Vec::new());
    let numbers = [
        frame.integer("kind")?,
        frame.integer("op")?,
        frame.float("prescale")?.to_bits() as i64,
        frame.float("postscale")?.to_bits() as i64,
        frame.integer("root")?,
        frame.integer("process_set")?,
        frame.integer("group")?,
    ];
    let attributes = (numbers, frame.text("names")?);
    let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, call)) = calls.iter().find(|(known, _)| *known == attributes) {
        return Ok(Arc::clone(call));
    }
    let call = Arc::new(read_call(&attributes)?);
    if calls.len() == CALLS_MAX {
        calls.remove(0);
    }
    calls.push((attributes, Arc::clone(&call)));
    Ok(call)
}

fn read_call((numbers, names): &Attributes) -> Result<Call, Failure> {
    let &[kind, op, prescale, postscale, root, set_id, group] = numbers;
    Ok(Call {
        kind: Kind::from_number(kind)
            .filter(|kind| !matches!(kind, Kind::Join | Kind::Barrier))
            .ok_or_else(|| Failure::internal(format!("operation {kind} is unknown")))?,
        op,
        prescale: f64::from_bits(prescale as u64),
        postscale: f64::from_bits(postscale as u64),
        root,
        set_id,
        is_group: group != 0,
        members_only: false,
        is_held: false,
        names: match names.as_str() {
            "" => Vec::new(),
            names => names.split(SEPARATOR).map(str::to_owned).collect(),
        },
        resolved: OnceLock::new(),
    })
}

fn operand(call: &Call, argument: &Array, result: &Array) -> Result<Operand, Failure> {
    let name = || call.names.first().map_or("an array", String::as_str);
    let dtype = ffi::dtype(argument.dtype, call.kind.only_moves()).ok_or_else(|| {
        Failure::invalid(format!(
            "{}: XLA's type number {} is not supported by {:?}; convert it with astype",
            name(),
            argument.dtype,
            call.kind
        ))
    })?;
    let mut operand = Operand {
        dtype,
        shape: argument.shape.clone(),
        input: argument.address,
        output: None,
        splits: Vec::new(),
    };
    let outside = |shape: &[usize]| {
        Failure::internal(format!(
            "{}: an array of shape {shape:?} does not fit into memory",
            name()
        ))
    };
    let bytes = byte_count(dtype, &argument.shape).ok_or_else(|| outside(&argument.shape))?;
    let result_bytes = byte_count(dtype, &result.shape).ok_or_else(|| outside(&result.shape))?;
    if result.dtype != argument.dtype || (call.kind.keeps_shape() && result_bytes != bytes) {
        return Err(Failure::internal(format!(
            "{}: the result differs from the array in type or size",
            name()
        )));
    }
    operand.output = Some((result.address, result_bytes));
    if is_adasum(call) {
        operand.shape.insert(0, 1);
    }
    Ok(operand)
}
