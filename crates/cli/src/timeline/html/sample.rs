//! Constructed reports, for tests and for viewing the page: ResNet-50 on four ranks with a slow
//! one, and a report with almost no data.

use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::{
    ActivityRow, Advice, Bandwidth, BandwidthPoint, Bin, Cut, CutReason, Fit, Fusion, LaneBar,
    LaneTick, Part, PartKind, Quantiles, RankBars, SourceReport, Step, StepsFoundBy, StragglerRank,
    StragglerTensor, Stragglers, Summary, TensorRow,
};
use ronde_trace::{Clock, Format, Kind, Phase};

/// Deterministic pseudo-random numbers between 0 and 1.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Quantiles around `middle`, with deviations relative to `share`.
fn spread(middle: f64, share: f64) -> Quantiles {
    let at = |times: f64| middle * (1.0 + share * times);
    let (min, p10, p50, p90, p99, max) = (at(-1.0), at(-0.6), at(0.0), at(0.9), at(1.6), at(2.2));
    Quantiles {
        n: 100,
        min,
        p10,
        p50,
        p90,
        p99,
        max,
        mean: at(0.06),
    }
}

const EXPOSED: [f64; PartKind::COUNT] = [41.0, 6.3, 2.1, 0.2, 1.4, 9.6, 0.9, 0.0, 0.0];
const BEHIND: [f64; PartKind::COUNT] = [0.0, 3.0, 6.0, 0.1, 3.2, 24.0, 2.1, 0.0, 0.0];

fn step(index: u64, times: f64, noise: &mut Noise) -> Step {
    let exposed_ms = EXPOSED.map(|ms| ms * times * (0.92 + 0.16 * noise.next()));
    let mut total_ms = exposed_ms;
    for (total, behind) in total_ms.iter_mut().zip(BEHIND) {
        *total += behind;
    }
    let ms = exposed_ms.iter().sum();
    Step {
        index,
        began_ms: 62.0 * index as f64,
        ms,
        exposed_ms,
        total_ms,
        tensors: 161,
        batches: 9,
        bytes: 102_228_128,
        partial: index == 0,
    }
}

fn summary(first_step: u64, steps: u64, times: f64, share: f64) -> Summary {
    let whole: f64 = EXPOSED.iter().sum();
    let part = |kind: PartKind| Part {
        kind,
        exposed_ms: spread(EXPOSED[kind as usize] * times, share),
        total_ms: spread(
            EXPOSED[kind as usize] * times + BEHIND[kind as usize],
            share,
        ),
        share: EXPOSED[kind as usize] / whole,
    };
    Summary {
        first_step,
        steps,
        step_ms: spread(whole * times, share),
        parts: PartKind::ALL.map(part).to_vec(),
        communication_ms: spread(41.5, share),
        overlap: 0.71,
        compute_known: false,
        phases_ms: vec![
            (Phase::CopyIn, 4.6),
            (Phase::Collective, 33.6),
            (Phase::CopyOut, 3.0),
        ],
        streamed_ms: Some([3.1, 8.4, 2.2, 19.9]),
        bytes: 102_228_128,
    }
}

fn source(rank: u32) -> SourceReport {
    SourceReport {
        path: if rank == 0 {
            "/tmp/h/t.json".into()
        } else {
            format!("/tmp/h/t.rank{rank}.json")
        },
        format: Format::Ronde,
        rank: Some(rank),
        recorded_at: Some("2026-11-21T22:31:05.250Z".into()),
        events: 154_560,
        operations: 19_320,
        tensors: 161,
        cycles: 7_311,
        span_ms: 8_412.5,
        dropped_cycles: 0,
        clock: Some(Clock {
            zero_ns: 0,
            offset_ns: -1_200,
            error_ns: 3_400,
            drift_ppm: 0.8,
        }),
        warnings: if rank == 1 {
            vec![
                "t.rank1.json, byte 8,123,001: the file ends inside an event; one event lost"
                    .into(),
            ]
        } else {
            vec![]
        },
        kinds: vec![(Kind::Allreduce, 19_320)],
        activities: [
            "NEGOTIATE_ALLREDUCE",
            "ALLREDUCE",
            "MEMCPY_IN_FUSION_BUFFER",
            "SHM_ALLREDUCE",
            "MEMCPY_OUT_FUSION_BUFFER",
        ]
        .map(|name| ActivityRow {
            name: name.into(),
            count: 19_320,
            total_ms: 91_234.5,
        })
        .to_vec(),
    }
}

fn tensor_name(i: usize) -> String {
    format!(
        "resnet50/layer{}.{}.conv{}/kernel_grad",
        4 - i / 41,
        5 - i % 41 / 8,
        i % 3 + 1
    )
}

fn lane(rank: u32, noise: &mut Noise) -> RankBars {
    let mut bars = Vec::new();
    let mut ready_ticks = Vec::new();
    for step in 0..3 {
        let zero = f64::from(step) * 61.5;
        let mut bar = |label: String, part, row, began: f64, length: f64| {
            bars.push(LaneBar {
                label,
                part,
                row,
                began_ms: zero + began,
                ended_ms: zero + began + length,
            });
        };
        bar("computation".into(), PartKind::Compute, 0, 0.0, 41.0);
        let mut free = 0.0f64;
        for batch in 0..9 {
            let ready = 3.0 + 4.7 * f64::from(batch) + noise.next();
            let late = if rank == 2 { 0.4 } else { 4.0 + noise.next() };
            let name = format!(
                "{} and {} more",
                tensor_name(batch as usize * 17),
                12 + batch
            );
            let row = 1 + batch as u32 % 2;
            for tensor in 0..12 {
                ready_ticks.push(LaneTick {
                    tensor: tensor_name(batch as usize * 17 + tensor),
                    at_ms: zero + ready - 0.2 * (12.0 - tensor as f64),
                });
            }
            bar(name.clone(), PartKind::WaitForRanks, row, ready, late);
            let start = free.max(ready + late + 0.7);
            bar(
                name.clone(),
                PartKind::Negotiation,
                row,
                ready + late,
                start - ready - late,
            );
            bar(name.clone(), PartKind::CopyIn, 3, start, 0.4);
            bar(name.clone(), PartKind::Collective, 3, start + 0.4, 3.4);
            bar(name, PartKind::CopyOut, 3, start + 3.8, 0.3);
            free = start + 4.1;
        }
    }
    bars.sort_by(|a, b| a.began_ms.total_cmp(&b.began_ms));
    RankBars {
        rank,
        step_ends_ms: vec![61.5, 123.0, 184.5],
        bars,
        ready: ready_ticks,
        cycles_ms: (0..36).map(|cycle| 5.0 * f64::from(cycle)).collect(),
    }
}

/// Report of a training job of four ranks, with a start-up phase; rank 2 is late.
pub(super) fn resnet50() -> Report {
    let noise = &mut Noise(4);
    let steps = (0..120)
        .map(|i| step(i, if i < 12 { 3.2 - 0.15 * i as f64 } else { 1.0 }, noise))
        .collect();
    let rank = |rank: u32| {
        let slow = rank == 2;
        StragglerRank {
            rank,
            last: if slow { 15_210 } else { 700 },
            last_share: if slow { 0.876 } else { 0.041 },
            lag_ms: spread(if slow { 4.4 } else { 0.12 }, 0.3),
            step_ms_without: if slow { 56.1 } else { 61.4 },
            cost_ms: if slow { 5.4 } else { 0.1 },
        }
    };
    let late = |i: usize| StragglerTensor {
        name: tensor_name(i),
        n: 108,
        last_rank: 2,
        last_share: 0.93,
        spread_ms: spread(5.2 - 0.1 * i as f64, 0.25),
    };
    let point = |power: u32| {
        let bytes = 3u64 << power;
        let us = 28.0 + bytes as f64 / 4_100.0;
        BandwidthPoint {
            bytes,
            n: 400,
            us_p10: us * 0.9,
            us_p50: us,
            us_p90: us * 1.4,
            gb_per_s: bytes as f64 / us / 1e3,
        }
    };
    let fit = Fit {
        alpha_us: 28.0,
        us_per_mib: 255.7,
        gb_per_s: 4.1,
        relative_error: 0.06,
    };
    let bin = |power: u32, batches: u64| Bin {
        from: 1 << power,
        to: 2 << power,
        batches,
        tensors: batches * 11,
    };
    Report {
        ronde_timeline: 1,
        sources: (0..4).map(source).collect(),
        ranks: 4,
        reference_rank: 0,
        steps_found_by: StepsFoundBy::Names,
        steps,
        startup: Some(summary(1, 11, 2.4, 0.3)),
        steady: Some(summary(12, 108, 1.0, 0.08)),
        stragglers: Some(Stragglers { operations: 17_388, ranks: (0..4).map(rank).collect(), slowest: Some(2), tensors: (0..30).map(late).collect() }),
        fusion: Some(Fusion {
            batches_per_step: spread(9.0, 0.1),
            tensors_per_batch: spread(17.9, 0.5),
            bytes_per_batch: spread(11_358_680.0, 0.6),
            histogram: vec![bin(12, 14), bin(13, 0), bin(14, 22), bin(15, 41), bin(16, 30), bin(17, 64), bin(18, 77), bin(19, 51), bin(20, 108), bin(21, 160), bin(22, 230), bin(23, 90), bin(24, 12)],
            cuts: vec![
                Cut { reason: CutReason::NotReady, batches: 702, share: 0.722 },
                Cut { reason: CutReason::Threshold, batches: 162, share: 0.167 },
                Cut { reason: CutReason::EndOfStep, batches: 108, share: 0.111 },
            ],
            threshold_bytes: Some(64 << 20),
            threshold_from_file: true,
            cycle_time_ms: Some(5.0),
        }),
        bandwidth: vec![
            Bandwidth { activity: "SHM_ALLREDUCE".into(), points: (10..24).map(point).collect(), fit: Some(fit) },
            Bandwidth { activity: "SHM_BCAST".into(), points: (8..12).map(point).collect(), fit: None },
        ],
        tensors: (0..161).map(|i| TensorRow {
            name: tensor_name(i), kind: Kind::Allreduce, dtype: Some("float32".into()), elements: Some(589_824), n: 108,
            ready_us: vec![Some(3_000.0); 4], ready_jitter_us: 40.0, latency_ms: spread(9.0, 0.4),
        }).collect(),
        negotiate_cached_ms: Some(spread(2.4, 0.3)),
        negotiate_uncached_ms: Some(spread(6.1, 0.3)),
        withheld: None,
        stages: Vec::new(),
        advice: vec![
            Advice {
                sentence: "Rank 2 is last in 88 % of the operations, by 4.4 ms in the median; a step would take 56.1 ms without it, 5.4 ms less: look at its input pipeline or its node.".into(),
                variable: None, value: None, gain_ms: Some(5.4),
            },
            Advice {
                sentence: "Tensors that are ready everywhere wait 2.4 ms for the next cycle: a shorter cycle time would start them sooner.".into(),
                variable: Some("HOROVOD_CYCLE_TIME".into()), value: Some("1".into()), gain_ms: Some(1.9),
            },
        ],
        lanes: (0..4).map(|rank| lane(rank, noise)).collect(),
        warnings: vec!["Clocks of ranks may be wrong by 3.4 µs against one another.".into()],
    }
}

/// Report of a file with almost no data.
pub(super) fn nothing() -> Report {
    Report {
        ronde_timeline: 1,
        sources: vec![],
        ranks: 1,
        reference_rank: 0,
        steps_found_by: StepsFoundBy::Nothing,
        steps: vec![],
        startup: None,
        steady: None,
        stragglers: None,
        fusion: None,
        bandwidth: vec![],
        tensors: vec![],
        negotiate_cached_ms: None,
        negotiate_uncached_ms: None,
        withheld: None,
        stages: Vec::new(),
        advice: vec![],
        lanes: vec![],
        warnings: vec![],
    }
}
