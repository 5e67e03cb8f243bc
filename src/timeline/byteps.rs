//! Writer of BytePS's trace (`docs/timeline.md` in its repository): a row for each synchronization
//! of a tensor, and one for each of its stages.
//!
//! ```text
//! {
//!     "traceEvents": [
//!         {
//!             "ph": "X",
//!             "args": {
//!                 "name": "Comm.grad"
//!             },
//!             "pid": "Comm.grad",
//!             "name": "Comm.grad.REDUCE",        or "Comm.grad" with tid "total"
//!             "ts": 1589597539680042,            microseconds since 1970
//!             "dur": 490316,
//!             "tid": "65536",                    the partition's key
//!             "cat": "Comm"
//!         },
//!         …
//!     ],
//!     "displayTimeUnit": "ms"
//! }
//! ```
//!
//! **Stages.** BytePS reduces within a machine, pushes to servers, pulls, and broadcasts within the
//! machine. Ronde's local backend has the first and the last stage; those between (`COPYD2H`,
//! `PUSH`, `PULL`, `COPYH2D`, …) do not occur.
//!
//! | row | from | until |
//! |---|---|---|
//! | `total` | this rank submitted the tensor | its result was in place |
//! | `COORDINATE_REDUCE` | this rank submitted the tensor | its batch began to move: all ranks had it, and the batches before were through |
//! | `REDUCE` | the batch began to move | nothing was left but to copy results out: chunks are copied in, reduced and, the first ones, copied out |
//! | `BROADCAST` | then | its result was in place |
//!
//! Operations without a reduction (allgather, broadcast, alltoall) have `COORDINATE_BROADCAST` and
//! `BROADCAST` for the same two parts; a reducescatter ends with `REDUCE`. A batch is timed as a
//! whole: its tensors have the same times. A tensor is one partition, with the key that BytePS
//! would give its first partition: 65,536 times the tensor's number in order of first use.
//!
//! The whole file is written at once, when the last step has passed or when the process ends.

use std::io;
use std::path::PathBuf;

use super::files::{Files, prepare_whole, write_whole};
use super::inbox::TensorName;
use super::line::Line;
use super::record::Executed;
use super::steps::{Steps, Window};
use super::text::Text;
use crate::clock::Nanos;
use crate::knobs::StepRange;
use crate::negotiation::OpKind;

/// Most synchronizations kept, some 200 MB: a hundred steps of forty thousand tensors.
const ROWS_MAX: usize = 1 << 22;

/// Bits by which a tensor's number is shifted in the keys of its partitions.
const KEY_SHIFT: u32 = 16;

/// Trace that is being recorded.
pub(super) struct Trace {
    path: PathBuf,
    window: Window,
    line: Line,
    /// Tensors by serial number.
    tensors: Vec<Tensor>,
    /// Number of tensors used so far.
    used: u64,
    rows: usize,
    /// Highest step seen.
    latest: u64,
    /// Whether this rank reports events that concern all ranks.
    speaks: bool,
}

#[derive(Clone, Default)]
struct Tensor {
    name: String,
    key: Option<u64>,
    rounds: Vec<Round>,
}

/// One synchronization; times in microseconds since 1970.
#[derive(Clone, Copy)]
struct Round {
    kind: OpKind,
    submitted: u64,
    began: u64,
    reduced: u64,
    ended: u64,
}

impl Trace {
    pub(super) fn new(path: PathBuf, steps: StepRange, line: Line, speaks: bool) -> Self {
        Self {
            path,
            window: Window::new(steps),
            line,
            tensors: Vec::new(),
            used: 0,
            rows: 0,
            latest: 0,
            speaks,
        }
    }

    /// Checks, at the start, that the folder exists or can be created, and is writable.
    pub(super) fn prepare(&self, files: &mut dyn Files) -> io::Result<()> {
        prepare_whole(files, &self.path)
    }

    /// Records that a tensor has been executed `count` times.
    pub(super) fn counted(&mut self, count: u64) {
        self.window.counted(count);
    }

    /// Records the execution of a tensor that this rank submitted, in step `step`.
    pub(super) fn executed(
        &mut self,
        tensor: &TensorName,
        batch: &Executed<'_>,
        submitted: Nanos,
        step: u64,
    ) {
        self.latest = self.latest.max(step);
        let index = tensor.serial as usize;
        if index >= self.tensors.len() {
            self.tensors.resize(index + 1, Tensor::default());
        }
        let entry = &mut self.tensors[index];
        let used = &mut self.used;
        entry.key.get_or_insert_with(|| {
            *used += 1;
            *used - 1
        });
        if !self.window.holds(step) || !batch.op.moves_data() || self.rows >= ROWS_MAX {
            return;
        }
        if entry.name.is_empty() {
            entry.name = format!("Comm.{}", tensor.name);
        }
        self.rows += 1;
        if self.rows == ROWS_MAX {
            tracing::warn!(
                "the BytePS trace is full: it holds {ROWS_MAX} synchronizations; narrow BYTEPS_TRACE_START_STEP \
                 and BYTEPS_TRACE_END_STEP"
            );
        }
        let tail = std::time::Duration::from_nanos(batch.phases.tail_out_ns);
        let reduced = Nanos(
            (batch.ended - batch.began).saturating_sub(tail).as_nanos() as u64 + batch.began.0,
        );
        let line = &self.line;
        let [submitted, began, reduced, ended] =
            [submitted, batch.began, reduced, batch.ended].map(|at| line.epoch_us(at));
        entry.rounds.push(Round {
            kind: batch.op,
            submitted,
            began,
            reduced,
            ended,
        });
    }

    /// Whether the last step has passed.
    pub(super) fn is_over(&self, steps: &Steps) -> bool {
        self.window.is_over(steps)
    }

    /// Writes the file.
    pub(super) fn finish(self, files: &mut dyn Files, steps: &Steps, dropped: u64) {
        let path = self.path.display();
        let seen = self.latest.max(steps.marked());
        if seen == 0 {
            return; // the job has not started
        }
        // The other ranks have seen as many steps, and do not repeat the warning.
        let last = self.window.range.last.filter(|&last| seen < last);
        if let Some(last) = last.filter(|_| self.speaks) {
            tracing::warn!(
                "the BytePS trace {path} should have steps {} to {last}, but the job had only {seen}; set \
                 BYTEPS_TRACE_START_STEP and BYTEPS_TRACE_END_STEP to steps that the job reaches",
                self.window.range.first
            );
        }
        if dropped > 0 {
            tracing::warn!("the BytePS trace {path} is incomplete: {dropped} cycles were dropped");
        }
        if let Err(error) = write_whole(files, &self.path, &self.text()) {
            tracing::error!("cannot write the BytePS trace {path} (BYTEPS_TRACE_DIR): {error}");
        }
    }

    /// Returns the text. Rows are ordered as in BytePS: by tensor, the whole synchronizations
    /// first, then stage by stage.
    fn text(&self) -> Vec<u8> {
        let mut rows = Rows {
            text: b"{\n    \"traceEvents\": [\n".to_vec(),
            first: true,
        };
        for tensor in &self.tensors {
            let name = &tensor.name[..];
            for round in &tensor.rounds {
                rows.put(name, "", "total", (round.submitted, round.ended));
            }
            let key = (tensor.key.unwrap_or(0) << KEY_SHIFT).to_string();
            for (stage, span) in STAGES {
                for span in tensor.rounds.iter().filter_map(span) {
                    rows.put(name, stage, &key, span);
                }
            }
        }
        rows.text
            .raw("\n\n    ],\n    \"displayTimeUnit\": \"ms\"\n}\n");
        rows.text
    }
}

type Stage = (&'static str, fn(&Round) -> Option<(u64, u64)>);

/// Stages, with their times within a synchronization that has them.
const STAGES: [Stage; 4] = [
    (".COORDINATE_REDUCE", |round| {
        round
            .kind
            .is_reduction()
            .then_some((round.submitted, round.began))
    }),
    (".REDUCE", |round| match round.kind {
        OpKind::Allreduce => Some((round.began, round.reduced)),
        OpKind::Reducescatter => Some((round.began, round.ended)),
        _ => None,
    }),
    (".COORDINATE_BROADCAST", |round| {
        (!round.kind.is_reduction()).then_some((round.submitted, round.began))
    }),
    (".BROADCAST", |round| match round.kind {
        OpKind::Allreduce => Some((round.reduced, round.ended)),
        OpKind::Reducescatter => None,
        _ => Some((round.began, round.ended)),
    }),
];

struct Rows {
    text: Vec<u8>,
    first: bool,
}

impl Rows {
    fn put(&mut self, tensor: &str, stage: &str, tid: &str, (began, ended): (u64, u64)) {
        if !std::mem::replace(&mut self.first, false) {
            self.text.raw(",\n");
        }
        let text = &mut self.text;
        text.raw(
            "        {\n            \"ph\": \"X\",\n            \"args\": {\n                \"name\": ",
        );
        text.quoted(tensor);
        text.raw("\n            },\n            \"pid\": ");
        text.quoted(tensor);
        text.raw(",\n            \"name\": ");
        text.quoted(tensor);
        text.pop(); // the closing quote
        text.raw(stage);
        text.raw("\",\n            \"ts\": ");
        text.number(began);
        text.raw(",\n            \"dur\": ");
        text.number(ended.saturating_sub(began));
        text.raw(",\n            \"tid\": \"");
        text.raw(tid);
        text.raw("\",\n            \"cat\": \"Comm\"\n        }");
    }
}
