//! Torch's tensors as the runtime takes them: an address, an element type and a shape. No torch is compiled against: what
//! there is to know of one comes from its attributes.

use std::ptr;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{IntoPyObjectExt, intern};
use ronde::{Device, Dtype, Memory};
use smallvec::SmallVec;

use crate::dlpack;

/// What there is to know of torch.
struct Torch {
    /// Its element types: few, and told apart by their addresses.
    dtypes: Vec<(Py<PyAny>, Dtype)>,
    /// Makes a tensor of a DLPack capsule.
    from_dlpack: Py<PyAny>,
    /// The stream, as a number, that is current on a CUDA device.
    stream_of: Py<PyAny>,
}

static TORCH: PyOnceLock<Torch> = PyOnceLock::new();

/// Tells of torch: `dtypes` from its element types to their names, what makes a tensor of a DLPack capsule, and what tells the
/// stream that is current on the CUDA device with a number. Once.
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
        let found =
            found.ok_or_else(|| PyValueError::new_err(format!("no element type is called {name}")))?;
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
    torch.ok_or_else(|| PyTypeError::new_err("import ronde.torch before tensors are handed to ronde"))
}

/// Where a tensor's elements lie, and what they are.
pub(crate) struct View {
    pub(crate) address: *mut u8,
    pub(crate) dtype: Dtype,
    pub(crate) device: Device,
    pub(crate) shape: SmallVec<[usize; 4]>,
}

impl View {
    /// Looks at a tensor.
    ///
    /// # Errors
    /// No tensor, not contiguous, neither in host memory nor on a CUDA device, of elements that nothing is defined for.
    pub(crate) fn of(tensor: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = tensor.py();
        let Ok(dtype) = tensor.getattr(intern!(py, "dtype")) else {
            let kind = tensor.get_type();
            return Err(PyTypeError::new_err(format!(
                "expected a torch.Tensor, not {kind}"
            )));
        };
        let mut known = torch(py)?.dtypes.iter();
        let Some((_, dtype)) = known.find(|(known, _)| known.is(&dtype)) else {
            let kind: String = tensor.call_method0(intern!(py, "type"))?.extract()?;
            return Err(PyValueError::new_err(format!(
                "Tensor type {kind} is not supported."
            )));
        };
        let device = if tensor.getattr(intern!(py, "is_cpu"))?.is_truthy()? {
            Device::Cpu
        } else {
            Self::on_gpu(tensor)?
        };
        if !tensor.call_method0(intern!(py, "is_contiguous"))?.is_truthy()? {
            return Err(PyValueError::new_err("Tensor is required to be contiguous."));
        }
        let shape = tensor.getattr(intern!(py, "shape"))?;
        let shape = shape.cast::<PyTuple>()?.iter_borrowed();
        Ok(Self {
            address: Self::address(tensor)?,
            dtype: *dtype,
            device,
            shape: shape
                .map(|dimension| dimension.extract())
                .collect::<PyResult<_>>()?,
        })
    }

    /// The CUDA device of a tensor that is not in host memory, and the stream on which its elements come about.
    fn on_gpu(tensor: &Bound<'_, PyAny>) -> PyResult<Device> {
        let py = tensor.py();
        if !tensor.getattr(intern!(py, "is_cuda"))?.is_truthy()? {
            let device = tensor.getattr(intern!(py, "device"))?;
            return Err(PyValueError::new_err(format!(
                "The tensor is on {device}; ronde reduces tensors in host memory and on CUDA devices: use tensor.cpu()"
            )));
        }
        let ordinal = tensor.call_method0(intern!(py, "get_device"))?.extract()?;
        let stream = current_stream(py, ordinal)?;
        Ok(Device::Cuda { ordinal, stream })
    }

    /// Where a tensor's elements lie now; somewhere, if it has none.
    pub(crate) fn address(tensor: &Bound<'_, PyAny>) -> PyResult<*mut u8> {
        let address: usize = tensor.call_method0(intern!(tensor.py(), "data_ptr"))?.extract()?;
        Ok(match address {
            // An address of nothing would be taken for a tensor that is not there.
            0 => ptr::dangling_mut::<u128>().cast(),
            _ => ptr::with_exposed_provenance_mut(address),
        })
    }

    /// Length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size_bytes()
    }
}

/// The element type that torch calls so.
///
/// # Errors
/// One that nothing is defined for.
pub(crate) fn dtype_of(dtype: &Bound<'_, PyAny>) -> PyResult<Dtype> {
    let known = torch(dtype.py())?.dtypes.iter();
    let found = known.into_iter().find(|(known, _)| known.is(dtype));
    found
        .map(|(_, dtype)| *dtype)
        .ok_or_else(|| PyValueError::new_err(format!("{dtype} is no type that elements can have on the way")))
}

/// The stream that is torch's current one on a CUDA device.
pub(crate) fn current_stream(py: Python<'_>, ordinal: u32) -> PyResult<u64> {
    torch(py)?.stream_of.bind(py).call1((ordinal,))?.extract()
}

/// A tensor of what the runtime has allocated.
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
    // It went as bytes.
    let truth = torch.dtypes.iter().find(|(_, known)| *known == Dtype::Bool);
    let truth = truth
        .map(|(dtype, _)| dtype.bind(py).clone())
        .into_bound_py_any(py)?;
    tensor.call_method1(intern!(py, "view"), (truth,))
}
