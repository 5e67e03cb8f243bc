//! Sessions on synthetic surfaces with known optima: what is found from where, at which cost, and
//! what bad input does.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use ronde_tuner::{Action, Point, Session, SessionConfig, Verdict};
use statrs::distribution::{ContinuousCDF, Normal};

mod support;

use support::{MIB, space};

/// A step of 100 ms at best: 4 MiB, 1 ms, hierarchical. A bowl in the logs, saturating; the default
/// of 128 MiB costs 20 % of threshold and 6 % of the boolean; no fusion costs 90 %.
fn bowl(point: &Point) -> f64 {
    let fusion = if point.value(0) == 0.0 {
        0.9
    } else {
        0.25 * (1.0 - (-((point.value(0) / (4.0 * MIB)).ln() / 2.5).powi(2)).exp())
    };
    let cycle = 0.3 * (1.0 - (-((point.value(1) / 1.0).ln() / 2.0).powi(2)).exp());
    let flat = if point.flag(2) { 0.0 } else { 0.06 };
    100.0 * (1.0 + fusion + cycle + flat)
}

/// A blocking cycle: many messages pay latency below 2 MiB, large ones lose overlap, a long cycle
/// is waited for in part.
fn ramp(point: &Point) -> f64 {
    let fusion = point.value(0);
    let messages = (100.0 * MIB / fusion.max(65536.0)).min(160.0);
    100.0
        + 0.25 * messages
        + 14.0 * fusion / (fusion + 24.0 * MIB)
        + 0.5 * point.value(1)
        + 0.02 / point.value(1)
}

struct Outcome {
    verdict: Verdict,
    asks: usize,
}

/// Log-normal noise of single steps, and the standard deviation of a slow drift (AR(1), 0.99) under
/// it.
#[derive(Clone, Copy)]
struct Noise {
    step: f64,
    drift: f64,
}

const QUIET: Noise = Noise {
    step: 0.03,
    drift: 0.0,
};

/// Runs a session to its end on `surface`, with noise and 3 % of the steps half as long again.
fn run(surface: impl Fn(&Point) -> f64, start: &[f64], noise: Noise, seed: u64) -> Outcome {
    let space = space();
    let start = space.point(start).unwrap();
    let mut session = Session::new(
        space,
        SessionConfig {
            seed,
            ..SessionConfig::default()
        },
        start,
    )
    .unwrap();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0xabcd);
    let mut setting = start;
    let mut asks = 0;
    let mut drift = 0.0;
    for step in 0..2000 {
        let mut normal = || Normal::standard().inverse_cdf(rng.random_range(1e-9..1.0));
        let z = normal();
        drift = 0.99 * drift + (1.0f64 - 0.99 * 0.99).sqrt() * noise.drift * normal();
        let spike = if rng.random_bool(0.03) { 1.5 } else { 1.0 };
        let startup = if step < 3 { 3.0 } else { 1.0 };
        let mut action =
            session.on_step(surface(&setting) * (noise.step * z + drift).exp() * spike * startup);
        if action == Action::Ask {
            asks += 1;
            let job = session.proposal_job();
            // One step passes while the proposal is computed.
            assert_eq!(session.on_step(surface(&setting)), Action::Keep);
            action = session.propose(job.run());
        }
        match action {
            Action::Switch(point) => setting = point,
            Action::Finished(verdict) => {
                return Outcome {
                    verdict: *verdict,
                    asks,
                };
            }
            Action::Keep | Action::Ask => {}
            Action::Drifted(drift) => panic!("{drift:?} before a verdict"),
        }
    }
    panic!("no verdict after 2000 steps");
}

fn optimum(surface: impl Fn(&Point) -> f64) -> f64 {
    let space = space();
    let start = space.point(&[128.0 * MIB, 1.0, 0.0]).unwrap();
    space
        .lattice(&start)
        .iter()
        .map(surface)
        .fold(f64::INFINITY, f64::min)
}

/// Share of 20 seeds that end within 5 % of the optimum; prints what a reader may want to see.
fn share_within_5_pct(name: &str, surface: impl Fn(&Point) -> f64 + Copy, start: &[f64]) -> f64 {
    let best = optimum(surface);
    let outcomes: Vec<Outcome> = (0..20)
        .map(|seed| run(surface, start, QUIET, seed))
        .collect();
    let mut ratios: Vec<f64> = outcomes
        .iter()
        .map(|o| surface(&o.verdict.chosen) / best)
        .collect();
    ratios.sort_by(f64::total_cmp);
    let mean =
        |f: &dyn Fn(&Outcome) -> f64| outcomes.iter().map(f).sum::<f64>() / outcomes.len() as f64;
    println!(
        "{name}: final/optimum median {:.3} p90 {:.3} worst {:.3}; steps active {:.0}, lost {:.0}, asks {:.1}",
        ratios[10],
        ratios[17],
        ratios[19],
        mean(&|o| o.verdict.steps_active as f64),
        mean(&|o| o.verdict.steps_lost),
        mean(&|o| o.asks as f64),
    );
    ratios.iter().filter(|r| **r <= 1.05).count() as f64 / 20.0
}

#[test]
fn finds_the_optimum_from_the_default_and_from_a_bad_start() {
    let (default, bad) = ([128.0 * MIB, 1.0, 0.0], [0.0, 25.0, 0.0]);
    assert!(share_within_5_pct("bowl, default", bowl, &default) >= 0.9);
    assert!(share_within_5_pct("bowl, bad start", bowl, &bad) >= 0.9);
    assert!(share_within_5_pct("ramp, default", ramp, &default) >= 0.9);
    assert!(share_within_5_pct("ramp, bad start", ramp, &bad) >= 0.9);
}

/// Messages of 15 ms, whose number falls in stairs: the setting after the first step down is 3.7
/// times as fast as the start and 13 times as slow as the best. With few messages, cycles of 10 ms
/// and more are 7 % slower; with more of them, such cycles are faster.
fn stairs(point: &Point) -> f64 {
    let (messages, long_cycle_ms) = match point.value(0) / MIB {
        ..0.99 => (162.0, 0.0),
        ..3.99 => (43.0, 0.0),
        ..15.99 => (24.0, 0.0),
        ..31.99 => (9.0, -12.0),
        ..63.99 => (5.0, -6.0),
        ..127.99 => (4.0, -5.0),
        _ => (1.5, 3.0),
    };
    let is_long = point.value(1) > 7.0;
    20.0 + 15.0 * messages + if is_long { long_cycle_ms } else { 0.0 }
}

#[test]
fn a_search_from_a_start_that_is_far_slower_looks_everywhere_around_the_best() {
    let noise = Noise {
        step: 0.006,
        drift: 0.0,
    };
    // With a limit on the slow-down against the best so far, and without a look at what is
    // unexplored around the best, these ended at 45.5 to 665 ms, and 17 of 400.
    for seed in [3, 13, 47, 93, 118, 138, 199, 218, 285, 366] {
        let outcome = run(stairs, &[0.0, 25.0, 0.0], noise, seed);
        let step_ms = stairs(&outcome.verdict.chosen);
        assert!(step_ms < 43.0, "seed {seed}: {step_ms} ms");
    }
}

/// A far network: messages of 15 ms. Where all tensors wait for one another a step takes 45.6 ms;
/// where they only may, it takes 46 or 57, as the cycle happens to fall into step with the job when
/// the setting comes into force.
#[test]
fn a_setting_that_is_sometimes_slow_is_rarely_kept() {
    let unlucky = (0u64..60).filter(|&seed| {
        let state = std::cell::Cell::new((seed + 1, None, 46.0));
        let surface = |point: &Point| {
            let (random, last, _) = state.get();
            if last != Some(*point) {
                let random: u64 = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                state.set((
                    random,
                    Some(*point),
                    if random >> 63 == 0 { 46.0 } else { 57.0 },
                ));
            }
            match (point.value(0) / MIB, point.value(1)) {
                (0.0, _) => 2450.0,
                (100.0.., 40.0..) => 45.6,
                (100.0.., _) => state.get().2,
                _ => 71.0,
            }
        };
        let noise = Noise {
            step: 0.005,
            drift: 0.0,
        };
        run(surface, &[0.0, 25.0, 0.0], noise, seed)
            .verdict
            .chosen_step_ms
            > 50.0
    });
    // Those whose visits found the fast step time each time, and those in which no cycle time was
    // measured that is always fast.
    let unlucky = unlucky.count();
    println!("{unlucky} of 60 runs end at the slow step time");
    assert!(unlucky <= 9, "{unlucky}");
}

#[test]
fn on_a_flat_surface_the_default_stays() {
    for noise in [
        QUIET,
        Noise {
            step: 0.12,
            drift: 0.0,
        },
        Noise {
            step: 0.03,
            drift: 0.03,
        },
    ] {
        let flat = |_: &Point| 100.0;
        let outcomes: Vec<Outcome> = (0..12)
            .map(|seed| run(flat, &[128.0 * MIB, 1.0, 0.0], noise, seed))
            .collect();
        let kept = outcomes.iter().filter(|o| o.verdict.kept_default).count();
        let steps = outcomes.iter().map(|o| o.verdict.steps_active).sum::<u64>() / 12;
        println!(
            "flat, noise {} drift {}: kept in {kept} of 12, {steps} steps",
            noise.step, noise.drift
        );
        // An equal setting does no harm, and may be kept now and then.
        assert!(kept >= 10, "{kept}");
        for outcome in outcomes.iter().filter(|o| o.verdict.kept_default) {
            let verdict = &outcome.verdict;
            assert!(
                verdict.reason.starts_with("default kept"),
                "{}",
                verdict.reason
            );
            assert_eq!((verdict.gain_pct, verdict.payback_step), ([0.0, 0.0], None));
        }
    }
}
