//! Collector: visitor that reduces one file to a record of its steps, in bounded memory.
//!
//! Operations are held back until they take [`Limits::pending_bytes`] or the file ends. Then the
//! method that separates steps is chosen ([`steps`]) and the operations are assigned to steps. Each
//! step is measured ([`super::parts`]) and stored ([`store`]): the measurements permanently, the
//! operations as long as there is room. After that, the operations of every second step are kept,
//! then of every fourth, and so on.

mod counters;
mod marks;
mod steps;
mod store;

pub(super) use counters::{Bars, Counters};
pub(super) use marks::Marks;
pub(super) use store::{Cut, Facts, KeptStep};

use super::op::{Batcher, Op, sane, sane_span};
use super::parts::{self, Recorded};
use super::report::StepsFoundBy;
use crate::{Format, Mark, MarkKind, NameId, Operation, Source, Span, Visitor, Work};
use steps::Stepper;
use store::Store;

/// Memory limits of a collector.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Operations held back until the method is chosen.
    pub(super) pending_bytes: usize,
    /// Operations of one step; a longer step is split.
    pub(super) step_bytes: usize,
    /// Operations of finished steps.
    pub(super) kept_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            pending_bytes: 64 << 20,
            step_bytes: 192 << 20,
            kept_bytes: 48 << 20,
        }
    }
}

/// Collects one file, as a [`Visitor`] for [`crate`]'s readers. Memory is bounded by names and
/// steps plus about 200 MB, for files of any length.
#[derive(Debug, Default)]
pub struct Collector {
    limits: Limits,
    names: Vec<Box<str>>,
    /// Number of operations so far, by tensor name.
    times: Vec<u32>,
    /// Time of the last operation, by tensor name.
    arrived: Vec<i64>,
    /// Operations that began before the previous one on the same tensor ended, and the first such
    /// tensor.
    back: (u64, Option<NameId>),
    counters: Counters,
    marks: Marks,
    work: Recorded,
    pending: Vec<Op>,
    pending_bytes: usize,
    dealing: Option<Dealing>,
    store: Store,
}

/// Method of separating and measuring steps, chosen for the first steps.
#[derive(Debug)]
struct Dealing {
    stepper: Stepper,
    batcher: Batcher,
    /// Whether the job waits for each result.
    waits: bool,
    rank: u32,
}

/// Record of one file; [`analyze`](super::analyze) joins those of a job.
#[derive(Debug)]
pub struct RankRecord {
    pub(super) source: Source,
    pub(super) names: Vec<Box<str>>,
    /// Whether there was an operation on a tensor, by name.
    pub(super) travelled: Vec<bool>,
    pub(super) counters: Counters,
    pub(super) marks: Marks,
    pub(super) found_by: StepsFoundBy,
    pub(super) batcher: Batcher,
    pub(super) work: Recorded,
    /// Whether the job waits for each result.
    pub(super) waits: bool,
    pub(super) steps: Vec<Facts>,
    pub(super) kept: Vec<KeptStep>,
    /// Step, and time from ready on all ranks to the start of the batch while no other batch is
    /// moved, nanoseconds, for cached tensors.
    pub(super) negotiated_cached: Vec<(usize, f64)>,
    /// Step and such a time of each batch with at least one new tensor.
    pub(super) negotiated_uncached: Vec<(usize, f64)>,
    pub(super) warnings: Vec<String>,
}

impl Collector {
    /// Returns an empty collector.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a collector with lower limits.
    #[cfg(test)]
    pub(super) fn with_limits(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Ends the file and returns its record.
    pub fn finish(mut self, source: Source) -> RankRecord {
        self.work.unite();
        self.deal(Some(&source));
        let mut warnings = self.counters.warnings();
        if let (times, Some(tensor)) = self.back
            && matches!(source.format, Format::Horovod | Format::Ronde)
        {
            warnings.push(format!(
                "{times} times an operation on a tensor begins before the previous one has ended, first {}: the clock was set back, or the file holds \
                 more than one recording, so the figures of steps are not reliable",
                self.names.get(tensor.0 as usize).map_or("?", |name| name)
            ));
        }
        let (found_by, batcher, waits) = match &self.dealing {
            Some(dealing) => {
                warnings.extend(dealing.stepper.warnings());
                let rank = rank_of(&source);
                if dealing.rank != rank {
                    warnings.push(format!(
                        "the file is too long for memory, so steps were measured before its rank, {rank}, was known: their \
                         parts are those of rank {}",
                        dealing.rank
                    ));
                }
                (dealing.stepper.found_by(), dealing.batcher, dealing.waits)
            }
            None => (StepsFoundBy::Nothing, Batcher { fuses: false }, false),
        };
        let Store {
            facts,
            kept,
            cached,
            uncached,
            ..
        } = self.store;
        RankRecord {
            travelled: self.times.iter().map(|&times| times > 0).collect(),
            names: self.names,
            counters: self.counters,
            marks: self.marks,
            found_by,
            batcher,
            work: self.work,
            waits,
            steps: facts,
            kept,
            negotiated_cached: cached.into_kept(),
            negotiated_uncached: uncached.into_kept(),
            warnings,
            source,
        }
    }

    /// Assigns pending operations to steps. `source` is given at the end of the file, and then all
    /// are assigned; before, only those that are old enough to be in order.
    fn deal(&mut self, source: Option<&Source>) {
        self.pending.sort_by_key(|op| op.span.began);
        if self.dealing.is_none() && !self.pending.is_empty() {
            let fuses = match source {
                Some(source) => matches!(source.format, Format::Horovod | Format::Ronde),
                // Only the formats of Horovod and Ronde have ticks of several ranks.
                None => self.pending.iter().any(|op| op.ticks.len() > 1),
            };
            let batcher = Batcher { fuses };
            self.dealing = Some(Dealing {
                stepper: Stepper::choose(
                    &self.pending,
                    &self.marks.steps,
                    self.work.is_known(),
                    batcher,
                    self.limits.step_bytes,
                    &self.names,
                ),
                batcher,
                waits: false,
                rank: source.map_or(0, rank_of),
            });
            self.store.limit(self.limits.kept_bytes);
        }
        let Some(dealing) = &mut self.dealing else {
            return;
        };
        let old = if source.is_some() {
            self.pending.len()
        } else {
            self.pending.len() / 4 * 3
        };
        let first_compute = self.work.compute.first().map(|span| span.began);
        for op in self.pending.drain(..old) {
            dealing
                .stepper
                .feed(op, &self.marks.steps, first_compute, &self.names);
        }
        self.pending_bytes = self.pending.iter().map(Op::weight).sum();
        if source.is_some() {
            dealing.stepper.end(&self.marks.steps);
        }
        let closed = dealing.stepper.take_closed();
        if source.is_none() {
            self.work.unite();
        }
        if self.store.facts.is_empty() {
            // The first steps may be start-up, and untypical.
            let later = closed
                .iter()
                .skip(closed.len() / 4)
                .map(|step| step.ops.as_slice());
            dealing.waits = parts::waits_for_each(later, dealing.batcher, dealing.rank);
        }
        let computing = self.work.computing(dealing.waits);
        let size = source.and_then(|source| source.size).unwrap_or(0);
        let ranks = self.counters.ranks().max(size).max(1);
        for step in closed {
            let all_ready = |op: &Op| op.all_ready(ranks);
            let parts = parts::sweep(step.span, &step.ops, dealing.rank, all_ready, computing);
            self.store.put(step, parts, dealing.batcher, ranks);
        }
    }
}

impl RankRecord {
    /// Properties of the file.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Rank of the file; 0 if unknown, since Horovod writes a file on rank 0 only.
    pub fn rank(&self) -> u32 {
        rank_of(&self.source)
    }

    pub(super) fn name(&self, id: NameId) -> &str {
        self.names.get(id.0 as usize).map_or("?", |name| name)
    }
}

fn rank_of(source: &Source) -> u32 {
    source.rank.unwrap_or(0)
}

impl Visitor for Collector {
    fn name(&mut self, id: NameId, name: &str) {
        // Numbers count up; a reader that skips or repeats one leaves a tensor without a name.
        if id.0 as usize == self.names.len() {
            self.names.push(name.into());
        }
    }

    fn operation(&mut self, operation: &Operation) {
        self.counters.operation(operation);
        let index = operation.tensor.0 as usize;
        if index >= self.times.len() {
            // Not beyond the number of names: a damaged number must not allocate all memory.
            self.times.resize(self.names.len().max(self.times.len()), 0);
            self.arrived.resize(self.times.len(), i64::MIN);
        }
        let occurrence = self.times.get(index).copied().unwrap_or(0);
        let cycle = operation
            .execution
            .and_then(|span| self.marks.cycle_before(sane(span.began)));
        let Some((op, odd)) = Op::new(operation, occurrence, cycle) else {
            return;
        };
        if let Some(times) = self.times.get_mut(index) {
            *times = times.saturating_add(1);
        }
        if let Some(arrived) = self.arrived.get_mut(index) {
            if op.span.began < *arrived {
                self.back = (self.back.0 + 1, self.back.1.or(Some(op.tensor)));
            }
            *arrived = op.span.ended;
        }
        self.counters.odd(odd);
        self.pending_bytes += op.weight();
        self.pending.push(op);
        if self.pending_bytes > self.limits.pending_bytes {
            self.deal(None);
        }
    }

    fn mark(&mut self, mark: Mark) {
        let at = sane(mark.at);
        self.counters.seen(Span {
            began: at,
            ended: at,
        });
        match mark.kind {
            MarkKind::Cycle => self.marks.cycle(at),
            MarkKind::StepBegin => self.marks.step(at, true),
            MarkKind::Step => self.marks.step(at, false),
            MarkKind::Epoch => self.marks.epochs += 1,
            MarkKind::Settings {
                fusion_threshold_bytes,
                cycle_time_ns,
                gpu_fusion_threshold_bytes,
            } => {
                let thresholds = (fusion_threshold_bytes, gpu_fusion_threshold_bytes);
                self.marks.settings(at, thresholds, cycle_time_ns);
            }
        }
    }

    fn compute(&mut self, span: Span, work: Work) {
        let span = sane_span(span);
        self.counters.seen(span);
        self.work.gpu |= work != Work::Cpu;
        let spans = match work {
            Work::Cpu | Work::Kernel => &mut self.work.compute,
            Work::OtherGpu => &mut self.work.other_gpu,
        };
        match spans.last_mut() {
            Some(last) if last.began <= span.began && span.began <= last.ended => {
                last.ended = last.ended.max(span.ended);
            }
            _ => spans.push(span),
        }
    }
}
