//! Process of a merged trace: assigns the threads of a rank's bars, and shifts their times.

use std::collections::HashMap;
use std::rc::Rc;

use serde_json::json;

use super::events::{Details, Events};
use crate::{Activity, Mark, MarkKind, NameId, Operation, Span, Visitor, Work};

/// Thread of a process for its marks.
const MARKS_TID: u64 = 0;

/// Name of the track of computation. No tensor has this name.
const COMPUTATION: &str = "computation";
/// Track of copies and of kernels of unknown type.
const OTHER_GPU: &str = "other GPU work";

/// Largest number of threads of one track; further overlapping bars share the last one.
const THREADS_MAX: usize = 64;

/// Process of one rank.
pub(super) struct Process {
    pid: u32,
    /// Threads of each tensor, with the end of their last bar. Bars that overlap get different
    /// threads, because viewers draw overlapping bars of one thread as nested.
    tracks: HashMap<Rc<str>, Vec<(u64, i64)>>,
    next_tid: u64,
}

impl Process {
    /// Creates a process with only the thread of its marks.
    pub(super) fn new(pid: u32, name: &str, events: &mut Events<'_>) -> Self {
        let mut metadata = |key, args| events.metadata(key, pid, MARKS_TID, args);
        metadata("process_name", json!({ "name": name }));
        metadata("process_sort_index", json!({ "sort_index": pid }));
        metadata("thread_name", json!({ "name": "marks" }));
        Self {
            pid,
            tracks: HashMap::new(),
            next_tid: MARKS_TID + 1,
        }
    }

    /// Returns a thread of a track without a bar that overlaps `span`, and writes its name if it is
    /// new.
    fn place(&mut self, track: &Rc<str>, span: Span, events: &mut Events<'_>) -> u64 {
        let threads = self.tracks.entry(track.clone()).or_default();
        if let Some((tid, end)) = threads.iter_mut().find(|(_, end)| *end <= span.began) {
            *end = span.ended;
            return *tid;
        }
        if threads.len() == THREADS_MAX {
            let (tid, end) = &mut threads[THREADS_MAX - 1];
            *end = span.ended.max(*end);
            return *tid;
        }
        let tid = self.next_tid;
        self.next_tid += 1;
        threads.push((tid, span.ended));
        let name = match threads.len() {
            1 => track.to_string(),
            number => format!("{track} ({number})"),
        };
        events.metadata("thread_name", self.pid, tid, json!({ "name": name }));
        let index = json!({ "sort_index": tid });
        events.metadata("thread_sort_index", self.pid, tid, index);
        tid
    }
}

/// Visitor of one file that writes its events.
pub(super) struct Merger<'a, 'sink> {
    events: &'a mut Events<'sink>,
    process: &'a mut Process,
    rank: Option<u32>,
    shift_ns: i64,
    /// Names of the file, by their numbers.
    names: Vec<Rc<str>>,
}

impl<'a, 'sink> Merger<'a, 'sink> {
    /// Creates the visitor for the file of `rank`, whose times are shifted by `shift_ns`.
    pub(super) fn new(
        events: &'a mut Events<'sink>,
        process: &'a mut Process,
        rank: Option<u32>,
        shift_ns: i64,
    ) -> Self {
        Self {
            events,
            process,
            rank,
            shift_ns,
            names: Vec::new(),
        }
    }

    fn at(&self, at: i64) -> i64 {
        at.saturating_add(self.shift_ns)
    }

    fn span(&self, span: Span) -> Span {
        Span {
            began: self.at(span.began),
            ended: self.at(span.ended),
        }
    }

    fn name_of(&self, id: NameId) -> Rc<str> {
        let name = self.names.get(id.0 as usize);
        name.cloned().unwrap_or_else(|| "?".into())
    }

    /// Writes a bar on a free thread of a track and returns the thread.
    fn bar(&mut self, name: &str, track: &Rc<str>, span: Span, details: Option<Details>) -> u64 {
        let tid = self.process.place(track, span, self.events);
        let thread = (self.process.pid, tid);
        self.events.bar(name, thread, span, details);
        tid
    }

    /// Writes the activities of an operation: on its own thread if they follow one another within
    /// it, else on another.
    fn activities(
        &mut self,
        activities: &[Activity],
        within: Option<(u64, Span)>,
        track: &Rc<str>,
    ) {
        let mut free_from = within.map_or(i64::MAX, |(_, span)| span.began);
        for activity in activities {
            let (name, span) = (self.name_of(activity.name), self.span(activity.span));
            match within {
                Some((tid, outer)) if span.began >= free_from && span.ended <= outer.ended => {
                    let thread = (self.process.pid, tid);
                    self.events.bar(&name, thread, span, None);
                    free_from = span.ended;
                }
                _ => {
                    self.bar(&name, track, span, None);
                }
            }
        }
    }
}

impl Visitor for Merger<'_, '_> {
    fn name(&mut self, id: NameId, name: &str) {
        debug_assert_eq!(id.0 as usize, self.names.len());
        self.names.push(name.into());
    }

    fn operation(&mut self, operation: &Operation) {
        let track = &self.name_of(operation.tensor);
        let kind = operation.kind.name();
        let negotiation = operation.negotiation.map(|span| {
            let name = format!("NEGOTIATE_{kind}");
            self.bar(&name, track, self.span(span), None)
        });
        let within = operation.execution.map(|span| {
            let span = self.span(span);
            let name = if operation.refused { "ERROR" } else { kind };
            let details = Details::of(operation);
            (self.bar(name, track, span, Some(details)), span)
        });
        self.activities(&operation.activities, within, track);
        let tid = negotiation.or(within.map(|(tid, _)| tid)).or_else(|| {
            let threads = self.process.tracks.get(track)?;
            threads.first().map(|(tid, _)| *tid)
        });
        let thread = (self.process.pid, tid.unwrap_or(MARKS_TID));
        for tick in &operation.ticks {
            // Rank 0's file has the ready times of all ranks. From other files, only those of
            // their own rank are written.
            if self.process.pid == 0 || self.rank.is_none_or(|rank| rank == tick.rank) {
                let name = format!("rank {} ready", tick.rank);
                let at = self.at(tick.at);
                self.events.instant(&name, thread, at, "t", None);
            }
        }
    }

    fn mark(&mut self, mark: Mark) {
        let (name, scope, args) = match mark.kind {
            MarkKind::Cycle => ("CYCLE_START", "t", None),
            // Not written: a step begins at the end of the step before, if there is one.
            MarkKind::StepBegin => return,
            MarkKind::Step => ("STEP", "p", None),
            MarkKind::Epoch => ("EPOCH", "p", None),
            MarkKind::Settings {
                fusion_threshold_bytes,
                cycle_time_ns,
                gpu_fusion_threshold_bytes,
            } => {
                let mut args = json!({
                    "fusion_threshold_bytes": fusion_threshold_bytes,
                    "cycle_time_ns": cycle_time_ns,
                });
                if let Some(bytes) = gpu_fusion_threshold_bytes {
                    args["gpu_fusion_threshold_bytes"] = json!(bytes);
                }
                ("SETTINGS", "p", Some(args))
            }
        };
        let (thread, at) = ((self.process.pid, MARKS_TID), self.at(mark.at));
        self.events.instant(name, thread, at, scope, args);
    }

    fn compute(&mut self, span: Span, work: Work) {
        let name = match work {
            Work::Cpu | Work::Kernel => COMPUTATION,
            Work::OtherGpu => OTHER_GPU,
        };
        let span = self.span(span);
        self.bar(name, &name.into(), span, None);
    }
}
