//! `ronde timeline` as a user calls it, on files that the tests write and, where they are there, on real ones.

mod bad_input;
mod comparisons;
mod outputs;
mod real;
#[path = "../support/recorded.rs"]
mod recorded;
mod report;
mod trace;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs `ronde timeline` with these arguments in `folder`.
fn timeline(folder: &Path, arguments: &[&str]) -> Output {
    ronde(folder).arg("timeline").args(arguments).output().unwrap()
}

/// The program, in an environment without launchers and settings.
fn ronde(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ronde"));
    command
        .current_dir(folder)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("LC_ALL", "C.UTF-8");
    command
}

/// Standard output of a run that must have gone well, and without a word on standard error.
fn stdout(output: &Output) -> String {
    let (out, err) = texts(output);
    assert!(output.status.success() && err.is_empty(), "{out}{err}");
    out
}

/// Standard output and error.
fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Asserts the exit code, that the message is one or two lines, and that it holds all `parts`.
fn assert_fails(output: &Output, code: i32, parts: &[&str]) {
    let (_, err) = texts(output);
    assert_eq!(output.status.code(), Some(code), "{err}");
    assert!(err.starts_with("ronde: timeline: "), "{err}");
    assert!(err.lines().count() <= 2, "{err}");
    assert!(parts.iter().all(|part| err.contains(part)), "{parts:?} in: {err}");
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}
