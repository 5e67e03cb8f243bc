//! Bearer token: a secret text that a client must send.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::Request;

/// Longest token.
const BYTES_MAX: usize = 1024;
/// Fewest characters of a token: fewer can be guessed.
const BYTES_MIN: usize = 16;

/// Secret text. Its `Debug` text does not contain it.
pub struct Token(String);

/// Reason why a file has no token.
#[derive(Debug)]
pub enum TokenError {
    /// The file cannot be read.
    File(std::io::Error),
    /// Users other than its owner can access the file, which has this mode.
    Mode(u32),
    /// The file is not one line of 16 to 1,024 printable ASCII characters without spaces.
    Form,
}

impl std::fmt::Display for TokenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(error) => write!(f, "it cannot be read: {error}"),
            Self::Mode(mode) => write!(
                f,
                "it has mode {mode:04o}: only its owner may access it; run `chmod 600` on it"
            ),
            Self::Form => write!(
                f,
                "it is not one line of {BYTES_MIN} to {BYTES_MAX} printable characters without \
                 spaces; `openssl rand -hex 32` prints a valid one"
            ),
        }
    }
}

impl std::error::Error for TokenError {}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// Reads the token from a file of mode 0600 or less.
    ///
    /// # Errors
    /// A file that cannot be read, that others can access, or whose text is no token.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let file = std::fs::File::open(path).map_err(TokenError::File)?;
        let mode = file.metadata().map_err(TokenError::File)?.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(TokenError::Mode(mode));
        }
        let mut text = String::new();
        let read = file.take(BYTES_MAX as u64 + 2).read_to_string(&mut text);
        read.map_err(TokenError::File)?;
        let token = text.trim_end_matches(['\r', '\n']);
        let is_printable = token.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_printable || !(BYTES_MIN..=BYTES_MAX).contains(&token.len()) {
            return Err(TokenError::Form);
        }
        Ok(Self(token.to_owned()))
    }

    /// Draws a token of 256 bits from the system's generator, as 64 hexadecimal digits.
    ///
    /// # Errors
    /// The system has no generator.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; 32];
        let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        assert_eq!(filled, bytes.len(), "getrandom fills up to 256 bytes");
        Ok(Self(hexadecimal(&bytes)))
    }

    /// Returns a token that can be computed from this one but not the other way round, for one
    /// purpose: 64 hexadecimal digits.
    #[must_use]
    pub fn derived(&self, purpose: &str) -> Self {
        let hash = Sha256::new()
            .chain_update(purpose)
            .chain_update([0])
            .chain_update(&self.0);
        Self(hexadecimal(&hash.finalize()))
    }

    /// Returns the text, to be shown to its owner only.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `given` is this token. The comparison takes the same time wherever the texts differ.
    pub fn is(&self, given: &str) -> bool {
        given.as_bytes().ct_eq(self.0.as_bytes()).into()
    }

    /// Whether the request has it in its header `Authorization: Bearer …`.
    pub fn is_in(&self, request: &Request) -> bool {
        let given = request.header("authorization");
        let given = given.and_then(|value| value.strip_prefix("Bearer "));
        given.is_some_and(|given| self.is(given))
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_do_not_show_themselves() {
        let (a, b) = (Token::random().unwrap(), Token::random().unwrap());
        assert_eq!(a.reveal().len(), 64);
        assert!(!a.is(b.reveal()) && a.is(a.reveal()));
        assert_eq!(format!("{a:?}"), "Token");
        let (one, other) = (a.derived("one"), a.derived("other"));
        assert!(one.is(a.derived("one").reveal()) && !one.is(other.reveal()));
        assert!(!one.is(a.reveal()) && !one.is(""));
    }
}
