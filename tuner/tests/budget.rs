//! The promise on what a search costs: kept under noise, on cliffs, and with answers that come
//! late.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use ronde_tuner::{Action, Point, Session, SessionConfig, Verdict};
use statrs::distribution::{ContinuousCDF, Normal};

mod support;

use support::{MIB, space};

/// 160 times slower below 2 MiB, 1.5 times with a long cycle, 5 % faster with the boolean.
fn cliff(point: &Point) -> f64 {
    let fusion = if point.value(0) < 2.0 * MIB {
        160.0
    } else {
        1.0
    };
    let cycle = 1.0 + 0.5 * point.value(1) / (point.value(1) + 20.0);
    100.0 * fusion * cycle * if point.flag(2) { 0.95 } else { 1.0 }
}

/// Everything else is half as slow again.
fn moat(point: &Point) -> f64 {
    let default = point.values() == [128.0 * MIB, 1.0, 0.0];
    if default { 100.0 } else { 150.0 }
}

/// Three times slower below 64 MiB; 4 % faster with the boolean.
fn steep(point: &Point) -> f64 {
    let fusion = if point.value(0) < 64.0 * MIB {
        3.0
    } else {
        1.0
    };
    100.0 * fusion * if point.flag(2) { 0.96 } else { 1.0 }
}

/// 20 times slower below 2 MiB, 40 % faster with the boolean.
fn cliff_beside_a_gain(point: &Point) -> f64 {
    let fusion = if point.value(0) < 2.0 * MIB {
        20.0
    } else {
        1.0
    };
    100.0 * fusion * if point.flag(2) { 0.6 } else { 1.0 }
}

/// True cost of a search beyond its budget, in steps of the default; the largest single step's
/// excess; and the verdict.
struct Cost {
    over: f64,
    largest_step: f64,
    verdict: Verdict,
}

fn run(
    surface: fn(&Point) -> f64,
    config: SessionConfig,
    seed: u64,
    noise: f64,
    late: usize,
) -> Cost {
    let space = space();
    let start = space.point(&[128.0 * MIB, 1.0, 0.0]).unwrap();
    let budget = config.budget_steps;
    let mut session = Session::new(space, SessionConfig { seed, ..config }, start).unwrap();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut setting, mut changed, mut waiting) = (start, false, None);
    let (mut cost, mut largest_step) = (0.0, 0.0f64);
    for _ in 0..3000 {
        let z = Normal::standard().inverse_cdf(rng.random_range(1e-9..1.0));
        let truth = surface(&setting) * if changed { 1.25 } else { 1.0 };
        // The noise is nobody's fault: what counts is the excess of the true step time.
        let excess = truth / surface(&start) - 1.0;
        cost += excess;
        largest_step = largest_step.max(excess);
        changed = false;
        let mut action = session.on_step(truth * (noise * z).exp());
        if action == Action::Ask {
            waiting = Some((late, session.proposal_job()));
        }
        if let Some((0, job)) = waiting.take_if(|(steps, _)| *steps == 0) {
            action = session.propose(job.run());
        }
        if let Some((steps, _)) = &mut waiting {
            *steps -= 1;
        }
        match action {
            Action::Switch(point) => (setting, changed) = (point, true),
            Action::Finished(verdict) => {
                let over = cost - budget;
                return Cost {
                    over,
                    largest_step,
                    verdict: *verdict,
                };
            }
            _ => {}
        }
    }
    panic!("no verdict after 3,000 steps");
}

#[test]
fn a_budget_is_exceeded_by_no_more_than_one_step_and_the_noise() {
    for surface in [cliff, moat] {
        for budget_steps in [5.0, 20.0] {
            for (seed, noise) in (0..12).flat_map(|seed| [(seed, 0.02), (seed, 0.05)]) {
                let config = SessionConfig {
                    budget_steps,
                    ..SessionConfig::default()
                };
                let Cost {
                    over,
                    largest_step,
                    verdict,
                } = run(surface, config, seed, noise, 1);
                // A first step that shows a cliff cannot be taken back; a window of half as slow
                // again is 2 steps.
                let allowed = if largest_step > 1.0 {
                    largest_step + 1.0
                } else {
                    2.5
                };
                assert!(
                    over <= allowed,
                    "over by {over:.1}, largest step {largest_step:.1}: {verdict:?}"
                );
                assert_eq!(verdict.budget_steps, budget_steps);
            }
        }
    }
}

#[test]
fn a_slow_setting_is_no_stall() {
    for seed in 0..20 {
        let config = SessionConfig {
            budget_steps: 100.0,
            ..SessionConfig::default()
        };
        let Cost { verdict, .. } = run(cliff_beside_a_gain, config, seed, 0.03, 1);
        assert!(!verdict.kept_default, "seed {seed}: {}", verdict.reason);
    }
}

#[test]
fn a_setting_that_is_a_hundred_times_slower_is_left_after_its_first_step() {
    for seed in 0..30 {
        let space = space();
        let start = space.point(&[128.0 * MIB, 1.0, 0.0]).unwrap();
        let config = SessionConfig {
            seed,
            ..SessionConfig::default()
        };
        let mut session = Session::new(space, config, start).unwrap();
        let mut slow_in_a_row = 0;
        for _ in 0..200 {
            let setting = session.setting();
            slow_in_a_row = if cliff(&setting) > 10_000.0 {
                slow_in_a_row + 1
            } else {
                0
            };
            assert!(slow_in_a_row <= 1, "seed {seed}");
            if session.on_step(cliff(&setting)) == Action::Ask {
                session.propose(session.proposal_job().run());
            }
        }
    }
}

#[test]
fn late_answers_do_not_exceed_the_budget() {
    for seed in 0..12 {
        let Cost {
            over, largest_step, ..
        } = run(moat, SessionConfig::default(), seed, 0.02, 40);
        assert!(
            over <= 2.5,
            "over by {over:.1}, largest step {largest_step:.1}"
        );
    }
}

#[test]
fn without_a_budget_nothing_is_tried_and_with_a_large_one_much_is() {
    let verdict = |budget_steps| {
        let config = SessionConfig {
            budget_steps,
            ..SessionConfig::default()
        };
        run(moat, config, 1, 0.02, 0).verdict
    };
    let nothing = verdict(0.0);
    assert_eq!((nothing.steps_lost, nothing.budget_kept), (0.0, true));
    assert_eq!(
        nothing.reason,
        "default kept: the budget does not allow another sample"
    );
    let much = verdict(1000.0);
    assert!(much.steps_active > nothing.steps_active + 50, "{much:?}");
    let config = SessionConfig::default().with_horizon(10_000);
    assert_eq!(config.budget_steps, 200.0);
}

/// None was proved while what the samples cost was the guard's loss.
#[test]
fn what_samples_cost_leaves_the_guard_its_rounds() {
    let config = |budget_steps| SessionConfig {
        budget_steps,
        ..SessionConfig::default()
    };
    let verdicts = (0..40).map(|seed| run(steep, config(14.0), seed, 0.03, 1).verdict);
    let proved = verdicts.filter(|verdict| !verdict.kept_default).count();
    assert!(proved >= 12, "{proved}");
}
