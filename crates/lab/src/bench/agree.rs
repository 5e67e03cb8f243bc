//! Check that all ranks run the same benchmark.
//!
//! Ranks with different plans would wait for tensors or steps that other ranks do not have. The
//! ranks of a benchmark communicate only by allreduce. The maximum of `[x, -x]` over all ranks
//! shows whether they have the same `x`. The maximum of vectors that are 0 except at the rank's own
//! index contains the values of all ranks.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::job::{Job, RunError};
use super::payload::Runtime;
use super::workload::TensorSpec;

/// First difference between a rank and rank 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Name of the differing quantity: `tensors`, `warm-up steps`, … or a tensor.
    pub what: String,
    /// First rank that differs.
    pub rank: usize,
    /// Values of rank 0 and of that rank, if they are numbers that a user knows.
    pub numbers: Option<[usize; 2]>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, rank) = (&self.what, self.rank);
        match self.numbers {
            Some([first, found]) => write!(f, "rank 0 has {first} {what}, rank {rank} has {found}"),
            None => write!(f, "{what} is another one on rank {rank} than on rank 0"),
        }
    }
}

/// Returns the first difference between the ranks in their tensors or in the named `numbers`. All
/// ranks call it and get the same result, except for the description of a tensor, which is that of
/// this rank.
pub(super) fn difference<R: Runtime>(
    job: &Job<'_, R>,
    numbers: &[(&str, usize)],
) -> Result<Option<Difference>, RunError> {
    let tensors = &job.load.workload.tensors;
    let counted = |what: &str, number| {
        let difference = first_other(job, number as f64)?;
        Ok::<_, RunError>(difference.map(|(rank, values)| Difference {
            what: what.to_owned(),
            rank,
            numbers: Some(values.map(|value| value as usize)),
        }))
    };
    // One hash of everything: if it is equal on all ranks, no further comparison is needed.
    let hash = hash_of(&(
        tensors.iter().map(fingerprint).collect::<Vec<u64>>(),
        numbers,
    ));
    if first_unequal(job, "bench.plan", vec![hash])?.is_none() {
        return Ok(None);
    }
    if let Some(difference) = counted("tensors", tensors.len())? {
        return Ok(Some(difference));
    }
    let prints = tensors
        .iter()
        .map(|tensor| hash_of(&fingerprint(tensor)))
        .collect();
    if let Some(index) = first_unequal(job, "bench.plan.tensors", prints)? {
        let tensor = &tensors[index];
        let other = first_other(job, hash_of(&fingerprint(tensor)))?;
        return Ok(other.map(|(rank, _)| Difference {
            what: format!(
                "tensor {} of {} (here {}, {} elements of type {})",
                index + 1,
                tensors.len(),
                tensor.name,
                tensor.elements(),
                tensor.dtype
            ),
            rank,
            numbers: None,
        }));
    }
    for (what, number) in numbers {
        if let Some(difference) = counted(what, *number)? {
            return Ok(Some(difference));
        }
    }
    Ok(None)
}

fn fingerprint(tensor: &TensorSpec) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&tensor.name, tensor.dtype, tensor.elements()).hash(&mut hasher);
    hasher.finish()
}

/// Hash of `value` with 53 bits, so that it and its negative are exact as `f64`.
fn hash_of(value: &impl Hash) -> f64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    (hasher.finish() >> 11) as f64
}

/// Index of the first of `values` that differs between ranks.
fn first_unequal<R: Runtime>(
    job: &Job<'_, R>,
    name: &str,
    values: Vec<f64>,
) -> Result<Option<usize>, RunError> {
    let opposites = values.iter().map(|value| -value);
    let both = values.iter().copied().chain(opposites).collect();
    let largest = job.slowest(name, both)?;
    let (largest, opposites) = largest.split_at(values.len());
    Ok(largest
        .iter()
        .zip(opposites)
        .position(|(value, opposite)| *value != -opposite))
}

/// First rank whose `value` differs from rank 0's, and both values.
fn first_other<R: Runtime>(
    job: &Job<'_, R>,
    value: f64,
) -> Result<Option<(usize, [f64; 2])>, RunError> {
    let mut own = vec![0.0; job.runtime.size()];
    own[job.runtime.rank()] = value;
    let all = job.slowest("bench.plan.ranks", own)?;
    let other = all.iter().position(|value| *value != all[0]);
    Ok(other.map(|rank| (rank, [all[0], all[rank]])))
}
