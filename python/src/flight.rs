//! Operations in flight, by handle, with the tensors that they read and write.
//!
//! References to tensors are released only here, under the GIL, after their operation has
//! completed. Until then a tensor's memory stays allocated. The exceptions are `resize_` and
//! `set_`, which replace a tensor's memory: this is detected when the operation is completed, which
//! is too late.

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

/// Longest time for which a wait delays a signal handler.
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

    /// Returns the tensor, and checks that its memory has not moved.
    fn release(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let tensor = self.tensor.into_bound(py);
        if View::address(&tensor)?.addr() == self.address {
            return Ok(tensor);
        }
        Err(PyRuntimeError::new_err(
            "the memory of a tensor was replaced (resize_, set_) during an operation: its contents are lost; wait for the \
             handle first",
        ))
    }
}

/// Result of an operation.
pub(crate) enum Yield {
    /// The input, which was overwritten.
    Input,
    /// The output tensor that the caller passed.
    Given(Held),
    /// A tensor in memory that the runtime has allocated.
    Allocated,
    /// Like `Allocated`, with the number of rows from each rank, as a tensor of 32-bit integers.
    Exchanged,
    /// A tensor still to be computed from those of all ranks, in this tensor or in the input.
    Adasum(Option<Held>, adasum::Scale),
}

/// One tensor's operation.
pub(crate) struct Part {
    pub(crate) handle: RawHandle,
    pub(crate) device: Device,
    pub(crate) input: Held,
    pub(crate) yields: Yield,
    /// The tensor that the result is copied to, if the input is a copy of a tensor that is to be
    /// overwritten.
    pub(crate) copied_to: Option<Py<PyAny>>,
}

/// The operations of one handle.
pub(crate) struct Flight {
    pub(crate) parts: SmallVec<[Part; 1]>,
    /// Whether the result is a list.
    pub(crate) is_group: bool,
}

#[derive(Default)]
struct Flights {
    /// Number of handles so far.
    count: u64,
    /// Boxed: a table of thousands of unboxed flights would exceed the processor's cache.
    by_handle: HashMap<u64, Box<Flight>, BuildHasherDefault<HandleHasher>>,
}

/// Hasher for handles: these are consecutive numbers, which differ in their low bits, and the map
/// also uses high bits.
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
        // Fibonacci hashing (Knuth): the golden ratio spreads consecutive numbers; the rotation
        // moves their high bits.
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

/// Keeps `flight` until its handle is waited for.
pub(crate) fn keep(flight: Flight) -> u64 {
    let flight = Box::new(flight);
    flights(|flights| {
        flights.count += 1;
        flights.by_handle.insert(flights.count, flight);
        flights.count
    })
}

/// Drops all operations that were never waited for. There is no context, so all have completed,
/// unless a rank that does not answer keeps a thread of the last context from ending: it may still
/// write to the tensors of those that have not.
pub(crate) fn forget_all() {
    let forgotten: Vec<_> = flights(|flights| {
        let done = |_: &u64, flight: &mut Box<Flight>| flight.is_done();
        flights.by_handle.extract_if(done).collect()
    });
    drop(forgotten); // may run Python code, so not under the lock
}

/// Whether the operation of this handle has completed.
#[pyfunction]
#[pyo3(signature = (handle))]
pub(crate) fn poll(handle: u64) -> PyResult<bool> {
    let is_done = flights(|flights| {
        let flight = flights.by_handle.get(&handle)?;
        Some(flight.is_done())
    });
    is_done.ok_or_else(|| {
        PyValueError::new_err(format!(
            "Handle {handle} was not created or has been cleared."
        ))
    })
}

/// Waits for the operation of this handle without using the processor, and returns its result. The
/// handle becomes invalid.
///
/// The result is a tensor; for a group, a list of tensors; for alltoall, a pair of the tensor and
/// the number of rows from each rank (int32). None for an unknown or used handle. Raises
/// HorovodInternalError if the operation failed. After KeyboardInterrupt the handle is still valid.
#[pyfunction]
#[pyo3(signature = (handle))]
pub(crate) fn synchronize(py: Python<'_>, handle: u64) -> PyResult<Option<Bound<'_, PyAny>>> {
    let Some(flight) = flights(|flights| flights.by_handle.remove(&handle)) else {
        return Ok(None);
    };
    if let Err(interrupted) = flight
        .parts
        .iter()
        .try_for_each(|part| wait(py, &part.handle))
    {
        // The operation is still in flight.
        flights(|flights| flights.by_handle.insert(handle, flight));
        return Err(interrupted);
    }
    flight.reap(py).map(Some)
}

/// Waits without the GIL, in slices of [`SLICE`].
///
/// # Errors
/// The exception of a signal handler.
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
    fn is_done(&self) -> bool {
        self.parts.iter().all(|part| part.handle.is_done())
    }

    /// Returns the result after the operations have completed.
    fn reap(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let is_group = self.is_group;
        // All of them, even after an error: every tensor must be released.
        let mut results = self
            .parts
            .into_iter()
            .map(|part| part.reap(py))
            .collect::<SmallVec<[_; 1]>>();
        if is_group {
            let results = results.into_iter().collect::<PyResult<Vec<_>>>()?;
            return PyList::new(py, results)?.into_bound_py_any(py);
        }
        results
            .pop()
            .unwrap_or_else(|| py.None().into_bound_py_any(py))
    }
}

impl Part {
    fn reap(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let outcome = self.handle.wait(); // has completed
        let put = match self.handle.is_ahead() {
            true => put_before(py, &self.handle, self.device), // also if it failed: the input is still read
            false => Ok(()),
        };
        let input = self.input.release(py);
        outcome.map_err(|error| raise(py, &error))?;
        put?;
        let copied_to = self.copied_to.map(|tensor| tensor.into_bound(py));
        let result = Self::result(py, &self.handle, input?, self.yields)?;
        match copied_to {
            None => Ok(result),
            Some(tensor) => {
                // Detached, since leaves that require a gradient are overwritten too.
                let elements = tensor.call_method0(intern!(py, "detach"))?;
                elements.call_method1(intern!(py, "copy_"), (result,))?;
                Ok(tensor)
            }
        }
    }

    /// Result of a successful operation.
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
                // As in Horovod, unless a number does not fit.
                let dtype = match splits.iter().all(|&rows| i32::try_from(rows).is_ok()) {
                    true => intern!(py, "int32"),
                    false => intern!(py, "int64"),
                };
                let dtype = torch.getattr(dtype)?;
                // Whatever torch.set_default_device says.
                let cpu = intern!(py, "cpu").as_any();
                let kind = [("dtype", &dtype), ("device", cpu)].into_py_dict(py)?;
                let splits = torch.call_method(intern!(py, "tensor"), (splits,), Some(&kind))?;
                (allocated(py, delivery)?, splits).into_bound_py_any(py)
            }
            Yield::Adasum(output, scale) => {
                let output = output.map_or(Ok(input), |output| output.release(py))?;
                let to = View::of(&output)?;
                let Delivery { memory, shape, .. } = delivery(handle);
                if let (Some(mut memory), Some(&ranks)) = (memory, shape.first()) {
                    py.detach(|| adasum::combine(&mut memory, ranks, scale));
                    let bytes = (memory.bytes() / ranks.max(1)).min(to.bytes());
                    // SAFETY: copies the first of `size` tensors into one that is contiguous and of
                    // the same length.
                    unsafe { std::ptr::copy_nonoverlapping(memory.address(), to.address, bytes) };
                }
                Ok(output)
            }
        }
    }
}

/// Makes the streams that may use the tensor next wait for the result: the current stream, and the
/// stream of the submission if it differs.
fn put_before(py: Python<'_>, handle: &RawHandle, device: Device) -> PyResult<()> {
    let Device::Cuda { ordinal, stream } = device else {
        return Ok(());
    };
    let current = current_stream(py, ordinal)?;
    // SAFETY: the streams are those of torch, which does not destroy streams.
    let follow = |stream| unsafe { handle.put_before(stream) };
    let followed = follow(current).and_then(|()| match stream {
        stream if stream == current => Ok(()),
        stream => follow(stream),
    });
    followed.map_err(|error| raise(py, &error))
}

fn allocated<'py>(py: Python<'py>, delivery: Delivery) -> PyResult<Bound<'py, PyAny>> {
    match delivery.memory {
        Some(mut memory) => {
            if let Device::Cuda { ordinal, .. } = memory.device() {
                let current = current_stream(py, ordinal)?;
                // SAFETY: a stream of torch, which does not destroy streams.
                unsafe { memory.also_used_on(current) };
            }
            tensor_of(py, memory, &delivery.shape)
        }
        None => Err(PyRuntimeError::new_err("the operation returned no result")),
    }
}
