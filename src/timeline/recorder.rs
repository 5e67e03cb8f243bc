//! The recorder: the cycle's side of the timeline.
//!
//! It is called between collectives, so it must cost next to nothing and never wait: an event is a few words
//! appended to a buffer, and the end of a cycle copies the buffer into a lock-free ring that the
//! writer thread empties. A cycle that finds no room there is dropped whole, so that no bar ever
//! loses one of its ends, and counted.
//!
//! One record is made for a batch; the writer expands it into the bars of each tensor. Names cross once, through
//! a channel of their own, and are numbers from then on.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::SystemTime;

use rtrb::{Producer, RingBuffer};

use super::event::{BatchRecord, Member, TENSORS_MAX, TensorId};
use super::horovod::Format;
use super::record::{self, NameId};
use super::writer::{Document, Name, Output, Shared, Writer};
use crate::clock::{Clock, MonotonicClock, Nanos};
use crate::negotiation::OpKind;

/// Words in the ring: 8 MiB, about a tenth of a second of the busiest job (1,000 small tensors a millisecond), so
/// that a hiccup of the disk loses nothing.
const RING_WORDS: usize = 1 << 20;

/// Records what one rank does into a file in Horovod's format.
///
/// Calls come from one thread at a time. Between [`begin_cycle`](Self::begin_cycle) and
/// [`end_cycle`](Self::end_cycle) lies what is kept or dropped together.
#[derive(Debug)]
pub struct Recorder {
    start: Nanos,
    mark_cycles: bool,
    /// The cycle under way.
    words: record::Words,
    ring: Producer<u64>,
    ring_words: usize,
    tensors: HashMap<Arc<str>, TensorId>,
    constants: Vec<&'static str>,
    names: Sender<Name>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    process: u32,
}

impl Recorder {
    /// Opens (and empties) the file at `path`, writes its metadata and starts the writer thread. `start` is the
    /// file's time 0.
    ///
    /// # Errors
    /// If the file cannot be written to at arbitrary offsets, or the thread cannot be started.
    pub fn create(path: &Path, mark_cycles: bool, start: Nanos) -> io::Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        Self::with_output::<File>(file, path, mark_cycles, start, RING_WORDS)
    }

    pub(super) fn with_output<O: Output + 'static>(
        output: O,
        path: &Path,
        mark_cycles: bool,
        start: Nanos,
        ring_words: usize,
    ) -> io::Result<Self> {
        let since_start = MonotonicClock.now().since(start);
        let wall = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let start_epoch_us = wall.saturating_sub(since_start).as_micros() as u64;
        let document = Document::create(output, Format::new(start, start_epoch_us))?;
        let (producer, consumer) = RingBuffer::new(ring_words);
        let (names, names_there) = channel();
        let shared = Arc::new(Shared::default());
        let writer = Writer {
            document,
            path: path.to_owned(),
            ring: consumer,
            names: names_there,
            shared: Arc::clone(&shared),
            words: Vec::new(),
            dropped_said: 0,
        };
        let thread = std::thread::Builder::new()
            .name("ronde-timeline".into())
            .spawn(move || writer.run())?;
        let mut recorder = Self {
            start,
            mark_cycles,
            words: Vec::new(),
            ring: producer,
            ring_words,
            tensors: HashMap::new(),
            constants: Vec::new(),
            names,
            shared,
            thread: Some(thread),
            process: std::process::id(),
        };
        // Number 0 stands for all names beyond the last number.
        recorder.name_of("OTHER");
        Ok(recorder)
    }

    /// The number of the tensor called `name`: the next one (1, 2, …) if it has none yet. Slower than an event; ask
    /// once for a tensor and keep the answer.
    pub fn tensor(&mut self, name: &str) -> TensorId {
        if let Some(&known) = self.tensors.get(name) {
            return known;
        }
        let number = self.tensors.len() as u32 + 1;
        if number > TENSORS_MAX {
            return TensorId::UNRECORDED;
        }
        if number == TENSORS_MAX {
            tracing::warn!("the timeline is full: it holds {TENSORS_MAX} tensors; further ones are left out");
        }
        let name: Arc<str> = name.into();
        self.tensors.insert(Arc::clone(&name), TensorId(number));
        // Nobody listens after a failed write; then nothing is recorded either.
        let _ = self.names.send(Name::Tensor(name));
        TensorId(number)
    }

    /// Begins what is kept or dropped together; ends the previous one, if that is still open.
    pub fn begin_cycle(&mut self, now: Nanos) {
        self.end_cycle();
        if self.mark_cycles {
            record::put_cycle(&mut self.words, now);
        }
    }

    /// A tensor has become ready on every rank, of which rank 0 first heard at `began`. `ticks` gives the ranks
    /// whose time is known.
    pub fn negotiated(
        &mut self,
        tensor: TensorId,
        op: OpKind,
        began: Nanos,
        ticks: impl Iterator<Item = (usize, Nanos)>,
        ended: Nanos,
    ) {
        if self.has_room() {
            let name = self.name_of(op.negotiate_name());
            record::put_negotiated(&mut self.words, tensor, name, (began, ended), self.start, ticks);
        }
    }

    /// A batch has been executed. Each member gets the batch's bar and activities.
    pub fn executed<'m>(&mut self, batch: &BatchRecord<'_>, members: impl IntoIterator<Item = Member<'m>>) {
        if self.has_room() {
            let mut words = std::mem::take(&mut self.words);
            record::put_executed(&mut words, batch, members.into_iter(), |name| self.name_of(name));
            self.words = words;
        }
    }

    /// A tensor was refused, because ranks disagreed about it.
    pub fn error(&mut self, tensor: TensorId, began: Nanos, ended: Nanos) {
        if self.has_room() {
            record::put_error(&mut self.words, tensor, began, ended);
        }
    }

    /// Hands the cycle to the writer, or drops it if the ring is full.
    pub fn end_cycle(&mut self) {
        if self.words.is_empty() || self.shared.broken.load(Ordering::Relaxed) {
            self.words.clear();
            return;
        }
        if self.ring.push_entire_slice(&self.words).is_err() {
            self.shared.dropped_cycles.fetch_add(1, Ordering::Relaxed);
        }
        self.words.clear();
        let quarter_full = self.ring.slots() <= self.ring_words / 4 * 3;
        if quarter_full && !self.shared.rung.load(Ordering::Relaxed) {
            self.shared.rung.store(true, Ordering::Relaxed);
            self.ring_bell();
        }
    }

    /// Cycles dropped so far because the ring was full.
    pub fn dropped_cycles(&self) -> u64 {
        self.shared.dropped_cycles.load(Ordering::Relaxed)
    }

    /// Writes everything and closes the file. Dropping the recorder does the same.
    pub fn finish(self) {}

    /// Whether the cycle may still grow: once larger than the ring it will be dropped anyway.
    fn has_room(&self) -> bool {
        self.words.len() <= self.ring_words
    }

    /// The number of a name of ours. A job has a dozen, so a scan by address finds one at once.
    fn name_of(&mut self, name: &'static str) -> NameId {
        let known = self.constants.iter().position(|known| std::ptr::eq(*known, name));
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

    fn ring_bell(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // A forked child has the recorder but not its thread: nothing to wait for, and the file is the parent's.
            std::mem::forget(self.thread.take());
            return;
        }
        self.end_cycle();
        self.shared.finished.store(true, Ordering::Release);
        self.ring_bell();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the timeline's writer thread panicked: the end of the timeline is missing");
        }
    }
}
