//! What a run of the program said.

use std::process::Output;

/// Standard output and error.
pub(crate) fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Standard output of a run that must have gone well.
pub(crate) fn stdout(output: &Output) -> String {
    let (out, err) = texts(output);
    assert!(output.status.success(), "{out}{err}");
    out
}

/// Standard output of a run that must have gone well, and without a word on standard error.
pub(crate) fn silent_stdout(output: &Output) -> String {
    let (out, err) = texts(output);
    assert!(output.status.success() && err.is_empty(), "{out}{err}");
    out
}

/// Asserts the exit code, and that the message holds all `parts`; answers with the message.
pub(crate) fn assert_failed(output: &Output, code: i32, parts: &[&str]) -> String {
    let (_, err) = texts(output);
    assert_eq!(output.status.code(), Some(code), "{err}");
    assert!(parts.iter().all(|part| err.contains(part)), "{parts:?} in: {err}");
    err
}

/// Text without its line ends, so that it does not matter where lines are wrapped.
pub(crate) fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
