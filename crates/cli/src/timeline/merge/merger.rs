//! Conversion of a file's operations and marks to bars and instants: assigns their threads and
//! shifts their times.

use std::collections::HashMap;

use serde_json::json;

use ronde_trace::{Activity, Mark, MarkKind, NameId, Operation, Span, Visitor, Work};

use super::events::{Details, Events, Sums};
use super::lanes::Lanes;

/// Thread of a process for its marks.
const MARKS_TID: u64 = 0;

/// Name of the track of computation. No tensor has this name.
const COMPUTATION: &str = "computation";
/// Track of copies and of kernels of unknown type.
const OTHER_GPU: &str = "other GPU work";

/// Process of the merged trace, for one rank.
pub(super) struct Process {
    pid: u32,
    tracks: Vec<Track>,
    /// Index of each track by name: the files of one rank number their names independently.
    by_name: HashMap<String, usize>,
    next_tid: u64,
}

/// Bars of one tensor, or of computation.
struct Track {
    name: String,
    lanes: Lanes,
}

impl Process {
    /// Creates a process with only the thread of its marks.
    pub(super) fn new(pid: u32, name: &str, events: &mut Events<'_>) -> Self {
        events.metadata("process_name", pid, MARKS_TID, json!({ "name": name }));
        events.metadata(
            "process_sort_index",
            pid,
            MARKS_TID,
            json!({ "sort_index": pid }),
        );
        events.metadata("thread_name", pid, MARKS_TID, json!({ "name": "marks" }));
        Self {
            pid,
            tracks: Vec::new(),
            by_name: HashMap::new(),
            next_tid: MARKS_TID + 1,
        }
    }

    /// Number of the process.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the index of the track `name`, which is created if needed.
    fn track(&mut self, name: &str) -> usize {
        if let Some(index) = self.by_name.get(name) {
            return *index;
        }
        let index = self.tracks.len();
        self.by_name.insert(name.to_owned(), index);
        self.tracks.push(Track {
            name: name.to_owned(),
            lanes: Lanes::default(),
        });
        index
    }

    /// Returns the thread for a bar of a track, and writes the thread's name if it is new.
    fn place(&mut self, track: usize, span: Span, events: &mut Events<'_>) -> u64 {
        let track = &mut self.tracks[track];
        let (tid, new) = track.lanes.place(span, self.next_tid);
        if let Some(number) = new {
            self.next_tid += 1;
            let name = match number {
                0 => track.name.clone(),
                _ => format!("{} ({})", track.name, number + 1),
            };
            events.metadata("thread_name", self.pid, tid, json!({ "name": name }));
            events.metadata(
                "thread_sort_index",
                self.pid,
                tid,
                json!({ "sort_index": tid }),
            );
        }
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
    names: Vec<String>,
    /// Tracks of the names that are tensors.
    tracks: Vec<Option<usize>>,
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
            tracks: Vec::new(),
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

    fn track(&mut self, tensor: NameId) -> usize {
        let index = tensor.0 as usize;
        if let Some(Some(track)) = self.tracks.get(index) {
            return *track;
        }
        let track = self
            .process
            .track(self.names.get(index).map_or("?", String::as_str));
        if self.tracks.len() <= index {
            self.tracks.resize(index + 1, None);
        }
        self.tracks[index] = Some(track);
        track
    }

    fn bar(&mut self, name: &str, track: usize, span: Span, details: Option<Details>) -> u64 {
        let tid = self.process.place(track, span, self.events);
        self.events.bar(name, self.process.pid, tid, span, details);
        tid
    }

    /// Writes the activities of an operation: on its own thread if they follow one another within
    /// it, else on another.
    fn activities(&mut self, activities: &[Activity], within: Option<(u64, Span)>, track: usize) {
        let mut free_from = within.map_or(i64::MAX, |(_, span)| span.began);
        for activity in activities {
            let span = self.span(activity.span);
            let name = self
                .names
                .get(activity.name.0 as usize)
                .cloned()
                .unwrap_or_default();
            match within {
                Some((tid, outer)) if span.began >= free_from && span.ended <= outer.ended => {
                    self.events.bar(&name, self.process.pid, tid, span, None);
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
        let index = id.0 as usize;
        if self.names.len() <= index {
            self.names.resize(index + 1, String::new());
        }
        name.clone_into(&mut self.names[index]);
    }

    fn operation(&mut self, operation: &Operation) {
        let track = self.track(operation.tensor);
        let kind = operation.kind.name();
        let mut tid = None;
        if let Some(span) = operation.negotiation.map(|span| self.span(span)) {
            tid = Some(self.bar(&format!("NEGOTIATE_{kind}"), track, span, None));
        }
        let within = operation.execution.map(|span| {
            let span = self.span(span);
            let name = if operation.refused { "ERROR" } else { kind };
            let details = Details {
                dtype: operation.dtype.map(ronde::tensor::Dtype::name),
                elements: operation.elements,
                bytes: operation.bytes,
                sums: operation.sums.map(Sums::from),
            };
            (self.bar(name, track, span, Some(details)), span)
        });
        self.activities(&operation.activities, within, track);
        let tid = tid.or(within.map(|(tid, _)| tid));
        let tid = tid
            .or(self.process.tracks[track].lanes.first())
            .unwrap_or(MARKS_TID);
        for tick in &operation.ticks {
            // Rank 0's file has the ready times of all ranks. From other files, only those of
            // their own rank are written.
            if self.process.pid == 0 || self.rank.is_none_or(|rank| rank == tick.rank) {
                let name = format!("rank {} ready", tick.rank);
                self.events
                    .instant(&name, self.process.pid, tid, self.at(tick.at), "t", None);
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
                let mut args = json!({"fusion_threshold_bytes": fusion_threshold_bytes, "cycle_time_ns": cycle_time_ns});
                if let Some(bytes) = gpu_fusion_threshold_bytes {
                    args["gpu_fusion_threshold_bytes"] = json!(bytes);
                }
                ("SETTINGS", "p", Some(args))
            }
        };
        self.events.instant(
            name,
            self.process.pid,
            MARKS_TID,
            self.at(mark.at),
            scope,
            args,
        );
    }

    fn compute(&mut self, span: Span, work: Work) {
        let name = match work {
            Work::Cpu | Work::Kernel => COMPUTATION,
            Work::OtherGpu => OTHER_GPU,
        };
        let track = self.process.track(name);
        let span = self.span(span);
        self.bar(name, track, span, None);
    }
}
