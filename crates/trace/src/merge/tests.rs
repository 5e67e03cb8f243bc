use std::io;

use serde_json::{Value, json};
use smallvec::smallvec;

use super::events::{Events, Micros};
use super::place;
use super::process::{Merger, Process};
use crate::{
    Activity, Clock, Format, Kind, Mark, MarkKind, NameId, Operation, Phase, Source, Span, Tick,
    Visitor,
};

const TENSOR: NameId = NameId(0);
const ACTIVITY: NameId = NameId(1);

/// An operation from `began` to `ended`, in milliseconds, whose negotiation takes the first half.
fn operation(began: i64, ended: i64, activities: &[(i64, i64)]) -> Operation {
    let span = |began: i64, ended: i64| Span {
        began: began * 1_000_000,
        ended: ended * 1_000_000,
    };
    let middle = (began + ended) / 2;
    let activity = |(began, ended): &(i64, i64)| Activity {
        name: ACTIVITY,
        phase: Phase::Collective,
        span: span(*began, *ended),
    };
    Operation {
        tensor: TENSOR,
        kind: Kind::Allgather,
        negotiation: Some(span(began, middle)),
        ticks: smallvec![Tick { rank: 3, at: 1500 }],
        execution: Some(span(middle, ended)),
        activities: activities.iter().map(activity).collect(),
        sums: None,
        dtype: None,
        elements: None,
        bytes: Some(7),
        refused: false,
    }
}

/// Merges files of rank 2, each with its time shift; returns the bars and the other events.
fn merged(files: &[(i64, &[Operation])]) -> (Vec<Value>, Vec<Value>) {
    let mut text = Vec::new();
    let mut events = Events::begin(&mut text).unwrap();
    let mut process = Process::new(2, "rank 2", &mut events);
    for (shift_ns, operations) in files {
        let mut merger = Merger::new(&mut events, &mut process, Some(2), *shift_ns);
        merger.name(TENSOR, "w \"1\"\n");
        merger.name(ACTIVITY, "NCCL_ALLGATHER");
        operations.iter().for_each(|one| merger.operation(one));
    }
    events.end().unwrap();
    let trace: Value = serde_json::from_slice(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap().clone();
    events.into_iter().partition(|event| event["ph"] == "X")
}

/// Name, thread, beginning and duration of a bar, in milliseconds.
fn bar(bar: &Value) -> (&str, u64, f64, f64) {
    let ms = |key: &str| bar[key].as_f64().unwrap() / 1e3;
    let (name, tid) = (bar["name"].as_str(), bar["tid"].as_u64());
    (name.unwrap(), tid.unwrap(), ms("ts"), ms("dur"))
}

#[test]
fn bars_of_one_operation_share_a_thread() {
    let (bars, others) = merged(&[(500_000, &[operation(0, 4, &[(2, 3), (3, 4)])])]);
    assert_eq!(
        bars.iter().map(bar).collect::<Vec<_>>(),
        [
            ("NEGOTIATE_ALLGATHER", 1, 0.5, 2.0),
            ("ALLGATHER", 1, 2.5, 2.0),
            ("NCCL_ALLGATHER", 1, 2.5, 1.0),
            ("NCCL_ALLGATHER", 1, 3.5, 1.0),
        ]
    );
    assert_eq!(bars[1]["args"], json!({"bytes": 7}));
    // The file of a rank other than 0 contributes only its own ready times.
    assert!(others.iter().all(|event| event["ph"] != "i"));
}

#[test]
fn overlapping_bars_get_different_threads() {
    let operations = [operation(0, 4, &[(2, 4), (3, 5)]), operation(2, 6, &[])];
    let (bars, others) = merged(&[(0, &operations)]);
    let threads: Vec<u64> = bars.iter().map(|event| bar(event).1).collect();
    // The second activity of the first operation outlasts it and moves to thread 2. The other
    // operation begins meanwhile: threads 1 (until 4 ms) and 2 (until 5 ms) are occupied.
    assert_eq!(threads, [1, 1, 1, 2, 3, 1]);
    let named = others.iter().filter(|event| event["name"] == "thread_name");
    let names: Vec<&Value> = named.map(|event| &event["args"]["name"]).collect();
    let (second, third) = ("w \"1\"\n (2)", "w \"1\"\n (3)");
    assert_eq!(names, ["marks", "w \"1\"\n", second, third]);

    let many = vec![operation(0, 4, &[]); 100];
    let (bars, _) = merged(&[(0, &many)]);
    assert_eq!(bars.iter().map(|event| bar(event).1).max(), Some(64));
}

#[test]
fn segments_of_a_recording_share_threads() {
    let segment = [operation(0, 4, &[])];
    let (bars, _) = merged(&[(0, &segment), (10_000_000, &segment)]);
    let bars = bars.iter().map(bar).map(|(_, tid, began, _)| (tid, began));
    let expected = [(1, 0.0), (1, 2.0), (1, 10.0), (1, 12.0)];
    assert_eq!(bars.collect::<Vec<_>>(), expected);
}

#[test]
fn microseconds_stay_exact() {
    let text = |ns: i64| serde_json::to_string(&Micros(ns)).unwrap();
    assert_eq!(text(1_795_167_892_487_131_000), "1795167892487131");
    assert_eq!([1500, -250, 0].map(text), ["1.5", "-0.25", "0"]);
}

#[test]
fn an_error_of_the_sink_is_returned_at_the_end() {
    let mut room = [0u8; 200];
    let mut sink = &mut room[..];
    let mut events = Events::begin(&mut sink).unwrap();
    let mut process = Process::new(0, "rank 0", &mut events);
    let kind = MarkKind::Step;
    Merger::new(&mut events, &mut process, None, 0).mark(Mark { kind, at: 0 });
    assert_eq!(events.end().unwrap_err().kind(), io::ErrorKind::WriteZero);
}

fn source(name: &str, rank: Option<u32>, zero_ns: Option<i64>, epoch_ns: Option<i64>) -> Source {
    let clock = |zero_ns| Clock {
        zero_ns,
        ..Clock::default()
    };
    Source {
        rank,
        epoch_ns,
        clock: zero_ns.map(clock),
        ..Source::new(name, Format::Ronde)
    }
}

#[test]
fn files_are_placed_by_their_clocks() {
    let (places, warnings) = place(&[
        source("t.json", Some(0), Some(1000), None),
        source("t.rank1.json", Some(1), Some(400), None),
        source("t.rank2.json", Some(2), Some(1500), None),
    ]);
    assert_eq!(places, [(0, 600), (1, 0), (2, 1100)]);
    assert!(warnings.is_empty());
    // The wall clock serves instead, with a warning.
    let (places, warnings) = place(&[
        source("b", Some(1), None, Some(7000)),
        source("a", Some(0), Some(3), Some(5000)),
        source("c", None, None, None),
    ]);
    assert_eq!(places, [(1, 2000), (0, 0), (2, 0)]);
    assert!(warnings[0].starts_with("b does not say how its clock"));
    let began = "c does not say when it began: its zero is laid on that of a";
    assert_eq!(warnings[1], began);
    assert!(place(&[source("a", None, None, None)]).1.is_empty());
    assert_eq!(place(&[]), (Vec::new(), Vec::new()));
}
