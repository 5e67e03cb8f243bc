//! Tests with the timelines in `tests/fixtures`: totals are compared with those of a short Python
//! script.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::model::{Format, Kind, MarkKind, Operation, Phase};
use super::testing::Told;
use super::{Source, read};

/// Path of the fixture `name`, whichever of the workspace's packages this module belongs to.
fn fixture(name: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = package
        .ancestors()
        .map(|folder| folder.join("tests/fixtures").join(name));
    paths
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("no tests/fixtures/{name}"))
}

fn read_fixture(name: &str) -> (PathBuf, Told, Source) {
    let path = fixture(name);
    let mut told = Told::default();
    let mut progress = 0;
    let source = read(&path, &mut told, &mut |bytes| progress = bytes)
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        progress,
        path.metadata().unwrap().len(),
        "all of the file has been read"
    );
    (path, told, source)
}

/// Numbers that a Python script prints for a file, one per line; `None` without Python.
fn counted(script: &str, path: &Path) -> Option<Vec<i64>> {
    let Ok(output) = Command::new("python3")
        .arg("-c")
        .arg(script)
        .arg(path)
        .output()
    else {
        eprintln!("skipped: no python3 to count with");
        return None;
    };
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    Some(
        text.lines()
            .map(|line| line.trim().parse().unwrap())
            .collect(),
    )
}

fn of(told: &Told, kind: Kind) -> Vec<&Operation> {
    told.operations
        .iter()
        .filter(|operation| operation.kind == kind)
        .collect()
}

/// Total time of the activities of a phase, microseconds.
fn phase_us(told: &Told, phase: Phase) -> i64 {
    let activities = told
        .operations
        .iter()
        .flat_map(|operation| &operation.activities);
    let spans = activities
        .filter(|activity| activity.phase == phase)
        .map(|activity| activity.span);
    spans.map(|span| span.ns() as i64).sum::<i64>() / 1_000
}

/// Repairs the text and matches starts with ends by its own stacks.
const HOROVOD: &str = r#"
import json, re, sys
text = open(sys.argv[1], encoding="utf-8", errors="replace").read().strip()
events = json.loads(text.rstrip(",") + "]")
stacks, total = {}, {}
last = {}
for e in events:
    p = e.get("pid")
    if e["ph"] == "B":
        stacks.setdefault(p, []).append((e["name"], e["ts"]))
    elif e["ph"] == "E":
        name, began = stacks[p].pop()
        total[name] = total.get(name, 0) + e["ts"] - began
ticks = [e for e in events if e["ph"] == "X"]
negotiation = {}
for e in events:
    p = e.get("pid")
    if e["ph"] == "B" and e["name"].startswith("NEGOTIATE"):
        negotiation[p] = []
    if e["ph"] == "X":
        negotiation[p].append((e["ts"], int(e["name"])))
    if e["ph"] == "E" and negotiation.get(p):
        rank = max(negotiation[p], key=lambda t: t[0])[1]
        last[rank] = last.get(rank, 0) + 1
        negotiation[p] = None
print(len(events))
print(sum(e.get("name") == "ALLREDUCE" for e in events))
print(sum(e.get("name") == "BROADCAST" for e in events))
print(sum(e.get("name") == "CYCLE_START" for e in events))
print(len(ticks))
print(total["MPI_ALLREDUCE"] + total["MPI_BCAST"])
print(total["MEMCPY_IN_FUSION_BUFFER"])
print(total["MEMCPY_OUT_FUSION_BUFFER"])
print(sum(v for k, v in total.items() if k.startswith("NEGOTIATE")))
print(total["ALLREDUCE"] + total["BROADCAST"])
for rank in range(4): print(last.get(rank, 0))
"#;

#[test]
fn horovods_timeline_of_4_ranks() {
    let (path, told, source) = read_fixture("horovod-timeline.4-ranks.json");
    assert_eq!(
        (source.format, source.rank, source.size),
        (Format::Horovod, Some(0), Some(4))
    );
    assert_eq!(source.warnings, Vec::<String>::new(), "cut between events");
    assert_eq!(
        told.names
            .iter()
            .filter(|name| name.starts_with("Distributed"))
            .count()
            % 2,
        0
    );
    assert!(
        told.operations
            .iter()
            .all(|operation| operation.negotiation.is_some() && operation.execution.is_some())
    );
    let Some(counted) = counted(HOROVOD, &path) else {
        return;
    };
    let ticks = || {
        told.operations
            .iter()
            .flat_map(|operation| &operation.ticks)
    };
    let sum = |span: fn(&Operation) -> Option<super::Span>| {
        let spans = told.operations.iter().filter_map(span);
        spans.map(|span| span.ns() as i64).sum::<i64>() / 1_000
    };
    let last = |rank| {
        let last = told
            .operations
            .iter()
            .filter_map(|operation| operation.ticks.last());
        last.filter(|tick| tick.rank == rank).count() as i64
    };
    let mut found = vec![
        source.events as i64,
        of(&told, Kind::Allreduce).len() as i64,
        of(&told, Kind::Broadcast).len() as i64,
        told.marks
            .iter()
            .filter(|mark| mark.kind == MarkKind::Cycle)
            .count() as i64,
        ticks().count() as i64,
        phase_us(&told, Phase::Collective),
        phase_us(&told, Phase::CopyIn),
        phase_us(&told, Phase::CopyOut),
        sum(|operation| operation.negotiation),
        sum(|operation| operation.execution),
    ];
    // Among ticks with equal times the script takes the first; the reader's stable order gives the
    // last.
    assert_eq!(found, counted[..10]);
    found = (0..4).map(last).collect();
    let differ: i64 = found
        .iter()
        .zip(&counted[10..])
        .map(|(one, other)| (one - other).abs())
        .sum();
    assert!(differ <= 2 * ties(&told), "{found:?} {counted:?}");
}

/// Number of operations whose last two ticks have equal times.
fn ties(told: &Told) -> i64 {
    let tied = |operation: &&Operation| match &operation.ticks[..] {
        [.., one, other] => one.at == other.at,
        _ => false,
    };
    told.operations.iter().filter(tied).count() as i64
}

const BYTEPS: &str = r#"
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
totals = [e for e in events if e["tid"] == "total"]
stages = [e for e in events if e["tid"] != "total"]
print(len(events))
print(len(totals))
print(sum(e["dur"] for e in totals))
wait = 0
for t in totals:
    moving = [e["ts"] for e in stages if t["ts"] <= e["ts"] <= t["ts"] + t["dur"] and "COORDINATE" not in e["name"]]
    wait += min(moving) - t["ts"]
print(wait)
for name in ["REDUCE", "BROADCAST", "COPYD2H", "COPYH2D"]:
    print(sum(e["dur"] for e in stages if e["name"].split(".")[-1] == name))
"#;

#[test]
fn byteps_trace_of_a_gpu_that_is_not_root() {
    let (path, told, source) = read_fixture("byteps-comm.non-root.json");
    assert_eq!((source.format, source.rank), (Format::Byteps, None));
    assert_eq!(source.warnings, Vec::<String>::new());
    assert!(
        told.operations
            .iter()
            .all(|operation| told.name(operation.tensor) == "byteps.Whole.Gradient")
    );
    let Some(counted) = counted(BYTEPS, &path) else {
        return;
    };
    let sum = |span: fn(&Operation) -> Option<super::Span>| {
        let spans = told.operations.iter().filter_map(span);
        spans.map(|span| span.ns() as i64).sum::<i64>() / 1_000
    };
    let stage = |name: &str| {
        let activities = told
            .operations
            .iter()
            .flat_map(|operation| &operation.activities);
        let of = activities.filter(|activity| told.name(activity.name) == name);
        of.map(|activity| activity.span.ns() as i64).sum::<i64>() / 1_000
    };
    let negotiated = sum(|operation| operation.negotiation);
    let found = [
        source.events as i64,
        told.operations.len() as i64,
        negotiated + sum(|operation| operation.execution),
        negotiated,
        stage("REDUCE"),
        stage("BROADCAST"),
        stage("COPYD2H"),
        stage("COPYH2D"),
    ];
    assert_eq!(found, counted[..]);
}

const KINETO: &str = r#"
import gzip, json, sys
trace = json.load(gzip.open(sys.argv[1]))
events = [e for e in trace["traceEvents"]]
gpu = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
nccl = [e for e in gpu if "nccl" in e["name"]]
print(len(events))
print(trace["distributedInfo"]["world_size"])
print(len(nccl))
print(int(sum(e["dur"] for e in nccl)))
print(len(gpu) - len(nccl))
print(int(sum(e["dur"] for e in gpu) - sum(e["dur"] for e in nccl)))
print(sum(e["name"].startswith("ProfilerStep#") for e in events))
calls = {e["args"]["correlation"]: e for e in events if e.get("cat") == "cuda_runtime"}
notes = [e for e in events if e["name"].startswith("nccl:")]
def name(kernel):
    call = calls[kernel["args"]["correlation"]]
    around = [n for n in notes if n["tid"] == call["tid"] and n["ts"] <= call["ts"] <= n["ts"] + n["dur"]]
    return around[0]["name"]
for wanted in ["nccl:all_reduce", "nccl:all_to_all", "nccl:_all_gather_base"]:
    print(sum(name(k) == wanted for k in nccl))
print(sum(n["args"]["Input Dims"][0][0] * 4 for n in notes if n["name"] == "nccl:all_reduce"))
"#;

#[test]
fn pytorchs_trace_of_a_ddp_rank() {
    let (path, told, source) = read_fixture("kineto-ddp.rank0.json.gz");
    assert_eq!((source.format, source.rank), (Format::Kineto, Some(0)));
    assert_eq!(source.warnings, Vec::<String>::new());
    let Some(counted) = counted(KINETO, &path) else {
        return;
    };
    let reduced = of(&told, Kind::Allreduce);
    let found = [
        source.events as i64,
        i64::from(source.size.unwrap()),
        told.operations.len() as i64,
        phase_us(&told, Phase::Collective),
        (told.compute.len() + told.other_gpu.len()) as i64,
        told.compute
            .iter()
            .chain(&told.other_gpu)
            .map(|span| span.ns() as i64)
            .sum::<i64>()
            / 1_000,
        told.marks
            .iter()
            .filter(|mark| mark.kind == MarkKind::Step)
            .count() as i64,
        reduced.len() as i64,
        of(&told, Kind::Alltoall).len() as i64,
        of(&told, Kind::Allgather).len() as i64,
        reduced
            .iter()
            .filter_map(|operation| operation.bytes)
            .sum::<u64>() as i64,
    ];
    assert_eq!(found, counted[..]);
}
