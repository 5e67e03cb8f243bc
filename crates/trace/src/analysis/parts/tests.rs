//! Tests of the sweep over a step, with times that are computed by hand.

use smallvec::SmallVec;

use super::*;
use crate::{Activity, Kind, NameId, Tick};

/// A tensor that is ready on rank 0 at `ready` and on the last rank at `all`; it is moved from
/// `copied` to `ended`.
fn op(ready: i64, all: i64, copied: i64, collective: i64, ended: i64) -> Op {
    let activity = |phase, began, ended| Activity {
        name: NameId(0),
        phase,
        span: Span { began, ended },
    };
    Op {
        tensor: NameId(0),
        kind: Kind::Allreduce,
        dtype: None,
        elements: None,
        bytes: None,
        occurrence: 0,
        negotiation: Some(Span {
            began: ready.min(all),
            ended: all,
        }),
        ticks: SmallVec::from_slice(&[Tick { rank: 0, at: ready }, Tick { rank: 1, at: all }]),
        span: Span {
            began: copied,
            ended,
        },
        activities: SmallVec::from_slice(&[
            activity(Phase::CopyIn, copied, collective),
            activity(Phase::Collective, collective, ended),
        ]),
        earlier: Box::default(),
        sums: None,
        cycle: None,
    }
}

fn step(ops: &[Op], computing: Computing<'_>) -> Parts {
    sweep(
        Span {
            began: 0,
            ended: 100,
        },
        ops,
        0,
        |op| op.all_ready(2),
        computing,
    )
}

#[test]
fn every_instant_is_counted_once() {
    // Ready at 40, everywhere at 50, copied from 60, collective from 70 to 100.
    let parts = step(&[op(40, 50, 60, 70, 100)], Computing::UntilLastReady);
    assert_eq!(parts.exposed, [40, 10, 10, 0, 10, 30, 0, 0, 0]);
    assert_eq!(parts.total, parts.exposed);
    assert_eq!((parts.communication, parts.communication_exposed), (40, 40));
    assert_eq!(parts.phases, [0, 0, 0, 10, 30, 0]);
}

#[test]
fn what_goes_on_behind_computation_is_total_and_not_exposed() {
    // The second tensor is ready at 80: until then the operation on the first one is hidden.
    let ops = [op(10, 20, 30, 40, 60), op(80, 80, 85, 90, 100)];
    let parts = step(&ops, Computing::UntilLastReady);
    assert_eq!(parts.exposed, [80, 0, 5, 0, 5, 10, 0, 0, 0]);
    assert_eq!(parts.total, [80, 10, 15, 0, 15, 30, 0, 0, 0]);
    assert_eq!((parts.communication, parts.communication_exposed), (45, 15));
}

#[test]
fn a_job_that_waits_computes_only_while_nothing_is_under_way() {
    let ops = [op(10, 20, 30, 40, 60), op(80, 80, 85, 90, 100)];
    let parts = step(&ops, Computing::WhileIdle);
    assert_eq!(parts.exposed, [30, 10, 15, 0, 15, 30, 0, 0, 0]);
    let batcher = Batcher { fuses: true };
    let three = [
        op(10, 20, 30, 40, 60),
        op(61, 62, 63, 64, 65),
        op(80, 80, 85, 90, 100),
    ];
    assert!(waits_for_each([&three[..]], batcher, 0));
    assert!(
        !waits_for_each([&ops[..]], batcher, 0),
        "two batches tell nothing"
    );
    let overlapping = [
        op(10, 20, 30, 40, 60),
        op(59, 62, 63, 64, 65),
        op(80, 80, 85, 90, 100),
    ];
    assert!(!waits_for_each([&overlapping[..]], batcher, 0));
}

#[test]
fn kernels_say_what_is_computed() {
    let kernels = [
        Span {
            began: -50,
            ended: 30,
        },
        Span {
            began: 75,
            ended: 90,
        },
    ];
    let mut launched = op(60, 60, 60, 70, 100);
    launched.earlier = Box::new([Activity {
        name: NameId(1),
        phase: Phase::Queue,
        span: Span {
            began: 40,
            ended: 60,
        },
    }]);
    let parts = step(&[launched], Computing::Known(&kernels));
    // Launched at 40, on the device from 60; the rank is idle from 30 to 40.
    assert_eq!(parts.exposed, [30 + 10 + 15, 0, 0, 20, 10, 15, 0, 0, 0]);
    assert_eq!(parts.total[PartKind::Collective as usize], 30);
    assert_eq!(parts.communication_exposed, 25);
}

#[test]
fn time_in_the_kernel_before_all_ranks_have_begun_is_waiting() {
    let span = |began, ended| Span { began, ended };
    let mut kernel = op(20, 20, 20, 20, 100);
    kernel.activities.remove(0);
    // Another kernel overlaps the wait, and then a copy.
    let computing = Computing::Gpu {
        kernels: &[span(0, 30)],
        other: &[span(40, 50)],
    };
    let whole = span(0, 100);
    let parts = sweep(whole, &[kernel], 0, |_| 70, computing);
    assert_eq!(parts.exposed, [30, 40, 0, 0, 0, 30, 0, 0, 0]);
    assert_eq!(parts.total[PartKind::WaitForRanks as usize], 50);
    assert_eq!((parts.communication, parts.communication_exposed), (30, 30));
}

#[test]
fn a_copy_before_all_ranks_are_ready_is_a_copy() {
    // Ready and copied at 10; the last rank is ready at 50.
    let parts = sweep(
        Span {
            began: 0,
            ended: 100,
        },
        &[op(10, 10, 10, 30, 100)],
        0,
        |_| 50,
        Computing::UntilLastReady,
    );
    assert_eq!(parts.exposed, [10, 20, 0, 0, 20, 50, 0, 0, 0]);
}

#[test]
fn what_lies_outside_the_step_is_cut_off() {
    let parts = step(
        &[op(-40, -30, -20, -10, 20), op(90, 150, 160, 170, 180)],
        Computing::UntilLastReady,
    );
    assert_eq!(parts.exposed.iter().sum::<u64>(), 100);
    // The first tensor is hidden behind computation, which lasts until 90; then this rank waits for
    // others.
    assert_eq!(parts.exposed, [90, 10, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(parts.total[PartKind::Collective as usize], 20);
}
