//! Text of a batch's bars, composed once: the bars of its tensors differ only in the pid.

use super::super::inbox::Names;
use super::super::line::Line;
use super::super::record::Executed;
use super::super::text::Text;

/// The bar of a tensor that travels and what lies in it, but for the last closing brace, with a hole for each pid.
#[derive(Debug, Default)]
pub(super) struct Stencil {
    /// The bar's two ends in microseconds since the zero; none: nothing is cut out yet.
    span: Option<(u64, u64)>,
    text: Vec<u8>,
    /// Where the holes are in it.
    holes: Vec<usize>,
}

impl Stencil {
    /// Another batch comes.
    pub(super) fn clear(&mut self) {
        self.span = None;
    }

    /// Cuts out the bars of a tensor of `batch` from `began` to `ended`, if that is not what there is.
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

/// A bar's beginning up to its pid.
pub(super) fn begin(text: &mut Vec<u8>, prefix: &str, name: &str, at_us: u64) {
    text.raw("{\"ph\": \"B\", \"name\": \"");
    text.raw(prefix);
    text.raw(name);
    text.raw("\", \"ts\": ");
    text.number(at_us);
    text.raw(", \"pid\": ");
}

/// A bar's end up to its pid.
pub(super) fn end(text: &mut Vec<u8>, at_us: u64) {
    text.raw("{\"ph\": \"E\", \"ts\": ");
    text.number(at_us);
    text.raw(", \"pid\": ");
}

/// Where the time of a collective went, if it says.
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
