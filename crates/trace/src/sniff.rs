//! Description of a file that is not a trace, for the error message.

use super::complaint::Complaints;
use super::detect::Detector;
use super::scan::Seen;

/// Bytes examined at the start of a file.
pub(super) const HEAD_BYTES: usize = 64 << 10;

/// First bytes of other file types, with their descriptions.
const MAGIC: [(&[u8], &str); 17] = [
    (
        b"{\"ronde_merge\":",
        "is an output of `ronde timeline --merge` for viewers; give its input files",
    ),
    (b"\x7fELF", "is a program, library or core dump (ELF)"),
    (
        b"PK\x03\x04",
        "is a zip archive, like PyTorch's checkpoints; unpack it if it contains a trace",
    ),
    (
        b"\x28\xb5\x2f\xfd",
        "is compressed with zstd; unpack it with `zstd -d`",
    ),
    (
        b"\xfd7zXZ\0",
        "is compressed with xz; unpack it with `unxz`",
    ),
    (b"BZh", "is compressed with bzip2; unpack it with `bunzip2`"),
    (
        b"\x04\x22\x4d\x18",
        "is compressed with lz4; unpack it with `lz4 -d`",
    ),
    (
        b"SQLite format 3\0",
        "is an SQLite database (Nsight Systems exports such)",
    ),
    (b"\x89PNG", "is a PNG picture"),
    (b"\xff\xd8\xff", "is a JPEG picture"),
    (b"GIF8", "is a GIF picture"),
    (b"%PDF", "is a PDF document"),
    (b"\x80\x02", "is a Python pickle"),
    (b"\x80\x04", "is a Python pickle"),
    (b"\x93NUMPY", "is a NumPy array"),
    (b"\x89HDF", "is an HDF5 file"),
    (b"PERFILE2", "is a recording of `perf`"),
];

/// Describes a file whose first bytes show that it is not a trace.
pub(super) fn never_a_trace(head: &[u8]) -> Option<String> {
    let known = MAGIC.iter().find(|(magic, _)| head.starts_with(magic));
    known.map(|&(_, what)| what.to_owned())
}

/// Describes a file in which no usable event was found.
pub(super) fn looks_like(
    head: &[u8],
    seen: Seen,
    detector: &Detector,
    complaints: &Complaints,
) -> String {
    if complaints.has_input_errors() {
        let sentences = complaints.sentences().join("; ");
        return format!("gives nothing: {sentences}");
    }
    if seen.bytes == 0 {
        return "is empty (Horovod writes nothing before the first event)".to_owned();
    }
    if seen.events > 0 {
        let names = detector.names().join(", ");
        return format!(
            "holds {} events of another program's trace ({names}, …)",
            seen.events
        );
    }
    let text = head
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(head)
        .trim_ascii_start();
    if text.is_empty() {
        return "holds nothing but blanks".to_owned();
    }
    if text.contains(&0) {
        return "looks like binary data".to_owned();
    }
    let keys = detector.keys();
    if keys.iter().any(|key| key == "ronde_profile") {
        return "is a profile of Ronde's, for `ronde bench --profile`".to_owned();
    }
    if memchr::memmem::find(text, b"\"traceEvents\"").is_some() || is_bare_array(text) {
        return "holds no event yet".to_owned();
    }
    if !keys.is_empty() {
        return format!("is other JSON (an object with {}, …)", keys.join(", "));
    }
    of_text(text)
}

/// Whether the text is an array without elements, closed or not.
fn is_bare_array(text: &[u8]) -> bool {
    let brackets =
        |byte: &u8| matches!(byte, b'[' | b']' | b'{' | b'}' | b',') || byte.is_ascii_whitespace();
    text.len() < HEAD_BYTES && matches!(text[0], b'[' | b'{') && text.iter().all(brackets)
}

/// Describes text by its first line.
fn of_text(text: &[u8]) -> String {
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line).trim().to_lowercase();
    let commas = line.matches(',').count();
    if line.contains("tensor_fusion_threshold") || line.contains("cycle_time_ms") {
        return "looks like an autotune log (CSV), not a timeline".to_owned();
    }
    if line.starts_with("<!doctype html") || line.starts_with("<html") {
        return "looks like an HTML page".to_owned();
    }
    if line.starts_with('<') {
        return "looks like XML or HTML".to_owned();
    }
    if line.starts_with(['[', '{', '"']) {
        return "looks like other JSON, without events".to_owned();
    }
    let strange = text
        .iter()
        .filter(|&&byte| byte >= 0x80 || (byte < b' ' && !byte.is_ascii_whitespace()));
    if strange.count() * 10 > text.len() {
        return "looks like binary data".to_owned();
    }
    let start: String = line.chars().take(40).collect();
    if commas > 0 && !line.ends_with(',') {
        return format!("looks like a table with commas (CSV) that begins with {start:?}");
    }
    format!("looks like plain text that begins with {start:?}")
}
