//! Search for trace files in the paths that were given.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::error::ReadError;
use super::input::Input;

/// Maximum depth of the search: more than `<dir>/node<k>/<local rank>/comm.json` within a folder of
/// runs needs.
const DEPTH_MAX: usize = 8;

/// Bytes of a file that are examined to decide whether it is a trace.
const HEAD_BYTES: u64 = 64 << 10;

/// Returns the trace files that `paths` refer to, in the order of `paths`. A file is returned as it
/// is; a folder is replaced by the traces in it and in its subfolders.
///
/// Within a folder, the files are those called `*.json` or `*.json.gz` that begin as a trace does.
/// They are sorted by folder, then by name, with numbers in numerical order. A rotated segment
/// (`t.old.json`) comes before its successor.
///
/// # Errors
/// A path does not exist, a folder cannot be listed, or there is no trace in it.
pub fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, ReadError> {
    let mut files = Vec::new();
    for path in paths {
        let metadata = std::fs::metadata(path).map_err(|source| ReadError::Io {
            what: "open",
            path: path.clone(),
            source,
        })?;
        if !metadata.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut found = Found::default();
        found.search(path, 0)?;
        if found.traces.is_empty() {
            let path = path.clone();
            return Err(ReadError::NoTraces {
                path,
                files: found.seen,
            });
        }
        found.traces.sort_by_cached_key(|path| order(path));
        files.append(&mut found.traces);
    }
    Ok(files)
}

#[derive(Default)]
struct Found {
    traces: Vec<PathBuf>,
    seen: usize,
}

impl Found {
    fn search(&mut self, folder: &Path, depth: usize) -> Result<(), ReadError> {
        let failed = |source| ReadError::Io {
            what: "list",
            path: folder.to_path_buf(),
            source,
        };
        for entry in std::fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            // Links to folders are not followed: they may form a cycle.
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() {
                if depth < DEPTH_MAX {
                    self.search(&path, depth + 1)?;
                }
            } else if path.is_file() {
                self.seen += 1;
                if is_called_a_trace(&path) && begins_as_a_trace(&path) {
                    self.traces.push(path);
                }
            }
        }
        Ok(())
    }
}

fn is_called_a_trace(path: &Path) -> bool {
    let name = path
        .file_name()
        .map(OsStr::to_string_lossy)
        .unwrap_or_default();
    name.ends_with(".json") || name.ends_with(".json.gz")
}

/// Whether the file begins with an array of objects or a list of events. False if it cannot be
/// read.
fn begins_as_a_trace(path: &Path) -> bool {
    let mut head = Vec::new();
    let Ok(input) = Input::open(path) else {
        return false;
    };
    // On an error, the part before the damage is examined.
    let _ = input.take(HEAD_BYTES).read_to_end(&mut head);
    let blank = |byte: &u8| byte.is_ascii_whitespace();
    let plain: Vec<u8> = head.iter().copied().filter(|byte| !blank(byte)).collect();
    let contains = |needle: &[u8]| memchr::memmem::find(&plain, needle).is_some();
    if plain.starts_with(b"{\"ronde_merge\":") {
        return false; // merged for viewers, not a recording
    }
    plain.starts_with(b"[{") && contains(b"\"ph\":")
        || plain.starts_with(b"{")
            && (contains(b"\"traceEvents\":") || contains(b"\"schemaVersion\":"))
}

/// Sort key: by folder, then by name; numbers by value; `old` before its successor.
fn order(path: &Path) -> (Vec<Vec<Part>>, Vec<Part>, bool) {
    let folders = path.parent().into_iter().flat_map(Path::components);
    let folders = folders
        .map(|folder| parts(&folder.as_os_str().to_string_lossy()))
        .collect();
    let name = path
        .file_name()
        .map(OsStr::to_string_lossy)
        .unwrap_or_default();
    let mut pieces: Vec<&str> = name.split('.').collect();
    let old = pieces.iter().position(|&piece| piece == "old");
    if let Some(old) = old {
        pieces.remove(old);
    }
    // `t.json` before `t.rank1.json`: rank 0's file has no number.
    if let Some(end) = pieces.iter().position(|&piece| piece == "json") {
        pieces.truncate(end);
    }
    (folders, parts(&pieces.join(".")), old.is_none())
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64, String),
    Text(String),
}

/// Splits a name into runs of digits and of other characters.
fn parts(name: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let digits = first.is_ascii_digit();
        let end = rest
            .find(|character: char| character.is_ascii_digit() != digits)
            .unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        parts.push(match part.parse() {
            Ok(number) if digits => Part::Number(number, part.to_owned()),
            _ => Part::Text(part.to_owned()),
        });
        rest = after;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "[\n{\"ph\": \"i\", \"name\": \"CYCLE_START\", \"ts\": 1, \"s\": \"g\"}]";

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn a_folder_stands_for_its_traces_in_order() {
        let comm = "{\n  \"traceEvents\": [\n";
        let folder = folder(&[
            ("t.rank10.json", TRACE),
            ("t.rank2.json", TRACE),
            ("t.json", TRACE),
            ("t.old.json", TRACE),
            ("profile.json", "{\"ronde_profile\": 1}"),
            ("empty.json", ""),
            ("notes.txt", TRACE),
            ("1/comm.json", comm),
            ("0/comm.json", comm),
            ("node1/0/comm.json", comm),
        ]);
        let found = files(&[folder.path().to_path_buf()]).unwrap();
        let names: Vec<_> = found
            .iter()
            .map(|path| path.strip_prefix(folder.path()).unwrap().to_str().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "t.old.json",
                "t.json",
                "t.rank2.json",
                "t.rank10.json",
                "0/comm.json",
                "1/comm.json",
                "node1/0/comm.json"
            ]
        );
    }

    #[test]
    fn a_folder_without_traces_says_what_was_looked_for() {
        let folder = folder(&[("a.txt", "x"), ("deep/b.json", "{}")]);
        let error = files(&[folder.path().to_path_buf()])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("*.json.gz") && error.contains("among 2 files"),
            "{error}"
        );
        let error = files(&[folder.path().join("none.json")])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("cannot open") && error.contains("none.json"),
            "{error}"
        );
    }

    #[test]
    fn circles_of_links_are_not_followed() {
        let folder = folder(&[("a/t.json", TRACE)]);
        std::os::unix::fs::symlink(folder.path(), folder.path().join("a/up")).unwrap();
        assert_eq!(files(&[folder.path().to_path_buf()]).unwrap().len(), 1);
    }
}
