//! Tests of the command `ronde timeline`, on files that the tests write and on fixtures.

mod bad_input;
mod comparisons;
mod formats;
mod gate;
mod outputs;
mod report;
mod trace;

use std::path::Path;
use std::process::{Command, Output};

use crate::support::output::{assert_failed, silent_stdout as stdout, texts};
use serde_json::Value;

/// Runs `ronde timeline` with these arguments in `folder`.
fn timeline(folder: &Path, arguments: &[&str]) -> Output {
    ronde(folder)
        .arg("timeline")
        .args(arguments)
        .output()
        .unwrap()
}

/// Returns a command of the program, in an environment without launchers and settings.
fn ronde(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ronde"));
    command
        .current_dir(folder)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("LC_ALL", "C.UTF-8");
    command
}

/// Asserts the exit code, that the message is one or two lines, and that it contains all `parts`.
fn assert_fails(output: &Output, code: i32, parts: &[&str]) {
    let err = assert_failed(output, code, parts);
    assert!(err.starts_with("ronde: timeline: "), "{err}");
    assert!(err.lines().count() <= 2, "{err}");
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}
