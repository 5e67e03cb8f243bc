//! Operations and marks of the files as bars and instants: which thread they go to, on which clock.

use std::collections::HashMap;

use serde_json::json;

use ronde_trace::{Activity, Mark, MarkKind, NameId, Operation, Span, Visitor, Work};

use super::events::{Details, Events, Sums};
use super::lanes::Lanes;

/// The thread of a process that has its marks.
const MARKS_TID: u64 = 0;

/// What a thread of computation is called; tensors have other names.
const COMPUTATION: &str = "computation";
/// Track of copies and of kernels of unknown type.
const OTHER_GPU: &str = "other GPU work";

/// A rank.
pub(super) struct Process {
    pid: u32,
    tracks: Vec<Track>,
    /// The tracks' places by name, for the files of one rank have their own numbers each.
    by_name: HashMap<String, usize>,
    next_tid: u64,
}

/// A tensor.
struct Track {
    name: String,
    lanes: Lanes,
}

impl Process {
    /// A process without threads but that of its marks.
    pub(super) fn new(pid: u32, name: &str, events: &mut Events<'_>) -> Self {
        events.metadata("process_name", pid, MARKS_TID, json!({ "name": name }));
        events.metadata("process_sort_index", pid, MARKS_TID, json!({ "sort_index": pid }));
        events.metadata("thread_name", pid, MARKS_TID, json!({ "name": "marks" }));
        Self {
            pid,
            tracks: Vec::new(),
            by_name: HashMap::new(),
            next_tid: MARKS_TID + 1,
        }
    }

    /// Its number.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// The track of what is called `name`.
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

    /// The thread for a bar of a track, named if it is new.
    fn place(&mut self, track: usize, span: Span, events: &mut Events<'_>) -> u64 {
        let track = &mut self.tracks[track];
        let lane = track.lanes.place(span, self.next_tid);
        if let Some(number) = lane.new {
            self.next_tid += 1;
            let name = match number {
                0 => track.name.clone(),
                _ => format!("{} ({})", track.name, number + 1),
            };
            events.metadata("thread_name", self.pid, lane.tid, json!({ "name": name }));
            events.metadata(
                "thread_sort_index",
                self.pid,
                lane.tid,
                json!({ "sort_index": lane.tid }),
            );
        }
        lane.tid
    }
}

/// Writes the events of one file.
pub(super) struct Merger<'a, 'sink> {
    events: &'a mut Events<'sink>,
    process: &'a mut Process,
    rank: Option<u32>,
    shift_ns: i64,
    /// Names of the file, by their numbers.
    names: Vec<String>,
    /// Tracks of those that are tensors.
    tracks: Vec<Option<usize>>,
}

impl<'a, 'sink> Merger<'a, 'sink> {
    /// For the file of `rank`, whose times are to be moved by `shift_ns`.
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

    /// An operation's activities: on its own thread as far as they follow one another within it.
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
            // The lowest rank's file tells of all ranks, the others of themselves.
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
            // The step before ends here, or nothing does.
            MarkKind::StepBegin => return,
            MarkKind::Step => ("STEP", "p", None),
            MarkKind::Epoch => ("EPOCH", "p", None),
            MarkKind::Settings {
                fusion_threshold_bytes,
                cycle_time_ns,
            } => {
                let args =
                    json!({"fusion_threshold_bytes": fusion_threshold_bytes, "cycle_time_ns": cycle_time_ns});
                ("SETTINGS", "p", Some(args))
            }
        };
        self.events
            .instant(name, self.process.pid, MARKS_TID, self.at(mark.at), scope, args);
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
