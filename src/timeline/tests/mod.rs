//! Tests of the files' contents, for all kinds of records and for failures of the disk.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;

use super::files::{Files, Output, is_gz};
use super::{Activity, BatchRecord, Member, Options, TensorId, Timeline, Track};
use crate::clock::{Clock, Nanos};
use crate::collective::Phases;
use crate::negotiation::OpKind;
use crate::tensor::Dtype;

mod byteps;
mod control;
mod horovod;
mod ring;

/// Disk in memory that limits each file to `room` bytes, checks files in Horovod's format after
/// each write, and can be blocked.
#[derive(Clone)]
struct Memory {
    files: Arc<Mutex<BTreeMap<PathBuf, Vec<u8>>>>,
    room: usize,
}

/// File on the disk.
struct MemoryFile {
    memory: Memory,
    path: PathBuf,
}

impl Memory {
    fn with_room(room: usize) -> Self {
        let files = Arc::default();
        Self { files, room }
    }

    fn new() -> Self {
        Self::with_room(usize::MAX)
    }

    /// Blocks writes while the guard is held.
    fn hold(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Vec<u8>>> {
        self.files.lock().unwrap()
    }

    fn names(&self) -> Vec<String> {
        let files = self.hold();
        files
            .keys()
            .map(|path| path.display().to_string())
            .collect()
    }

    fn bytes(&self, path: &str) -> Vec<u8> {
        let files = self.hold();
        files
            .get(Path::new(path))
            .unwrap_or_else(|| panic!("no {path}"))
            .clone()
    }

    fn text_of(&self, path: &str) -> String {
        String::from_utf8(self.bytes(path)).unwrap()
    }

    fn text(&self) -> String {
        self.text_of("t.json")
    }

    fn timeline(&self, options: Options) -> Arc<Timeline> {
        self.timeline_with(options, 1 << 16)
    }

    fn timeline_with(&self, options: Options, ring_words: usize) -> Arc<Timeline> {
        Timeline::with_files(options, &Zero, Box::new(self.clone()), ring_words).unwrap()
    }

    /// Starts a recording into `t.json`; includes rank 0's track.
    fn recording(&self, mark_cycles: bool, ring_words: usize) -> Recording {
        let options = Options {
            path: Some("t.json".into()),
            mark_cycles,
            ..Options::default()
        };
        Recording::new(self.timeline_with(options, ring_words))
    }
}

impl Files for Memory {
    fn create(&mut self, path: &Path) -> io::Result<Box<dyn Output>> {
        if path.starts_with("/nowhere") || path.starts_with("/sealed") {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.hold().insert(path.to_owned(), Vec::new());
        Ok(Box::new(MemoryFile {
            memory: self.clone(),
            path: path.to_owned(),
        }))
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = self.hold();
        let bytes = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), bytes);
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        let removed = self.hold().remove(path);
        removed
            .map(drop)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn create_folder(&mut self, path: &Path) -> io::Result<()> {
        if path.starts_with("/nowhere") {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(())
    }
}

impl Output for MemoryFile {
    fn write_at(&mut self, new: &[u8], offset: u64) -> io::Result<usize> {
        let mut files = self.memory.hold();
        let text = files.get_mut(&self.path).ok_or(io::ErrorKind::NotFound)?;
        let offset = offset as usize;
        let fits = new.len().min(self.memory.room.saturating_sub(offset));
        let end = text.len().max(offset + fits);
        text.resize(end, 0);
        text[offset..offset + fits].copy_from_slice(&new[..fits]);
        // Like a disk: the part that fits is written, and only the next write is refused.
        if fits == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let is_after_failure = new == b"]";
        if fits == new.len() && !is_after_failure && !is_gz(&self.path) && text.starts_with(b"[") {
            balanced(std::str::from_utf8(text).unwrap());
        }
        Ok(fits)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        if let Some(text) = self.memory.hold().get_mut(&self.path) {
            text.truncate(length as usize);
        }
        Ok(())
    }
}

/// Clock of the tests: always 0, which is also the files' zero; the tests pass their own times.
struct Zero;

impl Clock for Zero {
    fn now(&self) -> Nanos {
        Nanos(0)
    }
}

/// Timeline with a track of the set of all ranks.
struct Recording {
    timeline: Arc<Timeline>,
    track: Track,
}

impl Recording {
    fn new(timeline: Arc<Timeline>) -> Self {
        let mut track = timeline.track(None, timeline.rank());
        track.begin_cycle(us(0));
        Self { timeline, track }
    }

    /// Records a cycle that begins at `began` and executes `tensors` for 5 µs; they were submitted
    /// 4 µs before it.
    fn step(&mut self, began: u64, tensors: &[&str]) {
        self.track.begin_cycle(us(began));
        if self.track.is_on() {
            let ids: Vec<TensorId> = tensors.iter().map(|name| self.track.tensor(name)).collect();
            let members = ids.iter().map(|&id| Member {
                submitted: Some(us(began.saturating_sub(4))),
                ..member(id)
            });
            self.track
                .executed(&allreduce(began + 1, began + 6, &[]), members);
        }
        self.track.end_cycle();
    }

    fn finish(self) {
        drop(self.track);
        self.timeline.finish();
    }
}

fn us(micros: u64) -> Nanos {
    Nanos(micros * 1_000)
}

fn allreduce(began: u64, ended: u64, activities: &[Activity]) -> BatchRecord<'_> {
    BatchRecord {
        op: OpKind::Allreduce,
        agreed: us(began),
        began: us(began),
        ended: us(ended),
        activities,
        phases: Phases::default(),
    }
}

fn member(tensor: TensorId) -> Member<'static> {
    Member {
        tensor,
        submitted: Some(us(0)),
        output: Some((Dtype::F32, &[2, 3])),
    }
}

/// Parses the text and checks it against the trace-event format: events have the members of their
/// kind, a pid's metadata precede its events, and these are in order of time and nested. Returns
/// the events that are not metadata.
fn balanced(text: &str) -> Vec<Value> {
    let events: Vec<Value> =
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let mut open: HashMap<u64, (u64, Vec<String>)> = HashMap::new();
    let mut named: HashSet<u64> = HashSet::new();
    for event in &events {
        let pid = event["pid"].as_u64();
        match event["ph"].as_str().unwrap() {
            "M" => {
                assert!(
                    event["args"].is_object() && event["name"].is_string(),
                    "{event}"
                );
                named.insert(pid.unwrap());
                continue;
            }
            "i" => {
                assert!(event["name"].is_string() && event["s"] == "g", "{event}");
                event["ts"].as_u64().unwrap();
                continue;
            }
            _ => {}
        }
        let pid = pid.unwrap();
        assert!(named.contains(&pid), "{event} before its metadata");
        let at = event["ts"].as_u64().unwrap();
        let (last, stack) = open.entry(pid).or_default();
        assert!(at >= *last, "{event} after {last}");
        *last = at;
        match event["ph"].as_str().unwrap() {
            "B" => stack.push(event["name"].as_str().unwrap().to_owned()),
            "E" => drop(stack.pop().unwrap_or_else(|| panic!("{event} without B"))),
            "X" => assert!(
                stack.len() == 1 && stack[0].starts_with("NEGOTIATE_") && event["dur"] == 0,
                "{event} in {stack:?}"
            ),
            other => panic!("unknown phase {other}"),
        }
    }
    assert!(
        open.values().all(|(_, stack)| stack.is_empty()),
        "B without E: {open:?}"
    );
    events
        .into_iter()
        .filter(|event| event["ph"] != "M")
        .collect()
}

/// Returns the last value of `member` in pid 0's metadata called `name`.
fn metadata(text: &str, name: &str, member: &str) -> Value {
    let events: Vec<Value> = serde_json::from_str(text).unwrap();
    let found = events
        .iter()
        .filter(|event| event["name"] == name && event["pid"] == 0);
    let args = found.map(|event| &event["args"][member]);
    args.rev()
        .find(|value| !value.is_null())
        .cloned()
        .unwrap_or(Value::Null)
}

/// Returns the names of the tensors in a file, in order of their pids.
fn tensors(text: &str) -> Vec<String> {
    let events: Vec<Value> = serde_json::from_str(text).unwrap();
    let named = events
        .iter()
        .filter(|event| event["name"] == "process_name" && event["pid"] != 0);
    named
        .map(|event| event["args"]["name"].as_str().unwrap().to_owned())
        .collect()
}
