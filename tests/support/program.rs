//! Commands that run the program under test.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::PATIENCE;

/// Returns a command of the program, in an environment without launchers and settings.
pub(crate) fn ronde() -> Command {
    const FOREIGN: [&str; 9] = [
        "HOROVOD_",
        "RONDE_",
        "BYTEPS_",
        "OMPI_",
        "PMI",
        "SLURM_",
        "WORLD_SIZE",
        "RANK",
        "LOCAL_",
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_ronde"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if FOREIGN.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command
}

/// Returns `command` with these signals neither ignored nor caught: a shell ignores SIGINT in the
/// background, nohup ignores SIGHUP. Folder and variables are kept; the output is piped.
pub(crate) fn by_default(signals: &str, command: &Command) -> Command {
    let mut by_default = Command::new("env");
    by_default
        .arg(format!("--default-signal={signals}"))
        .arg(command.get_program())
        .args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        by_default.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => by_default.env(name, value),
            None => by_default.env_remove(name),
        };
    }
    by_default
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    by_default
}

/// Writes a program, by another process: a child that another test is just starting would inherit
/// the open file, and the kernel runs no program that is open for writing.
pub(crate) fn write_program(path: &Path, text: &str) {
    let mut writer = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut input = writer.stdin.take().expect("a pipe");
    input.write_all(text.as_bytes()).expect("it reads");
    drop(input);
    assert!(writer.wait().expect("a child").success());
}

/// Calls `found` repeatedly and returns its first result.
///
/// # Panics
/// After a time longer than any operation takes on a loaded machine.
#[track_caller]
pub(crate) fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "it does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}
