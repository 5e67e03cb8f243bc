//! Constructed report for tests, with numbers that can be checked by mental arithmetic.

use std::iter;

use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::{
    ActivityRow, Advice, Bandwidth, BandwidthPoint, Bin, Cut, CutReason, Fit, Fusion, LaneBar,
    LaneTick, Part, PartKind, Quantiles, REPORT_VERSION, RankBars, SourceReport, Step,
    StepsFoundBy, StragglerRank, StragglerTensor, Stragglers, Summary, TensorRow,
};
use ronde_trace::{Clock, Format, Kind};

/// Milliseconds of each part of a steady step: 40 in total.
const STEADY_MS: [f64; PartKind::COUNT] = [24.0, 3.0, 2.0, 0.0, 0.4, 10.0, 0.6, 0.0, 0.0];

/// Milliseconds of each part of a step at start-up: 80 in total.
const STARTUP_MS: [f64; PartKind::COUNT] = [44.0, 3.0, 22.0, 0.0, 0.4, 10.0, 0.6, 0.0, 0.0];

/// Report of five steps on two ranks: the first step is slow, the last is incomplete; two tensors
/// are reduced and one is gathered.
pub(in crate::timeline) fn report() -> Report {
    Report {
        ronde_timeline: REPORT_VERSION,
        sources: vec![source(0), source(1)],
        ranks: 2,
        reference_rank: 0,
        steps_found_by: StepsFoundBy::Marks,
        steps: (0..5).map(step).collect(),
        startup: Some(summary(0, 1, STARTUP_MS)),
        steady: Some(summary(1, 3, STEADY_MS)),
        stragglers: Some(stragglers()),
        fusion: Some(fusion()),
        bandwidth: vec![bandwidth()],
        tensors: vec![
            tensor("conv1.weight", Kind::Allreduce, 9408, 20.0, 4.0),
            tensor("fc.weight", Kind::Allreduce, 2_048_000, 5.0, 12.0),
            tensor("metrics", Kind::Allgather, 4, 21.0, 1.0),
        ],
        negotiate_cached_ms: Some(quantiles(0.05)),
        negotiate_uncached_ms: Some(quantiles(0.15)),
        withheld: None,
        stages: Vec::new(),
        advice: vec![Advice {
            sentence: "Rank 1 is last for 75 % of the tensors and costs 3.0 ms of the 40.0 ms of a step: look at its \
                       input pipeline and its machine first."
                .to_owned(),
            variable: None,
            value: None,
            gain_ms: Some(3.0),
        }],
        lanes: (0..2).map(lane).collect(),
        warnings: vec!["The clocks may be wrong by 0.5 ms.".to_owned()],
    }
}

fn source(rank: u32) -> SourceReport {
    SourceReport {
        path: if rank == 0 { "t.json" } else { "t.rank1.json" }.to_owned(),
        format: Format::Ronde,
        rank: Some(rank),
        recorded_at: (rank == 0).then(|| "2026-11-21T22:31:05.250Z".to_owned()),
        events: 1234,
        operations: 15,
        tensors: 3,
        cycles: 40,
        span_ms: 215.0,
        dropped_cycles: u64::from(rank),
        clock: (rank == 1).then_some(Clock {
            zero_ns: 1_000_000,
            offset_ns: 12_500,
            error_ns: 4_000,
            drift_ppm: 0.5,
        }),
        warnings: if rank == 1 {
            vec!["the file ends inside an event (line 7, byte 1200)".to_owned()]
        } else {
            Vec::new()
        },
        kinds: vec![(Kind::Allreduce, 10), (Kind::Allgather, 5)],
        activities: vec![ActivityRow {
            name: "SHM_ALLREDUCE".to_owned(),
            count: 10,
            total_ms: 64.0,
        }],
    }
}

fn step(index: u64) -> Step {
    let parts = if index == 0 { STARTUP_MS } else { STEADY_MS };
    Step {
        index,
        began_ms: [0.0, 80.0, 120.0, 160.0, 200.0][index as usize],
        ms: parts.iter().sum(),
        exposed_ms: parts,
        total_ms: hidden(parts),
        tensors: 3,
        batches: 2,
        bytes: 8 << 20,
        partial: index == 4,
    }
}

/// Adds 6 ms of the collective that are hidden behind computation.
fn hidden(mut parts: [f64; PartKind::COUNT]) -> [f64; PartKind::COUNT] {
    parts[5] += 6.0;
    parts
}

fn summary(first_step: u64, steps: u64, ms: [f64; PartKind::COUNT]) -> Summary {
    let step_ms: f64 = ms.iter().sum();
    let parts = PartKind::ALL.into_iter().zip(ms).zip(hidden(ms));
    Summary {
        first_step,
        steps,
        step_ms: quantiles(step_ms),
        parts: parts
            .map(|((kind, exposed), total)| Part {
                kind,
                exposed_ms: quantiles(exposed),
                total_ms: quantiles(total),
                share: exposed / step_ms,
            })
            .collect(),
        communication_ms: quantiles(17.0),
        overlap: 0.35,
        compute_known: false,
        phases_ms: Vec::new(),
        streamed_ms: None,
        bytes: 8 << 20,
    }
}

fn stragglers() -> Stragglers {
    let rank = |rank, last, cost_ms| StragglerRank {
        rank,
        last,
        last_share: last as f64 / 12.0,
        lag_ms: quantiles(cost_ms),
        step_ms_without: 40.0 - cost_ms,
        cost_ms,
    };
    Stragglers {
        operations: 12,
        ranks: vec![rank(0, 3, 0.0), rank(1, 9, 3.0)],
        slowest: Some(1),
        tensors: vec![StragglerTensor {
            name: "fc.weight".to_owned(),
            n: 4,
            last_rank: 1,
            last_share: 1.0,
            spread_ms: quantiles(3.2),
        }],
    }
}

fn fusion() -> Fusion {
    let bin = |from, batches, tensors| Bin {
        from,
        to: 2 * from,
        batches,
        tensors,
    };
    let cut = |reason, share| Cut {
        reason,
        batches: (share * 8.0) as u64,
        share,
    };
    Fusion {
        batches_per_step: quantiles(2.0),
        tensors_per_batch: quantiles(2.0),
        bytes_per_batch: quantiles(4e6),
        histogram: vec![bin(16, 4, 4), bin(32, 0, 0), bin(8 << 20, 4, 8)],
        cuts: vec![
            cut(CutReason::NotReady, 0.5),
            cut(CutReason::EndOfStep, 0.5),
        ],
        threshold_bytes: Some(128 << 20),
        threshold_from_file: true,
        cycle_time_ms: Some(1.0),
    }
}

fn bandwidth() -> Bandwidth {
    // Exactly 200 µs plus 400 µs per MiB.
    let point = |mib: f64| {
        let us = 200.0 + 400.0 * mib;
        let bytes = mib * f64::from(1 << 20);
        BandwidthPoint {
            bytes: bytes as u64,
            n: 4,
            us_p10: 0.9 * us,
            us_p50: us,
            us_p90: 1.1 * us,
            gb_per_s: bytes / us / 1e3,
        }
    };
    Bandwidth {
        activity: "SHM_ALLREDUCE".to_owned(),
        points: vec![point(1.0), point(8.0)],
        fit: Some(Fit {
            alpha_us: 200.0,
            us_per_mib: 400.0,
            gb_per_s: f64::from(1 << 20) / 400.0 / 1e3,
            relative_error: 0.02,
        }),
    }
}

fn tensor(name: &str, kind: Kind, elements: u64, ready_ms: f64, latency_ms: f64) -> TensorRow {
    TensorRow {
        name: name.to_owned(),
        kind,
        dtype: Some("float32".to_owned()),
        elements: Some(elements),
        n: 4,
        ready_us: [0.0, 1.0].map(|late| Some((ready_ms + late) * 1e3)).into(),
        ready_jitter_us: 100.0,
        latency_ms: quantiles(latency_ms),
    }
}

/// Three steady steps of a rank, each with two batches.
fn lane(rank: u32) -> RankBars {
    let (mut bars, mut ready) = (Vec::new(), Vec::new());
    for step in 0..3 {
        let zero = 40.0 * f64::from(step);
        let mut bar = |label: &str, part, began: f64, ended: f64| {
            bars.push(LaneBar {
                label: label.to_owned(),
                part,
                row: 0,
                began_ms: zero + began,
                ended_ms: zero + ended,
            });
        };
        bar("computation", PartKind::Compute, 0.0, 24.0);
        for (tensor, at) in [("fc.weight", 5.0), ("conv1.weight", 20.0)] {
            bar(tensor, PartKind::WaitForRanks, at, at + 3.0);
            bar(tensor, PartKind::Negotiation, at + 3.0, at + 5.0);
            bar(tensor, PartKind::Collective, at + 5.0, at + 15.0);
            ready.push(LaneTick {
                tensor: tensor.to_owned(),
                at_ms: zero + at,
            });
        }
    }
    RankBars {
        rank,
        step_ends_ms: vec![40.0, 80.0, 120.0],
        bars,
        ready,
        cycles_ms: vec![8.0, 23.0, 48.0],
    }
}

/// Ten values around `p50`: a tenth of them 10 % below, a tenth 10 % above.
fn quantiles(p50: f64) -> Quantiles {
    Quantiles {
        n: 10,
        min: 0.8 * p50,
        p10: 0.9 * p50,
        p50,
        p90: 1.1 * p50,
        p99: 1.2 * p50,
        max: 1.2 * p50,
        mean: p50,
    }
}

/// Variant of [`report`] without data.
pub(in crate::timeline) fn empty() -> Report {
    let sources = iter::once(SourceReport {
        operations: 0,
        tensors: 0,
        cycles: 0,
        kinds: Vec::new(),
        ..source(0)
    });
    Report {
        sources: sources.collect(),
        ranks: 1,
        steps_found_by: StepsFoundBy::Nothing,
        steps: Vec::new(),
        startup: None,
        steady: None,
        stragglers: None,
        fusion: None,
        bandwidth: Vec::new(),
        tensors: Vec::new(),
        negotiate_cached_ms: None,
        negotiate_uncached_ms: None,
        withheld: None,
        stages: Vec::new(),
        advice: Vec::new(),
        lanes: Vec::new(),
        warnings: Vec::new(),
        ..report()
    }
}
