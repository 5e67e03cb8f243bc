//! Runs the command as a process: in a process group of its own, with a time limit, its output read
//! line by line.
//!
//! A run that is stopped gets SIGTERM, and SIGKILL after a grace period, and so do all of its
//! descendants: torchrun starts its workers in sessions of their own.

mod descendants;
mod output;

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use crate::limit::FIGURES_MOST;
use crate::metric::number;
use crate::{Limit, Metric, Outcome, Parameter, Pattern, Runner, Setting, Template, Use};
use descendants::Tree;
use output::Line;

/// Interval at which deadlines and interrupts are checked.
const POLL: Duration = Duration::from_millis(20);
/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);
/// Time for the rest of the output after the command has ended; a background process may hold it
/// open for ever.
const REST: Duration = Duration::from_secs(1);
/// Lines of the output that are shown if a run fails.
const TAIL: usize = 20;

/// Kills a run if this process is killed.
pub trait Watch {
    /// Sets the process group of the run.
    fn group(&mut self, group: u32);
}

/// Runner of the command as a process: the command, and the figures that are read from it.
pub struct Processes<'a> {
    /// Command.
    pub template: &'a Template,
    /// Parameters of the command.
    pub parameters: &'a [Parameter],
    /// Figure of a run.
    pub metric: &'a Metric,
    /// Whether a higher figure is better.
    pub maximize: bool,
    /// Value that must not depend on the setting.
    pub check: Option<&'a Pattern>,
    /// Command for the shell before each run, outside of its time.
    pub prepare: Option<&'a str>,
    /// Longest time of a run, and of its preparation.
    pub time_limit: Option<Duration>,
    /// Whether the output is shown on standard error.
    pub show_output: bool,
    /// Folder for the output of each run.
    pub logs: Option<&'a Path>,
    /// Folder for the copy of the configuration file.
    pub folder: &'a Path,
    /// Whether the user wants to end the search.
    pub is_interrupted: &'a dyn Fn() -> bool,
    /// Starts the watch of a run, which ends when it is dropped.
    pub watch: &'a dyn Fn() -> io::Result<Box<dyn Watch>>,
    /// Number of runs so far, for the names of logs.
    pub number: usize,
    /// Whether the runs do not count, for the same.
    pub is_warmup: bool,
    /// Last lines of the latest run.
    pub tail: VecDeque<String>,
}

/// A command that cannot be run, whatever its setting.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The program cannot be started.
    #[error("cannot run {program}: {source}")]
    Start {
        /// Program.
        program: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The command of `--prepare` failed.
    #[error("--prepare {command}: {problem}")]
    Prepare {
        /// Its text.
        command: String,
        /// Its error.
        problem: String,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Reason why a run ended.
enum End {
    /// The command ended with this status, at this time.
    Exited(ExitStatus, Instant),
    /// It exceeded the time limit of a run.
    TooLong,
    /// The budget of all runs was used up.
    OutOfBudget,
    /// It was clearly slower than the best run; the value is an estimate of its figure.
    Stopped(f64),
    Interrupted,
}

/// End of the command of `--prepare`.
enum Prepared {
    Completed,
    /// The budget of all runs was used up.
    OutOfBudget,
    Interrupted,
}

/// Figures of a run's output so far.
#[derive(Default)]
struct Figures {
    /// Costs: lower is better.
    costs: Vec<f64>,
    check: Option<f64>,
    /// A match that is not a number.
    not_numeric: Option<String>,
}

impl Runner for Processes<'_> {
    type Error = RunError;

    fn run(&mut self, setting: &Setting, limit: &Limit) -> Result<Option<Outcome>, RunError> {
        if (self.is_interrupted)() {
            return Ok(None); // a short run might end before the next check
        }
        self.number += 1;
        self.tail.clear();
        let entered = Instant::now();
        let out_of_budget = |during: &str| Outcome::Failed {
            reason: format!(
                "{during} was ended after {:.1} s, because --budget was used up",
                entered.elapsed().as_secs_f64()
            ),
        };
        if let Some(command) = self.prepare {
            match self.prepared(command, limit)? {
                Prepared::Completed => {}
                Prepared::OutOfBudget => return Ok(Some(out_of_budget("--prepare"))),
                Prepared::Interrupted => return Ok(None),
            }
        }
        let limit = limit.clone().after(entered.elapsed());
        let before = self.file_version();
        let mut log = self.log()?;
        // Started before the command, so that its time does not count.
        let mut watch = self.watched()?;
        let began = Instant::now();
        let mut child = match self.start(setting) {
            // The setting chooses the program: the others may be there.
            Err(RunError::Start { program, source }) if program != self.program() => {
                let reason = format!("{program} cannot be run: {source}");
                return Ok(Some(Outcome::Failed { reason }));
            }
            started => started?,
        };
        watch.group(child.id());
        let lines = output::lines(&mut child);
        let mut figures = Figures::default();
        let ended = self.wait(
            &mut child,
            &lines,
            &limit,
            began,
            &mut figures,
            log.as_mut(),
        );
        let is_fresh = before.is_none() || before != self.file_version();
        Ok(match ended {
            End::Interrupted => None,
            End::Stopped(value) => Some(Outcome::Stopped { value }),
            End::TooLong => Some(Outcome::Failed {
                reason: self.too_long(),
            }),
            End::OutOfBudget => Some(out_of_budget("it")),
            End::Exited(status, at) => {
                let seconds = at.saturating_duration_since(began).as_secs_f64();
                Some(self.outcome(status, seconds, is_fresh, figures))
            }
        })
    }
}

impl Processes<'_> {
    /// Runs the command of `--prepare`, at most for the time limit of a run and the budget.
    ///
    /// Processes that it leaves in the background are not ended: the runs may need them.
    fn prepared(&self, command: &str, limit: &Limit) -> Result<Prepared, RunError> {
        let problem = |problem: String| RunError::Prepare {
            command: command.to_owned(),
            problem,
        };
        let system = |error: io::Error| problem(error.to_string());
        let mut watch = self.watched()?;
        // A file: a process in the background would keep a pipe open.
        let path = self.folder.join("prepare.txt");
        let messages = File::create(&path).map_err(system)?;
        let mut shell = Command::new("sh")
            .args(["-c", command])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(messages)
            .process_group(0)
            .spawn()
            .map_err(system)?;
        watch.group(shell.id());
        let began = Instant::now();
        let pause = || std::thread::sleep(POLL);
        let status = loop {
            if let Some(status) = shell.try_wait().map_err(system)? {
                break status;
            }
            let elapsed = began.elapsed();
            let ended = if (self.is_interrupted)() {
                Some(Ok(Prepared::Interrupted))
            } else if self.time_limit.is_some_and(|most| elapsed > most) {
                Some(Err(problem(self.too_long())))
            } else if limit.budget().is_some_and(|most| elapsed > most) {
                Some(Ok(Prepared::OutOfBudget))
            } else {
                None
            };
            if let Some(ended) = ended {
                stop(&mut shell, pause);
                return ended;
            }
            pause();
        };
        if status.success() {
            return Ok(Prepared::Completed);
        }
        let text = std::fs::read(&path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let last = text.lines().last().unwrap_or_default();
        Err(problem(format!("it failed ({status}) {last}")))
    }

    fn too_long(&self) -> String {
        let most_s = self.time_limit.unwrap_or_default().as_secs_f64();
        format!("it ran longer than the time limit of {most_s} s")
    }

    /// Starts the watch of a process group.
    fn watched(&self) -> Result<Box<dyn Watch>, RunError> {
        (self.watch)().map_err(|source| RunError::Start {
            program: "the guard of the command".to_owned(),
            source,
        })
    }

    fn log(&self) -> Result<Option<File>, RunError> {
        let Some(folder) = self.logs else {
            return Ok(None);
        };
        let name = if self.is_warmup { "warmup" } else { "run" };
        let path = folder.join(format!("{name}-{:03}.log", self.number));
        match File::create(&path) {
            Ok(file) => Ok(Some(file)),
            Err(source) => Err(RunError::Write { path, source }),
        }
    }

    fn start(&self, setting: &Setting) -> Result<Child, RunError> {
        let path = self.folder.join("config.json");
        let filled = self.template.fill(self.parameters, setting, &path);
        if let Some(content) = &filled.config {
            let written = std::fs::write(&path, content);
            written.map_err(|source| RunError::Write { path, source })?;
        }
        let mut words = filled.command.iter();
        let mut command = Command::new(words.next().map_or(OsStr::new(""), |word| word));
        command.args(words);
        if matches!(self.metric, Metric::Output(..)) && std::env::var_os(UNBUFFERED).is_none() {
            // Python writes to a pipe only every 8 KiB; figures have to arrive while it runs.
            command.env(UNBUFFERED, "1");
        }
        command
            .envs(filled.variables)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        command.spawn().map_err(|source| RunError::Start {
            program: command.get_program().to_string_lossy().into_owned(),
            source,
        })
    }

    /// The program, before parameters are filled in.
    fn program(&self) -> String {
        self.template.program().to_string_lossy().into_owned()
    }

    /// Waits until the run ends or is stopped, and reads its output.
    fn wait(
        &mut self,
        child: &mut Child,
        lines: &Receiver<Line>,
        limit: &Limit,
        began: Instant,
        figures: &mut Figures,
        mut log: Option<&mut File>,
    ) -> End {
        let mut is_open = true;
        let mut exited: Option<(ExitStatus, Instant)> = None;
        loop {
            match lines.recv_timeout(POLL) {
                Ok(line) => self.take(&line, figures, log.as_deref_mut()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    is_open = false;
                    // The command is about to exit: its time is measured to a millisecond.
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            if exited.is_none() {
                exited = child
                    .try_wait()
                    .ok()
                    .flatten()
                    .map(|status| (status, Instant::now()));
            }
            if let Some((status, at)) = exited {
                if !is_open || at.elapsed() > REST {
                    // Processes left in its group would disturb the next run.
                    descendants::kill_group(child.id());
                    return End::Exited(status, at);
                }
                continue;
            }
            let elapsed = began.elapsed();
            let end = if (self.is_interrupted)() {
                Some(End::Interrupted)
            } else if self.time_limit.is_some_and(|most| elapsed > most) {
                Some(End::TooLong)
            } else if let Some(value) = limit.exceeded(&figures.costs) {
                Some(End::Stopped(value))
            } else if limit.wall().is_some_and(|most| elapsed > most) {
                Some(End::Stopped(elapsed.as_secs_f64()))
            } else if limit.budget().is_some_and(|most| elapsed > most) {
                Some(End::OutOfBudget)
            } else {
                None
            };
            if let Some(end) = end {
                stop(child, || {
                    // A process that writes its last lines must not wait for a reader.
                    let line = lines.recv_timeout(POLL);
                    if matches!(line, Err(RecvTimeoutError::Disconnected)) {
                        std::thread::sleep(POLL);
                    }
                });
                return end;
            }
        }
    }

    /// Reads a line of the output.
    fn take(&mut self, line: &Line, figures: &mut Figures, log: Option<&mut File>) {
        let text = String::from_utf8_lossy(&line.text);
        if let Some(log) = log {
            // A full disk must not end the search; the log is then incomplete.
            let _ = log
                .write_all(&line.text)
                .and_then(|()| log.write_all(b"\n"));
        }
        if self.show_output {
            let _ = writeln!(io::stderr(), "{text}");
        }
        if let Metric::Output(pattern, _) = self.metric {
            for found in pattern.matches(&text) {
                match number(found) {
                    Some(value) if value > 0.0 => figures.costs.push(self.cost(value)),
                    _ => figures.not_numeric = Some(found.to_owned()),
                }
            }
        }
        if let Some(value) = self.check.and_then(|check| check.matches(&text).last()) {
            figures.check = number(value);
        }
        if !text.trim().is_empty() {
            if self.tail.len() == TAIL {
                self.tail.pop_front();
            }
            self.tail.push_back(text.into_owned());
        }
    }

    /// Version of the metric's file: it changes when a run writes the file.
    fn file_version(&self) -> Option<(SystemTime, u64, u64)> {
        let Metric::File(path, _) = self.metric else {
            return None;
        };
        let found = std::fs::metadata(path).ok()?;
        Some((found.modified().ok()?, found.len(), found.ino()))
    }

    /// Cost of a figure: lower is better.
    fn cost(&self, value: f64) -> f64 {
        if self.maximize { 1.0 / value } else { value }
    }

    fn outcome(
        &self,
        status: ExitStatus,
        seconds: f64,
        is_fresh: bool,
        figures: Figures,
    ) -> Outcome {
        let failed = |reason: String| Outcome::Failed { reason };
        if !status.success() {
            return failed(match (status.code(), status.signal()) {
                (Some(code), _) => format!("it exited with code {code}"),
                (None, Some(signal)) => format!("signal {signal} ended it"),
                (None, None) => "it failed".to_owned(),
            });
        }
        let value = match self.metric {
            Metric::Wall => Ok(seconds),
            Metric::File(path, _) if !is_fresh => {
                Err(format!("it did not write {}", path.display()))
            }
            Metric::File(path, pointer) => file_figure(path, pointer).map(|value| self.cost(value)),
            Metric::Output(pattern, which) => {
                let found = match which {
                    Use::Last => figures.costs.last().copied(),
                    Use::Median => Some(&figures.costs)
                        .filter(|costs| !costs.is_empty())
                        .map(|costs| ronde_tuner::median(costs)),
                };
                found.ok_or_else(|| match &figures.not_numeric {
                    Some(text) => format!(
                        "the metric {} matched {text:?}, which is not a number > 0",
                        pattern.as_str()
                    ),
                    None => format!("its output has no match of the metric {}", pattern.as_str()),
                })
            }
        };
        let check = match (self.check, figures.check) {
            (Some(pattern), None) => {
                return failed(format!(
                    "its output has no number for the check {}",
                    pattern.as_str()
                ));
            }
            (_, check) => check,
        };
        let mut figures = figures.costs;
        figures.truncate(FIGURES_MOST);
        match value {
            Ok(value) => Outcome::Measured {
                value,
                check,
                figures,
            },
            Err(reason) => failed(reason),
        }
    }
}

/// Variable that makes Python write each line at once.
const UNBUFFERED: &str = "PYTHONUNBUFFERED";

/// Figure in a JSON file.
fn file_figure(path: &Path, pointer: &str) -> Result<f64, String> {
    let name = path.display();
    let text = ronde_tuner::read_text(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("it wrote no {name}: {error}"),
        _ => format!("{name}: {error}"),
    })?;
    let content: Value = serde_json::from_str(&text).map_err(|error| format!("{name}: {error}"))?;
    let value = content
        .pointer(pointer)
        .ok_or_else(|| format!("{name} has no {pointer}"))?;
    let value = match value {
        Value::String(text) => number(text),
        value => value.as_f64(),
    };
    let value = value.filter(|value| *value > 0.0);
    value.ok_or_else(|| format!("{name}: {pointer} is not a number > 0"))
}

/// Ends a process and everything that it has started; `pause` waits for a moment.
fn stop(child: &mut Child, pause: impl Fn()) {
    let mut tree = Tree::of(child.id());
    tree.terminate();
    let began = Instant::now();
    let mut is_over = false;
    while began.elapsed() < GRACE && !is_over {
        pause();
        tree.grow();
        let has_exited = child.try_wait().is_ok_and(|status| status.is_some());
        is_over = has_exited && !tree.is_alive();
    }
    tree.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests;
