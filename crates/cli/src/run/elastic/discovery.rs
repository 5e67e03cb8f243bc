//! Discovery of hosts: a fixed list, or a program that is run once a second.

use super::super::LaunchError;
use super::super::lines::Lines;
use super::super::process::{Exit, Process};
use super::super::stream::LinePipe;
use super::super::wait::Waiting;
use super::ElasticError;
use ronde_elastic::Hosts;
use rustix::process::Signal;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
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

/// Largest number of bytes that are read from the program.
const OUTPUT_BYTES_MAX: usize = 4 << 20;

/// Where the hosts come from.
pub(super) enum Source {
    Fixed(Hosts),
    Script {
        program: Program,
        /// Slots of hosts that are printed without.
        slots: Option<usize>,
    },
}

/// Program that prints hosts.
pub(super) enum Program {
    File(PathBuf),
    /// Shell command, as in Horovod.
    Command(OsString),
}

impl Source {
    /// These hosts, each with its slots.
    ///
    /// # Errors
    /// A host that is there twice.
    pub(super) fn fixed(hosts: &[(String, usize)]) -> Result<Self, ElasticError> {
        Ok(Self::Fixed(Hosts::new(hosts)?))
    }

    /// Hosts that the program at `path` prints, or the shell command `path` if there is no such file
    /// and it has a space.
    ///
    /// # Errors
    /// The file does not exist, or is not executable.
    pub(super) fn script(path: PathBuf, slots: Option<usize>) -> Result<Self, ElasticError> {
        let failed = |reason: String| ElasticError::Script {
            path: path.clone(),
            reason,
        };
        let metadata = match std::fs::metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) => {
                let is_command = path.as_os_str().as_encoded_bytes().contains(&b' ');
                if !is_command || error.kind() != ErrorKind::NotFound {
                    return Err(failed(error.to_string()));
                }
                let program = Program::Command(path.into_os_string());
                return Ok(Self::Script { program, slots });
            }
        };
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
        let program = Program::File(path);
        Ok(Self::Script { program, slots })
    }
}

impl Program {
    /// The path or command, for messages.
    fn name(&self) -> std::ffi::os_str::Display<'_> {
        match self {
            Self::File(path) => path.as_os_str().display(),
            Self::Command(text) => text.display(),
        }
    }

    fn command(&self) -> Command {
        match self {
            Self::File(path) => Command::new(path),
            Self::Command(text) => {
                let mut shell = Command::new("/bin/sh");
                shell.arg("-c").arg(text);
                shell
            }
        }
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
            Source::Script { program, slots } => {
                let name = program.name();
                let hosts = output(program.command(), TIMEOUT).and_then(|text| {
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

/// Runs a program for at most `timeout`, and returns what it prints, or what it did instead.
fn output(mut command: Command, timeout: Duration) -> Result<String, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let failed = |source| LaunchError::System {
        action: "start it",
        source,
    };
    let (mut process, pipes) =
        Process::start(&mut command, failed).map_err(|error| format!("failed: {error}"))?;
    let result = match pipes.stdout {
        Some(stdout) => read(&mut process, stdout, timeout),
        None => Err("has no output".to_owned()),
    };
    process.signal(Signal::KILL); // what it left behind, too
    process.reap();
    result
}

fn read(process: &mut Process, stdout: OwnedFd, timeout: Duration) -> Result<String, String> {
    let mut deadline = Instant::now() + timeout;
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
                    timeout.as_secs()
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

    fn run(path: &Path) -> Result<String, String> {
        output(Command::new(path), TIMEOUT)
    }

    #[test]
    fn the_output_of_a_program_is_read_whole() {
        let (_folder, path) = script("echo a:1; sleep 0.1; printf b:2");
        assert_eq!(run(&path), Ok("a:1\nb:2\n".to_owned()));
    }

    #[test]
    fn a_program_that_fails_is_reported_by_its_status() {
        let (_folder, path) = script("echo a:1; exit 3");
        assert_eq!(run(&path), Err("exited with code 3".to_owned()));
        let (_folder, path) = script("kill -9 $$");
        assert_eq!(
            run(&path),
            Err("was killed by signal 9 (SIGKILL)".to_owned())
        );
    }

    #[test]
    fn a_process_that_a_program_leaves_behind_does_not_delay_its_output() {
        let (_folder, path) = script("sleep 1000 & printf 'a:1\\nb:2'");
        let began = Instant::now();
        assert_eq!(run(&path), Ok("a:1\nb:2\n".to_owned()));
        assert!(began.elapsed() < TIMEOUT);
        let (_folder, path) = script("sleep 1000 & exit 3");
        assert_eq!(run(&path), Err("exited with code 3".to_owned()));
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_what_it_started() {
        let (_folder, path) = script("echo a:1; sleep 1000");
        let killed = output(Command::new(&path), Duration::from_secs(1));
        assert_eq!(
            killed,
            Err("has not ended after 1 s and was killed".to_owned())
        );
    }

    #[test]
    fn a_command_with_arguments_is_run_by_a_shell() {
        let (_folder, path) = script("echo $1:$2");
        let text = format!("{} a 2", path.display());
        let Ok(Source::Script { program, .. }) = Source::script(text.clone().into(), None) else {
            panic!("{text}");
        };
        assert_eq!(program.name().to_string(), text);
        assert_eq!(output(program.command(), TIMEOUT), Ok("a:2\n".to_owned()));
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
