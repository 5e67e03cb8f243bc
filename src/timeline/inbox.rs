//! The writer's end of a track: reads its ring and maps numbers to names.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use rtrb::Consumer;

use super::event::TensorId;
use super::record::NameId;
use super::track::{Name, TrackShared};

/// Receiving end of a track.
pub(super) struct Inbox {
    ring: Consumer<u64>,
    names_there: Receiver<Name>,
    shared: Arc<TrackShared>,
    pub(super) names: Names,
}

/// Names for the numbers of a track.
#[derive(Debug)]
pub(super) struct Names {
    /// This rank's number in the track's process set: the lowest rank records when tensors were
    /// negotiated.
    pub(super) rank: usize,
    constants: Vec<&'static str>,
    tensors: Vec<TensorName>,
}

/// Tensor, as the writer knows it.
#[derive(Clone, Debug)]
pub(super) struct TensorName {
    /// Number among all names of tensors of the recording: 0, 1, ….
    pub(super) serial: u32,
    pub(super) name: Arc<str>,
}

impl Inbox {
    pub(super) fn new(
        ring: Consumer<u64>,
        names_there: Receiver<Name>,
        shared: Arc<TrackShared>,
        rank: usize,
    ) -> Self {
        Self {
            ring,
            names_there,
            shared,
            names: Names {
                rank,
                constants: Vec::new(),
                tensors: Vec::new(),
            },
        }
    }

    /// Moves all available words to `words`, and reads the names in them; new names get the next
    /// number of `serials`.
    pub(super) fn take(&mut self, words: &mut Vec<u64>, serials: &mut HashMap<Arc<str>, u32>) {
        words.resize(self.ring.slots(), 0);
        // As many words as are available: cannot fail.
        let taken = self.ring.pop_entire_slice(words).is_ok();
        debug_assert!(taken);
        // After the ring: a name is sent before the first record that uses it.
        for name in self.names_there.try_iter() {
            match name {
                Name::Tensor(name) => {
                    let next = serials.len() as u32;
                    let serial = *serials.entry(Arc::clone(&name)).or_insert(next);
                    self.names.tensors.push(TensorName { serial, name });
                }
                Name::Constant(name) => self.names.constants.push(name),
            }
        }
    }

    pub(super) fn dropped_cycles(&self) -> u64 {
        self.shared.dropped_cycles.load(Ordering::Relaxed)
    }

    /// Whether the track has ended. If this is read before [`take`](Self::take), that call has
    /// taken everything.
    pub(super) fn has_ended(&self) -> bool {
        self.shared.ended.load(Ordering::Acquire)
    }
}

impl Names {
    /// Returns the name of a tensor; `None` for a tensor beyond the last that is recorded.
    pub(super) fn tensor(&self, id: TensorId) -> Option<&TensorName> {
        self.tensors.get((id.0 as usize).checked_sub(1)?)
    }

    pub(super) fn constant(&self, name: NameId) -> &'static str {
        self.constants
            .get(usize::from(name.0))
            .copied()
            .unwrap_or("OTHER")
    }
}
