//! Text of a batch's bars, formatted once: the bars of its tensors differ only in the pid.

use super::super::inbox::Names;
use super::super::line::Line;
use super::super::record::Executed;
use super::super::text::Text;

/// Bars of one tensor's operation, without the last closing brace, with a gap for each pid.
#[derive(Debug, Default)]
pub(super) struct Stencil {
    /// Start and end of the bar in microseconds since the zero; `None` while the text is not
    /// formatted.
    span: Option<(u64, u64)>,
    text: Vec<u8>,
    /// Positions of the gaps.
    holes: Vec<usize>,
}

impl Stencil {
    /// Discards the text, for another batch.
    pub(super) fn clear(&mut self) {
        self.span = None;
    }

    /// Formats the bars of a tensor of `batch` from `began` to `ended`, unless they are already
    /// formatted.
    pub(super) fn cut(
        &mut self,
        line: Line,
        names: &Names,
        batch: &Executed<'_>,
        (began, ended): (u64, u64),
    ) {
        if self.span == Some((began, ended)) {
            return;
        }
        self.span = Some((began, ended));
        self.text.clear();
        self.holes.clear();
        begin(&mut self.text, "", batch.op.name(), began);
        self.hole("}");
        let mut now = began;
        for (name, from, to, measured) in batch.activities() {
            now = line.micros(from).clamp(now, ended);
            self.text.push(b',');
            begin(&mut self.text, "", names.constant(name), now);
            self.hole("}");
            now = line.micros(to).clamp(now, ended);
            self.text.push(b',');
            end(&mut self.text, now);
            self.hole("");
            if measured {
                phases(&mut self.text, batch);
            }
            self.text.push(b'}');
        }
        self.text.push(b',');
        end(&mut self.text, ended);
        self.hole("");
    }

    /// Appends the bars of the tensor with `pid`.
    pub(super) fn print(&self, pid: u64, text: &mut Vec<u8>) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(pid).as_bytes();
        text.reserve(self.text.len() + self.holes.len() * digits.len());
        let mut from = 0;
        for &hole in &self.holes {
            text.extend_from_slice(&self.text[from..hole]);
            text.extend_from_slice(digits);
            from = hole;
        }
        text.extend_from_slice(&self.text[from..]);
    }

    fn hole(&mut self, after: &str) {
        self.holes.push(self.text.len());
        self.text.raw(after);
    }
}

/// Writes the start of a bar up to its pid.
pub(super) fn begin(text: &mut Vec<u8>, prefix: &str, name: &str, at_us: u64) {
    text.raw("{\"ph\": \"B\", \"name\": \"");
    text.raw(prefix);
    text.raw(name);
    text.raw("\", \"ts\": ");
    text.number(at_us);
    text.raw(", \"pid\": ");
}

/// Writes the end of a bar up to its pid.
pub(super) fn end(text: &mut Vec<u8>, at_us: u64) {
    text.raw("{\"ph\": \"E\", \"ts\": ");
    text.number(at_us);
    text.raw(", \"pid\": ");
}

/// Writes the time of a collective by phase, if it was measured.
fn phases(text: &mut Vec<u8>, batch: &Executed<'_>) {
    let phases = &batch.phases;
    let sums = [
        (", \"args\": {\"copy_in_us\": ", phases.copy_in_ns),
        (", \"reduce_us\": ", phases.reduce_ns),
        (", \"copy_out_us\": ", phases.copy_out_ns),
        (", \"wait_us\": ", phases.wait_ns),
    ];
    if sums.iter().any(|&(_, ns)| ns > 0) {
        for (before, ns) in sums {
            text.raw(before);
            text.micros(ns);
        }
        text.push(b'}');
    }
}
