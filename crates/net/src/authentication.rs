//! Authentication of a connection: each side proves that it knows the secret, without sending it.
//!
//! ```text
//! accepting side                              connecting side
//! greeting, 8 bytes; nonce a, 32 bytes  ──▶
//!                                       ◀──   nonce c, 32 bytes; HMAC(secret, "client" a c)
//! HMAC(secret, "server" a c), 32 bytes  ──▶
//! ```
//!
//! The message lengths are fixed, so nothing is parsed before both sides are authenticated. The
//! labels keep a proof from being sent back to its author. The codes are HMAC-SHA256 (RFC 2104),
//! compared in constant time. A greeting names the program and the version of this protocol: with a
//! wrong one, the connecting side has reached another program.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::secret::{Secret, SecretError, fill_random};

/// First bytes of a connection; the last one is the version of this protocol and of the frames.
const GREETING: [u8; 8] = *b"RONDETC\x01";
const NONCE_BYTES: usize = 32;
const PROOF_BYTES: usize = 32;

/// Length of the accepting side's first message.
pub(crate) const CHALLENGE_BYTES: usize = GREETING.len() + NONCE_BYTES;
/// Length of the connecting side's answer.
pub(crate) const RESPONSE_BYTES: usize = NONCE_BYTES + PROOF_BYTES;
/// Length of the accepting side's last message.
pub(crate) const CONFIRMATION_BYTES: usize = PROOF_BYTES;

type Nonce = [u8; NONCE_BYTES];

/// The accepting side's state.
pub(crate) struct Acceptor {
    nonce: Nonce,
}

/// The connecting side's state after its response.
pub(crate) struct Connector {
    nonces: [Nonce; 2],
}

impl Acceptor {
    /// Draws a nonce; returns the challenge to send.
    pub(crate) fn challenge() -> Result<(Self, [u8; CHALLENGE_BYTES]), SecretError> {
        let mut nonce = [0; NONCE_BYTES];
        fill_random(&mut nonce)?;
        let mut message = [0; CHALLENGE_BYTES];
        message[..GREETING.len()].copy_from_slice(&GREETING);
        message[GREETING.len()..].copy_from_slice(&nonce);
        Ok((Self { nonce }, message))
    }

    /// Checks the response; returns the confirmation to send, or `None` if the other side does not
    /// know the secret.
    pub(crate) fn confirm(
        &self,
        secret: &Secret,
        response: &[u8; RESPONSE_BYTES],
    ) -> Option<[u8; CONFIRMATION_BYTES]> {
        let (nonce, proof) = response.split_at(NONCE_BYTES);
        let nonces = [self.nonce, nonce.try_into().expect("split there")];
        code(secret, b"client", &nonces).verify_slice(proof).ok()?;
        Some(
            code(secret, b"server", &nonces)
                .finalize()
                .into_bytes()
                .into(),
        )
    }
}

impl Connector {
    /// Answers a challenge; `None` if it is not the message of a rank of this protocol's version.
    pub(crate) fn respond(
        secret: &Secret,
        challenge: &[u8; CHALLENGE_BYTES],
    ) -> Result<Option<(Self, [u8; RESPONSE_BYTES])>, SecretError> {
        let (greeting, theirs) = challenge.split_at(GREETING.len());
        if greeting != GREETING {
            return Ok(None);
        }
        let mut nonce = [0; NONCE_BYTES];
        fill_random(&mut nonce)?;
        let nonces = [theirs.try_into().expect("split there"), nonce];
        let proof = code(secret, b"client", &nonces).finalize().into_bytes();
        let mut message = [0; RESPONSE_BYTES];
        message[..NONCE_BYTES].copy_from_slice(&nonce);
        message[NONCE_BYTES..].copy_from_slice(&proof);
        Ok(Some((Self { nonces }, message)))
    }

    /// Whether the other side's confirmation proves that it knows the secret.
    pub(crate) fn accepts(&self, secret: &Secret, confirmation: &[u8; CONFIRMATION_BYTES]) -> bool {
        code(secret, b"server", &self.nonces)
            .verify_slice(confirmation)
            .is_ok()
    }
}

/// The code of one side, whose `label` has six bytes, over both nonces.
fn code(secret: &Secret, label: &[u8; 6], nonces: &[Nonce; 2]) -> Hmac<Sha256> {
    let mut code = Hmac::<Sha256>::new_from_slice(secret.bytes()).expect("any length is valid");
    code.update(label);
    nonces.iter().for_each(|nonce| code.update(nonce));
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_hmac_sha256() {
        // From Python: hmac.new(key, b"client" + 32 * b"\1" + 32 * b"\2", "sha256").hexdigest(),
        // where the key is the SHA-256 of b"ronde job ".
        let code = code(&Secret::of_job(""), b"client", &[[1; 32], [2; 32]]);
        let digits: String = code
            .finalize()
            .into_bytes()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(
            digits,
            "1de31385030a418f41347655cd1b35c4925bb5dd4542e2469fa93870d6d158c2"
        );
    }

    #[test]
    fn two_sides_with_one_secret_accept_each_other() {
        let secret = Secret::random().unwrap();
        let (acceptor, challenge) = Acceptor::challenge().unwrap();
        let (connector, response) = Connector::respond(&secret, &challenge).unwrap().unwrap();
        let confirmation = acceptor.confirm(&secret, &response).unwrap();
        assert!(connector.accepts(&secret, &confirmation));
    }

    #[test]
    fn any_other_byte_is_refused() {
        let secret = Secret::random().unwrap();
        let (acceptor, challenge) = Acceptor::challenge().unwrap();
        let (connector, response) = Connector::respond(&secret, &challenge).unwrap().unwrap();
        let confirmation = acceptor.confirm(&secret, &response).unwrap();
        for index in 0..RESPONSE_BYTES {
            let mut wrong = response;
            wrong[index] ^= 1;
            assert!(acceptor.confirm(&secret, &wrong).is_none(), "byte {index}");
        }
        for index in 0..CONFIRMATION_BYTES {
            let mut wrong = confirmation;
            wrong[index] ^= 0x80;
            assert!(!connector.accepts(&secret, &wrong), "byte {index}");
        }
        let other = Secret::random().unwrap();
        assert!(acceptor.confirm(&other, &response).is_none());
        assert!(!connector.accepts(&other, &confirmation));
        // A recorded response does not answer another challenge.
        let (next, _) = Acceptor::challenge().unwrap();
        assert!(next.confirm(&secret, &response).is_none());
        // A proof that is sent back proves nothing.
        assert!(!connector.accepts(&secret, response[NONCE_BYTES..].try_into().unwrap()));
    }

    #[test]
    fn another_program_is_recognized() {
        let mut challenge = [0; CHALLENGE_BYTES];
        challenge[..8].copy_from_slice(b"SSH-2.0-");
        let secret = Secret::of_job("job");
        assert!(Connector::respond(&secret, &challenge).unwrap().is_none());
    }
}
