//! What the file looks like, whatever is recorded and whatever happens to the disk.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use proptest::prelude::*;
use serde_json::Value;

use super::recorder::Recorder;
use super::writer::Output;
use super::{Activity, BatchRecord, Member, TensorId};
use crate::clock::Nanos;
use crate::negotiation::OpKind;
use crate::tensor::Dtype;

/// A file in memory: `room` bytes long at most, checked after each write, and one that can be held up.
#[derive(Clone)]
struct Memory {
    text: Arc<Mutex<Vec<u8>>>,
    room: usize,
}

impl Memory {
    fn with_room(room: usize) -> Self {
        let text = Arc::default();
        Self { text, room }
    }

    /// While this is held, writes wait.
    fn hold(&self) -> MutexGuard<'_, Vec<u8>> {
        self.text.lock().unwrap()
    }

    fn text(&self) -> String {
        String::from_utf8(self.hold().clone()).unwrap()
    }

    fn recorder(&self, mark_cycles: bool, ring_words: usize) -> Recorder {
        Recorder::with_output(self.clone(), Path::new("memory"), mark_cycles, us(0), ring_words).unwrap()
    }
}

impl Output for Memory {
    fn write_at(&mut self, new: &[u8], offset: u64) -> io::Result<()> {
        let mut text = self.text.lock().unwrap();
        let offset = offset as usize;
        let fits = new.len().min(self.room.saturating_sub(offset));
        let end = text.len().max(offset + fits);
        text.resize(end, 0);
        text[offset..offset + fits].copy_from_slice(&new[..fits]);
        if fits < new.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        balanced(std::str::from_utf8(&text).unwrap());
        Ok(())
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.hold().truncate(length as usize);
        Ok(())
    }
}

fn us(micros: u64) -> Nanos {
    Nanos(micros * 1_000)
}

fn allreduce(began: u64, ended: u64, activities: &[Activity]) -> BatchRecord<'_> {
    BatchRecord {
        op: OpKind::Allreduce,
        began: us(began),
        ended: us(ended),
        activities,
    }
}

fn member(tensor: TensorId) -> Member<'static> {
    Member {
        tensor,
        output: Some((Dtype::F32, &[2, 3])),
    }
}

/// Parses the text and checks that each pid's events are in order of time and nest; answers with the events that
/// are not metadata.
fn balanced(text: &str) -> Vec<Value> {
    let events: Vec<Value> = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let mut open: HashMap<u64, (u64, Vec<String>)> = HashMap::new();
    for event in events
        .iter()
        .filter(|event| event["ph"] != "M" && event["ph"] != "i")
    {
        let at = event["ts"].as_u64().unwrap();
        let (last, stack) = open.entry(event["pid"].as_u64().unwrap()).or_default();
        assert!(at >= *last, "{event} after {last}");
        *last = at;
        match event["ph"].as_str().unwrap() {
            "B" => stack.push(event["name"].as_str().unwrap().to_owned()),
            "E" => drop(stack.pop().unwrap_or_else(|| panic!("{event} without B"))),
            "X" => assert!(
                stack.len() == 1 && stack[0].starts_with("NEGOTIATE_"),
                "{event} in {stack:?}"
            ),
            other => panic!("unknown phase {other}"),
        }
    }
    assert!(
        open.values().all(|(_, stack)| stack.is_empty()),
        "B without E: {open:?}"
    );
    events.into_iter().filter(|event| event["ph"] != "M").collect()
}

#[test]
fn one_step_reads_like_horovods() {
    let memory = Memory::with_room(usize::MAX);
    let mut recorder = memory.recorder(true, 4096);
    let (a, b) = (recorder.tensor("grad \"a\"\n"), recorder.tensor("b"));
    assert_eq!(recorder.tensor("b"), b);
    recorder.begin_cycle(us(10));
    // Rank 1 came first, at 12 µs; ticks are sorted.
    let ticks = [(0, us(15)), (1, us(12))];
    recorder.negotiated(a, OpKind::Allreduce, us(12), ticks.into_iter(), us(16));
    let activity = Activity {
        name: "SHM_ALLREDUCE",
        began: us(20),
        ended: us(29),
    };
    recorder.executed(&allreduce(17, 30, &[activity]), [member(a), member(b)]);
    recorder.end_cycle();
    recorder.begin_cycle(us(1010));
    recorder.error(b, us(1000), us(1011));
    let barrier = BatchRecord {
        op: OpKind::Barrier,
        ..allreduce(1020, 1021, &[])
    };
    recorder.executed(
        &barrier,
        [Member {
            tensor: b,
            output: None,
        }],
    );
    recorder.finish();

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
    // The job's clock counts from the boot: later than 2020 and not in the future.
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros() as u64;
    assert!((1_577_836_800_000_000..=now).contains(&micros.parse().unwrap()));
    let expected = r#", "args": {"sort_index": 0}},
{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grad \"a\"\n"}},
{"name": "process_sort_index", "ph": "M", "pid": 1, "args": {"sort_index": 1}},
{"name": "process_name", "ph": "M", "pid": 2, "args": {"name": "b"}},
{"name": "process_sort_index", "ph": "M", "pid": 2, "args": {"sort_index": 2}},
{"ph": "i", "name": "CYCLE_START", "ts": 10, "s": "g"},
{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 12, "pid": 1},
{"ph": "X", "name": "1", "ts": 12, "pid": 1, "dur": 0},
{"ph": "X", "name": "0", "ts": 15, "pid": 1, "dur": 0},
{"ph": "E", "ts": 16, "pid": 1},
{"ph": "B", "name": "ALLREDUCE", "ts": 17, "pid": 1},
{"ph": "B", "name": "SHM_ALLREDUCE", "ts": 20, "pid": 1},
{"ph": "E", "ts": 29, "pid": 1},
{"ph": "E", "ts": 30, "pid": 1, "args": {"dtype": "float32", "shape": "[2, 3]"}},
{"ph": "B", "name": "ALLREDUCE", "ts": 17, "pid": 2},
{"ph": "B", "name": "SHM_ALLREDUCE", "ts": 20, "pid": 2},
{"ph": "E", "ts": 29, "pid": 2},
{"ph": "E", "ts": 30, "pid": 2, "args": {"dtype": "float32", "shape": "[2, 3]"}},
{"ph": "i", "name": "CYCLE_START", "ts": 1010, "s": "g"},
{"ph": "B", "name": "ERROR", "ts": 1000, "pid": 2},
{"ph": "E", "ts": 1011, "pid": 2},
{"ph": "B", "name": "BARRIER", "ts": 1020, "pid": 2},
{"ph": "E", "ts": 1021, "pid": 2}]"#;
    // Here a line for each event; in the file, events are joined without a line break.
    let (metadata, events) = expected.split_once("{\"ph\"").unwrap();
    let expected = format!("{metadata}{{\"ph\"{}", events.replace(",\n", ","));
    assert_eq!(rest, expected);
}

#[test]
fn the_file_is_complete_at_once_and_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    let mut recorder = Recorder::create(&path, false, us(0)).unwrap();
    let metadata: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(metadata.len(), 2);
    let tensor = recorder.tensor("a");
    for step in 0..5_000 {
        recorder.begin_cycle(us(step * 10));
        recorder.executed(&allreduce(step * 10, step * 10 + 5, &[]), [member(tensor)]);
        recorder.end_cycle();
    }
    drop(recorder);
    assert_eq!(balanced(&std::fs::read_to_string(&path).unwrap()).len(), 10_000);
}

#[test]
fn a_path_that_cannot_be_written_is_an_error_now() {
    assert!(Recorder::create(Path::new("/nonexistent/t.json"), false, us(0)).is_err());
    let full = Recorder::create(Path::new("/dev/full"), false, us(0)).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
}

#[test]
fn a_full_ring_drops_whole_cycles_and_says_how_many() {
    let memory = Memory::with_room(usize::MAX);
    let mut recorder = memory.recorder(false, 64);
    let tensor = recorder.tensor("a");
    let held = memory.hold();
    for cycle in 0..100 {
        recorder.begin_cycle(us(cycle * 10));
        for event in 0..3 {
            let began = cycle * 10 + event;
            recorder.executed(&allreduce(began, began + 1, &[]), [member(tensor)]);
        }
        recorder.end_cycle();
    }
    // Three records of six words: three cycles fit in the ring, and three more if the writer took the first.
    let dropped = recorder.dropped_cycles();
    assert!((94..=97).contains(&dropped), "{dropped}");
    drop(held);
    recorder.finish();
    let text = memory.text();
    assert_eq!(balanced(&text).len() as u64, (100 - dropped) * 6);
    let said = format!(
        r#"{{"name": "process_labels", "ph": "M", "pid": 0, "args": {{"labels": "{dropped} cycles dropped", "dropped_cycles": {dropped}}}}}"#
    );
    assert!(text.contains(&said), "{text}");
}

#[test]
fn a_cycle_larger_than_the_ring_is_dropped() {
    let memory = Memory::with_room(usize::MAX);
    let mut recorder = memory.recorder(false, 64);
    let tensor = recorder.tensor("a");
    recorder.begin_cycle(us(0));
    for at in 0..1_000 {
        recorder.error(tensor, us(at), us(at));
    }
    recorder.begin_cycle(us(1_000));
    recorder.error(tensor, us(1_000), us(1_000));
    recorder.end_cycle();
    assert_eq!(recorder.dropped_cycles(), 1);
    recorder.finish();
    assert_eq!(balanced(&memory.text()).len(), 2);
}

#[test]
fn a_disk_that_fills_up_leaves_a_valid_file_and_the_job_alone() {
    let memory = Memory::with_room(3_000);
    let mut recorder = memory.recorder(false, 64);
    let tensor = recorder.tensor("a");
    for cycle in 0..2_000 {
        recorder.begin_cycle(us(cycle));
        recorder.error(tensor, us(cycle), us(cycle));
        recorder.end_cycle();
    }
    recorder.tensor("b");
    recorder.finish();
    let text = memory.text();
    assert!(text.len() <= 3_000);
    balanced(&text);
}

#[test]
fn a_bar_does_not_reach_back_into_the_one_before() {
    let memory = Memory::with_room(usize::MAX);
    let mut recorder = memory.recorder(false, 4096);
    let tensor = recorder.tensor("a");
    recorder.executed(&allreduce(10, 20, &[]), [member(tensor)]);
    // Another rank was done first and submitted the tensor again while it was being copied out here.
    recorder.negotiated(
        tensor,
        OpKind::Allreduce,
        us(18),
        [(1, us(18)), (0, us(25))].into_iter(),
        us(26),
    );
    recorder.finish();
    let times: Vec<u64> = balanced(&memory.text())
        .iter()
        .map(|event| event["ts"].as_u64().unwrap())
        .collect();
    assert_eq!(times, [10, 20, 20, 20, 25, 26]);
}

/// A random thing to record: which tensors, when, and what.
fn event() -> impl Strategy<Value = (u8, Vec<u8>, u64, u64, Vec<(u64, u64)>)> {
    let inner = proptest::collection::vec((0u64..100_000, 0u64..100_000), 0..4);
    (
        0u8..4,
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
    ) {
        let memory = Memory::with_room(usize::MAX);
        let mut recorder = memory.recorder(true, ring_words);
        for (kind, tensors, began, ended, inner) in &events {
            let ids: Vec<TensorId> = tensors.iter().map(|&t| recorder.tensor(&names[usize::from(t)])).collect();
            let (began, ended) = (Nanos(*began), Nanos(*ended));
            match kind {
                0 => recorder.begin_cycle(began),
                1 => {
                    let ticks = inner.iter().map(|&(rank, at)| (rank as usize, Nanos(at)));
                    recorder.negotiated(ids[0], OpKind::Broadcast, began, ticks, ended);
                }
                2 => recorder.error(ids[0], began, ended),
                _ => {
                    let activity = |&(began, ended): &(u64, u64)| Activity {
                        name: "SHM_BCAST", began: Nanos(began), ended: Nanos(ended),
                    };
                    let activities: Vec<Activity> = inner.iter().map(activity).collect();
                    let batch = BatchRecord { op: OpKind::Broadcast, began, ended, activities: &activities };
                    let member = |&tensor: &TensorId| Member { tensor, output: Some((Dtype::Bf16, &shape)) };
                    recorder.executed(&batch, ids.iter().map(member));
                }
            }
        }
        recorder.finish();
        balanced(&memory.text());
    }
}
