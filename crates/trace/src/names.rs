//! Names and their numbers.

use std::collections::HashMap;

use super::model::{NameId, Visitor};

/// The one table of a file's names.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: HashMap<Box<str>, NameId>,
}

impl Names {
    /// The name's number; the visitor hears of a new one.
    pub(super) fn id(&mut self, name: &str, visitor: &mut dyn Visitor) -> NameId {
        if let Some(&id) = self.known.get(name) {
            return id;
        }
        // A file of 2^32 names has at least as many gigabytes.
        let id = NameId(u32::try_from(self.known.len()).unwrap_or(u32::MAX));
        self.known.insert(name.into(), id);
        visitor.name(id, name);
        id
    }

    /// A number's name, searched for: nobody asks who is in a hurry.
    pub(super) fn name(&self, id: NameId) -> String {
        let found = self.known.iter().find(|&(_, &known)| known == id);
        found.map(|(name, _)| name.to_string()).unwrap_or_default()
    }
}
