//! Tests of the drawn jobs and of the influence of measurements on them.

use super::super::{
    JobTopology, Rules, Spread, Trace, TracedBatch, TracedCycle, TracedStep, TracedTensor, fit,
};
use super::*;
use crate::fusion::Item;

fn setting(fusion_threshold_bytes: u64, cycle_us: f64, hierarchical: bool) -> Setting {
    Setting {
        fusion_threshold_bytes,
        cycle_us,
        hierarchical,
        hierarchical_allgather: false,
        cache: true,
    }
}

/// 100 tensors of 100 kB over 20 ms, recorded without fusion: 400 µs per message and 1 GB/s.
fn unfused() -> Trace {
    let mut step = TracedStep::default();
    let mut free = 0.0;
    for index in 0..100u64 {
        let ready_us = 10_000.0 + 200.0 * index as f64;
        let item = Item {
            class: 0,
            bytes: 100_000,
            group: None,
        };
        step.tensors.push(TracedTensor {
            key: index,
            item,
            pending_us: ready_us,
            ready_us,
        });
        let began_us = ready_us.max(free);
        let batch = TracedBatch {
            class: 0,
            bytes: 100_000,
            tensors: 1,
            collective_us: 500.0,
            copy_us: 0.0,
        };
        let (negotiate_us, moving_us) = (20.0, 500.0);
        step.cycles.push(TracedCycle {
            began_us,
            negotiate_us,
            tensors: 1,
            cached: 1,
            moving_us,
            batches: vec![batch],
        });
        free = began_us + negotiate_us + moving_us;
    }
    step.step_us = free;
    Trace {
        setting: setting(0, 100.0, false),
        operations: Vec::new(),
        steps: vec![step; 5],
    }
}

fn ensemble(traces: &[Trace]) -> Ensemble {
    Ensemble::new(
        fit(traces, Rules::RONDE, JobTopology::new(16, 4)).unwrap(),
        7,
    )
}

#[test]
fn the_reference_is_certain_and_settings_that_resemble_each_other_vary_together() {
    let ensemble = ensemble(&[unfused()]);
    let start = setting(0, 100.0, false);
    let fused = setting(16 << 20, 100.0, false);
    let alike = setting(64 << 20, 100.0, false);
    let expected = ensemble.slowdowns(&[start, fused, alike], &start).unwrap();
    assert_eq!(expected.mean[0], 0.0);
    assert!(expected.features[0].iter().all(|feature| *feature == 0.0));
    assert!(expected.mean[1] < -0.05, "{expected:?}"); // one size: the gain of fusion is not known
    let dot = |a: usize, b: usize| -> f64 {
        let pairs = expected.features[a].iter().zip(&expected.features[b]);
        pairs.map(|(a, b)| a * b).sum()
    };
    assert!(dot(1, 1).sqrt() > 0.05, "{}", dot(1, 1).sqrt());
    assert!(dot(1, 2) > 0.9 * (dot(1, 1) * dot(2, 2)).sqrt());
}

/// All tensors in one batch of 10 MB instead of 100 of 0.1 MB.
#[test]
fn a_discrepancy_grows_with_the_batches() {
    let ensemble = ensemble(&[unfused()]);
    let (start, fused) = (setting(0, 100.0, false), setting(1 << 30, 100_000.0, false));
    let expected = ensemble.slowdowns(&[fused], &start).unwrap();
    let [.., batches, bytes] = expected.features[0][..] else {
        panic!("{expected:?}");
    };
    assert!(batches < 0.0 && bytes > 0.0, "{batches} {bytes}");
    // Both are the sizes' ratio, the one as a number of batches, the other as bytes.
    assert!((batches + bytes).abs() < 0.2 * bytes, "{batches} {bytes}");
}

#[test]
fn equal_seeds_draw_equal_jobs_and_others_others() {
    let one = ensemble(&[unfused()]);
    let mut other = one.clone();
    assert_eq!(one.job(3), other.job(3));
    assert_ne!(one.job(3), one.job(4));
    other.seed = 8;
    assert_ne!(one.job(3), other.job(3));
}

#[test]
fn a_fit_of_nothing_but_priors_still_draws_finite_costs() {
    let mut fitted = fit(&[unfused()], Rules::RONDE, JobTopology::one_host(2)).unwrap();
    fitted.spread = Spread::default();
    let ensemble = Ensemble::new(fitted, 1);
    let setting = setting(1 << 20, 1_000.0, true);
    let expected = ensemble.slowdowns(&[setting], &setting).unwrap();
    assert_eq!(expected.mean, [0.0]);
}
