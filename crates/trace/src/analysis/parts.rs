//! Parts of a step: divides the time of one step among computation and communication, by a sweep
//! over its instants.
//!
//! Each instant belongs to the first of these that applies: an operation is in its collective; is
//! copied in; is copied out; has begun otherwise (it waits for data or the device, or allocates
//! buffers; in a profiler's trace, the host has launched it); some tensor is ready on every rank;
//! some tensor is ready on this rank; none of these. If the ready times of all ranks show that an
//! operation had begun before all ranks were ready, it waits until then, and its collective begins
//! then. The time of each is the *total* of a part. If the rank computes at that instant, the
//! instant is not *exposed* but belongs to computation. So the exposed parts add up exactly to the
//! step.
//!
//! In a profiler's trace of a GPU, instants without a running kernel or copy are *GPU idle*,
//! whatever the host does.
//!
//! Computation is taken from the profiler's trace if the file has kernels. Otherwise a rank is
//! assumed to compute until its last tensor of the step is ready, and while no operation is in
//! progress. In a job that waits for each result before it continues, a rank computes only while no
//! operation is in progress.

use super::op::{Batcher, Op, sane};
use super::report::PartKind;
use crate::{Kind, Phase, Span};

/// Source of the computation times.
#[derive(Clone, Copy, Debug)]
pub(super) enum Computing<'a> {
    /// Known spans, disjoint and in order.
    Known(&'a [Span]),
    /// Kernels and other work of the GPU, each disjoint and in order; the rank computes while a
    /// kernel runs.
    Gpu {
        kernels: &'a [Span],
        other: &'a [Span],
    },
    /// Until this rank's last tensor is ready.
    UntilLastReady,
    /// While no operation of this rank is in progress.
    WhileIdle,
}

/// Work of a rank that its file records.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// Computation: disjoint spans, in order of start if the file is.
    pub(super) compute: Vec<Span>,
    /// Other work of the GPU than kernels, in the same form.
    pub(super) other_gpu: Vec<Span>,
    /// Whether the file has GPU kernels.
    pub(super) gpu: bool,
}

impl Recorded {
    /// Whether the file records computation.
    pub(super) fn is_known(&self) -> bool {
        self.gpu || !self.compute.is_empty()
    }

    /// Unites overlapping spans.
    pub(super) fn unite(&mut self) {
        for spans in [&mut self.compute, &mut self.other_gpu] {
            spans.sort_unstable();
            spans.dedup_by(|next, kept| {
                let overlap = next.began <= kept.ended;
                if overlap {
                    kept.ended = kept.ended.max(next.ended);
                }
                overlap
            });
        }
    }

    /// Adds the work of a later segment.
    pub(super) fn append(&mut self, later: Self, shift: i64) {
        let at = |time: i64| sane(time.saturating_add(shift));
        let shifted = |span: Span| Span {
            began: at(span.began),
            ended: at(span.ended),
        };
        self.compute.extend(later.compute.into_iter().map(shifted));
        let other_gpu = later.other_gpu.into_iter().map(shifted);
        self.other_gpu.extend(other_gpu);
        self.gpu |= later.gpu;
        self.unite();
    }

    /// Source of the computation times; `waits` is whether the job waits for each result.
    pub(super) fn computing(&self, waits: bool) -> Computing<'_> {
        if self.gpu {
            Computing::Gpu {
                kernels: &self.compute,
                other: &self.other_gpu,
            }
        } else if !self.compute.is_empty() {
            Computing::Known(&self.compute)
        } else if waits {
            Computing::WhileIdle
        } else {
            Computing::UntilLastReady
        }
    }
}

/// Times of one step, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    /// Exposed parts in the order of [`PartKind::ALL`]; they add up to the step.
    pub(super) exposed: [u64; PartKind::COUNT],
    pub(super) total: [u64; PartKind::COUNT],
    /// Time with some operation in progress.
    pub(super) communication: u64,
    /// Part of `communication` that does not overlap computation.
    pub(super) communication_exposed: u64,
    /// That part by kind of the operations in progress, in the order of [`Kind`]; zero unless
    /// computation is known. Operations of two kinds at once count for both.
    pub(super) exposed_by_kind: [u64; KINDS],
    /// Time with some activity of a phase in progress, in the order of [`PHASES`].
    pub(super) phases: [u64; PHASES.len()],
}

/// All phases, in order.
pub(super) const PHASES: [Phase; 6] = [
    Phase::WaitForData,
    Phase::Queue,
    Phase::Prepare,
    Phase::CopyIn,
    Phase::Collective,
    Phase::CopyOut,
];

/// Number of kinds of operations.
const KINDS: usize = Kind::ALL.len();

fn phase_index(phase: Phase) -> usize {
    PHASES.iter().position(|&known| known == phase).unwrap_or(0)
}

/// Counters of the conditions that hold at an instant.
const MOVING: usize = PHASES.len();
const ALL_READY: usize = MOVING + 1;
const READY: usize = MOVING + 2;
const COMPUTING: usize = MOVING + 3;
const OTHER_GPU: usize = MOVING + 4;
/// Operations of a kind in progress, from here on in the order of [`Kind`].
const OF_KIND: usize = MOVING + 5;
const COUNTERS: usize = OF_KIND + KINDS;

/// Sweeps over `step`, in which `ops` were executed; `rank` is the rank of the file, and `all_ready`
/// the time at which all ranks had an operation ready.
pub(super) fn sweep(
    step: Span,
    ops: &[Op],
    rank: u32,
    all_ready: impl Fn(&Op) -> i64,
    computing: Computing<'_>,
) -> Parts {
    let mut edges: Vec<(i64, usize, i32)> = Vec::with_capacity(ops.len() * 12);
    let mut add = |counter: usize, began: i64, ended: i64| {
        let (began, ended) = (began.max(step.began), ended.min(step.ended));
        if began < ended {
            edges.push((began, counter, 1));
            edges.push((ended, counter, -1));
        }
    };
    let mut last_ready = step.began;
    for op in ops {
        let ready = op.ready(rank);
        last_ready = last_ready.max(ready);
        let all_ready = all_ready(op);
        let moves = op.span.began.max(all_ready);
        if let Computing::Known(_) | Computing::Gpu { .. } = computing {
            // Launched by the host but not begun on the device.
            for activity in &op.earlier {
                let span = activity.span;
                add(phase_index(activity.phase), span.began, span.ended);
            }
            add(READY, op.span.began, moves);
            add(OF_KIND + op.kind as usize, op.span.began, op.span.ended);
        } else {
            add(READY, ready, moves);
            add(ALL_READY, all_ready, moves);
        }
        add(MOVING, moves, op.span.ended);
        for activity in &op.activities {
            let span = activity.span;
            let began = match activity.phase {
                Phase::Collective => span.began.max(all_ready),
                _ => span.began,
            };
            add(phase_index(activity.phase), began, span.ended);
        }
    }
    let mut add_all = |counter: usize, spans: &[Span]| {
        let first = spans.partition_point(|span| span.ended <= step.began);
        let within = spans[first..]
            .iter()
            .take_while(|span| span.began < step.ended);
        within.for_each(|span| add(counter, span.began, span.ended));
    };
    match computing {
        Computing::Known(spans) => add_all(COMPUTING, spans),
        Computing::Gpu { kernels, other } => {
            add_all(COMPUTING, kernels);
            add_all(OTHER_GPU, other);
        }
        Computing::UntilLastReady => add(COMPUTING, step.began, last_ready),
        Computing::WhileIdle => {}
    }
    edges.sort_unstable_by_key(|edge| edge.0);

    let gpu = matches!(computing, Computing::Gpu { .. });
    let mut parts = Parts::default();
    let mut counts = [0i32; COUNTERS];
    let mut at = step.began;
    for (time, counter, change) in edges.into_iter().chain([(step.ended, 0, 0)]) {
        parts.count(&counts, (time - at).unsigned_abs(), gpu);
        counts[counter] += change;
        at = time;
    }
    parts
}

impl Parts {
    /// Adds `ns` nanoseconds during which `counts` hold; `gpu` is whether all work of a GPU is
    /// counted.
    fn count(&mut self, counts: &[i32; COUNTERS], ns: u64, gpu: bool) {
        if ns == 0 {
            return;
        }
        let holds = |counter: usize| counts[counter] > 0;
        for (index, time) in self.phases.iter_mut().enumerate() {
            *time += if holds(index) { ns } else { 0 };
        }
        let phase = |phase| holds(phase_index(phase));
        let (moving, computing) = (holds(MOVING), holds(COMPUTING));
        let part = if phase(Phase::Collective) {
            PartKind::Collective
        } else if phase(Phase::CopyIn) {
            PartKind::CopyIn
        } else if phase(Phase::CopyOut) {
            PartKind::CopyOut
        } else if gpu && holds(READY) {
            // The kernel of a collective occupies the GPU while it waits.
            PartKind::WaitForRanks
        } else if gpu && holds(OTHER_GPU) {
            PartKind::GpuOther
        } else if gpu && !computing {
            // A launched collective that has not begun does not occupy the GPU.
            PartKind::GpuIdle
        } else if moving || (0..MOVING).any(holds) {
            PartKind::Prepare
        } else if holds(ALL_READY) {
            PartKind::Negotiation
        } else if holds(READY) {
            PartKind::WaitForRanks
        } else {
            PartKind::Compute
        };
        let exposed = if computing { PartKind::Compute } else { part };
        self.exposed[exposed as usize] += ns;
        self.total[part as usize] += ns;
        if computing && part != PartKind::Compute {
            self.total[PartKind::Compute as usize] += ns;
        }
        if moving {
            self.communication += ns;
            self.communication_exposed += if computing { 0 } else { ns };
        }
        for (kind, time) in self.exposed_by_kind.iter_mut().enumerate() {
            *time += if holds(OF_KIND + kind) && !computing {
                ns
            } else {
                0
            };
        }
    }
}

/// Whether a job waits for each result before it submits the next tensor: in none of its steps does
/// a tensor become ready on this rank while another batch is in progress. Then computation never
/// overlaps an operation. Each step is a list of operations in order of start; steps with fewer
/// than three batches are ignored.
pub(super) fn waits_for_each<'a>(
    steps: impl IntoIterator<Item = &'a [Op]>,
    batcher: Batcher,
    rank: u32,
) -> bool {
    let mut told = false;
    for ops in steps {
        let batches = batcher.batches(ops);
        if batches.len() < 3 {
            continue;
        }
        told = true;
        // In progress: from the first member ready on this rank to the last result in place.
        let under_way = |range: &std::ops::Range<usize>| {
            let members = &ops[range.clone()];
            let began = members.iter().map(|op| op.ready(rank)).min().unwrap_or(0);
            let ended = members.iter().map(|op| op.span.ended).max().unwrap_or(0);
            (began, ended)
        };
        let mut ended_before = i64::MIN;
        for range in &batches {
            let (began, ended) = under_way(range);
            if began < ended_before {
                return false;
            }
            ended_before = ended_before.max(ended);
        }
    }
    told
}

#[cfg(test)]
mod tests;
