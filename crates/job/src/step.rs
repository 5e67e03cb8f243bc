//! Step detection: a training step is the repeating sequence of tensors.
//!
//! The program does not report the end of a step, but training repeats: the smallest repeating period of the
//! sequence of submissions is the step. Once it is known, a cycle can start as soon as a step's last tensor is
//! submitted, and it is the unit in which time is measured.
//!
//! Three things make it harder than finding the period of a string. Hooks fire in another order in each step; so
//! a step is a *set* of tensors with their multiplicities. Other traffic comes in between (validation, a checkpoint,
//! a counter in a name); so what was learnt is kept when something foreign passes by. And names may never repeat;
//! so there are two searches side by side:
//!
//! - **By name.** The sequence is cut in front of each tensor that the current piece has already: in plain training a
//!   piece is a step, whatever the order inside. Where a tensor comes several times in a step (a loss for each
//!   micro-batch), a step is several pieces. A piece is summed up by an order-free hash over the tensors known from
//!   before; new names do not count. The period is one of the sequence of pieces.
//! - **Anonymous**, by operation, element type and size. The period is one of the sequence of tensors, and order
//!   counts. Believed only after [`NAMELESS_ITEMS`] tensors without a single repeated name, and never with one
//!   tensor in the period: equal sizes would make every tensor the end of a step.
//!
//! A period is believed once it has come three times in a row and these were [`RUN_ITEMS_MIN`] tensors or more. It is given up when
//! a tensor comes more often than its order allows, when foreign traffic takes over, or when the same foreign
//! traffic comes with every step (then it belongs to the step). Everything is O(1) for each tensor, amortized, and
//! memory is bounded by [`PERIOD_ITEMS_MAX`].

mod search;
mod track;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use crate::Dtype;
use crate::OpKind;
use search::Search;
use track::Track;

/// Tensors that a period may have; what repeats less often than that is not found.
pub const PERIOD_ITEMS_MAX: usize = 1 << 16;
/// Tensors that a run of equal periods must have before it is believed: a loss reduced for each micro-batch is no
/// step.
pub const RUN_ITEMS_MIN: usize = 16;
/// Tensors in a row with names never seen before, after which names are believed never to repeat. More than most
/// models have, since in the first step all names are new.
pub const NAMELESS_ITEMS: usize = 1_024;

/// One submission, as far as periods are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Name, operation, element type and size, as a hash.
    exact: u64,
    /// The same without the name.
    anonymous: u64,
    /// Payload, bytes.
    bytes: u64,
    allreduce: bool,
}

impl Item {
    /// `elements` elements of type `dtype`, called `name`.
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

    /// This tensor's part of the step signature: the sum over a step's tensors is a hash of the step's contents, independent
    /// of names and order.
    #[inline]
    pub fn signature(&self) -> u64 {
        mix(self.anonymous, 1)
    }

    /// What this tensor is known by, as a hash: its name and form or, where names do not repeat, its form (operation, element
    /// type and size).
    #[inline]
    pub fn key(&self, named: bool) -> u64 {
        if named { self.exact } else { self.anonymous }
    }
}

/// What a submission means for the step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// With this tensor everything that the learnt step expects has come.
    pub step_complete: bool,
    /// This tensor is the step's [anchor](Period::anchor).
    pub anchor: bool,
    /// A period is known and this tensor is not part of it.
    pub foreign: bool,
    /// The period was found, replaced or given up at this tensor.
    pub changed: bool,
}

/// A learnt step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// Number of tensors.
    pub items: usize,
    /// Their payload, bytes.
    pub bytes: u64,
    /// Their [signatures](Item::signature), added up.
    pub signature: u64,
    /// Payload of the anchor, bytes: the largest allreduce, preferably one that comes once in a step. `None` if the
    /// step has no allreduce.
    pub anchor: Option<u64>,
    /// Whether tensors are told apart by name.
    pub named: bool,
    /// Foreign tensors that came along with each step when it was learnt (names with counters).
    pub foreign: usize,
}

/// Finds the smallest repeating period of a sequence of submissions, online. See the module.
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
    /// Knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in the next submission.
    pub fn observe(&mut self, item: Item) -> Observation {
        match &mut self.state {
            State::Tracking(track) => match track.observe(item) {
                Ok(observation) => observation,
                Err(lost) => {
                    self.distrust.remember(track.signature(), lost.repeats_wanted);
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

    /// The step, if it is known.
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
        // By name, this tensor has shown that the step before it is over; anonymous, it is that step's last.
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

/// Periods that were believed and turned out wrong, with the number of repeats that would convince us again.
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

/// Folds `b` into `a`; every bit of the result depends on every bit of both.
#[inline]
pub fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd1b5_4a32_d192_ed03);
    product as u64 ^ (product >> 64) as u64
}

/// A map whose keys are hashes already.
pub type KeyMap<V> = HashMap<u64, V, BuildHasherDefault<KeyHasher>>;

/// Passes keys of [`KeyMap`] through.
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
