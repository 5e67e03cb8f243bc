//! `sweep.csv`: a line for each measurement, written before the next one starts.
//!
//! ```csv
//! phase,block,np,fusion_threshold_bytes,cycle_time_ms,cache,hierarchical_allreduce,status,steps,step_ms_p10,…,at_s,reason
//! grid,0,2,134217728,1,true,false,done,20,51.02,51.3,53.9,51.8,3.271,
//! ```
//!
//! Whoever writes holds a lock on the file, so that two sweeps cannot share a folder; it goes with its process. A process
//! that is killed leaves at most a last line that is cut: reading leaves it out, going on takes it away.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use csv::{ReaderBuilder, StringRecord};

use super::{Phase, Point, Row, Status, StepTimes};

/// Largest file read, in bytes: a million measurements.
const BYTES_MOST: u64 = 256 << 20;

/// The columns.
const COLUMNS: [&str; 14] = [
    "phase",
    "block",
    "np",
    "fusion_threshold_bytes",
    "cycle_time_ms",
    "cache",
    "hierarchical_allreduce",
    "status",
    "steps",
    "step_ms_p10",
    "step_ms_p50",
    "step_ms_p90",
    "step_ms_mean",
    "at_s",
];

/// The last column; only failed measurements have something in it.
const REASON: &str = "reason";

/// What is wrong with the file; the text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be opened or made.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody else writes it.
    #[error("another sweep is writing {}; wait for its end, or give another --out", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is too large to be a sweep.
    #[error("{} is larger than {BYTES_MOST} bytes: it is no sweep", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// A line is not what a sweep writes.
    #[error("{}, line {line}: {what}; correct the line or take it out", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// What is wrong.
        what: String,
    },
    /// It does not begin as a sweep does.
    #[error("{} is no sweep: its first line should be {}", path.display(), header().trim_end())]
    Header {
        /// The file.
        path: PathBuf,
    },
    /// A measurement cannot be written.
    #[error(
        "cannot write {}: {source}; the {safe} measurements before are safe: make room, then go on with --resume",
        path.display()
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// Measurements that the file has.
        safe: usize,
        /// What the system said.
        source: io::Error,
    },
}

/// The file, to be written to.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    file: File,
    /// Length of what is whole, in bytes.
    bytes: u64,
    rows: usize,
}

impl Store {
    /// Opens the file, which is made if it is not there, and locks it; nothing in it is changed.
    ///
    /// # Errors
    /// [`StoreError::Open`], [`StoreError::Locked`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let open = |source| StoreError::Open {
            path: path.to_owned(),
            source,
        };
        let file = OpenOptions::new().create(true).read(true).append(true).open(path);
        let file = file.map_err(open)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::Locked {
                    path: path.to_owned(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(open(source)),
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            bytes: 0,
            rows: 0,
        })
    }

    /// Whether there is nothing in the file.
    ///
    /// # Errors
    /// [`StoreError::Open`].
    pub fn is_empty(&self) -> Result<bool, StoreError> {
        let metadata = self.file.metadata().map_err(|source| StoreError::Open {
            path: self.path.clone(),
            source,
        })?;
        Ok(metadata.len() == 0)
    }

    /// Reads what is in the file and makes it ready for more: a line that was cut is taken away, the header written where
    /// there is none.
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
            self.write(header().as_bytes())?;
        }
        Ok(rows)
    }

    /// Writes a measurement; when this returns, it survives the end of this process and of the machine.
    ///
    /// # Errors
    /// [`StoreError::Write`]; the file is then as it was before, as far as that is possible.
    pub fn append(&mut self, row: &Row) -> Result<(), StoreError> {
        self.write(line(row).as_bytes())?;
        self.rows += 1;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let written = self.file.write_all(bytes).and_then(|()| self.file.sync_data());
        if let Err(source) = written {
            // Part of a line would be left out by who reads it; that it cannot be taken away changes nothing.
            let _ = self.file.set_len(self.bytes);
            return Err(self.write_error(source));
        }
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn write_error(&self, source: io::Error) -> StoreError {
        StoreError::Write {
            path: self.path.clone(),
            safe: self.rows,
            source,
        }
    }
}

/// The measurements in a file; a last line that is cut is left out.
///
/// # Errors
/// [`StoreError`].
pub fn read(path: &Path) -> Result<Vec<Row>, StoreError> {
    let mut file = File::open(path).map_err(|source| StoreError::Open {
        path: path.to_owned(),
        source,
    })?;
    read_file(path, &mut file).map(|(rows, _)| rows)
}

/// The measurements, and the length of what is whole.
fn read_file(path: &Path, file: &mut File) -> Result<(Vec<Row>, u64), StoreError> {
    let unreadable = |source| StoreError::Read {
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    file.rewind().map_err(unreadable)?;
    file.take(BYTES_MOST + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > BYTES_MOST {
        return Err(StoreError::TooLarge {
            path: path.to_owned(),
        });
    }
    let whole = memchr::memrchr(b'\n', &bytes).map_or(0, |end| end + 1);
    bytes.truncate(whole);
    let rows = parse(path, &bytes)?;
    Ok((rows, whole as u64))
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<Row>, StoreError> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .from_reader(bytes);
    let mut rows = Vec::new();
    let mut record = StringRecord::new();
    let mut is_header = true;
    loop {
        let line = reader.position().line();
        let wrong = |what: String| StoreError::Line {
            path: path.to_owned(),
            line,
            what,
        };
        match reader.read_record(&mut record) {
            Ok(true) => {}
            Ok(false) => return Ok(rows),
            Err(error) => return Err(wrong(error.to_string())),
        }
        if std::mem::take(&mut is_header) {
            if !record.iter().eq(COLUMNS.into_iter().chain([REASON])) {
                return Err(StoreError::Header {
                    path: path.to_owned(),
                });
            }
            continue;
        }
        rows.push(row(&record).map_err(wrong)?);
    }
}

fn header() -> String {
    format!("{},{REASON}\n", COLUMNS.join(","))
}

/// A row as a line. What has no value is left empty.
fn line(row: &Row) -> String {
    let Point {
        np,
        fusion_threshold_bytes,
        cycle_time_ms,
        cache,
        hierarchical_allreduce,
    } = row.point;
    let (status, reason) = match &row.status {
        Status::Done => ("done", ""),
        Status::Cut => ("cut", ""),
        Status::Failed(reason) => ("failed", reason.as_str()),
    };
    let times = match row.times {
        Some(times) => {
            let StepTimes {
                steps,
                p10,
                p50,
                p90,
                mean,
            } = times;
            [steps.to_string()]
                .into_iter()
                .chain([p10, p50, p90, mean].map(|ms| nanoseconds(ms).to_string()))
                .collect()
        }
        None => vec![String::new(); 5],
    };
    let mut fields = vec![
        word(row.phase).to_owned(),
        row.block.to_string(),
        np.to_string(),
        fusion_threshold_bytes.to_string(),
        cycle_time_ms.to_string(),
        cache.to_string(),
        hierarchical_allreduce.to_string(),
        status.to_owned(),
    ];
    fields.extend(times);
    fields.push(format!("{:.3}", row.at_s));
    // A reason on several lines would look like a cut one to who finds half of it.
    let reason: Vec<&str> = reason.split_whitespace().collect();
    fields.push(reason.join(" "));
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Neither can fail: the fields go to memory.
    let _ = writer.write_record(&fields);
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A time in ms, to the nanosecond: more digits only look precise. Not to 0, which would be no time.
fn nanoseconds(ms: f64) -> f64 {
    let rounded = (ms * 1e6).round() / 1e6;
    if rounded > 0.0 { rounded } else { ms }
}

const PHASES: [(Phase, &str); 4] = [
    (Phase::Grid, "grid"),
    (Phase::Confirm, "confirm"),
    (Phase::Predicted, "predicted"),
    (Phase::Verify, "verify"),
];

fn word(phase: Phase) -> &'static str {
    let found = PHASES.iter().find(|(known, _)| *known == phase);
    found.map_or("", |(_, word)| word)
}

/// A record as a row; an error says what is wrong.
fn row(record: &StringRecord) -> Result<Row, String> {
    if record.len() != COLUMNS.len() + 1 {
        return Err(format!(
            "{} fields instead of {}",
            record.len(),
            COLUMNS.len() + 1
        ));
    }
    let field = |name: &str| {
        let index = COLUMNS.iter().position(|column| *column == name);
        index.and_then(|index| record.get(index)).unwrap_or_default()
    };
    let phase = PHASES.iter().find(|(_, word)| *word == field("phase"));
    let (phase, _) = phase.ok_or_else(|| format!("`{}` is no phase", field("phase")))?;
    let status = match field("status") {
        "done" => Status::Done,
        "cut" => Status::Cut,
        "failed" => Status::Failed(record.get(COLUMNS.len()).unwrap_or_default().to_owned()),
        other => return Err(format!("`{other}` is no status")),
    };
    let times = match field("steps") {
        "" => None,
        steps => Some(StepTimes {
            steps: whole("steps", steps)?,
            p10: positive("step_ms_p10", field("step_ms_p10"))?,
            p50: positive("step_ms_p50", field("step_ms_p50"))?,
            p90: positive("step_ms_p90", field("step_ms_p90"))?,
            mean: positive("step_ms_mean", field("step_ms_mean"))?,
        }),
    };
    if times.is_none() && !matches!(status, Status::Failed(_)) {
        return Err("step times are missing".to_owned());
    }
    Ok(Row {
        point: Point {
            np: whole("np", field("np"))?,
            fusion_threshold_bytes: whole("fusion_threshold_bytes", field("fusion_threshold_bytes"))?,
            cycle_time_ms: number("cycle_time_ms", field("cycle_time_ms"))?,
            cache: switch("cache", field("cache"))?,
            hierarchical_allreduce: switch("hierarchical_allreduce", field("hierarchical_allreduce"))?,
        },
        phase: *phase,
        block: whole("block", field("block"))?,
        status,
        times,
        at_s: number("at_s", field("at_s"))?,
    })
}

fn whole<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("{name} is `{text}`, not a whole number"))
}

fn number(name: &str, text: &str) -> Result<f64, String> {
    let number = text
        .parse()
        .ok()
        .filter(|&number| (0.0..f64::INFINITY).contains(&number));
    number.ok_or_else(|| format!("{name} is `{text}`, not a number from 0 on"))
}

fn positive(name: &str, text: &str) -> Result<f64, String> {
    let ms = number(name, text).ok().filter(|&ms| ms > 0.0);
    ms.ok_or_else(|| format!("{name} is `{text}`, not a number above 0"))
}

fn switch(name: &str, text: &str) -> Result<bool, String> {
    text.parse()
        .map_err(|_| format!("{name} is `{text}`, neither true nor false"))
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
