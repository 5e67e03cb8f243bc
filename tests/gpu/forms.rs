//! Submissions of tensors on a GPU in all forms, and tolerances of the results.

#![allow(unsafe_code)] // submits device memory

use half::{bf16, f16};
use ronde::{
    Context, CudaVec, Dtype, Element, Gathered, Handle, Operation, ProcessSet, RawHandle,
    RawOutput, RawTensor, ReduceOp,
};

use crate::part::Part;
use crate::sample::{Sample, bytes};

/// A context's process set and this rank's device.
pub(crate) struct Bench<'c> {
    pub(crate) set: &'c ProcessSet,
    pub(crate) rank: usize,
    device: u32,
    #[allow(dead_code, reason = "the table's cases set it")]
    pub(crate) forms: Forms,
    /// Sums are computed in another order than in host memory: the tolerance depends on the
    /// summands.
    pub(crate) is_hierarchical: bool,
}

/// Sets of forms in the table of host memory; GPUs have only one.
#[derive(Clone, Copy, PartialEq)]
#[allow(dead_code, reason = "the table's cases know them")]
pub(crate) enum Forms {
    All,
    Few,
    AtOnce,
}

impl<'c> Bench<'c> {
    pub(crate) fn new(context: &'c Context, device: u32) -> Self {
        Self {
            set: context,
            rank: context.rank(),
            device,
            forms: Forms::All,
            is_hierarchical: false,
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.set.size()
    }

    fn upload<T: Sample>(&self, elements: &[T]) -> CudaVec<T> {
        CudaVec::from_slice(self.device, elements).expect("room on the device")
    }

    /// Submits `parts` at once, one after another, and out of place.
    pub(crate) fn run<T: Sample>(&mut self, what: &str, parts: &[Part<'_, T>]) {
        let what = format!("gpu.{what}.{}", crate::name::<T>());
        for at_once in [true, false] {
            let results = match parts[0].operation {
                Operation::Allreduce { .. } | Operation::Broadcast { .. } => {
                    self.in_place(&what, parts, at_once)
                }
                _ => self.gathered(&what, parts, at_once),
            };
            self.check(&what, parts, &results);
        }
        let results = self.raw(&what, parts);
        self.check(&format!("{what}, raw"), parts, &results);
    }

    fn check<T: Sample>(&self, what: &str, parts: &[Part<'_, T>], results: &[Vec<T>]) {
        for (index, (part, result)) in parts.iter().zip(results).enumerate() {
            let what = format!("{what}.{index} on rank {}", self.rank);
            check(&what, part, result, self.is_hierarchical);
        }
    }

    fn in_place<T: Sample>(&self, what: &str, parts: &[Part<'_, T>], at_once: bool) -> Vec<Vec<T>> {
        let submit = |(index, part): (usize, &Part<'_, T>)| -> Handle<CudaVec<T>> {
            let (name, input) = (format!("{what}.{index}"), self.upload(&part.input));
            let submitted = match part.operation {
                Operation::Broadcast { root } => self.set.broadcast(&name, input, root),
                _ => self.set.allreduce(&name, input, part.reduce()),
            };
            submitted.unwrap_or_else(|failed| panic!("{name}: {failed}"))
        };
        collect(parts.iter().enumerate().map(submit), at_once, |handle| {
            let outcome = handle
                .wait()
                .unwrap_or_else(|failed| panic!("{what}: {failed}"));
            outcome.to_vec().expect("the device answers")
        })
    }

    fn gathered<T: Sample>(&self, what: &str, parts: &[Part<'_, T>], at_once: bool) -> Vec<Vec<T>> {
        let submit =
            |(index, part): (usize, &Part<'_, T>)| -> Handle<CudaVec<T>, Gathered<CudaVec<T>>> {
                let (name, input, shape) = (
                    format!("{what}.{index}"),
                    self.upload(&part.input),
                    &part.shape,
                );
                let submitted = match part.operation {
                    Operation::Allgather => self.set.allgather(&name, input, shape),
                    Operation::Alltoall { splits } => {
                        self.set.alltoall(&name, input, shape, splits)
                    }
                    _ => self
                        .set
                        .reducescatter(&name, input, part.reduce().shape(shape)),
                };
                submitted.unwrap_or_else(|failed| panic!("{name}: {failed}"))
            };
        let results = collect(parts.iter().enumerate().map(submit), at_once, |handle| {
            handle
                .wait()
                .unwrap_or_else(|failed| panic!("{what}: {failed}"))
        });
        let unpack = |(part, result): (&Part<'_, T>, Gathered<CudaVec<T>>)| {
            assert_eq!(
                (&result.shape, &result.splits),
                (&part.expected_shape, &part.expected_splits)
            );
            let input = result.input.to_vec().expect("the device answers");
            assert!(
                bytes(&input) == bytes(&part.input),
                "the input is as it was"
            );
            result.tensor
        };
        parts.iter().zip(results).map(unpack).collect()
    }

    fn raw<T: Sample>(&self, what: &str, parts: &[Part<'_, T>]) -> Vec<Vec<T>> {
        let inputs: Vec<CudaVec<T>> = parts.iter().map(|part| self.upload(&part.input)).collect();
        let outputs: Vec<CudaVec<T>> = parts.iter().map(|part| self.upload(&part.room())).collect();
        let submit = |index: usize| -> RawHandle {
            let part = &parts[index];
            let name = format!("{what}.{index}");
            let tensor = RawTensor {
                output: RawOutput::Into {
                    address: address(&outputs[index]),
                    bytes: part.expected.len() * size_of::<T>(),
                },
                ..in_place(&name, &part.shape, &inputs[index], self.device)
            };
            // SAFETY: the vectors live until all handles have been waited for, below, and are not
            // accessed.
            unsafe { self.set.submit(&part.operation, &tensor) }.expect("submitted")
        };
        let handles: Vec<RawHandle> = (0..parts.len()).map(submit).collect();
        let outcomes: Vec<_> = handles.iter().map(RawHandle::wait).collect();
        outcomes
            .into_iter()
            .for_each(|outcome| outcome.expect("done"));
        outputs
            .iter()
            .map(|output| output.to_vec().expect("the device answers"))
            .collect()
    }
}

/// Location of a vector's elements on its device.
fn address<T: Element>(vector: &CudaVec<T>) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(vector.address() as usize)
}

/// Makes a vector on a device a raw tensor that is reduced in place, on the legacy stream.
pub(crate) fn in_place<'a, T: Element>(
    name: &'a str,
    shape: &'a [usize],
    vector: &CudaVec<T>,
    ordinal: u32,
) -> RawTensor<'a> {
    let address = address(vector);
    RawTensor {
        name,
        dtype: T::DTYPE,
        wire_dtype: None,
        shape,
        device: ronde::Device::Cuda { ordinal, stream: 0 },
        input: address,
        output: RawOutput::Into {
            address,
            bytes: size_of::<T>() * vector.len(),
        },
    }
}

/// Whether the result on GPUs is unspecified: halves that are multiplied before they are sent are
/// rounded to the sent type, and in host memory they are not; averages of 64-bit integers wrap.
fn is_open<T: Sample>(part: &Part<'_, T>) -> bool {
    let Some((op, prescale, _)) = part.reduction() else {
        return false;
    };
    match T::DTYPE {
        Dtype::I64 => op == ReduceOp::Average,
        Dtype::F16 | Dtype::Bf16 => prescale != 1.0,
        _ => false,
    }
}

/// Waits for each before the next is submitted, or after all are submitted.
fn collect<H, R>(handles: impl Iterator<Item = H>, at_once: bool, wait: impl Fn(H) -> R) -> Vec<R> {
    if at_once {
        let handles: Vec<H> = handles.collect();
        handles.into_iter().map(wait).collect()
    } else {
        handles.map(wait).collect()
    }
}

/// Converts to f64, with the relative tolerance of the type: some roundings.
fn number<T: Element>(element: T) -> Option<(f64, f64)> {
    let bytes = bytes(std::slice::from_ref(&element));
    Some(match (T::DTYPE, bytes) {
        (Dtype::F16, &[a, b]) => (f16::from_le_bytes([a, b]).to_f64(), 4e-3),
        (Dtype::Bf16, &[a, b]) => (bf16::from_le_bytes([a, b]).to_f64(), 3e-2),
        (Dtype::F32, bytes) => (f32::from_le_bytes(bytes.try_into().ok()?).into(), 1e-6),
        (Dtype::F64, bytes) => (f64::from_le_bytes(bytes.try_into().ok()?), 1e-14),
        _ => return None,
    })
}

/// Largest magnitude of the summands, from this rank's own part.
fn scale<T: Sample>(part: &Part<'_, T>) -> f64 {
    let (prescale, postscale) = part
        .reduction()
        .map_or((1.0, 1.0), |(_, pre, post)| (pre, post));
    let finite = |element: &T| {
        let (value, _) = number(*element)?;
        value.is_finite().then_some(value.abs())
    };
    let largest = part.input.iter().filter_map(finite).fold(1e-3, f64::max);
    largest * prescale.abs().max(1.0) * postscale.abs().max(1.0)
}

/// `floor`: the least magnitude to which the tolerance is relative, if the order of the sum differs
/// from that in host memory.
fn is_near<T: Sample>(got: T, want: T, part: &Part<'_, T>, floor: Option<f64>) -> bool {
    if bytes(&[got]) == bytes(&[want]) {
        return true;
    }
    let (Some((got, tolerance)), Some((want, _)), Some((op, ..))) =
        (number(got), number(want), part.reduction())
    else {
        return false;
    };
    // In NCCL, the minimum and maximum of NaN and a number are either; an average is divided before
    // it is summed, so it does not overflow.
    // In another order, a product may overflow in between.
    let is_either =
        matches!(op, ReduceOp::Min | ReduceOp::Max) || (floor.is_some() && op == ReduceOp::Product);
    (want.is_nan() && (is_either || !got.is_finite()))
        || (floor.is_some() && op == ReduceOp::Product && !got.is_finite())
        || (want.is_infinite() && op == ReduceOp::Average)
        || (got - want).abs() <= tolerance * want.abs().max(floor.unwrap_or(1e-3))
        // Halves may, too.
        || (floor.is_some() && got.is_infinite() && size_of::<T>() == 2)
}

fn check<T: Sample>(what: &str, part: &Part<'_, T>, result: &[T], is_hierarchical: bool) {
    assert_eq!(result.len(), part.expected.len(), "{what}");
    if is_open(part) {
        return;
    }
    let floor = is_hierarchical.then(|| scale(part));
    for (at, (got, want)) in result.iter().zip(&part.expected).enumerate() {
        assert!(
            is_near(*got, *want, part, floor),
            "{what}: element {at} of {} is {got:?}, should be {want:?}",
            result.len()
        );
    }
}
