//! Names of submitted tensors, with the data that is kept from one submission to the next.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use super::{Task, Ticket};
use crate::timeline::period::mix;

/// Name of a tensor, its task and its latest submission.
pub(super) struct Known {
    pub(super) name: Arc<str>,
    pub(super) task: Arc<Task>,
    pub(super) ticket: Arc<Ticket>,
}

/// Entries of all names. A training step mostly submits its tensors in the same order as the
/// previous step, so a search begins at the entry after the previous result. In that order it
/// neither hashes the name nor reads lines of a hash table, which a step of many tensors has
/// evicted from the CPU's cache.
#[derive(Default)]
pub(super) struct Names {
    /// In the order of insertion.
    known: Vec<Known>,
    /// Index of each name's entry.
    places: HashMap<Arc<str>, u32, BuildHasherDefault<NameHasher>>,
    /// Index after the previous result.
    next: usize,
}

impl Names {
    /// Number of names.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns the entry of `name`.
    #[inline]
    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Known> {
        let is_next = |known: &Known| *known.name == *name;
        let place = match self.known.get(self.next) {
            Some(known) if is_next(known) => self.next,
            _ => *self.places.get(name)? as usize,
        };
        self.next = if place + 1 < self.known.len() {
            place + 1
        } else {
            0
        };
        self.known.get_mut(place)
    }

    /// Inserts the entry of a new name.
    pub(super) fn insert(&mut self, known: Known) {
        let place = self.known.len() as u32;
        self.places.insert(Arc::clone(&known.name), place);
        self.known.push(known);
        self.next = 0;
    }

    /// Removes the entries for which `is_kept` is false.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&Known) -> bool) {
        self.known.retain(is_kept);
        self.places.clear();
        let names = self.known.iter().map(|known| Arc::clone(&known.name));
        self.places.extend(names.zip(0..));
        self.next = 0;
    }
}

/// Hashes names, eight bytes at a time. The names come from the program, which has no reason to
/// make them collide.
#[derive(Default)]
struct NameHasher(u64);

impl Hasher for NameHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let words = words.iter().chain(std::iter::once(&last));
        self.0 = words.fold(self.0, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    }

    /// Terminator of a string.
    fn write_u8(&mut self, _: u8) {}
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::Tensor;
    use super::*;
    use crate::negotiation::{OpKind, Params};
    use crate::tensor::{Dtype, Shape};

    fn known(name: &str) -> Known {
        let params = Params::plain(OpKind::Allreduce, Dtype::F32, Shape::from_slice(&[3]));
        Known {
            name: name.into(),
            task: Task::new(Arc::new(Tensor::new(name.into())), Arc::new(params)),
            ticket: Arc::default(),
        }
    }

    fn found(names: &mut Names, name: &str) -> Option<String> {
        names
            .get_mut(name)
            .map(|known| known.task.tensor.name.to_string())
    }

    #[test]
    fn a_name_is_found_in_any_order_and_after_others_were_forgotten() {
        let mut names = Names::default();
        assert_eq!(found(&mut names, "a"), None);
        for name in ["a", "b", "c", "d"] {
            names.insert(known(name));
        }
        // In the order of insertion, in reverse and repeated; in between, a name that does not
        // exist.
        for name in ["a", "b", "c", "d", "a", "d", "c", "b", "b", "c", "c", "a"] {
            assert_eq!(found(&mut names, name).as_deref(), Some(name));
            assert_eq!(found(&mut names, "e"), None);
        }
        names.retain(|known| *known.name != *"b");
        assert_eq!(names.len(), 3);
        for name in ["c", "d", "a", "c", "a"] {
            assert_eq!(found(&mut names, name).as_deref(), Some(name));
            assert_eq!(found(&mut names, "b"), None);
        }
        names.insert(known("b"));
        for name in ["d", "b", "a"] {
            assert_eq!(found(&mut names, name).as_deref(), Some(name));
        }
    }
}
