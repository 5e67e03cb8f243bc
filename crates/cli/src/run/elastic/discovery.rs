//! Discovery of hosts: a fixed list, or a program that is run once a second.

use super::super::LaunchError;
use super::super::lines::Lines;
use super::super::process::{Exit, Process};
use super::super::stream::LinePipe;
use super::super::wait::Waiting;
use super::ElasticError;
use ronde_elastic::Hosts;
use rustix::process::Signal;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Time between two runs of the program.
const INTERVAL: Duration = Duration::from_secs(1);

/// Longest run of the program.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Time for the last output of processes that the program left behind.
const DRAIN: Duration = Duration::from_millis(500);

/// Most bytes that are read from the program.
const OUTPUT_BYTES_MAX: usize = 4 << 20;

/// Where the hosts come from.
pub(super) enum Source {
    Fixed(Hosts),
    Script {
        path: PathBuf,
        /// Slots of hosts that are printed without.
        slots: Option<usize>,
    },
}

impl Source {
    /// These hosts, each with its slots.
    ///
    /// # Errors
    /// A host that is there twice.
    pub(super) fn fixed(hosts: &[(String, usize)]) -> Result<Self, ElasticError> {
        Ok(Self::Fixed(Hosts::new(hosts)?))
    }

    /// Hosts that the program at `path` prints.
    ///
    /// # Errors
    /// The file does not exist, or is not executable.
    pub(super) fn script(path: PathBuf, slots: Option<usize>) -> Result<Self, ElasticError> {
        let failed = |reason: String| ElasticError::Script {
            path: path.clone(),
            reason,
        };
        let metadata = std::fs::metadata(&path).map_err(|error| failed(error.to_string()))?;
        if !metadata.is_file() {
            return Err(failed(
                "it is not a file; give a program that prints the hosts".to_owned(),
            ));
        }
        if metadata.permissions().mode() & 0o111 == 0 {
            let fix = format!("it is not executable; run chmod +x {}", path.display());
            return Err(failed(fix));
        }
        // As a shell does with a name that has a slash.
        let path = if path.components().count() == 1 {
            Path::new(".").join(path)
        } else {
            path
        };
        Ok(Self::Script { path, slots })
    }
}

/// Result of one run: the hosts, or why there are none.
pub(super) type Found = Result<Hosts, String>;

/// Discovery that runs in a thread of its own.
pub(super) struct Discovery {
    found: Receiver<Found>,
    /// Readable when something was found; `None` once nothing more will be.
    wake: Option<UnixStream>,
}

impl Discovery {
    /// Begins the discovery.
    pub(super) fn start(source: Source) -> Result<Self, LaunchError> {
        let system = |source| LaunchError::System {
            action: "start the discovery of hosts",
            source,
        };
        let (wake, waker) = UnixStream::pair().map_err(system)?;
        wake.set_nonblocking(true).map_err(system)?;
        let (sender, found) = channel();
        let thread = std::thread::Builder::new().name("ronde-hosts".into());
        thread
            .spawn(move || discover(&source, &sender, waker))
            .map_err(system)?;
        let wake = Some(wake);
        Ok(Self { found, wake })
    }

    /// Descriptor that polls as readable when there is a result, unless there will be none.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.wake.as_ref().map(AsFd::as_fd)
    }

    /// Latest result, if there is a new one.
    pub(super) fn take(&mut self) -> Option<Found> {
        let mut bytes = [0; 64];
        while let Some(mut wake) = self.wake.as_ref() {
            match std::io::Read::read(&mut wake, &mut bytes) {
                Ok(0) => self.wake = None, // it would poll as readable forever
                Ok(_) => {}
                Err(_) => break, // there is nothing to read
            }
        }
        self.found.try_iter().last()
    }
}

/// Sends results until the receiver is gone.
fn discover(source: &Source, sender: &Sender<Found>, mut waker: UnixStream) {
    loop {
        let began = Instant::now();
        let (found, goes_on) = match source {
            Source::Fixed(hosts) => (Ok(hosts.clone()), false),
            Source::Script { path, slots } => {
                let name = path.display();
                let hosts = output(path).and_then(|text| {
                    Hosts::parse(&text, *slots).map_err(|error| format!("printed, in {error}"))
                });
                (
                    hosts.map_err(|reason| format!("the discovery script {name} {reason}")),
                    true,
                )
            }
        };
        let is_sent = sender.send(found).is_ok();
        if !is_sent || std::io::Write::write_all(&mut waker, &[1]).is_err() || !goes_on {
            return;
        }
        std::thread::sleep(INTERVAL.saturating_sub(began.elapsed()));
    }
}

/// Runs the program, and returns what it prints, or what it did instead.
fn output(path: &Path) -> Result<String, String> {
    let mut command = Command::new(path);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let failed = |source| LaunchError::System {
        action: "start it",
        source,
    };
    let (mut process, pipes) =
        Process::start(&mut command, failed).map_err(|error| format!("failed: {error}"))?;
    let result = match pipes.stdout {
        Some(stdout) => read(&mut process, stdout),
        None => Err("has no output".to_owned()),
    };
    process.signal(Signal::KILL); // what it left behind, too
    process.reap();
    result
}

fn read(process: &mut Process, stdout: std::os::fd::OwnedFd) -> Result<String, String> {
    let mut deadline = Instant::now() + TIMEOUT;
    let mut pipe =
        LinePipe::new(stdout, Lines::default()).map_err(|error| format!("failed: {error}"))?;
    let mut text = String::new();
    let add = |text: &mut String, line: &[u8]| {
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    };
    loop {
        let mut waiting = Waiting::new();
        if let Some(stdout) = pipe.pipe() {
            waiting.readable(stdout, ());
        }
        if process.exit.is_none() {
            waiting.readable(process.descriptor(), ());
        }
        waiting
            .wait(Some(deadline))
            .map_err(|error| format!("failed: {error}"))?;
        pipe.read(|line| add(&mut text, line));
        if text.len() > OUTPUT_BYTES_MAX {
            return Err(format!("printed more than {OUTPUT_BYTES_MAX} bytes"));
        }
        let now = Instant::now();
        if process.exit.is_none() && process.check().is_some() {
            deadline = now + DRAIN;
        }
        match process.exit {
            Some(exit) if pipe.pipe().is_none() || now >= deadline => {
                pipe.finish(|line| add(&mut text, line));
                return match exit {
                    Exit::Code(0) => Ok(text),
                    exit => Err(exit.to_string()),
                };
            }
            None if now >= deadline => {
                return Err(format!(
                    "has not ended after {} s and was killed",
                    TIMEOUT.as_secs()
                ));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts.sh");
        // Another process writes it: a child that another test is just starting would inherit the
        // open file, and the kernel runs no program that is open for writing.
        let writer = Command::new("sh")
            .args([
                "-c",
                "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod 755 \"$0\"",
            ])
            .arg(&path)
            .arg(text)
            .status();
        assert!(writer.unwrap().success());
        (folder, path)
    }

    #[test]
    fn the_output_of_a_program_is_read_whole() {
        let (_folder, path) = script("echo a:1; sleep 0.1; printf b:2");
        assert_eq!(output(&path), Ok("a:1\nb:2\n".to_owned()));
    }

    #[test]
    fn a_program_that_fails_is_reported_by_its_status() {
        let (_folder, path) = script("echo a:1; exit 3");
        assert_eq!(output(&path), Err("exited with code 3".to_owned()));
        let (_folder, path) = script("kill -9 $$");
        assert_eq!(
            output(&path),
            Err("was killed by signal 9 (SIGKILL)".to_owned())
        );
    }

    #[test]
    fn a_process_that_a_program_leaves_behind_does_not_delay_its_output() {
        let (_folder, path) = script("sleep 1000 & printf 'a:1\\nb:2'");
        let began = Instant::now();
        assert_eq!(output(&path), Ok("a:1\nb:2\n".to_owned()));
        assert!(began.elapsed() < TIMEOUT);
        let (_folder, path) = script("sleep 1000 & exit 3");
        assert_eq!(output(&path), Err("exited with code 3".to_owned()));
    }

    #[test]
    fn fixed_hosts_are_found_once_and_nothing_is_polled_after_that() {
        let mut discovery = Discovery::start(Source::fixed(&[("a".into(), 2)]).unwrap()).unwrap();
        let mut found = Vec::new();
        while let Some(descriptor) = discovery.descriptor() {
            let mut waiting = Waiting::new();
            waiting.readable(descriptor, ());
            waiting.wait(None).unwrap();
            found.extend(discovery.take());
        }
        assert_eq!(found, [Ok(Hosts::parse("a:2", None).unwrap())]);
    }

    #[test]
    fn a_file_that_cannot_be_run_is_an_error_at_the_start() {
        let (folder, path) = script("");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let error = |path: &Path| match Source::script(path.into(), None) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{}", path.display()),
        };
        let name = path.display();
        assert_eq!(
            error(&path),
            format!("--host-discovery-script {name}: it is not executable; run chmod +x {name}")
        );
        assert!(
            error(folder.path())
                .ends_with("it is not a file; give a program that prints the hosts")
        );
        assert!(
            error(&folder.path().join("none")).ends_with("No such file or directory (os error 2)")
        );
    }
}
