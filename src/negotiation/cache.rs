//! Response cache: a slot, and so a bit, for every tensor that was negotiated before.
//!
//! Every rank makes the same changes in the same order, because each change follows from an
//! agreement of all ranks in the same cycle. So slot numbers have the same meaning everywhere. The
//! parameters in an entry are those of this rank: ranks may gather different numbers of rows.
//!
//! A full cache evicts the least recently used entry. A step with more tensors than slots would
//! then evict each entry just before it is used again. So the cache remembers the names that it
//! evicted last, and doubles its capacity, up to a bound, when one of them returns.
//!
//! Use of an entry only stores a number. The order of last use is a heap that is updated when a
//! slot is needed, so an insertion costs O(log *n*) amortized over the uses before it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::request::Params;
use super::response::Agreed;

/// Number of void entries that the heap of last uses always tolerates.
const VOID_MAX: usize = 64;

/// Cached result of the negotiation of one tensor.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Name of the tensor.
    pub name: Arc<str>,
    /// Parameters of this rank.
    pub params: Arc<Params>,
    /// The rest of the agreement, with every rank taking part.
    pub agreed: Arc<Agreed>,
    last_used: u64,
    /// Key of the slot in the heap of last uses; at most `last_used`.
    queued_at: u64,
}

/// Tensors that were negotiated before, by name and by slot.
#[derive(Debug)]
pub(crate) struct ResponseCache {
    capacity: usize,
    capacity_max: usize,
    slots: Vec<Option<Entry>>,
    /// One bit for each slot that holds a tensor.
    in_use: Vec<u64>,
    free: BinaryHeap<Reverse<u32>>,
    /// Last use at the time of queueing, and slot; entries that do not match the slot's `queued_at`
    /// are void.
    last_uses: BinaryHeap<Reverse<(u64, u32)>>,
    by_name: HashMap<Arc<str>, u32>,
    uses: u64,
    evicted: Evicted,
}

/// Names evicted most recently: as many as the largest capacity exceeds the present one.
#[derive(Debug, Default)]
struct Evicted {
    names: HashSet<Arc<str>>,
    order: VecDeque<Arc<str>>,
}

impl ResponseCache {
    /// Makes an empty cache for `capacity` tensors, which may grow to `capacity_max`; 0 turns it
    /// off.
    pub(crate) fn new(capacity: usize, capacity_max: usize) -> Self {
        Self {
            capacity,
            capacity_max,
            slots: Vec::new(),
            in_use: Vec::new(),
            free: BinaryHeap::new(),
            last_uses: BinaryHeap::new(),
            by_name: HashMap::new(),
            uses: 0,
            evicted: Evicted::default(),
        }
    }

    /// Number of tensors that the cache holds before it evicts one.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Number of 64-bit words with a bit for every slot used so far; the same on all ranks.
    pub(crate) fn words(&self) -> usize {
        self.slots.len().div_ceil(64)
    }

    /// One bit for each slot that holds a tensor, in [`words`](Self::words) words; the same on all
    /// ranks.
    pub(crate) fn in_use(&self) -> &[u64] {
        &self.in_use
    }

    /// Returns the entry in `slot`.
    pub(crate) fn get(&self, slot: u32) -> Option<&Entry> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// Returns the slot of tensor `name`.
    pub(crate) fn slot(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// Records a use of the tensor in `slot` in this cycle.
    pub(crate) fn touch(&mut self, slot: u32) {
        self.uses += 1;
        if let Some(Some(entry)) = self.slots.get_mut(slot as usize) {
            entry.last_used = self.uses;
        }
    }

    /// Empties `slot`; returns its entry.
    pub(crate) fn evict(&mut self, slot: u32) -> Option<Entry> {
        let entry = self.slots.get_mut(slot as usize)?.take()?;
        self.by_name.remove(&entry.name);
        self.in_use[slot as usize / 64] &= !(1 << (slot % 64));
        self.free.push(Reverse(slot));
        Some(entry)
    }

    /// Inserts a tensor; returns its slot, and the slot that was evicted, if any. `None` if the
    /// cache is off.
    pub(crate) fn insert(
        &mut self,
        name: Arc<str>,
        params: impl Into<Arc<Params>>,
        agreed: Arc<Agreed>,
    ) -> Option<(u32, Option<u32>)> {
        if self.capacity == 0 {
            return None;
        }
        if let Some(old) = self.slot(&name) {
            self.evict(old);
        }
        if self.evicted.names.contains(&name) && self.capacity < self.capacity_max {
            self.capacity = (2 * self.capacity).min(self.capacity_max);
            self.evicted = Evicted::default();
        }
        let mut emptied = None;
        if self.by_name.len() >= self.capacity {
            emptied = self.least_recently_used();
            if let Some(entry) = emptied.and_then(|slot| self.evict(slot)) {
                self.evicted
                    .note(entry.name, self.capacity_max.saturating_sub(self.capacity));
            }
        }
        let slot = match self.free.pop() {
            Some(Reverse(slot)) => slot,
            None => {
                self.slots.push(None);
                self.in_use.resize(self.words(), 0);
                (self.slots.len() - 1) as u32
            }
        };
        self.uses += 1;
        self.by_name.insert(Arc::clone(&name), slot);
        self.in_use[slot as usize / 64] |= 1 << (slot % 64);
        self.queue(slot);
        self.slots[slot as usize] = Some(Entry {
            name,
            params: params.into(),
            agreed,
            last_used: self.uses,
            queued_at: self.uses,
        });
        Some((slot, emptied))
    }

    /// Puts `slot` into the heap, with its last use. Removes void entries first if they are the
    /// majority.
    fn queue(&mut self, slot: u32) {
        if self.last_uses.len() > 2 * self.by_name.len() + VOID_MAX {
            let slots = &self.slots;
            let is_valid = |&Reverse((queued_at, slot)): &Reverse<(u64, u32)>| {
                let entry = slots[slot as usize].as_ref();
                entry.is_some_and(|entry| entry.queued_at == queued_at)
            };
            self.last_uses.retain(is_valid);
        }
        self.last_uses.push(Reverse((self.uses, slot)));
    }

    /// Removes the least recently used slot from the heap.
    fn least_recently_used(&mut self) -> Option<u32> {
        while let Some(Reverse((queued_at, slot))) = self.last_uses.pop() {
            let entry = self.slots[slot as usize].as_mut();
            let Some(entry) = entry.filter(|entry| entry.queued_at == queued_at) else {
                continue; // emptied, or used for another tensor meanwhile
            };
            if entry.last_used == queued_at {
                return Some(slot);
            }
            entry.queued_at = entry.last_used;
            self.last_uses.push(Reverse((entry.last_used, slot)));
        }
        None
    }
}

impl Entry {
    /// Number of the cache's use that was the last one of this tensor.
    pub(crate) fn last_use(&self) -> u64 {
        self.last_used
    }
}

impl Evicted {
    fn note(&mut self, name: Arc<str>, limit: usize) {
        if self.names.insert(Arc::clone(&name)) {
            self.order.push_back(name);
        }
        while self.order.len() > limit {
            self.order
                .pop_front()
                .map(|oldest| self.names.remove(&oldest));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::request::OpKind;
    use super::*;
    use crate::tensor::Dtype;

    pub(crate) fn params(elements: usize) -> Params {
        Params::plain(
            OpKind::Allreduce,
            Dtype::F32,
            [elements].into_iter().collect(),
        )
    }

    fn insert(cache: &mut ResponseCache, name: &str) -> Option<(u32, Option<u32>)> {
        cache.insert(name.into(), params(1), Arc::default())
    }

    #[test]
    fn the_least_recently_used_entry_is_evicted_and_its_slot_reused() {
        let mut cache = ResponseCache::new(2, 2);
        assert_eq!(insert(&mut cache, "a"), Some((0, None)));
        assert_eq!(insert(&mut cache, "b"), Some((1, None)));
        cache.touch(0);
        assert_eq!(insert(&mut cache, "c"), Some((1, Some(1))));
        assert_eq!(
            (cache.slot("a"), cache.slot("b"), cache.slot("c")),
            (Some(0), None, Some(1))
        );
        assert_eq!(cache.words(), 1);
    }

    #[test]
    fn the_lowest_free_slot_is_used_first() {
        let mut cache = ResponseCache::new(8, 8);
        for name in ["a", "b", "c"] {
            insert(&mut cache, name);
        }
        cache.evict(2);
        cache.evict(0);
        assert_eq!(insert(&mut cache, "d"), Some((0, None)));
        assert_eq!(insert(&mut cache, "e"), Some((2, None)));
    }

    #[test]
    fn entries_are_evicted_in_the_order_of_last_use_whatever_was_emptied_meanwhile() {
        // Compares with the definition: the slot with the smallest number of last use.
        let mut cache = ResponseCache::new(5, 5);
        let mut uses: Vec<String> = Vec::new(); // names, the last used at the end
        for step in 0u32..2_000 {
            let name = format!("t{}", step.wrapping_mul(2_654_435_761) >> 28);
            uses.retain(|used| *used != name);
            match cache.slot(&name) {
                Some(slot) if step % 7 == 0 => {
                    cache.evict(slot);
                    continue;
                }
                Some(slot) => cache.touch(slot),
                None => {
                    let expected = (uses.len() == 5).then(|| uses.remove(0));
                    let before = expected.and_then(|oldest| cache.slot(&oldest));
                    let (_, emptied) = insert(&mut cache, &name).unwrap();
                    assert_eq!(emptied, before, "step {step}");
                }
            }
            uses.push(name);
            let in_use: u32 = cache.in_use().iter().map(|word| word.count_ones()).sum();
            assert_eq!(in_use as usize, uses.len());
            assert!(cache.last_uses.len() <= 2 * 5 + VOID_MAX + 1);
        }
    }

    #[test]
    fn capacity_zero_holds_nothing() {
        let mut cache = ResponseCache::new(0, 16);
        assert_eq!(insert(&mut cache, "a"), None);
        assert_eq!(cache.words(), 0);
    }

    #[test]
    fn a_step_that_does_not_fit_makes_the_cache_grow_up_to_its_bound() {
        let mut cache = ResponseCache::new(4, 12);
        let step: Vec<String> = (0..10).map(|tensor| format!("t{tensor}")).collect();
        let mut misses = Vec::new();
        for _ in 0..5 {
            let missing: Vec<&String> = step
                .iter()
                .filter(|name| cache.slot(name).is_none())
                .collect();
            misses.push(missing.len());
            for name in missing {
                insert(&mut cache, name);
            }
        }
        assert_eq!(
            (cache.capacity(), misses[4]),
            (12, 0),
            "misses per step: {misses:?}"
        );
    }

    #[test]
    fn a_step_of_many_times_its_capacity_makes_it_grow_too() {
        let mut cache = ResponseCache::new(4, 80);
        let step: Vec<String> = (0..50).map(|tensor| format!("t{tensor}")).collect();
        for _ in 0..7 {
            for name in &step {
                if cache.slot(name).is_none() {
                    insert(&mut cache, name);
                }
            }
        }
        assert_eq!(cache.capacity(), 64);
        assert!(step.iter().all(|name| cache.slot(name).is_some()));
    }

    #[test]
    fn names_that_never_come_back_do_not_make_it_grow() {
        let mut cache = ResponseCache::new(4, 1 << 20);
        for tensor in 0..1000 {
            insert(&mut cache, &format!("unique{tensor}"));
        }
        assert_eq!((cache.capacity(), cache.words()), (4, 1));
    }
}
