//! Step simulator: computes the duration of a step with the runtime's own planner.
//!
//! A cycle begins when the previous cycle has ended and the cycle time has passed. It negotiates,
//! takes the tensors that are ready on all ranks, and runs their batches one after another, as
//! `docs/TENSOR.md` describes. Ronde's cycles sleep until a tensor is pending, and the last cycle
//! of a step may begin early. Horovod's cycles also run without pending tensors, so the phase of
//! the cycles relative to the step is random: the result is the mean over evenly spaced phases.

use serde::{Deserialize, Serialize};

use super::{Costs, Messages, Setting, Workload};
use crate::fusion::{Item, Plan};
use crate::hold::Hold;

/// Rules by which cycles start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// Cycles run periodically even without pending tensors, as in Horovod.
    pub ticking: bool,
    /// A cycle begins immediately when all tensors of the step are ready, and is delayed where
    /// waiting for them takes less time than another batch ([`Hold`]); `RONDE_EARLY_CYCLE`.
    pub early: bool,
    /// Number of phases for the mean if cycles are periodic, at least 1.
    pub phases: u32,
}

impl Rules {
    /// Ronde's rules: cycles sleep until a tensor is pending; the last one of a step is early.
    pub const RONDE: Self = Self {
        ticking: false,
        early: true,
        phases: 1,
    };
    /// Horovod's rules.
    pub const HOROVOD: Self = Self {
        ticking: true,
        early: false,
        phases: 3,
    };
}

/// Maximum number of consecutive steps that are simulated, if the end of one delays the first cycle
/// of the next.
const STEPS_MOST: u32 = 4;

/// Simulates steps of one workload; reused to keep its allocations.
#[derive(Clone, Debug)]
pub struct Simulator {
    rules: Rules,
    items: Vec<Item>,
    ready_us: Vec<f64>,
    /// Earliest time at which the tensor or a later one is pending on a rank.
    pending_us: Vec<f64>,
    tail_us: f64,
    plan: Plan,
    /// Time from the first pending tensor, ns, and size of each tensor, for the hold.
    submitted: Vec<(u64, u64)>,
    steps: u64,
    batches: u64,
    bytes: f64,
    /// Sum of bytes² over the batches.
    squares: f64,
    largest_bytes: f64,
    /// Sum over the steps of the time after all tensors are ready, µs.
    exposed_us: f64,
}

/// A simulated step: means over its phases.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed {
    pub(super) step_us: f64,
    batches: f64,
    /// Mean size of the batch that a byte is in.
    batch_bytes: f64,
    exposed_us: f64,
}

impl Observed {
    /// Exposed share of the step, ln(batches per step), ln(bytes per batch).
    pub(super) fn quantities(&self) -> [f64; 3] {
        [
            self.exposed_us / self.step_us,
            self.batches.max(1.0).ln(),
            self.batch_bytes.max(1.0).ln(),
        ]
    }
}

/// State of the cycles.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// Start of the last cycle.
    began: f64,
    /// End of the last cycle.
    free: f64,
}

impl Simulator {
    /// Creates a simulator of `workload`.
    pub fn new(workload: &Workload, rules: Rules) -> Self {
        let mut pending_us: Vec<f64> = workload.tensors.iter().map(|t| t.pending_us).collect();
        let mut earliest = f64::INFINITY;
        for pending in pending_us.iter_mut().rev() {
            earliest = earliest.min(*pending);
            *pending = earliest;
        }
        Self {
            rules,
            items: workload.tensors.iter().map(|t| t.item).collect(),
            ready_us: workload.tensors.iter().map(|t| t.ready_us).collect(),
            pending_us,
            tail_us: workload.tail_us,
            plan: Plan::default(),
            submitted: Vec::new(),
            steps: 0,
            batches: 0,
            bytes: 0.0,
            squares: 0.0,
            largest_bytes: 0.0,
            exposed_us: 0.0,
        }
    }

    /// Returns the mean duration of a step, µs.
    pub fn step_us(&mut self, costs: &Costs, setting: &Setting) -> f64 {
        self.stretched_step_us(costs, setting, 1.0)
    }

    /// Returns the mean number of batches of the steps simulated so far.
    pub fn batches_per_step(&self) -> f64 {
        self.batches as f64 / self.steps.max(1) as f64
    }

    /// Returns the messages of a step: the mean of their number, and the largest of all.
    pub(super) fn messages(&mut self, costs: &Costs, setting: &Setting) -> Messages {
        (self.steps, self.batches, self.largest_bytes) = (0, 0, 0.0);
        self.step_us(costs, setting);
        Messages {
            per_step: self.batches_per_step(),
            largest_bytes: self.largest_bytes,
        }
    }

    /// Simulates a step whose computation takes `stretch` times as long, with its batches.
    pub(super) fn observed_step(
        &mut self,
        costs: &Costs,
        setting: &Setting,
        stretch: f64,
    ) -> Observed {
        (self.steps, self.batches) = (0, 0);
        (self.bytes, self.squares, self.exposed_us) = (0.0, 0.0, 0.0);
        let step_us = self.stretched_step_us(costs, setting, stretch);
        Observed {
            step_us,
            batches: self.batches_per_step(),
            batch_bytes: self.squares / self.bytes.max(1.0),
            exposed_us: self.exposed_us / self.steps.max(1) as f64,
        }
    }

    /// Like [`step_us`](Self::step_us), with a computation that takes `stretch` times as long.
    pub(super) fn stretched_step_us(
        &mut self,
        costs: &Costs,
        setting: &Setting,
        stretch: f64,
    ) -> f64 {
        let idle_us = if setting.cache {
            costs.cached
        } else {
            costs.uncached
        }
        .base_us;
        let period_us = setting.cycle_us.max(idle_us).max(1e-3);
        let stretch = stretch * (1.0 + costs.polling * idle_us / period_us);
        let mut run = Run {
            costs,
            setting,
            stretch,
            period_us,
            hold: self.hold(costs, setting, stretch),
        };
        if self.rules.ticking {
            let phases = self.rules.phases.max(1);
            let step = |phase: u32| {
                let free = period_us * (f64::from(phase) + 0.5) / f64::from(phases);
                let mut clock = Clock {
                    began: f64::NEG_INFINITY,
                    free,
                };
                self.step(&mut run, 0.0, &mut clock)
            };
            return (0..phases).map(step).sum::<f64>() / f64::from(phases);
        }
        let mut clock = Clock {
            began: f64::NEG_INFINITY,
            free: 0.0,
        };
        let mut ended = self.step(&mut run, 0.0, &mut clock);
        let first_us = self
            .pending_us
            .first()
            .map_or(0.0, |pending| pending * stretch);
        if clock.began + setting.cycle_us <= ended + first_us {
            return ended; // cycles sleep when the next step begins, as in this one
        }
        let began = ended;
        for _ in 1..STEPS_MOST {
            ended = self.step(&mut run, ended, &mut clock);
        }
        (ended - began) / f64::from(STEPS_MOST - 1)
    }

    /// Simulates a step that begins at `zero`; returns its end.
    fn step(&mut self, run: &mut Run<'_>, zero: f64, clock: &mut Clock) -> f64 {
        let Run {
            costs,
            setting,
            stretch,
            period_us,
            hold,
        } = *run;
        clock.free = clock.free.max(zero);
        self.steps += 1;
        let count = self.items.len();
        let all_ready = zero + self.ready_us.last().map_or(0.0, |ready| ready * stretch);
        let first_pending = zero + self.pending_us.first().map_or(0.0, |first| first * stretch);
        let held = |at: f64| {
            let since_ns = ((at - first_pending).max(0.0) * 1e3) as u64;
            at + (hold.begin_ns(since_ns) - since_ns) as f64 / 1e3
        };
        let mut overlapped_us = 0.0;
        let mut done = 0;
        while done < count {
            let next_ready = zero + self.ready_us[done] * stretch;
            let mut began = clock.free.max(clock.began + setting.cycle_us);
            if !self.rules.ticking {
                began = began.max(zero + self.pending_us[done] * stretch);
            }
            began = held(began);
            if began < next_ready {
                began =
                    (began + ((next_ready - began) / period_us).ceil() * period_us).max(next_ready);
                began = held(began);
            }
            if self.rules.early {
                began = began.min(clock.free.max(all_ready));
            }
            let open = &self.ready_us[done..];
            let ready = open
                .partition_point(|&ready| zero + ready * stretch <= began)
                .max(1);
            self.plan.make(
                &self.items[done..done + ready],
                setting.fusion_threshold_bytes,
            );
            let negotiation = if setting.cache {
                costs.cached
            } else {
                costs.uncached
            };
            let moving = began + negotiation.base_us + negotiation.per_tensor_us * ready as f64;
            let free = self.moved(run, done, moving);
            overlapped_us += (free.min(all_ready) - began).max(0.0);
            *clock = Clock { began, free };
            done += ready;
        }
        self.exposed_us += (clock.free - all_ready).max(0.0);
        clock.free.max(all_ready) + costs.contention * overlapped_us + self.tail_us
    }

    /// Returns the hold of the steps.
    fn hold(&mut self, costs: &Costs, setting: &Setting, stretch: f64) -> Hold {
        let (Some(first_us), Some(item), true) =
            (self.ready_us.first(), self.items.last(), self.rules.early)
        else {
            return Hold::default();
        };
        let since_first = |at: &f64| ((at - first_us) * stretch * 1e3) as u64;
        self.submitted.clear();
        self.submitted.extend(
            self.ready_us
                .iter()
                .zip(&self.items)
                .map(|(at, item)| (since_first(at), item.bytes)),
        );
        let message = costs.collective(item.class, setting);
        Hold::new(&self.submitted, message, setting.fusion_threshold_bytes)
    }

    /// Returns the end of the planned batches, which begin with item `done`.
    fn moved(&mut self, run: &Run<'_>, done: usize, began: f64) -> f64 {
        let Run { costs, setting, .. } = run;
        let copying = &costs.copying;
        // Ends of the copy in, the collective and the copy out of the last batch.
        let (mut copied, mut collected, mut out) = (began, began, began);
        for batch in self.plan.batches() {
            let bytes: f64 = batch
                .iter()
                .map(|&i| self.items[done + i as usize].bytes as f64)
                .sum();
            let class = self.items[done + batch[0] as usize].class;
            let collective = costs.collective(class, setting);
            let collective_us = collective.alpha_us + collective.us_per_byte * bytes;
            let copy_us = if batch.len() > 1 {
                copying.way_us(batch.len(), bytes)
            } else {
                0.0
            };
            if copying.overlaps {
                copied += copy_us;
                collected = copied.max(collected) + collective_us;
                out = collected.max(out) + copy_us;
            } else {
                out += copy_us + collective_us + copy_us;
            }
            self.batches += 1;
            self.bytes += bytes;
            self.squares += bytes * bytes;
            self.largest_bytes = self.largest_bytes.max(bytes);
        }
        out
    }
}

/// Inputs of one simulation.
#[derive(Clone, Copy)]
struct Run<'a> {
    costs: &'a Costs,
    setting: &'a Setting,
    stretch: f64,
    period_us: f64,
    hold: Hold,
}

#[cfg(test)]
mod tests {
    use super::super::{Collective, Copying, Negotiation, Operation, WorkTensor};
    use super::*;

    /// Tensors of 1,000 bytes, one per 1 ms from 10 ms on.
    fn workload(tensors: u32) -> Workload {
        let tensor = |i: u32| WorkTensor {
            item: Item {
                class: 0,
                bytes: 1_000,
                group: None,
            },
            pending_us: 10_000.0 + 1_000.0 * f64::from(i),
            ready_us: 10_000.0 + 1_000.0 * f64::from(i),
        };
        Workload {
            tensors: (0..tensors).map(tensor).collect(),
            tail_us: 500.0,
        }
    }

    /// 100 µs per message, 0.1 µs per byte: 200 µs for a tensor; 20 µs per cycle and 5 per tensor.
    fn costs() -> Costs {
        Costs {
            cached: Negotiation {
                base_us: 20.0,
                per_tensor_us: 5.0,
            },
            flat: vec![Collective {
                alpha_us: 100.0,
                us_per_byte: 0.1,
            }],
            ..Costs::default()
        }
    }

    fn setting(fusion_threshold_bytes: u64, cycle_us: f64) -> Setting {
        Setting {
            fusion_threshold_bytes,
            cycle_us,
            hierarchical: false,
            hierarchical_allgather: false,
            cache: true,
        }
    }

    const LATE: Rules = Rules {
        early: false,
        ..Rules::RONDE
    };

    #[test]
    fn each_tensor_by_itself_when_cycles_are_short() {
        // The last tensor is ready at 13 ms, and then takes 20 + 5 + 200 µs; the tail follows.
        let mut simulator = Simulator::new(&workload(4), LATE);
        assert!(
            (simulator.step_us(&costs(), &setting(1 << 20, 100.0)) - (13_225.0 + 500.0)).abs()
                < 1e-9
        );
        assert_eq!(simulator.batches_per_step(), 4.0);
    }

    #[test]
    fn a_long_cycle_takes_two_together_and_an_early_one_does_not_wait_for_the_last() {
        // Cycles begin at 10 ms, with the first tensor, and at 12.5 ms: two tensors are ready by
        // then. The fourth, ready at 13 ms, waits for the cycle at 15 ms, or, with early cycles,
        // starts at 13 ms.
        let late = Simulator::new(&workload(4), LATE).step_us(&costs(), &setting(1 << 20, 2_500.0));
        assert!(
            (late - (15_000.0 + 20.0 + 5.0 + 200.0 + 500.0)).abs() < 1e-9,
            "{late}"
        );
        let early = Simulator::new(&workload(4), Rules::RONDE)
            .step_us(&costs(), &setting(1 << 20, 2_500.0));
        assert!((early - (13_000.0 + 225.0 + 500.0)).abs() < 1e-9, "{early}");
    }

    /// The two step times of one setting on a network with high latency: without a hold, the first
    /// cycle finds tensors on one rank only if the other's first tensor is 0.1 ms late, and the
    /// first batch is then formed a cycle time later, with more tensors.
    #[test]
    fn a_hold_makes_one_step_time_of_two() {
        let workload = |late_us: f64| Workload {
            tensors: (0..160)
                .map(|i| {
                    let pending_us = 125.0 * f64::from(i);
                    let item = Item {
                        class: 0,
                        bytes: 640_000,
                        group: None,
                    };
                    WorkTensor {
                        item,
                        pending_us,
                        ready_us: pending_us + late_us,
                    }
                })
                .collect(),
            tail_us: 0.0,
        };
        // 15 ms and 10 GB/s.
        let costs = Costs {
            flat: vec![Collective {
                alpha_us: 15_000.0,
                us_per_byte: 1e-4,
            }],
            ..costs()
        };
        let step_us = |rules: Rules, late_us: f64, cycle_us: f64| {
            let mut simulator = Simulator::new(&workload(late_us), rules);
            simulator.step_us(&costs, &setting(111 << 20, cycle_us))
        };
        let (same, late) = (0.0, 100.0);
        let unheld = [same, late].map(|late_us| step_us(LATE, late_us, 4_220.0));
        assert!(unheld[0] > 55_000.0 && unheld[1] < 47_000.0, "{unheld:?}");
        for cycle_us in [500.0, 1_000.0, 2_370.0] {
            let held = [same, late].map(|late_us| step_us(Rules::RONDE, late_us, cycle_us));
            assert!((held[0] / held[1] - 1.0).abs() < 0.01, "{held:?}");
            assert!(held[0] < unheld[1], "{held:?}");
        }
    }

    #[test]
    fn fusion_saves_latencies_and_copies_cost() {
        // All four at 20 ms: one batch of 4,000 bytes is 500 µs, four are 800.
        let mut workload = workload(4);
        workload
            .tensors
            .iter_mut()
            .for_each(|t| (t.pending_us, t.ready_us) = (20_000.0, 20_000.0));
        let step = |costs: &Costs, threshold| {
            Simulator::new(&workload, Rules::RONDE).step_us(costs, &setting(threshold, 1_000.0))
                - 20_500.0
        };
        assert!((step(&costs(), 1 << 20) - (40.0 + 500.0)).abs() < 1e-9);
        assert!((step(&costs(), 0) - (40.0 + 800.0)).abs() < 1e-9);
        assert!((step(&costs(), 2_000) - (40.0 + 600.0)).abs() < 1e-9);
        // 10 µs per tensor and direction: 80 µs more; nothing if every tensor has its own batch.
        let copying = Copying {
            per_tensor_us: 10.0,
            ..Copying::default()
        };
        let copied = Costs { copying, ..costs() };
        assert!((step(&copied, 1 << 20) - (40.0 + 580.0)).abs() < 1e-9);
        assert!((step(&copied, 0) - (40.0 + 800.0)).abs() < 1e-9);
        // Two batches of two: each takes 20 in, 300, 20 out; the second is copied in during the
        // collective of the first, the first is copied out during that of the second.
        let overlapped = Costs {
            copying: Copying {
                overlaps: true,
                ..copying
            },
            ..costs()
        };
        assert!((step(&copied, 2_000) - (40.0 + 680.0)).abs() < 1e-9);
        assert!((step(&overlapped, 2_000) - (40.0 + 20.0 + 600.0 + 20.0)).abs() < 1e-9);
    }

    #[test]
    fn ticking_cycles_are_met_in_any_phase() {
        // One tensor at 10 ms, cycles of 4 ms: with phases of 0.5, 1.5, 2.5, 3.5 ms they begin 2.5,
        // 3.5, 0.5, 1.5 ms later.
        let rules = Rules {
            phases: 4,
            ..Rules::HOROVOD
        };
        let step =
            Simulator::new(&workload(1), rules).step_us(&costs(), &setting(1 << 20, 4_000.0));
        assert!(
            (step - (10_000.0 + 2_000.0 + 225.0 + 500.0)).abs() < 1e-9,
            "{step}"
        );
    }

    #[test]
    fn a_cycle_time_longer_than_the_step_sets_the_pace() {
        // Late cycles of 50 ms: one per step, from the second on.
        let step =
            Simulator::new(&workload(1), LATE).step_us(&costs(), &setting(1 << 20, 50_000.0));
        assert!((step - 50_000.0).abs() < 1.0, "{step}");
    }

    #[test]
    fn what_is_hierarchical_is_an_operations_own() {
        // A hierarchical message takes 10 µs and nothing per byte: 35 µs per tensor instead of 225.
        let costs = |operations: &[Operation]| Costs {
            hierarchical: vec![Collective {
                alpha_us: 10.0,
                us_per_byte: 0.0,
            }],
            operations: operations.to_vec(),
            ..costs()
        };
        let step = |operations: &[Operation], setting: &Setting| {
            Simulator::new(&workload(1), LATE).step_us(&costs(operations), setting) - 10_500.0
        };
        let reduces = Setting {
            hierarchical: true,
            ..setting(0, 100.0)
        };
        let gathers = Setting {
            hierarchical_allgather: true,
            ..setting(0, 100.0)
        };
        for (operations, reduced_us, gathered_us) in [
            (&[][..], 35.0, 225.0),
            (&[Operation::Allreduce], 35.0, 225.0),
            (&[Operation::Allgather], 225.0, 35.0),
            (&[Operation::Other], 225.0, 225.0),
        ] {
            assert!(
                (step(operations, &reduces) - reduced_us).abs() < 1e-9,
                "{operations:?}"
            );
            assert!(
                (step(operations, &gathers) - gathered_us).abs() < 1e-9,
                "{operations:?}"
            );
        }
    }

    #[test]
    fn communication_beside_the_computation_slows_it_by_its_share() {
        let slowed = Costs {
            contention: 0.5,
            ..costs()
        };
        let simulated =
            |costs: &Costs| Simulator::new(&workload(2), LATE).step_us(costs, &setting(0, 100.0));
        // The 225 µs of the first tensor end before the second is ready.
        assert!((simulated(&slowed) - simulated(&costs()) - 0.5 * 225.0).abs() < 1e-9);
    }
}
