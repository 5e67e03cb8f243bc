//! Files that are followed: which log is shown, and what is new in it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ronde_dash::{Event, Log, LogKind, now_unix_ms};
use ronde_lab::review::{Known, Review, review};
use ronde_tuner::{LogContents, LogError, read_logs};

use super::events::{Shown, is_continued};
use crate::error::Error;
use crate::present::units::counted;
use crate::review::input;

/// A file with logs.
pub(super) struct Source {
    path: PathBuf,
    /// Its state when it was last read.
    stamp: Option<Stamp>,
    /// Whether its last line was read.
    is_whole: bool,
    /// Its last log that has trials.
    last: Option<LastLog>,
    /// Error of the last reading, so that it is reported once.
    error: Option<String>,
}

/// Properties of a file that differ after each change: inode, length and time of the last change.
type Stamp = (u64, u64, Option<SystemTime>);

/// The last log of a file.
struct LastLog {
    name: String,
    contents: LogContents,
    /// Number of logs in the file.
    logs: usize,
}

/// Follows several files, of which the last changed one is shown.
pub(super) struct Follower {
    sources: Vec<Source>,
    /// Number of the source that the page shows, and the content.
    shown: Option<(usize, Shown)>,
}

impl Source {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
            stamp: None,
            is_whole: false,
            last: None,
            error: None,
        }
    }

    /// Time of the last change.
    fn changed(&self) -> Option<SystemTime> {
        self.stamp?.2
    }

    /// Reads the file if it has changed. Returns whether it has.
    ///
    /// The last line of a file that has just changed may not be complete yet: without its end it is
    /// read when the file has not changed any more.
    ///
    /// # Errors
    /// A file that cannot be read or is no autotune log. One without any line is the log of a job
    /// that has just started.
    fn read(&mut self) -> Result<bool, Error> {
        let stamp = stamp(&self.path);
        let is_settled = match self.stamp {
            Some(before) => Some(before) == stamp,
            None => !stamp.is_some_and(is_recent),
        };
        if is_settled && self.is_whole {
            return Ok(false);
        }
        let mut text = input::text(&self.path)?;
        self.stamp = stamp;
        self.is_whole = is_settled || text.ends_with('\n');
        if !self.is_whole {
            text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
        }
        let mut logs = match read_logs(&text) {
            Err(LogError::Empty) => Vec::new(),
            logs => logs.map_err(|source| Error::Log {
                path: self.path.clone(),
                source,
            })?,
        };
        let count = logs.len();
        let name = input::name(&self.path);
        self.last = logs.pop().map(|contents| LastLog {
            name,
            contents,
            logs: count,
        });
        Ok(true)
    }
}

/// Whether a file has changed in the last seconds.
fn is_recent((_, _, changed): Stamp) -> bool {
    let age = changed.and_then(|changed| changed.elapsed().ok());
    age.is_some_and(|age| age < Duration::from_secs(2))
}

/// State of a file; of standard input and of a pipe, which are read once, it does not change.
fn stamp(path: &Path) -> Option<Stamp> {
    if crate::present::output::is_stdout(path) {
        return Some((0, 0, None));
    }
    let metadata = std::fs::metadata(path).ok()?;
    let is_file = metadata.is_file();
    let length = if is_file { metadata.len() } else { 0 };
    let modified = metadata.modified().ok().filter(|_| is_file);
    Some((metadata.ino(), length, modified))
}

impl Follower {
    pub(super) fn new(sources: Vec<Source>) -> Self {
        Self {
            sources,
            shown: None,
        }
    }

    /// Reads all files for the first time. Returns the events of the log that changed last.
    ///
    /// # Errors
    /// A file that cannot be read or is no autotune log.
    pub(super) fn look(&mut self) -> Result<Vec<Event>, Error> {
        for source in &mut self.sources {
            source.read()?;
        }
        let newest = (0..self.sources.len()).max_by_key(|&index| self.sources[index].changed());
        Ok(newest.map_or_else(Vec::new, |index| self.show(index)))
    }

    /// Reads the files that have changed. Returns the events that the page needs.
    pub(super) fn look_again(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for index in 0..self.sources.len() {
            let source = &mut self.sources[index];
            match source.read() {
                Ok(false) => {}
                Ok(true) => {
                    source.error = None;
                    events.extend(self.show(index));
                }
                Err(error) => {
                    let text = error.to_string();
                    if source.error.as_ref() != Some(&text) {
                        events.push(warning(format!("{text}; the page keeps what it shows")));
                        source.error = Some(text);
                    }
                }
            }
        }
        events
    }

    /// Shows the last log of a source: what is new in it if the page shows it already, otherwise
    /// all of it.
    fn show(&mut self, index: usize) -> Vec<Event> {
        let Some(last) = &self.sources[index].last else {
            return Vec::new();
        };
        let reviews = review(&last.contents, &last.name, &Known::default());
        let new = Shown::new(&last.name, last.logs, &last.contents, &reviews);
        let before = self.shown.take();
        let events = match &before {
            Some((of, old)) if *of == index && is_continued(old, &new) => new.since(old),
            // Its first trials show which program writes it.
            Some((of, old)) if *of == index && old.is_empty() => new.all(),
            Some((of, _)) => {
                let mut events = new.all();
                events.push(replaced(*of == index, last, &reviews));
                events
            }
            None => new.all(),
        };
        self.shown = Some((index, new));
        events
    }
}

/// Entry of the event log for a log of another job.
fn replaced(is_same_file: bool, last: &LastLog, reviews: &[Review]) -> Event {
    let trials: usize = reviews.iter().map(|review| review.trials.len()).sum();
    let name = &last.name;
    let what = match (is_same_file, last.logs) {
        (true, 0 | 1) => format!("{name} was replaced by the log of another job"),
        (true, logs) => format!("the log of another job follows in {name}, as log {logs}"),
        (false, _) => format!("{name} has changed"),
    };
    warning(format!(
        "{what}: the page shows it from its beginning, with {}",
        counted(trials as u64, "trial")
    ))
}

fn warning(text: String) -> Event {
    Event::Log(Log {
        step: None,
        kind: LogKind::Warning,
        text,
        at_unix_ms: Some(now_unix_ms()),
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::*;

    const HEADER: &str = "cycle_time_ms,tensor_fusion_threshold,score\n";

    /// A folder with a log of these rows, which has not changed for some time.
    fn log(rows: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        std::fs::write(&path, HEADER.to_owned() + rows).unwrap();
        let long_ago = SystemTime::now() - Duration::from_secs(60);
        let file = File::options().append(true).open(&path).unwrap();
        file.set_modified(long_ago).unwrap();
        (folder, path)
    }

    fn append(path: &Path, text: &str) {
        let mut file = File::options().append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// Kinds of events in a few words; the surface and the tuner's state are left out.
    fn words(events: &[Event]) -> Vec<String> {
        let word = |event: &Event| match event {
            Event::Job(job) => Some(format!("job {}", job.name)),
            Event::Step(step) => Some(format!("step {}: {}", step.step, step.value)),
            Event::Log(log) if log.kind == LogKind::Warning => {
                Some(log.text.split(':').next()?.to_owned())
            }
            _ => None,
        };
        events.iter().filter_map(word).collect()
    }

    #[test]
    fn only_what_is_new_is_shown() {
        let (_folder, path) = log("5,4,100\n50,32,120\n");
        let mut follower = Follower::new(vec![Source::new(&path)]);
        let first = words(&follower.look().unwrap());
        assert_eq!(first[..3], ["job a.csv", "step 0: 100", "step 1: 120"]);
        assert!(follower.look_again().is_empty());
        append(&path, "5,64,110\n7,8,13");
        assert_eq!(words(&follower.look_again())[0], "step 2: 110");
        append(&path, "1\n");
        assert_eq!(words(&follower.look_again())[0], "step 3: 131");
        append(&path, "7,8,15");
        assert!(!words(&follower.look_again()).contains(&"step 4: 15".to_owned()));
        // A last line that stays without an end is not a transient state.
        let events = words(&follower.look_again());
        assert!(events[0].contains("line 6 has no line end"), "{events:?}");
    }

    #[test]
    fn the_log_of_another_job_is_shown_from_its_beginning() {
        let (_folder, path) = log("5,4,100\n");
        let mut follower = Follower::new(vec![Source::new(&path)]);
        follower.look().unwrap();
        append(&path, &format!("{HEADER}5,4,90\n"));
        let events = words(&follower.look_again());
        assert_eq!(events[..2], ["job a.csv, log 2", "step 0: 90"]);
        assert_eq!(
            events.last().unwrap(),
            "the log of another job follows in a.csv, as log 2"
        );
        std::fs::write(&path, format!("{HEADER}5,4,80\n5,8,70\n")).unwrap();
        let events = words(&follower.look_again());
        assert_eq!(
            events.last().unwrap(),
            "a.csv was replaced by the log of another job"
        );
    }

    #[test]
    fn the_last_changed_file_is_shown() {
        let ((_a, first), (_b, second)) = (log("5,4,100\n"), log("5,4,200\n"));
        append(&second, "5,8,210\n");
        let sources = vec![Source::new(&first), Source::new(&second)];
        let mut follower = Follower::new(sources);
        assert_eq!(words(&follower.look().unwrap())[1], "step 0: 200");
        append(&first, "5,8,110\n");
        let events = words(&follower.look_again());
        assert_eq!(events[1..3], ["step 0: 100", "step 1: 110"]);
        assert_eq!(events.last().unwrap(), "a.csv has changed");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error_first_and_one_warning_later() {
        let (folder, path) = log("5,4,100\n");
        let missing = Source::new(&folder.path().join("none.csv"));
        assert!(Follower::new(vec![missing]).look().is_err());
        let mut follower = Follower::new(vec![Source::new(&path)]);
        follower.look().unwrap();
        std::fs::remove_file(&path).unwrap();
        let warnings = follower.look_again();
        assert_eq!(warnings.len(), 1);
        assert!(follower.look_again().is_empty());
    }

    #[test]
    fn a_log_without_rows_becomes_that_of_its_job() {
        let (_folder, path) = log("");
        let mut follower = Follower::new(vec![Source::new(&path)]);
        follower.look().unwrap();
        append(&path, "5,4,100\n");
        let events = words(&follower.look_again());
        assert_eq!(events[0], "step 0: 100");
        assert!(!events.iter().any(|event| event.contains("another job")));
    }
}
