//! Creates files by name: on disk, or in memory for tests.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// File operations of a timeline.
pub(super) trait Files: Send {
    /// Creates a file, or truncates an existing one.
    fn create(&mut self, path: &Path) -> io::Result<Box<dyn Output>>;
    /// Renames a file, replacing one with the new name.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
    /// Deletes a file.
    fn remove(&mut self, path: &Path) -> io::Result<()>;
    /// Creates a folder and its parents.
    fn create_folder(&mut self, path: &Path) -> io::Result<()>;
}

/// Destination of text: a file, or in tests one that fails.
pub(super) trait Output: Send {
    /// Writes the beginning of `text` at `offset`, as much as the system accepts at once, and
    /// returns the number of bytes.
    fn write_at(&mut self, text: &[u8], offset: u64) -> io::Result<usize>;
    /// Truncates the file to `length` bytes.
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

/// Error of a text of which only the beginning could be written.
#[derive(Debug)]
pub(super) struct Incomplete {
    /// Bytes of the text that are in the file.
    pub(super) written: usize,
    pub(super) source: io::Error,
}

/// Writes all of `text` at `offset`.
///
/// # Errors
/// [`Incomplete`]: a full disk accepts the part of the text for which there is space.
pub(super) fn write_all_at(
    output: &mut dyn Output,
    text: &[u8],
    offset: u64,
) -> Result<(), Incomplete> {
    let mut written = 0;
    while written < text.len() {
        let source = match output.write_at(&text[written..], offset + written as u64) {
            Ok(0) => io::ErrorKind::WriteZero.into(),
            Ok(bytes) => {
                written += bytes;
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => error,
        };
        return Err(Incomplete { written, source });
    }
    Ok(())
}

/// File operations on the file system.
pub(super) struct Disk;

impl Files for Disk {
    fn create(&mut self, path: &Path) -> io::Result<Box<dyn Output>> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32) // for a pipe without a reader: an error instead of a wait
            .open(path)?;
        Ok(Box::new(file))
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn create_folder(&mut self, path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path)
    }
}

impl Output for File {
    fn write_at(&mut self, text: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, text, offset)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

/// Writes a whole file atomically: a reader finds either the new contents or the previous ones. On
/// failure no temporary file stays.
pub(super) fn write_whole(files: &mut dyn Files, path: &Path, text: &[u8]) -> io::Result<()> {
    let unfinished = unfinished(path);
    let mut output = begin_whole(files, path)?;
    let written = write_all_at(&mut *output, text, 0).map_err(|incomplete| incomplete.source);
    let written = written.and_then(|()| files.rename(&unfinished, path));
    written.inspect_err(|_| drop(files.remove(&unfinished)))
}

/// Creates the folder of a file that is to be [written whole](write_whole), and checks that it is
/// writable.
pub(super) fn prepare_whole(files: &mut dyn Files, path: &Path) -> io::Result<()> {
    begin_whole(files, path)?;
    files.remove(&unfinished(path))
}

fn begin_whole(files: &mut dyn Files, path: &Path) -> io::Result<Box<dyn Output>> {
    if let Some(folder) = path.parent() {
        files.create_folder(folder)?;
    }
    files.create(&unfinished(path))
}

/// Name of a file until it is complete.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(".tmp");
    name.into()
}

/// Returns rank `rank`'s file name where rank 0's is `path`: `t.json` → `t.rank1.json`, `t.json.gz`
/// → `t.rank1.json.gz`, `t` → `t.rank1`.
pub(crate) fn of_rank(path: &Path, rank: usize) -> PathBuf {
    if rank == 0 {
        return path.to_owned();
    }
    with_infix(path, &format!(".rank{rank}"))
}

/// Returns the name that `path` gets when it has grown too large and a new file begins: `t.json` →
/// `t.old.json`.
pub(crate) fn older(path: &Path) -> PathBuf {
    with_infix(path, ".old")
}

/// Returns the name of a file that a process begins after reset number `resets` of an elastic job:
/// `t.json` → `t.reset2.json`; before any reset, `path`.
pub(crate) fn after_reset(path: &Path, resets: u64) -> PathBuf {
    match resets {
        0 => path.to_owned(),
        _ => with_infix(path, &format!(".reset{resets}")),
    }
}

/// Whether the file is compressed, according to its name.
pub(super) fn is_gz(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz")
}

/// Returns `path` with `infix` before its extension, or at its end.
fn with_infix(path: &Path, infix: &str) -> PathBuf {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let name = path.file_name().map_or(&[][..], |name| name.as_bytes());
    let stem = [".json.gz", ".json", ".gz"]
        .iter()
        .find_map(|extension| name.strip_suffix(extension.as_bytes()))
        .unwrap_or(name);
    let name = [stem, infix.as_bytes(), &name[stem.len()..]].concat();
    path.with_file_name(OsString::from_vec(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_without_a_reader_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        assert!(Disk.create(&path).is_err());
    }

    #[test]
    fn neighbours_keep_the_extension() {
        let table = [
            ("t.json", "t.rank3.json", "t.old.json"),
            (
                "/a.b/t.json.gz",
                "/a.b/t.rank3.json.gz",
                "/a.b/t.old.json.gz",
            ),
            ("t", "t.rank3", "t.old"),
            ("t.trace", "t.trace.rank3", "t.trace.old"),
            ("t.gz", "t.rank3.gz", "t.old.gz"),
        ];
        for (path, third, old) in table {
            assert_eq!(of_rank(Path::new(path), 3), Path::new(third));
            assert_eq!(older(Path::new(path)), Path::new(old));
            assert_eq!(of_rank(Path::new(path), 0), Path::new(path));
        }
        assert_eq!(
            older(&of_rank(Path::new("t.json"), 1)),
            Path::new("t.rank1.old.json")
        );
    }
}
