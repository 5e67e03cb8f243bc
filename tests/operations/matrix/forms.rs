//! Forms of submission: each case is submitted in all of them and must give the same bits.

#![allow(unsafe_code)] // submits the test's own buffers

use std::hash::{DefaultHasher, Hasher};

use ronde::{
    Context, Error, Gathered, GroupHandle, Handle, Operation, ProcessSet, RawHandle, RawOutput,
    RawTensor, Scope, ScopedHandle,
};

use super::part::Part;
use super::sample::{Sample, bytes};

/// Number of forms to test.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Forms {
    All,
    /// All at once, one after another, and as raw memory: fused and not, in place and not.
    Few,
    AtOnce,
}

/// Context, and a hash of all results on this rank.
pub(crate) struct Bench<'c> {
    pub(crate) set: &'c ProcessSet,
    pub(crate) rank: usize,
    pub(crate) digest: DefaultHasher,
    pub(crate) forms: Forms,
}

impl<'c> Bench<'c> {
    pub(crate) fn new(context: &'c Context) -> Self {
        Self {
            set: context,
            rank: context.rank(),
            digest: DefaultHasher::new(),
            forms: Forms::All,
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.set.size()
    }

    /// Submits `parts`, of one operation, in every form; in place if input and output have the same
    /// size.
    pub(crate) fn run<T: Sample>(&mut self, what: &str, parts: &[Part<'_, T>]) {
        let what = format!("{what}.{}", T::DTYPE);
        let in_place = matches!(
            parts[0].operation,
            Operation::Allreduce { .. } | Operation::Broadcast { .. }
        );
        let first = if in_place {
            self.in_place(&what, parts, true)
        } else {
            self.gathered(&what, parts, true)
        };
        if self.forms != Forms::AtOnce {
            let alone = if in_place {
                self.in_place(&what, parts, false)
            } else {
                self.gathered(&what, parts, false)
            };
            same(&what, "alone", &first, &alone);
            same(&what, "raw", &first, &self.raw(&what, parts));
        }
        if self.forms == Forms::All {
            let (grouped, lent) = if in_place {
                (
                    self.in_place_group(&what, parts),
                    self.lent_in_place(&what, parts),
                )
            } else {
                (self.gathered_group(&what, parts), self.lent(&what, parts))
            };
            same(&what, "grouped", &first, &grouped);
            same(&what, "lent", &first, &lent);
        }
        for (index, (part, result)) in parts.iter().zip(&first).enumerate() {
            check(
                &format!("{what}.{index} on rank {}", self.rank),
                part,
                result,
            );
            self.digest.write(bytes(result));
        }
    }

    fn in_place<T: Sample>(&self, what: &str, parts: &[Part<'_, T>], at_once: bool) -> Vec<Vec<T>> {
        let submit = |(index, part): (usize, &Part<'_, T>)| -> Handle<Vec<T>> {
            let (name, input) = (format!("{what}.{index}"), part.input.clone());
            match part.operation {
                Operation::Broadcast { root } => self.set.broadcast(&name, input, root),
                _ => self.set.allreduce(&name, input, part.reduce()),
            }
            .expect("submitted")
        };
        collect(parts.iter().enumerate().map(submit), at_once, |handle| {
            handle.wait().expect("done")
        })
    }

    fn in_place_group<T: Sample>(&self, what: &str, parts: &[Part<'_, T>]) -> Vec<Vec<T>> {
        let inputs = parts.iter().map(|part| part.input.clone()).collect();
        let group: GroupHandle<Vec<T>> = match parts[0].operation {
            Operation::Broadcast { root } => self.set.grouped_broadcast(what, inputs, root),
            _ => self.set.grouped_allreduce(what, inputs, parts[0].reduce()),
        }
        .expect("submitted");
        group.wait().expect("done")
    }

    fn lent_in_place<T: Sample>(&self, what: &str, parts: &[Part<'_, T>]) -> Vec<Vec<T>> {
        let mut tensors: Vec<Vec<T>> = parts.iter().map(|part| part.input.clone()).collect();
        self.set.scope(|scope| {
            let handles =
                tensors
                    .iter_mut()
                    .zip(parts)
                    .enumerate()
                    .map(|(index, (tensor, part))| {
                        let name = format!("{what}.{index}");
                        match part.operation {
                            Operation::Broadcast { root } => scope.broadcast(&name, tensor, root),
                            _ => scope.allreduce(&name, tensor, part.reduce()),
                        }
                    });
            wait_lent(handles.collect());
        });
        tensors
    }

    fn gathered<T: Sample>(&self, what: &str, parts: &[Part<'_, T>], at_once: bool) -> Vec<Vec<T>> {
        let submit = |(index, part): (usize, &Part<'_, T>)| -> Handle<Vec<T>, Gathered<Vec<T>>> {
            let (name, input, shape) = (format!("{what}.{index}"), part.input.clone(), &part.shape);
            match part.operation {
                Operation::Allgather => self.set.allgather(&name, input, shape),
                Operation::Alltoall { splits } => self.set.alltoall(&name, input, shape, splits),
                _ => self
                    .set
                    .reducescatter(&name, input, part.reduce().shape(shape)),
            }
            .expect("submitted")
        };
        let results = collect(parts.iter().enumerate().map(submit), at_once, |handle| {
            handle.wait().expect("done")
        });
        unpack(parts, results)
    }

    fn gathered_group<T: Sample>(&self, what: &str, parts: &[Part<'_, T>]) -> Vec<Vec<T>> {
        let with_shape = || {
            parts
                .iter()
                .map(|part| (part.input.clone(), &part.shape[..]))
        };
        let group: GroupHandle<Vec<T>, Gathered<Vec<T>>> = match parts[0].operation {
            Operation::Allgather => self.set.grouped_allgather(what, with_shape().collect()),
            Operation::Alltoall { .. } => {
                let tensors = with_shape().zip(parts).map(|((input, shape), part)| {
                    let Operation::Alltoall { splits } = part.operation else {
                        panic!("parts of one operation");
                    };
                    (input, shape, splits)
                });
                self.set.grouped_alltoall(what, tensors.collect())
            }
            _ => {
                let options = parts[0].reduce();
                self.set
                    .grouped_reducescatter(what, with_shape().collect(), options)
            }
        }
        .expect("submitted");
        unpack(parts, group.wait().expect("done"))
    }

    fn lent<T: Sample>(&self, what: &str, parts: &[Part<'_, T>]) -> Vec<Vec<T>> {
        let mut outputs: Vec<Vec<T>> = parts.iter().map(Part::room).collect();
        self.set.scope(|scope: &Scope<'_, '_>| {
            let handles =
                outputs
                    .iter_mut()
                    .zip(parts)
                    .enumerate()
                    .map(|(index, (output, part))| {
                        let (name, input, shape) =
                            (format!("{what}.{index}"), &part.input, &part.shape);
                        match part.operation {
                            Operation::Allgather => scope.allgather(&name, input, shape, output),
                            Operation::Alltoall { splits } => {
                                scope.alltoall(&name, input, shape, splits, output)
                            }
                            _ => scope.reducescatter(
                                &name,
                                input,
                                part.reduce().shape(shape),
                                output,
                            ),
                        }
                    });
            wait_lent(handles.collect());
        });
        outputs
    }

    /// From one buffer to another.
    fn raw<T: Sample>(&self, what: &str, parts: &[Part<'_, T>]) -> Vec<Vec<T>> {
        let mut outputs: Vec<Vec<T>> = parts.iter().map(Part::room).collect();
        let submit = |(index, (part, output)): (usize, (&Part<'_, T>, &mut Vec<T>))| -> RawHandle {
            let tensor = RawTensor {
                name: &format!("{what}.{index}"),
                dtype: T::DTYPE,
                wire_dtype: None,
                shape: &part.shape,
                device: ronde::Device::Cpu,
                input: part.input.as_ptr().cast(),
                output: RawOutput::Into {
                    address: output.as_mut_ptr().cast(),
                    bytes: size_of_val(&output[..]),
                },
            };
            // SAFETY: the vectors live until all handles have been waited for, below, and are not
            // accessed; a failed submission ends the process's test.
            unsafe { self.set.submit(&part.operation, &tensor) }.expect("submitted")
        };
        let handles: Vec<RawHandle> = parts
            .iter()
            .zip(&mut outputs)
            .enumerate()
            .map(submit)
            .collect();
        let outcomes: Vec<Result<(), Error>> = handles.iter().map(RawHandle::wait).collect();
        outcomes
            .into_iter()
            .for_each(|outcome| outcome.expect("done"));
        outputs
    }
}

/// Waits for each submission before the next one, or after all of them.
fn collect<H, R>(handles: impl Iterator<Item = H>, at_once: bool, wait: impl Fn(H) -> R) -> Vec<R> {
    if at_once {
        let handles: Vec<H> = handles.collect();
        handles.into_iter().map(wait).collect()
    } else {
        handles.map(wait).collect()
    }
}

fn wait_lent(handles: Vec<Result<ScopedHandle<'_>, Error>>) {
    for handle in handles {
        handle.expect("submitted").wait().expect("done");
    }
}

/// Returns the elements, after a check of shapes and splits.
fn unpack<T: Sample>(parts: &[Part<'_, T>], results: Vec<Gathered<Vec<T>>>) -> Vec<Vec<T>> {
    let unpack = |(part, result): (&Part<'_, T>, Gathered<Vec<T>>)| {
        assert_eq!(
            (result.shape, result.splits),
            (part.expected_shape.clone(), part.expected_splits.clone())
        );
        assert!(
            bytes(&result.input) == bytes(&part.input),
            "the input is as it was"
        );
        result.tensor
    };
    parts.iter().zip(results).map(unpack).collect()
}

fn same<T: Sample>(what: &str, form: &str, first: &[Vec<T>], other: &[Vec<T>]) {
    for (index, (first, other)) in first.iter().zip(other).enumerate() {
        assert!(
            bytes(first) == bytes(other),
            "{what}.{index}: {form} differs from all at once"
        );
    }
    assert_eq!(first.len(), other.len());
}

fn check<T: Sample>(what: &str, part: &Part<'_, T>, result: &[T]) {
    assert_eq!(result.len(), part.expected.len(), "{what}");
    if bytes(result) == bytes(&part.expected) {
        return;
    }
    for (at, (got, want)) in result.iter().zip(&part.expected).enumerate() {
        let both_nan = part.any_nan && got.is_nan() && want.is_nan();
        assert!(
            both_nan || bytes(&[*got]) == bytes(&[*want]),
            "{what}: element {at} of {} is {got:?}, should be {want:?}",
            result.len()
        );
    }
}
