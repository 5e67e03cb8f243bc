//! Counters of a file's content, over all operations, including those that are not kept.

use std::collections::HashMap;

use crate::analysis::op::{sane, sane_span};
use crate::{Kind, NameId, Operation, Span};

/// Number and total length of the bars of one name.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::analysis) struct Bars {
    pub(in crate::analysis) count: u64,
    pub(in crate::analysis) total_ns: u64,
}

impl Bars {
    fn add(&mut self, span: Span) {
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(sane_span(span).ns());
    }
}

/// Counters of a file.
#[derive(Clone, Debug, Default)]
pub(in crate::analysis) struct Counters {
    /// Executed operations.
    pub(in crate::analysis) operations: u64,
    refused: u64,
    unfinished: u64,
    odd: u64,
    pub(in crate::analysis) kinds: HashMap<Kind, u64>,
    pub(in crate::analysis) negotiations: HashMap<Kind, Bars>,
    pub(in crate::analysis) executions: HashMap<Kind, Bars>,
    pub(in crate::analysis) activities: HashMap<NameId, Bars>,
    /// Operations with at least one tick, and with more than one.
    pub(in crate::analysis) ticked: u64,
    pub(in crate::analysis) negotiated: u64,
    /// Highest rank with a tick, plus 1.
    ranks: u32,
    first_ns: Option<i64>,
    last_ns: i64,
}

/// Limit on rank numbers, more than any job has: a tick beyond is damaged.
const RANKS_MOST: u32 = 1 << 20;

impl Counters {
    pub(super) fn operation(&mut self, operation: &Operation) {
        if let Some(span) = operation.negotiation {
            self.negotiations
                .entry(operation.kind)
                .or_default()
                .add(span);
            self.negotiated += 1;
            self.seen(span);
        }
        self.ticked += u64::from(!operation.ticks.is_empty());
        for tick in &operation.ticks {
            self.ranks = self.ranks.max(tick.rank.saturating_add(1).min(RANKS_MOST));
            self.seen(Span {
                began: tick.at,
                ended: tick.at,
            });
        }
        for activity in &operation.activities {
            self.activities
                .entry(activity.name)
                .or_default()
                .add(activity.span);
        }
        let Some(span) = operation.execution else {
            self.refused += u64::from(operation.refused);
            self.unfinished += u64::from(!operation.refused);
            return;
        };
        self.operations += 1;
        *self.kinds.entry(operation.kind).or_default() += 1;
        self.executions.entry(operation.kind).or_default().add(span);
        self.seen(span);
    }

    /// Extends the recorded time by a span.
    pub(super) fn seen(&mut self, span: Span) {
        let (began, ended) = (sane(span.began), sane(span.ended));
        self.last_ns = if self.first_ns.is_some() {
            self.last_ns.max(ended)
        } else {
            ended
        };
        self.first_ns = Some(self.first_ns.map_or(began, |first| first.min(began)));
    }

    pub(super) fn odd(&mut self, odd: bool) {
        self.odd += u64::from(odd);
    }

    /// Number of ranks according to the ticks; 0 without ticks.
    pub(in crate::analysis) fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Times of the first and last event on the file's clock, nanoseconds; `None` without events.
    pub(in crate::analysis) fn ends_ns(&self) -> Option<(i64, i64)> {
        self.first_ns.map(|first| (first, self.last_ns))
    }

    /// Time from the first to the last event, nanoseconds.
    pub(in crate::analysis) fn span_ns(&self) -> u64 {
        self.first_ns
            .map_or(0, |first| (self.last_ns.max(first) - first).unsigned_abs())
    }

    /// Adds the counters of a later segment, whose names are mapped by `names`.
    pub(in crate::analysis) fn append(&mut self, later: Self, names: &[NameId], shift_ns: i64) {
        self.operations += later.operations;
        self.refused += later.refused;
        self.unfinished += later.unfinished;
        self.odd += later.odd;
        self.ticked += later.ticked;
        self.negotiated += later.negotiated;
        self.ranks = self.ranks.max(later.ranks);
        for (kind, count) in later.kinds {
            *self.kinds.entry(kind).or_default() += count;
        }
        fn merge<K: std::hash::Hash + Eq>(all: &mut HashMap<K, Bars>, key: K, bars: Bars) {
            let sum = all.entry(key).or_default();
            sum.count += bars.count;
            sum.total_ns = sum.total_ns.saturating_add(bars.total_ns);
        }
        for (kind, bars) in later.negotiations {
            merge(&mut self.negotiations, kind, bars);
        }
        for (kind, bars) in later.executions {
            merge(&mut self.executions, kind, bars);
        }
        for (name, bars) in later.activities {
            merge(
                &mut self.activities,
                names.get(name.0 as usize).copied().unwrap_or(name),
                bars,
            );
        }
        if let Some(first) = later.first_ns {
            self.seen(Span {
                began: sane(first.saturating_add(shift_ns)),
                ended: sane(later.last_ns.saturating_add(shift_ns)),
            });
        }
    }

    /// Warnings about the operations.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.refused > 0 {
            warnings.push(format!(
                "{} operations were refused, since the ranks disagreed about them",
                self.refused
            ));
        }
        if self.unfinished > 0 {
            warnings.push(format!(
                "{} operations did not begin before the end of the file; they are left out",
                self.unfinished
            ));
        }
        if self.odd > 0 {
            warnings.push(format!(
                "{} operations end before they begin or lie decades away; such bars are taken to have no length",
                self.odd
            ));
        }
        warnings
    }
}
