//! A CSV log that is complete at any moment: every row is written through at once, and the last row
//! is always the best so far.
//!
//! The trailing best row is overwritten in place by the next append, in one write of the new row
//! and the new best row together, and what is left of a longer old one is cut off. A job killed
//! between two steps leaves a file that ends with a valid best row.
//!
//! ```
//! let dir = std::env::temp_dir().join(format!("ronde-log-{}", std::process::id()));
//! std::fs::create_dir_all(&dir)?;
//! let mut log = ronde_tuner::Log::create(&dir.join("a.csv"), &["phase", "step_ms"])?;
//! log.append(&["default", "12.5"], &["best", "12.5"])?;
//! log.append(&["sample", "11.0"], &["best", "11.0"])?;
//! let text = std::fs::read_to_string(dir.join("a.csv"))?;
//! assert_eq!(text, "phase,step_ms\ndefault,12.5\nsample,11.0\nbest,11.0\n");
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), std::io::Error>(())
//! ```

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes that are read to find the last row of a log: a row has some hundreds.
const ROW_BYTES_MAX: u64 = 64 << 10;

/// A log open for writing.
#[derive(Debug)]
pub struct Log {
    file: File,
    columns: usize,
    /// Offset of the trailing best row, or the end of the file while there is none.
    best_start: u64,
    /// The trailing best row, or nothing while there is none.
    best: String,
}

impl Log {
    /// Creates or empties the file at `path` and writes the header.
    ///
    /// # Errors
    /// No columns, or what the operating system says.
    pub fn create<S: AsRef<str>>(path: &Path, columns: &[S]) -> io::Result<Self> {
        if columns.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a log needs at least one column",
            ));
        }
        let header = line(columns, columns.len())?;
        let file = File::create(path)?;
        file.write_all_at(header.as_bytes(), 0)?;
        Ok(Self {
            file,
            columns: columns.len(),
            best_start: header.len() as u64,
            best: String::new(),
        })
    }

    /// Opens the log at `path` to continue it, if it has these columns; otherwise as
    /// [`create`](Self::create).
    ///
    /// # Errors
    /// As for [`create`](Self::create), and a file that cannot be read.
    pub fn resume<S: AsRef<str>>(path: &Path, columns: &[S]) -> io::Result<Self> {
        let header = line(columns, columns.len())?;
        let header_bytes = header.len() as u64;
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Self::create(path, columns);
            }
            file => file?,
        };
        let length = file.metadata()?.len();
        let read = |from: u64, bytes: u64| {
            let mut read = vec![0; bytes as usize];
            file.read_exact_at(&mut read, from).map(|()| read)
        };
        if length < header_bytes || read(0, header_bytes)? != header.as_bytes() {
            return Self::create(path, columns);
        }
        // Of a log of any length, the end is enough.
        let rows_bytes = (length - header_bytes).min(ROW_BYTES_MAX);
        let rows = read(length - rows_bytes, rows_bytes)?;
        let last = rows.split_inclusive(|byte| *byte == b'\n').next_back();
        let last = last.unwrap_or_default().to_vec();
        let best_start = length - last.len() as u64;
        // The last row is the best one; after a kill during a write it may be cut off.
        let best = Some(last).filter(|last| last.ends_with(b"\n"));
        let best = best.and_then(|best| String::from_utf8(best).ok());
        Ok(Self {
            file,
            columns: columns.len(),
            best_start,
            best: best.unwrap_or_default(),
        })
    }

    /// Appends `row` and leaves the best row as it is; without a best row it does nothing, as the
    /// last row would not be the best one.
    ///
    /// # Errors
    /// As for [`append`](Self::append).
    pub fn mark<S: AsRef<str>>(&mut self, row: &[S]) -> io::Result<()> {
        if self.best.is_empty() {
            return Ok(());
        }
        let row = line(row, self.columns)?;
        self.append_lines(&row, self.best.clone(), File::write_all_at)
    }

    /// Appends `row` and puts `best` after it as the new last row; fields are quoted where CSV
    /// needs it.
    ///
    /// # Errors
    /// A wrong number of fields, or what the operating system says. The log is then restored to its
    /// state before the call, as far as the system allows, and the append can be repeated.
    pub fn append<S: AsRef<str>, T: AsRef<str>>(
        &mut self,
        row: &[S],
        best: &[T],
    ) -> io::Result<()> {
        let (row, best) = (line(row, self.columns)?, line(best, self.columns)?);
        self.append_lines(&row, best, File::write_all_at)
    }

    fn append_lines(
        &mut self,
        row: &str,
        best: String,
        write_all_at: impl FnOnce(&File, &[u8], u64) -> io::Result<()>,
    ) -> io::Result<()> {
        if let Err(error) = self.replace_best(&format!("{row}{best}"), write_all_at) {
            // A full disk may have taken a part of the text, over the best row. The blocks of that
            // row are still allocated, so writing it again needs no space. The first error is
            // reported.
            let _ = self.replace_best(&self.best, File::write_all_at);
            return Err(error);
        }
        self.best_start += row.len() as u64;
        self.best = best;
        Ok(())
    }

    /// Writes `text` in place of the best row, and cuts what is behind it.
    fn replace_best(
        &self,
        text: &str,
        write_all_at: impl FnOnce(&File, &[u8], u64) -> io::Result<()>,
    ) -> io::Result<()> {
        write_all_at(&self.file, text.as_bytes(), self.best_start)?;
        // Devices and pipes have no length.
        if self.file.metadata()?.is_file() {
            self.file.set_len(self.best_start + text.len() as u64)?;
        }
        Ok(())
    }
}

/// The line of a row in a log of `columns` columns.
fn line<S: AsRef<str>>(fields: &[S], columns: usize) -> io::Result<String> {
    if fields.len() != columns {
        let found = fields.len();
        let text = format!("a row of {found} fields in a log of {columns} columns");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(fields.iter().map(|field| field.as_ref()))?;
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_after_every_append() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.csv");
        let mut log = Log::create(&path, &["phase", "n", "ms"]).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "phase,n,ms\n");
        for n in 0..20usize {
            // The best row shrinks and grows, so that overwriting in place shows.
            let best = "9".repeat(40 - 2 * n);
            log.append(
                &["sample".to_string(), n.to_string(), "1.5".into()],
                &["best", &n.to_string(), &best],
            )
            .unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.ends_with('\n'));
            let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
            assert_eq!(rows.len(), n + 3);
            assert!(rows.iter().all(|row| row.len() == 3));
            assert!(
                rows[1..n + 2]
                    .iter()
                    .enumerate()
                    .all(|(i, row)| row[0] == "sample" && row[1] == i.to_string())
            );
            assert_eq!(rows[n + 2], ["best", &n.to_string(), &best]);
        }
    }

    #[test]
    fn a_log_is_continued_behind_its_rows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.csv");
        let columns = ["phase", "ms"];
        let text = || std::fs::read_to_string(&path).unwrap();
        let mut log = Log::resume(&path, &columns).unwrap(); // there is none
        log.mark(&["reset", ""]).unwrap();
        assert_eq!(text(), "phase,ms\n");
        log.append(&["default", "12.5"], &["best", "12.5"]).unwrap();
        let mut log = Log::resume(&path, &columns).unwrap();
        log.mark(&["reset", ""]).unwrap();
        assert_eq!(text(), "phase,ms\ndefault,12.5\nreset,\nbest,12.5\n");
        std::fs::write(&path, text().trim_end()).unwrap(); // killed while it wrote
        let mut log = Log::resume(&path, &columns).unwrap();
        log.append(&["sample", "11"], &["best", "11"]).unwrap();
        let expected = "phase,ms\ndefault,12.5\nreset,\nsample,11\nbest,11\n";
        assert_eq!(text(), expected);
        // A log of any length is continued.
        let long = "sample,10\n".repeat(2 << 20);
        std::fs::write(&path, format!("phase,ms\n{long}best,10\n")).unwrap();
        let mut log = Log::resume(&path, &columns).unwrap();
        log.append(&["sample", "9"], &["best", "9"]).unwrap();
        assert!(text().ends_with("sample,10\nsample,10\nsample,9\nbest,9\n"));
        Log::resume(&path, &["others"]).unwrap();
        assert_eq!(text(), "others\n");
    }

    #[test]
    fn quotes_where_needed_and_refuses_misfits() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.csv");
        let mut log = Log::create(&path, &["a", "b"]).unwrap();
        log.append(&["x,y", "say \"z\""], &["best", " 0"]).unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "a,b\n\"x,y\",\"say \"\"z\"\"\"\nbest, 0\n"
        );
        assert_eq!(
            log.append(&["x"], &["best", "1"]).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        assert!(
            std::fs::read_to_string(&path)
                .unwrap()
                .ends_with("best, 0\n")
        );
        assert!(Log::create(dir.path(), &["a"]).is_err());
        assert!(Log::create::<&str>(&path, &[]).is_err());
    }

    #[test]
    fn a_full_disk_leaves_the_log_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.csv");
        let mut log = Log::create(&path, &["phase", "ms"]).unwrap();
        let rows = [["default", "12.5"], ["sample", "11.25"]];
        for count in 0..=rows.len() {
            let before = std::fs::read_to_string(&path).unwrap();
            let long = ["a row that is longer than the best one", "1"];
            // As a full disk does: the beginning is written, then there is no room.
            for written in [0, 3, 30] {
                let full = |file: &File, text: &[u8], offset: u64| {
                    file.write_all_at(&text[..written], offset)?;
                    Err(io::ErrorKind::StorageFull.into())
                };
                let (row, best) = (line(&long, 2).unwrap(), line(&["best", "1"], 2).unwrap());
                let error = log.append_lines(&row, best, full).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::StorageFull);
                assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
            }
            if let Some(row) = rows.get(count) {
                log.append(row, &["best", row[1]]).unwrap();
            }
        }
        let text = "phase,ms\ndefault,12.5\nsample,11.25\nbest,11.25\n";
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn a_log_is_replaced_and_may_be_a_device() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.csv");
        std::fs::write(&path, "something longer than the header\n").unwrap();
        Log::create(&path, &["a"]).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a\n");
        let mut log = Log::create(Path::new("/dev/null"), &["a"]).unwrap();
        log.append(&["1"], &["1"]).unwrap();
    }

    #[test]
    fn a_write_error_is_returned() {
        // Every write to this device fails with ENOSPC.
        assert!(Log::create(Path::new("/dev/full"), &["a"]).is_err());
    }
}
