//! Tests of the tuner with a synthetic job, whose steps have several signatures.

use std::sync::Mutex;
use std::time::Duration;

use ronde_tuner::{STATE_MODEL, State};

use super::*;
use crate::clock::Nanos;
use crate::negotiation::OpKind;
use crate::sync::lock;
use crate::tensor::Dtype;
use crate::timeline::Item;
use crate::timeline::step_meter::{ExecutedBatch, Step, StepMeter};

/// Job whose fusion threshold is tuned, without a trace.
struct Job {
    autotune: Autotune,
    tracer: Tracer,
    progress: Arc<Progress>,
    settings: Settings,
    steps: u32,
}

/// Steps after which a search has failed. Each waits a moment for the proposals' thread.
const STEPS_MAX: usize = 20_000;

/// Step time without noise, ms: 20 at the best threshold (16 MiB, or 256 KiB for odd signatures), 2
/// more for each factor of two.
fn best_ms(signature: u64, settings: &Settings) -> f64 {
    let best: f64 = if signature.is_multiple_of(2) {
        16.0
    } else {
        0.25
    };
    let fusion_mb = settings.fusion_threshold_bytes as f64 / MIB;
    20.0 + 2.0 * (fusion_mb.max(1.0 / 32.0) / best).log2().abs()
}

impl Job {
    fn new(env: &[(&str, &str)]) -> Self {
        Self::after_resets(env, 0, 2)
    }

    /// Starts at 1 MiB, 1 ms; only the threshold is free.
    fn after_resets(env: &[(&str, &str)], resets: u64, ranks: usize) -> Self {
        let start = [
            ("HOROVOD_CYCLE_TIME", "1"),
            ("RONDE_AUTOTUNE_START", "fusion_mb=1"),
            ("RONDE_AUTOTUNE_SEED", "7"),
        ];
        let value = |name: &str| {
            let mut all = start.iter().chain(env);
            all.find(|(known, _)| *known == name)
                .map(|(_, value)| *value)
        };
        let mut knobs = Knobs::from_lookup(value).unwrap();
        knobs.resets = resets;
        let progress = Arc::<Progress>::default();
        let on = (ranks, Hosts::one(ranks));
        let autotune = Autotune::new(&knobs, on, Arc::clone(&progress), true).unwrap();
        Self {
            settings: autotune.start(),
            autotune,
            tracer: Tracer::default(),
            progress,
            steps: 0,
        }
    }

    fn step(&mut self, signature: u64) {
        self.steps += 1;
        // Noise of up to half a percent either way.
        let noise = f64::from(self.steps.wrapping_mul(2_654_435_769) >> 22) / 1024.0 - 0.5;
        let sample = StepSample {
            step_ms: best_ms(signature, &self.settings) * (1.0 + 0.01 * noise),
            signature,
            bytes: 1 << 20,
            tensors: 10,
            negotiate_ms: 0.1,
        };
        if let Some(next) = self.autotune.on_step(&sample, &mut self.tracer) {
            self.settings = next;
        }
    }

    /// So many steps that the next change of signature does not count as one of many.
    fn train(&mut self, signature: u64) {
        (0..100).for_each(|_| self.step(signature));
    }

    fn report(&self) -> AutotuneReport {
        self.progress.autotune().unwrap()
    }

    /// Runs steps of `signature` until it has its own verdict.
    fn tune(&mut self, signature: u64) -> AutotuneVerdict {
        for _ in 0..STEPS_MAX {
            self.step(signature);
            let verdict = self.report().verdict;
            if let Some(verdict) =
                verdict.filter(|_| self.autotune.search.signature == Some(signature))
            {
                return verdict;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        panic!("{:?}", self.report());
    }
}

/// Tests of jobs with resets, which share the memory of this process.
static RESETS: Mutex<()> = Mutex::new(());

#[test]
fn what_was_learned_survives_resets_of_the_job() {
    let _alone = lock(&RESETS);
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("a.csv");
    let signature = 0x1234_5678; // of no other test
    let env = [
        ("HOROVOD_AUTOTUNE_LOG", log.to_str().unwrap()),
        ("RONDE_AUTOTUNE_RECHECK", "0"),
    ];
    let mut job = Job::new(&env);
    let first = job.tune(signature);
    assert!(!first.kept_default, "{first}");
    let contests = job.autotune.search.session.contests();
    drop(job);

    // With as many ranks, in the memory of another process: in force at once, without a contest.
    let text = memory::told(0).unwrap();
    memory::learn(&text).unwrap();
    let mut job = Job::after_resets(&env, 1, 2);
    job.train(signature);
    let told = job.report();
    assert_eq!(job.settings, first.settings);
    assert_eq!(told.verdict.unwrap().reason, first.reason);
    drop(job);

    // With another number of ranks: a search that shares the error of those before.
    let mut job = Job::after_resets(&env, 2, 3);
    let second = job.tune(signature);
    assert_eq!(second.settings, first.settings);
    assert!(job.autotune.search.session.contests() > contests);
    drop(job);

    let text = std::fs::read_to_string(&log).unwrap();
    let log = ronde_tuner::read_log(&text).unwrap();
    let phases: Vec<&str> = log
        .rows
        .iter()
        .filter_map(|row| row.phase.as_deref())
        .collect();
    let marks: Vec<_> = log
        .rows
        .iter()
        .filter(|row| row.phase.as_deref() == Some("reset"))
        .collect();
    let numbers: Vec<_> = marks.iter().map(|row| (row.sample, row.score)).collect();
    assert_eq!(numbers, [(Some(1), None), (Some(2), None)], "{text}");
    assert_eq!((phases[0], phases[phases.len() - 1]), ("default", "best"));
}

#[test]
fn a_shape_that_comes_back_is_in_force_at_once_and_not_tuned_again() {
    let (a, b) = (100, 101);
    // A re-check would measure the default now and then.
    let mut job = Job::new(&[("RONDE_AUTOTUNE_RECHECK", "0")]);
    let first = job.tune(a);
    assert!(!first.kept_default && first.retuned.is_none(), "{first}");
    let second = job.tune(b);
    assert!(
        second
            .retuned
            .as_ref()
            .is_some_and(|why| why.contains("tensors of a step")),
        "{second}"
    );
    assert!(
        second.settings.fusion_threshold_bytes < 1 << 20
            && first.settings.fusion_threshold_bytes > 4 << 20,
        "{first} {second}"
    );
    job.train(b);
    for _ in 0..3 {
        for (signature, verdict) in [(a, &first), (b, &second)] {
            (0..3).for_each(|_| job.step(signature));
            assert_eq!(job.settings, verdict.settings);
            job.train(signature);
            let told = job.report().verdict.unwrap();
            assert_eq!(
                (told.steps_active, &told.reason),
                (verdict.steps_active, &verdict.reason)
            );
            assert_eq!(job.settings, verdict.settings);
        }
    }
    assert_eq!(job.autotune.searches, 1); // besides the first
}

#[test]
fn a_few_steps_of_another_shape_change_nothing() {
    let (a, b) = (200, 201);
    let mut job = Job::new(&[("RONDE_AUTOTUNE_RECHECK", "0")]);
    let verdict = job.tune(a);
    let steps = job.autotune.search.steps;
    for _ in 0..20 {
        (0..7).for_each(|_| job.step(b));
        (0..20).for_each(|_| job.step(a));
        assert_eq!(job.settings, verdict.settings);
    }
    // Every step of its own counts, none of the others: their times would look like a drift.
    assert_eq!(job.autotune.search.steps, steps + 20 * 20);
    assert!(job.report().verdict.is_some() && job.autotune.others.is_empty());
}

#[test]
fn a_search_that_was_left_in_the_middle_goes_on_where_it_was() {
    let (a, b) = (300, 301);
    let mut job = Job::new(&[]);
    while job.report().phase == ronde_tuner::Phase::Default {
        job.step(a);
        std::thread::sleep(Duration::from_micros(200));
    }
    let (steps, setting) = (job.autotune.search.steps, job.settings);
    job.tune(b);
    let left: Vec<_> = job
        .autotune
        .others
        .iter()
        .map(|other| (other.signature, other.steps))
        .collect();
    assert_eq!(left, [(Some(a), steps)]);
    job.train(b);
    (0..3).for_each(|_| job.step(a));
    assert_eq!(job.settings, setting);
    assert_ne!(job.report().phase, ronde_tuner::Phase::Default);
    let verdict = job.tune(a);
    assert!(
        !verdict.kept_default && verdict.retuned.is_none(),
        "{verdict}"
    );
}

#[test]
fn all_shapes_are_remembered_and_the_file_has_the_one_trained_longest() {
    let (a, b) = (400, 401);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.json");
    let env = [("RONDE_AUTOTUNE_STATE", path.to_str().unwrap())];
    let model = || State::load(&path).unwrap().key[STATE_MODEL].clone();
    let mut job = Job::new(&env);
    let first = job.tune(a);
    assert_eq!(model(), format!("{a:016x}"));
    let second = job.tune(b);
    (0..20_000).for_each(|_| job.step(b));
    drop(job);
    assert_eq!(model(), format!("{b:016x}"));
    // The next context of this process begins with either.
    for (signature, other, verdict) in [(a, b, &first), (b, a, &second)] {
        let mut job = Job::new(&env);
        (0..3).for_each(|_| job.step(signature));
        assert!(
            job.settings == verdict.settings,
            "{} {verdict}",
            job.settings
        );
        let confirmed = job.tune(signature);
        assert!(confirmed.steps_active <= 130, "{confirmed}");
        let confirmed = job.tune(other);
        assert!(confirmed.steps_active <= 130, "{confirmed}");
    }
}

#[test]
fn a_job_of_ever_new_shapes_is_not_for_ever_tuned() {
    let mut job = Job::new(&[]);
    job.tune(999);
    for signature in 1_000..1_100 {
        (0..20).for_each(|_| job.step(signature));
    }
    // Eight, and one more for each five hundred of two thousand steps.
    assert!(
        (8..=12).contains(&job.autotune.searches),
        "{}",
        job.autotune.searches
    );
    assert!(job.autotune.others.len() < 16);
}

#[test]
fn what_came_first_is_not_held_against_what_the_job_is_made_of() {
    let (odd, own) = (501, 500);
    let mut job = Job::new(&[]);
    (0..5).for_each(|_| job.step(odd));
    let verdict = job.tune(own);
    assert!(
        verdict.retuned.is_none() && !verdict.kept_default,
        "{verdict}"
    );
    assert!(
        (verdict.default_step_ms / 28.0 - 1.0).abs() < 0.02,
        "{verdict}"
    );
    assert!(job.autotune.others.is_empty() && job.autotune.searches == 0);
}

#[test]
fn the_page_learns_what_the_tuner_does_and_the_search_is_the_same() {
    let job = |wants_news| {
        let mut job = Job::new(&[]);
        if wants_news {
            job.progress.want_news();
        }
        job.tune(600);
        job
    };
    let (told, untold) = (job(true), job(false));
    assert_eq!(
        told.report().verdict.unwrap().settings,
        untold.report().verdict.unwrap().settings
    );
    assert!(untold.progress.take_news().is_empty());
    let news = told.progress.take_news();
    let news: Vec<News> = news.into_iter().map(|(_, news)| news).collect();
    assert!(
        matches!(news[0], News::Search { default } if default.fusion_mb == 1.0),
        "{news:?}"
    );
    let mut surfaces = news.iter().filter_map(|news| match news {
        News::Proposed { surface, .. } => Some(surface),
        _ => None,
    });
    let first = surfaces.next().expect("a proposal");
    // 17 levels and the start, which is between two of them; one cycle time.
    assert_eq!((first.fusion_mb.len(), first.cycle_ms.len()), (18, 1));
    let last = surfaces.next_back().unwrap_or(first);
    let at = |mb: f64| {
        last.fusion_mb
            .iter()
            .position(|&level| level >= mb)
            .unwrap()
    };
    let near = last.predicted_ms[at(16.0)];
    assert!((near / 20.0 - 1.0).abs() < 0.2, "{last:?}");
    let is_measured = |news: &&News| matches!(news, News::Measured { .. });
    assert!(news.iter().filter(is_measured).count() > 3);
    assert!(matches!(news.last(), Some(News::Verdict(_))), "{news:?}");
}

#[test]
fn a_job_that_is_killed_in_its_first_comparison_has_spent_its_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.json");
    let env = [("RONDE_AUTOTUNE_STATE", path.to_str().unwrap())];
    let mut job = Job::new(&env);
    assert!(!job.tune(800).kept_default);
    drop(job);
    let first = State::load(&path).unwrap();
    for round in 1..3 {
        let mut job = Job::new(&env);
        (0..5).for_each(|_| job.step(800));
        std::mem::forget(job);
        let state = State::load(&path).unwrap();
        assert_eq!(state.contests, first.contests + round);
        assert_eq!(state.verdict, first.verdict);
    }
}

#[test]
fn tuning_that_is_stopped_keeps_the_settings_and_no_verdict_for_later_runs() {
    let _alone = lock(&RESETS);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.json");
    let mut job = Job::new(&[("RONDE_AUTOTUNE_STATE", path.to_str().unwrap())]);
    while job.report().phase == ronde_tuner::Phase::Default {
        job.step(700);
        std::thread::sleep(Duration::from_micros(200));
    }
    (0..4).for_each(|_| job.step(700));
    let before = job.settings;
    if let Some(next) = job.autotune.stop() {
        job.settings = next;
    }
    assert_eq!(job.settings, before);
    let verdict = job.report().verdict.unwrap();
    assert!(
        !verdict.kept_default && verdict.settings == before,
        "{verdict}"
    );
    let text = verdict.to_string();
    assert!(text.contains("not confirmed: tuning was stopped"), "{text}");
    job.train(700);
    assert_eq!((job.settings, job.autotune.stop()), (before, None));
    drop(job);
    let state = State::load(&path).unwrap();
    assert!(state.verdict.is_none() && !state.samples.is_empty());
    // After a reset of the job they are in force again, and no search begins.
    let mut job = Job::after_resets(&[], 1, 2);
    job.train(700);
    assert_eq!(job.settings, before);
    assert!(job.progress.is_stopped() && job.autotune.given_up);
    // Nor for steps of another signature.
    let mut job = Job::after_resets(&[], 2, 2);
    job.train(701);
    assert!(job.progress.is_stopped() && job.autotune.given_up);
    memory::allow();
}

/// A job whose steps are measured, in which the network stalls at all settings but the start: each
/// 15th step takes 280 ms longer.
struct StallingJob {
    job: Job,
    meter: StepMeter,
    now: Nanos,
}

impl StallingJob {
    fn step(&mut self, start: &Settings) {
        let job = &mut self.job;
        job.steps += 1;
        let is_stalled = job.settings != *start && job.steps.is_multiple_of(15);
        let stall_ms = if is_stalled { 280.0 } else { 0.0 };
        let ns = |ms: f64| (ms * 1e6) as u64;
        self.meter.cycle(self.now, ns(0.1));
        self.now.0 += ns(best_ms(0, &job.settings) + stall_ms);
        let batch = ExecutedBatch {
            ended: self.now,
            transfer_ns: ns(1.0 + stall_ms),
        };
        let tensor = |n: usize| Item::new(&format!("g{n}"), OpKind::Allreduce, Dtype::F32, 1 << n);
        let Some(Step::Sample(sample)) = self.meter.executed(&batch, (10..20).map(tensor)) else {
            return;
        };
        if let Some(next) = job.autotune.on_step(&sample, &mut job.tracer) {
            job.settings = next;
            self.meter.settings_change();
        }
    }
}

#[test]
fn a_setting_whose_stalls_make_it_slower_is_not_kept() {
    let job = Job::new(&[]);
    let start = job.settings;
    let mut stalling = StallingJob {
        job,
        meter: StepMeter::new(),
        now: Nanos(0),
    };
    let mut others = 0;
    for _ in 0..STEPS_MAX {
        stalling.step(&start);
        others += u32::from(stalling.job.settings != start);
        if stalling.job.report().verdict.is_some() {
            break;
        }
        std::thread::sleep(Duration::from_micros(200)); // for the proposals' thread
    }
    assert!(others > 10, "{others} steps at other settings");
    for _ in 0..2000 {
        stalling.step(&start);
    }
    // Without stalls the others are faster by up to 28 %.
    let verdict = stalling.job.report().verdict.unwrap();
    assert!(verdict.kept_default, "{verdict}");
    assert_eq!(stalling.job.settings, start);
}
