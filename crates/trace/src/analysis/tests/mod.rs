//! Tests of the analysis with simulated jobs of known properties.

mod advised;
mod byteps;
mod compared;
mod gate;
mod job;
mod joined;
mod odd;
mod profiled;
mod profiler;

use super::report::{CutReason, PartKind, Report, StepsFoundBy, StragglerGroup};
use super::{AnalysisError, analyze, analyze_for_replay, analyze_steps};
use crate::{Format, Kind};
use job::Job;

fn report(job: &Job) -> Report {
    analyze(vec![job.record(0, 0.0)]).unwrap()
}

fn near(a: f64, b: f64, relative: f64) -> bool {
    (a - b).abs() <= relative * b.abs()
}

#[test]
fn steps_are_found_and_their_parts_add_up() {
    let job = Job::default();
    let report = report(&job);
    assert_eq!((report.ranks, report.reference_rank), (2, 0));
    assert_eq!(report.steps_found_by, StepsFoundBy::Names);
    assert_eq!(report.steps.len(), 30);
    // The first step has no start, the last is cut off by the end of the file.
    assert_eq!(report.steps.iter().filter(|step| step.partial).count(), 2);
    for step in &report.steps {
        let sum: f64 = step.exposed_ms.iter().sum();
        assert!((sum - step.ms).abs() < 1e-6, "{step:?}");
        for (exposed, total) in step.exposed_ms.iter().zip(step.total_ms) {
            assert!(*exposed <= total + 1e-9, "{step:?}");
        }
        assert_eq!(step.tensors, 40);
    }
    let steady = report.steady.as_ref().unwrap();
    assert!(report.startup.is_none());
    // 50 ms until the last tensor is ready (without jitter), then the rest: the last batch is about
    // 400 KiB.
    assert!(
        near(
            steady.parts[PartKind::Compute as usize].exposed_ms.p50,
            50.0,
            0.01
        ),
        "{steady:?}"
    );
    assert!(
        steady.step_ms.p50 > 50.0 && steady.step_ms.p50 < 53.0,
        "{steady:?}"
    );
    let sum: f64 = steady.parts.iter().map(|part| part.exposed_ms.mean).sum();
    assert!((sum - steady.step_ms.mean).abs() < 1e-6);
    // 95 MiB at 4 GB/s plus α for each batch, nearly all of it hidden by the backward pass.
    let batches = report.fusion.as_ref().unwrap().batches_per_step.p50;
    let bytes: u64 = job.tensors.iter().sum();
    let communication = bytes as f64 / 4e6 + 0.2 * batches;
    assert!(
        near(steady.communication_ms.p50, communication, 0.02),
        "{} {communication}",
        steady.communication_ms.p50
    );
    assert!(steady.overlap > 0.9, "{}", steady.overlap);
    assert_eq!(steady.bytes, bytes);
}

#[test]
fn the_link_is_measured() {
    // Single tensors of two sizes, and batches of both.
    let report = report(&Job {
        threshold: 8 << 20,
        ..Job::default()
    });
    let row = &report.bandwidth[0];
    let fit = row.fit.unwrap();
    assert_eq!(row.activity, "MPI_ALLREDUCE");
    assert!(
        near(fit.alpha_us, 200.0, 0.02) && near(fit.gb_per_s, 4.0, 0.02),
        "{fit:?}"
    );
}

#[test]
fn marked_steps_last_from_mark_to_mark_and_say_the_same() {
    let named = report(&Job::default());
    let marked = report(&Job {
        marks: true,
        ..Job::default()
    });
    assert_eq!(marked.steps_found_by, StepsFoundBy::Marks);
    assert_eq!(marked.steps.len(), 30);
    // The last step is complete now.
    assert_eq!(marked.steps.iter().filter(|step| step.partial).count(), 1);
    let median = |report: &Report| report.steady.as_ref().unwrap().step_ms.p50;
    assert!(near(median(&marked), median(&named), 0.01));
}

#[test]
fn names_that_never_come_again_are_no_hindrance() {
    // Sizes that do not repeat within a step.
    let tensors = (0..40u64).map(|i| (100 + i * i) << 10);
    let report = report(&Job {
        tensors: tensors.collect(),
        fresh_names: true,
        steps: 60,
        ..Job::default()
    });
    assert_eq!(report.steps_found_by, StepsFoundBy::Period);
    let whole: Vec<_> = report.steps.iter().filter(|step| !step.partial).collect();
    assert!(
        whole.len() >= 50 && whole.iter().all(|step| step.tensors == 40),
        "{}",
        whole.len()
    );
    assert!(near(report.steady.unwrap().step_ms.p50, 51.0, 0.04));
}

#[test]
fn a_slow_start_is_told_apart() {
    let report = report(&Job {
        startup: (6, 2.5),
        ..Job::default()
    });
    let (startup, steady) = (report.startup.unwrap(), report.steady.unwrap());
    assert_eq!(
        (startup.first_step, startup.steps, steady.first_step),
        (0, 6, 6)
    );
    assert!(near(startup.step_ms.p50, 126.0, 0.02), "{startup:?}");
    assert!(near(steady.step_ms.p50, 51.0, 0.03), "{steady:?}");
}

#[test]
fn a_slow_rank_is_found_and_its_cost_recomputed() {
    for (slow, us) in [(1, 8_000.0), (2, 20_000.0), (0, 15_000.0)] {
        let job = Job {
            ranks: 4,
            slow: Some((slow, us)),
            ..Job::default()
        };
        let truth = report(&Job {
            slow: None,
            ..job.clone()
        })
        .steady
        .unwrap()
        .step_ms
        .p50;
        let report = report(&job);
        let stragglers = report.stragglers.unwrap();
        assert_eq!(stragglers.slowest, Some(slow));
        let row = &stragglers.ranks[slow as usize];
        let cost = report.steady.unwrap().step_ms.p50 - truth;
        assert!(near(cost, us / 1e3, 0.05), "the model itself: {cost}");
        assert!(
            near(row.cost_ms, cost, 0.1),
            "rank {slow}: {} instead of {cost}",
            row.cost_ms
        );
        assert!(row.last_share > 0.9, "{row:?}");
        let others = stragglers.ranks.iter().filter(|row| row.rank != slow);
        others.for_each(|row| assert!(row.cost_ms < 1.0, "{row:?}"));
    }
}

#[test]
fn two_ranks_that_are_late_together_are_found() {
    let job = Job {
        ranks: 4,
        slow: Some((2, 15_000.0)),
        slow_too: vec![3],
        ..Job::default()
    };
    let report = report(&job);
    let stragglers = report.stragglers.as_ref().unwrap();
    assert_eq!(stragglers.slowest, None);
    let pair = stragglers.slowest_group.as_ref().unwrap();
    assert_eq!(pair.ranks, [2, 3]);
    assert!(near(pair.cost_ms, 15.0, 0.1), "{pair:?}");
    assert!(pair.last_share > 0.9, "{pair:?}");
    let advice = &report.advice[0];
    assert!(
        advice.sentence.starts_with("Ranks 2 and 3 delay"),
        "{advice:?}"
    );
    // Of three ranks, two late ones are the majority.
    let three = Job {
        ranks: 3,
        slow: Some((1, 15_000.0)),
        slow_too: vec![2],
        ..job
    };
    let stragglers = self::report(&three).stragglers.unwrap();
    assert!(stragglers.slowest_group.is_none());
}

#[test]
fn up_to_half_of_the_ranks_are_found_to_be_late_together() {
    for (slow, slow_too, text) in [(1, vec![4, 6], "1, 4 and 6"), (4, vec![5, 6, 7], "4 to 7")] {
        let job = Job {
            ranks: 8,
            slow: Some((slow, 15_000.0)),
            slow_too: slow_too.clone(),
            jitter_us: 500.0,
            ..Job::default()
        };
        let report = report(&job);
        let stragglers = report.stragglers.as_ref().unwrap();
        assert_eq!(stragglers.slowest, None);
        let group = stragglers.slowest_group.as_ref().unwrap();
        assert_eq!(group.ranks, [&[slow][..], &slow_too].concat());
        assert_eq!(group.ranks_text(), text);
        assert!(near(group.cost_ms, 15.0, 0.1), "{group:?}");
        let advice = &report.advice[0].sentence;
        assert!(
            advice.starts_with(&format!("Ranks {text} delay")),
            "{advice}"
        );
    }
    let many = StragglerGroup {
        ranks: (0..40).step_by(3).collect(),
        ..report(&Job {
            ranks: 4,
            slow: Some((2, 15_000.0)),
            slow_too: vec![3],
            ..Job::default()
        })
        .stragglers
        .unwrap()
        .slowest_group
        .unwrap()
    };
    assert_eq!(many.ranks_text(), "0, 3, 6, 9, 12, 15, 18, 21 and 6 others");
}

#[test]
fn one_file_has_the_ready_ticks_of_every_rank() {
    let report = report(&Job {
        ranks: 4,
        slow: Some((2, 10_000.0)),
        ..Job::default()
    });
    let ranks: Vec<u32> = report.lanes.iter().map(|lane| lane.rank).collect();
    assert_eq!(ranks, [0, 1, 2, 3]);
    let end = *report.lanes[0].step_ends_ms.last().unwrap();
    for lane in &report.lanes {
        assert_eq!(lane.bars.is_empty(), lane.rank != 0);
        assert_eq!(lane.ready.len(), report.lanes[0].ready.len());
        assert!(lane.ready.is_sorted_by(|a, b| a.at_ms <= b.at_ms));
        assert!(
            lane.ready
                .iter()
                .all(|tick| (0.0..=end).contains(&tick.at_ms) && !tick.tensor.is_empty())
        );
    }
    // The tensors of the slow rank are ready later.
    let mean = |rank: usize| {
        let ready = &report.lanes[rank].ready;
        ready.iter().map(|tick| tick.at_ms).sum::<f64>() / ready.len() as f64
    };
    assert!(mean(2) > mean(1) + 1.0, "{} {}", mean(1), mean(2));
    let cycles = &report.lanes[0].cycles_ms;
    assert!(cycles.is_sorted() && cycles.iter().all(|at| (0.0..=end).contains(at)));
}

#[test]
fn ranks_that_are_late_by_turns_do_not_stand_out() {
    for ranks in [2, 4] {
        let stragglers = report(&Job {
            ranks,
            jitter_us: 2_000.0,
            ..Job::default()
        })
        .stragglers
        .unwrap();
        assert_eq!(stragglers.slowest, None);
        assert!(stragglers.slowest_group.is_none());
        assert_eq!(
            stragglers.ranks.iter().map(|rank| rank.last).sum::<u64>(),
            stragglers.operations
        );
    }
}

#[test]
fn files_of_all_ranks_make_up_for_ticks_that_each_has_only_of_itself() {
    let job = Job {
        slow: Some((1, 12_000.0)),
        ticks: false,
        format: Format::Ronde,
        ..Job::default()
    };
    // The files' zeros are 3 s apart.
    let report = analyze(vec![job.record(1, 3e6), job.record(0, 0.0)]).unwrap();
    assert_eq!(report.reference_rank, 0);
    let stragglers = report.stragglers.unwrap();
    assert_eq!(stragglers.slowest, Some(1));
    assert!(
        near(stragglers.ranks[1].cost_ms, 12.0, 0.1),
        "{stragglers:?}"
    );
    assert_eq!(report.lanes.len(), 2);
    assert_eq!(report.lanes[0].step_ends_ms, report.lanes[1].step_ends_ms);
    // The collective is drawn at the same time on both ranks.
    let collective = |lane: usize| {
        let bars = report.lanes[lane].bars.iter();
        bars.filter(|bar| bar.part == PartKind::Collective)
            .map(|bar| bar.began_ms)
            .next()
            .unwrap()
    };
    assert!((collective(0) - collective(1)).abs() < 1e-3);
    // Rank 0 waits for rank 1; rank 1 waits for no rank.
    let waits = |lane: usize| {
        let bars = report.lanes[lane].bars.iter();
        let waits = bars.filter(|bar| bar.part == PartKind::WaitForRanks);
        waits
            .map(|bar| bar.ended_ms - bar.began_ms)
            .fold(0.0, f64::max)
    };
    assert!(
        waits(0) > 5.0 && waits(1) < 0.01,
        "{} {}",
        waits(0),
        waits(1)
    );
    // A single file has only its own rank's times.
    assert!(
        analyze(vec![job.record(0, 0.0)])
            .unwrap()
            .stragglers
            .is_none()
    );
}

#[test]
fn what_cut_batches_short() {
    let cuts = |job: Job| report(&job).fusion.unwrap();
    let tiny = cuts(Job {
        threshold: 256 << 10,
        ..Job::default()
    });
    assert_eq!(
        (tiny.batches_per_step.p50, tiny.tensors_per_batch.max),
        (40.0, 1.0)
    );
    assert!(tiny.threshold_from_file);
    // About twenty tensors become ready in 25 ms; 4 MiB hold only a few of them.
    let threshold = cuts(Job {
        threshold: 4 << 20,
        cycle_us: 25_000.0,
        ..Job::default()
    });
    assert_eq!(
        threshold.cuts[0].reason,
        CutReason::Threshold,
        "{threshold:?}"
    );
    let on_gpus = cuts(Job {
        threshold: 64 << 20,
        gpu_threshold: Some(4 << 20),
        cycle_us: 25_000.0,
        ..Job::default()
    });
    assert_eq!(on_gpus.cuts[0].reason, CutReason::Threshold, "{on_gpus:?}");
    assert_eq!(
        (on_gpus.threshold_bytes, on_gpus.threshold_from_file),
        (Some(4 << 20), true)
    );
    assert_eq!(on_gpus.host_threshold_bytes, Some(64 << 20));
    // With a large threshold and short cycles, only readiness limits the batches.
    let ready = cuts(Job {
        threshold: 512 << 20,
        ..Job::default()
    });
    assert_eq!(ready.cuts[0].reason, CutReason::NotReady, "{ready:?}");
    let ends = ready
        .cuts
        .iter()
        .find(|cut| cut.reason == CutReason::EndOfStep)
        .unwrap();
    assert_eq!(ends.batches, 28);
    assert!((ready.cuts.iter().map(|cut| cut.share).sum::<f64>() - 1.0).abs() < 1e-9);
    let batches: u64 = ready.histogram.iter().map(|bin| bin.batches).sum();
    assert_eq!(batches, ready.bytes_per_batch.n);
}

#[test]
fn alltoalls_share_no_batch_and_no_setting_would_change_that() {
    // About twenty tensors become ready in 25 ms; 4 MiB would hold only a few of them if they were
    // fused.
    let fusion = report(&Job {
        kind: Kind::Alltoall,
        threshold: 4 << 20,
        cycle_us: 25_000.0,
        ..Job::default()
    })
    .fusion
    .unwrap();
    assert_eq!(
        (fusion.batches_per_step.p50, fusion.tensors_per_batch.max),
        (40.0, 1.0)
    );
    let cut = |reason| fusion.cuts.iter().any(|cut| cut.reason == reason);
    assert_eq!(fusion.cuts[0].reason, CutReason::OtherKind, "{fusion:?}");
    assert!(!cut(CutReason::Threshold), "{fusion:?}");
}

#[test]
fn tensors_come_with_the_ready_times_of_a_profile() {
    let report = report(&Job {
        slow: Some((1, 10_000.0)),
        jitter_us: 0.0,
        ..Job::default()
    });
    assert_eq!(report.tensors.len(), 40);
    let last = &report.tensors[39];
    assert_eq!(
        (last.name.as_str(), last.elements, last.dtype.as_deref()),
        ("g39", Some(100 << 10), Some("float32"))
    );
    assert!(
        near(last.ready_us[0].unwrap(), 50_000.0, 1e-3)
            && near(last.ready_us[1].unwrap(), 60_000.0, 1e-3),
        "{last:?}"
    );
    assert!(last.ready_jitter_us < 1.0);
    assert!(
        report
            .tensors
            .is_sorted_by(|a, b| a.ready_us[0] <= b.ready_us[0])
    );
}

#[test]
fn two_files_of_one_rank_are_an_error_and_segments_are_not() {
    let job = Job {
        format: Format::Ronde,
        ..Job::default()
    };
    let error = analyze(vec![
        job.record(1, 0.0),
        job.record(0, 0.0),
        job.record(1, 0.0),
    ])
    .unwrap_err();
    assert!(
        matches!(error, AnalysisError::RankTwice { rank: 1, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("t.rank1.json"), "{error}");
    assert_eq!(analyze(Vec::new()).unwrap_err(), AnalysisError::Nothing);

    let segment = |path: &str, zero_us: f64| {
        let mut record = job.record(0, zero_us);
        record.source.path = path.into();
        record
    };
    let whole = analyze(vec![segment("t.json", -2e6), segment("t.old.json", 0.0)]).unwrap();
    assert_eq!(whole.sources.len(), 1);
    assert_eq!(whole.steps.len(), 60);
    assert_eq!(whole.sources[0].tensors, 40);
    assert_eq!(whole.sources[0].operations, 2_400);
    assert!(near(whole.steady.unwrap().step_ms.p50, 51.0, 0.03));

    // Rank 1's files have grown less, so its old one ended long before rank 0's began; a job
    // without names numbers its tensors.
    let nameless = Job {
        fresh_names: true,
        ..job.clone()
    };
    for job in [&job, &nameless] {
        let segment = |rank: u32, path: &str, zero_us: f64| {
            let mut record = job.record(rank, 0.0);
            record.source.path = path.into();
            record.source.epoch_ns = record.source.epoch_ns.map(|ns| ns + (zero_us * 1e3) as i64);
            record.source.clock.as_mut().unwrap().zero_ns = (zero_us * 1e3) as i64;
            record
        };
        let joined = analyze(vec![
            segment(0, "t.json", 100e6),
            segment(0, "t.old.json", 50e6),
            segment(1, "t.rank1.old.json", 0.0),
            segment(1, "t.rank1.json", 100e6),
        ]);
        assert_eq!(joined.unwrap().sources.len(), 2);
    }
}

#[test]
fn hierarchical_allreduces_are_known_by_their_stages() {
    for is_hierarchical in [false, true] {
        let job = Job {
            is_hierarchical,
            ..Job::default()
        };
        let (_, replayable) = analyze_for_replay(vec![job.record(0, 0.0)], 0..=u64::MAX).unwrap();
        assert_eq!(replayable.unwrap().is_hierarchical, is_hierarchical);
    }
}

#[test]
fn without_ticks_horovods_number_of_ranks_is_unknown() {
    let ranks_unknown = |ticks| {
        let job = Job {
            ranks: 4,
            ticks,
            ..Job::default()
        };
        let mut record = job.record(0, 0.0);
        if !ticks {
            record.counters = super::collect::Counters::default();
        }
        analyze(vec![record]).unwrap().ranks_unknown
    };
    assert!(!ranks_unknown(true));
    assert!(ranks_unknown(false));
}

#[test]
fn negotiation_times_are_those_of_the_selected_steady_steps() {
    let job = Job::default();
    let report = analyze_steps(vec![job.record(0, 0.0)], 20..=25).unwrap();
    let batches: u64 = report.steps.iter().map(|step| step.batches).sum();
    assert_eq!(report.steps.len(), 6);
    assert_eq!(report.negotiate_cached_ms.unwrap().n, batches);
    assert!(report.negotiate_uncached_ms.is_none());
}
