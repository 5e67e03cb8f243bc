//! Tests of BytePS's format: structure of its own files and times of the stages, alone and beside
//! Horovod's format.

use super::*;
use crate::knobs::StepRange;
use crate::timeline::BytepsOptions;

fn options(first: u64, last: u64) -> Options {
    let steps = StepRange {
        first,
        last: Some(last),
    };
    Options {
        byteps: Some(BytepsOptions {
            folder: "tr".into(),
            steps,
        }),
        ..Options::default()
    }
}

fn rows(text: &str) -> Vec<Value> {
    let whole: Value = serde_json::from_str(text).unwrap();
    assert_eq!(whole["displayTimeUnit"], "ms");
    whole["traceEvents"].as_array().unwrap().clone()
}

#[test]
fn a_row_for_the_whole_and_for_each_stage() {
    let memory = Memory::new();
    let mut recording = Recording::new(memory.timeline(options(1, 1)));
    let track = &mut recording.track;
    let [a, b, c, d] = ["a", "b", "c", "\"d\""].map(|name| track.tensor(name));
    let submitted = |tensor| Member {
        submitted: Some(us(100)),
        ..member(tensor)
    };
    let absent = Member {
        submitted: None,
        ..member(d)
    };
    let batch = BatchRecord {
        phases: Phases {
            tail_out_ns: 7_000,
            ..Phases::default()
        },
        ..allreduce(130, 150, &[])
    };
    track.executed(&batch, [submitted(a), absent]);
    let batch = |op| BatchRecord { op, ..batch };
    track.executed(&batch(OpKind::Broadcast), [submitted(b)]);
    track.executed(&batch(OpKind::Reducescatter), [submitted(c)]);
    track.executed(&batch(OpKind::Barrier), [submitted(d)]);
    recording.finish();
    assert_eq!(memory.names(), ["tr/0/comm.json"]);
    let text = memory.text_of("tr/0/comm.json");
    let rows = rows(&text);
    let zero = rows[0]["ts"].as_u64().unwrap() - 100;
    let found: Vec<_> = rows
        .iter()
        .map(|row| {
            let name = row["name"].as_str().unwrap();
            let at = row["ts"].as_u64().unwrap() - zero;
            (
                name,
                at,
                row["dur"].as_u64().unwrap(),
                row["tid"].as_str().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("Comm.a", 100, 50, "total"),
        ("Comm.a.COORDINATE_REDUCE", 100, 30, "0"),
        ("Comm.a.REDUCE", 130, 13, "0"),
        ("Comm.a.BROADCAST", 143, 7, "0"),
        ("Comm.b", 100, 50, "total"),
        ("Comm.b.COORDINATE_BROADCAST", 100, 30, "65536"),
        ("Comm.b.BROADCAST", 130, 20, "65536"),
        ("Comm.c", 100, 50, "total"),
        ("Comm.c.COORDINATE_REDUCE", 100, 30, "131072"),
        ("Comm.c.REDUCE", 130, 20, "131072"),
    ];
    assert_eq!(found, expected);
    // Microseconds since 1970: the present, because the tests' clock shows 0.
    let now = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap()
        .as_micros() as u64;
    assert!((now - 60_000_000..=now).contains(&zero), "{zero} at {now}");
    let first = format!(
        "{{\n    \"traceEvents\": [\n        {{\n            \"ph\": \"X\",\n            \"args\": {{\n                \
         \"name\": \"Comm.a\"\n            }},\n            \"pid\": \"Comm.a\",\n            \"name\": \"Comm.a\",\n            \
         \"ts\": {},\n            \"dur\": 50,\n            \"tid\": \"total\",\n            \"cat\": \"Comm\"\n        }},\n",
        zero + 100
    );
    assert!(text.starts_with(&first), "{text}");
    assert!(
        text.ends_with("\n        }\n\n    ],\n    \"displayTimeUnit\": \"ms\"\n}\n"),
        "{text}"
    );
}

/// Returns a line without its values.
fn shape(line: &str) -> String {
    let (key, value) = line.split_once(": ").unwrap_or((line, ""));
    let value = match value.chars().next() {
        Some('"') => "text",
        Some('0'..='9') => "number",
        _ => value.trim_end_matches(','),
    };
    format!("{key}: {value}")
}

#[test]
fn the_structure_is_that_of_byteps_own_file() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/byteps-comm.non-root.json"
    );
    let real = std::fs::read_to_string(path).unwrap();
    let memory = Memory::new();
    let mut recording = Recording::new(memory.timeline(options(1, 3)));
    (1..=3).for_each(|step| recording.step(step * 100, &["a"]));
    recording.finish();
    let ours = memory.text_of("tr/0/comm.json");
    let count = 12; // three synchronizations with three stages each
    let row_lines = 12;
    let ours: Vec<String> = ours.lines().map(shape).collect();
    let real: Vec<String> = real.lines().map(shape).collect();
    assert_eq!(ours.len(), 2 + count * row_lines + 4);
    let head = 2 + (count - 1) * row_lines;
    assert_eq!(ours[..head], real[..head]);
    let tail = row_lines + 3; // up to the last braces, whose line ends may differ
    let end = |lines: &[String]| -> Vec<String> { lines[lines.len() - tail..].to_vec() };
    assert_eq!(end(&ours), end(&real));
}

#[test]
fn both_ends_of_the_window_are_in_it_and_it_is_written_when_they_have_passed() {
    let memory = Memory::new();
    let both = Options {
        path: Some("t.json".into()),
        rank: 3,
        size: 4,
        local_rank: 1,
        cross_rank: 1,
        all_ranks: true,
        ..options(10, 20)
    };
    let mut recording = Recording::new(memory.timeline(both));
    for step in 1..=21 {
        assert!(!memory.names().iter().any(|name| name.contains("comm.json")));
        recording.step(step * 100, &["a", "b"]);
    }
    // A command to start a recording that runs already is answered when the writer has run.
    let order = crate::timeline::TimelineCommand::Start {
        path: "t.json".into(),
        mark_cycles: false,
    };
    recording.timeline.apply(&order).unwrap();
    recording.timeline.apply(&order).unwrap();
    let rows = rows(&memory.text_of("tr/node1/1/comm.json"));
    assert_eq!(rows.len(), 11 * 2 * 4);
    let totals: Vec<u64> = rows
        .iter()
        .filter(|row| row["pid"] == "Comm.a" && row["tid"] == "total")
        .map(|row| row["ts"].as_u64().unwrap())
        .collect();
    let apart: Vec<u64> = totals.iter().map(|at| at - totals[0]).collect();
    assert_eq!(apart, (0..11).map(|step| step * 100).collect::<Vec<u64>>());
    // Horovod's file has all steps, and continues.
    recording.step(2200, &["a"]);
    recording.finish();
    assert_eq!(memory.names(), ["t.rank3.json", "tr/node1/1/comm.json"]);
    let ended = balanced(&memory.text_of("t.rank3.json"));
    let ended = ended
        .iter()
        .filter(|event| event["args"]["dtype"].is_string());
    assert_eq!(ended.count(), 21 * 2 + 1);
}

#[test]
fn a_job_that_ends_early_leaves_what_there_is() {
    let memory = Memory::new();
    let mut recording = Recording::new(memory.timeline(options(2, 20)));
    (1..=4).for_each(|step| recording.step(step * 100, &["a"]));
    recording.finish();
    assert_eq!(rows(&memory.text_of("tr/0/comm.json")).len(), 3 * 4);
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error_now() {
    // The second folder exists, but is not writable.
    for folder in ["/nowhere/tr", "/sealed/tr"] {
        let mut options = options(1, 2);
        options.byteps.as_mut().unwrap().folder = folder.into();
        let made = Timeline::with_files(options, &Zero, Box::new(Memory::new()), 64);
        let error = made.unwrap_err().to_string();
        assert!(
            error.contains(folder) && error.contains("BYTEPS_TRACE_DIR"),
            "{error}"
        );
    }
}

#[test]
fn a_full_disk_keeps_no_half_of_a_trace() {
    let memory = Memory::with_room(100);
    let mut recording = Recording::new(memory.timeline(options(1, 2)));
    (1..=3).for_each(|step| recording.step(step * 100, &["a"]));
    recording.finish();
    assert!(memory.names().is_empty(), "{:?}", memory.names());
}

#[test]
fn a_job_that_has_not_begun_leaves_no_trace() {
    let memory = Memory::new();
    Recording::new(memory.timeline(options(1, 2))).finish();
    assert!(memory.names().is_empty());
}
