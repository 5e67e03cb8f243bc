//! Horovod's timeline format (`horovod/common/timeline.cc`): a JSON array of Chrome trace events,
//! one "process" for each tensor.
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
//! (The line breaks after events are for this page only: the file has them after metadata alone.)
//! Keys have this order and these blanks, because scripts match on them. `ts` is in whole
//! microseconds since the process joined the job, on rank 0's clock. A tensor's metadata precede
//! its first event.
//!
//! **Phases of a streaming collective.** The local backend copies in, reduces and copies out chunk
//! by chunk, and these stages overlap. Bars show the parts that do not overlap:
//! `MEMCPY_IN_FUSION_BUFFER` ends when this rank's first chunk is copied in,
//! `MEMCPY_OUT_FUSION_BUFFER` begins when only copying out is left, and between them
//! `SHM_ALLREDUCE` contains all three stages. The end of that bar has the time of each, summed over
//! the chunks of the batch, in microseconds: `copy_in_us`, `reduce_us`, `copy_out_us`, `wait_us`
//! (for peers).
//!
//! **Extensions.** The member `ronde` of pid 0's `process_labels` describes the writer: rank, size,
//! local rank, host, backend, settings at the beginning, the number of the segment if a file has grown too
//! large, and the relation of the file's clock to rank 0's: `zero_ns` is the file's `ts` 0 on rank
//! 0's clock, `offset_ns` the offset added to this rank's clock, `error_ns` its error bound,
//! `drift_ppb` its rate of change and `drift_error_ppb` the error bound of that rate. Later
//! measurements follow as metadata `ronde_clock` with the same members; the last one counts.
//! Instants: `STEP` and `EPOCH` (`{"step": n}`, `{"epoch": n}`) where the program has marked the
//! ends of steps and epochs, `SETTINGS` when settings change, `RESET` (`{"reset": n, "size": n}`)
//! when the ranks of an elastic job have changed; pid 0's `process_labels` are then repeated.
//! Settings include the members `hierarchical_allreduce` and `hierarchical_allgather` only while
//! these are on.
//!
//! **Differences.** Names are escaped; a tensor's events are in order of time and nested (an event
//! that would begin before the end of the tensor's previous bar begins at that end); cached tensors
//! have the ticks of ranks too; a barrier has a bar instead of an unmatched end; dropped cycles are
//! counted in `process_labels` of pid 0. Events of different tensors are in any order: a
//! negotiation is written when it has ended, however long ago it began. Files of other ranks than 0
//! have only the time at which this rank was ready: the negotiation begins there.

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

/// Converts records to the text of the format. It holds the text that is not written yet; the
/// writer of the file appends a `]`, which the next text overwrites.
pub(super) struct Format {
    text: Vec<u8>,
    line: Line,
    last: Last,
    segment: u64,
    settings: Settings,
    /// Pid of each tensor, by serial number; 0 for none yet.
    pids: Vec<u32>,
    /// End of each pid's last bar in microseconds since the zero; position 0 is unused.
    ends_us: Vec<u64>,
    ticks: Vec<(u64, u64)>,
    /// Bars of the current batch.
    stencil: Stencil,
}

/// Kind of the array's last element, which determines the separator before the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Nothing,
    Metadata,
    Event,
}

impl Format {
    /// Creates the head of a file, the `segment`-th of its recording; `settings` are in force.
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

    /// Text so far, to be written over the file's last `]`.
    pub(super) fn text(&self) -> &Vec<u8> {
        &self.text
    }

    /// Text so far, to be emptied.
    pub(super) fn text_mut(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// Number of the file among those of its recording.
    pub(super) fn segment(&self) -> u64 {
        self.segment
    }

    /// Records the start of a cycle.
    pub(super) fn cycle(&mut self, at: Nanos) {
        self.instant("CYCLE_START", at);
        self.text.push(b'}');
    }

    /// Records a mark of the program: `name` with `"args": {member: number}`.
    pub(super) fn mark(&mut self, name: &str, member: &str, number: u64, at: Nanos) {
        self.instant(name, at);
        self.text.raw(", \"args\": {\"");
        self.text.raw(member);
        self.text.raw("\": ");
        self.text.number(number);
        self.text.raw("}}");
    }

    /// Records that the ranks of an elastic job have changed, and describes this rank again.
    pub(super) fn reset(&mut self, options: &Options, line: Line, at: Nanos) {
        self.line = line;
        self.settings(options.settings, at);
        self.about(options);
        self.instant("RESET", at);
        self.text.raw(", \"args\": {\"reset\": ");
        self.text.number(options.resets);
        self.text.raw(", \"size\": ");
        self.text.number(options.size as u64);
        self.text.raw("}}");
    }

    /// Records that these settings are in force from `at` on.
    pub(super) fn settings(&mut self, settings: Settings, at: Nanos) {
        if settings == self.settings {
            return;
        }
        let before = std::mem::replace(&mut self.settings, settings);
        self.instant("SETTINGS", at);
        self.text.raw(", \"args\": {\"fusion_threshold_bytes\": ");
        self.text.number(settings.fusion_threshold_bytes);
        self.text.raw(", \"cycle_time_ns\": ");
        self.text.number(settings.cycle_time_ns);
        if settings.gpu_fusion_threshold_bytes != before.gpu_fusion_threshold_bytes {
            self.text.raw(", \"gpu_fusion_threshold_bytes\": ");
            self.text.number(settings.gpu_fusion_threshold_bytes);
        }
        self.switches();
        self.text.raw("}}");
    }

    /// Writes members for the switches that are on; a switch that is off has none.
    fn switches(&mut self) {
        if self.settings.hierarchical_allreduce {
            self.text.raw(", \"hierarchical_allreduce\": true");
        }
        if self.settings.hierarchical_allgather {
            self.text.raw(", \"hierarchical_allgather\": true");
        }
    }

    /// Records that a tensor is ready on all ranks; the first tick is the time at which the first
    /// rank was ready.
    pub(super) fn negotiated(
        &mut self,
        tensor: &TensorName,
        op: &str,
        ticks: &[u64],
        ended: Nanos,
    ) {
        let line = self.line;
        let tick = |&word: &u64| {
            let (rank, at_us) = record::tick(word);
            (line.reference_micros(at_us), rank)
        };
        self.negotiation(tensor, op, ticks.iter().map(tick), self.line.micros(ended));
    }

    /// Records a negotiation as known to this rank, number `rank` of the process set: from the time
    /// at which it had the tensor ready until the cycle was agreed on.
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

    /// Records a mismatch between ranks for a tensor.
    pub(super) fn error(&mut self, tensor: &TensorName, began: Nanos, ended: Nanos) {
        let (began, ended) = (self.line.micros(began), self.line.micros(ended));
        if let Some((pid, began, ended)) = self.span(tensor, began, ended) {
            self.begin("", "ERROR", began, pid);
            self.end(ended, pid);
        }
    }

    /// Records that a batch was executed; its tensors follow.
    pub(super) fn batch(&mut self) {
        self.stencil.clear();
    }

    /// Records that a tensor was executed in `batch`.
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

    /// Returns the tensor's pid, and start and end of its bar in microseconds since the zero, moved
    /// behind the tensor's previous bar if necessary; `None` if the file is full.
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

    /// Writes the start of a bar.
    fn begin(&mut self, prefix: &str, name: &str, at_us: u64, pid: u64) {
        self.separate(Last::Event);
        stencil::begin(&mut self.text, prefix, name, at_us);
        self.text.number(pid);
        self.text.push(b'}');
    }

    /// Writes the end of a bar without arguments.
    fn end(&mut self, at_us: u64, pid: u64) {
        self.separate(Last::Event);
        stencil::end(&mut self.text, at_us);
        self.text.number(pid);
        self.text.push(b'}');
    }

    /// Writes an instant without its closing brace.
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
