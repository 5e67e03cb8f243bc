//! The writer thread: empties the tracks into the documents.
//!
//! It sleeps until a ring is a quarter full or a twentieth of a second has passed; while nothing is recorded it sleeps until
//! it is told to. Orders to begin and end a recording come to it through a channel: what the tracks have handed over
//! before is written first.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use super::control::{Answer, Shared};
use super::documents::Documents;
use super::inbox::Inbox;
use super::record;
use crate::clock::Alignment;

/// Longest time that an event stays unwritten. Horovod writes at once, and programs look into the file a tenth of a second
/// later; this is twenty writes a second.
const FLUSH_INTERVAL: Duration = Duration::from_millis(50);

/// Bits of what is recorded. Something is.
pub(super) const RECORDING: u32 = 1;
/// The beginnings of cycles too.
pub(super) const MARK_CYCLES: u32 = 2;

/// What the writer is told.
pub(super) enum Command {
    /// There is another track.
    Track(Box<Inbox>),
    /// Record whatever is to be recorded from the beginning on.
    Watch { reply: Sender<Answer> },
    /// Record into this file.
    Start {
        path: PathBuf,
        mark_cycles: bool,
        reply: Sender<Answer>,
    },
    /// Close that file.
    Stop { reply: Sender<Answer> },
    /// How this rank's clock relates to rank 0's.
    Aligned(Alignment),
    /// Close all and end.
    Finish,
}

impl Command {
    /// The file that it is about.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Start { path, .. } => Some(path),
            _ => None,
        }
    }
}

/// The thread's state.
pub(super) struct Writer {
    shared: Arc<Shared>,
    commands: Receiver<Command>,
    inboxes: Vec<Inbox>,
    documents: Documents,
    /// Tensors of all tracks so far.
    tensors: u32,
    /// Cycles dropped by tracks that have ended.
    dropped_before: u64,
    words: Vec<u64>,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, commands: Receiver<Command>, documents: Documents) -> Self {
        Self {
            shared,
            commands,
            inboxes: Vec::new(),
            documents,
            tensors: 0,
            dropped_before: 0,
            words: Vec::new(),
        }
    }

    pub(super) fn align(&mut self, alignment: &Alignment) {
        self.documents.align(alignment);
    }

    /// Runs until it is told to end.
    pub(super) fn run(mut self) {
        loop {
            self.shared.rung.store(false, Ordering::Release);
            while let Ok(command) = self.commands.try_recv() {
                if self.apply(command) {
                    return;
                }
            }
            self.drain();
            if self.show_recording() == 0 {
                std::thread::park();
            } else {
                std::thread::park_timeout(FLUSH_INTERVAL);
            }
        }
    }

    /// Applies a command. Returns true if the writer must end.
    fn apply(&mut self, command: Command) -> bool {
        match command {
            Command::Track(inbox) => self.inboxes.push(*inbox),
            Command::Watch { reply } => {
                let answer = self.documents.watch();
                self.answer(&reply, answer);
            }
            Command::Start {
                path,
                mark_cycles,
                reply,
            } => {
                self.drain();
                let answer = self.documents.start(&path, mark_cycles);
                self.answer(&reply, answer);
            }
            Command::Stop { reply } => {
                self.drain();
                self.documents.stop();
                self.answer(&reply, Ok(()));
            }
            Command::Aligned(alignment) => {
                self.drain(); // what was recorded before is on the line as it was
                self.documents.align(&alignment);
            }
            Command::Finish => {
                self.drain();
                self.documents.finish();
                self.shared.recording.store(0, Ordering::Release);
                return true;
            }
        }
        false
    }

    /// Whoever asked goes on when the tracks can see what is recorded now.
    fn answer(&mut self, reply: &Sender<Answer>, answer: Answer) {
        self.show_recording();
        let _ = reply.send(answer);
    }

    fn show_recording(&self) -> u32 {
        let recording = self.documents.recording();
        self.shared.recording.store(recording, Ordering::Release);
        recording
    }

    /// Writes everything that the tracks have handed over.
    fn drain(&mut self) {
        let Self {
            inboxes,
            documents,
            words,
            tensors,
            ..
        } = self;
        let mut dropped = self.dropped_before;
        inboxes.retain_mut(|inbox| {
            let ended = inbox.has_ended();
            inbox.take(words, tensors);
            let mut rest = &words[..];
            while let Some(record) = record::take(&mut rest) {
                documents.record(&inbox.names, record);
            }
            debug_assert!(rest.is_empty(), "a record was cut");
            dropped += inbox.dropped_cycles();
            if ended {
                self.dropped_before += inbox.dropped_cycles();
            }
            !ended
        });
        self.shared.dropped_cycles.store(dropped, Ordering::Relaxed);
        documents.flush(dropped);
    }
}
