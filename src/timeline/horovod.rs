//! Horovod's timeline format (`horovod/common/timeline.cc`): a JSON array of Chrome trace events, one "process" for each
//! tensor.
//!
//! ```text
//! [
//! {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros":1795167892487131}},
//! {"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},
//! {"name": "process_labels", "ph": "M", "pid": 0, "args": {"labels": "rank 0 of 2", "ronde": {"version": 1, …}}},
//! {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grad"}},          a tensor: its name …
//! {"name": "process_sort_index", "ph": "M", "pid": 1, "args": {"sort_index": 1}},   … and place in the view
//! {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 25702, "pid": 1},                 the first rank has it ready
//! {"ph": "X", "name": "0", "ts": 25703, "pid": 1, "dur": 0},                         rank 0 has it ready
//! {"ph": "E", "ts": 25900, "pid": 1},                                                every rank has
//! {"ph": "B", "name": "ALLREDUCE", "ts": 25901, "pid": 1},                           it travels …
//! {"ph": "B", "name": "SHM_ALLREDUCE", "ts": 25901, "pid": 1},
//! {"ph": "E", "ts": 27376, "pid": 1, "args": {"copy_in_us": 201.5, "reduce_us": 80, "copy_out_us": 190, "wait_us": 12}},
//! {"ph": "E", "ts": 27380, "pid": 1, "args": {"dtype": "float32", "shape": "[1000]"}}]    … and has arrived
//! ```
//! (Line breaks after events are ours, here only: the file has them after metadata alone.) Keys stand in this order
//! and with these blanks, since scripts match on them. `ts` is in whole microseconds since the process joined the
//! job, on rank 0's clock. A tensor's metadata stand before its first event.
//!
//! **Phases of a streaming collective.** The local backend copies in, reduces and copies out chunk by chunk, and
//! the three overlap. The bars show what does not: `MEMCPY_IN_FUSION_BUFFER` lasts until this rank's first chunk is
//! in, `MEMCPY_OUT_FUSION_BUFFER` from when nothing is left to do but to copy out, and between them `SHM_ALLREDUCE`
//! is all three at once. How long each took, summed over the chunks of the batch, stands at the end of that bar, in
//! microseconds: `copy_in_us`, `reduce_us`, `copy_out_us`, `wait_us` (for peers).
//!
//! **What is ours.** The member `ronde` of pid 0's `process_labels` says who wrote the file: rank, size, local
//! rank, host, how ranks reach each other, the settings at the beginning, the number of the segment if a file has
//! grown too large, and how the file's clock relates to rank 0's: `zero_ns` is the file's `ts` 0 on rank 0's clock,
//! `offset_ns` what was added to this rank's, `error_ns` how wrong that may be, `drift_ppb` how fast it changes and
//! `drift_error_ppb` how wrong that may be. What is measured later follows as metadata `ronde_clock` with the same
//! members; the last counts. Instants: `STEP` and `EPOCH` (`{"step": n}`, `{"epoch": n}`) where the program has
//! marked the ends of steps and epochs, `SETTINGS` when they change. Where settings are told, `hierarchical_allreduce` and
//! `hierarchical_allgather` are members only while they are on.
//!
//! Where we differ: names are escaped; a tensor's events are in order of time and nest (an event that would reach
//! back into the tensor's previous bar begins at its end); cached tensors have their rank ticks too; a barrier has
//! a bar instead of a stray end; dropped cycles are counted in `process_labels` of pid 0. Events of different
//! tensors come in any order: a negotiation is written when it is over, however long ago it began. Files of ranks
//! other than 0 tell this rank's own time of readiness alone: its negotiation begins there.

use super::inbox::{Names, TensorName};
use super::line::Line;
use super::options::Options;
use super::record::{self, Executed};
use super::text::Text;
use crate::clock::Nanos;
use crate::settings::Settings;
use crate::tensor::Dtype;

mod head;
mod stencil;

use stencil::Stencil;

/// Turns records into the text of the format. It holds what has not been written yet; who writes it appends a
/// `]`, to be overwritten by the next text.
pub(super) struct Format {
    text: Vec<u8>,
    line: Line,
    last: Last,
    segment: u64,
    settings: Settings,
    /// The pid of each tensor, by serial number; 0 for none yet.
    pids: Vec<u32>,
    /// For each pid, end of its last bar in microseconds since the zero; position 0 is unused.
    ends_us: Vec<u64>,
    ticks: Vec<(u64, u64)>,
    /// The bars of the batch that is being told.
    stencil: Stencil,
}

/// What the array's last element is: decides what separates it from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Nothing,
    Metadata,
    Event,
}

impl Format {
    /// The head of a file, the `segment`-th of its recording; `settings` are in force.
    pub(super) fn new(options: &Options, line: Line, settings: Settings, segment: u64) -> Self {
        let mut format = Self {
            text: Vec::new(),
            line,
            last: Last::Nothing,
            segment,
            settings,
            pids: Vec::new(),
            ends_us: vec![0],
            ticks: Vec::new(),
            stencil: Stencil::default(),
        };
        format.metadata("process_name", 0);
        format.text.raw("\"start_time_since_epoch_in_micros\":");
        format.text.number(line.start_epoch_ns / 1_000);
        format.text.raw("}}");
        format.sort_index(0);
        format.about(options);
        format
    }

    /// Text so far, to be written in place of the file's last `]`.
    pub(super) fn text(&self) -> &Vec<u8> {
        &self.text
    }

    /// The same, to be emptied.
    pub(super) fn text_mut(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// The file's number among those of its recording.
    pub(super) fn segment(&self) -> u64 {
        self.segment
    }

    /// A cycle begins.
    pub(super) fn cycle(&mut self, at: Nanos) {
        self.instant("CYCLE_START", at);
        self.text.push(b'}');
    }

    /// The program has marked something: `name` with `"args": {member: number}`.
    pub(super) fn mark(&mut self, name: &str, member: &str, number: u64, at: Nanos) {
        self.instant(name, at);
        self.text.raw(", \"args\": {\"");
        self.text.raw(member);
        self.text.raw("\": ");
        self.text.number(number);
        self.text.raw("}}");
    }

    /// These settings are in force from `at` on.
    pub(super) fn settings(&mut self, settings: Settings, at: Nanos) {
        if settings == self.settings {
            return;
        }
        self.settings = settings;
        self.instant("SETTINGS", at);
        self.text.raw(", \"args\": {\"fusion_threshold_bytes\": ");
        self.text.number(settings.fusion_threshold_bytes);
        self.text.raw(", \"cycle_time_ns\": ");
        self.text.number(settings.cycle_time_ns);
        self.switches();
        self.text.raw("}}");
    }

    /// Members that say which of the settings' switches are on; for one that is off there is none.
    fn switches(&mut self) {
        if self.settings.hierarchical_allreduce {
            self.text.raw(", \"hierarchical_allreduce\": true");
        }
        if self.settings.hierarchical_allgather {
            self.text.raw(", \"hierarchical_allgather\": true");
        }
    }

    /// A tensor has become ready on all ranks: on the first of them when the first tick says.
    pub(super) fn negotiated(&mut self, tensor: &TensorName, op: &str, ticks: &[u64], ended: Nanos) {
        let line = self.line;
        let tick = |&word: &u64| {
            let (rank, at_us) = record::tick(word);
            (line.reference_micros(at_us), rank)
        };
        self.negotiation(tensor, op, ticks.iter().map(tick), self.line.micros(ended));
    }

    /// All that this rank, number `rank` of the process set, knows of a negotiation: when it had the tensor ready
    /// itself, and when the cycle was agreed on.
    pub(super) fn own_negotiation(
        &mut self,
        tensor: &TensorName,
        batch: &Executed<'_>,
        rank: u64,
        submitted: Nanos,
    ) {
        let tick = (self.line.micros(submitted), rank);
        let ended = self.line.micros(batch.agreed);
        self.negotiation(tensor, batch.op.name(), std::iter::once(tick), ended);
    }

    fn negotiation(
        &mut self,
        tensor: &TensorName,
        op: &str,
        ticks: impl Iterator<Item = (u64, u64)>,
        ended: u64,
    ) {
        let mut sorted = std::mem::take(&mut self.ticks);
        sorted.extend(ticks);
        sorted.sort_unstable();
        let began = sorted.first().map_or(ended, |&(at, _)| at);
        if let Some((pid, began, ended)) = self.span(tensor, began, ended) {
            self.begin("NEGOTIATE_", op, began, pid);
            for &(at, rank) in &sorted {
                self.separate(Last::Event);
                self.text.raw("{\"ph\": \"X\", \"name\": \"");
                self.text.number(rank);
                self.text.raw("\", \"ts\": ");
                self.text.number(at.clamp(began, ended));
                self.text.raw(", \"pid\": ");
                self.text.number(pid);
                self.text.raw(", \"dur\": 0}");
            }
            self.end(ended, pid);
        }
        sorted.clear();
        self.ticks = sorted;
    }

    /// The ranks disagreed about a tensor.
    pub(super) fn error(&mut self, tensor: &TensorName, began: Nanos, ended: Nanos) {
        let (began, ended) = (self.line.micros(began), self.line.micros(ended));
        if let Some((pid, began, ended)) = self.span(tensor, began, ended) {
            self.begin("", "ERROR", began, pid);
            self.end(ended, pid);
        }
    }

    /// A batch has travelled; its tensors follow.
    pub(super) fn batch(&mut self) {
        self.stencil.clear();
    }

    /// A tensor has travelled in `batch`.
    pub(super) fn executed(
        &mut self,
        tensor: &TensorName,
        names: &Names,
        batch: &Executed<'_>,
        output: Option<(Dtype, &[u64])>,
    ) {
        let (began, ended) = (self.line.micros(batch.began), self.line.micros(batch.ended));
        let Some((pid, began, ended)) = self.span(tensor, began, ended) else {
            return;
        };
        self.stencil.cut(self.line, names, batch, (began, ended));
        self.separate(Last::Event);
        self.stencil.print(pid, &mut self.text);
        if let Some((dtype, shape)) = output {
            self.text.raw(", \"args\": {\"dtype\": \"");
            self.text.raw(dtype.name());
            self.text.raw("\", \"shape\": \"[");
            for (position, &dimension) in shape.iter().enumerate() {
                if position > 0 {
                    self.text.raw(", ");
                }
                self.text.number(dimension);
            }
            self.text.raw("]\"}");
        }
        self.text.push(b'}');
    }

    /// The tensor's pid, and its bar's two ends in microseconds since the zero, moved so that it does not reach back
    /// into the tensor's previous bar; `None` if the file is full.
    fn span(&mut self, tensor: &TensorName, began: u64, ended: u64) -> Option<(u64, u64, u64)> {
        let pid = match self.pids.get(tensor.serial as usize) {
            None | Some(0) => self.introduce(tensor)?,
            Some(&pid) => pid,
        };
        let previous = &mut self.ends_us[pid as usize];
        let began = began.max(*previous);
        *previous = ended.max(began);
        Some((pid.into(), began, *previous))
    }

    /// A bar's beginning.
    fn begin(&mut self, prefix: &str, name: &str, at_us: u64, pid: u64) {
        self.separate(Last::Event);
        stencil::begin(&mut self.text, prefix, name, at_us);
        self.text.number(pid);
        self.text.push(b'}');
    }

    /// The end of a bar of which there is nothing more to say.
    fn end(&mut self, at_us: u64, pid: u64) {
        self.separate(Last::Event);
        stencil::end(&mut self.text, at_us);
        self.text.number(pid);
        self.text.push(b'}');
    }

    /// An instant without its closing brace.
    fn instant(&mut self, name: &str, at: Nanos) {
        self.separate(Last::Event);
        self.text.raw("{\"ph\": \"i\", \"name\": \"");
        self.text.raw(name);
        self.text.raw("\", \"ts\": ");
        self.text.number(self.line.micros(at));
        self.text.raw(", \"s\": \"g\"");
    }

    fn separate(&mut self, next: Last) {
        let separator = match self.last {
            Last::Nothing => "[\n",
            Last::Metadata => ",\n",
            Last::Event => ",",
        };
        self.text.raw(separator);
        self.last = next;
    }
}
