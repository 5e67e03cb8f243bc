//! Storage of a sweep in `sweep.csv`: one line for each measurement.
//!
//! A line is written before the next measurement starts.
//!
//! ```csv
//! phase,block,np,fusion_threshold_bytes,cycle_time_ms,cache,hierarchical_allreduce,status,steps,step_ms_p10,…,at_s,reason
//! grid,0,2,134217728,1,true,false,done,20,51.02,51.3,53.9,51.8,3.271,
//! ```
//!
//! The writer holds a lock on the file, so two sweeps cannot share a folder; the lock ends with the
//! process. A killed process leaves at most a truncated last line: reading ignores it, resuming
//! removes it.

mod line;

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use csv::{Position, ReaderBuilder};

use super::Row;
use line::{HEADER, columns, line, row};

/// Maximum size of a file, in bytes: a million measurements.
const BYTES_MOST: u64 = 256 << 20;

/// Error of the file; the text tells the user what to do.
#[derive(Debug, thiserror::Error)]
#[error("{}{fault}", path.display())]
pub struct StoreError {
    /// The file.
    pub path: PathBuf,
    /// The fault.
    pub fault: Fault,
}

/// Fault of a file.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It cannot be opened or created.
    #[error(" cannot be opened: {0}")]
    Open(io::Error),
    /// Another process writes it.
    #[error(": another sweep is writing this file; wait for its end, or give another --out")]
    Locked,
    /// It cannot be read.
    #[error(" cannot be read: {0}")]
    Read(io::Error),
    /// It is too large to be a sweep.
    #[error(" is larger than {BYTES_MOST} bytes: it is not a sweep")]
    TooLarge,
    /// A line, counted from 1, is not a valid measurement.
    #[error(", line {line}: {what}; correct the line or remove it")]
    Line {
        /// Line, from 1.
        line: u64,
        /// Fault of the line.
        what: String,
    },
    /// The header is not that of a sweep.
    #[error(" is not a sweep: its first line should be {HEADER}")]
    Header,
    /// A measurement cannot be written.
    #[error(
        " cannot be written: {source}; the {safe} measurements before are safe: free some space, then continue with --resume"
    )]
    Write {
        /// Number of measurements in the file.
        safe: usize,
        /// Error of the system.
        source: io::Error,
    },
}

impl Fault {
    fn of(self, path: &Path) -> StoreError {
        StoreError {
            path: path.to_owned(),
            fault: self,
        }
    }
}

/// File of a sweep, open for writing.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    file: File,
    /// Length of the complete lines, in bytes.
    bytes: u64,
    rows: usize,
}

impl Store {
    /// Opens the file and locks it, and creates it if it does not exist; does not change its
    /// content.
    ///
    /// # Errors
    /// [`Fault::Open`], [`Fault::Locked`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let open = |source| Fault::Open(source).of(path);
        let mut options = OpenOptions::new();
        let options = options.create(true).read(true).append(true);
        let file = options.open(path).map_err(open)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Fault::Locked.of(path),
            TryLockError::Error(source) => open(source),
        })?;
        Ok(Self {
            path: path.to_owned(),
            file,
            bytes: 0,
            rows: 0,
        })
    }

    /// Whether the file is empty.
    ///
    /// # Errors
    /// [`Fault::Open`].
    pub fn is_empty(&self) -> Result<bool, StoreError> {
        let metadata = self.file.metadata();
        let metadata = metadata.map_err(|source| Fault::Open(source).of(&self.path))?;
        Ok(metadata.len() == 0)
    }

    /// Reads the rows of the file and prepares it for more rows: removes a truncated last line, and
    /// writes the header if it is missing.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn go_on(&mut self) -> Result<Vec<Row>, StoreError> {
        let (rows, whole) = read_file(&self.path, &mut self.file)?;
        (self.rows, self.bytes) = (rows.len(), whole);
        self.file
            .set_len(whole)
            .map_err(|source| self.write_error(source))?;
        if whole == 0 {
            self.write(format!("{HEADER}\n").as_bytes())?;
        }
        Ok(rows)
    }

    /// Appends a measurement; when this returns, the measurement survives the end of this process
    /// and a crash of the machine.
    ///
    /// # Errors
    /// [`Fault::Write`]; the file is then restored to its previous length, if possible.
    pub fn append(&mut self, row: &Row) -> Result<(), StoreError> {
        self.write(line(row).as_bytes())?;
        self.rows += 1;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let written = self
            .file
            .write_all(bytes)
            .and_then(|()| self.file.sync_data());
        if let Err(source) = written {
            // A remaining part of a line is ignored by readers, so an error here has no
            // consequences.
            let _ = self.file.set_len(self.bytes);
            return Err(self.write_error(source));
        }
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn write_error(&self, source: io::Error) -> StoreError {
        let safe = self.rows;
        Fault::Write { safe, source }.of(&self.path)
    }
}

/// Reads the measurements in a file; ignores a truncated last line.
///
/// # Errors
/// [`StoreError`].
pub fn read(path: &Path) -> Result<Vec<Row>, StoreError> {
    let mut file = File::open(path).map_err(|source| Fault::Open(source).of(path))?;
    read_file(path, &mut file).map(|(rows, _)| rows)
}

/// Reads the measurements and the length of the complete lines.
fn read_file(path: &Path, file: &mut File) -> Result<(Vec<Row>, u64), StoreError> {
    let unreadable = |source| Fault::Read(source).of(path);
    let mut bytes = Vec::new();
    file.rewind().map_err(unreadable)?;
    file.take(BYTES_MOST + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > BYTES_MOST {
        return Err(Fault::TooLarge.of(path));
    }
    let whole = memchr::memrchr(b'\n', &bytes).map_or(0, |end| end + 1);
    bytes.truncate(whole);
    let rows = parse(path, &bytes)?;
    Ok((rows, whole as u64))
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<Row>, StoreError> {
    let mut builder = ReaderBuilder::new();
    let builder = builder.has_headers(false).flexible(true);
    let mut rows = Vec::new();
    for (index, record) in builder.from_reader(bytes).records().enumerate() {
        let record =
            record.map_err(|error| (error.position().map(Position::line), error.to_string()));
        let wrong = |(line, what): (Option<u64>, String)| {
            let line = line.unwrap_or(index as u64 + 1);
            Fault::Line { line, what }.of(path)
        };
        let record = record.map_err(wrong)?;
        match index {
            0 if record.iter().eq(columns()) => {}
            0 => return Err(Fault::Header.of(path)),
            _ => {
                let line = record.position().map(Position::line);
                rows.push(row(&record).map_err(|what| wrong((line, what)))?);
            }
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests;
