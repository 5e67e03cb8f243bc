//! Output files: opened before the long work starts, and written completely or not at all.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::interrupt;
use crate::EXIT_USAGE;

/// Permissions of a new file, before the process's umask is applied.
const MODE: u32 = 0o666;

/// Error of an output file.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The output cannot be written.
    #[error("cannot write {}: {source}", name(path))]
    Write {
        /// Path of the output.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The output would overwrite an input.
    #[error("{} is an input; write to another file", path.display())]
    OverInput {
        /// Path of the output.
        path: PathBuf,
    },
    /// Two outputs have the same path.
    #[error("{} is to be written twice; give each output a file of its own", path.display())]
    Twice {
        /// Path of the output.
        path: PathBuf,
    },
}

/// Name of an output in messages.
fn name(path: &Path) -> String {
    match is_stdout(path) {
        true => "standard output".to_owned(),
        false => path.display().to_string(),
    }
}

impl OutputError {
    /// Exit code: 2 for an error in the command line, 1 for an error of the operating system.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::OverInput { .. } | Self::Twice { .. } => EXIT_USAGE,
            Self::Write { .. } => 1,
        }
    }
}

/// Output file, or standard output.
///
/// The content is written to a temporary file in the same folder, which replaces the target at the
/// end. If the value is dropped before, or the process is ended by Ctrl-C, no file remains. Paths
/// that are not regular files (`/dev/stdout`, a pipe) are written directly.
pub struct Output {
    /// Path as the user gave it, for messages.
    name: PathBuf,
    sink: Sink,
}

enum Sink {
    Stdout(BufWriter<io::Stdout>),
    Direct(BufWriter<fs::File>),
    Aside {
        file: BufWriter<NamedTempFile>,
        /// Final path, with symbolic links resolved.
        target: PathBuf,
    },
}

impl Output {
    /// Opens `path` for writing; `-` is standard output.
    ///
    /// # Errors
    /// [`OutputError::Write`] if the path cannot be written.
    pub fn open(path: &Path) -> Result<Self, OutputError> {
        let sink = if is_stdout(path) {
            Sink::Stdout(BufWriter::new(io::stdout()))
        } else {
            sink(path).map_err(|source| OutputError::Write {
                path: path.to_owned(),
                source,
            })?
        };
        let name = path.to_owned();
        Ok(Self { name, sink })
    }

    /// Writes the content with `write` and moves the file to its final path.
    ///
    /// # Errors
    /// [`OutputError::Write`] if the file cannot be written. A closed pipe on standard output is
    /// not an error.
    pub fn finish(
        mut self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), OutputError> {
        let written = match &mut self.sink {
            Sink::Stdout(sink) => match write(sink).and_then(|()| sink.flush()) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                outcome => outcome,
            },
            Sink::Direct(sink) => write(sink).and_then(|()| sink.flush()),
            Sink::Aside { file, .. } => write(file).and_then(|()| file.flush()),
        };
        let placed = written.and_then(|()| match self.sink {
            Sink::Aside { file, target } => {
                let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
                file.persist(target).map_err(|error| error.error)?;
                Ok(())
            }
            Sink::Stdout(_) | Sink::Direct(_) => Ok(()),
        });
        placed.map_err(|source| OutputError::Write {
            path: self.name,
            source: io::Error::new(source.kind(), cause(&source)),
        })
    }
}

/// Opens the output at `path`, if the user gave one.
///
/// # Errors
/// As [`Output::open`].
pub fn open(path: &Option<PathBuf>) -> Result<Option<Output>, OutputError> {
    path.as_deref().map(Output::open).transpose()
}

/// Writes an output with `write`, if there is one.
///
/// # Errors
/// As [`Output::finish`].
pub fn write(
    output: Option<Output>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), OutputError> {
    output.map_or(Ok(()), |output| output.finish(write))
}

/// Writes a file with this content.
///
/// # Errors
/// As [`Output::open`] and [`Output::finish`].
pub fn save(path: &Path, content: impl AsRef<[u8]>) -> Result<(), OutputError> {
    Output::open(path)?.finish(|sink| sink.write_all(content.as_ref()))
}

/// Writes a file with `value` as JSON.
///
/// # Errors
/// As [`Output::open`] and [`Output::finish`].
pub fn save_json(path: &Path, value: &impl serde::Serialize) -> Result<(), OutputError> {
    Output::open(path)?.finish(|sink| write_json(sink, value))
}

/// Writes `value` as indented JSON with a newline at the end.
pub fn write_json(mut sink: &mut dyn Write, value: &impl serde::Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut sink, value)?;
    sink.write_all(b"\n")
}

/// Output paths that the user gave.
pub fn given<const N: usize>(paths: [&Option<PathBuf>; N]) -> Vec<&Path> {
    paths.into_iter().flatten().map(PathBuf::as_path).collect()
}

/// Whether standard output is used for a text, because no other output goes there.
pub fn stdout_is_free(outputs: &[&Path]) -> bool {
    !outputs.iter().any(|path| is_stdout(path))
}

/// Whether `path` stands for standard output.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn sink(path: &Path) -> io::Result<Sink> {
    // Symbolic links are followed: the file that they point to is replaced, not the link.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match fs::metadata(&target) {
        Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        Ok(found) if found.is_file() => {
            // Replacing a file needs no write permission on it, so the permission is checked: a
            // read-only file is kept.
            OpenOptions::new().append(true).open(&target)?;
        }
        Ok(_) => {
            let file = OpenOptions::new().write(true).open(&target)?;
            return Ok(Sink::Direct(BufWriter::new(file)));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let folder = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let create = || {
        tempfile::Builder::new()
            .prefix(".ronde-output-")
            .permissions(Permissions::from_mode(MODE))
            .tempfile_in(folder)
    };
    let file = interrupt::removed_with(create, |file| file.path())
        .map_err(|error| io::Error::new(error.kind(), cause(&error)))?;
    Ok(Sink::Aside {
        file: BufWriter::new(file),
        target,
    })
}

/// Text of an error without the name of the temporary file, which the user does not know.
fn cause(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at path ") {
        Some((cause, _)) => cause.to_owned(),
        None => text,
    }
}

/// Checks that no output overwrites an input or another output.
///
/// # Errors
/// [`OutputError::OverInput`], [`OutputError::Twice`].
pub fn check_distinct(outputs: &[&Path], inputs: &[PathBuf]) -> Result<(), OutputError> {
    for (index, output) in outputs.iter().enumerate() {
        if inputs.iter().any(|input| same_file(output, input)) {
            return Err(OutputError::OverInput {
                path: output.to_path_buf(),
            });
        }
        if outputs[..index]
            .iter()
            .any(|other| same_file(output, other))
        {
            return Err(OutputError::Twice {
                path: output.to_path_buf(),
            });
        }
    }
    Ok(())
}

/// Whether two paths are the same file, which need not exist. Devices such as `/dev/null` may be
/// used several times.
fn same_file(left: &Path, right: &Path) -> bool {
    if is_stdout(left) || is_stdout(right) {
        return left == right;
    }
    match (fs::metadata(left), fs::metadata(right)) {
        (Ok(left), Ok(right)) => {
            left.is_file() && (left.dev(), left.ino()) == (right.dev(), right.ino())
        }
        (Err(_), Err(_)) => place(left) == place(right),
        _ => false,
    }
}

/// Resolved folder and file name of a file that does not exist.
fn place(path: &Path) -> (PathBuf, Option<&std::ffi::OsStr>) {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    (folder, path.file_name())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn an_error_names_the_file_that_was_asked_for_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("o.json");
        let failing = |_: &mut dyn Write| {
            let text = "No space left on device at path \"/x/.ronde-output-1\"";
            Err(io::Error::new(io::ErrorKind::StorageFull, text))
        };
        let error = Output::open(&path).unwrap().finish(failing).unwrap_err();
        let expected = format!("cannot write {}: No space left on device", path.display());
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_file_is_whole_or_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("o.json");
        drop(Output::open(&path).unwrap());
        assert!(names(folder.path()).is_empty());

        let output = Output::open(&path).unwrap();
        assert!(!path.exists());
        let failed = output.finish(|sink| {
            sink.write_all(b"half")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert!(failed.unwrap_err().to_string().contains("o.json"));
        assert!(names(folder.path()).is_empty());

        let output = Output::open(&path).unwrap();
        output.finish(|sink| sink.write_all(b"whole")).unwrap();
        assert_eq!(names(folder.path()), ["o.json"]);
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_ne!(mode & 0o400, 0);
        assert_eq!(mode & 0o111, 0);
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::write(&real, "old").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let output = Output::open(&link).unwrap();
        output.finish(|sink| sink.write_all(b"new")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&real).unwrap(), b"new");
    }

    #[test]
    fn what_cannot_be_written_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().to_owned(), folder.path().join("no/o.json")] {
            let message = Output::open(&path).err().unwrap().to_string();
            assert!(message.contains(path.to_str().unwrap()), "{message}");
            assert!(!message.contains(".ronde-output-"), "{message}");
        }
        Output::open(Path::new("/dev/null"))
            .unwrap()
            .finish(|sink| sink.write_all(b"gone"))
            .unwrap();
    }

    #[test]
    fn outputs_overwrite_neither_inputs_nor_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let (input, link) = (folder.path().join("t.json"), folder.path().join("l.json"));
        fs::write(&input, "[").unwrap();
        std::os::unix::fs::symlink(&input, &link).unwrap();
        let inputs = [input];
        let error = check_distinct(&[&link], &inputs).unwrap_err();
        assert!(matches!(error, OutputError::OverInput { .. }), "{error}");
        let (new, detour) = (folder.path().join("o"), folder.path().join("./o"));
        assert!(matches!(
            check_distinct(&[&new, &detour], &inputs),
            Err(OutputError::Twice { .. })
        ));
        let stdout = Path::new("-");
        assert!(matches!(
            check_distinct(&[stdout, stdout], &inputs),
            Err(OutputError::Twice { .. })
        ));
        let null = Path::new("/dev/null");
        check_distinct(&[&new, stdout, null, null], &inputs).unwrap();
    }
}
