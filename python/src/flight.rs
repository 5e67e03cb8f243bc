//! What is in flight: operations by their handles, with the tensors that they read and write.
//!
//! A tensor is let go of only here, under the GIL, when its operation is over; whatever its owner does meanwhile, its
//! memory stays. (But `resize_` and `set_` give a tensor other memory: that is found out when it is reaped, and is too late.)

#![allow(unsafe_code)] // copies memory that Python objects own

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyList};
use ronde::internal::adasum;
use ronde::{Delivery, Device, RawHandle};
use smallvec::SmallVec;

use crate::error::raise;
use crate::tensor::{View, current_stream, tensor_of};

/// How long a wait may keep a signal waiting.
pub(crate) const SLICE: Duration = Duration::from_millis(100);

/// A tensor that an operation uses.
pub(crate) struct Held {
    tensor: Py<PyAny>,
    address: usize,
}

impl Held {
    pub(crate) fn new(tensor: &Bound<'_, PyAny>, view: &View) -> Self {
        Self {
            tensor: tensor.clone().unbind(),
            address: view.address.addr(),
        }
    }

    /// The tensor, whose memory must be where it was.
    fn release(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let tensor = self.tensor.into_bound(py);
        if View::address(&tensor)?.addr() == self.address {
            return Ok(tensor);
        }
        Err(PyRuntimeError::new_err(
            "a tensor was given other memory (resize_, set_) while ronde worked on it: its contents are lost; wait for the \
             handle first",
        ))
    }
}

/// What an operation gives back.
pub(crate) enum Yield {
    /// The input itself, which it has overwritten.
    Input,
    /// A tensor that it has written to.
    Given(Held),
    /// What the runtime has allocated.
    Allocated,
    /// The same, and how many rows came from each rank, as a tensor of 32-bit integers.
    Exchanged,
    /// A tensor that is still to be computed from all ranks', into this one or the input.
    Adasum(Option<Held>, adasum::Scale),
}

/// One tensor's operation.
pub(crate) struct Part {
    pub(crate) handle: RawHandle,
    pub(crate) device: Device,
    pub(crate) input: Held,
    pub(crate) yields: Yield,
    /// The tensor that the result is copied to: the input is a copy of it, and it is to be
    /// overwritten.
    pub(crate) copied_to: Option<Py<PyAny>>,
}

/// What one handle stands for.
pub(crate) struct Flight {
    pub(crate) parts: SmallVec<[Part; 1]>,
    /// Whether it gives a list back.
    pub(crate) is_group: bool,
}

#[derive(Default)]
struct Flights {
    /// Handles given so far.
    count: u64,
    by_handle: HashMap<u64, Flight, BuildHasherDefault<HandleHasher>>,
}

/// Hashes handles, which are counted: they differ in their low bits, and the map looks at the high ones too.
#[derive(Default)]
struct HandleHasher(u64);

impl Hasher for HandleHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, handle: u64) {
        // Fibonacci hashing (Knuth): the golden ratio spreads consecutive numbers, and the rotation their high bits.
        self.0 = (self.0 ^ handle)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(32);
    }
}

static FLIGHTS: Mutex<Option<Flights>> = Mutex::new(None);

fn flights<R>(use_them: impl FnOnce(&mut Flights) -> R) -> R {
    let mut flights = FLIGHTS.lock().unwrap_or_else(PoisonError::into_inner);
    use_them(flights.get_or_insert_default())
}

/// Keeps `flight` until it is reaped by its handle.
pub(crate) fn keep(flight: Flight) -> u64 {
    flights(|flights| {
        flights.count += 1;
        flights.by_handle.insert(flights.count, flight);
        flights.count
    })
}

/// Lets go of what nobody has waited for: nothing is in flight any more, as there is no context.
pub(crate) fn forget_all() {
    let forgotten = flights(|flights| std::mem::take(&mut flights.by_handle));
    drop(forgotten); // which may run Python code, so not under the lock
}

/// Whether the operation of this handle is over.
#[pyfunction]
#[pyo3(signature = (handle))]
pub(crate) fn poll(handle: u64) -> PyResult<bool> {
    let is_done = flights(|flights| {
        let flight = flights.by_handle.get(&handle)?;
        Some(flight.parts.iter().all(|part| part.handle.is_done()))
    });
    is_done
        .ok_or_else(|| PyValueError::new_err(format!("Handle {handle} was not created or has been cleared.")))
}

/// Waits for the operation of this handle, asleep, and gives its result; the handle is used up.
///
/// That is a tensor, a list of them for a group, and for alltoall a pair: the tensor, and the rows that came from each rank
/// (int32). None for a handle that is not known, or no more. Raises what has gone wrong, as HorovodInternalError.
/// KeyboardInterrupt leaves the handle as it is.
#[pyfunction]
#[pyo3(signature = (handle))]
pub(crate) fn synchronize(py: Python<'_>, handle: u64) -> PyResult<Option<Bound<'_, PyAny>>> {
    let Some(flight) = flights(|flights| flights.by_handle.remove(&handle)) else {
        return Ok(None);
    };
    if let Err(interrupted) = flight.parts.iter().try_for_each(|part| wait(py, &part.handle)) {
        // It is in flight all the same.
        flights(|flights| flights.by_handle.insert(handle, flight));
        return Err(interrupted);
    }
    flight.reap(py).map(Some)
}

/// Waits without the GIL, in slices.
///
/// # Errors
/// What a signal's handler raises.
pub(crate) fn wait(py: Python<'_>, handle: &RawHandle) -> PyResult<()> {
    if handle.is_done() {
        return Ok(());
    }
    while py.detach(|| handle.wait_timeout(SLICE)).is_none() {
        py.check_signals()?;
    }
    Ok(())
}

impl Flight {
    /// The result, when all is over.
    fn reap(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let is_group = self.is_group;
        // All of them: every tensor is let go of, whatever has become of the others.
        let mut results = self
            .parts
            .into_iter()
            .map(|part| part.reap(py))
            .collect::<SmallVec<[_; 1]>>();
        if is_group {
            let results = results.into_iter().collect::<PyResult<Vec<_>>>()?;
            return PyList::new(py, results)?.into_bound_py_any(py);
        }
        results.pop().unwrap_or_else(|| py.None().into_bound_py_any(py))
    }
}

impl Part {
    fn reap(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let outcome = self.handle.wait(); // known
        let input = self.input.release(py);
        outcome.map_err(|error| raise(py, &error))?;
        if self.handle.is_ahead() {
            put_before(py, &self.handle, self.device)?;
        }
        let copied_to = self.copied_to.map(|tensor| tensor.into_bound(py));
        let result = Self::result(py, &self.handle, input?, self.yields)?;
        match copied_to {
            None => Ok(result),
            Some(tensor) => {
                // Detached, as leaves that require a gradient are overwritten too.
                let elements = tensor.call_method0(intern!(py, "detach"))?;
                elements.call_method1(intern!(py, "copy_"), (result,))?;
                Ok(tensor)
            }
        }
    }

    /// The result of an operation that has succeeded.
    fn result<'py>(
        py: Python<'py>,
        handle: &RawHandle,
        input: Bound<'py, PyAny>,
        yields: Yield,
    ) -> PyResult<Bound<'py, PyAny>> {
        let delivery = |handle: &RawHandle| handle.take_delivery().unwrap_or_default();
        match yields {
            Yield::Input => Ok(input),
            Yield::Given(output) => output.release(py),
            Yield::Allocated => allocated(py, delivery(handle)),
            Yield::Exchanged => {
                let mut delivery = delivery(handle);
                let splits = std::mem::take(&mut delivery.splits);
                let torch = py.import(intern!(py, "torch"))?;
                let dtype = [("dtype", torch.getattr(intern!(py, "int32"))?)].into_py_dict(py)?;
                let splits = torch.call_method(intern!(py, "tensor"), (splits,), Some(&dtype))?;
                (allocated(py, delivery)?, splits).into_bound_py_any(py)
            }
            Yield::Adasum(output, scale) => {
                let output = output.map_or(Ok(input), |output| output.release(py))?;
                let to = View::of(&output)?;
                let Delivery { memory, shape, .. } = delivery(handle);
                if let (Some(mut memory), Some(&ranks)) = (memory, shape.first()) {
                    py.detach(|| adasum::combine(&mut memory, ranks, scale));
                    let bytes = (memory.bytes() / ranks.max(1)).min(to.bytes());
                    // SAFETY: the first of as many tensors as there are ranks, into one that is contiguous and as long now.
                    unsafe { std::ptr::copy_nonoverlapping(memory.address(), to.address, bytes) };
                }
                Ok(output)
            }
        }
    }
}

/// Has the streams that may touch the tensor next wait for the result: the current one, and that to whose memory it goes back
/// where it was submitted on another.
fn put_before(py: Python<'_>, handle: &RawHandle, device: Device) -> PyResult<()> {
    let Device::Cuda { ordinal, stream } = device else {
        return Ok(());
    };
    let current = current_stream(py, ordinal)?;
    let followed = handle.put_before(current).and_then(|()| match stream {
        stream if stream == current => Ok(()),
        stream => handle.put_before(stream),
    });
    followed.map_err(|error| raise(py, &error))
}

fn allocated<'py>(py: Python<'py>, delivery: Delivery) -> PyResult<Bound<'py, PyAny>> {
    match delivery.memory {
        Some(memory) => tensor_of(py, memory, &delivery.shape),
        None => Err(PyRuntimeError::new_err("the operation has brought nothing")),
    }
}
