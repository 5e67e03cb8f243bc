//! After the verdict: what is noticed, what is done about it, and what the caller can ask for.

use ronde_tuner::{Action, Drift, Parameter, Point, Session, SessionConfig, Space, Verdict};

fn space() -> Space {
    Space::new(vec![
        Parameter::log("cycle_time_ms", 0.1, 100.0, 13),
        Parameter::boolean("hierarchical_allreduce"),
    ])
    .unwrap()
}

fn default() -> Point {
    space().point(&[2.0, 0.0]).unwrap()
}

/// ±2 % without a generator: the fractional parts of multiples of the golden ratio.
fn jitter(step: usize) -> f64 {
    1.0 + 0.04 * ((step as f64 * 0.618_033_988_749_895).fract() - 0.5)
}

/// A network that is slower by `factor`: hierarchical allreduce pays on the slow one, the flat one
/// on the fast.
fn job(point: &Point, factor: f64) -> f64 {
    let flat_is_slow = factor > 2.0;
    let boolean = if point.flag(1) == flat_is_slow {
        0.0
    } else {
        12.0
    };
    40.0 + 10.0 * factor + boolean + 2.0 * (point.value(0) / 0.5).ln().powi(2)
}

/// Runs the session; returns the events with their steps, which are counted from `first`.
fn drive(
    session: &mut Session,
    first: usize,
    steps: usize,
    mut step_ms: impl FnMut(&Point, usize) -> f64,
) -> Vec<(usize, Action)> {
    let mut events = Vec::new();
    for step in first..first + steps {
        let setting = session.setting();
        let mut action = session.on_step(step_ms(&setting, step) * jitter(step));
        if action == Action::Ask {
            action = session.propose(session.proposal_job().run());
        }
        if matches!(action, Action::Finished(_) | Action::Drifted(_)) {
            events.push((step, action));
        }
    }
    events
}

fn verdicts(events: &[(usize, Action)]) -> Vec<&Verdict> {
    events
        .iter()
        .filter_map(|(_, action)| match action {
            Action::Finished(verdict) => Some(&**verdict),
            _ => None,
        })
        .collect()
}

fn tuned() -> Session {
    let mut session = Session::new(space(), SessionConfig::default(), default()).unwrap();
    let events = drive(&mut session, 0, 400, |point, _| job(point, 1.0));
    let verdict = verdicts(&events)[0];
    assert!(
        !verdict.kept_default && !verdict.chosen.flag(1),
        "{verdict:?}"
    );
    assert_eq!(events.len(), 1, "nothing happens while nothing does");
    session
}

/// Flat allreduces take twice as long as hierarchical ones.
fn hierarchical_pays(point: &Point) -> f64 {
    let flat = if point.flag(1) { 0.0 } else { 150.0 };
    130.0 + flat + 5.0 * (point.value(0) / 4.0).ln().powi(2)
}

/// A session that has chosen hierarchical allreduces, at step 600.
fn hierarchical(seed: u64) -> Session {
    let config = SessionConfig {
        seed,
        ..SessionConfig::default()
    };
    let mut session = Session::new(space(), config, default()).unwrap();
    let events = drive(&mut session, 0, 600, |point, _| hierarchical_pays(point));
    assert!(verdicts(&events)[0].chosen.flag(1), "{events:?}");
    session
}

/// The events are a drift and a verdict that leaves hierarchical allreduces in force.
#[track_caller]
fn assert_hierarchical_stays(events: &[(usize, Action)]) {
    assert!(matches!(events[0].1, Action::Drifted(_)), "{events:?}");
    let again = verdicts(events)[0];
    assert!(!again.kept_default && again.chosen.flag(1), "{again:?}");
}

/// Uniform noise of a step, up to `spread` around 1.
fn noise(seed: u64, step: usize, spread: f64) -> f64 {
    let mixed = (step as u64 + 10_000 * seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    1.0 - spread + 2.0 * spread * (mixed >> 32) as f64 / (1u64 << 32) as f64
}

/// The visits to a default that is twice as slow cost more than a search may. That is no reason to
/// leave the faster setting.
#[test]
fn a_change_puts_no_far_slower_default_in_force() {
    for seed in 0..5 {
        let mut session = hierarchical(seed);
        let events = drive(&mut session, 600, 400, |point, _| {
            0.8 * hierarchical_pays(point)
        });
        assert_hierarchical_stays(&events);
    }
}

/// A slow step at the beginning of a visit is no reason to leave the faster setting either.
#[test]
fn single_slow_steps_put_no_far_slower_default_in_force() {
    for seed in 0..10 {
        let mut session = hierarchical(seed);
        let events = drive(&mut session, 600, 500, |point, step| {
            let slow = if step % 7 == 0 { 2.4 } else { 1.0 };
            0.7 * slow * hierarchical_pays(point)
        });
        assert_hierarchical_stays(&events);
    }
}

/// A stall at another setting ends the search; the setting in force is compared nevertheless.
#[test]
fn a_stall_during_the_search_puts_no_far_slower_default_in_force() {
    for seed in 0..5 {
        let mut session = hierarchical(seed);
        let chosen = session.setting();
        let mut others = 0;
        let events = drive(&mut session, 600, 600, |point, _| {
            others += u32::from(*point != chosen && *point != default());
            let stall = if others == 3 { 14.0 } else { 1.0 };
            0.7 * stall * hierarchical_pays(point)
        });
        assert_hierarchical_stays(&events);
    }
}

#[test]
fn a_job_that_ends_during_a_search_after_drift_has_kept_the_setting_in_force() {
    let mut session = hierarchical(1);
    let chosen = session.setting();
    let mut step = 600;
    while drive(&mut session, step, 1, |point, _| {
        0.7 * hierarchical_pays(point)
    })
    .is_empty()
    {
        step += 1;
    }
    drive(&mut session, step + 1, 3, |point, _| {
        0.7 * hierarchical_pays(point)
    });
    let verdict = session.verdict_if_stopped().unwrap();
    assert_eq!((verdict.chosen, verdict.kept_default), (chosen, false));
    assert!(
        verdict.reason.starts_with("the setting in force stays"),
        "{}",
        verdict.reason
    );
}

/// A setting that was compared on steps of one signature is not proved for those of another.
#[test]
fn a_setting_of_other_steps_needs_a_proof() {
    for seed in 0..20 {
        let mut session = hierarchical(seed);
        session.retune("other steps");
        let events = drive(&mut session, 600, 4000, |_, step| {
            100.0 * noise(seed, step, 0.15)
        });
        let again = verdicts(&events)[0];
        assert!(!again.reason.contains("in force before"), "{again:?}");
    }
}

#[test]
fn a_setting_that_returns_after_stalls_everywhere_has_its_gain() {
    let mut session = Session::new(space(), SessionConfig::default(), default()).unwrap();
    let job = |point: &Point| if point.flag(1) { 90.0 } else { 100.0 };
    let adopted = (0..600)
        .find(|step| !drive(&mut session, *step, 1, |point, _| job(point)).is_empty())
        .unwrap();
    assert!(session.setting().flag(1));
    let events = drive(&mut session, adopted + 1, 200, |point, step| {
        let stall = if step % 2 == 0 { 150.0 } else { 0.0 };
        job(point) + stall
    });
    let verdicts = verdicts(&events);
    assert!(verdicts[0].reverted, "{events:?}");
    let returned = verdicts[1];
    assert!(returned.reason.starts_with("kept again"), "{returned:?}");
    assert!(!returned.kept_default && returned.gain_pct[0] > 0.0);
    assert!(returned.chosen_step_ms < returned.default_step_ms);
}

/// After the change the setting in force is faster by so little that a comparison rarely proves it.
#[test]
fn a_setting_in_force_that_is_still_faster_stays() {
    let (mut kept, mut unproved) = (0, 0);
    for seed in 0..10 {
        let config = SessionConfig {
            seed,
            ..SessionConfig::default()
        };
        let mut session = Session::new(space(), config, default()).unwrap();
        let job = |point: &Point, step: usize, gain: f64| {
            noise(seed, step, 0.12) * if point.flag(1) { 100.0 - gain } else { 100.0 }
        };
        let events = drive(&mut session, 0, 2000, |point, step| job(point, step, 12.0));
        assert!(verdicts(&events)[0].chosen.flag(1), "{events:?}");
        let events = drive(&mut session, 2000, 3000, |point, step| {
            4.0 * job(point, step, 1.5)
        });
        let again = verdicts(&events)[0];
        kept += u32::from(again.chosen.flag(1));
        unproved += u32::from(again.reason.contains("in force before"));
        assert_eq!(again.chosen.flag(1), !again.kept_default, "{again:?}");
    }
    assert!(kept >= 6 && unproved >= 2, "{kept} and {unproved} of 10");
}

#[test]
fn a_slower_network_is_noticed_and_tuned_for() {
    let mut session = tuned();
    let before = session.setting();
    let events = drive(&mut session, 400, 400, |point, _| job(point, 4.0));
    let (noticed, Action::Drifted(drift)) = &events[0] else {
        panic!("{events:?}")
    };
    assert!(*noticed < 410, "{noticed}");
    let Drift {
        step,
        before_ms,
        after_ms,
    } = *drift;
    assert_eq!(step, *noticed as u64 + 1);
    assert!(
        (before_ms / job(&before, 1.0) - 1.0).abs() < 0.03
            && (after_ms / job(&before, 4.0) - 1.0).abs() < 0.03
    );
    let again = verdicts(&events)[0];
    assert!(!again.kept_default && again.chosen.flag(1), "{again:?}");
    // The guard compared with the job's default, and not with the setting that was in force.
    assert!(
        (again.default_step_ms / job(&default(), 4.0) - 1.0).abs() < 0.03,
        "{again:?}"
    );
    assert!(again.steps_active < 120 && again.steps_lost <= again.budget_steps);
    assert_eq!(again.retuned, Some(drift.to_string()));
}

#[test]
fn pauses_stalls_and_spikes_are_no_drift() {
    let mut session = tuned();
    let chosen = session.setting();
    let events = drive(&mut session, 400, 20_000, |point, step| {
        let usual = job(point, 1.0);
        match step % 500 {
            0 => 100.0 * usual,
            100..=103 => 6.0 * usual,
            200..=204 => 3.0 * usual,
            n if n % 30 == 7 => 1.5 * usual,
            _ => usual,
        }
    });
    let is_drift = |(_, action): &(usize, Action)| matches!(action, Action::Drifted(_));
    assert!(!events.iter().any(is_drift), "{events:?}");
    // The default is in force for a while, until it has shown the same stalls.
    let verdicts = verdicts(&events);
    assert!(verdicts.len() <= 4, "{verdicts:?}");
    assert!(
        verdicts.iter().all(|v| v.reverted == v.kept_default),
        "{verdicts:?}"
    );
    // By which setting the few large stalls hit, it returns, or they hide its gain.
    let hides = |v: &&Verdict| v.reverted && v.reason.contains("stalls made");
    assert!(
        session.setting() == chosen || verdicts.last().is_some_and(hides),
        "{verdicts:?}"
    );
}

#[test]
fn drift_is_answered_once_in_500_steps() {
    let mut session = tuned();
    // The network changes every 150 steps.
    let events = drive(&mut session, 400, 6000, |point, step| {
        job(point, if step / 150 % 2 == 0 { 1.0 } else { 4.0 })
    });
    let drifts: Vec<usize> = events
        .iter()
        .filter_map(|(step, action)| matches!(action, Action::Drifted(_)).then_some(*step))
        .collect();
    assert!(drifts.len() >= 3, "{drifts:?}");
    assert!(
        drifts.windows(2).all(|pair| pair[1] - pair[0] >= 500),
        "{drifts:?}"
    );
}

#[test]
fn who_does_not_watch_is_not_told() {
    let config = SessionConfig {
        watch: false,
        ..SessionConfig::default()
    };
    let mut session = Session::new(space(), config, default()).unwrap();
    drive(&mut session, 0, 400, |point, _| job(point, 1.0));
    assert_eq!(
        drive(&mut session, 400, 1000, |point, _| job(point, 4.0)),
        []
    );
}

#[test]
fn a_caller_can_ask_for_another_search() {
    let mut session = tuned();
    let reference = session.setting();
    assert_eq!(session.retune("2 ranks became 4"), Action::Keep);
    let late = session.proposal_job();
    let events = drive(&mut session, 400, 400, |point, _| job(point, 4.0));
    let again = verdicts(&events)[0];
    assert_eq!(again.retuned.as_deref(), Some("2 ranks became 4"));
    assert!(again.chosen.flag(1), "{again:?}");
    // In the middle of a search it goes back to where that began.
    let mut midway = Session::new(space(), SessionConfig::default(), default()).unwrap();
    let mut switched = false;
    for step in 0..100 {
        let setting = midway.setting();
        switched |= setting != default();
        if switched {
            break;
        }
        if midway.on_step(job(&setting, 1.0) * jitter(step)) == Action::Ask {
            midway.propose(midway.proposal_job().run());
        }
    }
    assert!(switched);
    assert_eq!(
        midway.retune("another set of tensors"),
        Action::Switch(default())
    );
    assert_eq!(
        midway.propose(late.run()),
        Action::Keep,
        "an answer to a question of the past"
    );
    let _ = reference;
}

#[test]
fn the_first_default_stays_a_candidate_for_ever() {
    let off_lattice = space().point(&[1.2345, 0.0]).unwrap();
    let mut session = Session::new(space(), SessionConfig::default(), off_lattice).unwrap();
    let best_is_default = |point: &Point, factor: f64| {
        if *point == off_lattice {
            60.0
        } else {
            job(point, factor) + 25.0
        }
    };
    // First another setting wins; then the first default is by far the best.
    drive(&mut session, 0, 400, |point, _| job(point, 1.0));
    assert_ne!(session.setting(), off_lattice);
    let events = drive(&mut session, 400, 600, |point, _| {
        best_is_default(point, 1.0)
    });
    assert!(matches!(events[0].1, Action::Drifted(_)), "{events:?}");
    let sampled: Vec<Point> = session
        .take_measurements()
        .iter()
        .map(|m| m.setting)
        .collect();
    let again = verdicts(&events)[0];
    assert!(sampled.contains(&off_lattice), "{again:?}");
}
