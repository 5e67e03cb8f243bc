//! Paths of the files in `tests/fixtures`.

use std::path::{Path, PathBuf};

/// Returns the path of the fixture `name`, whichever of the workspace's packages the test belongs
/// to.
///
/// # Panics
/// If the file does not exist: a missing fixture fails the test.
pub(crate) fn fixture(name: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = package
        .ancestors()
        .map(|folder| folder.join("tests/fixtures").join(name));
    paths
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("no tests/fixtures/{name} above {}", package.display()))
}
