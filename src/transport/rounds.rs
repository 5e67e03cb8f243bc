//! Rounds in which hosts exchange their partial states, until each has that of all.
//!
//! In round *i* a host sends its state to the host 2^*i* places on, merges the state of the host
//! 2^*i* places back into its own, and so has the states of twice as many hosts (dissemination:
//! Hensgen, Finkel and Manber, *Two algorithms for barrier synchronization*, 1988). After
//! ⌈log₂ hosts⌉ rounds it has all. If the number of hosts is no power of two, it has some twice,
//! which changes nothing: merging is idempotent.

use ronde_net::neighbours;

use super::block::{Partial, Prefix};

/// The hosts that host `own` of `count` sends to and receives from, round by round.
fn rounds(own: usize, count: usize) -> impl Iterator<Item = (usize, usize)> {
    neighbours::distances(count)
        .map(move |distance| ((own + distance) % count, (own + count - distance) % count))
}

/// Exchanges the state of host `own` with the other ones of `count`. `swap` sends a message to the
/// first host and receives one of the same length from the second.
///
/// # Errors
/// That of `swap`; or the host that sent an invalid message, and the reason.
pub(crate) async fn exchange<E>(
    own: usize,
    count: usize,
    mut state: Exchanged,
    mut swap: impl AsyncFnMut(usize, usize, Vec<u8>) -> Result<Vec<u8>, E>,
) -> Result<Result<Exchanged, InvalidState>, E> {
    for (to, from) in rounds(own, count) {
        let message = swap(to, from, state.message()).await?;
        if let Err(problem) = state.merge(&message) {
            return Ok(Err(InvalidState {
                host: from,
                problem,
            }));
        }
    }
    Ok(Ok(state))
}

/// A partial state that no correct host sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidState {
    /// The host that sent it.
    pub(crate) host: usize,
    pub(crate) problem: String,
}

/// Partial state that hosts exchange in one cycle.
pub(crate) struct Exchanged {
    partial: Box<dyn Partial>,
    /// Cycle and version.
    prefix: Prefix,
    words: Vec<u64>,
}

impl Exchanged {
    /// `prefix` is that of a block of this cycle.
    pub(crate) fn new(partial: Box<dyn Partial>, prefix: Prefix) -> Self {
        Self {
            partial,
            prefix,
            words: Vec::new(),
        }
    }

    /// Returns its message: the same number of bytes on all hosts in a cycle.
    pub(crate) fn message(&mut self) -> Vec<u8> {
        self.words.clear();
        self.partial.write(&mut self.words);
        let prefix = self.prefix.of_length(self.words.len()).to_words();
        let words = prefix.iter().chain(&self.words);
        words.flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Merges another host's message.
    ///
    /// # Errors
    /// Reason why no correct host can have sent it.
    pub(crate) fn merge(&mut self, message: &[u8]) -> Result<(), String> {
        read(message, self.prefix, &mut self.words)?;
        self.partial.merge(&self.words)
    }
}

/// Reads the words of the partial state in `message`; `own` is the prefix of a block of this cycle.
///
/// # Errors
/// Another cycle or version, or words that are missing.
pub(crate) fn read(message: &[u8], own: Prefix, words: &mut Vec<u64>) -> Result<(), String> {
    let (numbers, rest) = message.as_chunks();
    let mut numbers = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let prefix = std::array::from_fn(|_| numbers.next().unwrap_or_default());
    words.clear();
    words.extend(numbers);
    if !rest.is_empty() {
        return Err(format!("a partial state of {} bytes", message.len()));
    }
    Prefix::from_words(prefix).check(own.of_length(words.len()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn after_all_rounds_each_host_has_the_states_of_all() {
        for count in 1..70 {
            let mut states: Vec<BTreeSet<usize>> = (0..count).map(|own| [own].into()).collect();
            let number = rounds(0, count).count();
            assert_eq!(number, count.next_power_of_two().ilog2() as usize);
            for round in 0..number {
                let before = states.clone();
                for (own, state) in states.iter_mut().enumerate() {
                    let (to, from) = rounds(own, count).nth(round).expect("as many rounds");
                    assert_eq!(
                        rounds(to, count).nth(round).map(|(_, from)| from),
                        Some(own)
                    );
                    state.extend(&before[from]);
                }
            }
            assert!(states.iter().all(|state| state.len() == count));
        }
    }
}
