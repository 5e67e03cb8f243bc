//! Groups: holds back ready tensors until all members of their group are ready.
//!
//! The members of a group are submitted at once, so they usually become ready in the same cycle. If
//! one of them must be negotiated again while the others are cached, it becomes ready a cycle
//! later. Every rank sees the same tensors become ready in the same cycles, so every rank holds
//! back the same ones.

use std::collections::HashMap;

use crate::negotiation::Group;
use crate::ready::Ready;

/// Ready tensors whose groups are incomplete.
#[derive(Default)]
pub(super) struct Groups {
    held: Vec<Ready>,
    /// Number of members that will never become ready, by group.
    refused: HashMap<u64, u32>,
}

impl Groups {
    /// A member of `group` was refused: the others execute without it.
    pub(super) fn refused(&mut self, group: Group) {
        let refused = self.refused.entry(group.tag).or_default();
        *refused += 1;
        if *refused >= group.size {
            self.refused.remove(&group.tag);
        }
    }

    /// Moves tensors of incomplete groups out of `ready`, and those of groups that became complete
    /// into it.
    pub(super) fn sift(&mut self, ready: &mut Vec<Ready>) {
        let grouped = |ready: &Ready| ready.submission.params.group.is_some();
        if self.held.is_empty() && !ready.iter().any(grouped) {
            return;
        }
        self.held.append(ready);
        let mut here: HashMap<u64, u32> = HashMap::new();
        for group in self
            .held
            .iter()
            .filter_map(|ready| ready.submission.params.group)
        {
            *here.entry(group.tag).or_default() += 1;
        }
        let missing = |group: Group| {
            let count = |of: &HashMap<u64, u32>| of.get(&group.tag).copied().unwrap_or(0);
            group.size > count(&here) + count(&self.refused)
        };
        for one in std::mem::take(&mut self.held) {
            match one.submission.params.group {
                Some(group) if missing(group) => self.held.push(one),
                _ => ready.push(one),
            }
        }
        for group in ready
            .iter()
            .filter_map(|ready| ready.submission.params.group)
        {
            self.refused.remove(&group.tag);
        }
    }

    /// Number of tensors held back.
    pub(super) fn held(&self) -> &[Ready] {
        &self.held
    }

    /// Returns all tensors that are held back, and forgets them.
    pub(super) fn take_held(&mut self) -> impl Iterator<Item = Ready> + use<> {
        std::mem::take(&mut self.held).into_iter()
    }
}
