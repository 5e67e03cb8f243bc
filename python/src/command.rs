//! The `ronde` program, within a Python process.

use std::ffi::OsString;
use std::process::ExitCode;

use pyo3::prelude::*;

/// Runs the program with `argv` (its name left out); `program` is how it is started again. Its exit code.
#[pyfunction]
#[pyo3(signature = (argv, program, /))]
pub(crate) fn cli(py: Python<'_>, argv: Vec<OsString>, program: Vec<OsString>) -> u8 {
    let program = ronde_cli::Program::contained(program, argv);
    let code = py.detach(|| ronde_cli::run(program));
    // An exit code tells its number to nobody but the system.
    let is_it = |number: &u8| ExitCode::from(*number) == code;
    (0..=u8::MAX).find(is_it).unwrap_or(1)
}

/// The version of the package and of the runtime in it.
#[pyfunction]
pub(crate) fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
