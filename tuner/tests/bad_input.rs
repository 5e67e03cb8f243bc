//! Sessions on bad or odd input: each ends with a clear error or with the default kept, and never
//! panics.

use ronde_tuner::{Action, Error, Parameter, Phase, Point, Session, SessionConfig, Space, Verdict};

fn space() -> Space {
    Space::new(vec![
        Parameter::log("fusion_threshold_bytes", 65536.0, 268435456.0, 16).with_zero(),
        Parameter::log("cycle_time_ms", 0.1, 100.0, 13),
        Parameter::boolean("hierarchical_allreduce"),
    ])
    .unwrap()
}

fn default() -> Point {
    space().point(&[134217728.0, 1.0, 0.0]).unwrap()
}

fn session(config: SessionConfig) -> Session {
    Session::new(space(), config, default()).unwrap()
}

/// Drives a session with these step times for at most `steps` steps; returns what was done, the
/// proposals included.
fn drive(
    session: &mut Session,
    steps: usize,
    mut step_ms: impl FnMut(&Point, usize) -> f64,
) -> Vec<Action> {
    let mut actions = Vec::new();
    for step in 0..steps {
        let setting = session.setting();
        let mut action = session.on_step(step_ms(&setting, step));
        if action == Action::Ask {
            action = session.propose(session.proposal_job().run());
        }
        let finished = matches!(action, Action::Finished(_));
        if action != Action::Keep {
            actions.push(action);
        }
        if finished {
            break;
        }
    }
    actions
}

fn verdict(actions: &[Action]) -> &Verdict {
    match actions.last() {
        Some(Action::Finished(verdict)) => verdict,
        other => panic!("no verdict but {other:?}"),
    }
}

/// Deterministic noise of ±2 % without a generator: the fractional parts of multiples of the golden
/// ratio.
fn jitter(step: usize) -> f64 {
    1.0 + 0.04 * ((step as f64 * 0.618_033_988_749_895).fract() - 0.5)
}

#[test]
fn constant_times_keep_the_default() {
    let actions = drive(&mut session(SessionConfig::default()), 1000, |_, _| 12.5);
    let verdict = verdict(&actions);
    assert!(verdict.kept_default);
    assert_eq!((verdict.chosen, verdict.steps_lost), (default(), 0.0));
    assert!((verdict.default_step_ms - 12.5).abs() < 1e-9);
}

#[test]
fn times_that_are_no_times_are_dropped() {
    let bad = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1.0];
    let clean = drive(&mut session(SessionConfig::default()), 1000, |_, _| 10.0);
    let mut session = session(SessionConfig::default());
    // Every second report is bad: the decisions are those of the good ones.
    let mixed = drive(&mut session, 2000, |_, step| {
        if step % 2 == 0 {
            bad[step / 2 % 5]
        } else {
            10.0
        }
    });
    assert_eq!(clean, mixed);
}

#[test]
fn only_bad_times_never_end_and_never_panic() {
    let mut session = session(SessionConfig::default());
    assert_eq!(drive(&mut session, 500, |_, _| f64::NAN), []);
    assert_eq!(
        (session.verdict_if_stopped(), session.best_so_far()),
        (None, None)
    );
    assert_eq!(session.progress().phase, Phase::Default);
}

#[test]
fn stalls_count_neither_in_a_sample_nor_in_the_cost() {
    let mut session = session(SessionConfig::default());
    let actions = drive(&mut session, 2000, |_, step| {
        if step % 7 == 6 {
            80.0
        } else {
            10.0 * jitter(step)
        }
    });
    let verdict = verdict(&actions);
    let rows = session.take_measurements();
    // A comparison is of means, stalls included: (6 × 10 + 80) / 7.
    let is_compared = rows.iter().any(|m| m.phase == Phase::Ab);
    // Visits of random lengths have more or fewer of them.
    let (default_ms, off) = if is_compared {
        (20.0, 0.25)
    } else {
        (10.0, 0.02)
    };
    assert!(
        verdict.kept_default && (verdict.default_step_ms / default_ms - 1.0).abs() < off,
        "{verdict:?}"
    );
    // A stall right after a change is capped: at most 4 extra steps for each of them.
    assert!(
        verdict.steps_lost < 0.5 * verdict.steps_active as f64,
        "{verdict:?}"
    );
    let samples = rows.iter().filter(|m| m.phase != Phase::Ab);
    assert!(samples.map(|m| m.step_ms).all(|step_ms| step_ms < 10.3));
}

#[test]
fn with_every_knob_fixed_the_default_is_measured_and_kept() {
    let fixed = Space::new(vec![
        Parameter::log("cycle_time_ms", 0.1, 100.0, 13).fixed(3.0),
        Parameter::boolean("b").fixed(1.0),
    ]);
    let fixed = fixed.unwrap();
    let start = fixed.point(&[3.0, 1.0]).unwrap();
    let mut session = Session::new(fixed, SessionConfig::default(), start).unwrap();
    let actions = drive(&mut session, 100, |_, step| 10.0 * jitter(step));
    assert_eq!(actions.len(), 1);
    assert_eq!(
        verdict(&actions).reason,
        "default kept, nothing to tune: every parameter is fixed"
    );
    assert_eq!(
        session.on_step(10.0),
        Action::Keep,
        "after the verdict nothing happens"
    );
}

#[test]
fn one_boolean_is_enough_to_tune() {
    let space = Space::new(vec![Parameter::boolean("b")]).unwrap();
    let start = space.point(&[0.0]).unwrap();
    let mut session = Session::new(space, SessionConfig::default(), start).unwrap();
    let actions = drive(
        &mut session,
        500,
        |p, step| if p.flag(0) { 8.0 } else { 10.0 } * jitter(step),
    );
    let verdict = verdict(&actions);
    assert!(!verdict.kept_default && verdict.chosen.flag(0));
    assert!(
        verdict.gain_pct[0] > 16.0 && verdict.gain_pct[1] < 24.0,
        "{:?}",
        verdict.gain_pct
    );
    assert!(verdict.payback_step.unwrap() >= verdict.steps_active);
}

#[test]
fn unusable_configurations_are_errors() {
    let of = |config| Session::new(space(), config, default()).unwrap_err();
    let none = of(SessionConfig {
        steps_per_sample: 0,
        ..SessionConfig::default()
    });
    assert_eq!(
        none.to_string(),
        "steps_per_sample = 0 is out of range, expected 1 to 100000"
    );
    let none = of(SessionConfig {
        max_samples: 0,
        ..SessionConfig::default()
    });
    assert!(matches!(
        none,
        Error::Config {
            field: "max_samples",
            ..
        }
    ));
    let noise = of(SessionConfig {
        fixed_noise: Some(f64::NAN),
        ..SessionConfig::default()
    });
    assert!(matches!(
        noise,
        Error::Config {
            field: "fixed_noise",
            ..
        }
    ));
    let other = Space::new(vec![Parameter::boolean("b")]).unwrap();
    let foreign = other.point(&[1.0]).unwrap();
    let error = Session::new(space(), SessionConfig::default(), foreign).unwrap_err();
    assert_eq!(
        error,
        Error::PointLength {
            expected: 3,
            found: 1
        }
    );
}

#[test]
fn training_that_ends_early_keeps_the_default() {
    let faster = |p: &Point, step| {
        if *p == default() {
            10.0 * jitter(step)
        } else {
            7.0 * jitter(step)
        }
    };
    let mut early = session(SessionConfig::default());
    drive(&mut early, 4, faster);
    let verdict = early.verdict_if_stopped().unwrap();
    assert!(verdict.kept_default && (9.8..10.2).contains(&verdict.default_step_ms));
    let mut late = session(SessionConfig::default());
    drive(&mut late, 40, faster);
    let verdict = late.verdict_if_stopped().unwrap();
    assert!(
        verdict.kept_default && verdict.reason.contains("before a faster setting ("),
        "{}",
        verdict.reason
    );
    assert_ne!(late.best_so_far().unwrap().setting, default());
    let mut warming = session(SessionConfig {
        warmup_samples: Some(3),
        ..SessionConfig::default()
    });
    drive(&mut warming, 20, faster);
    assert_eq!(warming.verdict_if_stopped(), None);
}

#[test]
fn a_users_warmup_is_discarded_and_then_nothing_is_detected() {
    let config = SessionConfig {
        warmup_samples: Some(2),
        steps_per_sample: 5,
        ..SessionConfig::default()
    };
    let mut session = session(config);
    assert_eq!(drive(&mut session, 10, |_, _| 1e6), []);
    drive(&mut session, 5, |_, _| 10.0);
    let rows = session.take_measurements();
    assert_eq!(
        (rows.len(), rows[0].phase, rows[0].steps),
        (1, Phase::Default, 5)
    );
    assert!((rows[0].step_ms - 10.0).abs() < 1e-9);
}

#[test]
fn startup_is_detected_and_bounded() {
    let mut slow_start = session(SessionConfig::default());
    drive(&mut slow_start, 40, |_, step| {
        if step < 3 { 40.0 } else { 10.0 * jitter(step) }
    });
    let first = slow_start.take_measurements()[0];
    assert!(first.steps == 5 && first.step_ms < 10.3, "{first:?}");
    // Ever faster: at most 30 steps are taken for start-up.
    let mut ever_faster = session(SessionConfig::default());
    drive(&mut ever_faster, 37, |_, step| {
        1000.0 * 0.7f64.powi(step as i32)
    });
    assert_eq!(ever_faster.take_measurements().len(), 1);
}

#[test]
fn a_long_startup_makes_no_setting_look_faster() {
    for (slow_steps, gain) in [(6, 1.0), (14, 1.0), (6, 0.8), (14, 0.8)] {
        let mut session = session(SessionConfig::default());
        let actions = drive(&mut session, 2000, |point: &Point, step| {
            let level = if *point == default() {
                10.0
            } else {
                10.0 * gain
            };
            level * jitter(step) * if step < slow_steps { 4.0 } else { 1.0 }
        });
        let verdict = verdict(&actions);
        let what = format!("{slow_steps} slow steps, {gain}: {verdict:?}");
        assert_eq!(verdict.kept_default, gain == 1.0, "{what}");
        assert!((9.7..10.3).contains(&verdict.default_step_ms), "{what}");
    }
}

#[test]
fn a_cliff_is_left_after_one_discarded_and_one_measured_step() {
    // Without fusion 160 times slower; everything else equal.
    let cliff = |p: &Point, step| if p.value(0) < 1e6 { 1600.0 } else { 10.0 } * jitter(step);
    let mut session = session(SessionConfig::default());
    let actions = drive(&mut session, 2000, cliff);
    let verdict = verdict(&actions);
    assert!(verdict.chosen.value(0) >= 1e6);
    let rows = session.take_measurements();
    let over: Vec<_> = rows.iter().filter(|m| m.step_ms > 100.0).collect();
    assert!(over.iter().all(|m| m.steps == 1), "{over:?}");
    assert!(
        over.len() <= 3,
        "only the first layout may go there, {} did",
        over.len()
    );
}

#[test]
fn the_cap_on_samples_holds() {
    for max_samples in [1, 2, 6] {
        let mut session = session(SessionConfig {
            max_samples,
            ..SessionConfig::default()
        });
        let bumpy = |p: &Point, step| {
            10.0 * jitter(step) * (1.0 + (p.value(0) + 7.0 * p.value(1)).sin().abs())
        };
        let actions = drive(&mut session, 2000, bumpy);
        let verdict = verdict(&actions);
        assert!(max_samples > 1 || verdict.kept_default);
        let rows = session.take_measurements();
        let sampled = rows.iter().filter(|m| m.phase != Phase::Ab).count();
        assert!(
            sampled <= max_samples as usize + 1,
            "{sampled} samples with a cap of {max_samples}"
        );
    }
}

#[test]
fn equal_seeds_and_times_give_equal_decisions() {
    let surface = |p: &Point, step| {
        jitter(step) * (10.0 + p.value(1).ln().powi(2) + if p.flag(2) { 0.0 } else { 1.0 })
    };
    let with_seed = |seed| {
        drive(
            &mut session(SessionConfig {
                seed,
                ..SessionConfig::default()
            }),
            2000,
            surface,
        )
    };
    let first = with_seed(7);
    assert_eq!(first, with_seed(7));
    assert_ne!(first, with_seed(8));
    assert!(!verdict(&first).kept_default);
}

#[test]
fn proposals_are_computed_elsewhere_and_taken_once() {
    let mut session = session(SessionConfig::default());
    let ask = (0..100).find(|_| session.on_step(10.0) == Action::Ask);
    assert!(ask.is_some());
    let job = session.proposal_job();
    let proposal = std::thread::spawn(move || job.run()).join().unwrap();
    for step in 0..1000 {
        assert_eq!(
            session.on_step(10.0 * jitter(step)),
            Action::Keep,
            "training goes on while the answer is awaited"
        );
    }
    assert!(matches!(
        session.propose(proposal.clone()),
        Action::Switch(_)
    ));
    assert_eq!(
        session.propose(proposal),
        Action::Keep,
        "the same answer twice is ignored"
    );
}

#[test]
fn a_start_outside_the_lattice_is_kept_exactly() {
    let start = space().point(&[1e9, 0.01, 1.0]).unwrap();
    let mut session = Session::new(space(), SessionConfig::default(), start).unwrap();
    let actions = drive(
        &mut session,
        2000,
        |p, step| if *p == start { 9.0 } else { 10.0 } * jitter(step),
    );
    assert_eq!(verdict(&actions).chosen, start);
}
