//! Tests of the analysis with unusual and damaged input.

use proptest::prelude::*;
use smallvec::SmallVec;

use super::job::Job;
use crate::analysis::{Collector, Report, analyze};
use crate::{
    Activity, Format, Kind, Mark, MarkKind, NameId, Operation, Phase, Source, Span, Tick, Visitor,
    Work,
};
use ronde_job::Dtype;
use ronde_job::gate::Withheld;

fn source(format: Format) -> Source {
    Source {
        format,
        ..Job::default().source(0, 0.0)
    }
}

fn operation(tensor: u32, began: i64, ended: i64) -> Operation {
    Operation {
        tensor: NameId(tensor),
        kind: Kind::Allreduce,
        negotiation: None,
        ticks: SmallVec::new(),
        execution: Some(Span { began, ended }),
        activities: SmallVec::new(),
        sums: None,
        dtype: None,
        elements: None,
        bytes: None,
        refused: false,
    }
}

#[test]
fn nothing_at_all() {
    let report = analyze(vec![Collector::new().finish(source(Format::Ronde))]).unwrap();
    assert!(report.steps.is_empty() && report.steady.is_none() && report.advice.is_empty());
    assert!(
        report.warnings[0].contains("nothing to analyse"),
        "{:?}",
        report.warnings
    );
}

#[test]
fn one_tensor_once() {
    let mut collector = Collector::new();
    collector.name(NameId(0), "g");
    collector.operation(&operation(0, 5_000_000, 7_000_000));
    let report = analyze(vec![collector.finish(source(Format::Horovod))]).unwrap();
    assert_eq!(report.steps.len(), 1);
    assert_eq!(report.steady.unwrap().step_ms.p50, 2.0);
    assert!(
        report
            .warnings
            .iter()
            .any(|warning| warning.contains("no steps were found"))
    );
}

#[test]
fn one_tensor_again_and_again_is_a_step_each_time() {
    let mut collector = Collector::new();
    collector.name(NameId(0), "whole");
    for step in 0..11 {
        let began = step * 510_000_000;
        collector.operation(&operation(0, began, began + 500_000_000));
    }
    let report = analyze(vec![collector.finish(source(Format::Byteps))]).unwrap();
    assert_eq!(report.steps.len(), 11);
    let steady = report.steady.unwrap();
    assert_eq!((steady.steps, steady.step_ms.p50), (9, 510.0));
    assert!(report.fusion.is_none());
}

#[test]
fn waiting_that_the_file_does_not_show_is_part_of_the_computation() {
    let run = |negotiated: bool| {
        let mut collector = Collector::new();
        collector.name(NameId(0), "g");
        for step in 0..20 {
            let began = step * 10_000_000;
            let mut operation = operation(0, began, began + 4_000_000);
            // In the response cache after the first step.
            operation.negotiation = (step == 0 || negotiated).then_some(Span {
                began: began - 3_000_000,
                ended: began - 1_000_000,
            });
            collector.operation(&operation);
        }
        analyze(vec![collector.finish(source(Format::Horovod))]).unwrap()
    };
    let warns = |report: &Report, of: &str| {
        let mut warnings = report.warnings.iter();
        warnings.any(|warning| warning.contains(of))
    };
    let (cached, negotiated) = (run(false), run(true));
    assert!(cached.compute_includes_waiting && !negotiated.compute_includes_waiting);
    let overestimated = "waiting for other ranks is overestimated";
    assert!(warns(&negotiated, overestimated) && !warns(&cached, overestimated));
    let warning = "no negotiation for 100 % of the steady operations";
    assert!(warns(&cached, warning), "{:?}", cached.warnings);
}

#[test]
fn a_clock_set_back_is_said() {
    let run = |back_ns: i64| {
        let mut collector = Collector::new();
        collector.name(NameId(0), "g");
        for step in 0..20 {
            let began = step * 10_000_000 - if step < 10 { 0 } else { back_ns };
            collector.operation(&operation(0, began, began + 4_000_000));
        }
        let report = analyze(vec![collector.finish(source(Format::Ronde))]).unwrap();
        report
            .warnings
            .iter()
            .find(|warning| warning.contains("the clock was set back"))
            .cloned()
    };
    assert_eq!(run(0), None);
    let warning = run(55_000_000).unwrap();
    assert!(
        warning.starts_with(
            "1 times an operation on a tensor begins before the previous one has ended, first g"
        ),
        "{warning}"
    );
}

#[test]
fn files_of_two_jobs_are_asked_about() {
    let job = Job {
        format: Format::Ronde,
        ..Job::default()
    };
    let asked = |later_us: f64| {
        let mut collector = Collector::new();
        job.tell(1, 0.0, &mut collector);
        let other = collector.finish(job.source(1, later_us));
        let report = analyze(vec![job.record(0, 0.0), other]).unwrap();
        let warned = report
            .warnings
            .iter()
            .any(|warning| warning.contains("may be of different jobs"));
        let withheld = matches!(report.withheld, Some(Withheld::Mixed { .. }));
        assert_eq!(warned, withheld, "{:?}", report.withheld);
        warned
    };
    assert!(!asked(0.0));
    assert!(asked(60e6) && asked(-60e6));
}

#[test]
fn a_job_that_tunes_is_not_told_to_tune() {
    let mut collector = Collector::new();
    collector.name(NameId(0), "g");
    for step in 0..30 {
        let began = step * 10_000_000;
        collector.mark(Mark {
            kind: MarkKind::Settings {
                fusion_threshold_bytes: 1 << (20 + step % 2),
                cycle_time_ns: 1_000_000,
                gpu_fusion_threshold_bytes: None,
            },
            at: began,
        });
        collector.operation(&operation(0, began, began + 4_000_000));
    }
    let report = analyze(vec![collector.finish(source(Format::Ronde))]).unwrap();
    let sentence = &report.advice[0].sentence;
    assert!(
        sentence.contains("the settings changed during the recorded steps")
            && report.advice[0].variable.is_none(),
        "{sentence}"
    );
}

#[test]
fn a_worker_that_waits_for_no_stage_is_not_said_to() {
    let run = |stages: &[(i64, i64)]| {
        let mut collector = Collector::new();
        collector.name(NameId(0), "g");
        collector.name(NameId(1), "g.REDUCE");
        for step in 0..11 {
            let began = step * 10_000_000;
            let mut operation = operation(0, began, began + 8_000_000);
            for (from, to) in stages {
                operation.activities.push(Activity {
                    name: NameId(1),
                    phase: Phase::Collective,
                    span: Span {
                        began: began + from * 1_000_000,
                        ended: began + to * 1_000_000,
                    },
                });
            }
            collector.operation(&operation);
        }
        let report = analyze(vec![collector.finish(source(Format::Byteps))]).unwrap();
        report
            .warnings
            .iter()
            .any(|warning| warning.contains("has no PUSH stage"))
    };
    assert!(run(&[(0, 2), (6, 8)]));
    assert!(!run(&[(0, 8)]));
}

#[test]
fn steps_that_are_none_of_them_whole_are_not_called_shown() {
    let mut collector = Collector::new();
    collector.name(NameId(0), "g");
    for step in 0..11 {
        let began = step * 10_000_000;
        collector.operation(&operation(0, began, began + 4_000_000));
    }
    let record = collector.finish(source(Format::Horovod));
    let report = crate::analysis::analyze_steps(vec![record], 10..=10).unwrap();
    assert!(report.steps[0].partial && report.steady.is_none());
    assert!(
        report
            .warnings
            .iter()
            .any(|warning| warning.contains("there is no summary")),
        "{:?}",
        report.warnings
    );
}

#[test]
fn a_loss_for_each_micro_batch_does_not_end_a_step() {
    let mut collector = Collector::new();
    (0..5).for_each(|id| collector.name(NameId(id), &format!("n{id}")));
    let mut at = 0;
    for _ in 0..10 {
        // Four losses (tensor 0), then the gradients.
        for tensor in [0, 0, 0, 0, 1, 2, 3, 4] {
            collector.operation(&operation(tensor, at, at + 1_000_000));
            at += 2_000_000;
        }
    }
    let report = analyze(vec![collector.finish(source(Format::Ronde))]).unwrap();
    let whole: Vec<_> = report.steps.iter().filter(|step| !step.partial).collect();
    assert!(whole.len() >= 8, "{:?}", report.steps);
    assert!(
        whole
            .iter()
            .all(|step| step.tensors == 8 && step.ms == 16.0),
        "{whole:?}"
    );
}

#[test]
fn validation_between_steps_is_left_out() {
    let mut collector = Collector::new();
    (0..6).for_each(|id| collector.name(NameId(id), &format!("n{id}")));
    let mut at = 0;
    let mut go = |tensor: u32| {
        collector.operation(&operation(tensor, at, at + 1_000_000));
        at += 2_000_000;
    };
    for step in 0..30 {
        (0..4).for_each(&mut go);
        if step % 10 == 9 {
            (0..20).for_each(|_| go(5));
        }
    }
    let report = analyze(vec![collector.finish(source(Format::Ronde))]).unwrap();
    let steady = report.steady.unwrap();
    assert!(steady.steps >= 24, "{steady:?}");
    assert_eq!((steady.step_ms.min, steady.step_ms.max), (8.0, 8.0));
}

#[test]
fn what_is_over_in_the_microsecond_of_a_mark_lies_before_it() {
    let mut collector = Collector::new();
    (0..2).for_each(|id| collector.name(NameId(id), &format!("n{id}")));
    for step in 1..=12 {
        let at = step * 10_000_000;
        let began = if step % 3 == 0 { at } else { at - 1_000 };
        collector.operation(&operation(0, at - 9_000_000, at - 8_000_000));
        collector.operation(&operation(1, began, at));
        let kind = MarkKind::Step;
        collector.mark(Mark { kind, at });
    }
    let report = analyze(vec![collector.finish(source(Format::Ronde))]).unwrap();
    let tensors: Vec<_> = report.steps.iter().map(|step| step.tensors).collect();
    assert_eq!(tensors, [2; 12]);
}

#[test]
fn a_file_too_long_to_keep_says_nearly_the_same() {
    let job = Job {
        steps: 200,
        ..Job::default()
    };
    let whole = analyze(vec![job.record(0, 0.0)]).unwrap();
    let limits = crate::analysis::collect::Limits {
        pending_bytes: 300 << 10,
        step_bytes: 1 << 20,
        kept_bytes: 500 << 10,
    };
    let mut collector = Collector::with_limits(limits);
    job.tell(0, 0.0, &mut collector);
    let record = collector.finish(job.source(0, 0.0));
    assert!(
        record.kept.len() < 60 && record.kept.len() > 10,
        "{}",
        record.kept.len()
    );
    let long = analyze(vec![record]).unwrap();
    assert_eq!(long.steps.len(), 200);
    let json = |report: &crate::analysis::Report| serde_json::to_value(&report.steps).unwrap();
    assert_eq!(json(&long), json(&whole));
    let batches = |report: crate::analysis::Report| report.fusion.unwrap().batches_per_step.p50;
    assert!((batches(long) - batches(whole)).abs() <= 1.0);
}

fn any_time() -> impl Strategy<Value = i64> {
    prop_oneof![4 => -10_000_000i64..1_000_000_000, 1 => any::<i64>()]
}

fn any_operation() -> impl Strategy<Value = Operation> {
    let kind = prop_oneof![
        Just(Kind::Allreduce),
        Just(Kind::Broadcast),
        Just(Kind::Join)
    ];
    let span = || (any_time(), any_time()).prop_map(|(began, ended)| Span { began, ended });
    let ticks = proptest::collection::vec((0u32..5, any_time()), 0..4);
    let dtype = proptest::option::of(prop_oneof![Just(Dtype::F32), Just(Dtype::U8)]);
    let sizes = (
        dtype,
        proptest::option::of(any::<u64>()),
        proptest::option::of(0u64..1 << 30),
    );
    let phases = proptest::collection::vec((0u32..9, span()), 0..3);
    (
        0u32..9,
        kind,
        proptest::option::of(span()),
        ticks,
        proptest::option::weighted(0.9, span()),
        phases,
        sizes,
    )
        .prop_map(
            |(tensor, kind, negotiation, ticks, execution, phases, (dtype, elements, bytes))| {
                Operation {
                    tensor: NameId(tensor),
                    kind,
                    negotiation,
                    ticks: ticks
                        .into_iter()
                        .map(|(rank, at)| Tick { rank, at })
                        .collect(),
                    execution,
                    activities: phases
                        .into_iter()
                        .map(|(name, span)| Activity {
                            name: NameId(name),
                            phase: Phase::Collective,
                            span,
                        })
                        .collect(),
                    sums: None,
                    dtype,
                    elements,
                    bytes,
                    refused: execution.is_none(),
                }
            },
        )
}

/// Checks that every number in `value` is finite: serde writes `null` for others, because JSON has
/// none.
fn no_nulls_where_numbers_belong(value: &serde_json::Value, path: &str) {
    match value {
        serde_json::Value::Object(fields) => {
            for (key, value) in fields {
                let number = key.ends_with("_ms")
                    || ["p10", "p50", "p90", "mean", "share", "overlap"].contains(&key.as_str());
                let optional = [
                    "streamed_ms",
                    "cycle_time_ms",
                    "gain_ms",
                    "negotiate_cached_ms",
                    "negotiate_uncached_ms",
                ];
                assert!(
                    !(number && value.is_null()) || optional.contains(&key.as_str()),
                    "{path}.{key} is no number"
                );
                no_nulls_where_numbers_belong(value, &format!("{path}.{key}"));
            }
        }
        serde_json::Value::Array(values) => {
            values
                .iter()
                .for_each(|value| no_nulls_where_numbers_belong(value, path));
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn whatever_a_file_says_it_is_analysed(
        operations in proptest::collection::vec(any_operation(), 0..60),
        marks in proptest::collection::vec(any_time(), 0..6),
        compute in proptest::collection::vec((any_time(), any_time()), 0..6),
        format in prop_oneof![Just(Format::Horovod), Just(Format::Ronde), Just(Format::Byteps), Just(Format::Kineto)],
        cycle_time_ms in prop_oneof![Just(None), Just(Some(f64::NAN)), Just(Some(0.0)), Just(Some(5.0))],
    ) {
        let mut collector = Collector::new();
        (0..9).for_each(|id| collector.name(NameId(id), &format!("n{id}")));
        operations.iter().for_each(|operation| collector.operation(operation));
        for &at in &marks {
            collector.mark(Mark { kind: MarkKind::Step, at });
            collector.mark(Mark { kind: MarkKind::Cycle, at });
        }
        compute.iter().for_each(|&(began, ended)| collector.compute(Span { began, ended }, Work::Kernel));
        let record = collector.finish(Source { cycle_time_ms, ..source(format) });
        let report = analyze(vec![record]).unwrap();
        for step in &report.steps {
            let sum: f64 = step.exposed_ms.iter().sum();
            prop_assert!((sum - step.ms).abs() <= 1e-9 * step.ms.max(1.0));
            prop_assert!(step.exposed_ms.iter().zip(step.total_ms).all(|(exposed, total)| *exposed <= total));
        }
        let json = serde_json::to_value(&report).unwrap();
        no_nulls_where_numbers_belong(&json, "report");
    }
}
