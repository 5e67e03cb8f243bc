//! Identity of the running program: its arguments, and the command that starts it again.

use std::ffi::OsString;
use std::sync::OnceLock;

/// Arguments of this program and the command that starts it. If another program contains this one,
/// as in the Python package, the process's own path and arguments do not describe it.
#[derive(Clone, Debug)]
pub struct Program {
    again: Vec<OsString>,
    arguments: Vec<OsString>,
    is_contained: bool,
}

static PROGRAM: OnceLock<Program> = OnceLock::new();

impl Program {
    /// Creates the description of a contained program: it was called with `arguments`, and `again`
    /// is the command, with its first arguments, that starts it.
    pub fn contained(again: Vec<OsString>, arguments: Vec<OsString>) -> Self {
        Self {
            again,
            arguments,
            is_contained: true,
        }
    }

    /// Creates the description from this process. If its path is unknown, the name by which it was
    /// called is used.
    pub(super) fn from_env() -> Self {
        let mut arguments = std::env::args_os();
        let name = arguments.next();
        let path = std::env::current_exe().ok().map(OsString::from);
        Self {
            again: path.or(name).into_iter().collect(),
            arguments: arguments.collect(),
            is_contained: false,
        }
    }

    pub(super) fn arguments(&self) -> &[OsString] {
        &self.arguments
    }

    /// Sets this program as the process's, if none is set yet.
    pub(super) fn remember(self) {
        PROGRAM.get_or_init(|| self);
    }
}

/// Arguments of the program, without its name.
pub(super) fn arguments() -> &'static [OsString] {
    &PROGRAM.get_or_init(Program::from_env).arguments
}

/// Whether another program contains this one.
pub(super) fn is_contained() -> bool {
    PROGRAM.get_or_init(Program::from_env).is_contained
}

/// Command that starts the program again.
pub(super) fn again() -> Vec<OsString> {
    PROGRAM.get_or_init(Program::from_env).again.clone()
}

/// Command that starts the program again with `arguments`.
pub(super) fn again_with(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    again().into_iter().chain(arguments).collect()
}
