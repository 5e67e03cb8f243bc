//! Step detection: a training step is the repeating sequence of tensors.
//!
//! The program does not report the end of a step, but training repeats: the smallest repeating
//! period of the sequence of submissions is the step. Once it is known, a cycle can start as soon
//! as the last tensor of a step is submitted, and times can be measured per step.
//!
//! Three properties of training make this harder than finding the period of a string. Hooks fire in
//! another order in each step, so a step is a *set* of tensors with their multiplicities. Foreign
//! tensors occur in between (validation, a checkpoint, a counter in a name), so a known period is
//! kept while they pass. And names may never repeat, so two searches run side by side:
//!
//! - **By name.** The sequence is cut before each tensor that the current piece already contains:
//!   in plain training a piece is a step, whatever the order inside. If a tensor occurs several
//!   times in a step (a loss for each micro-batch), a step is several pieces. The symbol of a piece
//!   is an order-independent hash of its already known tensors; new names do not count. The period
//!   is a period of the sequence of pieces.
//! - **Anonymous**, by operation, element type and size. The period is a period of the sequence of
//!   tensors, and order counts. It is accepted only after [`NAMELESS_ITEMS`] tensors without a
//!   repeated name, and never with one tensor in the period: with equal sizes, every tensor would
//!   end a step.
//!
//! A period is accepted once it has occurred three times in a row and these were at least
//! [`RUN_ITEMS_MIN`] tensors. It is given up when a tensor occurs more often than the period
//! allows, when most tensors are foreign, or when the same foreign tensors occur in every step
//! (then they belong to the step). The cost per tensor is O(1), amortized, and memory is bounded by
//! [`PERIOD_ITEMS_MAX`].

mod search;
mod track;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use crate::Dtype;
use crate::OpKind;
use search::Search;
use track::Track;

/// Most tensors in a period; a longer period is not found.
pub const PERIOD_ITEMS_MAX: usize = 1 << 16;
/// Fewest tensors in a run of equal periods before it is accepted: a loss reduced for each
/// micro-batch is not a step.
pub const RUN_ITEMS_MIN: usize = 16;
/// Number of consecutive tensors with new names after which names are assumed never to repeat. More
/// than most models have, since in the first step all names are new.
pub const NAMELESS_ITEMS: usize = 1_024;

/// One submission, as the step detection sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Hash of name, operation, element type and size.
    exact: u64,
    /// Hash of operation, element type and size.
    anonymous: u64,
    /// Payload, bytes.
    bytes: u64,
    allreduce: bool,
}

impl Item {
    /// Creates the item of a tensor `name` with `elements` elements of type `dtype`.
    pub fn new(name: &str, op: OpKind, dtype: Dtype, elements: usize) -> Self {
        let anonymous = mix(mix(op as u64 + 1, dtype as u64), elements as u64);
        let (words, rest) = name.as_bytes().as_chunks::<8>();
        let mut exact = words
            .iter()
            .fold(anonymous, |hash, word| mix(hash, u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        exact = mix(mix(exact, u64::from_le_bytes(last)), name.len() as u64);
        Self {
            exact,
            anonymous,
            bytes: elements as u64 * dtype.size_bytes() as u64,
            allreduce: op == OpKind::Allreduce,
        }
    }

    /// Payload in bytes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// This tensor's part of the step signature: the sum over a step's tensors is a hash of the
    /// step's contents, independent of names and order.
    #[inline]
    pub fn signature(&self) -> u64 {
        mix(self.anonymous, 1)
    }

    /// Hash that identifies the tensor: name, operation, element type and size, without the name if
    /// not `named` (where names do not repeat).
    #[inline]
    pub fn key(&self, named: bool) -> u64 {
        if named { self.exact } else { self.anonymous }
    }
}

/// Result of one submission for the step detection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// This tensor was the last that the known step expected.
    pub step_complete: bool,
    /// This tensor is the step's [anchor](Period::anchor).
    pub anchor: bool,
    /// A period is known and this tensor does not belong to it.
    pub foreign: bool,
    /// The period was found, replaced or given up at this tensor.
    pub changed: bool,
}

/// A detected step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// Number of tensors.
    pub items: usize,
    /// Their payload in bytes.
    pub bytes: u64,
    /// Sum of their [signatures](Item::signature).
    pub signature: u64,
    /// Payload of the anchor in bytes: the largest allreduce, preferably one that occurs once in a
    /// step. `None` if the step has no allreduce.
    pub anchor: Option<u64>,
    /// Whether tensors are distinguished by name.
    pub named: bool,
    /// Foreign tensors in each step when the period was found (names with counters).
    pub foreign: usize,
}

/// Finds the smallest repeating period of a sequence of submissions, online; the
/// [module documentation](self) describes the search.
#[derive(Debug, Default)]
pub struct PeriodFinder {
    state: State,
    distrust: Distrust,
}

#[derive(Debug)]
enum State {
    Searching(Box<Search>),
    Tracking(Box<Track>),
}

impl Default for State {
    fn default() -> Self {
        Self::Searching(Box::default())
    }
}

impl PeriodFinder {
    /// Creates a finder without history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Processes the next submission.
    pub fn observe(&mut self, item: Item) -> Observation {
        match &mut self.state {
            State::Tracking(track) => match track.observe(item) {
                Ok(observation) => observation,
                Err(lost) => {
                    self.distrust
                        .remember(track.signature(), lost.repeats_wanted);
                    self.state = State::default();
                    Observation {
                        changed: true,
                        ..self.search(item)
                    }
                }
            },
            State::Searching(_) => self.search(item),
        }
    }

    /// The detected step; `None` if no period is known.
    pub fn period(&self) -> Option<Period> {
        match &self.state {
            State::Tracking(track) => Some(*track.period()),
            State::Searching(_) => None,
        }
    }

    fn search(&mut self, item: Item) -> Observation {
        let State::Searching(search) = &mut self.state else {
            return Observation::default();
        };
        let Some(mut track) = search.observe(item, &self.distrust) else {
            return Observation::default();
        };
        // By name, this tensor shows that the previous step has ended; anonymous, it is the last of
        // that step.
        let first = if track.period().named {
            track.observe(item).unwrap_or_default()
        } else {
            Observation::default()
        };
        let step_complete = first.step_complete || !track.period().named;
        self.state = State::Tracking(Box::new(track));
        Observation {
            changed: true,
            step_complete,
            ..first
        }
    }
}

/// Periods that were accepted and given up, with the number of repeats required to accept them
/// again.
#[derive(Debug, Default)]
struct Distrust {
    periods: VecDeque<(u64, u64)>,
}

impl Distrust {
    /// A job has one step and a few inner loops.
    const PERIODS_MAX: usize = 8;

    fn remember(&mut self, signature: u64, repeats_wanted: u64) {
        self.periods.retain(|&(known, _)| known != signature);
        self.periods.push_back((signature, repeats_wanted));
        if self.periods.len() > Self::PERIODS_MAX {
            self.periods.pop_front();
        }
    }

    fn repeats_wanted(&self, signature: u64) -> u64 {
        let known = self.periods.iter().find(|&&(known, _)| known == signature);
        known.map_or(0, |&(_, repeats)| repeats)
    }
}

/// Mixes `b` into `a`; every bit of the result depends on every bit of both.
#[inline]
pub fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd1b5_4a32_d192_ed03);
    product as u64 ^ (product >> 64) as u64
}

/// Map whose keys are hashes already.
pub type KeyMap<V> = HashMap<u64, V, BuildHasherDefault<KeyHasher>>;

/// Hasher of [`KeyMap`]: returns the key itself.
#[derive(Debug, Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes
            .iter()
            .fold(self.0, |hash, &byte| mix(hash, u64::from(byte)));
    }

    #[inline]
    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

#[cfg(test)]
mod tests;
