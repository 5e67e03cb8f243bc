//! Folders in which MPI's library and the plug-ins are looked for, before the loader's own.

use std::path::{Path, PathBuf};

use super::process::own_file;
use crate::identity::Lookup;

/// Folders of MPI's libraries: beside the `mpirun` in the path, where a launcher's variables say,
/// and of the environment that the Python package is installed in.
pub(super) fn of_libraries(lookup: Lookup) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let launchers = ["mpirun", "mpiexec"];
    let launcher = std::env::split_paths(&path)
        .flat_map(|folder| launchers.map(|name| folder.join(name)))
        .find(|file| file.is_file());
    if let Some(file) = launcher {
        prefix(&file, &mut folders);
        if let Ok(file) = file.canonicalize() {
            prefix(&file, &mut folders);
        }
    }
    for name in ["OPAL_PREFIX", "I_MPI_ROOT", "CRAY_MPICH_DIR"] {
        if let Some(root) = lookup(name) {
            libraries_of(Path::new(&root), &mut folders);
        }
    }
    if let Some(file) = own_file() {
        // …/lib/python3.12/site-packages/ronde/_ronde.abi3.so
        let above = file.ancestors().skip(1);
        let named_lib = above.filter(|folder| folder.ends_with("lib") || folder.ends_with("lib64"));
        folders.extend(named_lib.map(Path::to_owned));
    }
    let mut seen = std::collections::HashSet::new();
    folders.retain(|folder| seen.insert(folder.clone()));
    folders
}

/// Adds the folders of libraries that belong to a program in `…/bin`.
fn prefix(program: &Path, folders: &mut Vec<PathBuf>) {
    if let Some(root) = program.parent().and_then(Path::parent) {
        libraries_of(root, folders);
    }
}

fn libraries_of(root: &Path, folders: &mut Vec<PathBuf>) {
    // Intel MPI before 2021.11 has its library in lib/release.
    folders.extend(["lib", "lib64", "lib/release"].map(|name| root.join(name)));
}

/// Folders of the plug-ins: `given`, or those beside the file that contains this code.
///
/// In the wheel that is the package's folder; a program in `bin` has them in `lib/ronde`; in a
/// checkout they are in `target/mpi-plugins`, one or two folders above a program or test.
pub(super) fn of_plugins(given: Option<&Path>) -> Vec<PathBuf> {
    if let Some(folder) = given {
        return vec![folder.to_owned()];
    }
    let Some(file) = own_file() else {
        return Vec::new();
    };
    let above = |levels| file.ancestors().nth(levels).map(Path::to_owned);
    let mut folders: Vec<PathBuf> = above(1).into_iter().collect();
    folders.extend(above(2).map(|root| root.join("lib/ronde")));
    folders.extend(
        [above(2), above(3)]
            .into_iter()
            .flatten()
            .map(|root| root.join("mpi-plugins")),
    );
    folders
}
