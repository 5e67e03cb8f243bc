//! The writer thread: empties the tracks into the documents.
//!
//! It sleeps until a ring is a quarter full or a twentieth of a second has passed; while nothing is
//! recorded it sleeps until it is woken. Commands to start and stop a recording arrive through a
//! channel; all events that the tracks handed over before are written first.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use super::control::{Answer, Shared};
use super::documents::Documents;
use super::inbox::Inbox;
use super::record;
use super::suspended;
use crate::clock::Alignment;

/// Longest time that an event stays unwritten: twenty writes a second. Horovod writes at once, and
/// programs read the file a tenth of a second later.
const FLUSH_INTERVAL: Duration = Duration::from_millis(50);

/// Bit: a recording is active.
pub(super) const RECORDING: u32 = 1;
/// Bit: starts of cycles are recorded too.
pub(super) const MARK_CYCLES: u32 = 2;

/// Command to the writer.
pub(super) enum Command {
    /// Adds a track.
    Track(Box<Inbox>),
    /// Starts the recordings that begin with the job.
    Watch { reply: Sender<Answer> },
    /// Starts a recording into this file.
    Start {
        path: PathBuf,
        mark_cycles: bool,
        reply: Sender<Answer>,
    },
    /// Stops that recording.
    Stop { reply: Sender<Answer> },
    /// Applies a measurement of the offset between this rank's clock and rank 0's.
    Aligned(Alignment),
    /// Closes all files and ends the thread.
    Finish,
}

impl Command {
    /// Returns the file that the command refers to.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Start { path, .. } => Some(path),
            _ => None,
        }
    }
}

/// State of the writer thread.
pub(super) struct Writer {
    shared: Arc<Shared>,
    commands: Receiver<Command>,
    inboxes: Vec<Inbox>,
    documents: Documents,
    /// Cycles dropped by tracks that have ended.
    dropped_before: u64,
    words: Vec<u64>,
}

impl Writer {
    pub(super) fn new(
        shared: Arc<Shared>,
        commands: Receiver<Command>,
        documents: Documents,
    ) -> Self {
        Self {
            shared,
            commands,
            inboxes: Vec::new(),
            documents,
            dropped_before: 0,
            words: Vec::new(),
        }
    }

    pub(super) fn align(&mut self, alignment: &Alignment) {
        self.documents.align(alignment);
    }

    /// Runs until [`Command::Finish`] arrives.
    pub(super) fn run(mut self) {
        loop {
            self.shared.rung.store(false, Ordering::Relaxed);
            fence(Ordering::SeqCst); // see `ring_bell`
            while let Ok(command) = self.commands.try_recv() {
                if self.apply(command) {
                    return suspended::keep(self.documents);
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
                self.drain(); // earlier events use the earlier alignment
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

    /// Answers a command after the tracks can read the new state of the recording.
    fn answer(&mut self, reply: &Sender<Answer>, answer: Answer) {
        self.show_recording();
        let _ = reply.send(answer);
    }

    fn show_recording(&self) -> u32 {
        let recording = self.documents.recording();
        self.shared.recording.store(recording, Ordering::Release);
        recording
    }

    /// Writes all events that the tracks have handed over.
    fn drain(&mut self) {
        let Self {
            inboxes,
            documents,
            words,
            ..
        } = self;
        let mut dropped = self.dropped_before;
        inboxes.retain_mut(|inbox| {
            let ended = inbox.has_ended();
            inbox.take(words, &mut documents.serials);
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
