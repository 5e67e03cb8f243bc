//! Bars for drawing: a few typical steady steps in full, on every rank.

use std::collections::HashMap;

use super::collect::RankRecord;
use super::join::Readiness;
use super::op::Op;
use super::report::{LaneBar, LaneTick, PartKind, RankBars};
use crate::{NameId, Phase, Span};

/// Number of steps drawn.
const STEPS: usize = 3;
/// Maximum number of bars of a rank: a few steps of a thousand tensors. The page joins the bars of
/// a batch.
const BARS_MOST: usize = 12_000;
/// Maximum number of ranks without a file that get a lane of ready ticks.
const TICKED_RANKS_MOST: u32 = 64;

/// Executions on two ranks that are this close are the same operation, nanoseconds.
const SAME_NS: u64 = 1_000_000;

/// Lanes of `records`, of a job of `ranks` ranks, whose ready times are joined in `readiness`. The
/// first record is the reference, `whole` are its complete steady steps, and `step_ms` is their
/// median length.
pub(super) fn lanes(
    records: &[RankRecord],
    readiness: &Readiness,
    ranks: u32,
    whole: &[usize],
    step_ms: f64,
) -> Vec<RankBars> {
    let reference = &records[0];
    let Some(steps) = typical(reference, whole, step_ms) else {
        return Vec::new();
    };
    let spans: Vec<Span> = steps
        .iter()
        .map(|&index| reference.steps[index].span)
        .collect();
    let (began, ended) = (spans[0].began, spans[spans.len() - 1].ended);
    let all_ready = AllReady::new(reference, readiness, ranks);
    let lanes = records.iter().enumerate().filter_map(|(index, record)| {
        let shift = if index == 0 {
            0
        } else {
            record.source.shift_to(&reference.source)?
        };
        let mut bars = Vec::new();
        let (mut ready, mut cycles) = (Vec::new(), Vec::new());
        for kept in &record.kept {
            let span = record.steps.get(kept.index)?.span;
            if span.began.saturating_add(shift) < ended && span.ended.saturating_add(shift) > began
            {
                for op in &kept.ops {
                    let all_ready = all_ready.of(record, op, shift);
                    add(
                        &mut bars,
                        record,
                        op,
                        all_ready,
                        (began - shift, ended - shift),
                    );
                    ready.extend(op.tick(record.rank()).map(|at| (at + shift, op.tensor)));
                    cycles.extend(op.cycle.map(|at| at + shift));
                }
            }
        }
        // If there are too many, the longest are kept: the others would be hairlines.
        bars.sort_by_key(|bar: &Bar| std::cmp::Reverse(bar.span.ns()));
        bars.truncate(BARS_MOST);
        bars.sort_by_key(|bar| (bar.span.began, bar.span.ended));
        Some(RankBars {
            rank: record.rank(),
            step_ends_ms: spans
                .iter()
                .map(|span| (span.ended - began) as f64 / 1e6)
                .collect(),
            bars: pack(bars, began - shift),
            ready: ticks(record, ready, (began, ended)),
            cycles_ms: cycle_starts(cycles, (began, ended)),
        })
    });
    let mut lanes: Vec<RankBars> = lanes.filter(|lane| !lane.bars.is_empty()).collect();
    if lanes.is_empty() {
        return lanes;
    }
    // Horovod writes one file, rank 0's, with the ready ticks of every rank.
    for rank in
        (0..ranks.min(TICKED_RANKS_MOST)).filter(|rank| records.iter().all(|r| r.rank() != *rank))
    {
        let ops = reference.kept.iter().flat_map(|step| &step.ops);
        let told = ops.filter_map(|op| Some((op.tick(rank)?, op.tensor)));
        let ready = ticks(reference, told.collect(), (began, ended));
        if !ready.is_empty() {
            lanes.push(RankBars {
                rank,
                step_ends_ms: lanes[0].step_ends_ms.clone(),
                bars: Vec::new(),
                ready,
                cycles_ms: Vec::new(),
            });
        }
    }
    lanes
}

/// Ready times within the drawn steps, on the reference rank's clock.
fn ticks(
    record: &RankRecord,
    mut told: Vec<(i64, NameId)>,
    (began, ended): (i64, i64),
) -> Vec<LaneTick> {
    told.retain(|(at, _)| (began..=ended).contains(at));
    told.sort_unstable();
    told.truncate(BARS_MOST);
    let tick = |(at, tensor): (i64, NameId)| LaneTick {
        tensor: record.name(tensor).to_owned(),
        at_ms: (at - began) as f64 / 1e6,
    };
    told.into_iter().map(tick).collect()
}

/// Cycle starts within the drawn steps, without duplicates.
fn cycle_starts(mut starts: Vec<i64>, (began, ended): (i64, i64)) -> Vec<f64> {
    starts.retain(|at| (began..=ended).contains(at));
    starts.sort_unstable();
    starts.dedup();
    starts.truncate(BARS_MOST);
    starts
        .into_iter()
        .map(|at| (at - began) as f64 / 1e6)
        .collect()
}

/// Successive steps of typical length whose operations are kept; one step if no successive ones are
/// kept.
fn typical(record: &RankRecord, whole: &[usize], step_ms: f64) -> Option<Vec<usize>> {
    let kept: Vec<usize> = record
        .kept
        .iter()
        .map(|step| step.index)
        .filter(|index| whole.binary_search(index).is_ok())
        .collect();
    let off = |window: &[usize]| -> f64 {
        let off = window
            .iter()
            .map(|&index| (record.steps[index].span.ns() as f64 / 1e6 - step_ms).abs());
        off.sum()
    };
    let windows = |length: usize| {
        let successive = kept
            .windows(length)
            .filter(move |window| window[length - 1] - window[0] == length - 1);
        successive.min_by(|a, b| off(a).total_cmp(&off(b)))
    };
    let best = windows(STEPS).or_else(|| windows(2)).or_else(|| windows(1));
    best.map(<[usize]>::to_vec)
}

#[derive(Debug)]
struct Bar {
    label: String,
    part: PartKind,
    span: Span,
}

/// Times at which all ranks had the tensors ready. For a file that has only its own rank's times,
/// the reference's are used.
struct AllReady<'a> {
    ranks: u32,
    /// By tensor, on the reference's clock: (middle of the execution, all ready), in order.
    told: HashMap<&'a str, Vec<(i64, i64)>>,
}

impl<'a> AllReady<'a> {
    fn new(reference: &'a RankRecord, readiness: &Readiness, ranks: u32) -> Self {
        let mut told: HashMap<&str, Vec<_>> = HashMap::new();
        for op in reference.kept.iter().flat_map(|step| &step.ops) {
            let ready = readiness.of(op);
            if ready.all().is_some() {
                let times = told.entry(reference.name(op.tensor)).or_default();
                times.push((middle(op.span), readiness.all_ready(op, &ready)));
            }
        }
        told.values_mut().for_each(|times| times.sort_unstable());
        Self { ranks, told }
    }

    /// Ready time on the clock of `record`, which is `shift` behind the reference's.
    fn of(&self, record: &RankRecord, op: &Op, shift: i64) -> i64 {
        let own = op.all_ready(self.ranks);
        if op.ticks.len() >= self.ranks as usize {
            return own;
        }
        let middle = middle(op.span).saturating_add(shift);
        let times = self
            .told
            .get(record.name(op.tensor))
            .map_or(&[][..], Vec::as_slice);
        let after = times.partition_point(|&(at, _)| at < middle);
        let near = times[after.saturating_sub(1)..].iter().take(2);
        let nearest = near.min_by_key(|&&(at, _)| at.abs_diff(middle));
        // Executions of the same operation overlap in time.
        let same = nearest.filter(|&&(at, _)| at.abs_diff(middle) <= op.span.ns().max(SAME_NS));
        same.map_or(own, |&(_, ready)| {
            ready.saturating_sub(shift).min(op.span.ended)
        })
    }
}

fn middle(span: Span) -> i64 {
    span.began + (span.ended - span.began) / 2
}

fn add(bars: &mut Vec<Bar>, record: &RankRecord, op: &Op, all_ready: i64, (from, to): (i64, i64)) {
    let mut add = |label: String, part: PartKind, span: Span| {
        if span.ended > from && span.began < to && span.ended > span.began {
            bars.push(Bar { label, part, span });
        }
    };
    let tensor = record.name(op.tensor);
    if op.negotiation.is_some() {
        // Divided like the parts of the step: waiting for the last rank, then negotiation.
        let ready = op.ready(record.rank());
        let all_ready = all_ready.min(op.span.began).max(ready);
        let until = |began: i64, ended: i64| Span { began, ended };
        add(
            format!("{tensor} waits for ranks"),
            PartKind::WaitForRanks,
            until(ready, all_ready),
        );
        add(
            format!("{tensor} negotiated"),
            PartKind::Negotiation,
            until(all_ready, op.span.began),
        );
    }
    if op.activities.is_empty() {
        add(tensor.to_owned(), PartKind::Collective, op.span);
    }
    for activity in &op.activities {
        let part = match activity.phase {
            Phase::CopyIn => PartKind::CopyIn,
            Phase::CopyOut => PartKind::CopyOut,
            Phase::Collective => PartKind::Collective,
            Phase::WaitForData | Phase::Queue | Phase::Prepare => PartKind::Prepare,
        };
        let Span { mut began, ended } = activity.span;
        if part == PartKind::Collective && began < all_ready {
            let waits = Span {
                began,
                ended: all_ready.min(ended),
            };
            add(
                format!("{tensor} waits for ranks"),
                PartKind::WaitForRanks,
                waits,
            );
            began = waits.ended;
        }
        add(
            format!("{tensor} {}", record.name(activity.name)),
            part,
            Span { began, ended },
        );
    }
}

/// Assigns every bar, in order of start, to the first free row.
fn pack(bars: Vec<Bar>, zero: i64) -> Vec<LaneBar> {
    let mut rows: Vec<i64> = Vec::new();
    let packed = bars.into_iter().map(|bar| {
        let free = rows.iter().position(|&ends| ends <= bar.span.began);
        let row = free.unwrap_or(rows.len());
        match rows.get_mut(row) {
            Some(ends) => *ends = bar.span.ended,
            None => rows.push(bar.span.ended),
        }
        LaneBar {
            label: bar.label,
            part: bar.part,
            row: row as u32,
            began_ms: (bar.span.began - zero) as f64 / 1e6,
            ended_ms: (bar.span.ended - zero) as f64 / 1e6,
        }
    });
    packed.collect()
}
