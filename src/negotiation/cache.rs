//! The response cache: a slot, and so a bit, for every tensor the ranks have agreed on before.
//!
//! Every rank makes the same changes in the same order, because each change follows from something all ranks
//! agreed on in the same cycle; so slot numbers mean the same everywhere. What an entry says of a tensor is this
//! rank's own view: ranks may gather different numbers of rows.
//!
//! When full, the least recently used entry makes room. A step of more tensors than there are slots would then evict
//! each of them just before it comes back; so the cache remembers the names it evicted last, and doubles its
//! capacity, up to a bound, when one of them returns.
//!
//! Use of an entry only stores a number. The order of last use is a heap that is brought up to date when room is needed, so
//! an insertion costs O(log *n*) amortized over the uses before it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::request::Params;
use super::response::Agreed;

/// Void entries that the heap of last uses may hold in any case.
const VOID_MAX: usize = 64;

/// What the ranks agreed on for one tensor.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Name of the tensor.
    pub name: Arc<str>,
    /// What this rank does with it.
    pub params: Arc<Params>,
    /// What else was agreed, with every rank taking part.
    pub agreed: Arc<Agreed>,
    last_used: u64,
    /// The key of the slot in the heap of last uses; at most `last_used`.
    queued_at: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ResponseCache {
    capacity: usize,
    capacity_max: usize,
    slots: Vec<Option<Entry>>,
    /// One bit for each slot that holds a tensor.
    in_use: Vec<u64>,
    free: BinaryHeap<Reverse<u32>>,
    /// Last use, as of when it was queued, and slot; those that do not match the slot's entry are void.
    last_uses: BinaryHeap<Reverse<(u64, u32)>>,
    by_name: HashMap<Arc<str>, u32>,
    uses: u64,
    evicted: Evicted,
}

/// Names that had to make room lately: as many as would have found room if the capacity were what it may become.
#[derive(Debug, Default)]
struct Evicted {
    names: HashSet<Arc<str>>,
    order: VecDeque<Arc<str>>,
}

impl ResponseCache {
    /// An empty cache for `capacity` tensors, which may become `capacity_max`; 0 turns it off.
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

    /// Number of tensors it holds at present before it evicts one.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Number of 64-bit words that hold a bit for every slot in use so far; the same on all ranks.
    pub(crate) fn words(&self) -> usize {
        self.slots.len().div_ceil(64)
    }

    /// One bit for each slot that holds a tensor, in [`words`](Self::words) words; the same on all ranks.
    pub(crate) fn in_use(&self) -> &[u64] {
        &self.in_use
    }

    /// The entry in `slot`.
    pub(crate) fn get(&self, slot: u32) -> Option<&Entry> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// The slot of the tensor called `name`.
    pub(crate) fn slot(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// Notes that the tensor in `slot` travels in this cycle.
    pub(crate) fn touch(&mut self, slot: u32) {
        self.uses += 1;
        if let Some(Some(entry)) = self.slots.get_mut(slot as usize) {
            entry.last_used = self.uses;
        }
    }

    /// Empties `slot`; returns what it held.
    pub(crate) fn evict(&mut self, slot: u32) -> Option<Entry> {
        let entry = self.slots.get_mut(slot as usize)?.take()?;
        self.by_name.remove(&entry.name);
        self.in_use[slot as usize / 64] &= !(1 << (slot % 64));
        self.free.push(Reverse(slot));
        Some(entry)
    }

    /// Puts a tensor in; returns its slot, and the slot that was emptied to make room. `None` if the cache is off.
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

    /// Puts `slot` into the heap, as used last, after void entries were removed if they are the larger part.
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

    /// Takes the least recently used slot out of the heap.
    fn least_recently_used(&mut self) -> Option<u32> {
        while let Some(Reverse((queued_at, slot))) = self.last_uses.pop() {
            let entry = self.slots[slot as usize].as_mut();
            let Some(entry) = entry.filter(|entry| entry.queued_at == queued_at) else {
                continue; // emptied since, or used for another tensor
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

impl Evicted {
    fn note(&mut self, name: Arc<str>, limit: usize) {
        if self.names.insert(Arc::clone(&name)) {
            self.order.push_back(name);
        }
        while self.order.len() > limit {
            self.order.pop_front().map(|oldest| self.names.remove(&oldest));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::request::OpKind;
    use super::*;
    use crate::tensor::Dtype;

    pub(crate) fn params(elements: usize) -> Params {
        Params::plain(OpKind::Allreduce, Dtype::F32, [elements].into_iter().collect())
    }

    fn insert(cache: &mut ResponseCache, name: &str) -> Option<(u32, Option<u32>)> {
        cache.insert(name.into(), params(1), Arc::default())
    }

    #[test]
    fn the_least_recently_used_makes_room_and_its_slot_is_used_again() {
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
    fn room_is_made_in_the_order_of_last_use_whatever_was_emptied_meanwhile() {
        // Against the definition: the slot with the smallest number of last use.
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
            let missing: Vec<&String> = step.iter().filter(|name| cache.slot(name).is_none()).collect();
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
    fn a_step_many_times_its_capacity_makes_it_grow_all_the_same() {
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
