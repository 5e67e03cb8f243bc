//! Tests of the file: complete and truncated files are read, and errors name the faulty line.

use std::fs;

use proptest::prelude::*;

use super::*;
use crate::sweep::Status;

const LINES: &str = "grid,0,2,134217728,1,true,false,done,20,9,10,12,10,1.000,
confirm,3,2,4194304,5,true,false,cut,20,18,20,24,20,12.500,
grid,0,2,1048576,5,true,false,failed,,,,,,1.000,\"first, second \"\"third\"\"\"
";

fn rows() -> Vec<Row> {
    let file = format!("{HEADER}\n{LINES}");
    parse(Path::new("sweep.csv"), file.as_bytes()).unwrap()
}

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
    // A reason stays on its line.
    let mut broken = rows();
    broken[2].status = Status::Failed("first,\nsecond \"third\"\r\n".to_owned());
    let (_folder, path) = written(&broken);
    assert_eq!(read(&path).unwrap(), rows());
    let written = fs::read_to_string(&path).unwrap();
    assert_eq!(written, format!("{HEADER}\n{LINES}"));
}

#[test]
fn a_truncated_line_is_ignored_and_removed() {
    let (_folder, path) = written(&rows());
    let whole = fs::read(&path).unwrap();
    for cut in 0..whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let lines = memchr::memchr_iter(b'\n', &whole[..cut]).count();
        let rows = rows();
        let (complete, left) = rows.split_at(lines.saturating_sub(1));
        assert_eq!(read(&path).unwrap(), complete, "cut at {cut}");
        let mut store = Store::open(&path).unwrap();
        assert_eq!(store.go_on().unwrap(), complete);
        // Resuming writes the same file as an uninterrupted sweep.
        left.iter().for_each(|row| store.append(row).unwrap());
        assert_eq!(fs::read(&path).unwrap(), whole);
    }
}

#[test]
fn a_full_disk_is_reported() {
    // Every Linux has a device that is always full.
    let file = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut store = Store {
        path: "sweep.csv".into(),
        file,
        rows: 7,
    };
    let message = store.append(&rows()[0]).unwrap_err().to_string();
    assert!(message.starts_with("sweep.csv cannot be written: No space left"));
    assert!(
        message.contains("the 7 measurements before are safe"),
        "{message}"
    );
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
    assert!(
        message.contains("first line should be phase,block,np"),
        "{message}"
    );
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
