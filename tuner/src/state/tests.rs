use std::fs;

use super::*;
use crate::Parameter;
use proptest::prelude::*;

fn space() -> Space {
    Space::new(vec![
        Parameter::log("fusion_mb", 0.0625, 256.0, 16).with_zero(),
        Parameter::boolean("hierarchical"),
    ])
    .unwrap()
}

fn sample(point: &Point, step_ms: f64, spread: f64, steps: usize) -> StateSample {
    StateSample {
        setting: setting(&space(), point),
        step_ms: rounded(step_ms),
        spread: rounded(spread),
        steps,
    }
}

fn state() -> State {
    let space = space();
    let point = |values: &[f64]| space.point(values).unwrap();
    let sample = |values: &[f64], step_ms: f64| sample(&point(values), step_ms, 0.0312345678, 20);
    State {
        ronde_tuner_state: STATE_VERSION,
        date: "2026-11-22".into(),
        key: [("model", "9f3a"), ("ranks", "2")]
            .map(|(k, v)| (k.into(), v.into()))
            .into(),
        start: setting(&space, &point(&[128.0, 0.0])),
        contests: 3,
        cost_steps: 0.0,
        samples: vec![
            sample(&[128.0, 0.0], 61.23456789),
            sample(&[4.0, 1.0], 50.0),
        ],
        verdict: None,
    }
}

#[test]
fn a_state_without_a_verdict_replaces_none() {
    let (old, mut decided) = (state(), state());
    decided.date = "2026-11-23".into();
    decided.contests = 2;
    assert_eq!(old.clone().or_decided(None), old);
    assert_eq!(old.clone().or_decided(Some(&decided)), old, "it has none");
    decided.verdict = Some(StateVerdict {
        kept_default: true,
        chosen: decided.start.clone(),
        default_step_ms: 61.2,
        chosen_step_ms: 61.2,
        gain_pct: [0.0; 2],
        reason: "default kept".into(),
    });
    let kept = old.or_decided(Some(&decided));
    assert_eq!((&*kept.date, kept.contests), ("2026-11-23", 3));
    assert_eq!(kept.verdict, decided.verdict);
    let newer = State {
        date: "2026-11-24".into(),
        ..decided.clone()
    };
    assert_eq!(newer.clone().or_decided(Some(&decided)), newer);
}

#[test]
fn the_file_reads_well_and_comes_back() {
    let text = state().to_json();
    assert_eq!(
        text,
        r#"{
  "ronde_tuner_state": 2,
  "date": "2026-11-22",
  "key": {
    "model": "9f3a",
    "ranks": "2"
  },
  "start": {
    "fusion_mb": 128.0,
    "hierarchical": 0.0
  },
  "contests": 3,
  "samples": [
    {
      "setting": {
        "fusion_mb": 128.0,
        "hierarchical": 0.0
      },
      "step_ms": 61.2346,
      "spread": 0.0312346,
      "steps": 20
    },
    {
      "setting": {
        "fusion_mb": 4.0,
        "hierarchical": 1.0
      },
      "step_ms": 50.0,
      "spread": 0.0312346,
      "steps": 20
    }
  ],
  "verdict": null
}
"#
    );
    assert_eq!(State::from_json(&text).unwrap(), state());
}

#[test]
fn samples_are_at_points_of_this_space_or_left_out() {
    let seen = state().seen(&space());
    let (row, second) = seen[1].clone();
    let second = second.unwrap();
    assert_eq!(
        (seen.len(), row, second.point.values()),
        (2, 1, &[4.0, 1.0][..])
    );
    assert!((second.log_time - 50f64.ln()).abs() < 1e-12);
    // 1.3 · 0.0312346² / 20.
    assert!((second.variance - 6.3414e-5).abs() < 1e-8);
    let other = Space::new(vec![
        Parameter::boolean("hierarchical"),
        Parameter::boolean("torus"),
    ])
    .unwrap();
    let missing = Err("\"torus\" is missing".to_owned());
    assert_eq!(state().seen(&other), [(0, missing.clone()), (1, missing)]);
}

#[test]
fn files_that_cannot_be_used_say_so() {
    let error = |text: &str| State::from_json(text).unwrap_err().to_string();
    let whole = state().to_json();
    let cut = error(&whole[..200]);
    assert!(
        cut.starts_with("line 13, column 11: not a state file"),
        "{cut}"
    );
    assert!(error("hello").contains("not a state file"));
    assert!(error("{\"a\": 1}").contains("\"ronde_tuner_state\" is missing"));
    assert!(error("[]").contains("is missing"));
    assert!(
        error(&whole.replace("state\": 2", "state\": 7"))
            .starts_with("state of version 7, this program reads up to 2")
    );
    assert!(error(&whole.replace("50.0", "-50.0")).contains("sample 1 has step_ms -50"));
    assert!(error(&whole.replace("50.0", "\"fast\"")).contains("fast"));
    assert!(error("{\"ronde_tuner_state\": 1}").contains("missing field"));
}

#[test]
fn the_key_tells_same_sibling_and_stranger() {
    let key = |pairs: &[(&str, &str)]| pairs.iter().map(|&(k, v)| (k.into(), v.into())).collect();
    let state = state();
    assert_eq!(
        state.matches(&key(&[("ranks", "2"), ("model", "9f3a")])),
        Some(Match::Same)
    );
    assert_eq!(
        state.matches(&key(&[("ranks", "4"), ("model", "9f3a")])),
        Some(Match::Sibling)
    );
    assert_eq!(
        state.matches(&key(&[("ranks", "2"), ("model", "77")])),
        None
    );
    assert_eq!(state.matches(&key(&[("ranks", "2")])), None);
}

#[test]
fn saving_replaces_whole_files_or_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.json");
    state().save(&path).unwrap();
    let mut later = state();
    later.date = "2026-11-23".into();
    later.save(&path).unwrap();
    assert_eq!(State::load(&path).unwrap(), later);
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        1,
        "nothing is left beside it"
    );
    let nowhere = dir.path().join("missing/s.json");
    assert!(matches!(later.save(&nowhere), Err(StateError::Io { .. })));
    assert!(
        State::load(&nowhere)
            .unwrap_err()
            .to_string()
            .contains("missing/s.json")
    );
    assert!(later.save(Path::new("/")).is_err());
}

#[test]
fn a_file_of_version_1_is_read() {
    let text = state().to_json();
    let old = text
        .replace("state\": 2", "state\": 1")
        .replace("  \"contests\": 3,\n", "");
    assert_ne!(old, text);
    let read = State::from_json(&old).unwrap();
    assert_eq!((read.contests, read.samples), (0, state().samples));
}

proptest! {
    #[test]
    fn any_text_is_an_error_or_a_state(text in ".{0,200}") {
        let _ = State::from_json(&text);
    }

    #[test]
    fn cut_files_are_errors(cut in 0usize..500) {
        let whole = state().to_json();
        prop_assert!(State::from_json(&whole[..cut.min(whole.len() - 2)]).is_err());
    }

    #[test]
    fn printing_and_parsing_is_identity(ms in 1e-6..1e9f64, spread in 0.0..1.0f64, fusion in 1e-9..1e9f64) {
        let mut state = state();
        state.samples[0] = sample(&space().point(&[fusion, 1.0]).unwrap(), ms, spread, 3);
        prop_assert!((state.samples[0].step_ms / ms - 1.0).abs() < 1e-5);
        prop_assert_eq!(state.samples[0].setting["fusion_mb"], fusion);
        prop_assert_eq!(State::from_json(&state.to_json()).unwrap(), state);
    }
}

#[test]
fn a_parameter_that_is_new_and_fixed_is_as_it_is_fixed() {
    let with = |parameter: Parameter| {
        let mut parameters = space().parameters().to_vec();
        parameters.push(parameter);
        Space::new(parameters).unwrap()
    };
    let fixed = state().seen(&with(Parameter::boolean("torus").fixed(1.0)));
    let is_on = |(_, seen): &(usize, Result<Seen, String>)| seen.clone().unwrap().point.flag(2);
    assert!(fixed.len() == 2 && fixed.iter().all(is_on));
    let free = state().seen(&with(Parameter::boolean("torus")));
    assert!(free.iter().all(|(_, seen)| seen.is_err()));
}
