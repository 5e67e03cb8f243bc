//! Reader of text files (state files, logs, spaces) with a limit on their size.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Bytes that a state file, a log or a space may have: thousands of times what they do have.
const BYTES_MAX: u64 = 16 << 20;

/// Reads a file of text that the tuner is to be given: at most 16 MiB, so that a device, or the
/// wrong file, does no harm.
///
/// # Errors
/// Errors of the operating system; [`io::ErrorKind::InvalidData`] if the file is larger, or not
/// UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?
        .take(BYTES_MAX + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > BYTES_MAX {
        let message = format!("more than {} MiB", BYTES_MAX >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_ends_is_refused() {
        let error = read_text(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error.to_string(), "more than 16 MiB");
        assert_eq!(read_text(Path::new("/dev/null")).unwrap(), "");
    }
}
