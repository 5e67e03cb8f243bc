//! Tests of full rings, full disks and the end of the file.

use super::*;
use crate::clock::MonotonicClock;
use crate::error::{Error, SettingsError};

fn on_disk(path: &Path) -> Result<Recording, Error> {
    let options = Options {
        path: Some(path.to_owned()),
        ..Options::default()
    };
    Timeline::new(options, &MonotonicClock).map(Recording::new)
}

#[test]
fn the_file_is_complete_at_once_and_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    let mut recording = on_disk(&path).unwrap();
    let head: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(head.len(), 3);
    let tensor = recording.track.tensor("a");
    for step in 0..5_000 {
        recording.track.begin_cycle(us(step * 10));
        recording
            .track
            .executed(&allreduce(step * 10, step * 10 + 5, &[]), [member(tensor)]);
        recording.track.end_cycle();
    }
    drop(recording.track);
    drop(recording.timeline);
    assert_eq!(
        balanced(&std::fs::read_to_string(&path).unwrap()).len(),
        10_000
    );
}

#[test]
fn a_path_that_cannot_be_written_is_an_error_now() {
    let error = on_disk(Path::new("/nonexistent/t.json"))
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("/nonexistent/t.json") && error.contains("HOROVOD_TIMELINE"),
        "{error}"
    );
    let Some(Error::Settings(SettingsError::Output { source, .. })) =
        on_disk(Path::new("/dev/full")).err()
    else {
        panic!("no error");
    };
    assert_eq!(source.kind(), io::ErrorKind::StorageFull);
}

#[test]
fn a_full_ring_drops_whole_cycles_and_says_how_many() {
    let memory = Memory::new();
    let mut recording = memory.recording(false, 128);
    let track = &mut recording.track;
    let tensor = track.tensor("a");
    let held = memory.hold();
    for cycle in 0..100 {
        track.begin_cycle(us(cycle * 10));
        for event in 0..3 {
            let began = cycle * 10 + event;
            track.executed(&allreduce(began, began + 1, &[]), [member(tensor)]);
        }
        track.end_cycle();
    }
    // Three records of 14 words: three cycles fit in the ring, and three more if the writer has
    // taken the first ones.
    let dropped = track.dropped_cycles();
    assert!((94..=97).contains(&dropped), "{dropped}");
    drop(held);
    recording.finish();
    let text = memory.text();
    assert_eq!(balanced(&text).len() as u64, (100 - dropped) * 6);
    let said = format!(
        r#"{{"name": "process_labels", "ph": "M", "pid": 0, "args": {{"labels": "{dropped} cycles dropped", "dropped_cycles": {dropped}}}}}"#
    );
    assert!(text.contains(&said), "{text}");
}

#[test]
fn a_cycle_larger_than_the_ring_is_dropped() {
    let memory = Memory::new();
    let mut recording = memory.recording(false, 64);
    let track = &mut recording.track;
    let tensor = track.tensor("a");
    track.begin_cycle(us(0));
    for at in 0..1_000 {
        track.error(tensor, us(at), us(at));
    }
    track.begin_cycle(us(1_000));
    track.error(tensor, us(1_000), us(1_000));
    track.end_cycle();
    assert_eq!(track.dropped_cycles(), 1);
    recording.finish();
    assert_eq!(balanced(&memory.text()).len(), 2);
}

#[test]
fn a_disk_that_fills_up_leaves_a_valid_file_and_the_job_alone() {
    let memory = Memory::with_room(3_000);
    let mut recording = memory.recording(false, 64);
    let tensor = recording.track.tensor("a");
    for cycle in 0..2_000 {
        recording.track.begin_cycle(us(cycle));
        recording.track.error(tensor, us(cycle), us(cycle));
        recording.track.end_cycle();
        if cycle % 10 == 0 {
            std::thread::yield_now(); // lets the writer fill the disk
        }
    }
    recording.finish();
    let text = memory.text();
    assert!(text.len() <= 3_000);
    balanced(&text);
}

#[test]
fn a_full_disk_keeps_every_operation_that_fits() {
    let names: Vec<String> = (0..100)
        .map(|tensor| format!("gradient {{{tensor}}}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let text_with = |room: usize| {
        let memory = Memory::with_room(room);
        let mut recording = memory.recording(false, 1 << 16);
        recording.step(10, &names); // one cycle, so one write
        recording.finish();
        memory.text()
    };
    /// Upper bound of the bytes of one operation and the metadata of its tensor.
    const OPERATION_BYTES: usize = 1_000;
    let whole = text_with(usize::MAX);
    let first = whole.find("gradient").unwrap();
    for room in (first + OPERATION_BYTES..whole.len()).step_by(97) {
        let text = text_with(room);
        assert!(
            text.len() <= room && text.len() > room - OPERATION_BYTES,
            "{} of {room} bytes",
            text.len()
        );
        // Before the first tensor, the files differ by their start time.
        let end = text.len() - 1;
        assert_eq!(text[first..end], whole[first..end]);
        assert_eq!(balanced(&text).len() % 2, 0);
    }
}

#[test]
fn a_full_disk_keeps_all_compressed_text_that_fits() {
    let memory = Memory::with_room(2_000);
    let options = Options {
        path: Some("t.json.gz".into()),
        ..Options::default()
    };
    let mut recording = Recording::new(memory.timeline(options));
    let names: Vec<String> = (0..1_000)
        .map(|tensor| format!("gradient {}", tensor * tensor))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    recording.step(10, &names);
    recording.finish();
    let bytes = memory.bytes("t.json.gz");
    assert_eq!(bytes.len(), 2_000);
    let mut text = Vec::new();
    let ended = io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut text);
    assert!(ended.is_err());
    let events = text
        .windows(5)
        .filter(|window| window == b"\"ph\":")
        .count();
    assert!(events > 200, "{events} events");
}

#[test]
fn a_compressed_file_cut_short_decodes_as_far_as_it_goes() {
    let memory = Memory::new();
    let options = Options {
        path: Some("t.json.gz".into()),
        ..Options::default()
    };
    let mut recording = Recording::new(memory.timeline(options));
    recording.step(10, &["a"]);
    // A command that changes nothing is answered when everything before it has been written.
    let order = super::super::TimelineCommand::Start {
        path: "t.json.gz".into(),
        mark_cycles: false,
    };
    recording.track.interrupt();
    recording.timeline.apply(&order).unwrap();
    recording.step(20, &["a"]);
    let decoded = |bytes: &[u8]| {
        let mut text = Vec::new();
        let ended = io::Read::read_to_end(&mut flate2::read::GzDecoder::new(bytes), &mut text);
        (String::from_utf8(text).unwrap(), ended.is_ok())
    };
    // After a kill at this point, the first step can be read, at the latest after the next flush.
    recording.timeline.apply(&order).unwrap();
    let (text, ended) = decoded(&memory.bytes("t.json.gz"));
    assert!(!ended);
    assert_eq!(balanced(&format!("{text}]")).len(), 4);
    recording.finish();
    let (text, ended) = decoded(&memory.bytes("t.json.gz"));
    assert!(ended);
    assert_eq!(balanced(&text).len(), 4);
}

/// Starts a recording of at most 20 kB.
fn bounded() -> (Memory, Recording) {
    let memory = Memory::new();
    let options = Options {
        path: Some("t.json".into()),
        max_bytes: 20_000,
        ..Options::default()
    };
    let recording = Recording::new(memory.timeline(options));
    (memory, recording)
}

#[test]
fn a_file_that_grows_too_large_makes_room_for_a_new_one() {
    let (memory, mut recording) = bounded();
    let steps = 400;
    for step in 0..steps {
        recording.step(10 + step * 10, &["a", "b"]);
    }
    recording.finish();
    assert_eq!(memory.names(), ["t.json", "t.old.json"]);
    let (new, old) = (memory.text(), memory.text_of("t.old.json"));
    assert!(
        new.len() + old.len() <= 20_500,
        "{} + {}",
        new.len(),
        old.len()
    );
    let segment = |text: &str| {
        let ronde = metadata(text, "process_labels", "ronde");
        ronde["segment"].as_u64().unwrap()
    };
    assert!(segment(&old) > 1 && segment(&new) == segment(&old) + 1);
    // Each file is valid, the newer one continues where the older one ends, and the last step is in
    // it.
    let (old, new) = (balanced(&old), balanced(&new));
    let ts = |event: Option<&Value>| event.unwrap()["ts"].as_u64().unwrap();
    assert!(ts(old.last()) <= ts(new.first()) + 10);
    assert_eq!(ts(new.last()), 10 + (steps - 1) * 10 + 6);
}

#[test]
fn all_events_of_an_operation_are_in_one_file() {
    let (memory, mut recording) = bounded();
    let tensors: Vec<TensorId> = (0..20)
        .map(|tensor| recording.track.tensor(&format!("gradient {tensor}")))
        .collect();
    for step in 0..60 {
        let began = 10 + step * 10;
        recording.track.begin_cycle(us(began));
        for &tensor in &tensors {
            let tick = [(0, began)].into_iter();
            recording
                .track
                .negotiated(tensor, OpKind::Allreduce, tick, us(began + 1));
        }
        let batch = allreduce(began + 2, began + 6, &[]);
        recording
            .track
            .executed(&batch, tensors.iter().map(|&tensor| member(tensor)));
        recording.track.end_cycle();
    }
    recording.finish();
    for file in ["t.old.json", "t.json"] {
        let events = balanced(&memory.text_of(file));
        let count = |name: &str| events.iter().filter(|event| event["name"] == name).count();
        assert_eq!(count("NEGOTIATE_ALLREDUCE"), count("ALLREDUCE"), "{file}");
        assert_eq!(count("ALLREDUCE") % 20, 0, "{file}");
    }
}
