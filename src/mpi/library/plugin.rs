//! Plug-in for an ABI of MPI: its file, and the check of its table.

#![allow(unsafe_code)] // opens a library and reads its table

use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use ronde_mpi_table::{Abi, ENTRY, Entry, Header, MAGIC, Table, VERSION};

use super::error::{MpiLibraryError, loader_text};

/// Finds the plug-in's file.
pub(super) fn find(abi: Abi, folders: &[PathBuf]) -> Result<PathBuf, MpiLibraryError> {
    let mut files = folders.iter().map(|folder| folder.join(abi.plugin()));
    files
        .find(|file| file.is_file())
        .ok_or_else(|| missing(&[abi], folders))
}

/// The error of plug-ins that are not there.
pub(super) fn missing(abis: &[Abi], folders: &[PathBuf]) -> MpiLibraryError {
    let names: Vec<&str> = abis.iter().map(|abi| abi.plugin()).collect();
    MpiLibraryError::NoPlugin {
        names: names.join(" or "),
        folders: folders.to_vec(),
    }
}

/// Loads the plug-in for ever. The library of MPI must be loaded with global symbols.
pub(super) fn open(file: &Path, abi: Abi) -> Result<&'static Table, MpiLibraryError> {
    let refuse = |reason: String| MpiLibraryError::Plugin {
        file: file.to_owned(),
        reason,
    };
    // SAFETY: the plug-in has no initializers. All of its symbols are resolved now, so a function
    // that this MPI lacks is an error here.
    let library = unsafe { Library::open(Some(file), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|error| refuse(loader_text(&error)))?;
    // SAFETY: the signature of every version of the plug-in.
    let entry = unsafe { library.get::<Entry>(ENTRY) };
    let entry: Entry = *entry.map_err(|_| refuse("it is no plug-in of ronde's".into()))?;
    // SAFETY: has no obligations.
    let header = unsafe { entry() };
    if header.is_null() || !header.cast::<Table>().is_aligned() {
        return Err(refuse("it has no table".into()));
    }
    // SAFETY: the table of every version begins with a header and lives as long as the plug-in.
    check(unsafe { &*header }, abi).map_err(refuse)?;
    std::mem::forget(library);
    // SAFETY: a table of this version and size, by its header; the plug-in is never closed.
    Ok(unsafe { &*header.cast::<Table>() })
}

/// Whether a table is of this version and for this ABI.
fn check(header: &Header, abi: Abi) -> Result<(), String> {
    if header.magic != MAGIC {
        return Err("it is no plug-in of ronde's".into());
    }
    let size = size_of::<Table>();
    if header.version != VERSION || header.size as usize != size {
        return Err(format!(
            "its table has version {} and {} bytes, but this ronde needs version {VERSION} and \
             {size} bytes; install the plug-in and ronde from the same version (in a checkout, run \
             scripts/build-mpi again)",
            header.version, header.size
        ));
    }
    if header.abi != abi as u32 {
        return Err(
            "it was built for another MPI than its name says; run scripts/build-mpi again".into(),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_another_version_size_or_abi_is_refused() {
        let own = Header {
            magic: MAGIC,
            version: VERSION,
            size: size_of::<Table>() as u32,
            abi: Abi::Mpich as u32,
            reserved: 0,
        };
        assert_eq!(check(&own, Abi::Mpich), Ok(()));
        let table = [
            (Header { magic: 1, ..own }, "no plug-in"),
            (
                Header {
                    version: VERSION + 1,
                    ..own
                },
                "version 2 and ",
            ),
            (Header { size: 8, ..own }, "and 8 bytes"),
            (
                Header {
                    abi: Abi::OpenMpi as u32,
                    ..own
                },
                "another MPI",
            ),
        ];
        for (header, part) in table {
            let error = check(&header, Abi::Mpich).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_library_that_is_no_plugin_is_refused() {
        let error = open(Path::new("libm.so.6"), Abi::Mpich)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("libm.so.6") && error.contains("no plug-in"),
            "{error}"
        );
    }
}
