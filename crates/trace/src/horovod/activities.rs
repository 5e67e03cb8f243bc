//! Table of activity names and their phases, with a fast path: few different names, one lookup per
//! bar.

use std::collections::HashMap;

use super::super::json::Text;
use super::super::model::{NameId, Phase};
use super::super::reader::Out;
use super::super::vocabulary;

/// Names that are compared one by one before hashing; real files have a dozen.
const RECENT_MAX: usize = 24;

/// Names seen so far, with number and phase.
#[derive(Debug, Default)]
pub(super) struct Activities {
    recent: Vec<(Box<[u8]>, NameId, Phase)>,
    others: HashMap<Box<[u8]>, (NameId, Phase)>,
}

impl Activities {
    /// Returns the name's number and its phase. An unknown name counts as the collective: that is
    /// the activity whose name differs among Horovod's backends.
    pub(super) fn look_up(&mut self, name: Text<'_>, out: &mut Out<'_>) -> (NameId, Phase) {
        if let Some(&(_, id, phase)) = self.recent.iter().find(|(known, ..)| **known == *name.raw) {
            return (id, phase);
        }
        if let Some(&found) = self.others.get(name.raw) {
            return found;
        }
        let phase = vocabulary::phase(name.raw).unwrap_or(Phase::Collective);
        let id = out.name(&name.decode());
        if self.recent.len() < RECENT_MAX {
            self.recent.push((name.raw.into(), id, phase));
        } else {
            self.others.insert(name.raw.into(), (id, phase));
        }
        (id, phase)
    }
}
