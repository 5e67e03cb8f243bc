//! Which files there are to read.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::error::ReadError;
use super::input::Input;

/// How deep folders are searched: `<dir>/node<k>/<local rank>/comm.json` in a folder of runs, and some room.
const DEPTH_MAX: usize = 8;

/// How much of a file is looked at to see whether it is a trace.
const HEAD_BYTES: u64 = 64 << 10;

/// The files that paths stand for, in their order: a file for itself, a folder for the traces in it and in its folders,
/// ordered by folder, then by name with numbers in order of size, a part that was rotated away (`t.old.json`) before
/// its successor. Within a folder, files count that are called `*.json` or `*.json.gz` and begin as a trace does.
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
            // A link to a folder is not followed: it may lead round in a circle.
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
    let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
    name.ends_with(".json") || name.ends_with(".json.gz")
}

/// Whether there is an array of objects or a list of events at the beginning of a file. What cannot be read is none.
fn begins_as_a_trace(path: &Path) -> bool {
    let mut head = Vec::new();
    let Ok(input) = Input::open(path) else {
        return false;
    };
    // What comes before a damaged place counts.
    let _ = input.take(HEAD_BYTES).read_to_end(&mut head);
    let blank = |byte: &u8| byte.is_ascii_whitespace();
    let plain: Vec<u8> = head.iter().copied().filter(|byte| !blank(byte)).collect();
    let contains = |needle: &[u8]| memchr::memmem::find(&plain, needle).is_some();
    if plain.starts_with(b"{\"ronde_merge\":") {
        return false; // its originals are beside it, or were somewhere else
    }
    plain.starts_with(b"[{") && contains(b"\"ph\":")
        || plain.starts_with(b"{") && (contains(b"\"traceEvents\":") || contains(b"\"schemaVersion\":"))
}

/// Sorts by folder, then by name; numbers by size; `old` before its successor.
fn order(path: &Path) -> (Vec<Vec<Part>>, Vec<Part>, bool) {
    let folders = path.parent().into_iter().flat_map(Path::components);
    let folders = folders
        .map(|folder| parts(&folder.as_os_str().to_string_lossy()))
        .collect();
    let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
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

/// Splits a name into what is digits and what is not.
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
        let error = files(&[folder.path().to_path_buf()]).unwrap_err().to_string();
        assert!(
            error.contains("*.json.gz") && error.contains("among 2 files"),
            "{error}"
        );
        let error = files(&[folder.path().join("none.json")]).unwrap_err().to_string();
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
