//! The kernels: TensorFlow calls them on its threads, without Python's lock.

#![allow(unsafe_code)] // functions that TensorFlow calls, and memory of its tensors

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use pyo3::Python;
use ronde::{Context, Delivery, RawHandle};
use smallvec::SmallVec;

use super::library::{Construction, Execution, Opaque, Tensor};
use super::{interrupt, keep, take, types};
use crate::collective::{
    Call, Code, Failure, Kind, Operand, byte_count, checked_splits, complete, is_adasum, is_member,
    submit,
};
use crate::flight::SLICE;
use crate::runtime::{all_joined, current};

/// A submitted operation with its tensors.
pub(super) struct Pending {
    call: Arc<Call>,
    parts: Vec<Part>,
    /// Number of SIGINTs before the submission.
    interrupts: usize,
}

/// One tensor's part of an operation, or a join or barrier.
struct Part {
    /// None on a rank that is no member, whose result is the input.
    handle: Option<RawHandle>,
    /// Kept until the operation has completed.
    input: Option<Tensor>,
    /// Memory for the result, if its size was known.
    output: Option<Tensor>,
}

impl Part {
    fn output_memory(&self) -> Option<(*mut u8, usize)> {
        self.output.as_ref().map(Tensor::memory)
    }
}

/// Submits the operation on the execution's inputs. Results of known size are allocated as outputs
/// from `first_output` on.
fn start(
    call: &Arc<Call>,
    execution: &Execution<'_>,
    first_output: c_int,
) -> Result<Pending, Failure> {
    let count = match (call.kind, execution.inputs()) {
        (Kind::Alltoall, 2) => 1,
        (Kind::Join | Kind::Barrier, 0) => 0,
        (Kind::Alltoall | Kind::Join | Kind::Barrier, count) => {
            return Err(Failure::internal(format!(
                "an operation with {count} inputs"
            )));
        }
        (_, count) => count,
    };
    if call.members_only && !is_member(call.set_id)? {
        return kept(call, execution, count);
    }
    let interrupts = interrupt::received();
    let mut tensors = Vec::with_capacity(count as usize);
    let mut operands = Vec::with_capacity(count as usize);
    for index in 0..count {
        let (tensor, output, operand) = operand(call, execution, index, first_output + index)?;
        tensors.push((tensor, output));
        operands.push(operand);
    }
    // SAFETY: the operands are checked below; `Pending` keeps the tensors until the operation has
    // completed, and TensorFlow gives an output to nobody before the wait.
    let handles = unsafe { submit(call, &operands) }?;
    let mut tensors = tensors.into_iter();
    let parts = handles.into_iter().map(|handle| {
        let (input, output) = tensors
            .next()
            .map_or((None, None), |(input, output)| (Some(input), output));
        Part {
            handle: Some(handle),
            input,
            output,
        }
    });
    Ok(Pending {
        call: Arc::clone(call),
        parts: parts.collect(),
        interrupts,
    })
}

/// The operation on a rank outside of the process set.
fn kept(call: &Arc<Call>, execution: &Execution<'_>, count: c_int) -> Result<Pending, Failure> {
    let part = |index| {
        Ok(Part {
            handle: None,
            input: Some(execution.input(index)?),
            output: None,
        })
    };
    Ok(Pending {
        call: Arc::clone(call),
        parts: (0..count).map(part).collect::<Result<_, Failure>>()?,
        interrupts: interrupt::received(),
    })
}

/// The input `index` with its checked description, and the memory of its result.
fn operand(
    call: &Call,
    execution: &Execution<'_>,
    index: c_int,
    output_index: c_int,
) -> Result<(Tensor, Option<Tensor>, Operand), Failure> {
    let tensor = execution.input(index)?;
    let number = tensor.dtype();
    let dtype = types::dtype(number, call.kind.only_moves()).ok_or_else(|| {
        let name = call.names.first().map_or("a tensor", String::as_str);
        Failure::invalid(format!(
            "{name}: TensorFlow's type number {number} is not supported by {:?}; convert it with tf.cast",
            call.kind
        ))
    })?;
    let mut shape = tensor.shape()?;
    let mut splits = Vec::new();
    let (tensor, output) = if call.kind.keeps_shape() {
        let dims: SmallVec<[i64; 4]> = shape.iter().map(|&size| size as i64).collect();
        if call.is_held {
            let output = execution.allocate(output_index, None, &dims)?;
            (tensor, Some(output))
        } else {
            // TensorFlow forwards memory only if there is no other reference to it.
            drop(tensor);
            let output = execution.allocate(output_index, Some(index), &dims)?;
            (execution.input(index)?, Some(output))
        }
    } else {
        (tensor, None)
    };
    if call.kind == Kind::Alltoall {
        let given = execution.input(index + 1)?.integers()?;
        if !given.is_empty()
            && let Some(rows) = shape.first_mut()
        {
            let (checked, sum) = checked_splits(call.set_id, &given, *rows)?;
            // Rows beyond the splits are not sent.
            (splits, *rows) = (checked, sum);
        }
    }
    if is_adasum(call) {
        shape.insert(0, 1);
    }
    let (address, bytes) = tensor.memory();
    let operand = Operand {
        dtype,
        shape,
        input: address,
        output: output.as_ref().map(Tensor::memory),
        splits,
    };
    let fits = byte_count(dtype, &operand.shape).is_some_and(|needed| match call.kind {
        Kind::Alltoall => needed <= bytes,
        _ => needed == bytes,
    });
    if !fits || operand.output.is_some_and(|(_, length)| length != bytes) {
        return Err(Failure::internal(format!(
            "a tensor of shape {:?} and type {dtype} has {bytes} bytes",
            operand.shape
        )));
    }
    Ok((tensor, output, operand))
}

impl Pending {
    pub(super) fn is_done(&self) -> bool {
        let mut handles = self.parts.iter().filter_map(|part| part.handle.as_ref());
        handles.all(RawHandle::is_done)
    }

    /// Waits until all tensors have completed, also after the first failure: until then their
    /// memory is in use.
    ///
    /// # Errors
    /// If a signal handler of Python has raised an exception, or will raise KeyboardInterrupt. The
    /// operation goes on, with the tensors in the table.
    fn wait(self) -> Result<Self, Failure> {
        for handle in self.parts.iter().filter_map(|part| part.handle.as_ref()) {
            while !handle.is_done() && handle.wait_timeout(SLICE).is_none() {
                if let Some(interrupt) = interrupted(self.interrupts) {
                    keep(self);
                    return Err(interrupt);
                }
            }
        }
        Ok(self)
    }

    /// Calls `give` with each result, in order, and whether it is in memory that was an output
    /// from the beginning.
    fn results(
        self,
        give: &mut dyn FnMut(Tensor, bool) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let pending = self.wait()?;
        for part in pending.parts {
            let Some(handle) = &part.handle else {
                if let Some(input) = part.input {
                    give(input, false)?;
                }
                continue;
            };
            // SAFETY: the output is that of the submission.
            let delivery = unsafe { complete(&pending.call, handle, part.output_memory()) }?;
            if let Some(output) = part.output {
                give(output, true)?;
                continue;
            }
            match pending.call.kind {
                Kind::Join => {
                    all_joined();
                    let last = delivery.last_joined.map_or(-1, |rank| rank as i32);
                    give(integers(&[], vec![last])?, false)?;
                }
                Kind::Barrier => {}
                kind => {
                    let rows = delivery.splits.iter().map(|&rows| i32::try_from(rows));
                    let splits = rows.collect::<Result<Vec<i32>, _>>();
                    let splits = splits.map_err(|_| {
                        Failure::invalid(
                            "alltoall: a rank has sent more rows than received_splits can say \
                             (2147483647); send fewer rows at once"
                                .to_owned(),
                        )
                    })?;
                    let number = part.input.as_ref().map(Tensor::dtype);
                    give(delivered(number, delivery)?, false)?;
                    if kind == Kind::Alltoall {
                        give(integers(&[splits.len() as i64], splits)?, false)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the failure of a wait that is to be given up. In Python's main thread, a signal handler
/// has raised an exception, which is kept, as TensorFlow cannot raise it. In another thread, there
/// have been more SIGINTs than `before`, for which the main thread will raise KeyboardInterrupt.
#[cold]
fn interrupted(before: usize) -> Option<Failure> {
    let gives_up = Python::try_attach(|py| match py.check_signals() {
        Err(exception) => {
            super::keep_exception(exception);
            true
        }
        Ok(()) => interrupt::received() != before && interrupt::raises(py).unwrap_or(false),
    });
    gives_up.unwrap_or(false).then(|| Failure {
        code: Code::Cancelled,
        message: "interrupted by a signal".to_owned(),
    })
}

/// A tensor of 32-bit integers.
fn integers(dims: &[i64], mut numbers: Vec<i32>) -> Result<Tensor, Failure> {
    let (address, bytes) = (numbers.as_mut_ptr().cast(), size_of_val(numbers.as_slice()));
    // SAFETY: moving a vector does not move its elements.
    unsafe { Tensor::around(types::INT32, dims, address, bytes, numbers) }
}

/// A tensor in memory that the runtime has allocated.
fn delivered(number: Option<c_int>, delivery: Delivery) -> Result<Tensor, Failure> {
    let (Some(number), Some(memory)) = (number, delivery.memory) else {
        return Err(Failure::internal("the operation returned no result"));
    };
    let dims: Vec<i64> = delivery.shape.iter().map(|&size| size as i64).collect();
    // SAFETY: the memory owns its bytes, which moving it does not move.
    unsafe { Tensor::around(number, &dims, memory.address(), memory.bytes(), memory) }
}

fn run_collective(call: &Arc<Call>, execution: &Execution<'_>) -> Result<(), Failure> {
    let mut output = 0;
    start(call, execution, 0)?.results(&mut |tensor, is_output| {
        if !is_output {
            execution.set_output(output, &tensor)?;
        }
        output += 1;
        Ok(())
    })
}

fn run_submit(call: &Arc<Call>, execution: &Execution<'_>) -> Result<(), Failure> {
    let pending = start(call, execution, 1)?;
    let token = keep(pending);
    let told = execution.allocate(0, None, &[]);
    told.and_then(|tensor| tensor.set_number(token))
}

fn run_wait(marks_step: bool, execution: &Execution<'_>) -> Result<(), Failure> {
    let token = |index| match execution.input(index)?.integers()?.as_slice() {
        &[token] => Ok(token),
        _ => Err(Failure::internal("a token is one number")),
    };
    // All of them before the first operation is taken, whose tensors would be lost with an error.
    let tokens: Vec<i64> = (0..execution.inputs())
        .map(token)
        .collect::<Result<_, _>>()?;
    let mut output = 0;
    let mut outcome = Ok(());
    for token in tokens {
        let one = match take(token) {
            None => Err(Failure::internal(
                "no operation is in flight for this token: the job was left, or the gradients were waited for twice",
            )),
            // It continues, like the operation whose wait was given up.
            Some(pending) if is_interrupted(&outcome) => {
                keep(pending);
                continue;
            }
            Some(pending) => pending.results(&mut |tensor, _| {
                execution.set_output(output, &tensor)?;
                output += 1;
                Ok(())
            }),
        };
        // All of them, even after a failure: the next step submits the same names.
        outcome = outcome.and(one);
    }
    if marks_step && let Some(context) = current() {
        context.mark_step();
    }
    outcome
}

fn is_interrupted(outcome: &Result<(), Failure>) -> bool {
    matches!(outcome, Err(failure) if matches!(failure.code, Code::Cancelled))
}

/// Flags of an operation: its tensors are a group; ranks outside of the process set keep theirs;
/// the caller holds the tensors.
const GROUP: i64 = 1;
const MEMBERS_ONLY: i64 = 2;
const HELD: i64 = 4;

/// Numbers of the queries.
const SIZE: i64 = 0;
const RANK: i64 = 1;
const LOCAL_RANK: i64 = 2;
const LOCAL_SIZE: i64 = 3;
const INCLUDED: i64 = 4;

/// Horovod's answers to the question whether a process is in a set.
const NOT_INITIALIZED: i32 = -1;
const UNKNOWN_SET: i32 = -2;
/// Rank in a set without this process.
const OUTSIDE: i32 = -1;

fn answer(what: i64, set_id: i64) -> Result<i32, Failure> {
    let context = current();
    let set = |context: &Context| {
        u32::try_from(set_id)
            .ok()
            .and_then(|id| context.process_set(id))
    };
    if what == INCLUDED {
        return Ok(match context.as_deref() {
            None => NOT_INITIALIZED,
            Some(context) => set(context).map_or(UNKNOWN_SET, |set| i32::from(set.included())),
        });
    }
    let context = context.ok_or_else(Failure::not_initialized)?;
    let own_set = || set(&context).ok_or_else(|| Failure::unknown_set(set_id));
    let number = match what {
        SIZE => own_set()?.size(),
        RANK => match own_set()?.rank() {
            Some(rank) => rank,
            None => return Ok(OUTSIDE),
        },
        LOCAL_RANK => context.local_rank(),
        LOCAL_SIZE => context.local_size(),
        _ => return Err(Failure::internal(format!("query {what} is unknown"))),
    };
    Ok(number as i32)
}

fn run_query(query: &Query, execution: &Execution<'_>) -> Result<(), Failure> {
    let answer = answer(query.what, query.set_id)?;
    execution.allocate(0, None, &[])?.set_number(answer)
}

/// Attributes of a query.
pub(super) struct Query {
    what: i64,
    set_id: i64,
}

fn read_call(construction: &Construction<'_>) -> Result<Arc<Call>, Failure> {
    let number = construction.integer(c"kind")?;
    let flags = construction.integer(c"flags")?;
    Ok(Arc::new(Call {
        kind: Kind::from_number(number)
            .ok_or_else(|| Failure::internal(format!("operation {number} is unknown")))?,
        op: construction.integer(c"op")?,
        prescale: f64::from_bits(construction.integer(c"prescale")? as u64),
        postscale: f64::from_bits(construction.integer(c"postscale")? as u64),
        root: construction.integer(c"root")?,
        set_id: construction.integer(c"process_set")?,
        is_group: flags & GROUP != 0,
        members_only: flags & MEMBERS_ONLY != 0,
        is_held: flags & HELD != 0,
        names: construction.strings(c"names")?,
        resolved: OnceLock::new(),
    }))
}

fn read_query(construction: &Construction<'_>) -> Result<Query, Failure> {
    Ok(Query {
        what: construction.integer(c"what")?,
        set_id: construction.integer(c"process_set")?,
    })
}

fn read_wait(construction: &Construction<'_>) -> Result<bool, Failure> {
    Ok(construction.integer(c"step")? != 0)
}

/// Runs `work`, whose panics must not reach TensorFlow.
fn guarded<R>(work: impl FnOnce() -> Result<R, Failure>) -> Result<R, Failure> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Failure::internal("a kernel of ronde has panicked")))
}

/// Creates a kernel's attributes, or returns null after a failure.
///
/// # Safety
/// `context` is the argument of a create function.
unsafe fn create<K>(
    context: *mut Opaque,
    read: fn(&Construction<'_>) -> Result<K, Failure>,
) -> *mut c_void {
    // SAFETY: the caller keeps the same contract.
    let construction = unsafe { Construction::new(context) };
    match guarded(|| read(&construction)) {
        Ok(kernel) => Box::into_raw(Box::new(kernel)).cast(),
        Err(failure) => {
            construction.fail(&failure);
            std::ptr::null_mut()
        }
    }
}

/// Runs a kernel.
///
/// # Safety
/// `kernel` is a result of [`create`] of the same type, and `context` the argument of a compute
/// function.
unsafe fn compute<K>(
    kernel: *mut c_void,
    context: *mut Opaque,
    run: impl FnOnce(&K, &Execution<'_>) -> Result<(), Failure>,
) {
    // SAFETY: the caller keeps the same contract; TensorFlow runs a kernel on several threads at
    // once, which only read it.
    let (kernel, execution) = unsafe { (kernel.cast::<K>().as_ref(), Execution::new(context)) };
    let outcome = match kernel {
        Some(kernel) => guarded(|| run(kernel, &execution)),
        None => Err(Failure::internal("the kernel was not constructed")),
    };
    if let Err(failure) = outcome {
        execution.fail(&failure);
    }
}

/// Drops a kernel.
///
/// # Safety
/// `kernel` is a result of [`create`] of the same type, and not used again.
unsafe fn delete<K>(kernel: *mut c_void) {
    if !kernel.is_null() {
        // SAFETY: the caller gives it up.
        drop(unsafe { Box::from_raw(kernel.cast::<K>()) });
    }
}

macro_rules! functions_for_tensorflow {
    ($($create:ident, $delete:ident: $kernel:ty = $read:ident;)*) => {$(
        /// # Safety
        /// Called by TensorFlow.
        pub(super) unsafe extern "C" fn $create(context: *mut Opaque) -> *mut c_void {
            // SAFETY: TensorFlow passes a construction in progress.
            unsafe { create(context, $read) }
        }

        /// # Safety
        /// Called by TensorFlow.
        pub(super) unsafe extern "C" fn $delete(kernel: *mut c_void) {
            // SAFETY: TensorFlow passes what the create function has returned, once.
            unsafe { delete::<$kernel>(kernel) }
        }
    )*};
    ($($compute:ident: $kernel:ty = $run:expr;)*) => {$(
        /// # Safety
        /// Called by TensorFlow.
        pub(super) unsafe extern "C" fn $compute(kernel: *mut c_void, context: *mut Opaque) {
            // SAFETY: TensorFlow passes what the create function has returned, and an execution in
            // progress.
            unsafe { compute::<$kernel>(kernel, context, $run) }
        }
    )*};
}

functions_for_tensorflow! {
    create_collective, delete_collective: Arc<Call> = read_call;
    create_wait, delete_wait: bool = read_wait;
    create_query, delete_query: Query = read_query;
}

functions_for_tensorflow! {
    compute_collective: Arc<Call> = run_collective;
    compute_submit: Arc<Call> = run_submit;
    compute_wait: bool = |step, execution| run_wait(*step, execution);
    compute_query: Query = run_query;
}
