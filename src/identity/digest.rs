//! Digest of a name: socket names are hashes, so that they do not reveal the job key.

use sha2::{Digest, Sha256};

/// Returns the first 128 bits of the SHA-256 hash of `bytes`, as 32 hexadecimal digits.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first 128 bits of NIST's example for FIPS 180-4.
    #[test]
    fn it_is_the_beginning_of_the_published_hash() {
        assert_eq!(digest(b"abc"), "ba7816bf8f01cfea414140de5dae2223");
    }
}
