//! Results of a session, used by the next: the same job, a sibling, a log.

use std::collections::BTreeMap;

use ronde_tuner::{
    Action, Match, Parameter, Point, Scored, Session, SessionConfig, Space, State, Verdict,
};

fn space() -> Space {
    Space::new(vec![
        Parameter::log("fusion_mb", 0.0625, 256.0, 16).with_zero(),
        Parameter::log("cycle_ms", 0.1, 100.0, 13),
    ])
    .unwrap()
}

fn default() -> Point {
    space().point(&[128.0, 1.0]).unwrap()
}

fn key() -> BTreeMap<String, String> {
    [("model", "9f3a"), ("ranks", "2")]
        .map(|(k, v)| (k.into(), v.into()))
        .into()
}

/// ±2 % without a generator: the fractional parts of multiples of the golden ratio.
fn jitter(step: usize) -> f64 {
    1.0 + 0.04 * ((step as f64 * 0.618_033_988_749_895).fract() - 0.5)
}

/// Best at 4 MB and 1 ms; the default is 20 % slower, no fusion twice as slow.
fn bowl(point: &Point) -> f64 {
    let fusion = if point.value(0) == 0.0 {
        1.0
    } else {
        (point.value(0) / 4.0).ln().abs() / 17.0
    };
    100.0 * (1.0 + fusion + 0.02 * point.value(1).ln().powi(2))
}

fn drive(session: &mut Session, step_ms: impl Fn(&Point) -> f64) -> Verdict {
    for step in 0..1000 {
        let setting = session.setting();
        // A start-up of three steps.
        let startup = if step < 3 { 4.0 } else { 1.0 };
        let mut action = session.on_step(step_ms(&setting) * jitter(step) * startup);
        if action == Action::Ask {
            action = session.propose(session.proposal_job().run());
        }
        if let Action::Finished(verdict) = action {
            return *verdict;
        }
    }
    panic!("no verdict");
}

fn first_run(step_ms: impl Fn(&Point) -> f64) -> (Verdict, State) {
    let mut session = new_session();
    let verdict = drive(&mut session, step_ms);
    let state = session.state(key(), "2026-11-22");
    // Through a file, as a restart would.
    (verdict, State::from_json(&state.to_json()).unwrap())
}

fn new_session() -> Session {
    Session::new(space(), SessionConfig::default(), default()).unwrap()
}

#[test]
fn the_same_job_starts_at_its_best_and_confirms_it_within_65_steps() {
    let (first, state) = first_run(bowl);
    assert!(!first.kept_default);
    let mut session = new_session().resume(&state, state.matches(&key()).unwrap());
    assert_eq!(
        session.setting(),
        first.chosen,
        "in force from the beginning"
    );
    let second = drive(&mut session, bowl);
    assert_eq!((second.chosen, second.kept_default), (first.chosen, false));
    assert!(second.steps_active <= 65, "{second:?}");
    assert!(
        second
            .reason
            .starts_with("kept: confirmed after a restart in"),
        "{}",
        second.reason
    );
    // What the first run knows is not lost, and a third run can resume again.
    let state = session.state(key(), "2026-11-23");
    assert_eq!(
        drive(&mut new_session().resume(&state, Match::Same), bowl).chosen,
        first.chosen
    );
}

#[test]
fn a_best_that_is_none_any_more_is_dropped_and_the_search_goes_on() {
    let (first, state) = first_run(bowl);
    let turned = |point: &Point| {
        if *point == first.chosen {
            140.0
        } else {
            bowl(point)
        }
    };
    let second = drive(&mut new_session().resume(&state, Match::Same), turned);
    assert_ne!(second.chosen, first.chosen, "{second:?}");
    assert!(turned(&second.chosen) <= bowl(&default()));
}

#[test]
fn a_verdict_stays_through_a_reset_of_the_job() {
    let (first, state) = first_run(bowl);
    assert!(!first.kept_default && state.contests > 0);
    let mut session = new_session().proceed(&state);
    assert_eq!(session.setting(), first.chosen);
    assert_eq!(session.progress().phase, ronde_tuner::Phase::Final);
    // The job is slower with its new ranks: neither a drift nor a reason to search, but to check
    // the gain.
    let mut defaults = 0;
    for step in 0..1000 {
        defaults += u32::from(session.setting() == default());
        let action = session.on_step(1.5 * bowl(&session.setting()) * jitter(step));
        assert!(matches!(action, Action::Keep | Action::Switch(_)), "{step}");
    }
    assert!((60..80).contains(&defaults), "{defaults}");
    assert_eq!(session.setting(), first.chosen);
    let later = session.state(key(), "2026-11-22");
    assert_eq!(later, state);
    let slower = (0..1000).find(|&step| {
        let action = session.on_step(3.0 * bowl(&session.setting()) * jitter(step));
        matches!(action, Action::Drifted(_))
    });
    assert!(slower.is_some(), "a drift is still noticed");
}

#[test]
fn a_setting_that_the_new_ranks_make_slower_is_left_after_a_reset() {
    let (first, state) = first_run(bowl);
    let mut session = new_session().proceed(&state);
    let reverted = (0..1000).find_map(|step| {
        let step_ms = if session.setting() == first.chosen {
            110.0
        } else {
            100.0
        };
        match session.on_step(step_ms * jitter(step)) {
            Action::Finished(verdict) => Some(verdict),
            _ => None,
        }
    });
    let reverted = reverted.expect("a check");
    assert!(reverted.reverted && reverted.kept_default, "{reverted:?}");
    assert_eq!(session.setting(), default());
}

#[test]
fn the_budget_of_a_search_is_shared_by_the_generations_of_a_job() {
    let mut session = new_session();
    for step in 0..60 {
        let action = session.on_step(bowl(&session.setting()) * jitter(step));
        if action == Action::Ask {
            let _ = session.propose(session.proposal_job().run());
        }
    }
    let cost = session.cost();
    let state = session.state(key(), "2026-11-26");
    assert!(state.verdict.is_none() && cost != 0.0);
    let state = State::from_json(&state.to_json()).unwrap();
    let after_reset = |state: &State| new_session().proceed(state);
    let before_first_step = after_reset(&state).cost();
    assert!(
        (before_first_step / cost - 1.0).abs() < 1e-5,
        "{before_first_step}, {cost}"
    );
    // With nothing left, no setting that is slower than the default is tried any more.
    let spent = State {
        cost_steps: 1000.0,
        ..state
    };
    let mut session = after_reset(&spent);
    let slower = |point: &Point| 100.0 + 20.0 * f64::from(*point != default());
    let verdict = drive(&mut session, slower);
    assert!(verdict.kept_default && !verdict.budget_kept, "{verdict:?}");
    assert!(verdict.steps_lost >= 1000.0);
}

#[test]
fn a_default_that_had_stayed_is_looked_at_once() {
    let (first, state) = first_run(|_| 100.0);
    assert!(first.kept_default);
    let second = drive(&mut new_session().resume(&state, Match::Same), |_| 100.0);
    assert!(
        second.kept_default && second.steps_active <= 30,
        "{second:?}"
    );
    assert!(
        second
            .reason
            .starts_with("default kept: as of 2026-11-22 nothing is faster"),
        "{}",
        second.reason
    );
    // The job has become another one: all is open again.
    let third = drive(&mut new_session().resume(&state, Match::Same), |point| {
        2.0 * bowl(point)
    });
    assert!(!third.kept_default, "{third:?}");
}

#[test]
fn a_sibling_needs_fewer_steps() {
    let (mut first_steps, mut second_steps) = (0, 0);
    for seed in 0..12 {
        let config = SessionConfig {
            seed,
            ..SessionConfig::default()
        };
        let mut session = Session::new(space(), config.clone(), default()).unwrap();
        let first = drive(&mut session, bowl);
        let state = session.state(key(), "2026-11-22");
        let sibling = Session::new(space(), config, default()).unwrap();
        let mut sibling = sibling.resume(&state, Match::Sibling);
        assert_eq!(
            sibling.setting(),
            default(),
            "the default is measured first"
        );
        let second = drive(&mut sibling, |point| 3.0 * bowl(point));
        assert!(
            !second.kept_default && bowl(&second.chosen) < 1.05 * bowl(&first.chosen),
            "{second:?}"
        );
        first_steps += first.steps_active;
        second_steps += second.steps_active;
    }
    assert!(
        second_steps < first_steps,
        "{second_steps} after {first_steps}"
    );
}

#[test]
fn a_state_that_misleads_does_no_harm() {
    let (_, mut state) = first_run(bowl);
    // Upside down: the best is called the worst.
    state
        .samples
        .iter_mut()
        .for_each(|sample| sample.step_ms = 1e4 / sample.step_ms);
    let verdict = drive(&mut new_session().resume(&state, Match::Sibling), bowl);
    assert!(bowl(&verdict.chosen) <= bowl(&default()), "{verdict:?}");
}

#[test]
fn settings_of_another_space_are_named_and_left_out() {
    let (_, mut state) = first_run(bowl);
    for sample in &mut state.samples {
        sample.setting.remove("cycle_ms");
    }
    if let Some(verdict) = &mut state.verdict {
        verdict.chosen.insert("fusion_mb".into(), -1.0);
    }
    let mut session = new_session().resume(&state, Match::Same);
    assert_eq!(session.setting(), default());
    let warnings = session.take_warnings();
    assert_eq!(warnings.len(), state.samples.len() + 1);
    assert!(
        warnings[0].to_string().contains("\"cycle_ms\" is missing"),
        "{}",
        warnings[0]
    );
    assert!(!drive(&mut session, bowl).kept_default);
}

#[test]
fn a_log_is_prior_knowledge() {
    // Horovod's: scores in bytes/µs of settings that do not hold the default.
    let scored = |row, fusion, cycle| {
        let values = vec![fusion, cycle];
        let score = 1e5 / space().point(&values).map_or(1.0, |point| bowl(&point));
        Scored { row, values, score }
    };
    let mut history: Vec<Scored> = [
        (4.0, 5.0),
        (32.0, 50.0),
        (16.0, 25.0),
        (8.0, 10.0),
        (4.0, 1.0),
        (60.0, 2.0),
        (64.0, 1.0),
    ]
    .iter()
    .zip(2..)
    .map(|(&(fusion, cycle), row)| scored(row, fusion, cycle))
    .collect();
    history.push(Scored {
        row: 9,
        values: vec![-3.0, 1.0],
        score: 100.0,
    });
    history.push(Scored {
        row: 10,
        values: vec![3.0, 1.0],
        score: f64::NAN,
    });
    let mut session = new_session().with_history(&history);
    let warnings: Vec<String> = session
        .take_warnings()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(
        warnings.len() == 2
            && warnings[0].contains("row 9")
            && warnings[1].contains("score is NaN"),
        "{warnings:?}"
    );
    let verdict = drive(&mut session, bowl);
    assert!(
        !verdict.kept_default && bowl(&verdict.chosen) < 106.0,
        "{verdict:?}"
    );
    let cold = first_run(bowl).0;
    assert!(
        verdict.steps_active <= cold.steps_active,
        "{} {}",
        verdict.steps_active,
        cold.steps_active
    );
}
