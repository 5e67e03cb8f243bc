//! Ready times of each tensor on all ranks, from one file that has all ranks' ticks or from several
//! files that have one rank's each.
//!
//! Rank 0 of Horovod and every rank of Ronde record the ticks of all ranks. Where ticks are
//! missing, the files of the other ranks are used: the operation on the same tensor that is nearest
//! in time, after the clocks have been aligned. Operations are not matched by their number, because
//! a recorder may have dropped cycles.

use std::collections::HashMap;

use super::collect::RankRecord;
use super::op::Op;
use crate::{Kind, NameId};

/// Ready times of all ranks, on the reference rank's clock.
#[derive(Debug)]
pub(super) struct Readiness {
    reference: u32,
    /// Whether a bar begins when its own rank is ready, independently of other ranks.
    own_bars: bool,
    ranks: u32,
    others: Vec<Other>,
    /// Maximum distance of two ranks' records of the same operation, nanoseconds.
    near_ns: i64,
}

/// Times of each tensor in another rank's file.
#[derive(Debug)]
struct Other {
    rank: u32,
    /// By the reference's tensor: (middle of the execution, ready, start), in order of the first.
    times: HashMap<NameId, Vec<(i64, i64, i64)>>,
}

/// Ready times of one operation on all ranks. Memory depends on the known times, not on the size of
/// the job that a file states.
#[derive(Clone, Debug, Default)]
pub(super) struct Ready {
    /// Number of ranks of the job.
    ranks: u32,
    /// Rank and time, in order of rank.
    known: Vec<(u32, i64)>,
}

/// Ready time of `op` on the rank of `record`, whose operation it is, if the file has it.
pub(super) fn ready_here(record: &RankRecord, op: &Op) -> Option<i64> {
    let rank = record.rank();
    // In the formats of Horovod and Ronde, a bar may begin when another rank is ready; in others it
    // begins when its own rank is.
    op.tick(rank)
        .or_else(|| (!record.batcher.fuses).then(|| op.ready(rank)))
}

impl Readiness {
    /// Joins `records`, in order of rank; the first is the reference. `step_ns` is the usual length
    /// of a step.
    pub(super) fn new(records: &[RankRecord], ranks: u32, step_ns: f64) -> Self {
        let reference = &records[0];
        let ids: HashMap<&str, NameId> = reference
            .names
            .iter()
            .enumerate()
            .map(|(index, name)| (&**name, NameId(index as u32)))
            .collect();
        let others = records[1..].iter().filter_map(|record| {
            let shift = record.source.shift_to(&reference.source)?;
            let mut times: HashMap<NameId, Vec<_>> = HashMap::new();
            for op in record.kept.iter().flat_map(|step| &step.ops) {
                let (Some(ready), Some(&id)) =
                    (ready_here(record, op), ids.get(record.name(op.tensor)))
                else {
                    continue;
                };
                let at = |time: i64| time.saturating_add(shift);
                let middle = op.span.began + (op.span.ended - op.span.began) / 2;
                times
                    .entry(id)
                    .or_default()
                    .push((at(middle), at(ready), at(op.span.began)));
            }
            times.values_mut().for_each(|times| times.sort_unstable());
            Some(Other {
                rank: record.rank(),
                times,
            })
        });
        Self {
            reference: reference.rank(),
            own_bars: !reference.batcher.fuses,
            ranks,
            others: others.collect(),
            near_ns: (step_ns / 2.0) as i64,
        }
    }

    /// Whether the ready times of all ranks come from files of all ranks, and may be later than the
    /// start of the reference's bar.
    pub(super) fn joins_all(&self) -> bool {
        self.own_bars && !self.others.is_empty() && self.others.len() + 1 == self.ranks as usize
    }

    /// Time at which all ranks had `op` ready, an operation of the reference whose ready times are
    /// `ready`. Never after its end.
    pub(super) fn all_ready(&self, op: &Op, ready: &Ready) -> i64 {
        let last = if self.own_bars { ready.last() } else { None };
        // No result exists before all ranks are ready: the record with a later time is of another
        // operation, as of another process group, or the clocks differ.
        let last = last.filter(|&at| at <= op.span.ended);
        last.unwrap_or_else(|| op.all_ready(self.ranks))
    }

    /// Ready times of `op`, an operation of the reference, on all ranks.
    pub(super) fn of(&self, op: &Op) -> Ready {
        let mut ready = Ready {
            ranks: self.ranks,
            known: Vec::with_capacity(op.ticks.len()),
        };
        for tick in &op.ticks {
            ready.set(tick.rank, tick.at);
        }
        if self.own_bars && ready.of(self.reference).is_none() {
            ready.set(self.reference, op.ready(self.reference));
        }
        let middle = op.span.began + (op.span.ended - op.span.began) / 2;
        // A message between two ranks waits for no others.
        let joins = op.kind != Kind::PointToPoint;
        for other in self.others.iter().filter(|_| joins) {
            if ready.of(other.rank).is_some() {
                continue;
            }
            let times = other.times.get(&op.tensor).map_or(&[][..], Vec::as_slice);
            let after = times.partition_point(|&(at, ..)| at < middle);
            let near = times[after.saturating_sub(1)..].iter().take(2);
            let nearest = near.min_by_key(|&&(at, ..)| at.abs_diff(middle));
            let nearest =
                nearest.filter(|&&(at, ..)| at.abs_diff(middle) <= self.near_ns.unsigned_abs());
            if let Some(&(_, at, _)) = nearest {
                ready.set(other.rank, at);
            }
        }
        ready
    }
}

impl Ready {
    /// Sets the time of `rank`; ignored if the job has no such rank.
    fn set(&mut self, rank: u32, at: i64) {
        if rank >= self.ranks {
            return;
        }
        match self.known.binary_search_by_key(&rank, |&(rank, _)| rank) {
            Ok(place) => self.known[place].1 = at,
            Err(place) => self.known.insert(place, (rank, at)),
        }
    }

    /// Ready time on `rank`, if known.
    pub(super) fn of(&self, rank: u32) -> Option<i64> {
        let place = self.known.binary_search_by_key(&rank, |&(rank, _)| rank);
        place.ok().map(|place| self.known[place].1)
    }

    /// Ranks with known ready times, and these times.
    pub(super) fn known(&self) -> impl Iterator<Item = (u32, i64)> + '_ {
        self.known.iter().copied()
    }

    /// All ready times, if known for all ranks and there are at least two.
    pub(super) fn all(&self) -> Option<impl Iterator<Item = (u32, i64)> + '_> {
        let whole = self.ranks >= 2 && self.known.len() == self.ranks as usize;
        whole.then(|| self.known())
    }

    /// Latest ready time, if [all](Self::all) are known.
    pub(super) fn last(&self) -> Option<i64> {
        self.all()?.map(|(_, at)| at).max()
    }

    /// Latest known time of the ranks other than `ranks`, which are in order.
    pub(super) fn last_without(&self, ranks: &[u32]) -> Option<i64> {
        let others = self
            .known()
            .filter(|(other, _)| ranks.binary_search(other).is_err());
        others.map(|(_, at)| at).max()
    }
}
