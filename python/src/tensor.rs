//! Converts torch tensors to the address, element type and shape that the runtime needs. The
//! extension is not compiled against torch: everything is read from a tensor's attributes.

use std::ptr;

use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use ronde::{Device, Dtype, Memory};
use smallvec::SmallVec;

use crate::dlpack;

/// Objects of torch that the extension uses.
struct Torch {
    /// Element types, few and compared by address.
    dtypes: Vec<(Py<PyAny>, Dtype)>,
    /// Creates a tensor from a DLPack capsule.
    from_dlpack: Py<PyAny>,
    /// Returns the current stream of a CUDA device, as a number.
    stream_of: Py<PyAny>,
}

static TORCH: PyOnceLock<Torch> = PyOnceLock::new();

/// Registers torch, once: `dtypes` maps its element types to their names, `from_dlpack` creates a
/// tensor from a DLPack capsule, `stream_of` returns the current stream of a CUDA device by number.
#[pyfunction]
#[pyo3(signature = (dtypes, from_dlpack, stream_of, /))]
pub(crate) fn setup_torch(
    py: Python<'_>,
    dtypes: &Bound<'_, PyDict>,
    from_dlpack: Py<PyAny>,
    stream_of: Py<PyAny>,
) -> PyResult<()> {
    let known = dtypes.iter().map(|(dtype, name)| {
        let name: String = name.extract()?;
        let found = Dtype::ALL.into_iter().find(|dtype| dtype.name() == name);
        let found = found
            .ok_or_else(|| PyValueError::new_err(format!("no element type is called {name}")))?;
        Ok((dtype.unbind(), found))
    });
    let dtypes = known.collect::<PyResult<_>>()?;
    TORCH.get_or_init(py, || Torch {
        dtypes,
        from_dlpack,
        stream_of,
    });
    Ok(())
}

fn torch(py: Python<'_>) -> PyResult<&Torch> {
    let torch = TORCH.get(py);
    torch.ok_or_else(|| {
        PyTypeError::new_err("import ronde.torch before tensors are handed to ronde")
    })
}

/// Memory, element type and shape of a tensor.
pub(crate) struct View {
    pub(crate) address: *mut u8,
    pub(crate) dtype: Dtype,
    pub(crate) device: Device,
    pub(crate) shape: SmallVec<[usize; 4]>,
}

/// A tensor that an operation reads.
pub(crate) struct Input<'py> {
    pub(crate) view: View,
    /// Copy to read instead of the tensor, if the tensor's memory does not hold its values.
    pub(crate) copy: Option<Bound<'py, PyAny>>,
}

impl View {
    /// Checks a tensor that an operation writes to.
    ///
    /// # Errors
    /// TypeError for anything but a tensor; ValueError for a tensor that is not contiguous, is
    /// neither in host memory nor on a CUDA device, has an unsupported element type, or whose
    /// memory does not hold its values.
    pub(crate) fn of(tensor: &Bound<'_, PyAny>) -> PyResult<Self> {
        match Self::look(tensor) {
            Ok(Some((view, false))) => Ok(view),
            Ok(_) => Err(refusal(tensor, None)),
            Err(error) => Err(refusal(tensor, Some(error))),
        }
    }

    /// Checks a tensor that an operation reads, and writes the result to if `is_overwritten`.
    ///
    /// Memory that does not hold the values is resolved: a tensor with the negative bit is copied,
    /// and booleans other than 0 and 1 are replaced by 1, in a copy unless the tensor is
    /// overwritten anyway.
    ///
    /// # Errors
    /// As for [`of`](Self::of).
    #[inline]
    pub(crate) fn input<'py>(
        tensor: &Bound<'py, PyAny>,
        is_overwritten: bool,
    ) -> PyResult<Input<'py>> {
        match Self::look(tensor) {
            Ok(Some((view, false))) if view.dtype != Dtype::Bool => Ok(Input { view, copy: None }),
            Ok(Some((_, true))) => Self::of_negative(tensor),
            Ok(Some((view, _))) => view.of_truth_values(tensor, is_overwritten),
            Ok(None) => Err(refusal(tensor, None)),
            Err(error) => Err(refusal(tensor, Some(error))),
        }
    }

    /// Input for a tensor with the negative bit: a copy without it.
    #[cold]
    fn of_negative<'py>(tensor: &Bound<'py, PyAny>) -> PyResult<Input<'py>> {
        let tensor = tensor.call_method0(intern!(tensor.py(), "detach"))?;
        let copy = tensor.call_method0(intern!(tensor.py(), "resolve_neg"))?;
        Ok(Input {
            view: Self::of(&copy)?,
            copy: Some(copy),
        })
    }

    /// The view of a tensor, and whether its negative bit is set; None or an error if the tensor is
    /// refused.
    #[inline]
    fn look(tensor: &Bound<'_, PyAny>) -> PyResult<Option<(Self, bool)>> {
        // Called for every tensor of every step: it only checks, and `refusal` finds the reason.
        let py = tensor.py();
        let dtype = tensor.getattr(intern!(py, "dtype"))?;
        let mut known = torch(py)?.dtypes.iter();
        let Some((_, dtype)) = known.find(|(known, _)| known.is(&dtype)) else {
            return Ok(None);
        };
        let device = if tensor.getattr(intern!(py, "is_cpu"))?.is_truthy()? {
            Device::Cpu
        } else {
            match Self::on_gpu(tensor)? {
                Some(device) => device,
                None => return Ok(None),
            }
        };
        if !tensor
            .call_method0(intern!(py, "is_contiguous"))?
            .is_truthy()?
        {
            return Ok(None);
        }
        let is_negative = tensor.call_method0(intern!(py, "is_neg"))?.is_truthy()?;
        let shape = tensor.getattr(intern!(py, "shape"))?;
        let shape = shape.cast::<PyTuple>()?.iter_borrowed();
        let view = Self {
            address: Self::address(tensor)?,
            dtype: *dtype,
            device,
            shape: shape
                .map(|dimension| dimension.extract())
                .collect::<PyResult<_>>()?,
        };
        if view.address == nowhere() && !view.shape.contains(&0) {
            return Ok(None);
        }
        Ok(Some((view, is_negative)))
    }

    /// Input for this view of booleans: bytes other than 0 and 1 are replaced by 1.
    #[cold]
    fn of_truth_values<'py>(
        self,
        tensor: &Bound<'py, PyAny>,
        is_overwritten: bool,
    ) -> PyResult<Input<'py>> {
        let py = tensor.py();
        let plain = |view| Ok(Input { view, copy: None });
        if self.shape.contains(&0) {
            return plain(self);
        }
        let bytes = tensor.call_method1(intern!(py, "view"), (dtype_object(py, Dtype::U8)?,))?;
        // On a GPU the check would wait for the device, and normalizing costs little more.
        let is_known = self.device == Device::Cpu;
        if is_known && bytes.call_method0(intern!(py, "max"))?.extract::<u8>()? <= 1 {
            return plain(self);
        }
        if is_overwritten {
            bytes.call_method1(intern!(py, "ne_"), (0,))?;
            return plain(self);
        }
        let copy = bytes.call_method1(intern!(py, "ne"), (0,))?;
        Ok(Input {
            view: Self::of(&copy)?,
            copy: Some(copy),
        })
    }

    /// CUDA device of a tensor that is not in host memory, and the stream on which its elements
    /// are computed; None for other devices.
    fn on_gpu(tensor: &Bound<'_, PyAny>) -> PyResult<Option<Device>> {
        let py = tensor.py();
        if !tensor.getattr(intern!(py, "is_cuda"))?.is_truthy()? {
            return Ok(None);
        }
        let ordinal = tensor.call_method0(intern!(py, "get_device"))?.extract()?;
        let stream = current_stream(py, ordinal)?;
        Ok(Some(Device::Cuda { ordinal, stream }))
    }

    /// Current address of a tensor's elements; a fixed address if it has none.
    pub(crate) fn address(tensor: &Bound<'_, PyAny>) -> PyResult<*mut u8> {
        let address: usize = tensor
            .call_method0(intern!(tensor.py(), "data_ptr"))?
            .extract()?;
        Ok(match address {
            // A null address would be treated as a missing tensor.
            0 => nowhere(),
            _ => ptr::with_exposed_provenance_mut(address),
        })
    }

    /// Length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size_bytes()
    }
}

/// Address of tensors without elements.
fn nowhere() -> *mut u8 {
    ptr::dangling_mut::<u128>().cast()
}

/// The error for a tensor that is refused; `cause`: the exception of torch when its attributes were
/// read.
#[cold]
fn refusal(tensor: &Bound<'_, PyAny>, cause: Option<PyErr>) -> PyErr {
    let py = tensor.py();
    let reason = reason(tensor).and_then(|reason| match (reason, cause) {
        (Some(reason), _) => Ok(reason),
        (None, Some(cause)) if cause.is_instance_of::<PyException>(py) => Ok(
            PyValueError::new_err(format!("The tensor cannot be read: {}", cause.value(py))),
        ),
        (None, Some(cause)) => Err(cause), // an interrupt, for example
        (None, None) => Ok(PyValueError::new_err("The tensor cannot be read.")),
    });
    reason.unwrap_or_else(|error| error)
}

/// The reason for [`refusal`]; None if no reason is found.
fn reason(tensor: &Bound<'_, PyAny>) -> PyResult<Option<PyErr>> {
    let py = tensor.py();
    let module = py.import(intern!(py, "torch"))?;
    let is_true = |name: &str| {
        tensor
            .getattr(name)
            .and_then(|value| value.is_truthy())
            .unwrap_or(false)
    };
    let error = |text: String| Ok(Some(PyValueError::new_err(text)));
    if !tensor.is_instance(&module.getattr(intern!(py, "Tensor"))?)? {
        let kind = tensor.get_type().fully_qualified_name()?;
        return Ok(Some(PyTypeError::new_err(format!(
            "expected a torch.Tensor, not {kind}; torch.as_tensor(...) makes a tensor of numbers and arrays, and \
             allgather_object and broadcast_object take any object"
        ))));
    }
    let kind = || {
        tensor
            .call_method0(intern!(py, "type"))?
            .extract::<String>()
    };
    if is_true("is_nested") {
        return error(
            "Nested tensors are not supported: use its values, or torch.nested.to_padded_tensor"
                .to_owned(),
        );
    }
    let layout = tensor.getattr(intern!(py, "layout"))?;
    if !layout.is(&module.getattr(intern!(py, "strided"))?) {
        let instead = match is_true("is_sparse") {
            true => "use hvd.sparse_allreduce_async, or tensor.to_dense()",
            false => "use tensor.to_dense()",
        };
        let kind = kind().unwrap_or_else(|_| layout.to_string());
        return error(format!("Tensor type {kind} is not supported: {instead}"));
    }
    let dtype = tensor.getattr(intern!(py, "dtype"))?;
    if !torch(py)?.dtypes.iter().any(|(known, _)| known.is(&dtype)) {
        return error(format!("Tensor type {} is not supported.", kind()?));
    }
    if !is_true("is_cpu") && !is_true("is_cuda") {
        let device = tensor.getattr(intern!(py, "device"))?;
        return error(format!(
            "The tensor is on {device}; ronde reduces tensors in host memory and on CUDA devices: use tensor.cpu()"
        ));
    }
    if matches!(tensor.call_method0(intern!(py, "is_contiguous")), Ok(answer) if !answer.is_truthy()?)
    {
        return error("Tensor is required to be contiguous.".to_owned());
    }
    if matches!(tensor.call_method0(intern!(py, "is_neg")), Ok(answer) if answer.is_truthy()?) {
        return error("The output has the negative bit set: use tensor.resolve_neg()".to_owned());
    }
    let address = tensor.call_method0(intern!(py, "data_ptr"));
    if !matches!(
        address.and_then(|address| address.extract::<usize>()),
        Ok(1..)
    ) {
        let kind = tensor.get_type().fully_qualified_name()?;
        return error(format!(
            "The tensor, a {kind}, has no memory of its own (a fake, functional, batched or wrapped tensor, or one whose storage \
             was freed): use a plain tensor with its values"
        ));
    }
    Ok(None)
}

/// The torch.dtype of an element type.
fn dtype_object(py: Python<'_>, dtype: Dtype) -> PyResult<Bound<'_, PyAny>> {
    let found = torch(py)?.dtypes.iter().find(|(_, known)| *known == dtype);
    found
        .map(|(object, _)| object.bind(py).clone())
        .ok_or_else(|| PyTypeError::new_err(format!("torch has no {dtype}")))
}

/// The element type of a torch.dtype.
///
/// # Errors
/// For types that the runtime does not support.
pub(crate) fn dtype_of(dtype: &Bound<'_, PyAny>) -> PyResult<Dtype> {
    let known = torch(dtype.py())?.dtypes.iter();
    let found = known.into_iter().find(|(known, _)| known.is(dtype));
    found.map(|(_, dtype)| *dtype).ok_or_else(|| {
        PyValueError::new_err(format!(
            "{dtype} is not supported as the dtype in which elements are sent"
        ))
    })
}

/// Torch's current stream on a CUDA device.
pub(crate) fn current_stream(py: Python<'_>, ordinal: u32) -> PyResult<u64> {
    torch(py)?.stream_of.bind(py).call1((ordinal,))?.extract()
}

/// Creates a tensor in memory that the runtime has allocated.
pub(crate) fn tensor_of<'py>(
    py: Python<'py>,
    memory: Memory,
    shape: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    let torch = torch(py)?;
    let dtype = memory.dtype();
    let capsule = dlpack::capsule(py, memory, shape)?;
    let tensor = torch.from_dlpack.bind(py).call1((capsule,))?;
    if dtype != Dtype::Bool {
        return Ok(tensor);
    }
    // Booleans were passed as bytes.
    tensor.call_method1(intern!(py, "view"), (dtype_object(py, Dtype::Bool)?,))
}
