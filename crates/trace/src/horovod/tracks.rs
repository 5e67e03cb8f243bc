//! Tensors of a file, each with its current operation.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::super::complaint::{Complaint, FilePosition};
use super::super::event::Id;
use super::super::model::{Kind, NameId, Operation, Span};
use super::super::reader::Out;

/// Largest pid that is looked up in a table; others are hashed. Horovod counts from 1.
const TABLE_PIDS_MAX: usize = 1 << 21;

/// Maximum number of operations held back until their tensor's name is known; beyond that, tensors
/// are named after their pids.
const HELD_MAX: usize = 4096;

/// Index of a tensor within a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrackId(u32);

/// State of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// No operation.
    Idle,
    /// The bar of a negotiation is open.
    Negotiating,
    /// All ranks have the tensor ready.
    Negotiated,
    /// The bar of an operation is open.
    Executing,
}

/// An operation in progress.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) stage: Stage,
    /// Time at which the open bar opened.
    pub(super) began: i64,
    /// Data of the operation so far.
    pub(super) operation: Operation,
    /// Indices of the open activities.
    pub(super) stack: SmallVec<[usize; 4]>,
}

impl Open {
    fn new() -> Self {
        Self {
            stage: Stage::Idle,
            began: 0,
            operation: Operation {
                tensor: NameId(0),
                kind: Kind::Other,
                negotiation: None,
                ticks: SmallVec::new(),
                execution: None,
                activities: SmallVec::new(),
                sums: None,
                dtype: None,
                elements: None,
                bytes: None,
                refused: false,
            },
            stack: SmallVec::new(),
        }
    }

    /// Resets the operation and keeps its memory.
    fn clear(&mut self) {
        self.stage = Stage::Idle;
        self.stack.clear();
        let Operation {
            tensor: _,
            kind,
            negotiation,
            ticks,
            execution,
            activities,
            sums,
            dtype,
            elements,
            bytes,
            refused,
        } = &mut self.operation;
        *kind = Kind::Other;
        (*negotiation, *execution, *sums) = (None, None, None);
        (*dtype, *elements, *bytes) = (None, None, None);
        *refused = false;
        ticks.clear();
        activities.clear();
    }

    /// Closes the negotiation; false if `at` is before its start.
    pub(super) fn end_negotiation(&mut self, at: i64) -> bool {
        let ended = at.max(self.began);
        self.operation.negotiation = Some(Span {
            began: self.began,
            ended,
        });
        if !self.operation.ticks.is_sorted_by_key(|tick| tick.at) {
            self.operation.ticks.sort_by_key(|tick| tick.at);
        }
        self.stage = Stage::Negotiated;
        at >= self.began
    }

    /// Whether an activity is open.
    pub(super) fn is_within_activity(&self) -> bool {
        !self.stack.is_empty()
    }

    /// Closes the innermost activity; false if `at` is before its start.
    pub(super) fn pop(&mut self, at: i64) -> bool {
        let Some(activity) = self.stack.pop() else {
            return true;
        };
        let span = &mut self.operation.activities[activity].span;
        span.ended = at.max(span.began);
        at >= span.began
    }
}

#[derive(Debug)]
struct Track {
    pid: Pid,
    name: Option<NameId>,
    /// Whether the name was made from the pid, because the file has none.
    made_up: bool,
    open: Option<Box<Open>>,
}

#[derive(Debug)]
enum Pid {
    Number(i64),
    Text(Box<[u8]>),
}

/// All tensors of a file. An idle tensor takes little memory: there may be millions.
#[derive(Debug, Default)]
pub(super) struct Tracks {
    tracks: Vec<Track>,
    /// Track number plus one by pid.
    table: Vec<u32>,
    numbers: HashMap<i64, u32>,
    texts: HashMap<Box<[u8]>, u32>,
    /// Unused entries, to be reused.
    #[expect(
        clippy::vec_box,
        reason = "an operation is half a kilobyte and moves as a pointer"
    )]
    pool: Vec<Box<Open>>,
    /// Operations of tensors whose name is not known yet.
    held: HashMap<u32, Vec<Operation>>,
    held_operations: usize,
}

impl Tracks {
    /// Returns the tensor with this pid, which is added if it is new; `None` without a pid.
    #[inline]
    pub(super) fn find(&mut self, pid: Id<'_>) -> Option<TrackId> {
        let next = self.tracks.len() as u32;
        let number = match pid {
            Id::Number(pid) => match usize::try_from(pid) {
                Ok(pid) if pid < TABLE_PIDS_MAX => {
                    if pid >= self.table.len() {
                        let room = (pid + 1).next_power_of_two().max(64);
                        self.table.resize(room, 0);
                    }
                    let entry = &mut self.table[pid];
                    if *entry == 0 {
                        *entry = next + 1;
                    }
                    *entry - 1
                }
                _ => *self.numbers.entry(pid).or_insert(next),
            },
            Id::Text(pid) => match self.texts.get(pid) {
                Some(&number) => number,
                None => *self.texts.entry(pid.into()).or_insert(next),
            },
            Id::None => return None,
        };
        if number == next {
            let pid = match pid {
                Id::Text(text) => Pid::Text(text.into()),
                Id::Number(number) => Pid::Number(number),
                Id::None => return None,
            };
            self.tracks.push(Track {
                pid,
                name: None,
                made_up: false,
                open: None,
            });
        }
        Some(TrackId(number))
    }

    /// State of the tensor.
    #[inline]
    pub(super) fn stage(&self, track: TrackId) -> Stage {
        let open = &self.tracks[track.0 as usize].open;
        open.as_ref().map_or(Stage::Idle, |open| open.stage)
    }

    /// The tensor's current operation, a new one if there is none.
    #[inline]
    pub(super) fn open(&mut self, track: TrackId) -> &mut Open {
        let Self { tracks, pool, .. } = self;
        tracks[track.0 as usize]
            .open
            .get_or_insert_with(|| pool.pop().unwrap_or_else(|| Box::new(Open::new())))
    }

    /// Sets the tensor's name.
    pub(super) fn name(
        &mut self,
        track: TrackId,
        name: NameId,
        place: FilePosition<'_>,
        out: &mut Out<'_>,
    ) {
        let entry = &mut self.tracks[track.0 as usize];
        let known = entry.name.filter(|_| !entry.made_up);
        if known.is_some_and(|known| known != name) {
            out.complaints.add(Complaint::Renamed, place, String::new);
            self.settle(track, place, out);
        }
        let entry = &mut self.tracks[track.0 as usize];
        (entry.name, entry.made_up) = (Some(name), false);
        // Most files have no held operations.
        for mut operation in self.held.remove(&track.0).unwrap_or_default() {
            self.held_operations -= 1;
            operation.tensor = name;
            out.visitor.operation(&operation);
        }
    }

    /// Completes the operation: it goes to the visitor as soon as the tensor has a name.
    pub(super) fn emit(&mut self, track: TrackId, place: FilePosition<'_>, out: &mut Out<'_>) {
        let entry = &mut self.tracks[track.0 as usize];
        let Some(mut open) = entry.open.take() else {
            return;
        };
        match entry.name {
            Some(name) => {
                open.operation.tensor = name;
                out.visitor.operation(&open.operation);
            }
            None => {
                let held = self.held.entry(track.0).or_default();
                held.push(open.operation.clone());
                self.held_operations += 1;
                if self.held_operations > HELD_MAX {
                    self.release(place, out);
                }
            }
        }
        open.clear();
        self.pool.push(open);
    }

    /// Completes an operation that has only a negotiation.
    pub(super) fn settle(&mut self, track: TrackId, place: FilePosition<'_>, out: &mut Out<'_>) {
        let Some(open) = &mut self.tracks[track.0 as usize].open else {
            return;
        };
        if open.operation.negotiation.is_some() {
            open.operation.activities.clear();
            open.operation.sums = None;
            return self.emit(track, place, out);
        }
        if let Some(mut open) = self.tracks[track.0 as usize].open.take() {
            open.clear();
            self.pool.push(open);
        }
    }

    /// Names the tensors without a name after their pids.
    fn release(&mut self, place: FilePosition<'_>, out: &mut Out<'_>) {
        self.held_operations = 0;
        let held = std::mem::take(&mut self.held);
        let mut held: Vec<(u32, Operation)> = held
            .into_iter()
            .flat_map(|(track, operations)| {
                operations
                    .into_iter()
                    .map(move |operation| (track, operation))
            })
            .collect();
        held.sort_by_key(|(track, operation)| (operation.execution.map(|span| span.ended), *track));
        for (track, mut operation) in held {
            operation.tensor = self.name_or_pid(TrackId(track), place, out);
            out.visitor.operation(&operation);
        }
    }

    fn name_or_pid(
        &mut self,
        track: TrackId,
        place: FilePosition<'_>,
        out: &mut Out<'_>,
    ) -> NameId {
        let entry = &self.tracks[track.0 as usize];
        if let Some(name) = entry.name {
            return name;
        }
        let pid = match &entry.pid {
            Pid::Number(number) => number.to_string(),
            Pid::Text(text) => String::from_utf8_lossy(text).into_owned(),
        };
        out.complaints
            .add(Complaint::Unnamed, place, || format!("pid {pid}"));
        let name = out.name(&format!("pid {pid}"));
        let entry = &mut self.tracks[track.0 as usize];
        (entry.name, entry.made_up) = (Some(name), true);
        name
    }

    /// Ends the file: passes the operations in flight to the visitor, as far as they are known.
    pub(super) fn finish(&mut self, out: &mut Out<'_>) {
        let place = FilePosition::default();
        self.release(place, out);
        for number in 0..self.tracks.len() as u32 {
            let track = TrackId(number);
            let stage = self.stage(track);
            if stage == Stage::Idle {
                continue;
            }
            let name = self.name_or_pid(track, place, out);
            let ranks = self
                .open(track)
                .operation
                .ticks
                .iter()
                .map(|tick| tick.rank);
            match stage {
                Stage::Negotiating => {
                    let ranks: Vec<String> = ranks.take(16).map(|rank| rank.to_string()).collect();
                    let ready = match &ranks[..] {
                        [] => String::new(),
                        [rank] => format!(", ready on rank {rank} alone"),
                        ranks => format!(", ready on ranks {} alone", ranks.join(", ")),
                    };
                    let name = out.names.name(name);
                    out.complaints
                        .add(Complaint::Waiting, place, || format!("{name}{ready}"));
                }
                _ => out
                    .complaints
                    .add(Complaint::InFlight, place, || out.names.name(name)),
            }
            self.settle(track, place, out);
        }
    }
}
