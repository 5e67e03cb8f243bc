//! Tests of the loop on a simulated runtime with threads as ranks.
//!
//! The ranks meet at a barrier and average through a shared table.

#![allow(unsafe_code)] // elements at an address

use std::any::Any;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use half::{bf16, f16};

use super::*;
use crate::bench::schedule::{ComputeKind, Schedule};
use crate::bench::verify::PatternElement;
use crate::bench::{Series, SeriesEnd, SeriesTimes, TensorSpec, Workload, models};
use ronde::context::Buffer;
use ronde::error::Error;
use ronde::tensor::{Dtype, Element, ReduceOp};

/// State shared by all ranks: their contributions by tensor name.
struct Table {
    barrier: Barrier,
    contributions: Mutex<HashMap<String, Vec<Vec<f64>>>>,
}

/// One rank of the simulated runtime; an operation runs when its caller waits for it.
struct ThreadRank {
    rank: usize,
    size: usize,
    table: Arc<Table>,
    /// Number of averages computed so far, and the number of the one to corrupt, if any.
    averages: Cell<usize>,
    spoil: Option<usize>,
    marks: Cell<usize>,
}

struct Submitted<B> {
    name: String,
    data: B,
    op: ReduceOp,
}

/// Returns the contents of a buffer in host memory.
fn elements<B: Buffer>(data: &mut B) -> &mut [B::Element] {
    // SAFETY: the buffer has this many elements, and no other code accesses them while this borrows
    // it.
    unsafe { std::slice::from_raw_parts_mut(data.address().cast(), data.elements()) }
}

/// Converts an element to a number and back, with the trait that all bench elements implement.
fn to_number<T: Element>(value: T) -> f64 {
    let any: &dyn Any = &value;
    fn of<P: PatternElement>(any: &dyn Any) -> Option<f64> {
        any.downcast_ref::<P>().map(|value| value.to_number())
    }
    of::<f32>(any)
        .or_else(|| of::<f64>(any))
        .or_else(|| of::<f16>(any))
        .or_else(|| of::<bf16>(any))
        .or_else(|| of::<i16>(any))
        .or_else(|| of::<i32>(any))
        .or_else(|| of::<i64>(any))
        .unwrap()
}

fn from_number<T: Element>(number: f64) -> T {
    let boxed: Box<dyn Any> = match T::DTYPE {
        Dtype::F32 => Box::new(number as f32),
        Dtype::F64 => Box::new(number),
        Dtype::F16 => Box::new(f16::from_f64(number)),
        Dtype::Bf16 => Box::new(bf16::from_f64(number)),
        Dtype::I16 => Box::new(number as i16),
        Dtype::I32 => Box::new(number as i32),
        Dtype::I64 => Box::new(number as i64),
        Dtype::U8 | Dtype::I8 | Dtype::Bool => unreachable!("the benchmark submits none"),
    };
    *boxed.downcast().unwrap()
}

impl Runtime for ThreadRank {
    type Pending<B: Buffer> = Submitted<B>;

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn allreduce<B: Buffer>(
        &self,
        name: &str,
        data: B,
        op: ReduceOp,
    ) -> Result<Submitted<B>, Error> {
        Ok(Submitted {
            name: name.to_owned(),
            data,
            op,
        })
    }

    fn wait<B: Buffer>(&self, pending: Submitted<B>) -> Result<B, Error> {
        let Submitted {
            name,
            data: mut buffer,
            op,
        } = pending;
        let data = elements(&mut buffer);
        let own = data.iter().map(|&value| to_number(value)).collect();
        self.table
            .contributions
            .lock()
            .unwrap()
            .entry(name.clone())
            .or_default()
            .push(own);
        self.table.barrier.wait();
        let all = self.table.contributions.lock().unwrap()[&name].clone();
        self.table.barrier.wait();
        self.table.contributions.lock().unwrap().remove(&name);
        self.table.barrier.wait();
        assert!(
            all.len() == self.size && all.iter().all(|other| other.len() == data.len()),
            "{name}"
        );
        let mut result: Vec<f64> = match op {
            ReduceOp::Max => (0..data.len())
                .map(|i| all.iter().map(|r| r[i]).fold(f64::MIN, f64::max))
                .collect(),
            _ => (0..data.len())
                .map(|i| all.iter().map(|r| r[i]).sum::<f64>() / self.size as f64)
                .collect(),
        };
        if op == ReduceOp::Average {
            if self.spoil == Some(self.averages.get()) {
                *result.last_mut().unwrap() += 1.0;
            }
            self.averages.set(self.averages.get() + 1);
        }
        for (element, number) in data.iter_mut().zip(result) {
            *element = from_number(number);
        }
        Ok(buffer)
    }

    fn mark_step(&self) {
        self.marks.set(self.marks.get() + 1);
    }
}

/// Counts progress; has a verdict only on rank 0, after `verdict_after` tuning steps.
#[derive(Default)]
struct Watcher {
    seen: Vec<Progress>,
    verdict_after: Option<usize>,
}

impl Observer for Watcher {
    fn progress(&mut self, progress: Progress) {
        self.seen.push(progress);
    }

    fn verdict_reached(&mut self) -> bool {
        let tuning = self
            .seen
            .iter()
            .filter(|progress| matches!(progress, Progress::Tuning { .. }))
            .count();
        self.verdict_after.is_some_and(|after| tuning >= after)
    }
}

fn plan(steps: usize, tuning_steps_max: usize) -> Plan {
    let tensor = |name: &str, dtype, elements| TensorSpec {
        name: name.to_owned(),
        dtype,
        shape: vec![elements],
        ready_fraction: 1.0,
    };
    let workload = Workload {
        name: "mixed".to_owned(),
        tensors: vec![
            tensor("a", Dtype::F32, 100),
            tensor("b", Dtype::Bf16, 1),
            tensor("c", Dtype::F16, 33),
            tensor("d", Dtype::I64, 70),
            tensor("e", Dtype::F64, 16),
            tensor("f", Dtype::I32, 17),
            tensor("g", Dtype::I16, 29),
        ],
        recorded_backward_ms: None,
    };
    let schedule = Schedule::new(&workload, Duration::ZERO, ComputeKind::Sleep);
    Plan {
        load: Load {
            workload,
            schedule,
            chunk_bytes: 64,
        },
        warmup_steps: 3,
        tuning_steps_max,
        steps,
    }
}

/// Runs `plan` on `size` ranks; rank 0 corrupts average number `spoil` and has a verdict after
/// `verdict_after`.
fn run_ranks(
    size: usize,
    plan: &Plan,
    spoil: Option<usize>,
    verdict_after: Option<usize>,
) -> Vec<(Result<Measurement, RunError>, Vec<Progress>, usize)> {
    run_plans(&vec![plan.clone(); size], spoil, verdict_after)
}

/// Runs a separate plan on each rank.
fn run_plans(
    plans: &[Plan],
    spoil: Option<usize>,
    verdict_after: Option<usize>,
) -> Vec<(Result<Measurement, RunError>, Vec<Progress>, usize)> {
    on_ranks(plans.len(), spoil, |runtime| {
        let mut watcher = Watcher {
            seen: Vec::new(),
            verdict_after: verdict_after.filter(|_| runtime.rank == 0),
        };
        let result = run(runtime, &plans[runtime.rank], &mut watcher);
        (result, watcher.seen, runtime.marks.get())
    })
}

/// Runs `body` on each of `size` ranks and returns the results; rank 0 corrupts average number
/// `spoil`.
fn on_ranks<T: Send>(
    size: usize,
    spoil: Option<usize>,
    body: impl Fn(&ThreadRank) -> T + Sync,
) -> Vec<T> {
    let table = Arc::new(Table {
        barrier: Barrier::new(size),
        contributions: Mutex::default(),
    });
    let body = &body;
    thread::scope(|scope| {
        let start = |rank| {
            let table = Arc::clone(&table);
            scope.spawn(move || {
                body(&ThreadRank {
                    rank,
                    size,
                    table,
                    averages: Cell::new(0),
                    spoil: spoil.filter(|_| rank == 0),
                    marks: Cell::new(0),
                })
            })
        };
        let ranks: Vec<_> = (0..size).map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn every_rank_measures_the_same() {
    for size in [1, 2, 3] {
        let outcomes = run_ranks(size, &plan(12, 0), None, None);
        let first = outcomes[0].0.as_ref().unwrap();
        assert_eq!(first.step_ms.len(), 12);
        assert!(first.step_ms.iter().all(|&ms| ms > 0.0) && first.memcpy_gb_per_s > 0.0);
        for (result, progress, marks) in &outcomes {
            assert_eq!(result.as_ref().unwrap(), first);
            assert_eq!(*marks, 3 + 12 + 1); // warm-up, timed, closing
            assert_eq!(progress.len(), 3 + 12);
            assert_eq!(
                progress.last(),
                Some(&Progress::Timed {
                    done: 12,
                    total: 12
                })
            );
        }
    }
}

/// 7 tensors per step: average 7 is the first tensor of step 1, number 105 the first of the closing
/// step 15.
#[test]
fn a_wrong_result_ends_the_run_wherever_it_happens() {
    for (spoil, step) in [(0, 0), (7, 1), (34, 4), (105, 15)] {
        let outcomes = run_ranks(1, &plan(12, 0), Some(spoil), None);
        match &outcomes[0].0 {
            Err(RunError::Wrong(error)) => assert_eq!(error.step, step),
            other => panic!("average {spoil} was spoilt, but: {other:?}"),
        }
    }
}

#[test]
fn ranks_with_different_plans_stop_at_once() {
    let (mut longer, mut more) = (plan(2, 0), plan(2, 0));
    longer.load.workload.tensors[3].shape = vec![71];
    let again = more.load.workload.tensors[0].clone();
    more.load.workload.tensors.push(TensorSpec {
        name: "again".into(),
        ..again
    });
    let table = [
        (more, "rank 0 has 7 tensors, rank 2 has 8;"),
        (longer, "tensor 4 of 7 (here "),
        (plan(3, 0), "rank 0 has 2 timed steps, rank 2 has 3;"),
        (
            plan(2, 10),
            "rank 0 has 0 tuning steps at most, rank 2 has 10;",
        ),
    ];
    for (other, text) in table {
        for (result, progress, _) in run_plans(&[plan(2, 0), plan(2, 0), other.clone()], None, None)
        {
            let error = result.expect_err("they differ").to_string();
            assert!(
                error.contains(text) && progress.is_empty(),
                "{text:?} in {error:?}"
            );
        }
    }
}

#[test]
fn tuning_ends_at_the_verdict_that_only_one_rank_knows() {
    for (result, progress, _) in run_ranks(2, &plan(2, 100), None, Some(13)) {
        assert_eq!(result.unwrap().tuning_steps, 20); // asked every 10 steps
        assert_eq!(progress.len(), 3 + 20 + 2);
    }
}

#[test]
fn tuning_ends_at_its_limit_without_a_verdict() {
    let outcomes = run_ranks(2, &plan(1, 15), None, None);
    assert_eq!(outcomes[1].0.as_ref().unwrap().tuning_steps, 15);
}

#[test]
fn a_pretended_pass_lengthens_every_step() {
    let mut plan = plan(3, 0);
    plan.load.schedule = Schedule::new(
        &plan.load.workload,
        Duration::from_millis(5),
        ComputeKind::Sleep,
    );
    let outcomes = run_ranks(1, &plan, None, None);
    assert!(
        outcomes[0]
            .0
            .as_ref()
            .unwrap()
            .step_ms
            .iter()
            .all(|&ms| ms >= 5.0)
    );
}

#[test]
fn a_real_model_runs() {
    let workload = models::workload("many-small").unwrap();
    let schedule = Schedule::new(&workload, Duration::ZERO, ComputeKind::Sleep);
    let plan = Plan {
        load: Load {
            workload,
            schedule,
            chunk_bytes: 1 << 20,
        },
        warmup_steps: 1,
        tuning_steps_max: 0,
        steps: 1,
    };
    assert!(
        run_ranks(2, &plan, None, None)
            .into_iter()
            .all(|(result, ..)| result.is_ok())
    );
}

/// Measures the `series` in order, in one job; `times[rank]` is the time limit of the rank for the
/// last one.
fn measured(series: &[Series], times: &[Option<Duration>]) -> Vec<Vec<SeriesTimes>> {
    let mut plan = plan(1, 0);
    // Every step takes slightly more than 4 ms.
    plan.load.schedule = Schedule::new(
        &plan.load.workload,
        Duration::from_millis(4),
        ComputeKind::Sleep,
    );
    on_ranks(times.len(), None, |runtime| {
        let mut job = Job::new(runtime, &plan.load).unwrap();
        job.agree(&[]).unwrap();
        let mut steps = 0;
        let mut results = Vec::new();
        for (index, one) in series.iter().enumerate() {
            let time = times[runtime.rank].filter(|_| index + 1 == series.len());
            results.push(job.measure(one, time, || steps += 1));
        }
        let counted: usize = results
            .iter()
            .zip(series)
            .map(|(result, one)| {
                one.warmup_steps + result.as_ref().map_or(0, |times| times.step_ms.len())
            })
            .sum();
        assert_eq!(steps, counted);
        results.into_iter().collect::<Result<Vec<_>, _>>().unwrap()
    })
}

const SERIES: Series = Series {
    warmup_steps: 2,
    steps: 14,
    at_least_ms: 0.0,
    stop_above_ms: None,
};

#[test]
fn a_job_is_measured_again_and_again() {
    let all = measured(&[SERIES, Series { steps: 5, ..SERIES }], &[None; 3]);
    for of_rank in &all {
        assert_eq!(of_rank, &all[0]);
        assert_eq!(
            (of_rank[0].step_ms.len(), of_rank[1].step_ms.len()),
            (14, 5)
        );
        assert!(of_rank.iter().all(|times| times.end == SeriesEnd::Complete));
        assert!(
            of_rank
                .iter()
                .flat_map(|times| &times.step_ms)
                .all(|&ms| ms >= 4.0)
        );
    }
}

#[test]
fn short_steps_are_measured_until_they_have_taken_long_enough() {
    let longer = Series {
        at_least_ms: 1500.0, // longer than 14 steps take on a busy machine
        ..SERIES
    };
    let all = measured(&[longer], &[None; 2]);
    assert_eq!(all[0], all[1]);
    let times = &all[0][0];
    let (steps, sum_ms) = (times.step_ms.len(), times.step_ms.iter().sum::<f64>());
    assert!(
        steps > 14 && steps <= 375 && times.end == SeriesEnd::Complete,
        "{steps}"
    );
    assert!(sum_ms >= 1500.0, "{sum_ms}");
}

/// The time has elapsed only on rank 1; all ranks stop at the same step, after one batch of timed
/// steps.
#[test]
fn a_measurement_ends_when_any_ranks_time_is_up() {
    let all = measured(&[SERIES], &[None, Some(Duration::ZERO)]);
    assert_eq!(all[0], all[1]);
    assert_eq!(
        (all[0][0].step_ms.len(), all[0][0].end),
        (3, SeriesEnd::Time)
    );
}

#[test]
fn a_measurement_of_what_is_clearly_worse_ends_early() {
    let bound = |stop_above_ms| Series {
        stop_above_ms,
        ..SERIES
    };
    let all = measured(&[bound(Some(0.5)), bound(Some(60_000.0))], &[None; 2]);
    assert_eq!(all[0], all[1]);
    assert_eq!(
        (all[0][0].step_ms.len(), all[0][0].end),
        (3, SeriesEnd::Above)
    );
    assert_eq!(
        (all[0][1].step_ms.len(), all[0][1].end),
        (14, SeriesEnd::Complete)
    );
}
