//! Output of a run of the program.

use std::process::Output;

/// Returns standard output and standard error.
pub(crate) fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Returns the standard output of a run that must have succeeded.
pub(crate) fn stdout(output: &Output) -> String {
    let (out, err) = texts(output);
    assert!(output.status.success(), "{out}{err}");
    out
}

/// Returns the standard output of a run that must have succeeded, with empty standard error.
pub(crate) fn silent_stdout(output: &Output) -> String {
    let (out, err) = texts(output);
    assert!(output.status.success() && err.is_empty(), "{out}{err}");
    out
}

/// Asserts the exit code, and that the message contains all `parts`; returns the message.
pub(crate) fn assert_failed(output: &Output, code: i32, parts: &[&str]) -> String {
    let (_, err) = texts(output);
    assert_eq!(output.status.code(), Some(code), "{err}");
    assert!(
        parts.iter().all(|part| err.contains(part)),
        "{parts:?} in: {err}"
    );
    err
}

/// Returns text without its line ends, so that line wrapping does not matter.
pub(crate) fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Asserts that a page is well formed, loads nothing and has the licences of the charts in it.
pub(crate) fn assert_stands_alone(page: &str) {
    ronde_cases::page::check(page);
    let (own, rest) = page
        .split_once("<details id=\"licences\">")
        .expect("licences");
    let (licences, _) = rest
        .split_once("</details>")
        .expect("the end of the licences");
    assert!(
        licences.contains("Apache License") && licences.contains("The Apache Software Foundation")
    );
    assert!(own.contains("default-src 'none'"), "no policy");
}
