//! Output of results to standard output, and of messages with exit codes to standard error.

use std::io::{self, Write};
use std::process::ExitCode;

use super::harmless;

/// Exit code for wrong usage, the same as clap's.
pub const EXIT_USAGE: u8 = 2;

/// Prints to standard output. A closed pipe, as with `head`, is not a failure.
pub fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            fail(&format!("cannot print: {error}"), 1)
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Prints an error to standard error, without control characters, and returns its exit code.
pub fn fail(message: &str, code: u8) -> ExitCode {
    let lines: Vec<String> = message.split('\n').map(harmless).collect();
    // If standard error is closed too, only the exit code remains.
    let _ = writeln!(io::stderr(), "ronde: {}", lines.join("\n"));
    ExitCode::from(code)
}

/// Prints a warning of a subcommand to standard error.
pub fn warn(command: &str, warning: &str) {
    fail(&format!("{command}: warning: {warning}"), 0);
}
