//! The response cache: a slot, and so a bit, for every tensor the ranks have agreed on before.
//!
//! Every rank makes the same changes in the same order, because each change follows from something all ranks
//! agreed on in the same cycle; so slot numbers mean the same everywhere. When full, the least recently used
//! entry makes room.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use super::request::Params;

/// What the ranks agreed on for one tensor.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Name of the tensor.
    pub name: Arc<str>,
    /// What is done with it.
    pub params: Params,
    last_used: u64,
}

/// See the module.
#[derive(Debug)]
pub struct ResponseCache {
    capacity: usize,
    slots: Vec<Option<Entry>>,
    free: BinaryHeap<Reverse<u32>>,
    by_name: HashMap<Arc<str>, u32>,
    uses: u64,
}

impl ResponseCache {
    /// An empty cache for `capacity` tensors; 0 turns it off.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            slots: Vec::new(),
            free: BinaryHeap::new(),
            by_name: HashMap::new(),
            uses: 0,
        }
    }

    /// Number of 64-bit words that hold a bit for every slot in use so far; the same on all ranks.
    pub fn words(&self) -> usize {
        self.slots.len().div_ceil(64)
    }

    /// The entry in `slot`.
    pub fn get(&self, slot: u32) -> Option<&Entry> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// The slot of the tensor called `name`.
    pub fn slot(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// Notes that the tensor in `slot` travels in this cycle.
    pub fn touch(&mut self, slot: u32) {
        self.uses += 1;
        if let Some(Some(entry)) = self.slots.get_mut(slot as usize) {
            entry.last_used = self.uses;
        }
    }

    /// Empties `slot`; returns what it held.
    pub fn evict(&mut self, slot: u32) -> Option<Entry> {
        let entry = self.slots.get_mut(slot as usize)?.take()?;
        self.by_name.remove(&entry.name);
        self.free.push(Reverse(slot));
        Some(entry)
    }

    /// Puts a tensor in; returns its slot, and the slot that was emptied to make room. `None` if the cache is off.
    pub fn insert(&mut self, name: Arc<str>, params: Params) -> Option<(u32, Option<u32>)> {
        if self.capacity == 0 {
            return None;
        }
        if let Some(old) = self.slot(&name) {
            self.evict(old);
        }
        let mut evicted = None;
        if self.by_name.len() >= self.capacity {
            evicted = self.least_recently_used();
            evicted.and_then(|slot| self.evict(slot));
        }
        let slot = match self.free.pop() {
            Some(Reverse(slot)) => slot,
            None => {
                self.slots.push(None);
                (self.slots.len() - 1) as u32
            }
        };
        self.uses += 1;
        self.by_name.insert(Arc::clone(&name), slot);
        self.slots[slot as usize] = Some(Entry {
            name,
            params,
            last_used: self.uses,
        });
        Some((slot, evicted))
    }

    fn least_recently_used(&self) -> Option<u32> {
        let held = self
            .slots
            .iter()
            .enumerate()
            .filter_map(|(slot, entry)| Some((slot, entry.as_ref()?.last_used)));
        held.min_by_key(|&(_, last_used)| last_used)
            .map(|(slot, _)| slot as u32)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::request::OpKind;
    use super::*;
    use crate::tensor::{Dtype, ReduceOp};

    pub(crate) fn params(elements: usize) -> Params {
        Params {
            kind: OpKind::Allreduce,
            dtype: Dtype::F32,
            shape: [elements].into_iter().collect(),
            op: ReduceOp::Sum,
            prescale: 1.0,
            postscale: 1.0,
            root: 0,
            device: None,
        }
    }

    #[test]
    fn the_least_recently_used_makes_room_and_its_slot_is_used_again() {
        let mut cache = ResponseCache::new(2);
        assert_eq!(cache.insert("a".into(), params(1)), Some((0, None)));
        assert_eq!(cache.insert("b".into(), params(1)), Some((1, None)));
        cache.touch(0);
        assert_eq!(cache.insert("c".into(), params(1)), Some((1, Some(1))));
        assert_eq!(
            (cache.slot("a"), cache.slot("b"), cache.slot("c")),
            (Some(0), None, Some(1))
        );
        assert_eq!(cache.words(), 1);
    }

    #[test]
    fn the_lowest_free_slot_is_used_first() {
        let mut cache = ResponseCache::new(8);
        for name in ["a", "b", "c"] {
            cache.insert(name.into(), params(1));
        }
        cache.evict(2);
        cache.evict(0);
        assert_eq!(cache.insert("d".into(), params(1)), Some((0, None)));
        assert_eq!(cache.insert("e".into(), params(1)), Some((2, None)));
    }

    #[test]
    fn capacity_zero_holds_nothing() {
        let mut cache = ResponseCache::new(0);
        assert_eq!(cache.insert("a".into(), params(1)), None);
        assert_eq!(cache.words(), 0);
    }
}
