//! Tests of the file: complete and truncated files are read, and errors name the faulty line.

use std::fs;

use proptest::prelude::*;

use super::*;
use crate::sweep::{Phase, Point, Status, testing};

fn rows() -> Vec<Row> {
    vec![
        testing::row(Point::default_of(2), 10.0),
        Row {
            status: Status::Cut,
            phase: Phase::Confirm,
            block: 3,
            at_s: 12.5,
            ..testing::row(testing::point(4), 20.0)
        },
        testing::failed(testing::point(1)),
    ]
}

/// A file with `rows`, and its path.
fn written(rows: &[Row]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sweep.csv");
    let mut store = Store::open(&path).unwrap();
    assert!(store.is_empty().unwrap() && store.go_on().unwrap().is_empty());
    rows.iter().for_each(|row| store.append(row).unwrap());
    (folder, path)
}

#[test]
fn rows_survive_the_file() {
    let (_folder, path) = written(&rows());
    assert_eq!(read(&path).unwrap(), rows());
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 4);
    assert!(
        text.contains("\ngrid,0,2,134217728,1,true,false,done,20,9,10,12,10,1.000,\n"),
        "{text}"
    );
    assert!(
        text.contains(",failed,,,,,,1.000,rank 1 exited with code 1\n"),
        "{text}"
    );
}

#[test]
fn a_truncated_line_is_ignored_and_removed() {
    let (_folder, path) = written(&rows());
    let whole = fs::read(&path).unwrap();
    let lines: Vec<usize> = memchr::memchr_iter(b'\n', &whole)
        .map(|end| end + 1)
        .collect();
    for cut in 0..whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let complete = lines
            .iter()
            .filter(|&&end| end <= cut)
            .count()
            .saturating_sub(1);
        assert_eq!(read(&path).unwrap(), rows()[..complete], "cut at {cut}");
        let mut store = Store::open(&path).unwrap();
        assert_eq!(store.go_on().unwrap(), rows()[..complete]);
        // Resuming writes the same file as an uninterrupted sweep.
        rows()[complete..]
            .iter()
            .for_each(|row| store.append(row).unwrap());
        assert_eq!(fs::read(&path).unwrap(), whole);
    }
}

#[test]
fn two_sweeps_cannot_share_a_file() {
    let (_folder, path) = written(&rows());
    let first = Store::open(&path).unwrap();
    let message = Store::open(&path).unwrap_err().to_string();
    assert!(message.contains("another sweep is writing"), "{message}");
    drop(first);
    Store::open(&path).unwrap();
}

#[test]
fn a_reason_stays_on_its_line() {
    let failed = |reason: &str| Row {
        status: Status::Failed(reason.to_owned()),
        ..testing::failed(testing::point(1))
    };
    let (_folder, path) = written(&[failed("first,\nsecond \"third\"\r\n")]);
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 2);
    assert_eq!(read(&path).unwrap(), [failed("first, second \"third\"")]);
}

#[test]
fn a_full_disk_is_reported() {
    // Every Linux has a device that is always full.
    let file = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut store = Store {
        path: "sweep.csv".into(),
        file,
        bytes: 0,
        rows: 7,
    };
    let message = store.append(&rows()[0]).unwrap_err().to_string();
    for part in [
        "sweep.csv cannot be written: No space left",
        "the 7 measurements before are safe",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn wrong_lines_are_named() {
    ronde_cases::check("sweep_lines.txt", |lines| {
        let text = format!("{HEADER}\n{lines}\n");
        match parse(Path::new("sweep.csv"), text.as_bytes()) {
            Ok(rows) => format!("{rows:?}"),
            Err(error) => error.to_string(),
        }
    });
    let message = parse(Path::new("sweep.csv"), b"a,b\n1,2\n").unwrap_err();
    let message = message.to_string();
    let part = "first line should be phase,block,np";
    assert!(message.contains(part), "{message}");
    assert!(read(Path::new("/no/such.csv")).is_err());
}

proptest! {
    /// Any content gives rows or an error, never a panic.
    #[test]
    fn anything_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), has_header: bool) {
        let mut content = if has_header { HEADER.as_bytes().to_vec() } else { Vec::new() };
        content.push(b'\n');
        content.extend(bytes);
        content.push(b'\n');
        let _ = parse(Path::new("sweep.csv"), &content);
    }
}
