//! Names of collectives by their occurrence within the step.

use std::collections::HashMap;

use super::super::model::{Kind, Span};
use super::super::reader::Out;
use super::collectives::Call;
use ronde_job::Dtype;

/// Names `calls`, given in order of submission: `nccl:all_reduce #2` is the second call of that
/// name in its step.
pub(super) fn name(calls: &mut [Call], steps: &[Span], out: &mut Out<'_>) {
    let starts = if steps.is_empty() {
        of_period(calls)
    } else {
        of_marks(calls, steps)
    };
    let mut starts = starts.into_iter().peekable();
    let mut counts: HashMap<Box<str>, u32> = HashMap::new();
    for (index, call) in calls.iter_mut().enumerate() {
        while starts.next_if(|&start| start <= index).is_some() {
            counts.clear();
        }
        let count = counts.entry(call.called.clone()).or_default();
        *count += 1;
        call.operation.tensor = out.name(&format!("{} #{count}", call.called));
    }
}

/// Indices of the first calls at or after the start and the end of each marked step.
fn of_marks(calls: &[Call], steps: &[Span]) -> Vec<usize> {
    let edges = steps.iter().flat_map(|step| [step.began, step.ended]);
    edges
        .map(|edge| calls.partition_point(|call| call.submitted < edge))
        .collect()
}

/// Indices at which the repeating sequence of operations begins; empty if nothing repeats.
///
/// The period is the shortest one that holds for at least the last three quarters of the calls and
/// occurs at least twice.
fn of_period(calls: &[Call]) -> Vec<usize> {
    type Key<'a> = (&'a str, Kind, Option<Dtype>, Option<u64>);
    let key = |call: &'_ Call| -> (Box<str>, Kind, Option<Dtype>, Option<u64>) {
        let operation = &call.operation;
        (
            call.called.clone(),
            operation.kind,
            operation.dtype,
            operation.elements,
        )
    };
    let keys: Vec<_> = calls.iter().rev().map(key).collect();
    let same: Vec<Key<'_>> = keys
        .iter()
        .map(|key| (&*key.0, key.1, key.2, key.3))
        .collect();
    let count = same.len();
    let matches = z_function(&same);
    let period = (1..=count / 2).find(|&period| {
        let held = matches[period] + period;
        held >= 2 * period && held * 4 >= count * 3
    });
    let Some(period) = period else {
        return Vec::new();
    };
    (0..count)
        .rev()
        .step_by(period)
        .map(|end| end + 1)
        .rev()
        .collect()
}

/// Z-function: for each index, the length of the longest common prefix of `values` and its suffix
/// from that index (Gusfield 1997, §1.4).
fn z_function<T: PartialEq>(values: &[T]) -> Vec<usize> {
    let count = values.len();
    let mut lengths = vec![0; count];
    let (mut left, mut right) = (0, 0);
    for index in 1..count {
        let mut length = if index < right {
            lengths[index - left].min(right - index)
        } else {
            0
        };
        while index + length < count && values[length] == values[index + length] {
            length += 1;
        }
        if index + length > right {
            (left, right) = (index, index + length);
        }
        lengths[index] = length;
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::z_function;

    #[test]
    fn common_prefixes_by_hand() {
        assert_eq!(z_function(b"abcabcab"), [0, 0, 0, 5, 0, 0, 2, 0]);
        assert_eq!(z_function(b"aaaa"), [0, 3, 2, 1]);
        assert_eq!(z_function::<u8>(&[]), [0usize; 0]);
    }
}
