//! Fusion classes: tensors of one class may share a batch. One function decides for the running
//! job, for the replay of its trace, and for the analysis of recorded files.
//!
//! A [`FusionKey`] holds all properties that the tensors of a batch must have in common.
//! [`FusionClasses`] numbers the keys. The [planner](crate::fusion) uses only the number, as
//! [`Item::class`](crate::fusion::Item::class). A property that a recorded file does not have is
//! unknown for every tensor of that file, and therefore equal.
//!
//! ```
//! use ronde_job::fusion_class::{Fusible, FusionClasses, FusionKey};
//! use ronde_job::{Dtype, ReduceOp};
//!
//! let sum = FusionKey {
//!     dtype: Some(Dtype::F32),
//!     op: Some(ReduceOp::Sum),
//!     ..FusionKey::new(Some(Fusible::Allreduce))
//! };
//! let mut classes = FusionClasses::default();
//! let doubles = FusionKey { dtype: Some(Dtype::F64), ..sum };
//! assert_eq!([sum, doubles, sum].map(|key| classes.number(&key, None)), [0, 1, 0]);
//! // Alltoalls share batches with no other tensor.
//! let alltoall = FusionKey::new(None);
//! assert_eq!([alltoall, alltoall].map(|key| classes.number(&key, None)), [2, 3]);
//! ```

use std::collections::HashMap;

use crate::OpKind;
use crate::replay::Operation;
use crate::{Dtype, ReduceOp};

/// Operations whose tensors may share a batch. Alltoall is not one of them: it already sends
/// ranks squared messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fusible {
    /// Elementwise allreduce.
    Allreduce,
    /// Adasum allreduce, in files of Horovod.
    Adasum,
    /// An allgather.
    Allgather,
    /// A broadcast.
    Broadcast,
    /// A reducescatter.
    Reducescatter,
}

impl Fusible {
    /// Converts `kind`; `None` if its tensors never share a batch.
    pub const fn of(kind: OpKind) -> Option<Self> {
        match kind {
            OpKind::Allreduce => Some(Self::Allreduce),
            OpKind::Allgather => Some(Self::Allgather),
            OpKind::Broadcast => Some(Self::Broadcast),
            OpKind::Reducescatter => Some(Self::Reducescatter),
            OpKind::Alltoall | OpKind::Join | OpKind::Barrier | OpKind::Agree => None,
        }
    }
}

/// Properties that all tensors of a batch have in common.
#[derive(Clone, Copy, Debug)]
pub struct FusionKey<'a> {
    /// Operation; `None` if its tensors never share a batch.
    pub operation: Option<Fusible>,
    /// Element type; `None` if unknown.
    pub dtype: Option<Dtype>,
    /// Element type in which the tensor is sent, if it is not its own.
    pub wire_dtype: Option<Dtype>,
    /// Reduction operation; `None` if unknown.
    pub op: Option<ReduceOp>,
    /// Factors applied to every contribution and to the result.
    pub factors: (f64, f64),
    /// Rank that sends the data. Broadcasts from an unknown rank never share a batch.
    pub root: Option<u32>,
    /// Whether the tensor is in GPU memory. The GPU's number does not matter: a rank uses one GPU.
    pub is_on_gpu: bool,
    /// Ranks that do not take part, ascending.
    pub absent: &'a [u32],
}

impl FusionKey<'_> {
    /// Key of a tensor in host memory of which only the operation is known.
    pub const fn new(operation: Option<Fusible>) -> Self {
        Self {
            operation,
            dtype: None,
            wire_dtype: None,
            op: None,
            factors: (1.0, 1.0),
            root: None,
            is_on_gpu: false,
            absent: &[],
        }
    }

    /// Whether tensors of both keys may share a batch, where facts that neither knows are equal.
    pub fn may_share(&self, other: &FusionKey<'_>) -> bool {
        self.operation.is_some() && self.agrees(other) && same_ranks(self.absent, other.absent)
    }

    /// Whether both are equal, but for the absent ranks.
    fn agrees(&self, other: &FusionKey<'_>) -> bool {
        self.operation == other.operation
            && (self.dtype, self.op, self.wire_dtype) == (other.dtype, other.op, other.wire_dtype)
            && same_factor(self.factors.0, other.factors.0)
            && same_factor(self.factors.1, other.factors.1)
            && (self.root, self.is_on_gpu) == (other.root, other.is_on_gpu)
    }

    /// Whether the tensor never shares a batch.
    fn is_alone(&self) -> bool {
        match self.operation {
            None => true,
            Some(Fusible::Broadcast) => self.root.is_none(),
            Some(_) => false,
        }
    }
}

/// An owned [`FusionKey`].
#[derive(Clone, Debug)]
struct Shared {
    key: FusionKey<'static>,
    absent: Vec<u32>,
    number: u32,
}

impl Shared {
    fn admits(&self, key: &FusionKey<'_>) -> bool {
        self.key.agrees(key) && same_ranks(&self.absent, key.absent)
    }
}

/// Whether two factors are equal. All NaNs are equal: negotiation does not distinguish them
/// either, and all ranks must compute the same classes.
fn same_factor(one: f64, other: f64) -> bool {
    one == other || (one.is_nan() && other.is_nan())
}

/// Whether two lists, mostly empty, are equal. Comparing empty slices is not free: `memcmp` reads
/// at the dangling address of an empty vector, which takes longer than the rest of the plan on a
/// processor with masked loads.
fn same_ranks(one: &[u32], other: &[u32]) -> bool {
    one.len() == other.len() && (one.is_empty() || one == other)
}

/// Maximum number of tensors with a class of their own. Further tensors share one class, so that
/// names that never repeat do not use memory without limit.
const ALONE_MAX: usize = 1 << 16;

/// The known classes, numbered from 0 in order of appearance.
#[derive(Clone, Debug, Default)]
pub struct FusionClasses {
    shared: Vec<Shared>,
    /// Classes of one tensor each.
    alone: HashMap<u64, u32>,
    /// By class number: the operation as settings distinguish it, and whether the class is on GPUs.
    classes: Vec<(Operation, bool)>,
}

impl FusionClasses {
    /// Forgets all classes but keeps the allocated memory.
    pub fn clear(&mut self) {
        self.shared.clear();
        self.classes.clear();
        if !self.alone.is_empty() {
            self.alone.clear();
        }
    }

    /// Number of the class of `key`. `tensor` is a hash of the tensor's identity: a tensor that
    /// never shares a batch has the same class each time. `None` if no tensor occurs twice.
    pub fn number(&mut self, key: &FusionKey<'_>, tensor: Option<u64>) -> u32 {
        if key.is_alone() {
            return self.number_alone(key, tensor);
        }
        // From the back: consecutive tensors are mostly of one class.
        if let Some(known) = self.shared.iter().rev().find(|known| known.admits(key)) {
            return known.number;
        }
        let number = self.add(key);
        self.shared.push(Shared {
            key: FusionKey {
                absent: &[],
                ..*key
            },
            absent: key.absent.to_vec(),
            number,
        });
        number
    }

    fn number_alone(&mut self, key: &FusionKey<'_>, tensor: Option<u64>) -> u32 {
        let Some(tensor) = tensor else {
            return self.add(key);
        };
        let is_full = self.alone.len() >= ALONE_MAX && !self.alone.contains_key(&tensor);
        let tensor = if is_full { u64::MAX } else { tensor };
        if let Some(&number) = self.alone.get(&tensor) {
            return number;
        }
        let number = self.add(key);
        self.alone.insert(tensor, number);
        number
    }

    fn add(&mut self, key: &FusionKey<'_>) -> u32 {
        let operation = match key.operation {
            Some(Fusible::Allreduce) => Operation::Allreduce,
            Some(Fusible::Allgather) => Operation::Allgather,
            _ => Operation::Other,
        };
        self.classes.push((operation, key.is_on_gpu));
        (self.classes.len() - 1) as u32
    }

    /// Whether the tensors of class `number` are in GPU memory.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn is_on_gpu(&self, number: u32) -> bool {
        self.classes[number as usize].1
    }

    /// The operation of each class, by number.
    pub fn operations(&self) -> impl Iterator<Item = Operation> {
        self.classes.iter().map(|&(operation, _)| operation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum() -> FusionKey<'static> {
        FusionKey {
            dtype: Some(Dtype::F32),
            op: Some(ReduceOp::Sum),
            root: Some(0),
            ..FusionKey::new(Some(Fusible::Allreduce))
        }
    }

    #[test]
    fn tensors_that_differ_in_anything_are_of_different_classes() {
        let keys = [
            sum(),
            FusionKey {
                operation: Some(Fusible::Adasum),
                ..sum()
            },
            FusionKey {
                dtype: Some(Dtype::F16),
                ..sum()
            },
            FusionKey {
                wire_dtype: Some(Dtype::Bf16),
                ..sum()
            },
            FusionKey {
                op: Some(ReduceOp::Max),
                ..sum()
            },
            FusionKey {
                factors: (0.5, 1.0),
                ..sum()
            },
            FusionKey {
                factors: (1.0, 0.5),
                ..sum()
            },
            FusionKey {
                factors: (f64::NAN, 1.0),
                ..sum()
            },
            FusionKey {
                root: Some(1),
                ..sum()
            },
            FusionKey {
                is_on_gpu: true,
                ..sum()
            },
            FusionKey {
                absent: &[3],
                ..sum()
            },
        ];
        let mut classes = FusionClasses::default();
        for (index, key) in keys.iter().enumerate() {
            for (other_index, other) in keys.iter().enumerate() {
                assert_eq!(
                    key.may_share(other),
                    index == other_index,
                    "{key:?} {other:?}"
                );
            }
        }
        for _ in 0..2 {
            let numbers: Vec<u32> = keys.iter().map(|key| classes.number(key, None)).collect();
            assert_eq!(numbers, (0..keys.len() as u32).collect::<Vec<_>>());
        }
        assert_eq!(
            (0..11)
                .filter(|&number| classes.is_on_gpu(number))
                .collect::<Vec<_>>(),
            [9]
        );
        classes.clear();
        assert_eq!(classes.number(&keys[3], None), 0);
    }

    #[test]
    fn what_shares_no_batch_has_a_class_of_its_own_each_time_or_for_each_tensor() {
        let mut classes = FusionClasses::default();
        let broadcast = |root| FusionKey {
            root,
            ..FusionKey::new(Some(Fusible::Broadcast))
        };
        let alone = FusionKey::new(None);
        assert!(!alone.may_share(&alone));
        assert_eq!(
            [1, 2, 1].map(|tensor| classes.number(&alone, Some(tensor))),
            [0, 1, 0]
        );
        assert_eq!(
            [classes.number(&alone, None), classes.number(&alone, None)],
            [2, 3]
        );
        assert_eq!(classes.number(&broadcast(Some(2)), Some(1)), 4);
        assert_eq!(classes.number(&broadcast(Some(2)), Some(2)), 4);
        assert_eq!(classes.number(&broadcast(None), Some(2)), 1); // from an unknown rank
        for tensor in 0..2 * ALONE_MAX as u64 {
            classes.number(&alone, Some(tensor));
        }
        assert_eq!(classes.operations().count(), ALONE_MAX + 1 + 3);
        assert_eq!(classes.number(&alone, Some(1)), 0);
    }

    #[test]
    fn classes_say_which_settings_concern_them() {
        let mut classes = FusionClasses::default();
        for operation in [Fusible::Adasum, Fusible::Allgather, Fusible::Allreduce] {
            classes.number(&FusionKey::new(Some(operation)), None);
        }
        assert!(classes.operations().eq([
            Operation::Other,
            Operation::Allgather,
            Operation::Allreduce
        ]));
    }
}
