//! Table of a file's names: assigns a number to each.

use std::collections::HashMap;

use super::model::{NameId, Visitor};

/// Numbers of a file's names; tensors and activities share them.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: HashMap<Box<str>, NameId>,
}

impl Names {
    /// Returns the name's number; a new name is passed to the visitor.
    pub(super) fn id(&mut self, name: &str, visitor: &mut dyn Visitor) -> NameId {
        if let Some(&id) = self.known.get(name) {
            return id;
        }
        // A file with 2^32 names would have tens of gigabytes.
        let id = NameId(u32::try_from(self.known.len()).unwrap_or(u32::MAX));
        self.known.insert(name.into(), id);
        visitor.name(id, name);
        id
    }

    /// Returns the name with this number by linear search: used only for messages.
    pub(super) fn name(&self, id: NameId) -> String {
        let found = self.known.iter().find(|&(_, &known)| known == id);
        found.map(|(name, _)| name.to_string()).unwrap_or_default()
    }
}
