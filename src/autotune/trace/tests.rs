//! Tests of the tracer with steps of a synthetic job.

use std::sync::Arc;

use super::*;
use crate::collective::Phases;
use crate::negotiation::{OpKind, Params};
use crate::ready::Ready;
use crate::replay::TracedStep;
use crate::tensor::Dtype;

const MS: u64 = 1_000_000;

/// Steps of 20 ms in two cycles: tensors `a` and `b` in one batch, then `c` alone.
#[derive(Default)]
struct Job {
    tracer: Tracer,
    now: u64,
    settings: Settings,
    /// Suffix of every name, if names do not repeat.
    counter: Option<u32>,
    /// Signature of every step.
    signature: u64,
    /// Operation of the tensors other than an allreduce.
    kind: Option<OpKind>,
}

impl Job {
    fn tensors(&mut self, elements: &[(&str, usize)]) -> Vec<Ready> {
        let counter = self
            .counter
            .map_or_else(String::new, |counter| counter.to_string());
        let kind = self.kind.unwrap_or(OpKind::Allreduce);
        let ready = |&(name, elements): &(&str, usize)| {
            let params = Params::plain(kind, Dtype::F32, [elements].into_iter().collect());
            Ready::new(
                Submission::absent(Arc::from(format!("{name}{counter}")), params, Nanos(0)),
                None,
            )
        };
        elements.iter().map(ready).collect()
    }

    /// A cycle that begins `after` µs from now and takes 1 ms for negotiation, of which the last
    /// rank is `late` µs, and 2 ms for a batch.
    fn cycle(&mut self, after: u64, late: u64, elements: &[(&str, usize)], whole: Option<bool>) {
        let began = self.now + after * 1_000;
        let (agreed, ended) = (Nanos(began + MS), Nanos(began + 3 * MS));
        let tensors = self.tensors(elements);
        for (index, ready) in tensors.iter().enumerate() {
            let negotiated = Negotiated {
                tensor: &ready.submission.tensor,
                kind: OpKind::Allreduce,
                cached: index > 0,
            };
            let last = Nanos(began + late * 1_000);
            self.tracer.negotiated(&negotiated, Nanos(began - MS), last);
        }
        self.tracer.agreed(Nanos(began), agreed);
        let members: Vec<&Ready> = tensors.iter().collect();
        self.tracer.executed(&Executed {
            members: &members,
            stages: None,
            began: agreed,
            allocated: None,
            ended,
            phases: Phases {
                wait_ns: MS,
                late_ns: MS / 2,
                ..Phases::default()
            },
            on_device: None,
        });
        self.now = ended.0;
        let signature = self.signature;
        let whole = whole.map(|usual| WholeStep {
            ended,
            signature,
            usual,
        });
        self.tracer.cycle_ended(&self.settings, whole);
    }

    fn step(&mut self, usual: bool) {
        self.counter = self.counter.map(|counter| counter + 1);
        self.cycle(10_000, 400, &[("a", 256), ("b", 512)], None);
        self.cycle(4_000, 0, &[("c", 1024)], Some(usual));
    }

    fn traces(&self) -> Vec<crate::replay::Trace> {
        self.tracer.seen().told(&Settings::default())
    }

    fn steps(&self) -> Vec<TracedStep> {
        self.traces()
            .pop()
            .map_or_else(Vec::new, |trace| trace.steps)
    }
}

#[test]
fn a_step_is_told_from_the_end_of_the_one_before() {
    let mut job = Job::default();
    (0..4).for_each(|_| job.step(true));
    let steps = job.steps();
    // The first has no begin, the second shows that names repeat.
    assert_eq!(steps.len(), 2);
    let step = &steps[0];
    assert_eq!(step.step_us, 20_000.0);
    let [first, second] = &step.cycles[..] else {
        panic!("{step:?}")
    };
    // The last rank was 0.4 ms late: 0.6 ms are left for negotiation.
    assert_eq!(
        (first.began_us, first.negotiate_us, first.moving_us),
        (10_400.0, 600.0, 2_000.0)
    );
    assert_eq!((first.tensors, first.cached), (2, 1));
    assert_eq!((second.began_us, second.negotiate_us), (17_000.0, 1_000.0));
    let batch = first.batches[0];
    assert_eq!(
        (batch.bytes, batch.tensors, batch.collective_us),
        (3_072, 2, 1_500.0)
    ); // 2 ms less 0.5 late
    let tensor = step.tensors[0];
    assert_eq!(
        (tensor.item.bytes, tensor.pending_us, tensor.ready_us),
        (1_024, 9_000.0, 10_400.0)
    );
    let keys = |step: &TracedStep| {
        step.tensors
            .iter()
            .map(|tensor| tensor.key)
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(&steps[0]), keys(&steps[1]));
}

#[test]
fn tensors_without_lasting_names_keep_their_keys_by_form_and_place() {
    let mut job = Job {
        counter: Some(0),
        ..Job::default()
    };
    (0..5).for_each(|_| job.step(true));
    let steps = job.steps();
    assert_eq!(steps.len(), 3);
    let keys = |step: &TracedStep| {
        step.tensors
            .iter()
            .map(|tensor| tensor.key)
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(&steps[0]), keys(&steps[2]));
}

#[test]
fn the_same_tensor_twice_in_a_step_has_two_keys() {
    let mut job = Job::default();
    for _ in 0..4 {
        job.cycle(5_000, 0, &[("a", 256)], None);
        job.cycle(5_000, 0, &[("a", 256)], Some(true));
    }
    let steps = job.steps();
    assert_eq!(steps[0].tensors.len(), 2);
    assert_ne!(steps[0].tensors[0].key, steps[0].tensors[1].key);
    assert_eq!(steps[0].tensors[1].key, steps[1].tensors[1].key);
}

#[test]
fn tensors_have_the_classes_that_the_cycle_gives_them() {
    let classes = |kind| {
        let mut job = Job {
            kind: Some(kind),
            ..Job::default()
        };
        for _ in 0..4 {
            job.cycle(5_000, 0, &[("a", 256)], None);
            job.cycle(5_000, 0, &[("b", 256)], Some(true));
        }
        let steps = job.steps();
        assert_eq!(steps.len(), 2);
        steps
            .iter()
            .map(|step| [0, 1].map(|tensor| step.tensors[tensor].item.class))
            .collect::<Vec<_>>()
    };
    assert_eq!(classes(OpKind::Broadcast), [[0, 0], [0, 0]]);
    assert_eq!(classes(OpKind::Alltoall), [[0, 1], [0, 1]]); // no batch is shared; each step is alike
}

#[test]
fn disturbed_steps_and_those_of_a_change_are_left_out() {
    let mut job = Job::default();
    (0..3).for_each(|_| job.step(true));
    assert_eq!(job.steps().len(), 1);
    job.step(false); // with operations of other steps
    job.tracer.disturbed(); // a rank has joined
    job.step(true);
    assert_eq!(job.steps().len(), 1);
    job.settings.fusion_threshold_bytes = 1;
    job.step(true); // the settings change in its first cycle
    job.step(true);
    let traces = job.traces();
    assert_eq!(traces.len(), 2);
    assert_eq!(traces[0].setting, setting(&Settings::default()));
    assert_eq!((traces[0].steps.len(), traces[1].steps.len()), (1, 1));
    assert_eq!(traces[1].setting.fusion_threshold_bytes, 1);
    // A pause is no step, even if it ended as one.
    job.now += 500 * MS;
    job.step(true);
    assert_eq!(job.traces()[1].steps.len(), 1);
}

#[test]
fn a_marked_step_takes_what_began_before_the_mark() {
    let mut job = Job::default();
    for step in 0..5 {
        job.cycle(10_000, 0, &[("a", 256)], None);
        // The caller marks the end 3 ms later; the next cycle reports it.
        let ended = Nanos(job.now + 3 * MS);
        job.cycle(5_000, 0, &[("b", 256)], None);
        if step > 0 {
            job.tracer.cycle_ended(&Settings::default(), None);
        }
        job.tracer.end_step(WholeStep {
            ended,
            signature: 0,
            usual: true,
        });
    }
    let steps = job.steps();
    assert!(!steps.is_empty());
    for step in steps {
        assert_eq!((step.step_us, step.cycles.len()), (21_000.0, 2));
        // `b` was executed after the mark: it opens the step.
        assert_eq!(step.cycles[0].began_us, 2_000.0);
    }
}

#[test]
fn memory_is_bounded() {
    let mut job = Job::default();
    for threshold in 0..10 {
        job.settings.fusion_threshold_bytes = threshold;
        (0..20).for_each(|_| job.step(true));
    }
    let seen = job.tracer.seen().told(&Settings {
        fusion_threshold_bytes: 0,
        ..Settings::default()
    });
    assert_eq!(seen.len(), 10);
    assert!(
        seen.iter()
            .all(|trace| trace.steps.len() == STEPS_PER_SETTING)
    );
    // A step that never ends is dropped.
    let names: Vec<String> = (0..1_000).map(|tensor| format!("t{tensor}")).collect();
    let many: Vec<(&str, usize)> = names.iter().map(|name| (&name[..], 1)).collect();
    (0..200).for_each(|_| job.cycle(1_000, 0, &many, None));
    assert!(job.tracer.under_way.tensors.len() <= PENDING_MAX);
    // If the reference has no steps, there are no traces.
    assert!(job.tracer.seen().told(&Settings::default()).is_empty());
    job.tracer.forget();
    assert!(job.tracer.seen().told(&Settings::default()).is_empty());
}

#[test]
fn steps_of_another_shape_are_left_out_and_what_was_kept_comes_back() {
    let mut job = Job::default();
    (0..4).for_each(|_| job.step(true));
    let before = job.tracer.exchange(Steps::default());
    job.tracer.follow(Some(5));
    (0..3).for_each(|_| job.step(true)); // of signature 0
    job.signature = 5;
    (0..4).for_each(|_| job.step(true));
    assert_eq!(job.steps().len(), 3); // the first shows that names repeat
    job.tracer.exchange(before);
    job.tracer.follow(Some(0));
    assert_eq!(job.steps().len(), 2);
    (0..2).for_each(|_| job.step(true));
    assert_eq!(job.steps().len(), 2);
    job.signature = 0;
    job.step(true);
    assert_eq!(job.steps().len(), 3);
}
