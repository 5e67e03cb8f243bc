//! Tests of Horovod's format, byte for byte, and of balanced bars for random records.

use proptest::prelude::*;

use super::*;
use crate::clock::Alignment;
use crate::knobs::Link;
use crate::settings::Settings;

#[test]
fn one_step_reads_like_horovods() {
    let memory = Memory::new();
    let mut recording = memory.recording(true, 4096);
    let track = &mut recording.track;
    let (a, b) = (track.tensor("grad \"a\"\n"), track.tensor("b"));
    assert_eq!(track.tensor("b"), b);
    track.interrupt();
    track.begin_cycle(us(10));
    // Rank 1 was first, at 12 µs; ticks are sorted.
    let ticks = [(0, 15), (1, 12)];
    track.negotiated(a, OpKind::Allreduce, ticks.into_iter(), us(16));
    let activities = [
        ("MEMCPY_IN_FUSION_BUFFER", 17, 20),
        ("SHM_ALLREDUCE", 20, 29),
    ];
    let activities = activities.map(|(name, began, ended)| Activity {
        name,
        began: us(began),
        ended: us(ended),
        measured: name == "SHM_ALLREDUCE",
    });
    let batch = BatchRecord {
        phases: Phases {
            copy_in_ns: 4_000,
            reduce_ns: 1_500,
            copy_out_ns: 250,
            wait_ns: 3_007,
            ..Phases::default()
        },
        ..allreduce(17, 30, &activities)
    };
    track.executed(&batch, [member(a), member(b)]);
    let settings = Settings {
        cycle_time_ns: 2_500_000,
        hierarchical_allreduce: true,
        ..Settings::default()
    };
    track.settings(settings, us(31));
    track.end_cycle();
    track.begin_cycle(us(1010));
    track.error(b, us(1000), us(1011));
    let barrier = BatchRecord {
        op: OpKind::Barrier,
        ..allreduce(1020, 1021, &[])
    };
    let nothing = Member {
        tensor: b,
        submitted: None,
        output: None,
    };
    track.executed(&barrier, [nothing]);
    track.mark_steps(&[us(900), us(1022)]);
    track.mark_epochs(&[us(1023)]);
    track.end_cycle();
    recording.finish();

    let text = memory.text();
    let (head, rest) = text
        .split_once(r#"{"name": "process_sort_index", "ph": "M", "pid": 0"#)
        .unwrap();
    let micros = head
        .strip_prefix(
            r#"[
{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros":"#,
        )
        .and_then(|head| head.strip_suffix("}},\n"))
        .unwrap();
    // The files' zero is the present: later than 2020 and not in the future.
    let now = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap()
        .as_micros() as u64;
    assert!((1_577_836_800_000_000..=now).contains(&micros.parse().unwrap()));
    let expected = r#", "args": {"sort_index": 0}},
{"name": "process_labels", "ph": "M", "pid": 0, "args": {"labels": "rank 0 of 1", "ronde": {"version": 1, "rank": 0, "size": 1, "local_rank": 0, "segment": 1, "fusion_threshold_bytes": 134217728, "gpu_fusion_threshold_bytes": 33554432, "cycle_time_ms": 1, "host": "", "backend": "local", "link": null, "zero_ns": 0, "offset_ns": 0, "error_ns": 0, "drift_ppb": 0, "drift_error_ppb": 0}}},
{"ph": "i", "name": "CYCLE_START", "ts": 0, "s": "g"},
{"ph": "i", "name": "CYCLE_START", "ts": 10, "s": "g"},
{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grad \"a\"\n"}},
{"name": "process_sort_index", "ph": "M", "pid": 1, "args": {"sort_index": 1}},
{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 12, "pid": 1},
{"ph": "X", "name": "1", "ts": 12, "pid": 1, "dur": 0},
{"ph": "X", "name": "0", "ts": 15, "pid": 1, "dur": 0},
{"ph": "E", "ts": 16, "pid": 1},
{"ph": "B", "name": "ALLREDUCE", "ts": 17, "pid": 1},
{"ph": "B", "name": "MEMCPY_IN_FUSION_BUFFER", "ts": 17, "pid": 1},
{"ph": "E", "ts": 20, "pid": 1},
{"ph": "B", "name": "SHM_ALLREDUCE", "ts": 20, "pid": 1},
{"ph": "E", "ts": 29, "pid": 1, "args": {"copy_in_us": 4, "reduce_us": 1.5, "copy_out_us": 0.25, "wait_us": 3.007}},
{"ph": "E", "ts": 30, "pid": 1, "args": {"dtype": "float32", "shape": "[2, 3]"}},
{"name": "process_name", "ph": "M", "pid": 2, "args": {"name": "b"}},
{"name": "process_sort_index", "ph": "M", "pid": 2, "args": {"sort_index": 2}},
{"ph": "B", "name": "ALLREDUCE", "ts": 17, "pid": 2},
{"ph": "B", "name": "MEMCPY_IN_FUSION_BUFFER", "ts": 17, "pid": 2},
{"ph": "E", "ts": 20, "pid": 2},
{"ph": "B", "name": "SHM_ALLREDUCE", "ts": 20, "pid": 2},
{"ph": "E", "ts": 29, "pid": 2, "args": {"copy_in_us": 4, "reduce_us": 1.5, "copy_out_us": 0.25, "wait_us": 3.007}},
{"ph": "E", "ts": 30, "pid": 2, "args": {"dtype": "float32", "shape": "[2, 3]"}},
{"ph": "i", "name": "SETTINGS", "ts": 31, "s": "g", "args": {"fusion_threshold_bytes": 134217728, "cycle_time_ns": 2500000, "hierarchical_allreduce": true}},
{"ph": "i", "name": "STEP", "ts": 900, "s": "g", "args": {"step": 1}},
{"ph": "i", "name": "STEP", "ts": 1022, "s": "g", "args": {"step": 2}},
{"ph": "i", "name": "CYCLE_START", "ts": 1010, "s": "g"},
{"ph": "B", "name": "ERROR", "ts": 1000, "pid": 2},
{"ph": "E", "ts": 1011, "pid": 2},
{"ph": "B", "name": "BARRIER", "ts": 1020, "pid": 2},
{"ph": "E", "ts": 1021, "pid": 2},
{"ph": "i", "name": "EPOCH", "ts": 1023, "s": "g", "args": {"epoch": 1}}]"#;
    // Here one line for each event; in the file, events are joined without a line break.
    let mut joined = String::new();
    for line in expected.lines() {
        joined.push_str(line);
        if line.contains("\"ph\": \"M\"") || line.starts_with(',') {
            joined.push('\n');
        }
    }
    assert_eq!(rest, joined);
}

#[test]
fn the_head_says_who_records_under_which_settings() {
    let memory = Memory::new();
    let options = Options {
        path: Some("t.json.gz".into()),
        all_ranks: true,
        rank: 5,
        size: 8,
        local_rank: 1,
        cross_rank: 2,
        host: "node \"2\"".into(),
        link: Some(Link {
            alpha_us: 200.0,
            gb_per_s: 2.5,
        }),
        settings: Settings {
            fusion_threshold_bytes: 0,
            cycle_time_ns: 3_500_000,
            gpu_fusion_threshold_bytes: 77,
            ..Settings::default()
        },
        ..Options::default()
    };
    Recording::new(memory.timeline(options)).finish();
    assert_eq!(memory.names(), ["t.rank5.json.gz"]);
    let mut text = String::new();
    let bytes = memory.bytes("t.rank5.json.gz");
    io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut text).unwrap();
    balanced(&text);
    assert_eq!(
        metadata(&text, "process_labels", "labels"),
        serde_json::json!("rank 5 of 8")
    );
    let expected = serde_json::json!({
        "version": 1, "rank": 5, "size": 8, "local_rank": 1, "segment": 1, "host": "node \"2\"", "backend": "local",
        "link": {"alpha_us": 200, "gb_per_s": 2.5}, "fusion_threshold_bytes": 0, "cycle_time_ms": 3.5,
        "gpu_fusion_threshold_bytes": 77,
        "zero_ns": 0, "offset_ns": 0, "error_ns": 0, "drift_ppb": 0, "drift_error_ppb": 0,
    });
    assert_eq!(metadata(&text, "process_labels", "ronde"), expected);
}

#[test]
fn a_bar_does_not_reach_back_into_the_one_before() {
    let memory = Memory::new();
    let mut recording = memory.recording(false, 4096);
    let tensor = recording.track.tensor("a");
    recording
        .track
        .executed(&allreduce(10, 20, &[]), [member(tensor)]);
    // Another rank finished first and submitted the tensor again while it was being copied out
    // here.
    let ticks = [(1, 18), (0, 25)];
    recording
        .track
        .negotiated(tensor, OpKind::Allreduce, ticks.into_iter(), us(26));
    recording.finish();
    let times: Vec<u64> = balanced(&memory.text())
        .iter()
        .map(|event| event["ts"].as_u64().unwrap())
        .collect();
    assert_eq!(times, [10, 20, 20, 20, 25, 26]);
}

#[test]
fn another_rank_knows_when_it_was_ready_itself() {
    let memory = Memory::new();
    let options = Options {
        path: Some("t.json".into()),
        all_ranks: true,
        rank: 1,
        size: 2,
        ..Options::default()
    };
    let mut recording = Recording::new(memory.timeline(options));
    // Its clock is 1 ms behind that of rank 0.
    recording.timeline.align(&Alignment {
        offset_ns: 1_000_000,
        error_ns: 20,
        ..Alignment::default()
    });
    recording.step(10, &["a"]); // submitted at 6, agreed at 11
    recording.finish();
    let text = memory.text_of("t.rank1.json");
    let expected = serde_json::json!([
        {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 6, "pid": 1},
        {"ph": "X", "name": "1", "ts": 6, "pid": 1, "dur": 0},
        {"ph": "E", "ts": 11, "pid": 1},
        {"ph": "B", "name": "ALLREDUCE", "ts": 11, "pid": 1},
        {"ph": "E", "ts": 16, "pid": 1, "args": {"dtype": "float32", "shape": "[2, 3]"}},
    ]);
    assert_eq!(Value::from(balanced(&text)), expected);
    // The file's zero is unchanged; on rank 0's clock it is 1 ms.
    let clock = ["zero_ns", "offset_ns", "error_ns", "drift_ppb"].map(|member| {
        let value = metadata(&text, "ronde_clock", member);
        value.as_i64().unwrap()
    });
    assert_eq!(clock, [1_000_000, 1_000_000, 20, 0]);
}

/// Random event to record: kind, tensors, times and ticks.
fn event() -> impl Strategy<Value = (u8, Vec<u8>, u64, u64, Vec<(u64, u64)>)> {
    let inner = proptest::collection::vec((0u64..100_000, 0u64..100_000), 0..4);
    (
        0u8..8,
        proptest::collection::vec(0u8..5, 1..4),
        0u64..100_000,
        0u64..100_000,
        inner,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_is_recorded_the_file_is_balanced(
        events in proptest::collection::vec(event(), 0..60),
        names in proptest::collection::vec(any::<String>(), 5),
        shape in proptest::collection::vec(any::<usize>(), 0..5),
        ring_words in 8usize..600,
        first in proptest::option::of(1u64..4),
        rank in 0usize..2,
    ) {
        let memory = Memory::new();
        let steps = first.map(|first| crate::knobs::StepRange { first, last: Some(first + 2) });
        let options = Options {
            path: Some("t.json".into()), mark_cycles: true, steps, all_ranks: true, rank, size: 2, max_bytes: 20_000,
            dynamic: true, ..Options::default()
        };
        let mut recording = Recording::new(memory.timeline_with(options, ring_words));
        let track = &mut recording.track;
        for (kind, tensors, began, ended, inner) in &events {
            let ids: Vec<TensorId> = tensors.iter().map(|&t| track.tensor(&names[usize::from(t)])).collect();
            let (began, ended) = (Nanos(*began), Nanos(*ended));
            match kind {
                0 => track.begin_cycle(began),
                1 => {
                    let ticks = inner.iter().map(|&(rank, at)| (rank as usize, at / 1_000));
                    track.negotiated(ids[0], OpKind::Broadcast, ticks, ended);
                }
                2 => track.error(ids[0], began, ended),
                3 => track.mark_steps(&[began, ended]),
                4 => track.mark_epochs(&[began]),
                5 => {
                    let offset_ns = began.0 as i64 - 50_000;
                    let alignment = Alignment { at: ended, offset_ns, error_ns: 1, drift_ppb: offset_ns, ..Alignment::default() };
                    recording.timeline.align(&alignment);
                }
                _ => {
                    let activity = |&(began, ended): &(u64, u64)| Activity {
                        name: "SHM_BCAST", began: Nanos(began), ended: Nanos(ended), measured: began > ended,
                    };
                    let activities: Vec<Activity> = inner.iter().map(activity).collect();
                    let phases = Phases { copy_in_ns: began.0, ..Phases::default() };
                    let batch = BatchRecord {
                        op: OpKind::Broadcast, agreed: began, began, ended, activities: &activities, phases,
                    };
                    let member = |&tensor: &TensorId| Member {
                        tensor, submitted: Some(ended), output: Some((Dtype::Bf16, &shape)),
                    };
                    track.executed(&batch, ids.iter().map(member));
                }
            }
        }
        recording.finish();
        balanced(&memory.text_of(if rank == 0 { "t.json" } else { "t.rank1.json" }));
    }
}
