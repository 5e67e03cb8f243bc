//! Search for a period: cuts the sequence of submissions into pieces and finds repeating runs of
//! them.

use std::collections::VecDeque;

use super::track::Track;
use super::{Distrust, Item, KeyMap, NAMELESS_ITEMS, PERIOD_ITEMS_MAX, RUN_ITEMS_MIN, mix};

/// Number of repeats after which a period is accepted.
const REPEATS: u64 = 3;

/// State of the search while no period is known.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// The last tensors, and whether each one's name was new.
    history: VecDeque<(Item, bool)>,
    /// For each name seen, the last piece that contains it.
    known: KeyMap<u64>,
    /// Tensors since the last one with a known name.
    since_known: usize,
    /// The current piece: its number, tensors, bytes, and the hash of its known names.
    piece: Piece,
    /// Tensors and bytes of the last pieces, parallel to the symbols of `by_name`.
    pieces: VecDeque<Piece>,
    by_name: Runs,
    anonymous: Runs,
}

#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    number: u64,
    items: usize,
    bytes: u64,
    /// Tensors whose names were new.
    new: usize,
    /// Order-independent hash of the others.
    hash: u64,
}

impl Piece {
    /// Symbol of the piece; repeats of a piece have equal symbols. A few new names do not matter
    /// (counters in names). If most are new, their number counts, or a loop around a first step
    /// would look like the step.
    fn symbol(&self) -> u64 {
        if 2 * self.new > self.items {
            mix(self.hash, self.new as u64)
        } else {
            self.hash
        }
    }
}

impl Search {
    /// Processes the next tensor. Returns the period to track once one is found: by name, it ended
    /// before this tensor; anonymous, with this tensor.
    pub(super) fn observe(&mut self, item: Item, distrust: &Distrust) -> Option<Track> {
        let found = self.by_name(item, distrust);
        if found.is_none() {
            return self.anonymous(item, distrust);
        }
        found
    }

    /// Number of entries in memory.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        let runs =
            |runs: &Runs| runs.symbols.len() + runs.ends.iter().map(KeyMap::len).sum::<usize>();
        self.history.len()
            + self.known.len()
            + self.pieces.len()
            + runs(&self.by_name)
            + runs(&self.anonymous)
    }

    fn by_name(&mut self, item: Item, distrust: &Distrust) -> Option<Track> {
        if self.known.len() > PERIOD_ITEMS_MAX || self.piece.items > PERIOD_ITEMS_MAX {
            self.known.clear();
            self.piece = Piece::default();
            self.pieces.clear();
            self.by_name = Runs::default();
        }
        let seen = self.known.insert(item.exact, self.piece.number);
        let mut found = None;
        if seen == Some(self.piece.number) {
            found = self.close_piece(distrust);
            self.known.insert(item.exact, self.piece.number);
        }
        self.piece.items += 1;
        self.piece.bytes += item.bytes;
        if seen.is_some() {
            self.piece.hash = self.piece.hash.wrapping_add(mix(item.exact, 1));
            self.since_known = 0;
        } else {
            self.piece.new += 1;
            self.since_known += 1;
        }
        if self.history.len() == PERIOD_ITEMS_MAX {
            self.history.pop_front();
        }
        self.history.push_back((item, seen.is_none()));
        found
    }

    fn close_piece(&mut self, distrust: &Distrust) -> Option<Track> {
        let next = Piece {
            number: self.piece.number + 1,
            ..Piece::default()
        };
        let piece = std::mem::replace(&mut self.piece, next);
        if self.pieces.len() == PERIOD_ITEMS_MAX {
            self.pieces.pop_front();
        }
        self.pieces.push_back(piece);
        self.by_name.push(piece.symbol());
        let Self {
            by_name,
            pieces,
            history,
            ..
        } = self;
        let length = by_name.candidate;
        let last = |count: u64| {
            pieces
                .iter()
                .rev()
                .take(usize::try_from(count).unwrap_or(usize::MAX))
        };
        let items_of = |count: u64| last(count).map(|piece| piece.items).sum::<usize>();
        let track = || {
            let items = items_of(length);
            let start = history.len().checked_sub(items)?;
            Track::new(history.range(start..).copied(), true)
        };
        by_name.settle(distrust, track, |run| {
            if items_of(run + length) < RUN_ITEMS_MIN {
                return None;
            }
            // A step of several pieces (losses, then gradients) ends with the piece that has the
            // most bytes.
            let heaviest = last(length)
                .map(|piece| piece.bytes)
                .enumerate()
                .max_by_key(|&(back, bytes)| (bytes, length as usize - back));
            let back = heaviest.map_or(0, |(back, _)| back as u64);
            Some(run + (length - back) % length)
        })
    }

    fn anonymous(&mut self, item: Item, distrust: &Distrust) -> Option<Track> {
        self.anonymous.push(item.anonymous);
        let Self {
            anonymous,
            history,
            since_known,
            ..
        } = self;
        let length = anonymous.candidate;
        if length < 2 || *since_known < NAMELESS_ITEMS {
            return None;
        }
        let track = || {
            let start = history.len().checked_sub(usize::try_from(length).ok()?)?;
            Track::new(history.range(start..).copied(), false)
        };
        // Whole periods after the start of the run, where a step most likely began.
        anonymous.settle(distrust, track, |run| {
            (run + length >= RUN_ITEMS_MIN as u64).then(|| run.next_multiple_of(length))
        })
    }
}

/// Finds runs in a sequence of symbols: stretches in which each symbol equals the one a fixed
/// distance before.
///
/// When a run breaks, the new distance is that to the last position with the same preceding
/// symbols: the last 16 symbols if such a position exists, else 4, else one. In a periodic sequence
/// that is at most the period, and the period itself as soon as the stretch occurs once in it.
#[derive(Debug, Default)]
struct Runs {
    symbols: VecDeque<u64>,
    /// For each length of context, the end of the last occurrence of each stretch of that length.
    ends: [KeyMap<u64>; CONTEXTS.len()],
    /// Hash of the last symbols, for each length of context.
    hashes: [u64; CONTEXTS.len()],
    /// Number of symbols so far.
    count: u64,
    /// Distance under test; 0 if none.
    candidate: u64,
    /// Consecutive symbols that equal the one `candidate` before.
    run: u64,
    /// Length of run at which the candidate is accepted, once known.
    settle_at: Option<u64>,
}

/// Lengths of context, the most specific first.
const CONTEXTS: [u64; 3] = [16, 4, 1];
/// Odd, so that multiplication by it is invertible.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

impl Runs {
    fn push(&mut self, symbol: u64) {
        let before = self.back(self.candidate);
        if self.symbols.len() == PERIOD_ITEMS_MAX {
            self.symbols.pop_front();
        }
        for (hash, length) in self.hashes.iter_mut().zip(CONTEXTS) {
            let leaving = (self.symbols.len() as u64)
                .checked_sub(length)
                .map_or(0, |at| self.symbols[at as usize]);
            *hash = hash.wrapping_sub(leaving.wrapping_mul(BASE.wrapping_pow(length as u32 - 1)));
            *hash = hash.wrapping_mul(BASE).wrapping_add(symbol);
        }
        self.symbols.push_back(symbol);
        self.count += 1;
        if self.candidate > 0 && before == Some(symbol) {
            self.run += 1;
        } else {
            self.restart();
        }
        for (ends, hash) in self.ends.iter_mut().zip(self.hashes) {
            if ends.len() > PERIOD_ITEMS_MAX {
                ends.clear();
            }
            ends.insert(hash, self.count);
        }
    }

    /// The symbol `distance` before the next one.
    fn back(&self, distance: u64) -> Option<u64> {
        let at = self
            .symbols
            .len()
            .checked_sub(usize::try_from(distance).ok()?)?;
        self.symbols.get(at).copied()
    }

    fn restart(&mut self) {
        (self.candidate, self.run, self.settle_at) = (0, 0, None);
        for ((ends, &hash), length) in self.ends.iter().zip(&self.hashes).zip(CONTEXTS) {
            if let Some(&end) = ends.get(&hash)
                && end >= length
            {
                (self.candidate, self.run) = (self.count - end, length);
                return;
            }
        }
    }

    /// Accepts the candidate if its run is long enough. Once it has occurred [`REPEATS`] times,
    /// `when(run)` returns the length of run at which a period ends (`None`: not yet known), and
    /// `track` creates its [`Track`].
    fn settle(
        &mut self,
        distrust: &Distrust,
        track: impl Fn() -> Option<Track>,
        when: impl Fn(u64) -> Option<u64>,
    ) -> Option<Track> {
        let length = self.candidate;
        if length == 0 || self.run < (REPEATS - 1) * length {
            return None;
        }
        if self.settle_at.is_none() {
            let wanted = distrust.repeats_wanted(track()?.signature());
            let more = wanted.saturating_sub(REPEATS).saturating_mul(length);
            self.settle_at = when(self.run).map(|at| at.saturating_add(more));
        }
        (self.settle_at == Some(self.run)).then(track)?
    }
}
