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
    path: PathBuf,
    fault: Fault,
}

#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(" cannot be opened: {0}")]
    Open(io::Error),
    #[error(": another sweep is writing this file; wait for its end, or give another --out")]
    Locked,
    #[error(" cannot be read: {0}")]
    Read(io::Error),
    #[error(" is larger than {BYTES_MOST} bytes: it is not a sweep")]
    TooLarge,
    /// Lines are counted from 1.
    #[error(", line {line}: {what}; correct the line or remove it")]
    Line { line: u64, what: String },
    #[error(" is not a sweep: its first line should be {HEADER}")]
    Header,
    #[error(
        " cannot be written: {source}; the {safe} measurements before are safe: free some space, then continue with --resume"
    )]
    Write { safe: usize, source: io::Error },
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
    rows: usize,
}

impl Store {
    /// Opens the file and locks it, and creates it if it does not exist; does not change its
    /// content.
    ///
    /// # Errors
    /// The file cannot be opened, or another process has locked it.
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
            rows: 0,
        })
    }

    /// Whether the file is empty.
    ///
    /// # Errors
    /// The system does not state its size.
    pub fn is_empty(&self) -> Result<bool, StoreError> {
        let metadata = self.file.metadata();
        let metadata = metadata.map_err(|source| Fault::Open(source).of(&self.path))?;
        Ok(metadata.len() == 0)
    }

    /// Reads the rows of the file and prepares it for more rows: removes a truncated last line, and
    /// writes the header if it is missing.
    ///
    /// # Errors
    /// The file cannot be read or written, or is not a valid sweep.
    pub fn go_on(&mut self) -> Result<Vec<Row>, StoreError> {
        let (rows, whole) = read_file(&self.path, &mut self.file)?;
        self.rows = rows.len();
        let cut = self.file.set_len(whole);
        cut.map_err(|source| self.write_error(source))?;
        if whole == 0 {
            self.write(format!("{HEADER}\n").as_bytes())?;
        }
        Ok(rows)
    }

    /// Appends a measurement; when this returns, the measurement survives the end of this process
    /// and a crash of the machine.
    ///
    /// # Errors
    /// It cannot be written; the file is then restored to its previous length, if possible.
    pub fn append(&mut self, row: &Row) -> Result<(), StoreError> {
        self.write(line(row).as_bytes())?;
        self.rows += 1;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let before = self.file.metadata();
        let written = self.file.write_all(bytes);
        let saved = written.and_then(|()| self.file.sync_data());
        saved.map_err(|source| {
            // Readers ignore a part of a line, so an error here has no consequences.
            let _ = before.and_then(|before| self.file.set_len(before.len()));
            self.write_error(source)
        })
    }

    fn write_error(&self, source: io::Error) -> StoreError {
        let safe = self.rows;
        Fault::Write { safe, source }.of(&self.path)
    }
}

/// Reads the measurements in a file; ignores a truncated last line.
///
/// # Errors
/// The file cannot be read, or is not a valid sweep.
pub fn read(path: &Path) -> Result<Vec<Row>, StoreError> {
    let mut file = File::open(path).map_err(|source| Fault::Open(source).of(path))?;
    read_file(path, &mut file).map(|(rows, _)| rows)
}

/// Reads the measurements and the length of the complete lines.
fn read_file(path: &Path, file: &mut File) -> Result<(Vec<Row>, u64), StoreError> {
    let mut bytes = Vec::new();
    let from_start = file.rewind();
    let read = from_start.and_then(|()| file.take(BYTES_MOST + 1).read_to_end(&mut bytes));
    match read {
        Err(source) => return Err(Fault::Read(source).of(path)),
        Ok(count) if count as u64 > BYTES_MOST => return Err(Fault::TooLarge.of(path)),
        Ok(_) => {}
    }
    let whole = memchr::memrchr(b'\n', &bytes).map_or(0, |end| end + 1);
    Ok((parse(path, &bytes[..whole])?, whole as u64))
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<Row>, StoreError> {
    let wrong = |line: Option<&Position>, what| {
        let line = line.map_or(1, Position::line);
        Fault::Line { line, what }.of(path)
    };
    let damaged = |error: csv::Error| wrong(error.position(), error.to_string());
    let mut reader = ReaderBuilder::new().flexible(true).from_reader(bytes);
    let header = reader.headers().map_err(damaged)?;
    if !header.is_empty() && !header.iter().eq(columns()) {
        return Err(Fault::Header.of(path));
    }
    let of_record = |record: Result<csv::StringRecord, csv::Error>| {
        let record = record.map_err(damaged)?;
        row(&record).map_err(|what| wrong(record.position(), what))
    };
    reader.records().map(of_record).collect()
}

#[cfg(test)]
mod tests;
