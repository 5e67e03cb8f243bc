//! Files that this process has mapped, from `/proc/self/maps`.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// File with the range of addresses at which the process has mapped a part of it.
struct Mapping {
    begin: usize,
    end: usize,
    file: PathBuf,
}

fn mappings(maps: &[u8]) -> impl Iterator<Item = Mapping> {
    maps.split(|byte| *byte == b'\n').filter_map(|line| {
        // begin-end permissions offset device inode, blanks, path
        let at = line.iter().position(|byte| *byte == b'/')?;
        let range = std::str::from_utf8(line.split(|byte| *byte == b' ').next()?).ok()?;
        let (begin, end) = range.split_once('-')?;
        Some(Mapping {
            begin: usize::from_str_radix(begin, 16).ok()?,
            end: usize::from_str_radix(end, 16).ok()?,
            file: Path::new(std::ffi::OsStr::from_bytes(&line[at..])).into(),
        })
    })
}

fn read() -> Vec<u8> {
    std::fs::read("/proc/self/maps").unwrap_or_default()
}

/// MPI libraries among the files that are mapped, each once.
pub(super) fn mpi_libraries() -> Vec<PathBuf> {
    mpi_libraries_of(&read())
}

fn mpi_libraries_of(maps: &[u8]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for Mapping { file, .. } in mappings(maps) {
        if is_mpi(&file) && !found.contains(&file) {
            found.push(file);
        }
    }
    found
}

/// Whether a file has the name of a library of MPI's C functions: `libmpi.so.40`, `libmpich.so.12`,
/// `libmpi_cray.so.12`, but not that of a binding for another language (`libmpifort.so.12`).
fn is_mpi(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let Some((stem, _)) = name.split_once(".so") else {
        return false;
    };
    let compilers = ["gnu", "cray", "nvidia", "intel", "aocc", "amd", "abi"];
    match stem.strip_prefix("libmpi") {
        Some("" | "ch") => true,
        Some(rest) => rest.strip_prefix('_').is_some_and(|rest| {
            let word = rest.split('_').next().unwrap_or_default();
            compilers.contains(&word)
        }),
        None => false,
    }
}

/// File that contains this code: a program, or the extension module of the Python package.
pub(super) fn own_file() -> Option<PathBuf> {
    file_of(own_file as fn() -> Option<PathBuf> as usize)
}

/// File that is mapped at an address.
pub(super) fn file_of(address: usize) -> Option<PathBuf> {
    mappings(&read())
        .find(|mapping| (mapping.begin..mapping.end).contains(&address))
        .map(|mapping| mapping.file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_c_functions_are_found_once_and_bindings_are_not() {
        let maps = b"55d0-55d1 r--p 00000000 fe:00 17 /usr/bin/python3.11\n\
            7f00-7f01 r-xp 00000000 fe:00 18    /opt/a b/lib/libmpi.so.40.30.4\n\
            7f01-7f02 rw-p 00001000 fe:00 18    /opt/a b/lib/libmpi.so.40.30.4\n\
            7f02-7f03 r-xp 00000000 fe:00 19    /usr/lib/libmpifort.so.12\n\
            7f03-7f04 r-xp 00000000 fe:00 20    /usr/lib/libmpi_cxx.so.40\n\
            7f04-7f05 rw-p 00000000 00:00 0\n\
            7f05-7f06 r-xp 00000000 fe:00 21    /usr/lib/libmpich.so.12.2.1\n";
        assert_eq!(
            mpi_libraries_of(maps),
            [
                Path::new("/opt/a b/lib/libmpi.so.40.30.4"),
                Path::new("/usr/lib/libmpich.so.12.2.1")
            ]
        );
        let cray = [
            "/x/libmpi_cray.so.12",
            "/x/libmpi_gnu_123.so.12",
            "/x/libmpi_abi.so.1",
        ];
        assert!(cray.iter().all(|name| is_mpi(Path::new(name))));
        let others = [
            "/x/libmpi_ilp64.so.4",
            "/x/libmpi_mpifh.so.40",
            "/x/libmpi",
            "/x/mpi.so",
        ];
        assert!(!others.iter().any(|name| is_mpi(Path::new(name))));
    }

    #[test]
    fn this_code_is_in_the_test_program() {
        assert_eq!(own_file(), std::env::current_exe().ok());
    }
}
