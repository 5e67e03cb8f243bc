//! Horovod's timeline format (`facts/horovod.md` §3): a JSON array of Chrome trace events, one "process" for each
//! tensor.
//!
//! ```text
//! [
//! {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros":1795167892487131}},
//! {"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},
//! {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grad"}},          a tensor: its name …
//! {"name": "process_sort_index", "ph": "M", "pid": 1, "args": {"sort_index": 1}},   … and place in the view
//! {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 25702, "pid": 1},                 the first rank has it ready
//! {"ph": "X", "name": "0", "ts": 25703, "pid": 1, "dur": 0},                         rank 0 has it ready
//! {"ph": "E", "ts": 25900, "pid": 1},                                                every rank has
//! {"ph": "B", "name": "ALLREDUCE", "ts": 25901, "pid": 1},                           it travels …
//! {"ph": "B", "name": "SHM_ALLREDUCE", "ts": 25901, "pid": 1},{"ph": "E", "ts": 27376, "pid": 1},
//! {"ph": "E", "ts": 27380, "pid": 1, "args": {"dtype": "float32", "shape": "[1000]"}}]    … and has arrived
//! ```
//! (Line breaks after events are ours, here only: the file has them after metadata alone.) Keys stand in this
//! order and with these blanks, since scripts match on them. `ts` is in whole microseconds since the start.
//!
//! Where we differ: names are escaped; a tensor's events are in order of time and nest (an event that would
//! reach back into the tensor's previous bar begins at its end); cached tensors have their rank ticks too; a
//! barrier has a bar instead of a stray end; dropped cycles are counted in `process_labels` of pid 0. Events of
//! different tensors come in any order: a negotiation is written when it is over, however long ago it began.

use super::event::TensorId;
use super::record::{self, NameId, Record};
use crate::clock::Nanos;
use crate::tensor::Dtype;

/// Turns records into the text of the format. It holds what has not been written yet; who writes it appends a
/// `]`, to be overwritten by the next text.
#[derive(Debug)]
pub(super) struct Format {
    text: Vec<u8>,
    start: Nanos,
    last: Last,
    names: Vec<&'static str>,
    /// For each tensor, end of its last bar in microseconds since the start; position 0 is unused.
    ends_us: Vec<u64>,
    ticks: Vec<(u64, u64)>,
}

/// What the array's last element is: decides what separates it from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Nothing,
    Metadata,
    Event,
}

impl Format {
    /// The head of a file whose `ts` 0 is `start`, which was `start_epoch_us` on the wall clock.
    pub(super) fn new(start: Nanos, start_epoch_us: u64) -> Self {
        let mut format = Self {
            text: Vec::new(),
            start,
            last: Last::Nothing,
            names: Vec::new(),
            ends_us: vec![0],
            ticks: Vec::new(),
        };
        format.metadata("process_name", 0);
        format
            .text
            .extend_from_slice(b"\"start_time_since_epoch_in_micros\":");
        format.number(start_epoch_us);
        format.text.extend_from_slice(b"}}");
        format.sort_index(0);
        format
    }

    /// Text so far, to be written in place of the file's last `]`.
    pub(super) fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// Learns the name with the next [`NameId`]. Names need no escapes: they are Ronde's own.
    pub(super) fn name(&mut self, name: &'static str) {
        self.names.push(name);
    }

    /// Announces the tensor with the next [`TensorId`].
    pub(super) fn tensor(&mut self, name: &str) {
        let pid = self.ends_us.len() as u64;
        self.ends_us.push(0);
        self.metadata("process_name", pid);
        self.text.extend_from_slice(b"\"name\": ");
        // JSON's own escapes; a `Vec` takes every write.
        let _ = serde_json::to_writer(&mut self.text, name);
        self.text.extend_from_slice(b"}}");
        self.sort_index(pid);
    }

    /// Says how many cycles have been dropped so far; the last such statement counts.
    pub(super) fn dropped(&mut self, cycles: u64) {
        self.metadata("process_labels", 0);
        self.text.extend_from_slice(b"\"labels\": \"");
        self.number(cycles);
        self.text
            .extend_from_slice(b" cycles dropped\", \"dropped_cycles\": ");
        self.number(cycles);
        self.text.extend_from_slice(b"}}");
    }

    /// Appends the events of a record.
    pub(super) fn record(&mut self, record: Record<'_>) {
        match record {
            Record::Cycle { at } => {
                self.separate(Last::Event);
                self.text
                    .extend_from_slice(b"{\"ph\": \"i\", \"name\": \"CYCLE_START\", \"ts\": ");
                self.number(self.micros(at));
                self.text.extend_from_slice(b", \"s\": \"g\"}");
            }
            Record::Negotiated {
                tensor,
                name,
                began,
                ended,
                ticks,
            } => self.negotiated(tensor, name, (began, ended), ticks),
            Record::Error { tensor, began, ended } => {
                if let Some((began, ended)) = self.span(tensor, began, ended) {
                    self.begin("ERROR", began, tensor);
                    self.end(ended, tensor, None);
                }
            }
            Record::Executed {
                name,
                began,
                ended,
                activities,
                members,
            } => {
                for (tensor, output) in members {
                    self.executed(tensor, name, (began, ended), activities, output);
                }
            }
        }
    }

    fn negotiated(&mut self, tensor: TensorId, name: NameId, (began, ended): (Nanos, Nanos), ticks: &[u64]) {
        let Some((began, ended)) = self.span(tensor, began, ended) else {
            return;
        };
        self.begin(self.name_of(name), began, tensor);
        let mut sorted = std::mem::take(&mut self.ticks);
        sorted.extend(ticks.iter().map(|&word| {
            let (rank, at) = record::tick(word);
            (at.clamp(began, ended), rank)
        }));
        sorted.sort_unstable();
        for (at, rank) in sorted.drain(..) {
            self.separate(Last::Event);
            self.text.extend_from_slice(b"{\"ph\": \"X\", \"name\": \"");
            self.number(rank);
            self.text.push(b'"');
            self.time_and_pid(at, tensor);
            self.text.extend_from_slice(b", \"dur\": 0}");
        }
        self.ticks = sorted;
        self.end(ended, tensor, None);
    }

    fn executed(
        &mut self,
        tensor: TensorId,
        name: NameId,
        (began, ended): (Nanos, Nanos),
        activities: &[u64],
        output: Option<(Dtype, &[u64])>,
    ) {
        let Some((began, ended)) = self.span(tensor, began, ended) else {
            return;
        };
        self.begin(self.name_of(name), began, tensor);
        let mut now = began;
        for (name, from, to) in record::activities(activities) {
            now = self.micros(from).clamp(now, ended);
            self.begin(self.name_of(name), now, tensor);
            now = self.micros(to).clamp(now, ended);
            self.end(now, tensor, None);
        }
        self.end(ended, tensor, output);
    }

    /// The bar's two ends in microseconds since the start, moved so that it does not reach back into the tensor's
    /// previous bar; `None` for a tensor without a place in the file.
    fn span(&mut self, tensor: TensorId, began: Nanos, ended: Nanos) -> Option<(u64, u64)> {
        let (began, ended) = (self.micros(began), self.micros(ended));
        if tensor == TensorId::UNRECORDED {
            return None;
        }
        let previous = self.ends_us.get_mut(tensor.0 as usize)?;
        let began = began.max(*previous);
        *previous = ended.max(began);
        Some((began, *previous))
    }

    fn micros(&self, at: Nanos) -> u64 {
        at.0.saturating_sub(self.start.0) / 1_000
    }

    fn name_of(&self, name: NameId) -> &'static str {
        self.names[usize::from(name.0)]
    }

    fn begin(&mut self, name: &str, at_us: u64, tensor: TensorId) {
        self.separate(Last::Event);
        self.text.extend_from_slice(b"{\"ph\": \"B\", \"name\": \"");
        self.text.extend_from_slice(name.as_bytes());
        self.text.push(b'"');
        self.time_and_pid(at_us, tensor);
        self.text.push(b'}');
    }

    fn end(&mut self, at_us: u64, tensor: TensorId, output: Option<(Dtype, &[u64])>) {
        self.separate(Last::Event);
        self.text.extend_from_slice(b"{\"ph\": \"E\"");
        self.time_and_pid(at_us, tensor);
        if let Some((dtype, shape)) = output {
            self.text.extend_from_slice(b", \"args\": {\"dtype\": \"");
            self.text.extend_from_slice(dtype.name().as_bytes());
            self.text.extend_from_slice(b"\", \"shape\": \"[");
            for (position, &dimension) in shape.iter().enumerate() {
                if position > 0 {
                    self.text.extend_from_slice(b", ");
                }
                self.number(dimension);
            }
            self.text.extend_from_slice(b"]\"}");
        }
        self.text.push(b'}');
    }

    fn time_and_pid(&mut self, at_us: u64, tensor: TensorId) {
        self.text.extend_from_slice(b", \"ts\": ");
        self.number(at_us);
        self.text.extend_from_slice(b", \"pid\": ");
        self.number(tensor.0.into());
    }

    /// A metadata event up to the brace that opens its arguments.
    fn metadata(&mut self, name: &str, pid: u64) {
        self.separate(Last::Metadata);
        self.text.extend_from_slice(b"{\"name\": \"");
        self.text.extend_from_slice(name.as_bytes());
        self.text.extend_from_slice(b"\", \"ph\": \"M\", \"pid\": ");
        self.number(pid);
        self.text.extend_from_slice(b", \"args\": {");
    }

    fn sort_index(&mut self, pid: u64) {
        self.metadata("process_sort_index", pid);
        self.text.extend_from_slice(b"\"sort_index\": ");
        self.number(pid);
        self.text.extend_from_slice(b"}}");
    }

    fn separate(&mut self, next: Last) {
        let separator: &[u8] = match self.last {
            Last::Nothing => b"[\n",
            Last::Metadata => b",\n",
            Last::Event => b",",
        };
        self.text.extend_from_slice(separator);
        self.last = next;
    }

    /// Appends a decimal number: most of the text is these, and `write!` takes several times as long.
    fn number(&mut self, mut value: u64) {
        let mut digits = [0; 20];
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                break;
            }
        }
        self.text.extend_from_slice(&digits[first..]);
    }
}
