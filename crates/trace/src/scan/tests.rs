//! Tests of the scanner: all forms of a trace, complete and damaged.

use std::io::Write;

use crate::model::{Format, Kind};
use crate::testing::{told, told_by};

const NAME: &str = r#"{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "a"}}"#;
const BEGIN: &str = r#"{"ph": "B", "name": "ALLREDUCE", "ts": 1, "pid": 1}"#;
const END: &str = r#"{"ph": "E", "ts": 2, "pid": 1}"#;

/// Expects one operation of the tensor `a`; returns the warnings.
#[track_caller]
fn one_operation(text: &[u8]) -> String {
    let (told, source) = told_by(text, None).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(told.operations.len(), 1, "{:?} {told:?}", source.warnings);
    assert_eq!(told.name(told.operations[0].tensor), "a");
    assert_eq!(told.operations[0].kind, Kind::Allreduce);
    source.warnings.join("\n")
}

#[test]
fn arrays_objects_and_neither() {
    let texts = [
        format!("[\n{NAME},\n{BEGIN},{END}]"),
        format!("[\n{NAME},\n{BEGIN},\n{END},\n"),
        format!("[{NAME},{BEGIN},{END},]\n"),
        format!("{NAME}\n{BEGIN}\n{END}\n"),
        format!("{NAME}{BEGIN}{END}"),
        format!("\u{feff}[{NAME},{BEGIN},{END}]"),
        format!(r#"{{"a": {{"b": [1, 2]}}, "traceEvents": [{NAME},{BEGIN},{END}], "z": "x"}}"#),
        format!("[{NAME},{BEGIN}][{END}]"),
        format!("[{NAME},{BEGIN},{{\"ph\": \"C\", \"args\": {{\"x\": 1}}}},{END}]"),
    ];
    for text in texts {
        assert_eq!(one_operation(text.as_bytes()), "", "{text}");
    }
}

#[test]
fn an_object_that_is_not_closed_is_truncated() {
    let text = format!(r#"{{"displayTimeUnit": "ms", "traceEvents" : [ {NAME},{BEGIN},{END}"#);
    let warnings = one_operation(text.as_bytes());
    assert!(warnings.contains("the file is truncated"), "{warnings}");
}

#[test]
fn bytes_that_no_standard_allows() {
    let text = format!("[{},{BEGIN},{END}]", NAME.replace("\"a\"", "\"\x01\t\n\""));
    let (told_here, source) = told(&text);
    assert_eq!(told_here.name(told_here.operations[0].tensor), "\x01\t\n");
    assert!(source.warnings.is_empty());
    let mut text = format!("[{NAME},{BEGIN},{END}]").into_bytes();
    let name = memchr::memmem::find(&text, b"\"a\"").unwrap();
    text[name + 1] = 0xff;
    let (told, _) = told_by(&text, None).unwrap();
    assert_eq!(told.name(told.operations[0].tensor), "\u{fffd}");
}

#[test]
fn damage_is_passed_over_and_located() {
    // An event cut off by the next one.
    let warnings = one_operation(
        format!("[\n{NAME},\n{{\"ph\": \"B\", \"name\": \"NEGO\n{BEGIN},{END}]").as_bytes(),
    );
    let offset = 2 + NAME.len() + 2;
    assert_eq!(
        warnings,
        format!(
            "1 damaged place, 26 bytes left out, at byte {offset}, line 3 (\"{{\\\"ph\\\": \\\"B\\\", \\\"name\\\": \
             \\\"NEGO\\n{{\\\"ph\\\": \\\"B\\\", \\\"n\" …)"
        )
    );
    // A missing brace, a block of zeros, half an event before whole ones, several damaged places.
    let cases = [
        format!("[{NAME},{{\"ph\": \"X\", \"args\": {{\"a\": 1}},\n{BEGIN},{END}]"),
        format!("[{NAME},{}{BEGIN},{END}]", "\0".repeat(4096)),
        format!("\"ts\": 7, \"pid\": 3}},\n{NAME},{BEGIN},{END}]"),
        format!("[{NAME},}}}}{{\"ph\": ]{BEGIN},@@@{END}]"),
        format!("[{NAME},{BEGIN},{{\"ph\": [{{\"ph\": [[[{END}]"),
    ];
    for text in cases {
        let warnings = one_operation(text.as_bytes());
        assert!(warnings.contains("left out"), "{text}: {warnings}");
    }
}

#[test]
fn the_last_event_is_cut() {
    for cut in [
        "{",
        "{\"ph\"",
        "{\"ph\": \"B\", \"name\": \"x",
        "{\"name\": \"process_name\", \"args\": {\"name\": \"b\"}",
    ] {
        let warnings = one_operation(format!("[{NAME},{BEGIN},{END},\n{cut}").as_bytes());
        let expected = format!("its last {} bytes are left out", cut.len());
        assert!(
            warnings.contains(&expected) && warnings.contains("line 2"),
            "{cut}: {warnings}"
        );
    }
}

#[test]
fn an_endless_event_is_passed_over() {
    let endless = format!(
        "{{\"ph\": \"X\", \"args\": {{\"x\": \"{}",
        "x".repeat(20 << 20)
    );
    let warnings = one_operation(format!("[{NAME},{BEGIN},{endless}\"}}}},{END}]").as_bytes());
    assert!(warnings.contains("1 event is too long"), "{warnings}");
}

#[test]
fn text_whose_elements_never_end_takes_a_time_that_grows_with_its_size() {
    // Each of the 600,000 keys is read to the end of the text.
    let endless = "{\"ph\":\"x\",\"".repeat(600_000);
    let warnings = one_operation(format!("[{NAME},{BEGIN},{END},{endless}").as_bytes());
    assert!(warnings.contains("bytes are left out"), "{warnings}");
}

#[test]
fn events_longer_than_the_window() {
    let long = format!("{{\"ph\": \"X\", \"name\": \"{}\"}}", "x".repeat(3 << 20));
    // The only complaint is the event without a pid.
    let warnings = one_operation(format!("[{NAME},{BEGIN},{long},{END}]").as_bytes());
    assert!(
        warnings.starts_with("1 event without a pid"),
        "{}",
        &warnings[..80]
    );
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn compressed_whole_in_parts_cut_and_broken() {
    let (first, second) = (format!("[{NAME},{BEGIN},"), format!("{END}]"));
    let whole = gzip(format!("{first}{second}").as_bytes());
    assert_eq!(one_operation(&whole), "");
    let parts = [gzip(first.as_bytes()), gzip(second.as_bytes())].concat();
    assert_eq!(one_operation(&parts), "", "one after the other");
    // Enough text that some of it is decompressed before the cut.
    let lines: String = (0..20_000)
        .map(|us| format!("{{\"ph\": \"i\", \"name\": \"CYCLE_START\", \"ts\": {us}}},\n"))
        .collect();
    let long = gzip(format!("[{NAME},{BEGIN},{END},\n{lines}]").as_bytes());
    let warnings = one_operation(&long[..long.len() / 2]);
    assert!(
        warnings.contains("compressed file is truncated"),
        "{warnings}"
    );
    let mut broken = long.clone();
    let middle = broken.len() / 2;
    broken[middle..middle + 64].fill(0xff);
    let warnings = one_operation(&broken);
    assert!(warnings.contains("compressed file is"), "{warnings}");
    let error = told_by(&long[..8], None).unwrap_err().to_string();
    assert!(error.contains("is truncated"), "{error}");
}

#[test]
fn other_files_are_called_by_name() {
    let cases: [(&[u8], &str); 16] = [
        (b"", "is empty"),
        (b" \n\t", "nothing but blanks"),
        (b"[", "no event yet"),
        (b"{\"traceEvents\": []}", "no event yet"),
        (b"\x7fELF\x02\x01", "core dump"),
        (b"PK\x03\x04....", "zip archive"),
        (b"SQLite format 3\0", "SQLite"),
        (b"ab\0\x01\x02\x03cd", "binary"),
        (b"\xc3\x28\x80\x81\xfe\xff\x90", "binary"),
        (b"<!DOCTYPE html>\n<p>", "HTML"),
        (
            b"hierarchical_allreduce,cache_enabled,cycle_time_ms,tensor_fusion_threshold,score\n",
            "autotune log",
        ),
        (b"step,ms\n1,2\n", "CSV"),
        (b"{\"ronde_profile\": 1, \"np\": 2}", "profile of Ronde's"),
        (
            b"{\"model\": \"resnet50\", \"np\": 2}",
            "other JSON (an object with model, np",
        ),
        (b"[1, 2, 3]", "other JSON"),
        (b"hello\nworld", "plain text"),
    ];
    for (bytes, expected) in cases {
        let error = told_by(bytes, None).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
        assert!(error.contains("/x/0/comm.json"), "{error}");
    }
    let chrome =
        br#"[{"ph": "X", "cat": "blink", "name": "paint", "ts": 1, "dur": 1, "pid": 1, "tid": 1}]"#;
    let error = told_by(chrome, None).unwrap_err().to_string();
    assert!(
        error.contains("1 events of another program's trace (paint"),
        "{error}"
    );
}

#[test]
fn a_format_that_is_told_is_not_guessed() {
    let (told, source) = told_by(format!("[{NAME}]").as_bytes(), Some(Format::Horovod)).unwrap();
    assert_eq!((source.format, told.operations.len()), (Format::Horovod, 0));
}

#[test]
fn devices_and_folders_are_refused() {
    let refused = |path: &str| {
        crate::Input::open(std::path::Path::new(path))
            .err()
            .unwrap()
            .to_string()
    };
    assert!(refused("/dev/zero").contains("is a device"));
    assert!(refused("/tmp").contains("is a folder"));
    assert!(refused("/nonexistent").contains("cannot open /nonexistent"));
}
