//! The `ronde` command line program, called from Python.

use std::ffi::OsString;
use std::process::ExitCode;

use pyo3::prelude::*;

/// Runs the program and returns its exit code. `argv` has no program name; `program` is the command
/// that starts it again.
#[pyfunction]
#[pyo3(signature = (argv, program, /))]
pub(crate) fn cli(py: Python<'_>, argv: Vec<OsString>, program: Vec<OsString>) -> u8 {
    let program = ronde_cli::Program::contained(program, argv);
    let code = py.detach(|| ronde_cli::run(program));
    // `ExitCode` does not give its number, so it is found by comparison.
    let is_it = |number: &u8| ExitCode::from(*number) == code;
    (0..=u8::MAX).find(is_it).unwrap_or(1)
}

/// Version of the package and of the runtime in it.
#[pyfunction]
pub(crate) fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
