//! Tests of BytePS's reader: from rows to operations.

use super::super::model::{Format, Phase, Span};
use super::super::testing::told;
use super::*;

fn row(tensor: &str, stage: &str, tid: &str, us: i64, duration: i64) -> String {
    let dot = if stage.is_empty() { "" } else { "." };
    format!(
        r#"{{"ph": "X", "args": {{"name": "Comm.{tensor}"}}, "pid": "Comm.{tensor}", "name": "Comm.{tensor}{dot}{stage}",
        "ts": {us}, "dur": {duration}, "tid": "{tid}", "cat": "Comm"}}"#
    )
}

fn file(rows: &[String]) -> String {
    format!(
        "{{\"traceEvents\": [{}], \"displayTimeUnit\": \"ms\"}}",
        rows.join(",")
    )
}

fn us(began: i64, ended: i64) -> Span {
    Span {
        began: 1_000 * began,
        ended: 1_000 * ended,
    }
}

#[test]
fn unsorted_rows_become_synchronizations() {
    let now = 1_700_000_000_000_000;
    let (told, source) = told(&file(&[
        row("g", "PUSH", "1", now + 30, 5),
        row("g", "", "total", now + 100, 60),
        row("g", "COORDINATE_PUSH", "0", now + 22, 1),
        row("g", "REDUCE", "0", now + 12, 8),
        row("g", "PUSH", "1", now + 120, 5),
        row("h", "", "total", now + 50, 10),
        row("g", "COORDINATE_REDUCE", "0", now + 11, 1),
        row("g", "", "total", now, 60),
    ]));
    assert_eq!(source.format, Format::Byteps);
    assert_eq!(source.epoch_ns, Some(now * 1_000));
    assert_eq!(source.rank, Some(0), "of the folder");
    let found: Vec<_> = told
        .operations
        .iter()
        .map(|operation| {
            (
                told.name(operation.tensor),
                operation.negotiation,
                operation.execution,
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("g", Some(us(0, 12)), Some(us(12, 60))),
            ("h", None, Some(us(50, 60))),
            ("g", None, Some(us(100, 160))),
        ],
        "in order of time"
    );
    let first = &told.operations[0];
    assert_eq!((first.ticks[0].rank, first.ticks[0].at), (0, 0));
    let activities: Vec<_> = first
        .activities
        .iter()
        .map(|activity| (told.name(activity.name), activity.phase, activity.span))
        .collect();
    assert_eq!(
        activities,
        [
            ("COORDINATE_REDUCE", Phase::WaitForData, us(11, 12)),
            ("REDUCE", Phase::Collective, us(12, 20)),
            ("COORDINATE_PUSH", Phase::WaitForData, us(22, 23)),
            ("PUSH", Phase::Collective, us(30, 35)),
        ]
    );
    assert_eq!(source.warnings, Vec::<String>::new());
}

#[test]
fn rows_without_a_whole() {
    let (told, source) = told(&file(&[
        row("g", "REDUCE", "0", 10, 5),
        row("g", "REDUCE", "1", 11, 5),
        row("g", "BROADCAST", "0", 20, 5),
        row("g", "REDUCE", "0", 110, 5),
        row("g", "BROADCAST", "0", 120, -5),
    ]));
    let found: Vec<_> = told
        .operations
        .iter()
        .map(|operation| operation.execution)
        .collect();
    assert_eq!(
        found,
        [Some(us(0, 15)), Some(us(100, 110))],
        "a stage that comes again begins another"
    );
    let warnings = source.warnings.join("\n");
    assert!(
        warnings.contains("5 rows that belong to no complete synchronization"),
        "{warnings}"
    );
    assert!(
        warnings.contains("1 duration is missing or negative"),
        "{warnings}"
    );
}

/// Folders with a `comm.json` in each.
fn folders(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        let path = folder.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("comm.json"), "").unwrap();
    }
    folder
}

#[test]
fn numbers_of_runs_and_dates_are_no_ranks() {
    let folder = folders(&["20200516", "20200517", "runs/17", "trace/0"]);
    std::fs::create_dir(folder.path().join("runs/0")).unwrap();
    let rank = |name: &str| rank_of_folder(&folder.path().join(name).join("comm.json"));
    assert_eq!((rank("20200516"), rank("20200517")), (None, None));
    assert_eq!((rank("runs/17"), rank("trace/0")), (None, Some(0)));
}

#[test]
fn ranks_of_folders() {
    let folder = folders(&["0", "1", "node1/0", "node1/1", "node2/0", "node2/1"]);
    let rank = |name: &str| rank_of_folder(&folder.path().join(name).join("comm.json"));
    assert_eq!((rank("0"), rank("1")), (Some(0), Some(1)));
    assert_eq!(
        (rank("node1/0"), rank("node1/1"), rank("node2/1")),
        (Some(2), Some(3), Some(5))
    );
    assert_eq!(rank("node1/7"), None, "more than the first node has");
    assert_eq!(rank("traces"), None);
}

#[test]
fn escapes_in_names_stand_for_what_they_mean() {
    let (told, _) = told(&file(&[row(r#"a\"b\n\u00fc"#, "", "total", 0, 60)]));
    assert_eq!(told.name(told.operations[0].tensor), "a\"b\nü");
}
