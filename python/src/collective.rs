//! Collective operations of kernels that run without Python: those of TensorFlow and JAX.
//!
//! A kernel describes its operation as a [`Call`] and its tensors as [`Operand`]s. [`submit`] never
//! blocks; [`complete`] waits for one tensor.

#![allow(unsafe_code)] // submits memory that a framework owns

use std::borrow::Cow;
use std::sync::OnceLock;

use ronde::internal::adasum;
use ronde::{Delivery, Device, Dtype, Error, Operation, RawHandle, RawOutput, RawTensor, ReduceOp};
use smallvec::SmallVec;

use crate::error::{NOT_INITIALIZED, is_callers_fault, message};
use crate::operation::{ADASUM, joined};
use crate::runtime::process_sets::unknown_message;
use crate::runtime::{Unavailable, next_unnamed, use_set, use_unnamed};

/// Kind of a collective operation, with the number that kernels have as an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Allreduce = 0,
    Allgather = 1,
    Broadcast = 2,
    Alltoall = 3,
    Reducescatter = 4,
    Join = 5,
    Barrier = 6,
}

impl Kind {
    pub(crate) fn from_number(number: i64) -> Option<Self> {
        let all = [
            Self::Allreduce,
            Self::Allgather,
            Self::Broadcast,
            Self::Alltoall,
            Self::Reducescatter,
            Self::Join,
            Self::Barrier,
        ];
        all.into_iter().find(|kind| *kind as i64 == number)
    }

    /// Whether the result has the shape of the tensor, and may overwrite it.
    pub(crate) fn keeps_shape(self) -> bool {
        matches!(self, Self::Allreduce | Self::Broadcast)
    }

    /// Whether elements are only moved, so that their type matters only by its size.
    pub(crate) fn only_moves(self) -> bool {
        matches!(self, Self::Allgather | Self::Broadcast | Self::Alltoall)
    }

    /// First part of the names of its tensors: alone, and in a group.
    fn prefix(self, is_group: bool) -> &'static str {
        match (self, is_group) {
            (Self::Allreduce, false) => "allreduce",
            (Self::Allreduce, true) => "grouped_allreduce",
            (Self::Allgather, false) => "allgather",
            (Self::Allgather, true) => "grouped_allgather",
            (Self::Broadcast, false) => "broadcast",
            (Self::Broadcast, true) => "grouped_broadcast",
            (Self::Alltoall, _) => "alltoall",
            (Self::Reducescatter, false) => "reducescatter",
            (Self::Reducescatter, true) => "grouped_reducescatter",
            (Self::Join, _) => "join",
            (Self::Barrier, _) => "barrier",
        }
    }
}

/// An operation on one or more tensors.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    /// Horovod's number of the reduction.
    pub(crate) op: i64,
    pub(crate) prescale: f64,
    pub(crate) postscale: f64,
    /// Rank of a broadcast's root in the job.
    pub(crate) root: i64,
    pub(crate) set_id: i64,
    /// Whether the tensors wait for one another.
    pub(crate) is_group: bool,
    /// Whether ranks outside of the process set call it too, and keep their tensors.
    pub(crate) members_only: bool,
    /// Whether the caller holds the tensors, so that no result can be written to their memory.
    pub(crate) is_held: bool,
    /// A name for each tensor, or the name of the group; none: the set's next numbers.
    pub(crate) names: Vec<String>,
    /// Names of the tensors, from the first submission on.
    pub(crate) resolved: OnceLock<Names>,
}

/// Names of an operation's tensors, and of their group.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    group: String,
    tensors: Vec<String>,
}

impl Names {
    fn of(call: &Call, count: usize, set_id: u32) -> Self {
        let prefix = call.kind.prefix(call.is_group);
        if !call.is_group && !call.names.is_empty() {
            return Self {
                group: String::new(),
                tensors: call.names.iter().map(|name| joined(prefix, name)).collect(),
            };
        }
        let group = match call.names.first() {
            Some(name) => joined(prefix, name),
            None => format!("{prefix}.{}", next_unnamed(set_id)),
        };
        let tensors = match (call.is_group, count) {
            (false, 1) => vec![group.clone()],
            _ => (1..=count)
                .map(|index| format!("{group}_{index}of{count}"))
                .collect(),
        };
        Self { group, tensors }
    }
}

/// A tensor of an operation.
pub(crate) struct Operand {
    pub(crate) dtype: Dtype,
    pub(crate) shape: SmallVec<[usize; 4]>,
    pub(crate) input: *const u8,
    /// Memory for the result; none: the runtime allocates it.
    pub(crate) output: Option<(*mut u8, usize)>,
    /// Alltoall: rows for each rank; empty: the same number for each.
    pub(crate) splits: Vec<usize>,
}

/// Length of a tensor in bytes; none if it does not fit into memory.
pub(crate) fn byte_count(dtype: Dtype, shape: &[usize]) -> Option<usize> {
    let elements = shape
        .iter()
        .try_fold(1usize, |product, &size| product.checked_mul(size))?;
    elements.checked_mul(dtype.size_bytes())
}

/// Why a kernel fails.
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
}

/// Status of a failed kernel, with the number that TensorFlow and XLA share.
#[derive(Clone, Copy)]
pub(crate) enum Code {
    /// A signal handler has raised an exception, which is kept for the front end.
    Cancelled = 1,
    /// The job has failed: a lost rank, or a context that has been shut down.
    Unknown = 2,
    /// The arguments are invalid on this rank.
    InvalidArgument = 3,
    /// The ranks differ, or the process is in no job.
    FailedPrecondition = 9,
    /// A mistake of the front end.
    Internal = 13,
}

impl Failure {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self {
            code: Code::InvalidArgument,
            message: message.into(),
        }
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self {
            code: Code::Internal,
            message: message.into(),
        }
    }

    pub(crate) fn not_initialized() -> Self {
        Self {
            code: Code::FailedPrecondition,
            message: NOT_INITIALIZED.to_owned(),
        }
    }

    pub(crate) fn unknown_set(id: i64) -> Self {
        Self::invalid(unknown_message(id as u32))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            error if is_callers_fault(error) => Code::InvalidArgument,
            Error::Negotiation(_) | Error::Argument(_) | Error::Limit(_) => {
                Code::FailedPrecondition
            }
            _ => Code::Unknown,
        };
        Self {
            code,
            message: message(&error),
        }
    }
}

impl From<Unavailable> for Failure {
    fn from(unavailable: Unavailable) -> Self {
        match unavailable {
            Unavailable::NotInitialized => Self::not_initialized(),
            Unavailable::UnknownSet(id) => Self::unknown_set(i64::from(id)),
            Unavailable::Refused(error) => error.into(),
        }
    }
}

/// Whether this rank is in the process set.
pub(crate) fn is_member(set_id: i64) -> Result<bool, Failure> {
    let set_id = u32::try_from(set_id).map_err(|_| Failure::unknown_set(set_id))?;
    Ok(use_set(set_id, |set| Ok(set.included()))?)
}

/// Submits an operation and returns a handle for each tensor, and one for a join or barrier.
///
/// # Errors
/// Arguments that this rank alone finds invalid; then nothing is submitted.
///
/// # Safety
/// Inputs and outputs have the stated type, shape and length, and stay allocated until their
/// operation has completed.
pub(crate) unsafe fn submit(call: &Call, operands: &[Operand]) -> Result<Vec<RawHandle>, Failure> {
    let set_id = u32::try_from(call.set_id).map_err(|_| Failure::unknown_set(call.set_id))?;
    match call.kind {
        Kind::Join => return Ok(vec![use_set(set_id, |set| set.start_join())?]),
        Kind::Barrier => return Ok(vec![use_set(set_id, |set| set.start_barrier())?]),
        _ => {}
    }
    let count = operands.len();
    let is_number = call.names.is_empty();
    let create = || Names::of(call, count, set_id);
    let names = match is_number {
        true => Cow::Owned(create()),
        false => match call.resolved.get_or_init(create) {
            names if names.tensors.len() == count => Cow::Borrowed(names),
            _ => Cow::Owned(create()),
        },
    };
    if names.tensors.len() != count {
        return Err(Failure::internal(format!(
            "{}: {} names for {count} tensors",
            call.kind.prefix(call.is_group),
            names.tensors.len()
        )));
    }
    let mut parts = Vec::with_capacity(count);
    for (operand, name) in operands.iter().zip(&names.tensors) {
        parts.push(part(call, operand, name)?);
    }
    let handles = use_set(set_id, |set| {
        // SAFETY: the caller's contract is that of these methods.
        unsafe {
            match parts.as_slice() {
                _ if call.is_group => set.submit_group(&names.group, &parts),
                [(operation, tensor)] => Ok(vec![set.submit(operation, tensor)?]),
                _ => set.submit_batch(&parts),
            }
        }
    })?;
    if is_number {
        use_unnamed(set_id);
    }
    Ok(handles)
}

/// Operation and tensor, as the runtime takes them.
fn part<'a>(
    call: &Call,
    operand: &'a Operand,
    name: &'a str,
) -> Result<(Operation<'a>, RawTensor<'a>), Failure> {
    let reduction = || {
        let op = u8::try_from(call.op).ok().and_then(ReduceOp::from_wire);
        op.ok_or_else(|| {
            Failure::invalid(format!(
                "{name}: op {} is not a reduction; use hvd.Average, hvd.Sum, hvd.Min, …",
                call.op
            ))
        })
    };
    let mut output = operand
        .output
        .map_or(RawOutput::Allocate, |(address, bytes)| RawOutput::Into {
            address,
            bytes,
        });
    let operation = match call.kind {
        Kind::Allreduce if is_adasum(call) => {
            if !matches!(
                operand.dtype,
                Dtype::F16 | Dtype::F32 | Dtype::F64 | Dtype::Bf16
            ) {
                return Err(Failure::invalid(format!(
                    "{name}: Adasum is not defined for {}",
                    operand.dtype
                )));
            }
            // Every rank gathers all tensors and combines them itself.
            output = RawOutput::Allocate;
            Operation::Allgather
        }
        Kind::Allreduce => Operation::Allreduce {
            op: reduction()?,
            prescale: call.prescale,
            postscale: call.postscale,
        },
        Kind::Reducescatter => match reduction()? {
            op @ (ReduceOp::Average | ReduceOp::Sum) => Operation::Reducescatter {
                op,
                prescale: call.prescale,
                postscale: call.postscale,
            },
            _ => {
                return Err(Failure::invalid(format!(
                    "{name}: Reducescatter only supports AVERAGE and SUM."
                )));
            }
        },
        Kind::Allgather => Operation::Allgather,
        Kind::Broadcast => Operation::Broadcast {
            root: usize::try_from(call.root).map_err(|_| {
                Failure::invalid(format!("{name}: invalid root rank {}", call.root))
            })?,
        },
        Kind::Alltoall => Operation::Alltoall {
            splits: &operand.splits,
        },
        Kind::Join | Kind::Barrier => {
            return Err(Failure::internal("join and barrier have no tensors"));
        }
    };
    let tensor = RawTensor {
        name,
        dtype: operand.dtype,
        wire_dtype: None,
        shape: &operand.shape,
        device: Device::Cpu,
        input: operand.input,
        output,
    };
    Ok((operation, tensor))
}

/// Whether the ranks' tensors are gathered and combined here; the tensor's shape then has a first
/// dimension of one row.
pub(crate) fn is_adasum(call: &Call) -> bool {
    call.kind == Kind::Allreduce && call.op == i64::from(ADASUM)
}

/// Waits for one tensor, and returns what the runtime has allocated for it. The result of Adasum
/// is written to `output`.
///
/// # Errors
/// The error of the operation.
///
/// # Safety
/// `output` is the memory that was submitted, still allocated.
pub(crate) unsafe fn complete(
    call: &Call,
    handle: &RawHandle,
    output: Option<(*mut u8, usize)>,
) -> Result<Delivery, Failure> {
    handle.wait()?;
    let mut delivery = handle.take_delivery().unwrap_or_default();
    if is_adasum(call)
        && let (Some(memory), Some(&ranks)) = (&mut delivery.memory, delivery.shape.first())
    {
        let scale = adasum::Scale {
            before: call.prescale,
            after: call.postscale,
        };
        adasum::combine(memory, ranks, scale);
        if let Some((to, bytes)) = output {
            let bytes = bytes.min(memory.bytes() / ranks.max(1));
            // SAFETY: the first of `ranks` tensors is as long as the output, which the caller
            // keeps.
            unsafe { std::ptr::copy_nonoverlapping(memory.address(), to, bytes) };
        }
        delivery.memory = None;
    }
    Ok(delivery)
}

/// Checks the splits of an alltoall of `rows` rows; errors use Horovod's words. Returns them with
/// their sum.
pub(crate) fn checked_splits(
    set_id: i64,
    splits: &[i64],
    rows: usize,
) -> Result<(Vec<usize>, usize), Failure> {
    let set_id = u32::try_from(set_id).map_err(|_| Failure::unknown_set(set_id))?;
    let ranks = use_set(set_id, |set| Ok(set.size()))?;
    if splits.len() != ranks {
        return Err(Failure::invalid(format!(
            "Number of entries in splits ({}) does not equal number of workers ({ranks}).",
            splits.len()
        )));
    }
    let counts: Result<Vec<usize>, _> =
        splits.iter().map(|&split| usize::try_from(split)).collect();
    let Ok(counts) = counts else {
        return Err(Failure::invalid(format!(
            "Splits {splits:?} must not be negative."
        )));
    };
    let sum = counts
        .iter()
        .try_fold(0usize, |sum, &split| sum.checked_add(split));
    match sum {
        Some(sum) if sum <= rows => Ok((counts, sum)),
        _ => Err(Failure::invalid(format!(
            "Sum of splits entries is greater than the first dimension of tensor ({rows})."
        ))),
    }
}
