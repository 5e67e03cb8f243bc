//! Timeline of a process: owns the tracks, and starts and stops their recording.
//!
//! The engines of all process sets share it. Each has a [`Track`] of its own; one writer thread,
//! started with the first recording, writes the events of the tracks to the files.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};

use super::documents::Documents;
use super::files::{Disk, Files, after_reset, of_rank};
use super::line::Line;
use super::options::Options;
use super::suspended;
use super::track::Track;
use super::writer::{Command, Writer};
use crate::clock::{Alignment, Clock};
use crate::command::TimelineCommand;
use crate::error::{Error, SettingsError};
use crate::sync::lock;

/// Words in a ring: 8 MiB, about a tenth of a second of the busiest job (1,000 small tensors a
/// millisecond), so that no event is lost during a short delay of the disk.
const RING_WORDS: usize = 1 << 20;

/// Timeline of one process.
#[derive(Debug)]
pub struct Timeline {
    options: Options,
    shared: Arc<Shared>,
    pub(super) ring_words: usize,
    commands: Sender<Command>,
    /// Writer thread to wake, once it runs.
    bell: OnceLock<Thread>,
    writer: Mutex<WriterThread>,
    process: u32,
}

/// State shared by the tracks and the writer thread, besides the rings.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Kinds of events that are recorded: 0 or bits of [`writer`](super::writer). Set by the
    /// writer, read by each cycle.
    pub(super) recording: AtomicU32,
    /// Whether the writer has been woken and has not run yet: one wake-up is enough.
    pub(super) rung: AtomicBool,
    /// Cycles dropped so far by all tracks, as counted by the writer.
    pub(super) dropped_cycles: AtomicU64,
}

enum WriterThread {
    /// No recording has started so far.
    Unstarted(Box<Writer>),
    Running(JoinHandle<()>),
    Over,
}

impl std::fmt::Debug for WriterThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unstarted(_) => "Unstarted",
            Self::Running(_) => "Running",
            Self::Over => "Over",
        })
    }
}

impl Timeline {
    /// Creates the timeline of a process. Starts recording, if the options say so; the present is
    /// time 0 of the files.
    ///
    /// # Errors
    /// [`SettingsError::Output`] for a file or folder that cannot be written, or a thread that
    /// cannot be started.
    pub fn new(options: Options, clock: &dyn Clock) -> Result<Arc<Self>, Error> {
        Self::with_files(options, clock, Box::new(Disk), RING_WORDS)
    }

    /// Whether something is being recorded.
    pub fn is_recording(&self) -> bool {
        self.shared.recording.load(Ordering::Relaxed) != 0
    }

    pub(super) fn with_files(
        options: Options,
        clock: &dyn Clock,
        files: Box<dyn Files>,
        ring_words: usize,
    ) -> Result<Arc<Self>, Error> {
        let (commands, received) = channel();
        let shared = Arc::<Shared>::default();
        let resets = options.resets;
        let target = options.target().filter(|_| resets > 0);
        let suspended = target.and_then(|target| suspended::take(&target));
        let is_resumed = suspended.is_some();
        let documents = match suspended {
            Some(mut documents) => {
                documents.resume(options.clone(), clock.now());
                documents
            }
            None => Documents::new(options.clone(), Line::new(clock), files),
        };
        let writer = Writer::new(Arc::clone(&shared), received, documents);
        let timeline = Arc::new(Self {
            options,
            shared,
            ring_words,
            commands,
            bell: OnceLock::new(),
            writer: Mutex::new(WriterThread::Unstarted(Box::new(writer))),
            process: std::process::id(),
        });
        let options = &timeline.options;
        if is_resumed
            || options.byteps.is_some()
            || (options.dynamic && options.steps.is_some() && options.has_file())
        {
            // Steps are counted from the first one.
            timeline.call(|reply| Command::Watch { reply })?;
        }
        if let Some(path) = options.path.as_ref().filter(|_| !is_resumed) {
            timeline.start(&after_reset(path, resets), options.mark_cycles)?;
        }
        Ok(timeline)
    }

    /// Creates the track of one engine: that of the process set `set` (`None`: the set of all
    /// ranks), in which this rank is number `rank`. The set's number is appended to the names of
    /// tensors of other sets than that of all ranks: `gradient [set 2]`.
    pub fn track(self: &Arc<Self>, set: Option<u32>, rank: usize) -> Track {
        Track::new(Arc::clone(self), set, rank)
    }

    /// Rank of this process in the job.
    pub fn rank(&self) -> usize {
        self.options.rank
    }

    /// Applies a command of rank 0 and returns when that is done. See `TimelineCommand`.
    ///
    /// # Errors
    /// [`SettingsError::Output`] for a file that cannot be written; nothing is then recorded.
    pub fn apply(&self, command: &TimelineCommand) -> Result<(), Error> {
        match command {
            TimelineCommand::Start { path, mark_cycles } => self.start(path, *mark_cycles),
            TimelineCommand::Stop => self.stop(),
        }
    }

    /// Records into `path`, or on other ranks that record, into a file beside it.
    fn start(&self, path: &Path, mark_cycles: bool) -> Result<(), Error> {
        if !self.options.has_file() {
            return Ok(());
        }
        let path = of_rank(path, self.options.rank);
        self.call(|reply| Command::Start {
            path,
            mark_cycles,
            reply,
        })
    }

    fn stop(&self) -> Result<(), Error> {
        if !matches!(*lock(&self.writer), WriterThread::Running(_)) {
            return Ok(());
        }
        self.call(|reply| Command::Stop { reply })
    }

    /// Applies a measurement of the offset between this rank's clock and rank 0's.
    pub fn align(&self, alignment: &Alignment) {
        if let WriterThread::Unstarted(writer) = &mut *lock(&self.writer) {
            writer.align(alignment);
            return;
        }
        self.send(Command::Aligned(*alignment));
    }

    /// Cycles dropped so far because a ring was full, as counted by the writer.
    pub fn dropped_cycles(&self) -> u64 {
        self.shared.dropped_cycles.load(Ordering::Relaxed)
    }

    /// Writes all events that the tracks have handed over, and closes the files.
    pub fn finish(&self) {
        if self.is_foreign() {
            return;
        }
        let before = std::mem::replace(&mut *lock(&self.writer), WriterThread::Over);
        let WriterThread::Running(thread) = before else {
            return;
        };
        self.send(Command::Finish);
        self.wake();
        if thread.join().is_err() {
            tracing::error!(
                "the timeline's writer thread panicked: the end of the timeline is missing"
            );
        }
    }

    /// Kinds of events that are recorded.
    pub(super) fn recording(&self) -> u32 {
        self.shared.recording.load(Ordering::Relaxed)
    }

    /// Whether this process was forked from the one that owns the timeline: the thread does not
    /// exist here, and the files belong to the parent.
    pub(super) fn is_foreign(&self) -> bool {
        self.process != std::process::id()
    }

    /// Sends a command to the writer, which handles it when it next runs.
    pub(super) fn send(&self, command: Command) {
        // Fails when the timeline has ended: the command is then not needed.
        let _ = self.commands.send(command);
    }

    /// Wakes the writer, unless it has been woken already.
    pub(super) fn ring_bell(&self) {
        // Pairs with the fence in `Writer::run`: either that thread sees what was written before
        // this call, or this one sees that it has looked.
        fence(Ordering::SeqCst);
        if !self.shared.rung.swap(true, Ordering::Relaxed) {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(thread) = self.bell.get() {
            thread.unpark();
        }
    }

    /// Sends a command to the writer, which is started if necessary, and waits for its answer.
    fn call(&self, command: impl FnOnce(Sender<Answer>) -> Command) -> Result<(), Error> {
        let (reply, answer) = channel();
        let command = command(reply);
        let path = command.path().map_or_else(PathBuf::new, Path::to_owned);
        self.ensure_running()
            .map_err(|error| output(path.clone(), error))?;
        self.send(command);
        self.wake();
        answer.recv().unwrap_or_else(|_| {
            let gone = std::io::Error::other("the timeline's writer has ended");
            Err(output(path, gone))
        })
    }

    fn ensure_running(&self) -> std::io::Result<()> {
        let mut state = lock(&self.writer);
        match std::mem::replace(&mut *state, WriterThread::Over) {
            WriterThread::Unstarted(writer) => {
                let thread = std::thread::Builder::new()
                    .name("ronde-timeline".into())
                    .spawn(move || writer.run())?;
                self.bell.get_or_init(|| thread.thread().clone());
                *state = WriterThread::Running(thread);
            }
            other => *state = other,
        }
        Ok(())
    }
}

/// The writer's answer to a command.
pub(super) type Answer = Result<(), Error>;

/// Error of a timeline that cannot be written.
pub(super) fn output(path: PathBuf, error: std::io::Error) -> Error {
    Error::Settings(SettingsError::Output {
        what: "the timeline",
        path,
        variable: "HOROVOD_TIMELINE",
        source: Arc::new(error),
    })
}

impl Drop for Timeline {
    fn drop(&mut self) {
        if self.is_foreign() {
            // The parent may have held the lock at the fork: it is not taken.
            let writer = self
                .writer
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(std::mem::replace(writer, WriterThread::Over));
            return;
        }
        self.finish();
    }
}
