//! Batches between real processes: tensors that are submitted at once and do not wait for one
//! another.

#![allow(unsafe_code)] // submits the test's own buffers

use crate::support::job;
use ronde::{
    ArgumentError, Context, Device, Dtype, Error, Operation, RawHandle, RawOutput, RawTensor,
    ReduceOp,
};

/// Tensor in memory of its own, at most eight bytes an element.
struct Tensor {
    name: String,
    dtype: Dtype,
    shape: [usize; 1],
    values: Vec<u64>,
}

const DTYPES: [Dtype; 4] = [Dtype::F32, Dtype::F64, Dtype::I32, Dtype::I64];

/// Returns elements whose sum is rounded if they are floats.
fn value(rank: usize, tensor: usize, index: usize) -> f64 {
    (1.0 + rank as f64 / 3.0) * (tensor + 7 * index + 1) as f64
}

impl Tensor {
    fn new(prefix: &str, rank: usize, number: usize) -> Self {
        let elements = number * 5 % 9; // sometimes 0
        let dtype = DTYPES[number % DTYPES.len()];
        let mut bytes: Vec<u8> = Vec::new();
        for index in 0..elements {
            let value = value(rank, number, index);
            match dtype {
                Dtype::F32 => bytes.extend((value as f32).to_ne_bytes()),
                Dtype::F64 => bytes.extend(value.to_ne_bytes()),
                Dtype::I32 => bytes.extend((value as i32).to_ne_bytes()),
                _ => bytes.extend((value as i64).to_ne_bytes()),
            }
        }
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let (words, _) = bytes.as_chunks::<8>();
        let mut values: Vec<u64> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        values.reserve(1); // an address of its own even without elements
        Self {
            name: format!("{prefix}{number}"),
            dtype,
            shape: [elements],
            values,
        }
    }

    fn part(&mut self, op: ReduceOp) -> (Operation<'static>, RawTensor<'_>) {
        let operation = Operation::Allreduce {
            op,
            prescale: 1.0,
            postscale: 1.0,
        };
        let address = self.values.as_mut_ptr().cast::<u8>();
        let raw = RawTensor {
            name: &self.name,
            dtype: self.dtype,
            wire_dtype: None,
            shape: &self.shape,
            device: Device::Cpu,
            input: address,
            output: RawOutput::Into {
                address,
                bytes: self.shape[0] * self.dtype.size_bytes(),
            },
        };
        (operation, raw)
    }
}

fn context() -> Context {
    Context::from_env().expect("the job starts")
}

/// Submits the tensors at once; they outlive the handles, which every caller waits for.
fn submit_batch(context: &Context, tensors: &mut [Tensor]) -> Result<Vec<RawHandle>, Error> {
    let parts: Vec<_> = tensors
        .iter_mut()
        .map(|tensor| tensor.part(ReduceOp::Sum))
        .collect();
    // SAFETY: the values are on the heap, as long as the shape says, and not accessed before the
    // handles are done.
    unsafe { context.submit_batch(&parts) }
}

fn submit_each(context: &Context, tensors: &mut [Tensor]) -> Vec<RawHandle> {
    let submit = |tensor: &mut Tensor| {
        let (operation, raw) = tensor.part(ReduceOp::Sum);
        // SAFETY: as above.
        unsafe { context.submit(&operation, &raw) }.expect("submitted")
    };
    tensors.iter_mut().map(submit).collect()
}

fn wait(handles: Vec<RawHandle>) {
    for handle in handles {
        handle.wait().expect("reduced");
    }
}

#[test]
fn a_batch_gives_the_bits_that_single_submissions_give() {
    job(
        "batches::a_batch_gives_the_bits_that_single_submissions_give",
        3,
        || {
            let context = context();
            let make = |prefix: &str| {
                let tensors = (0..50).map(|number| Tensor::new(prefix, context.rank(), number));
                tensors.collect::<Vec<_>>()
            };
            for step in 0..6 {
                let (mut alone, mut batch, mut mixed) =
                    (make("alone"), make("batch"), make("mixed"));
                let handles = submit_each(&context, &mut alone);
                wait(handles);
                let handles = submit_batch(&context, &mut batch).expect("submitted");
                assert_eq!(handles.len(), 50);
                wait(handles);
                // A batch of one rank is combined with single tensors of others, and with batches
                // that are split differently.
                let handles = match (context.rank() + step) % 3 {
                    0 => submit_batch(&context, &mut mixed).expect("submitted"),
                    1 => submit_each(&context, &mut mixed),
                    _ => {
                        let (first, second) = mixed.split_at_mut(20);
                        let second = submit_batch(&context, second).expect("submitted");
                        let first = submit_batch(&context, first).expect("submitted");
                        first.into_iter().chain(second).collect()
                    }
                };
                wait(handles);
                for ((alone, batch), mixed) in alone.iter().zip(&batch).zip(&mixed) {
                    assert_eq!(alone.values, batch.values, "step {step}, {}", batch.name);
                    assert_eq!(alone.values, mixed.values, "step {step}, {}", mixed.name);
                }
            }
            assert!(
                submit_batch(&context, &mut [])
                    .expect("nothing to do")
                    .is_empty()
            );
        },
    );
}

#[test]
fn of_a_batch_with_one_bad_tensor_none_is_submitted() {
    job(
        "batches::of_a_batch_with_one_bad_tensor_none_is_submitted",
        2,
        || {
            let context = context();
            let rank = context.rank();
            let make = |numbers: &[usize]| {
                let tensors = numbers.iter().map(|&number| Tensor::new("t", rank, number));
                tensors.collect::<Vec<_>>()
            };
            for _ in 0..3 {
                if rank == 1 {
                    context.barrier().expect("all come");
                }
                let mut first = make(&[3]);
                let in_flight = submit_each(&context, &mut first);
                if rank == 0 {
                    let error = submit_batch(&context, &mut make(&[1, 2, 3, 4])).err();
                    assert!(
                        matches!(error, Some(Error::Argument(ArgumentError::DuplicateName { ref tensor, rank: 0 })) if tensor == "t3")
                    );
                    let error = submit_batch(&context, &mut make(&[1, 2, 1])).err();
                    assert!(
                        matches!(error, Some(Error::Argument(ArgumentError::DuplicateName { ref tensor, .. })) if tensor == "t1")
                    );

                    let mut tensors = make(&[1, 2, 4]);
                    let mut parts: Vec<_> =
                        tensors.iter_mut().map(|t| t.part(ReduceOp::Sum)).collect();
                    if let RawOutput::Into { bytes, .. } = &mut parts[1].1.output {
                        *bytes += 1;
                    }
                    // SAFETY: refused.
                    let error = unsafe { context.submit_batch(&parts) }.err();
                    assert!(
                        matches!(error, Some(Error::Argument(ArgumentError::OutputSize { ref tensor, .. })) if tensor == "t2")
                    );
                    parts[1] = parts[0];
                    parts[1].1.name = "ronde.t2";
                    // SAFETY: refused.
                    let error = unsafe { context.submit_batch(&parts) }.err();
                    assert!(matches!(
                        error,
                        Some(Error::Argument(ArgumentError::ReservedName { .. }))
                    ));
                    context.barrier().expect("all come");
                }
                wait(in_flight);
                // None is in flight on rank 0: all can be submitted, and all ranks agree.
                let mut all = make(&[1, 2, 3, 4]);
                let handles = submit_batch(&context, &mut all).expect("submitted");
                wait(handles);
            }
        },
    );
}

#[test]
fn slices_lent_to_a_scope_go_as_a_batch_or_not_at_all() {
    job(
        "batches::slices_lent_to_a_scope_go_as_a_batch_or_not_at_all",
        3,
        || {
            let context = context();
            let names: Vec<String> = (0..40).map(|number| format!("lent.{number}")).collect();
            for step in 0..3 {
                let mut tensors: Vec<Vec<i64>> =
                    (0..40).map(|number| vec![number + step; 3]).collect();
                context.scope(|scope| {
                    let lent = names.iter().zip(&mut tensors);
                    let lent = lent.map(|(name, tensor)| (&name[..], &mut tensor[..]));
                    let handles = scope
                        .allreduce_batch(lent, ReduceOp::Sum)
                        .expect("submitted");
                    assert_eq!(handles.len(), 40);
                    for handle in handles {
                        handle.wait().expect("reduced");
                    }
                });
                for (number, tensor) in (0..).zip(&tensors) {
                    assert_eq!(tensor, &[3 * (number + step); 3]);
                }
            }
            let (mut first, mut again) = ([1i64; 2], [1i64; 2]);
            let error = context.scope(|scope| {
                let twice = [("twice", &mut first[..]), ("twice", &mut again[..])];
                scope.allreduce_batch(twice, ReduceOp::Sum).err()
            });
            assert!(
                matches!(error, Some(Error::Argument(ArgumentError::DuplicateName { ref tensor, .. })) if tensor == "twice")
            );
            assert_eq!(
                context
                    .allreduce("twice", vec![1i64], ReduceOp::Sum)
                    .expect("free")
                    .wait()
                    .expect("reduced"),
                [3]
            );
        },
    );
}
