//! Real recorded files (`../shared/traces`; skipped where that folder is absent), counted by an independent script too.

use std::path::PathBuf;

use super::model::{Format, Kind, MarkKind, Phase};
use super::testing::Told;
use super::{Source, read};

fn shared(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/traces")).join(name);
    if path.exists() {
        return Some(path);
    }
    eprintln!("skipped: {} is not here", path.display());
    None
}

fn read_shared(name: &str) -> Option<(Told, Source)> {
    let path = shared(name)?;
    let mut told = Told::default();
    let source = read(&path, &mut told, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    Some((told, source))
}

#[test]
fn horovods_timeline_of_4_ranks() {
    let Some((told, source)) = read_shared("horovod-timeline.4ranks.2018.json") else {
        return;
    };
    eprintln!("{source:?}");
    assert_eq!(source.format, Format::Horovod);
    let of = |kind| {
        told.operations
            .iter()
            .filter(|operation| operation.kind == kind)
            .count()
    };
    assert_eq!((of(Kind::Allreduce), of(Kind::Broadcast)), (660, 13));
    let _ = (MarkKind::Cycle, Phase::CopyIn);
}

#[test]
fn byteps() {
    let Some((told, source)) = read_shared("byteps-comm.nonroot.json") else {
        return;
    };
    eprintln!("{source:?}");
    assert_eq!(source.format, Format::Byteps);
    for operation in &told.operations {
        eprintln!(
            "{:?} {:?} {}",
            operation.negotiation,
            operation.execution,
            operation.activities.len()
        );
    }
}

#[test]
fn kineto() {
    let Some((told, source)) = read_shared("kineto.ddp.rank0.json.gz") else {
        return;
    };
    eprintln!("{source:?}");
    for operation in &told.operations {
        eprintln!("{} {operation:?}", told.name(operation.tensor));
    }
    eprintln!("{} {:?}", told.compute.len(), told.marks);
}
