//! Open files: a document in Horovod's format, a trace in BytePS's, both or none; selects the
//! records for each.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::byteps::Trace;
use super::control::{Answer, output};
use super::document::Document;
use super::files::{Files, is_gz};
use super::inbox::Names;
use super::line::Line;
use super::options::Options;
use super::record::{self, Executed, MemberWords, Record};
use super::steps::{Steps, Window};
use super::writer::{MARK_CYCLES, RECORDING};
use crate::clock::{Alignment, Nanos};
use crate::error::SettingsError;

/// Files that the writer has open.
pub(super) struct Documents {
    options: Options,
    line: Line,
    files: Box<dyn Files>,
    horovod: Option<Document>,
    mark_cycles: bool,
    /// Steps that the file in Horovod's format is restricted to.
    window: Option<Window>,
    byteps: Option<Trace>,
    /// Whether steps are counted, because a file depends on them.
    counts: bool,
    steps: Steps,
    /// Start of the current cycle, to be marked if a record of the cycle is written.
    cycle: Option<Nanos>,
    /// Number of tensors that have been negotiated and not executed yet.
    under_way: usize,
    /// Cycles dropped so far, and before the last reset.
    dropped: u64,
    dropped_before: u64,
    dropped_said: bool,
    /// Numbers of the tensors by name.
    pub(super) serials: HashMap<Arc<str>, u32>,
    /// File of the recording that began with the context, before any reset.
    target: Option<PathBuf>,
    marks: Marks,
}

/// Numbers of the last marked step and epoch, and of those before the last reset, to which the
/// track's numbers are added.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    step: u64,
    epoch: u64,
    steps_before: u64,
    epochs_before: u64,
}

impl Documents {
    pub(super) fn new(options: Options, line: Line, files: Box<dyn Files>) -> Self {
        let byteps = options.byteps.as_ref();
        let byteps = byteps.map(|byteps| {
            Trace::new(
                byteps.file(options.local_rank, options.cross_rank),
                byteps.steps,
                line,
                options.rank == 0,
            )
        });
        let window = options
            .steps
            .filter(|_| options.has_file())
            .map(Window::new);
        Self {
            counts: byteps.is_some() || window.is_some(),
            mark_cycles: options.mark_cycles,
            target: options.target(),
            options,
            line,
            files,
            horovod: None,
            window,
            byteps,
            steps: Steps::default(),
            cycle: None,
            under_way: 0,
            dropped: 0,
            dropped_before: 0,
            dropped_said: false,
            serials: HashMap::new(),
            marks: Marks::default(),
        }
    }

    /// File whose recording can be continued after a reset.
    pub(super) fn target(&self) -> Option<&Path> {
        self.target.as_deref()
    }

    /// Continues in a new context, which begins at `now`.
    pub(super) fn resume(&mut self, options: Options, now: Nanos) {
        self.line.restart();
        self.options = options;
        self.dropped_before = self.dropped;
        self.marks.steps_before = self.marks.step;
        self.marks.epochs_before = self.marks.epoch;
        self.under_way = 0;
        if let Some(document) = &mut self.horovod {
            document.format.reset(&self.options, self.line, now);
        }
    }

    /// Kinds of events that the tracks have to record.
    pub(super) fn recording(&self) -> u32 {
        let marks = if self.mark_cycles { MARK_CYCLES } else { 0 };
        let comes = |window: &Window| self.options.dynamic && !window.is_over(&self.steps);
        let counts = self.byteps.is_some() || self.window.as_ref().is_some_and(comes);
        match (&self.horovod, counts) {
            (Some(_), _) => RECORDING | marks,
            (None, true) => RECORDING,
            (None, false) => 0,
        }
    }

    /// Checks that the files can be written.
    pub(super) fn watch(&mut self) -> Answer {
        if let (Some(trace), Some(byteps)) = (&self.byteps, &self.options.byteps)
            && let Err(error) = trace.prepare(&mut *self.files)
        {
            return Err(SettingsError::Output {
                what: "the BytePS trace",
                path: byteps.folder.clone(),
                variable: "BYTEPS_TRACE_DIR",
                source: Arc::new(error),
            }
            .into());
        }
        Ok(())
    }

    /// Begins a document in Horovod's format.
    pub(super) fn start(&mut self, path: &Path, mark_cycles: bool) -> Answer {
        self.mark_cycles = mark_cycles;
        if self
            .horovod
            .as_ref()
            .is_some_and(|document| document.path() == path)
        {
            return Ok(());
        }
        self.stop();
        self.dropped_said = false;
        let document = Document::create(
            &mut *self.files,
            path,
            &self.options,
            self.line,
            self.options.settings,
            self.dropped,
        );
        self.horovod = Some(document.map_err(|error| output(path.to_owned(), error))?);
        Ok(())
    }

    /// Ends the document in Horovod's format.
    pub(super) fn stop(&mut self) {
        if let Some(document) = self.horovod.take() {
            document.close();
        }
        self.cycle = None;
    }

    /// Completes all files. A file that the next context can continue stays open.
    pub(super) fn finish(&mut self) {
        self.say_if_empty();
        self.flush_horovod();
        let is_compressed = |document: &Document| is_gz(document.path());
        if self.horovod.as_ref().is_some_and(is_compressed) {
            self.target = None;
        }
        if self.target.is_none() {
            self.stop();
        }
        self.cycle = None;
        if let Some(trace) = self.byteps.take() {
            trace.finish(&mut *self.files, &self.steps, self.dropped);
        }
    }

    /// Warns if the job has not reached the steps that its file is restricted to.
    fn say_if_empty(&self) {
        let seen = self.steps.seen();
        if let (Some(window), Some(document)) = (&self.window, &self.horovod)
            && self.options.rank == 0
            && seen < window.range.first
        {
            tracing::warn!(
                "the timeline {} should begin with step {}, but the job had only {seen} steps, so it is empty; set \
                 RONDE_TIMELINE_STEPS to steps that the job reaches",
                document.path().display(),
                window.range.first
            );
        }
    }

    pub(super) fn align(&mut self, alignment: &Alignment) {
        self.line.align(alignment);
        if let Some(document) = &mut self.horovod {
            document.format.align(self.line);
        }
    }

    /// Processes a record of the track that `names` belongs to.
    pub(super) fn record(&mut self, names: &Names, record: Record<'_>) {
        self.rotate_if_full();
        match record {
            Record::Cycle { at } => {
                self.mark_pending_cycle(self.steps.latest);
                self.cycle = Some(at);
                if self.window.is_none() {
                    self.mark_pending_cycle(0);
                }
            }
            Record::Step { number, at } => {
                let number = number + self.marks.steps_before;
                self.marks.step = number;
                self.steps.mark(number, self.line.reference_ns(at));
                // The end of the previous step is the start of the first one.
                let held = |window: &Window| window.holds(number);
                let step = number + u64::from(!self.window.as_ref().is_none_or(held));
                if let Some(document) = self.document(step) {
                    document.format.mark("STEP", "step", number, at);
                }
            }
            Record::Epoch { number, at } => {
                let number = number + self.marks.epochs_before;
                self.marks.epoch = number;
                if let Some(document) = self.document(self.steps.latest) {
                    document.format.mark("EPOCH", "epoch", number, at);
                }
            }
            Record::Settings { settings, at } => {
                self.options.settings = settings;
                if let Some(document) = &mut self.horovod {
                    document.format.settings(settings, at);
                }
            }
            Record::Negotiated {
                tensor,
                op,
                ended,
                ticks,
            } => {
                self.under_way += 1;
                let Some(tensor) = names.tensor(tensor) else {
                    return;
                };
                let at = ready_ns(ticks, self.options.rank as u64)
                    .unwrap_or_else(|| self.line.reference_ns(ended));
                let step = self.step(tensor.serial, at);
                if let Some(document) = self.document(step) {
                    document.format.negotiated(tensor, op.name(), ticks, ended);
                    self.written();
                }
            }
            Record::Error {
                tensor,
                began,
                ended,
            } => {
                self.under_way = self.under_way.saturating_sub(1);
                let Some(tensor) = names.tensor(tensor) else {
                    return;
                };
                let step = self.step(tensor.serial, self.line.reference_ns(began));
                if let Some(document) = self.document(step) {
                    document.format.error(tensor, began, ended);
                    self.written();
                }
            }
            Record::Executed(batch) => self.executed(names, &batch),
        }
    }

    fn executed(&mut self, names: &Names, batch: &Executed<'_>) {
        if let Some(document) = &mut self.horovod {
            document.format.batch();
        }
        let rank = self.options.rank as u64;
        for member in batch.members.clone() {
            self.under_way = self.under_way.saturating_sub(1);
            let Some(tensor) = names.tensor(member.tensor) else {
                continue;
            };
            let submitted = member.submitted.unwrap_or(batch.began);
            let step = self.step(tensor.serial, self.line.reference_ns(submitted));
            if self.counts {
                let count = self.steps.travels(tensor.serial);
                self.steps.latest = step;
                self.window
                    .iter_mut()
                    .for_each(|window| window.counted(count));
                self.byteps
                    .iter_mut()
                    .for_each(|trace| trace.counted(count));
            }
            if let Some(document) = self.document(step) {
                let MemberWords {
                    submitted, output, ..
                } = member;
                // The tracks of the other ranks have no time at which the tensor was negotiated.
                if let Some(submitted) = submitted.filter(|_| names.rank > 0) {
                    document
                        .format
                        .own_negotiation(tensor, batch, rank, submitted);
                }
                document.format.executed(tensor, names, batch, output);
                self.written();
            }
            if let Some(trace) = &mut self.byteps
                && let Some(submitted) = member.submitted
            {
                trace.executed(tensor, batch, submitted, step);
            }
        }
    }

    /// Writes pending text; `dropped` cycles have been lost so far in this context.
    pub(super) fn flush(&mut self, dropped: u64) {
        let dropped = dropped + self.dropped_before;
        self.dropped = dropped;
        let over = |window: &Window| window.is_over(&self.steps);
        if self.window.as_ref().is_some_and(over) {
            self.stop();
        }
        if let Some(document) = &mut self.horovod {
            let news = document.dropped(dropped);
            if news && !std::mem::replace(&mut self.dropped_said, true) {
                tracing::warn!(
                    "the timeline {} cannot keep up: {dropped} cycles dropped so far; the file counts them \
                     (\"dropped_cycles\"). Try a faster disk",
                    document.path().display()
                );
            }
            self.flush_horovod();
        }
        if self
            .byteps
            .as_ref()
            .is_some_and(|trace| trace.is_over(&self.steps))
            && let Some(trace) = self.byteps.take()
        {
            trace.finish(&mut *self.files, &self.steps, dropped);
        }
    }

    /// Notes that the document in Horovod's format has new text.
    fn written(&mut self) {
        if self.horovod.as_ref().is_some_and(Document::is_long) {
            self.flush_horovod();
        }
    }

    fn flush_horovod(&mut self) {
        if let Some(document) = &mut self.horovod {
            let written = document.flush();
            self.or_give_up(written);
        }
    }

    /// Continues in a new file when this one is full: between cycles, as far as its size allows, so
    /// that all events of a tensor's operation are in one file.
    fn rotate_if_full(&mut self) {
        if let Some(document) = &mut self.horovod
            && document.is_full()
            && (self.under_way == 0 || document.is_overfull())
        {
            let (line, settings) = (self.line, self.options.settings);
            let begun = document.rotate(&mut *self.files, &self.options, line, settings);
            self.or_give_up(begun);
        }
    }

    /// Reports the first failed write, and ends the recording.
    fn or_give_up(&mut self, written: io::Result<()>) {
        let Err(error) = written else { return };
        if let Some(document) = self.horovod.take() {
            let path = document.path().display();
            let remains = document.remains();
            tracing::error!(
                "cannot write the timeline {path}: {error}; recording ends here, the job goes on. \
                 {remains}"
            );
        }
    }

    /// Step of a tensor submitted at `at`; 0 where steps are not counted.
    fn step(&self, serial: u32, at: i64) -> u64 {
        if self.counts {
            self.steps.of(serial, at)
        } else {
            0
        }
    }

    /// Returns the document in Horovod's format if it contains `step`; marks the start of the cycle
    /// if that is still to be marked.
    fn document(&mut self, step: u64) -> Option<&mut Document> {
        if self
            .window
            .as_ref()
            .is_some_and(|window| !window.holds(step))
        {
            return None;
        }
        let document = self.horovod.as_mut()?;
        if let Some(at) = self.cycle.take() {
            document.format.cycle(at);
        }
        Some(document)
    }

    fn mark_pending_cycle(&mut self, step: u64) {
        if self.cycle.is_some() {
            let _ = self.document(step);
        }
    }
}

/// Time at which rank `rank` had a tensor ready, on rank 0's clock. That rank's step at this time
/// is the tensor's step in this file, even if another rank is one step ahead. For a joined rank,
/// the first of the other ranks is used. Ticks have no nanoseconds: a tensor submitted directly
/// after a mark counts as after it.
fn ready_ns(ticks: &[u64], rank: u64) -> Option<i64> {
    let mut ticks = ticks.iter().map(|&tick| record::tick(tick));
    let own = ticks.clone().find(|&(of, _)| of == rank).map(|(_, us)| us);
    let us = own.or_else(|| ticks.by_ref().map(|(_, us)| us).min())?;
    i64::try_from(us.saturating_mul(1_000).saturating_add(999)).ok()
}
