//! Track: records the events of one engine. Every process set of a rank has an engine, and
//! therefore a track.
//!
//! It is called between collectives, so it must be cheap and never block: an event is a few words
//! appended to a buffer, and the end of a cycle copies the buffer into a lock-free ring that the
//! writer thread empties. A cycle that does not fit there is dropped as a whole and counted, so
//! that every bar has both of its ends. While nothing is recorded, a cycle only checks whether that
//! has changed.
//!
//! A batch has one record; the writer expands it into the bars of each tensor. Names are sent once,
//! through a separate channel, and are numbers from then on.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};

use rtrb::{Producer, RingBuffer};

use super::control::Timeline;
use super::event::{BatchRecord, Member, TENSORS_MAX, TensorId};
use super::inbox::Inbox;
use super::record::{self, NameId};
use super::writer::{Command, MARK_CYCLES};
use crate::clock::Nanos;
use crate::negotiation::OpKind;
use crate::settings::Settings;

/// Events of one engine. Calls come from one thread at a time. Events between
/// [`begin_cycle`](Self::begin_cycle) and [`end_cycle`](Self::end_cycle) are kept or dropped
/// together.
#[derive(Debug)]
pub struct Track {
    timeline: Arc<Timeline>,
    /// Process set; `None` for that of all ranks.
    set: Option<u32>,
    /// This rank's number in the set.
    rank: usize,
    /// Whether this cycle is recorded.
    on: bool,
    /// Records of the current cycle.
    words: record::Words,
    /// Connection to the writer, once something is recorded.
    line: Option<Line>,
    tensors: HashMap<Arc<str>, TensorId>,
    /// Number of marks so far.
    steps: u64,
    epochs: u64,
    /// Change of settings that has not been sent to the writer yet.
    unsaid: Option<(Settings, Nanos)>,
}

/// Connection to the writer.
#[derive(Debug)]
struct Line {
    ring: Producer<u64>,
    constants: Vec<&'static str>,
    names: Sender<Name>,
    shared: Arc<TrackShared>,
}

/// State shared by a track and the writer thread, besides the ring.
#[derive(Debug, Default)]
pub(super) struct TrackShared {
    /// Cycles that did not fit in the ring.
    pub(super) dropped_cycles: AtomicU64,
    /// Whether the track has ended.
    pub(super) ended: AtomicBool,
}

/// Name sent to the writer, rarely and beside the ring. It is sent before the first record that
/// uses it.
#[derive(Debug)]
pub(super) enum Name {
    /// Name in the file of the tensor with the next number.
    Tensor(Arc<str>),
    /// Name of the activity with the next number.
    Constant(&'static str),
}

impl Track {
    pub(super) fn new(timeline: Arc<Timeline>, set: Option<u32>, rank: usize) -> Self {
        Self {
            timeline,
            set,
            rank,
            on: false,
            words: Vec::new(),
            line: None,
            tensors: HashMap::new(),
            steps: 0,
            epochs: 0,
            unsaid: None,
        }
    }

    /// Returns the timeline that this track belongs to.
    pub fn timeline(&self) -> &Arc<Timeline> {
        &self.timeline
    }

    /// Whether the current cycle is recorded. Otherwise events are ignored.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Returns the number of the tensor called `name`: the next one (1, 2, …) if it is new. Slower
    /// than an event; call it once for a tensor and keep the result. Only while the track [is
    /// on](Self::is_on).
    pub fn tensor(&mut self, name: &str) -> TensorId {
        if let Some(&known) = self.tensors.get(name) {
            return known;
        }
        let Some(line) = &self.line else {
            return TensorId::UNRECORDED;
        };
        let number = self.tensors.len() as u32 + 1;
        if number > TENSORS_MAX {
            return TensorId::UNRECORDED;
        }
        if number == TENSORS_MAX {
            tracing::warn!(
                "the timeline is full: it holds {TENSORS_MAX} tensors; further ones are left out"
            );
        }
        let own: Arc<str> = name.into();
        // Two sets may have tensors of the same name, which are two bars.
        let shown = match self.set {
            None => Arc::clone(&own),
            Some(set) => format!("{name} [set {set}]").into(),
        };
        self.tensors.insert(own, TensorId(number));
        // The receiver is gone once the timeline has ended.
        let _ = line.names.send(Name::Tensor(shown));
        TensorId(number)
    }

    /// Begins a cycle, which is kept or dropped as a whole; ends the previous one if that is still
    /// open.
    pub fn begin_cycle(&mut self, now: Nanos) {
        self.hand_over();
        let recording = self.timeline.recording();
        self.on = recording != 0;
        if !self.on {
            return;
        }
        if self.line.is_none() {
            self.line = Some(self.connect());
        }
        if recording & MARK_CYCLES != 0 {
            record::put_cycle(&mut self.words, now);
        }
    }

    /// Records that a tensor is ready on every rank of the set. `ticks` has the ranks whose time is
    /// known, in microseconds on rank 0's clock. Only the set's lowest rank has them; on the other
    /// ranks' tracks, the bar of a negotiation begins with this rank's own submission.
    pub fn negotiated(
        &mut self,
        tensor: TensorId,
        op: OpKind,
        ticks: impl Iterator<Item = (usize, u64)>,
        ended: Nanos,
    ) {
        if self.has_room() {
            record::put_negotiated(&mut self.words, tensor, op, ended, ticks);
        }
    }

    /// Records an executed batch. Each member gets the batch's bar and activities.
    pub fn executed<'m>(
        &mut self,
        batch: &BatchRecord<'_>,
        members: impl IntoIterator<Item = Member<'m>>,
    ) {
        if !self.has_room() {
            return;
        }
        if let Some(line) = &mut self.line {
            let members = members.into_iter();
            record::put_executed(&mut self.words, batch, members, |name| line.name_of(name));
        }
    }

    /// Records that a tensor was refused because of a mismatch between ranks.
    pub fn error(&mut self, tensor: TensorId, began: Nanos, ended: Nanos) {
        if self.has_room() {
            record::put_error(&mut self.words, tensor, began, ended);
        }
    }

    /// Records that a step ends, or has ended, at `at`. The step is counted in any case. Pass the
    /// marks in order, before [`end_cycle`](Self::end_cycle), with all marks that the cycle has
    /// received.
    pub fn mark_steps(&mut self, at: &[Nanos]) {
        self.steps += at.len() as u64;
        if self.has_room() {
            for (behind, &at) in (0..).zip(at.iter().rev()) {
                record::put_step_first(&mut self.words, self.steps - behind, at);
            }
        }
    }

    /// Records marks of epochs, like [`mark_steps`](Self::mark_steps).
    pub fn mark_epochs(&mut self, at: &[Nanos]) {
        for &at in at {
            self.epochs += 1;
            if self.has_room() {
                record::put_epoch(&mut self.words, self.epochs, at);
            }
        }
    }

    /// Records that other settings are in force from `now` on.
    pub fn settings(&mut self, settings: Settings, now: Nanos) {
        self.unsaid = Some((settings, now));
    }

    /// Hands the cycle to the writer, or drops it if the ring is full.
    pub fn end_cycle(&mut self) {
        if self.on {
            self.hand_over();
        }
    }

    /// Ignores events until the next cycle, because the timeline is being started or stopped.
    pub(crate) fn interrupt(&mut self) {
        self.hand_over();
        self.on = false;
    }

    fn hand_over(&mut self) {
        let Some(line) = self.line.as_mut().filter(|_| self.on) else {
            self.words.clear();
            return;
        };
        let unsaid = self.unsaid.take();
        if let Some((settings, at)) = &unsaid {
            record::put_settings(&mut self.words, settings, *at);
        }
        if self.words.is_empty() {
            return;
        }
        if line.ring.push_entire_slice(&self.words).is_err() {
            line.shared.dropped_cycles.fetch_add(1, Ordering::Relaxed);
            self.unsaid = unsaid;
        }
        self.words.clear();
        let quarter_full = line.ring.slots() <= self.timeline.ring_words / 4 * 3;
        if quarter_full {
            self.timeline.ring_bell();
        }
    }

    /// Cycles dropped so far because the ring was full.
    pub fn dropped_cycles(&self) -> u64 {
        let line = self.line.as_ref();
        line.map_or(0, |line| line.shared.dropped_cycles.load(Ordering::Relaxed))
    }

    /// Whether the cycle may still grow: a cycle larger than the ring will be dropped anyway.
    fn has_room(&self) -> bool {
        self.on && self.words.len() <= self.timeline.ring_words
    }

    #[cold]
    fn connect(&self) -> Line {
        let (producer, ring) = RingBuffer::new(self.timeline.ring_words);
        let (names, names_there) = channel();
        let shared = Arc::<TrackShared>::default();
        let inbox = Inbox::new(ring, names_there, Arc::clone(&shared), self.rank);
        self.timeline.send(Command::Track(Box::new(inbox)));
        let mut line = Line {
            ring: producer,
            constants: Vec::new(),
            names,
            shared,
        };
        // Number 0 stands for all names beyond the last number.
        line.name_of("OTHER");
        line
    }
}

impl Line {
    /// Returns the number of one of the runtime's names. A job has about a dozen, so a search by
    /// address is fast.
    fn name_of(&mut self, name: &'static str) -> NameId {
        let known = self
            .constants
            .iter()
            .position(|known| std::ptr::eq(*known, name));
        let Some(position) = known else {
            return self.learn(name);
        };
        NameId(position as u8)
    }

    #[cold]
    fn learn(&mut self, name: &'static str) -> NameId {
        if self.constants.len() > usize::from(u8::MAX) {
            return NameId(0);
        }
        self.constants.push(name);
        let _ = self.names.send(Name::Constant(name));
        NameId((self.constants.len() - 1) as u8)
    }
}

impl Drop for Track {
    fn drop(&mut self) {
        if self.timeline.is_foreign() {
            return; // in a forked child: the parent owns the other end of the ring
        }
        self.hand_over();
        if let Some(line) = &self.line {
            line.shared.ended.store(true, Ordering::Release);
            self.timeline.ring_bell();
        }
    }
}
