//! Fusion planner: assigns ready tensors to batches. A pure function, shared by the runtime and the
//! replay, so that a prediction plans exactly as a job does.
//!
//! Tensors of one class (equal operation, element type, factors, root and device) may share a
//! batch of at most the fusion threshold. The first tensor without a batch opens one; later tensors
//! fill it in order. Tensors that do not fit are skipped, until the skipped tensors have as many
//! bytes as the threshold (the limit of Horovod's `Controller::FuseResponses`: the batch does not
//! wait for tensors further back). A tensor larger than the threshold has its own batch. A
//! group is never split, even if it is larger than the threshold; other tensors may join it if they
//! fit. With threshold 0, every tensor (or group) has its own batch.

use serde::{Deserialize, Serialize};

/// A ready tensor, as the planner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Tensors of different classes never share a batch. All ranks must use the same numbers.
    pub class: u32,
    /// Payload in bytes.
    pub bytes: u64,
    /// Tensors of one group and class share a batch; `None` for a tensor without a group.
    pub group: Option<u64>,
}

/// Batches, as lists of positions in the planned items. Reused from cycle to cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    order: Vec<u32>,
    ends: Vec<u32>,
    scratch: Scratch,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Scratch {
    /// Units (a tensor or a whole group) in order of their first member.
    units: Vec<Unit>,
    /// Members of all units, unit by unit, in order.
    members: Vec<u32>,
    /// For each item, the unit it belongs to.
    unit_of: Vec<u32>,
    /// Units still without a batch, a singly linked list for each class: `next[unit]`.
    next: Vec<u32>,
    /// Units already in a batch.
    taken: Vec<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Unit {
    class: u32,
    bytes: u64,
    first_member: u32,
    members: u32,
}

const NONE: u32 = u32::MAX;

impl Plan {
    /// Plans `items`, given in the order that all ranks agreed on.
    pub fn make(&mut self, items: &[Item], fusion_threshold_bytes: u64) {
        self.order.clear();
        self.ends.clear();
        if fusion_threshold_bytes == 0 && items.iter().all(|item| item.group.is_none()) {
            self.order.extend(0..items.len() as u32);
            self.ends.extend(1..=items.len() as u32);
            return;
        }
        self.make_by_class(items, |_| fusion_threshold_bytes);
    }

    /// Plans `items` with a fusion threshold for each class.
    pub fn make_by_class(&mut self, items: &[Item], fusion_threshold_bytes: impl Fn(u32) -> u64) {
        self.order.clear();
        self.ends.clear();
        if fits_one_batch(items, &fusion_threshold_bytes) {
            self.order.extend(0..items.len() as u32);
            self.ends.push(items.len() as u32);
            return;
        }
        self.scratch.collect_units(items);
        self.scratch.link_classes();
        for first in 0..self.scratch.units.len() {
            if !self.scratch.taken[first] {
                let threshold_bytes = fusion_threshold_bytes(self.scratch.units[first].class);
                self.fill_batch(first as u32, threshold_bytes);
            }
        }
    }

    /// Batches in order of execution; each lists positions in the planned items.
    pub fn batches(&self) -> impl ExactSizeIterator<Item = &[u32]> {
        self.ends.iter().enumerate().map(|(index, &end)| {
            let start = if index == 0 { 0 } else { self.ends[index - 1] };
            &self.order[start as usize..end as usize]
        })
    }

    /// Opens a batch with unit `first` and fills it from the later units of its class.
    fn fill_batch(&mut self, first: u32, threshold_bytes: u64) {
        let Self {
            order,
            ends,
            scratch,
        } = self;
        let mut filled_bytes = scratch.take(first, order);
        let mut passed_over_bytes = 0u64;
        let mut before = first;
        let mut unit = scratch.next[first as usize];
        while unit != NONE && filled_bytes < threshold_bytes && passed_over_bytes <= threshold_bytes
        {
            let after = scratch.next[unit as usize];
            let bytes = scratch.units[unit as usize].bytes;
            if filled_bytes.saturating_add(bytes) <= threshold_bytes {
                filled_bytes += scratch.take(unit, order);
                scratch.next[before as usize] = after;
            } else {
                // A tensor larger than the threshold has its own batch: skipping it delays no other
                // tensor.
                passed_over_bytes += if bytes <= threshold_bytes { bytes } else { 0 };
                before = unit;
            }
            unit = after;
        }
        ends.push(order.len() as u32);
    }
}

/// Whether `items` are of one class, in no group, and together below its threshold: the common case
/// of steps with small tensors.
fn fits_one_batch(items: &[Item], fusion_threshold_bytes: impl Fn(u32) -> u64) -> bool {
    let Some(first) = items.first() else {
        return false;
    };
    let is_like_first = |item: &Item| item.class == first.class && item.group.is_none();
    let bytes = items
        .iter()
        .fold(0u64, |sum, item| sum.saturating_add(item.bytes));
    // Below, not equal to: a batch of exactly the threshold takes no more tensors, not even an
    // empty one.
    bytes < fusion_threshold_bytes(first.class) && items.iter().all(is_like_first)
}

impl Scratch {
    fn collect_units(&mut self, items: &[Item]) {
        self.units.clear();
        self.unit_of.clear();
        // (group, class) → unit; a cycle has few groups, so a linear search from the back is fast.
        let mut groups: Vec<(u64, u32, u32)> = Vec::new();
        for item in items {
            let known = item.group.and_then(|group| {
                groups
                    .iter()
                    .rev()
                    .find(|&&(g, class, _)| (g, class) == (group, item.class))
                    .map(|&(_, _, unit)| unit)
            });
            let unit = known.unwrap_or_else(|| {
                let unit = self.units.len() as u32;
                self.units.push(Unit {
                    class: item.class,
                    ..Unit::default()
                });
                groups.extend(item.group.map(|group| (group, item.class, unit)));
                unit
            });
            let entry = &mut self.units[unit as usize];
            entry.bytes = entry.bytes.saturating_add(item.bytes);
            entry.members += 1;
            self.unit_of.push(unit);
        }
        let mut start = 0;
        for unit in &mut self.units {
            unit.first_member = start;
            start += unit.members;
            unit.members = 0;
        }
        self.members.clear();
        self.members.resize(items.len(), 0);
        for (position, &unit) in self.unit_of.iter().enumerate() {
            let unit = &mut self.units[unit as usize];
            self.members[(unit.first_member + unit.members) as usize] = position as u32;
            unit.members += 1;
        }
    }

    fn link_classes(&mut self) {
        self.taken.clear();
        self.taken.resize(self.units.len(), false);
        self.next.clear();
        self.next.resize(self.units.len(), NONE);
        // (class, its last unit): a job has few classes.
        let mut tails: Vec<(u32, u32)> = Vec::new();
        for (index, unit) in self.units.iter().enumerate() {
            let index = index as u32;
            match tails.iter_mut().find(|(class, _)| *class == unit.class) {
                Some((_, tail)) => {
                    self.next[*tail as usize] = index;
                    *tail = index;
                }
                None => tails.push((unit.class, index)),
            }
        }
    }

    fn take(&mut self, unit: u32, order: &mut Vec<u32>) -> u64 {
        let Unit {
            bytes,
            first_member,
            members,
            ..
        } = self.units[unit as usize];
        self.taken[unit as usize] = true;
        order.extend_from_slice(
            &self.members[first_member as usize..(first_member + members) as usize],
        );
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn item(class: u32, bytes: u64) -> Item {
        Item {
            class,
            bytes,
            group: None,
        }
    }

    fn plan(items: &[Item], threshold: u64) -> Vec<Vec<u32>> {
        let mut plan = Plan::default();
        plan.make(items, threshold);
        plan.batches().map(<[u32]>::to_vec).collect()
    }

    #[test]
    fn fills_in_order_and_looks_ahead_past_what_does_not_fit() {
        let items = [
            item(0, 40),
            item(0, 70),
            item(0, 30),
            item(0, 30),
            item(0, 30),
        ];
        assert_eq!(plan(&items, 100), [vec![0, 2, 3], vec![1, 4]]);
    }

    #[test]
    fn classes_interleave_without_mixing() {
        let items = [item(0, 1), item(1, 1), item(0, 1), item(1, 1)];
        assert_eq!(plan(&items, 100), [vec![0, 2], vec![1, 3]]);
    }

    #[test]
    fn a_larger_tensor_goes_alone_and_zero_means_no_fusion() {
        let items = [item(0, 500), item(0, 1), item(0, 1)];
        assert_eq!(plan(&items, 100), [vec![0], vec![1, 2]]);
        assert_eq!(plan(&items, 0), [vec![0], vec![1], vec![2]]);
    }

    #[test]
    fn a_full_batch_takes_no_more_not_even_a_tensor_of_no_bytes() {
        let items = [item(0, 60), item(0, 40), item(0, 0)];
        assert_eq!(plan(&items, 100), [vec![0, 1], vec![2]]);
        assert_eq!(plan(&items, 101), [vec![0, 1, 2]]);
        assert_eq!(plan(&[], 100), Vec::<Vec<u32>>::new());
    }

    #[test]
    fn a_group_is_never_cut() {
        let group = |bytes| Item {
            class: 0,
            bytes,
            group: Some(7),
        };
        let items = [item(0, 10), group(60), item(0, 10), group(60)];
        assert_eq!(plan(&items, 100), [vec![0, 2], vec![1, 3]]);
        assert_eq!(plan(&items, 0), [vec![0], vec![1, 3], vec![2]]);
        assert_eq!(plan(&items, 200), [vec![0, 1, 3, 2]]);
    }

    #[test]
    fn looking_ahead_ends_when_a_threshold_of_bytes_has_been_passed_over() {
        // The first batch passes over 60 and 60 (120 > 100) and does not look at the 40 any more;
        // the second does.
        let items = [item(0, 60), item(0, 60), item(0, 60), item(0, 40)];
        assert_eq!(plan(&items, 100), [vec![0], vec![1, 3], vec![2]]);
    }

    proptest! {
        #[test]
        fn every_tensor_travels_once_within_the_threshold_and_in_order(
            raw in proptest::collection::vec((0u32..3, 0u64..200, proptest::option::weighted(0.2, 0u64..4)), 0..80),
            threshold in 0u64..400,
        ) {
            let items: Vec<Item> = raw.iter().map(|&(class, bytes, group)| Item { class, bytes, group }).collect();
            let batches = plan(&items, threshold);
            let mut seen: Vec<u32> = batches.iter().flatten().copied().collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..items.len() as u32).collect::<Vec<_>>());
            let mut first = None;
            for batch in &batches {
                let of = |position: &u32| items[*position as usize];
                prop_assert!(batch.iter().all(|p| of(p).class == of(&batch[0]).class));
                let bytes: u64 = batch.iter().map(|p| of(p).bytes).sum();
                let opener = of(&batch[0]);
                let one_unit = batch.len() == 1 || (opener.group.is_some() && batch.iter().all(|p| of(p).group == opener.group));
                prop_assert!(bytes <= threshold || one_unit);
                prop_assert!(first < Some(batch[0]));
                first = Some(batch[0]);
            }
            // A group of one class is in one batch.
            for group in 0..4 {
                for class in 0..3 {
                    let holding = batches.iter().filter(|batch| batch.iter().any(|p| {
                        let item = items[*p as usize];
                        item.group == Some(group) && item.class == class
                    })).count();
                    prop_assert!(holding <= 1);
                }
            }
        }
    }
}
