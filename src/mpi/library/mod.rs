//! MPI's library, found and loaded at run time, and the plug-in for its ABI.
//!
//! The first of these is used:
//! 1. a library of MPI that is already in the process, as mpi4py brings it;
//! 2. `RONDE_MPI_LIBRARY`;
//! 3. a library of an ABI that fits the launcher's variables and has a plug-in: beside the
//!    `mpirun` in the path, where `OPAL_PREFIX` and the like say, in the environment of the Python
//!    package, then wherever the loader finds its name.
//!
//! A library is opened with local symbols and asked for its version. Only if the version names an
//! ABI that has a plug-in, its symbols become global, which the plug-in and MPI's own components
//! need. A library of another ABI would have functions of the same names with other arguments.
//!
//! - `abi`: names, versions, launchers; `folders`: where files are looked for; `process`: files
//!   that are mapped; `plugin`: the plug-in and the check of its table.

#![allow(unsafe_code)] // opens libraries and calls two of their functions

mod abi;
mod error;
mod folders;
mod plugin;
mod process;

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY, RTLD_LOCAL};
use ronde_mpi_table::{Abi, Table};

use crate::identity::{Lookup, environment};
use crate::knobs::Knobs;
use crate::sync::lock;

pub(super) use abi::short;
pub(crate) use error::MpiLibraryError;
use error::Unfit;

/// Longer than any `MPI_MAX_LIBRARY_VERSION_STRING`: 256 in Open MPI, 8192 in MPICH.
const VERSION_BYTES: usize = 32_768;

/// MPI as this process uses it: library and plug-in, both loaded for ever.
#[derive(Debug)]
pub(crate) struct Mpi {
    pub(super) table: &'static Table,
    /// Text by which the library identifies itself.
    pub(crate) version: String,
}

static LOADED: OnceLock<Mpi> = OnceLock::new();

/// Returns MPI, loaded once for the life of the process. A failed attempt is repeated at the next
/// call.
///
/// # Errors
/// There is no library that fits, or no plug-in for it.
pub(crate) fn load(knobs: &Knobs) -> Result<&'static Mpi, MpiLibraryError> {
    static LOADING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = lock(&LOADING);
    if let Some(mpi) = LOADED.get() {
        return Ok(mpi);
    }
    let plugins = folders::of_plugins(knobs.mpi_plugins.as_deref());
    let mut found = find(knobs.mpi_library.as_deref(), &plugins, &environment)?;
    let plugin = plugin::find(found.abi, &plugins)?;
    found.share()?;
    let table = plugin::open(&plugin, found.abi)?;
    tracing::debug!(
        library = %found.file.display(),
        version = short(&found.version),
        plugin = %plugin.display(),
        "MPI is loaded"
    );
    let version = std::mem::take(&mut found.version);
    Ok(LOADED.get_or_init(|| Mpi { table, version }))
}

/// One family of MPIs, as [`mpi_libraries`] finds it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MpiFound {
    /// `Open MPI` or `MPICH`; the latter includes Intel MPI, MVAPICH and Cray MPICH.
    pub family: &'static str,
    /// File and version of the library, or the reason why there is none.
    pub library: Result<(PathBuf, String), String>,
    /// File of the plug-in, or the reason why there is none.
    pub plugin: Result<PathBuf, String>,
}

/// Looks for the libraries of all families of MPI and for the plug-ins, for reports.
///
/// Libraries that are found stay in the process, so a context of this process can use MPI only if
/// there is one. Invalid knobs count as unset.
pub fn mpi_libraries() -> Vec<MpiFound> {
    let knobs = Knobs::from_env().unwrap_or_default();
    let given = knobs.mpi_library.as_deref();
    let plugins = folders::of_plugins(knobs.mpi_plugins.as_deref());
    let of_family = |wanted: Abi| {
        let found = match given {
            Some(file) => named(file).and_then(|found| match found.abi == wanted {
                true => Ok(found),
                false => Err(MpiLibraryError::given(
                    file,
                    Unfit::of_other(&found.version),
                )),
            }),
            None => search(&[wanted], &environment),
        };
        MpiFound {
            family: abi::family(wanted),
            library: found
                .map(|found| (found.file.clone(), short(&found.version)))
                .map_err(|error| error.to_string()),
            plugin: plugin::find(wanted, &plugins).map_err(|error| error.to_string()),
        }
    };
    [Abi::OpenMpi, Abi::Mpich].map(of_family).into()
}

/// Whether there is a plug-in for any family of MPI.
pub fn has_mpi_plugin() -> bool {
    let given = Knobs::from_env().unwrap_or_default().mpi_plugins;
    let folders = folders::of_plugins(given.as_deref());
    [Abi::OpenMpi, Abi::Mpich]
        .into_iter()
        .any(|abi| plugin::find(abi, &folders).is_ok())
}

/// Library of MPI, loaded for ever: not all MPIs support being closed.
struct Found {
    file: PathBuf,
    abi: Abi,
    version: String,
}

impl Found {
    /// Makes the library's symbols global.
    fn share(&self) -> Result<(), MpiLibraryError> {
        // SAFETY: the library is loaded, so none of its initializers runs.
        let shared = unsafe {
            Library::open(
                Some(&self.file),
                RTLD_LAZY | RTLD_GLOBAL | libc::RTLD_NOLOAD,
            )
        };
        match shared {
            Ok(shared) => {
                std::mem::forget(shared);
                Ok(())
            }
            Err(error) => Err(MpiLibraryError::given(&self.file, Unfit::open(&error))),
        }
    }
}

/// Finds the library to use.
fn find(
    given: Option<&Path>,
    plugins: &[PathBuf],
    lookup: Lookup,
) -> Result<Found, MpiLibraryError> {
    if let Some(present) = present(given)? {
        return Ok(present);
    }
    if let Some(file) = given {
        return named(file);
    }
    let fitting = abi::fitting(lookup);
    let with_plugin: Vec<Abi> = fitting
        .iter()
        .copied()
        .filter(|abi| plugin::find(*abi, plugins).is_ok())
        .collect();
    match with_plugin[..] {
        [] => Err(plugin::missing(fitting, plugins)),
        _ => search(&with_plugin, lookup),
    }
}

/// The library that is already in the process, if there is one; `given` must be the same.
fn present(given: Option<&Path>) -> Result<Option<Found>, MpiLibraryError> {
    let files = process::mpi_libraries();
    let file = match &files[..] {
        [] => return Ok(None),
        [file] => file,
        _ => return Err(MpiLibraryError::Two { files }),
    };
    if let Some(given) = given
        && open(given.as_os_str(), libc::RTLD_NOLOAD).is_err()
    {
        return Err(MpiLibraryError::Other {
            present: file.clone(),
            given: given.to_owned(),
        });
    }
    let found = open(file.as_os_str(), libc::RTLD_NOLOAD).and_then(identify);
    found.map(Some).map_err(|reason| MpiLibraryError::Present {
        file: file.clone(),
        reason,
    })
}

/// The library that the user names.
fn named(file: &Path) -> Result<Found, MpiLibraryError> {
    open(file.as_os_str(), 0)
        .and_then(identify)
        .map_err(|reason| MpiLibraryError::given(file, reason))
}

/// The first library of these ABIs that there is.
fn search(abis: &[Abi], lookup: Lookup) -> Result<Found, MpiLibraryError> {
    let folders = folders::of_libraries(lookup);
    let mut unfit = Vec::new();
    for &wanted in abis {
        for file in files(&folders, abi::names(wanted)) {
            match open(&file, 0).and_then(identify) {
                Ok(found) if found.abi == wanted => return Ok(found),
                Ok(found) => unfit.push((file, Unfit::of_other(&found.version))),
                Err(reason) if reason.is_missing(&file) => {}
                Err(reason) => unfit.push((file, reason)),
            }
        }
    }
    let is_standard = files(&folders, &[abi::STANDARD])
        .into_iter()
        .any(|file| open(&file, 0).is_ok());
    if is_standard {
        unfit.push((abi::STANDARD.into(), Unfit::Standard));
    }
    Err(MpiLibraryError::missing(abis, unfit))
}

/// Files of these names that exist in the folders, then the bare names, for the loader.
fn files(folders: &[PathBuf], names: &[&str]) -> Vec<std::ffi::OsString> {
    let paths = names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .filter(|path| path.is_file())
        .map(PathBuf::into_os_string);
    paths.chain(names.iter().map(Into::into)).collect()
}

fn open(file: &OsStr, flags: c_int) -> Result<Library, Unfit> {
    // SAFETY: initializers of a library that the user or the system names as MPI's; they run in
    // every program that is linked with it.
    unsafe { Library::open(Some(file), RTLD_LAZY | RTLD_LOCAL | flags) }
        .map_err(|error| Unfit::open(&error))
}

/// Asks the library for its version.
fn identify(library: Library) -> Result<Found, Unfit> {
    type GetVersion = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
    // SAFETY: the standard's signature, which is the same in all ABIs.
    let get_version = unsafe { library.get::<GetVersion>(b"MPI_Get_library_version\0") };
    let get_version: GetVersion = *get_version.map_err(|_| Unfit::NotMpi)?;
    // SAFETY: likewise.
    let get_abi = unsafe {
        library
            .get::<unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int>(b"MPI_Abi_get_version\0")
    };
    let (mut major, mut minor) = (-1, -1);
    // SAFETY: may be called before MPI is initialized; major is -1 unless the ABI is the
    // standard's.
    if get_abi.is_ok_and(|get_abi| unsafe { get_abi(&mut major, &mut minor) } == 0 && major >= 0) {
        return Err(Unfit::Standard);
    }
    let mut text = vec![0 as c_char; VERSION_BYTES];
    let mut length = 0;
    // SAFETY: may be called before MPI is initialized; the buffer is longer than any text and stays
    // zero-terminated.
    let code = unsafe { get_version(text.as_mut_ptr(), &mut length) };
    text[VERSION_BYTES - 1] = 0;
    // SAFETY: zero-terminated by the line above.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy();
    let abi = abi::of_version(&text).filter(|_| code == 0);
    let found = Found {
        abi: abi.ok_or_else(|| Unfit::of_other(&text))?,
        version: text.into_owned(),
        file: process::file_of(get_version as usize).ok_or(Unfit::NotMpi)?,
    };
    std::mem::forget(library);
    Ok(found)
}
