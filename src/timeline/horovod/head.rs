//! Metadata of a file in Horovod's format: its writer, clock, tensors, and the number of dropped
//! cycles.

use super::super::event::TENSORS_MAX;
use super::super::inbox::TensorName;
use super::super::line::Line;
use super::super::options::Options;
use super::super::text::Text;
use super::{Format, Last};

impl Format {
    /// Uses `line` from now on.
    pub(in super::super) fn align(&mut self, line: Line) {
        self.line = line;
        self.metadata("ronde_clock", 0);
        self.clock();
        self.text.raw("}}");
    }

    /// Records the number of cycles dropped so far; the last such record counts.
    pub(in super::super) fn dropped(&mut self, cycles: u64) {
        self.metadata("process_labels", 0);
        self.text.raw("\"labels\": \"");
        self.text.number(cycles);
        self.text.raw(" cycles dropped\", \"dropped_cycles\": ");
        self.text.number(cycles);
        self.text.raw("}}");
    }

    /// Writes the description of the rank, and the settings at the beginning of the file.
    pub(super) fn about(&mut self, options: &Options) {
        self.metadata("process_labels", 0);
        self.text.raw("\"labels\": \"rank ");
        self.text.number(options.rank as u64);
        self.text.raw(" of ");
        self.text.number(options.size as u64);
        self.text.raw("\", \"ronde\": {\"version\": 1");
        let numbers = [
            ("rank", options.rank as u64),
            ("size", options.size as u64),
            ("local_rank", options.local_rank as u64),
            ("segment", self.segment),
            (
                "fusion_threshold_bytes",
                self.settings.fusion_threshold_bytes,
            ),
            (
                "gpu_fusion_threshold_bytes",
                self.settings.gpu_fusion_threshold_bytes,
            ),
        ];
        for (member, value) in numbers {
            self.text.raw(", \"");
            self.text.raw(member);
            self.text.raw("\": ");
            self.text.number(value);
        }
        self.text.raw(", \"cycle_time_ms\": ");
        // `micros` divides by 1,000: microseconds are printed as milliseconds with decimals.
        self.text.micros(self.settings.cycle_time_ns / 1_000);
        self.switches();
        self.text.raw(", \"host\": ");
        self.text.quoted(&options.host);
        self.text.raw(", \"backend\": ");
        self.text.quoted(options.backend);
        self.text.raw(", \"link\": ");
        match options.link {
            Some(link) => {
                let link = format!(
                    "{{\"alpha_us\": {}, \"gb_per_s\": {}}}",
                    link.alpha_us, link.gb_per_s
                );
                self.text.raw(&link);
            }
            None => self.text.raw("null"),
        }
        self.text.raw(", ");
        self.clock();
        self.text.raw("}}}");
    }

    /// Writes the relation of the file's clock to rank 0's.
    fn clock(&mut self) {
        let alignment = self.line.alignment.unwrap_or_default();
        self.text.raw("\"zero_ns\": ");
        self.text.signed(self.line.zero_ns);
        self.text.raw(", \"offset_ns\": ");
        self.text.signed(alignment.offset_ns);
        self.text.raw(", \"error_ns\": ");
        self.text.number(alignment.error_ns);
        self.text.raw(", \"drift_ppb\": ");
        self.text.signed(alignment.drift_ppb);
        self.text.raw(", \"drift_error_ppb\": ");
        self.text.number(alignment.drift_error_ppb);
    }

    /// Writes a metadata event up to the brace that opens its arguments.
    pub(super) fn metadata(&mut self, name: &str, pid: u64) {
        self.separate(Last::Metadata);
        self.text.raw("{\"name\": \"");
        self.text.raw(name);
        self.text.raw("\", \"ph\": \"M\", \"pid\": ");
        self.text.number(pid);
        self.text.raw(", \"args\": {");
    }

    pub(super) fn sort_index(&mut self, pid: u64) {
        self.metadata("process_sort_index", pid);
        self.text.raw("\"sort_index\": ");
        self.text.number(pid);
        self.text.raw("}}");
    }

    /// Writes the metadata of a tensor that the file has not mentioned yet.
    pub(super) fn introduce(&mut self, tensor: &TensorName) -> Option<u32> {
        let pid = self.ends_us.len() as u32;
        if pid > TENSORS_MAX {
            return None;
        }
        self.ends_us.push(0);
        let index = tensor.serial as usize;
        self.pids.resize(self.pids.len().max(index + 1), 0);
        self.pids[index] = pid;
        self.metadata("process_name", pid.into());
        self.text.raw("\"name\": ");
        self.text.quoted(&tensor.name);
        self.text.raw("}}");
        self.sort_index(pid.into());
        Some(pid)
    }
}
