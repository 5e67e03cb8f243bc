//! Timelines of a small job with known times.
//!
//! A step takes `step_us`: the tensors become ready one after the other, `GAP_US` apart; on the
//! last rank `late_us` later. The negotiation of each lasts until that rank has it ready; then it
//! waits `CYCLE_US`, and its operation takes `MOVE_US`, without overlap.

use std::fmt::Write;
use std::path::Path;

/// Time between two tensors becoming ready.
pub(crate) const GAP_US: i64 = 2000;

/// Time from ready on all ranks to the start of the operation.
pub(crate) const CYCLE_US: i64 = 300;

/// Duration of the operation.
pub(crate) const MOVE_US: i64 = 1000;

/// Elements of every tensor, `float32`.
pub(crate) const ELEMENTS: u64 = 250_000;

/// Job of a few steps.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    pub(crate) ranks: u32,
    pub(crate) steps: i64,
    pub(crate) tensors: i64,
    /// Time from the start of a step to that of the next one.
    pub(crate) step_us: i64,
    /// Delay of the last rank relative to rank 0.
    pub(crate) late_us: i64,
    /// Time between the zero of rank 0's file and those of the other ranks.
    pub(crate) zero_us: i64,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            ranks: 2,
            steps: 12,
            tensors: 4,
            step_us: 20_000,
            late_us: 500,
            zero_us: 5000,
        }
    }
}

impl Job {
    /// Returns the file of a rank, as Ronde writes it.
    pub(crate) fn ronde(&self, rank: u32) -> String {
        let zero_us = if rank == 0 { 0 } else { self.zero_us };
        let mut text = format!(
            "[\n\
             {{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 0, \"args\": \
             {{\"start_time_since_epoch_in_micros\":{}}}}},\n\
             {{\"name\": \"process_labels\", \"ph\": \"M\", \"pid\": 0, \"args\": {{\"labels\": \"rank {rank} of {size}\", \
             \"ronde\": {{\"version\": 1, \"rank\": {rank}, \"size\": {size}, \"local_rank\": {rank}, \"host\": \"h\", \
             \"backend\": \"local\", \"zero_ns\": {}, \"offset_ns\": 0, \"error_ns\": 1000, \"drift_ppb\": 0, \
             \"fusion_threshold_bytes\": 134217728, \"cycle_time_ms\": 1.0}}}}}},\n",
            1_700_000_000_000_000 + zero_us,
            zero_us * 1000,
            size = self.ranks,
        );
        self.events(rank, zero_us, &mut text);
        text.truncate(text.trim_end_matches(',').len());
        text + "]\n"
    }

    /// Writes every rank's file into `folder`: `t.json`, `t.rank1.json`, …
    pub(crate) fn record(&self, folder: &Path) {
        for rank in 0..self.ranks {
            let name = match rank {
                0 => "t.json".to_owned(),
                _ => format!("t.rank{rank}.json"),
            };
            std::fs::write(folder.join(name), self.ronde(rank)).unwrap();
        }
    }

    fn events(&self, rank: u32, zero_us: i64, text: &mut String) {
        for tensor in 0..self.tensors {
            let pid = tensor + 1;
            let _ = writeln!(
                text,
                "{{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": {pid}, \"args\": {{\"name\": \"grad.{tensor}\"}}}},"
            );
        }
        for step in 0..self.steps {
            let began = step * self.step_us - zero_us;
            for tensor in 0..self.tensors {
                self.tensor(rank, began + tensor * GAP_US, tensor + 1, text);
            }
            let end = began + (self.tensors - 1) * GAP_US + self.late_us + CYCLE_US + MOVE_US;
            let _ = write!(
                text,
                "{{\"ph\": \"i\", \"name\": \"STEP\", \"ts\": {end}, \"s\": \"g\", \"args\": {{\"step\": {step}}}}},"
            );
        }
    }

    fn tensor(&self, rank: u32, ready: i64, pid: i64, text: &mut String) {
        let last = ready + self.late_us;
        let begins = last + CYCLE_US;
        let ends = begins + MOVE_US;
        let own = if rank == 0 { ready } else { last };
        let mut event = |event: String| {
            let _ = write!(text, "{{{event}, \"pid\": {pid}}},");
        };
        event(format!(
            "\"ph\": \"B\", \"name\": \"NEGOTIATE_ALLREDUCE\", \"ts\": {own}"
        ));
        if rank == 0 {
            for peer in 0..self.ranks {
                let at = if peer + 1 == self.ranks { last } else { ready };
                event(format!(
                    "\"ph\": \"X\", \"name\": \"{peer}\", \"dur\": 0, \"ts\": {at}"
                ));
            }
        } else {
            event(format!(
                "\"ph\": \"X\", \"name\": \"{rank}\", \"dur\": 0, \"ts\": {own}"
            ));
        }
        event(format!("\"ph\": \"E\", \"ts\": {last}"));
        event(format!(
            "\"ph\": \"B\", \"name\": \"ALLREDUCE\", \"ts\": {begins}"
        ));
        event(format!(
            "\"ph\": \"B\", \"name\": \"SHM_ALLREDUCE\", \"ts\": {begins}"
        ));
        event(format!("\"ph\": \"E\", \"ts\": {ends}"));
        event(format!(
            "\"ph\": \"E\", \"ts\": {ends}, \"args\": {{\"dtype\": \"float32\", \"shape\": \"[{ELEMENTS}]\"}}"
        ));
    }
}
