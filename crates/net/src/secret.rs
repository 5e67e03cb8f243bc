//! Secret of a job: 32 bytes that its ranks share and no other process knows.
//!
//! It is read from a file that only its owner can access, as 64 hexadecimal digits, so that it can
//! be written with any editor. It never appears in a command line, in a log or in an error.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Length of a secret.
const SECRET_BYTES: usize = 32;

/// Longest text of a secret: its digits, and white space around them.
const TEXT_BYTES_MAX: u64 = 4 * SECRET_BYTES as u64;

/// Reason why a secret cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The file cannot be read.
    #[error("the secret's file {path} cannot be read: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        reason: String,
    },
    /// Other users can access the file.
    #[error(
        "the secret's file {path} has mode {mode:04o}: only its owner may access it; \
         run `chmod 600` on it"
    )]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file belongs to another user.
    #[error(
        "the secret's file {path} belongs to user {owner}, and this process is of user {user}; \
         the user who starts the job must own it"
    )]
    Owner {
        /// The file.
        path: PathBuf,
        /// User id of its owner.
        owner: u32,
        /// Effective user id of this process.
        user: u32,
    },
    /// The text is not a secret.
    #[error(
        "the secret from {path} is not {digits} hexadecimal digits; `openssl rand -hex \
         {SECRET_BYTES}` prints a valid one",
        digits = 2 * SECRET_BYTES
    )]
    Format {
        /// The file.
        path: PathBuf,
    },
    /// The kernel provides no random bytes.
    #[error("the kernel provides no random bytes: {reason}")]
    Random {
        /// Its reason.
        reason: String,
    },
}

/// Secret of a job. Its `Debug` text does not contain it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; SECRET_BYTES]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Returns 32 bytes from the kernel's random number generator.
    ///
    /// # Errors
    /// [`SecretError::Random`].
    pub fn random() -> Result<Self, SecretError> {
        let mut bytes = [0; SECRET_BYTES];
        fill_random(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Returns the key for a job without a secret: it depends on the job's public name only. It
    /// keeps connections of other jobs and programs out, but no attacker.
    pub fn of_job(job: &str) -> Self {
        use sha2::Digest;
        Self(sha2::Sha256::digest(["ronde job ", job].concat()).into())
    }

    /// Reads the file at `path`, which must belong to this user and have mode 0600 or 0400.
    ///
    /// # Errors
    /// Another mode or owner; a file that cannot be read or holds no secret.
    pub fn from_file(path: &Path) -> Result<Self, SecretError> {
        let failed = |error: std::io::Error| SecretError::File {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let file = File::open(path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        let user = rustix::process::geteuid().as_raw();
        if found.uid() != user {
            return Err(SecretError::Owner {
                path: path.to_owned(),
                owner: found.uid(),
                user,
            });
        }
        let mode = found.mode() & 0o7777;
        if mode & !0o600 != 0 {
            return Err(SecretError::Mode {
                path: path.to_owned(),
                mode,
            });
        }
        let mut text = Vec::new();
        file.take(TEXT_BYTES_MAX + 1)
            .read_to_end(&mut text)
            .map_err(failed)?;
        Self::parse(&text, path)
    }

    /// Returns the content of a secret's file: the digits and the end of the line.
    pub fn to_line(&self) -> String {
        let mut line: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        line.push('\n');
        line
    }

    fn parse(text: &[u8], path: &Path) -> Result<Self, SecretError> {
        let invalid = || SecretError::Format {
            path: path.to_owned(),
        };
        let digits = text.trim_ascii();
        if digits.len() != 2 * SECRET_BYTES {
            return Err(invalid());
        }
        let mut bytes = [0; SECRET_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |digit: u8| char::from(digit).to_digit(16);
            let (high, low) = digit(pair[0]).zip(digit(pair[1])).ok_or_else(invalid)?;
            *byte = (high << 4 | low) as u8;
        }
        Ok(Self(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Fills `bytes` from the kernel's random number generator.
pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), SecretError> {
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                return Err(SecretError::Random {
                    reason: error.to_string(),
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(text: &str, mode: u32) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.as_file()
            .set_permissions(std::fs::Permissions::from_mode(mode))
            .unwrap();
        file
    }

    #[test]
    fn a_secret_survives_its_file() {
        let secret = Secret::random().unwrap();
        assert_ne!(secret, Secret::random().unwrap());
        let line = secret.to_line();
        for mode in [0o600, 0o400] {
            let file = file(&format!("  {line}\n"), mode);
            assert_eq!(Secret::from_file(file.path()), Ok(secret.clone()));
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let line = Secret::random().unwrap().to_line();
        for mode in [0o640, 0o604, 0o620, 0o700] {
            let file = file(&line, mode);
            assert_eq!(
                Secret::from_file(file.path()),
                Err(SecretError::Mode {
                    path: file.path().to_owned(),
                    mode
                })
            );
        }
    }

    #[test]
    fn texts_that_are_no_secrets_are_refused_without_being_repeated() {
        let digits = "0123456789abcdef".repeat(4);
        for text in [
            "",
            "abc",
            &digits[1..],
            &format!("{digits}0"),
            &"g".repeat(64),
        ] {
            let error = Secret::from_file(file(text, 0o600).path()).unwrap_err();
            assert!(matches!(error, SecretError::Format { .. }), "{error:?}");
            assert!(text.is_empty() || !error.to_string().contains(text));
        }
        let long = file(&"a".repeat(1000), 0o600);
        let error = Secret::from_file(long.path()).unwrap_err();
        let path = long.path().display();
        assert_eq!(
            error.to_string(),
            format!(
                "the secret from {path} is not 64 hexadecimal digits; `openssl rand -hex 32` \
                 prints a valid one"
            )
        );
        let missing = Secret::from_file(Path::new("/nonexistent")).unwrap_err();
        assert!(missing.to_string().contains("/nonexistent"), "{missing}");
    }

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::random().unwrap();
        assert_eq!(format!("{secret:?}"), "Secret");
    }
}
