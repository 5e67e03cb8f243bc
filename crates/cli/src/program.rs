//! The program itself: what it was called with, and how it is started again.

use std::ffi::OsString;
use std::sync::OnceLock;

/// How the program came to run. One that is contained in another, as in the Python package, is not what the process's
/// own path and arguments say.
#[derive(Clone, Debug)]
pub struct Program {
    again: Vec<OsString>,
    arguments: Vec<OsString>,
    is_contained: bool,
}

static PROGRAM: OnceLock<Program> = OnceLock::new();

impl Program {
    /// One that another program contains: it is called with `arguments`, and `again` starts it: a command and its first
    /// arguments.
    pub fn contained(again: Vec<OsString>, arguments: Vec<OsString>) -> Self {
        Self {
            again,
            arguments,
            is_contained: true,
        }
    }

    /// This process's. Under another name or after an upgrade the path may be gone; then the name it was called by is what
    /// is left.
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

    /// Makes it the process's, if it has none yet.
    pub(super) fn remember(self) {
        PROGRAM.get_or_init(|| self);
    }
}

/// What the program was called with, beside its name.
pub(super) fn arguments() -> &'static [OsString] {
    &PROGRAM.get_or_init(Program::from_env).arguments
}

/// Whether another program contains it.
pub(super) fn is_contained() -> bool {
    PROGRAM.get_or_init(Program::from_env).is_contained
}

/// What starts it again.
pub(super) fn again() -> Vec<OsString> {
    PROGRAM.get_or_init(Program::from_env).again.clone()
}

/// What starts it again with `arguments`.
pub(super) fn again_with(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    again().into_iter().chain(arguments).collect()
}
