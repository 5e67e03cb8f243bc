//! Simulated job with known properties: ranks compute, tensors become ready, cycles take the
//! tensors that are ready everywhere, and batches are sent one after another over a link of α +
//! bytes / bandwidth. It is passed to a collector like a file.

use smallvec::SmallVec;

use crate::analysis::{Collector, RankRecord};
use crate::{
    Activity, Clock, Format, Kind, Mark, MarkKind, NameId, Operation, Phase, Source, Span, Tick,
    Visitor,
};
use ronde_job::Dtype;
use ronde_job::fusion::{Item, Plan};

/// Parameters of the job. Times in microseconds, sizes in bytes.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) ranks: u32,
    /// Operation on all tensors.
    pub(super) kind: Kind,
    pub(super) tensors: Vec<u64>,
    pub(super) steps: usize,
    /// Time of the forward pass, before the first tensor is ready.
    pub(super) forward_us: f64,
    /// Time of the backward pass, during which tensors become ready evenly.
    pub(super) backward_us: f64,
    /// Rank with a longer backward pass, and the additional time.
    pub(super) slow: Option<(u32, f64)>,
    /// Other ranks that are late by the same.
    pub(super) slow_too: Vec<u32>,
    /// Maximum variation of ready times.
    pub(super) jitter_us: f64,
    pub(super) threshold: u64,
    /// Limit of batches of GPU tensors; if set, the tensors are on GPUs.
    pub(super) gpu_threshold: Option<u64>,
    /// Whether each operation has the first stage of a hierarchical one before the collective.
    pub(super) is_hierarchical: bool,
    pub(super) cycle_us: f64,
    pub(super) negotiate_us: f64,
    pub(super) alpha_us: f64,
    pub(super) gb_per_s: f64,
    /// Number of start-up steps, and the factor by which they compute longer.
    pub(super) startup: (usize, f64),
    pub(super) format: Format,
    /// Whether the file marks steps, states its settings, and has every rank's ticks.
    pub(super) marks: bool,
    pub(super) says_settings: bool,
    pub(super) ticks: bool,
    /// Whether the tensors of each step have names of their own.
    pub(super) fresh_names: bool,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            ranks: 2,
            kind: Kind::Allreduce,
            // 40 tensors, 100 MB.
            tensors: (0..40)
                .map(|i| if i % 4 == 0 { 8 << 20 } else { 400 << 10 })
                .collect(),
            steps: 30,
            forward_us: 10_000.0,
            backward_us: 40_000.0,
            slow: None,
            slow_too: Vec::new(),
            jitter_us: 50.0,
            threshold: 64 << 20,
            gpu_threshold: None,
            is_hierarchical: false,
            cycle_us: 1_000.0,
            negotiate_us: 30.0,
            alpha_us: 200.0,
            gb_per_s: 4.0,
            startup: (0, 1.0),
            format: Format::Horovod,
            marks: false,
            says_settings: true,
            ticks: true,
            fresh_names: false,
        }
    }
}

/// Wall clock at the job's start.
const EPOCH_NS: i64 = 1_700_000_000_000_000_000;

struct Names<'a> {
    collector: &'a mut Collector,
    known: Vec<String>,
}

impl Names<'_> {
    fn id(&mut self, name: &str) -> NameId {
        let place = self.known.iter().position(|known| known == name);
        let index = place.unwrap_or_else(|| {
            self.known.push(name.to_owned());
            let index = self.known.len() - 1;
            self.collector.name(NameId(index as u32), name);
            index
        });
        NameId(index as u32)
    }
}

impl Job {
    /// Record of the file of `rank`, whose zero is `zero_us` after the job's. All clocks are
    /// aligned.
    pub(super) fn record(&self, rank: u32, zero_us: f64) -> RankRecord {
        let mut collector = Collector::new();
        self.tell(rank, zero_us, &mut collector);
        collector.finish(self.source(rank, zero_us))
    }

    /// Properties of the file.
    pub(super) fn source(&self, rank: u32, zero_us: f64) -> Source {
        let horovod = self.format == Format::Horovod;
        Source {
            path: format!("t.rank{rank}.json").into(),
            format: self.format,
            rank: (!horovod).then_some(rank),
            size: (!horovod).then_some(self.ranks),
            epoch_ns: Some(EPOCH_NS + (zero_us * 1e3) as i64),
            clock: (!horovod).then(|| Clock {
                zero_ns: (zero_us * 1e3) as i64,
                ..Clock::default()
            }),
            fusion_threshold_bytes: self.says_settings.then_some(self.threshold),
            gpu_fusion_threshold_bytes: self.gpu_threshold,
            cycle_time_ms: self.says_settings.then_some(self.cycle_us / 1e3),
            backend: None,
            shaped: false,
            incomplete: false,
            host_only: false,
            dropped_cycles: 0,
            bytes: 0,
            events: 0,
            warnings: Vec::new(),
        }
    }

    fn stages(&self) -> &'static [&'static str] {
        match (self.gpu_threshold, self.is_hierarchical) {
            (Some(_), _) => &["NCCL_ALLREDUCE"],
            (None, false) => &["MPI_ALLREDUCE"],
            (None, true) => &["SHM_REDUCESCATTER", "MPI_ALLREDUCE"],
        }
    }

    /// Passes the content of the file of `rank` to `collector`.
    pub(super) fn tell(&self, rank: u32, zero_us: f64, collector: &mut Collector) {
        let mut names = Names {
            collector,
            known: Vec::new(),
        };
        let ns = |us: f64| ((us - zero_us) * 1e3).round() as i64;
        let mut seed = 7u64;
        let mut noise = || {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as f64 / f64::from(1u32 << 31)
        };
        let mut plan = Plan::default();
        let (mut cycle, mut free, mut zero) = (f64::NEG_INFINITY, 0.0f64, 0.0f64);
        for step in 0..self.steps {
            let factor = if step < self.startup.0 {
                self.startup.1
            } else {
                1.0
            };
            let n = self.tensors.len();
            // ready[tensor][rank]
            let ready: Vec<Vec<f64>> = (0..n)
                .map(|tensor| {
                    let share = (tensor + 1) as f64 / n as f64;
                    (0..self.ranks)
                        .map(|r| {
                            let is_slow =
                                |&(slow, _): &(u32, f64)| slow == r || self.slow_too.contains(&r);
                            let late = self.slow.filter(is_slow).map_or(0.0, |(_, us)| us);
                            let own = self.forward_us * factor
                                + (self.backward_us * factor + late) * share;
                            zero + own + self.jitter_us * noise()
                        })
                        .collect()
                })
                .collect();
            let all_ready: Vec<f64> = ready
                .iter()
                .map(|at| at.iter().copied().fold(0.0, f64::max))
                .collect();
            let mut open: Vec<usize> = (0..n).collect();
            open.sort_by(|&a, &b| all_ready[a].total_cmp(&all_ready[b]));
            while let Some(&next) = open.first() {
                let mut began = free.max(cycle + self.cycle_us);
                while began < all_ready[next] {
                    began += self.cycle_us;
                }
                cycle = began;
                names.collector.mark(Mark {
                    kind: MarkKind::Cycle,
                    at: ns(began),
                });
                let now: Vec<usize> = open
                    .iter()
                    .copied()
                    .take_while(|&tensor| all_ready[tensor] <= began)
                    .collect();
                open.drain(..now.len());
                let items: Vec<Item> = now
                    .iter()
                    .map(|&tensor| Item {
                        // Alltoalls are not fused.
                        class: if self.kind == Kind::Alltoall {
                            tensor as u32
                        } else {
                            0
                        },
                        bytes: self.tensors[tensor],
                        group: None,
                    })
                    .collect();
                plan.make(
                    &items,
                    self.gpu_threshold
                        .unwrap_or(self.threshold)
                        .min(self.threshold),
                );
                let mut at = began + self.negotiate_us;
                for batch in plan.batches() {
                    let members: Vec<usize> =
                        batch.iter().map(|&index| now[index as usize]).collect();
                    let bytes: u64 = members.iter().map(|&tensor| self.tensors[tensor]).sum();
                    let ended = at + self.alpha_us + bytes as f64 / (self.gb_per_s * 1e3);
                    for &tensor in &members {
                        let name = if self.fresh_names {
                            format!("g{tensor}.{step}")
                        } else {
                            format!("g{tensor}")
                        };
                        let span = Span {
                            began: ns(at),
                            ended: ns(ended),
                        };
                        let ticks: SmallVec<[Tick; 4]> = (0..self.ranks)
                            .filter(|&r| self.ticks || r == rank)
                            .map(|r| Tick {
                                rank: r,
                                at: ns(ready[tensor][r as usize]),
                            })
                            .collect();
                        let first = ready[tensor].iter().copied().fold(f64::INFINITY, f64::min);
                        let operation = Operation {
                            tensor: names.id(&name),
                            kind: self.kind,
                            negotiation: Some(Span {
                                began: ns(first),
                                ended: ns(all_ready[tensor]),
                            }),
                            ticks,
                            execution: Some(span),
                            activities: self
                                .stages()
                                .iter()
                                .map(|stage| Activity {
                                    name: names.id(stage),
                                    phase: Phase::Collective,
                                    span,
                                })
                                .collect(),
                            sums: None,
                            dtype: Some(Dtype::F32),
                            elements: Some(self.tensors[tensor] / 4),
                            bytes: Some(self.tensors[tensor]),
                            refused: false,
                        };
                        names.collector.operation(&operation);
                    }
                    at = ended;
                }
                free = at;
            }
            zero = free;
            if self.marks {
                names.collector.mark(Mark {
                    kind: MarkKind::Step,
                    at: ns(zero),
                });
            }
        }
    }
}
