//! Hello: the message with which ranks compare versions and settings at the rendezvous, and the
//! first difference found.
//!
//! The version is the first field in every version of the message, so that two versions of Ronde
//! recognize each other.

use serde::{Deserialize, Serialize};

use super::rendezvous::MpiRendezvousError;
use crate::rendezvous::JobContract;

/// Message in which a rank describes itself to the others at the rendezvous.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) version: String,
    pub(super) host: String,
    pub(super) host_key: String,
    pub(super) init: u32,
    pub(super) contract: JobContract,
}

/// First difference between two ranks.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "rank {first_rank} on {first_host} has {what} {expected}, rank {rank} on {host} has {found}: give all ranks the same"
)]
pub(crate) struct Difference {
    what: String,
    first_rank: usize,
    first_host: String,
    expected: String,
    rank: usize,
    host: String,
    found: String,
}

/// Two ranks run different versions of Ronde.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "rank {rank} runs ronde {found}, rank {own_rank} (on {own_host}) ronde {own}: install the same version on all hosts"
)]
pub(crate) struct VersionMix {
    rank: usize,
    found: String,
    own_rank: usize,
    own_host: String,
    own: String,
}

impl Hello {
    /// Encodes the message.
    pub(super) fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("lengths are known")
    }

    /// Decodes the messages of all ranks, in rank order; `own` is the message of rank `own_rank`.
    ///
    /// # Errors
    /// Another version, or bytes that no version sends.
    pub(super) fn understand(
        own: &Self,
        own_rank: usize,
        greetings: &[Vec<u8>],
    ) -> Result<Vec<Self>, MpiRendezvousError> {
        let understood = greetings.iter().enumerate().map(|(rank, bytes)| {
            let malformed = || MpiRendezvousError::Malformed {
                rank,
                bytes: bytes.len(),
            };
            let (version, _) =
                postcard::take_from_bytes::<String>(bytes).map_err(|_| malformed())?;
            if version != own.version {
                return Err(MpiRendezvousError::Version(Box::new(VersionMix {
                    rank,
                    found: version,
                    own_rank,
                    own_host: own.host.clone(),
                    own: own.version.clone(),
                })));
            }
            postcard::from_bytes(bytes).map_err(|_| malformed())
        });
        understood.collect()
    }
}

/// Fails with the first difference; all ranks find the same.
pub(super) fn compare(hellos: &[Hello]) -> Result<(), MpiRendezvousError> {
    let first = &hellos[0];
    for (rank, hello) in hellos.iter().enumerate() {
        let number = |hello: &Hello| ("context number".to_owned(), hello.init.to_string());
        let mut pairs = [(number(first), number(hello))].into_iter().chain(
            first
                .contract
                .iter()
                .cloned()
                .zip(hello.contract.iter().cloned()),
        );
        if let Some(((what, expected), (_, found))) = pairs.find(|(first, own)| first != own) {
            return Err(MpiRendezvousError::Mismatch(Box::new(Difference {
                what,
                first_rank: 0,
                first_host: first.host.clone(),
                expected: shown(expected),
                rank,
                host: hello.host.clone(),
                found: shown(found),
            })));
        }
    }
    Ok(())
}

/// A value in a sentence.
fn shown(value: String) -> String {
    if value.is_empty() {
        "none".into()
    } else {
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        let term = |what: &str, value: &str| (what.to_owned(), value.to_owned());
        Hello {
            version: "1.2.3".into(),
            host: "node".into(),
            host_key: "key".into(),
            init: 1,
            contract: vec![
                term("HOROVOD_CACHE_CAPACITY", "1024"),
                term("process sets", "[0, 1]"),
            ],
        }
    }

    fn of_capacity(capacity: &str) -> Hello {
        let mut other = Hello {
            host: "other".into(),
            ..hello()
        };
        other.contract[0].1 = capacity.into();
        other
    }

    #[test]
    fn the_first_difference_is_named_with_both_ranks_hosts_and_values() {
        assert!(compare(&[hello(), hello(), hello()]).is_ok());
        let mut sets = hello();
        sets.contract[1].1 = String::new();
        let later = Hello { init: 2, ..hello() };
        let table = [
            (
                of_capacity("512"),
                "rank 0 on node has HOROVOD_CACHE_CAPACITY 1024, rank 2 on other has 512: give all ranks the same",
            ),
            (
                sets,
                "rank 0 on node has process sets [0, 1], rank 2 on node has none: give all ranks the same",
            ),
            (
                later,
                "rank 0 on node has context number 1, rank 2 on node has 2: give all ranks the same",
            ),
        ];
        for (other, expected) in table {
            let error = compare(&[hello(), hello(), other]).unwrap_err().to_string();
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn another_version_is_named_whatever_else_it_says() {
        // Of a version whose message goes on differently.
        let newer = postcard::to_stdvec(&("2.0.0", [7u8; 3])).unwrap();
        let table = [
            (
                newer,
                "rank 1 runs ronde 2.0.0, rank 0 (on node) ronde 1.2.3: install the same version",
            ),
            (vec![200], "rank 1 sent 1 bytes that this version"),
        ];
        for (other, expected) in table {
            let error = Hello::understand(&hello(), 0, &[hello().encode(), other]).unwrap_err();
            assert!(error.to_string().starts_with(expected), "{error}");
        }
        let both = [hello().encode(), of_capacity("512").encode()];
        assert_eq!(
            Hello::understand(&hello(), 0, &both).unwrap(),
            [hello(), of_capacity("512")]
        );
    }
}
