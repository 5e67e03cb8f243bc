//! Collective operations as Python functions; each returns a handle immediately.

#![allow(unsafe_code)] // submits memory that Python objects own

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use ronde::internal::adasum;
use ronde::{Device, Dtype, Operation, RawHandle, RawOutput, RawTensor, ReduceOp};
use smallvec::{SmallVec, smallvec};

use crate::collective;
use crate::error::{About, internal};
use crate::flight::{Flight, Held, Part, Yield, keep};
use crate::runtime::{next_unnamed, use_unnamed, with_set};
use crate::tensor::{Input, View, dtype_of};

/// Horovod's constant for Adasum, which does not reduce element by element.
pub(crate) const ADASUM: u8 = 2;

/// Reduction of a tensor's elements.
#[derive(Clone, Copy)]
struct How {
    op: u8,
    prescale: f64,
    postscale: f64,
    wire_dtype: Option<Dtype>,
}

impl How {
    fn reduce_op(self) -> PyResult<ReduceOp> {
        let op = ReduceOp::from_wire(self.op);
        op.ok_or_else(|| {
            PyValueError::new_err(format!(
                "op {} is not a reduction; use hvd.Average, hvd.Sum, hvd.Min, …",
                self.op
            ))
        })
    }
}

/// Reduces a tensor over the ranks into `output`, which may be the tensor itself. `wire_dtype`: the
/// torch.dtype in which its elements are sent, on a GPU.
#[pyfunction]
#[pyo3(signature = (tensor, output, name, op, prescale, postscale, set_id, wire_dtype=None, /))]
#[expect(clippy::too_many_arguments, reason = "the operation has as many")]
pub(crate) fn allreduce(
    tensor: &Bound<'_, PyAny>,
    output: &Bound<'_, PyAny>,
    name: Option<&str>,
    op: u8,
    prescale: f64,
    postscale: f64,
    set_id: u32,
    wire_dtype: Option<&Bound<'_, PyAny>>,
) -> PyResult<u64> {
    let how = How {
        op,
        prescale,
        postscale,
        wire_dtype: wire_dtype.map(dtype_of).transpose()?,
    };
    let name = Name::new("allreduce", name, set_id);
    let work = Pair::new(tensor, output).and_then(|pair| pair.allreduce(how));
    submit(tensor.py(), set_id, work, &name)
}

/// Reduces a group of tensors; `wire_dtypes` has a torch.dtype or None for each.
#[pyfunction]
#[pyo3(signature = (tensors, outputs, name, op, prescale, postscale, set_id, wire_dtypes=None, /))]
#[expect(clippy::too_many_arguments, reason = "the operation has as many")]
pub(crate) fn grouped_allreduce(
    py: Python<'_>,
    tensors: Vec<Bound<'_, PyAny>>,
    outputs: Vec<Bound<'_, PyAny>>,
    name: Option<&str>,
    op: u8,
    prescale: f64,
    postscale: f64,
    set_id: u32,
    wire_dtypes: Option<Vec<Option<Bound<'_, PyAny>>>>,
) -> PyResult<u64> {
    let how = |index: usize| {
        let wire_dtype = wire_dtypes
            .as_ref()
            .and_then(|all| all.get(index)?.as_ref());
        Ok::<How, PyErr>(How {
            op,
            prescale,
            postscale,
            wire_dtype: wire_dtype.map(dtype_of).transpose()?,
        })
    };
    if tensors.len() != outputs.len() {
        return Err(PyValueError::new_err(
            "the numbers of outputs and tensors differ",
        ));
    }
    let pairs = tensors
        .iter()
        .zip(&outputs)
        .enumerate()
        .map(|(index, (tensor, output))| Pair::new(tensor, output)?.allreduce(how(index)?));
    submit_group(
        py,
        set_id,
        pairs,
        &Name::new("grouped_allreduce", name, set_id),
    )
}

/// Concatenates the rows of all ranks.
#[pyfunction]
#[pyo3(signature = (tensor, name, set_id, /))]
pub(crate) fn allgather(
    tensor: &Bound<'_, PyAny>,
    name: Option<&str>,
    set_id: u32,
) -> PyResult<u64> {
    let work = Work::allocating(tensor, Operation::Allgather, Yield::Allocated);
    submit(
        tensor.py(),
        set_id,
        work,
        &Name::new("allgather", name, set_id),
    )
}

/// Gathers a group of tensors.
#[pyfunction]
#[pyo3(signature = (tensors, name, set_id, /))]
pub(crate) fn grouped_allgather(
    py: Python<'_>,
    tensors: Vec<Bound<'_, PyAny>>,
    name: Option<&str>,
    set_id: u32,
) -> PyResult<u64> {
    let works = tensors
        .iter()
        .map(|tensor| Work::allocating(tensor, Operation::Allgather, Yield::Allocated));
    submit_group(
        py,
        set_id,
        works,
        &Name::new("grouped_allgather", name, set_id),
    )
}

/// Copies the tensor of rank `root` of the job into `output`, which may be the tensor itself.
#[pyfunction]
#[pyo3(signature = (tensor, output, root, name, set_id, /))]
pub(crate) fn broadcast(
    tensor: &Bound<'_, PyAny>,
    output: &Bound<'_, PyAny>,
    root: i64,
    name: Option<&str>,
    set_id: u32,
) -> PyResult<u64> {
    let root = usize::try_from(root)
        .map_err(|_| PyValueError::new_err(format!("invalid root rank {root}")))?;
    let work = Pair::new(tensor, output).map(|pair| pair.into(Operation::Broadcast { root }));
    submit(
        tensor.py(),
        set_id,
        work,
        &Name::new("broadcast", name, set_id),
    )
}

/// Sends `splits[r]` rows to the set's r-th rank; without splits, the same number to each.
#[pyfunction]
#[pyo3(signature = (tensor, splits, name, set_id, /))]
pub(crate) fn alltoall(
    tensor: &Bound<'_, PyAny>,
    splits: Option<Vec<i64>>,
    name: Option<&str>,
    set_id: u32,
) -> PyResult<u64> {
    let py = tensor.py();
    let name = Name::new("alltoall", name, set_id);
    let Input { mut view, copy } =
        View::input(tensor, false).map_err(|error| name.told(py, error, None))?;
    let splits = match splits {
        Some(splits) => {
            let splits = checked_splits(py, &splits, &view, set_id)?;
            // Rows beyond the splits are not sent. The runtime reports a scalar, which has none.
            if let Some(rows) = view.shape.first_mut() {
                *rows = splits.iter().sum();
            }
            splits
        }
        None => Vec::new(),
    };
    let work = Work::viewed(
        copy.as_ref().unwrap_or(tensor),
        view,
        Operation::Alltoall { splits: &splits },
        Yield::Exchanged,
    );
    submit(py, set_id, Ok(work), &name)
}

/// Reduces a tensor over the ranks; returns this rank's share of the rows.
#[pyfunction]
#[pyo3(signature = (tensor, name, op, prescale, postscale, set_id, /))]
pub(crate) fn reducescatter(
    tensor: &Bound<'_, PyAny>,
    name: Option<&str>,
    op: u8,
    prescale: f64,
    postscale: f64,
    set_id: u32,
) -> PyResult<u64> {
    let work = scattered(
        tensor,
        How {
            op,
            prescale,
            postscale,
            wire_dtype: None,
        },
    );
    submit(
        tensor.py(),
        set_id,
        work,
        &Name::new("reducescatter", name, set_id),
    )
}

/// Reduces and scatters a group of tensors.
#[pyfunction]
#[pyo3(signature = (tensors, name, op, prescale, postscale, set_id, /))]
pub(crate) fn grouped_reducescatter(
    py: Python<'_>,
    tensors: Vec<Bound<'_, PyAny>>,
    name: Option<&str>,
    op: u8,
    prescale: f64,
    postscale: f64,
    set_id: u32,
) -> PyResult<u64> {
    let how = How {
        op,
        prescale,
        postscale,
        wire_dtype: None,
    };
    let works = tensors.iter().map(|tensor| scattered(tensor, how));
    submit_group(
        py,
        set_id,
        works,
        &Name::new("grouped_reducescatter", name, set_id),
    )
}

fn scattered<'a>(tensor: &Bound<'_, PyAny>, how: How) -> PyResult<Work<'a>> {
    let op = match ReduceOp::from_wire(how.op) {
        Some(op @ (ReduceOp::Average | ReduceOp::Sum)) => op,
        _ => {
            let message = "Reducescatter only supports AVERAGE and SUM.";
            return Err(internal(tensor.py(), message, About::default()));
        }
    };
    let operation = Operation::Reducescatter {
        op,
        prescale: how.prescale,
        postscale: how.postscale,
    };
    let work = Work::allocating(tensor, operation, Yield::Allocated)?;
    if work.view.shape.is_empty() {
        return Err(PyValueError::new_err(
            "Reducescatter does not support scalar inputs.",
        ));
    }
    Ok(work)
}

/// One tensor and its operation.
struct Work<'a> {
    view: View,
    operation: Operation<'a>,
    output: RawOutput,
    wire_dtype: Option<Dtype>,
    input: Held,
    yields: Yield,
    /// Copied to [`Part::copied_to`].
    copied_to: Option<Py<PyAny>>,
}

impl<'a> Work<'a> {
    /// Operation whose result is in memory that the runtime allocates.
    fn allocating(
        tensor: &Bound<'_, PyAny>,
        operation: Operation<'a>,
        yields: Yield,
    ) -> PyResult<Self> {
        let Input { view, copy } = View::input(tensor, false)?;
        Ok(Self::viewed(
            copy.as_ref().unwrap_or(tensor),
            view,
            operation,
            yields,
        ))
    }

    /// Like [`allocating`](Self::allocating), for a tensor that was checked already.
    fn viewed(
        tensor: &Bound<'_, PyAny>,
        view: View,
        operation: Operation<'a>,
        yields: Yield,
    ) -> Self {
        Self {
            input: Held::new(tensor, &view),
            view,
            operation,
            output: RawOutput::Allocate,
            wire_dtype: None,
            yields,
            copied_to: None,
        }
    }

    fn raw<'n>(&'n self, name: &'n str) -> RawTensor<'n> {
        RawTensor {
            name,
            dtype: self.view.dtype,
            wire_dtype: self.wire_dtype,
            shape: &self.view.shape,
            device: self.view.device,
            input: self.view.address,
            output: self.output,
        }
    }

    fn part(self, handle: RawHandle) -> Part {
        Part {
            handle,
            device: self.view.device,
            input: self.input,
            yields: self.yields,
            copied_to: self.copied_to,
        }
    }
}

/// A tensor and the output of the same size.
struct Pair {
    view: View,
    input: Held,
    /// Output tensor, if it is not the tensor itself.
    output: Option<Held>,
    to: *mut u8,
    /// Copied to [`Part::copied_to`].
    copied_to: Option<Py<PyAny>>,
}

impl Pair {
    #[inline]
    fn new(tensor: &Bound<'_, PyAny>, output: &Bound<'_, PyAny>) -> PyResult<Self> {
        let is_in_place = output.is(tensor);
        let Input { view, copy } = View::input(tensor, is_in_place)?;
        let copied_to = (is_in_place && copy.is_some()).then(|| tensor.clone().unbind());
        let (output, to) = if is_in_place {
            (None, view.address)
        } else {
            let to = View::of(output)?;
            if (to.dtype, to.bytes()) != (view.dtype, view.bytes())
                || !same_device(to.device, view.device)
            {
                return Err(PyValueError::new_err(
                    "the output differs from the tensor in dtype, size or device",
                ));
            }
            (Some(Held::new(output, &to)), to.address)
        };
        Ok(Self {
            input: Held::new(copy.as_ref().unwrap_or(tensor), &view),
            view,
            output,
            to,
            copied_to,
        })
    }

    fn into<'a>(self, operation: Operation<'a>) -> Work<'a> {
        Work {
            output: RawOutput::Into {
                address: self.to,
                bytes: self.view.bytes(),
            },
            view: self.view,
            operation,
            wire_dtype: None,
            input: self.input,
            yields: self.output.map_or(Yield::Input, Yield::Given),
            copied_to: self.copied_to,
        }
    }

    fn allreduce<'a>(mut self, how: How) -> PyResult<Work<'a>> {
        if how.op != ADASUM {
            let op = how.reduce_op()?;
            let work = self.into(Operation::Allreduce {
                op,
                prescale: how.prescale,
                postscale: how.postscale,
            });
            return Ok(Work {
                wire_dtype: how.wire_dtype,
                ..work
            });
        }
        if !matches!(
            self.view.dtype,
            Dtype::F16 | Dtype::F32 | Dtype::F64 | Dtype::Bf16
        ) {
            return Err(PyValueError::new_err(format!(
                "Adasum is not defined for {}.",
                self.view.dtype
            )));
        }
        if self.view.device != Device::Cpu {
            return Err(PyValueError::new_err(
                "Adasum is computed in host memory: use tensor.cpu(), or another op for tensors on GPUs",
            ));
        }
        // Adasum depends on whole tensors: every rank gathers all of them and computes the same
        // result.
        self.view.shape.insert(0, 1); // the shape must be equal on all ranks
        let scale = adasum::Scale {
            before: how.prescale,
            after: how.postscale,
        };
        Ok(Work {
            view: self.view,
            operation: Operation::Allgather,
            output: RawOutput::Allocate,
            wire_dtype: None,
            input: self.input,
            yields: Yield::Adasum(self.output, scale),
            copied_to: self.copied_to,
        })
    }
}

/// Horovod's name of a tensor, as the runtime gets it.
struct Name {
    text: String,
    /// Whether it is the next number of the process set.
    is_number: bool,
}

impl Name {
    fn new(operation: &str, name: Option<&str>, set_id: u32) -> Self {
        let text = match name {
            Some(name) => joined(operation, name),
            None => format!("{operation}.{}", next_unnamed(set_id)),
        };
        Self {
            text,
            is_number: name.is_none(),
        }
    }

    /// Adds the tensor's name to the message of an error and sets its attribute `tensor`. `place`:
    /// the tensor's index in a group, and the size of the group.
    #[cold]
    fn told(&self, py: Python<'_>, error: PyErr, place: Option<(usize, usize)>) -> PyErr {
        let class = error.get_type(py);
        if !class.is(py.get_type::<PyValueError>()) && !class.is(py.get_type::<PyTypeError>()) {
            return error;
        }
        let place = place.map_or_else(String::new, |(index, count)| {
            format!("tensor {} of {count}: ", index + 1)
        });
        let told = PyErr::from_type(class, format!("{}: {place}{}", self.text, error.value(py)));
        match told.value(py).setattr(intern!(py, "tensor"), &self.text) {
            Ok(()) => told,
            Err(error) => error,
        }
    }

    /// Marks the name as used. If an operation was refused on this rank alone, the next operation
    /// gets its number, as the other ranks may wait for it.
    fn is_used(&self, set_id: u32) {
        if self.is_number {
            use_unnamed(set_id);
        }
    }
}

/// `<operation>.<name>`; faster than `format!`, since it runs for every tensor of every step.
pub(crate) fn joined(operation: &str, name: &str) -> String {
    let mut text = String::with_capacity(operation.len() + 1 + name.len());
    text.push_str(operation);
    text.push('.');
    text.push_str(name);
    text
}

fn submit(py: Python<'_>, set_id: u32, work: PyResult<Work<'_>>, name: &Name) -> PyResult<u64> {
    let work = work.map_err(|error| name.told(py, error, None))?;
    let handle = with_set(py, set_id, |set| {
        // SAFETY: the tensors are contiguous and in host memory, and have the type and shape of the
        // view; `Held` keeps their memory until the operation has completed. The caller must not
        // write to them until then, as with Horovod: elements may be wrong, but no other memory is
        // accessed.
        unsafe { set.submit(&work.operation, &work.raw(&name.text)) }
    })?;
    name.is_used(set_id);
    Ok(keep(Flight {
        parts: smallvec![work.part(handle)],
        is_group: false,
    }))
}

fn submit_group<'a>(
    py: Python<'_>,
    set_id: u32,
    works: impl ExactSizeIterator<Item = PyResult<Work<'a>>>,
    name: &Name,
) -> PyResult<u64> {
    let (count, text) = (works.len(), &name.text);
    let mut checked = Vec::with_capacity(count);
    for (index, work) in works.enumerate() {
        match work {
            Ok(work) => checked.push(work),
            Err(error) => return Err(name.told(py, error, Some((index, count)))),
        }
    }
    let works = checked;
    let names: Vec<String> = (1..=count)
        .map(|index| format!("{text}_{index}of{count}"))
        .collect();
    let handles = with_set(py, set_id, |set| {
        let parts = works
            .iter()
            .zip(&names)
            .map(|(work, name)| (work.operation, work.raw(name)));
        let parts: Vec<_> = parts.collect();
        // SAFETY: as for one tensor.
        unsafe { set.submit_group(text, &parts) }
    })?;
    name.is_used(set_id);
    let parts: SmallVec<[Part; 1]> = works
        .into_iter()
        .zip(handles)
        .map(|(work, handle)| work.part(handle))
        .collect();
    Ok(keep(Flight {
        parts,
        is_group: true,
    }))
}

/// Whether both are in host memory or on one GPU.
fn same_device(one: Device, other: Device) -> bool {
    let ordinal = |device| match device {
        Device::Cpu => None,
        Device::Cuda { ordinal, .. } => Some(ordinal),
    };
    ordinal(one) == ordinal(other)
}

/// Checks the splits of an alltoall; errors use Horovod's words.
fn checked_splits(
    py: Python<'_>,
    splits: &[i64],
    view: &View,
    set_id: u32,
) -> PyResult<Vec<usize>> {
    let Some(&rows) = view.shape.first() else {
        return Ok(Vec::new()); // the runtime reports the error
    };
    let checked = collective::checked_splits(i64::from(set_id), splits, rows);
    let (counts, _) = checked.map_err(|failure| match failure.code {
        collective::Code::InvalidArgument => PyValueError::new_err(failure.message),
        _ => internal(py, &failure.message, About::default()),
    })?;
    Ok(counts)
}

/// Name of a tensor that is allreduced in every step, converted once to the runtime's form.
#[pyclass(frozen, module = "ronde._ronde")]
pub(crate) struct AllreduceName {
    text: String,
}

#[pymethods]
impl AllreduceName {
    #[new]
    #[pyo3(signature = (name, /))]
    fn new(name: &str) -> Self {
        Self {
            text: joined("allreduce", name),
        }
    }
}

/// Reduces tensors over the ranks, each in place and under its own name, as `allreduce` does;
/// submits all or none of them. Unlike the tensors of a group they do not wait for one another.
/// Returns one handle for all.
#[pyfunction]
#[pyo3(signature = (tensors, names, op, prescale, postscale, set_id, /))]
pub(crate) fn allreduce_batch(
    py: Python<'_>,
    tensors: Vec<Bound<'_, PyAny>>,
    names: Vec<Bound<'_, AllreduceName>>,
    op: u8,
    prescale: f64,
    postscale: f64,
    set_id: u32,
) -> PyResult<u64> {
    if tensors.len() != names.len() {
        return Err(PyValueError::new_err("as many names as tensors are needed"));
    }
    let how = How {
        op,
        prescale,
        postscale,
        wire_dtype: None,
    };
    let works = tensors.iter().zip(&names).map(|(tensor, name)| {
        let work = Pair::new(tensor, tensor).and_then(|pair| pair.allreduce(how));
        work.map_err(|error| of_tensor(py, error, &name.get().text))
    });
    let works = works.collect::<PyResult<Vec<Work<'_>>>>()?;
    let handles = with_set(py, set_id, |set| {
        let parts = works
            .iter()
            .zip(&names)
            .map(|(work, name)| (work.operation, work.raw(&name.get().text)));
        let parts: Vec<_> = parts.collect();
        // SAFETY: as for one tensor.
        unsafe { set.submit_batch(&parts) }
    })?;
    let parts = works
        .into_iter()
        .zip(handles)
        .map(|(work, handle)| work.part(handle));
    Ok(keep(Flight {
        parts: parts.collect(),
        is_group: true,
    }))
}

/// Adds the name of the tensor to the message of an exception.
fn of_tensor(py: Python<'_>, error: PyErr, name: &str) -> PyErr {
    let message = format!("{name}: {}", error.value(py));
    match error.get_type(py).call1((message,)) {
        Ok(told) => PyErr::from_value(told),
        Err(_) => error,
    }
}
