//! Tests of the step meter with a simulated job that has its own clock.

use super::*;
use crate::negotiation::OpKind;
use crate::tensor::Dtype;

const MS: u64 = 1_000_000;

/// Job with a clock of its own: 30 tensors of 1 KiB and one of 1 MiB in a step.
#[derive(Default)]
struct Job {
    meter: StepMeter,
    now_ns: u64,
}

impl Job {
    fn batch(&mut self, after_ms: u64, items: Vec<Item>) -> Option<Step> {
        let began = Nanos(self.now_ns);
        self.now_ns += after_ms * MS;
        self.meter.cycle(began, MS / 4);
        let batch = ExecutedBatch {
            ended: Nanos(self.now_ns),
            transfer_ns: 2 * MS,
        };
        self.meter.executed(&batch, items)
    }

    fn gradients(range: std::ops::Range<usize>) -> Vec<Item> {
        let elements = |tensor| if tensor == 30 { 1 << 18 } else { 256 };
        range
            .map(|t| Item::new(&format!("g{t}"), OpKind::Allreduce, Dtype::F32, elements(t)))
            .collect()
    }

    /// A step in two batches, the second of which has the anchor.
    fn step(&mut self, step_ms: u64) -> Option<Step> {
        let first = self.batch(step_ms / 2, Self::gradients(0..20));
        assert_eq!(first, None);
        self.batch(step_ms - step_ms / 2, Self::gradients(20..31))
    }

    fn learnt() -> Self {
        let mut job = Self::default();
        let answers: Vec<_> = (0..5).map(|_| job.step(20)).collect();
        assert_eq!(answers, [None; 5]);
        job
    }
}

fn sample_ms(step: Option<Step>) -> f64 {
    match step {
        Some(Step::Sample(sample)) => sample.step_ms,
        other => panic!("{other:?}"),
    }
}

fn interrupted(reason: Interruption) -> Option<Step> {
    Some(Step::Interrupted(reason))
}

#[test]
fn a_step_is_measured_from_anchor_to_anchor() {
    let signatures = Job::gradients(0..31)
        .into_iter()
        .map(|item| item.signature());
    let sample = StepSample {
        step_ms: 20.0,
        signature: signatures.fold(0, u64::wrapping_add),
        bytes: 30 * 1024 + (1 << 20),
        tensors: 31,
        negotiate_ms: 0.5,
    };
    let mut job = Job::learnt();
    assert_eq!(job.step(20), Some(Step::Sample(sample)));
    assert_eq!(sample_ms(job.step(26)), 26.0);
}

#[test]
fn validation_and_broadcasts_feed_no_sample_nor_does_the_step_after() {
    let mut job = Job::learnt();
    let loss = || vec![Item::new("validation", OpKind::Allreduce, Dtype::F32, 1)];
    let weights = || vec![Item::new("w", OpKind::Broadcast, Dtype::F32, 1 << 20)];
    for traffic in [loss, weights] {
        assert_eq!(sample_ms(job.step(20)), 20.0);
        for _ in 0..50 {
            assert_eq!(job.batch(10, traffic()), None);
        }
        assert_eq!(job.step(20), interrupted(Interruption::ForeignTraffic));
        assert_eq!(job.step(20), interrupted(Interruption::Settling));
    }
    assert_eq!(sample_ms(job.step(20)), 20.0);
}

#[test]
fn a_pause_feeds_no_sample_but_slow_steps_do() {
    let mut job = Job::learnt();
    for _ in 0..12 {
        job.step(20);
    }
    assert_eq!(job.step(900), interrupted(Interruption::Pause));
    assert_eq!(job.step(20), interrupted(Interruption::Settling));
    assert_eq!(sample_ms(job.step(20)), 20.0);
    assert_eq!(job.step(200), interrupted(Interruption::Pause));
    assert_eq!(job.step(200), interrupted(Interruption::Settling));
    for _ in 0..20 {
        assert_eq!(sample_ms(job.step(200)), 200.0);
    }
}

#[test]
fn a_stall_of_the_network_and_a_slow_setting_are_no_pauses() {
    let mut job = Job::learnt();
    for _ in 0..12 {
        job.step(20);
    }
    assert_eq!(job.batch(10, Job::gradients(0..20)), None);
    let stalled = ExecutedBatch {
        ended: Nanos(job.now_ns + 410 * MS),
        transfer_ns: 402 * MS,
    };
    job.meter.cycle(Nanos(job.now_ns), MS);
    job.now_ns += 410 * MS;
    let step = job.meter.executed(&stalled, Job::gradients(20..31));
    assert_eq!(sample_ms(step), 420.0);
    assert_eq!(sample_ms(job.step(20)), 20.0);

    // With other settings, steps may be that long from the first one on.
    job.meter.settings_change();
    for _ in 0..20 {
        assert_eq!(sample_ms(job.step(200)), 200.0);
    }
    job.meter.settings_change();
    assert_eq!(sample_ms(job.step(20)), 20.0);
    for _ in 0..9 {
        job.step(20);
    }
    assert_eq!(job.step(900), interrupted(Interruption::Pause));
}

#[test]
fn another_set_of_tensors_is_measured_once_it_is_learnt() {
    let mut job = Job::learnt();
    job.step(20);
    let mut small = || job.batch(7, Job::gradients(0..20));
    let answers: Vec<_> = (0..12).map(|_| small()).collect();
    assert!(
        answers[..4]
            .iter()
            .all(|answer| !matches!(answer, Some(Step::Sample(_))))
    );
    assert_eq!(sample_ms(answers[11]), 7.0);
}

#[test]
fn marked_steps_override_what_was_found() {
    let mut job = Job::learnt();
    assert_eq!(sample_ms(job.step(20)), 20.0);
    job.now_ns += 3 * MS;
    assert_eq!(
        job.meter.mark_step(Nanos(job.now_ns)),
        interrupted(Interruption::Settling)
    );
    assert_eq!(job.step(20), None);
    assert_eq!(job.step(20), None);
    let Some(Step::Sample(sample)) = job.meter.mark_step(Nanos(job.now_ns)) else {
        panic!("no sample");
    };
    assert_eq!((sample.step_ms, sample.tensors), (40.0, 62));
}

#[test]
fn tensors_after_a_mark_belong_to_the_next_step() {
    let mut job = Job::default();
    let mut tensors = Vec::new();
    for step in 0..6 {
        // The mark is received at the end of a cycle that has executed tensors of the next step,
        // more of them each time.
        let mark = Nanos(job.now_ns);
        job.now_ns += MS;
        job.batch(10, Job::gradients(0..1 + step));
        if let Some(Step::Sample(sample)) = job.meter.mark_step(mark) {
            tensors.push(sample.tensors);
        }
        job.batch(10, Job::gradients(1 + step..31));
    }
    assert_eq!(tensors, [31; 5]); // the first mark ends nothing
}

#[test]
fn marked_steps_that_come_in_turns_are_measured_by_the_round() {
    let mut job = Job::default();
    let mut marked = |ms, tensors| {
        job.batch(ms, Job::gradients(tensors));
        (
            job.meter.mark_step(Nanos(job.now_ns)),
            job.meter.take_whole(),
        )
    };
    let mut turns = |times| {
        let both = (0..times).flat_map(|_| [(20, 0..20), (5, 20..31)]);
        both.map(|(ms, tensors)| marked(ms, tensors))
            .collect::<Vec<_>>()
    };
    // The first mark ends no known step. Eight of the nine others show that the steps alternate,
    // and a round begins.
    let learnt = turns(5);
    assert!(
        learnt[1..9].iter().all(|(step, _)| step.is_some()),
        "{learnt:?}"
    );
    assert_eq!(learnt[9].0, None);
    let rounds = turns(3);
    let whole = rounds.iter().filter_map(|(step, whole)| {
        let Some(Step::Sample(sample)) = step else {
            return None;
        };
        assert_eq!(
            whole.map(|whole| (whole.signature, whole.usual)),
            Some((sample.signature, true))
        );
        Some((sample.step_ms, sample.tensors, sample.signature))
    });
    let whole: Vec<_> = whole.collect();
    let signatures = Job::gradients(0..31)
        .into_iter()
        .map(|item| item.signature());
    let signature = mix(signatures.fold(0, u64::wrapping_add), 2);
    assert_eq!(
        whole[whole.len() - 2..],
        [(25.0, 31, signature); 2],
        "{rounds:?}"
    );
    assert_eq!(rounds.iter().filter(|(step, _)| step.is_some()).count(), 3);
    // A marked validation, the round that it interrupts and the next round are not samples.
    let foreign = |step: &Option<Step>| *step == interrupted(Interruption::ForeignTraffic);
    let (odd, _) = marked(7, 0..3);
    let after: Vec<_> = (0..6)
        .map(|turn| {
            if turn % 2 == 0 {
                marked(20, 0..20).0
            } else {
                marked(5, 20..31).0
            }
        })
        .collect();
    assert!(foreign(&odd) && foreign(&after[0]), "{after:?}");
    assert_eq!(sample_ms(after[5]), 25.0);
}

#[test]
fn a_loss_averaged_every_tenth_step_makes_no_longer_steps() {
    for marks in [false, true] {
        let mut job = Job::default();
        let mut steps = Vec::new();
        for step in 0..200 {
            let mut answer = job.step(20);
            if marks {
                answer = job.meter.mark_step(Nanos(job.now_ns));
            }
            if step % 10 == 9 {
                job.batch(1, vec![Item::new("loss", OpKind::Allreduce, Dtype::F32, 1)]);
            }
            if let Some(Step::Sample(sample)) = answer {
                steps.push(sample.step_ms);
            }
        }
        assert!(steps.len() > 140, "marks {marks}: {steps:?}");
        assert!(
            steps.iter().all(|&ms| (20.0..=21.0).contains(&ms)),
            "marks {marks}: {steps:?}"
        );
    }
}
