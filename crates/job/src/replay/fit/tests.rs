//! Tests that the fit recovers the costs of synthetic traces.

use super::super::{Collective, TracedBatch, TracedCycle, TracedStep, TracedTensor};
use super::step::ERROR_LEAST;
use super::*;
use crate::fusion::Item;

fn setting(hierarchical: bool) -> Setting {
    Setting {
        fusion_threshold_bytes: 1 << 26,
        cycle_us: 1_000.0,
        hierarchical,
        hierarchical_allgather: false,
        cache: true,
    }
}

/// A step of cycles with one batch each, of these tensors of 1 MB, 10 ms apart; `batch_us` is the
/// batch's time for its bytes.
fn step(
    cycles: &[u32],
    batch_us: impl Fn(f64) -> f64,
    copy_us: impl Fn(f64, f64) -> f64,
) -> TracedStep {
    let mut step = TracedStep::default();
    for (index, &tensors) in cycles.iter().enumerate() {
        let began_us = 10_000.0 * (index + 1) as f64;
        let bytes = 1e6 * f64::from(tensors);
        let (collective_us, copy_us) = (batch_us(bytes), copy_us(bytes, f64::from(tensors)));
        step.tensors.extend((0..tensors).map(|tensor| TracedTensor {
            key: 100 * index as u64 + u64::from(tensor),
            item: Item {
                class: 0,
                bytes: 1_000_000,
                group: None,
            },
            pending_us: began_us - 200.0,
            ready_us: began_us - 100.0,
        }));
        let batch = TracedBatch {
            class: 0,
            bytes: bytes as u64,
            tensors,
            collective_us,
            copy_us,
        };
        step.cycles.push(TracedCycle {
            began_us,
            negotiate_us: 20.0 + 5.0 * f64::from(tensors),
            tensors,
            cached: tensors,
            moving_us: collective_us + copy_us,
            batches: vec![batch],
        });
    }
    let last = &step.cycles[cycles.len() - 1];
    step.step_us = last.began_us + last.negotiate_us + last.moving_us + 300.0;
    step
}

fn trace(hierarchical: bool, batch_us: impl Fn(f64) -> f64 + Copy) -> Trace {
    let one = step(&[1, 4, 30], batch_us, |_, _| 0.0);
    Trace {
        setting: setting(hierarchical),
        operations: Vec::new(),
        steps: vec![one; 5],
    }
}

#[test]
fn what_was_put_in_comes_out() {
    let place = JobTopology::new(16, 4);
    let flat = trace(false, |bytes| 100.0 + 1e-3 * bytes);
    let fitted = fit(std::slice::from_ref(&flat), Rules::RONDE, place).unwrap();
    let Collective {
        alpha_us,
        us_per_byte,
    } = fitted.costs.flat[0];
    assert!((us_per_byte / 1e-3 - 1.0).abs() < 0.02, "{us_per_byte}");
    assert!((alpha_us / 100.0 - 1.0).abs() < 0.2, "{alpha_us}");
    let Negotiation {
        base_us,
        per_tensor_us,
    } = fitted.costs.cached;
    assert!((base_us / 20.0 - 1.0).abs() < 0.1 && (per_tensor_us / 5.0 - 1.0).abs() < 0.1);
    assert_eq!(fitted.workload.tensors.len(), 35);
    assert!((fitted.workload.tail_us - 300.0).abs() < 1e-6);
    assert_eq!(fitted.workload.tensors[0].ready_us, 9_900.0);
    // Cycles sleep until a tensor is pending: 100 µs earlier than in the trace, and all later times
    // move with it.
    assert!(
        (fitted.modelled_us - fitted.measured_us + 100.0).abs() < 60.0,
        "{fitted:?}"
    );

    // Hierarchical: the guess applies until the traces have such a collective.
    let guess = place.hierarchical(fitted.costs.flat[0], false);
    assert_eq!(fitted.costs.hierarchical[0], guess);
    let seen = trace(true, |bytes| 50.0 + 2e-4 * bytes);
    let both = fit(&[flat, seen], Rules::RONDE, place).unwrap();
    assert!((both.costs.hierarchical[0].us_per_byte / 2e-4 - 1.0).abs() < 0.05);
    assert_eq!(both.costs.flat[0], fitted.costs.flat[0]);
}

/// On shared memory a message costs next to nothing. A recording of three messages a step does not
/// support predictions of 35.
#[test]
fn far_more_messages_than_recorded_are_outside_of_the_recording() {
    let recording = trace(false, |bytes| 0.7 + 6e-4 * bytes);
    let fitted = fit(&[recording], Rules::RONDE, JobTopology::one_host(4)).unwrap();
    let recorded = Messages {
        per_step: 3.0,
        largest_bytes: 30e6,
    };
    assert_eq!(fitted.recorded, Some(recorded));
    let unfused = Setting {
        fusion_threshold_bytes: 0,
        ..fitted.reference
    };
    assert!(fitted.is_outside(Rules::RONDE, &unfused));
    assert!(!fitted.is_outside(Rules::RONDE, &fitted.reference));
    // Costs that are not from recorded steps have no range.
    let of_costs = Fit {
        recorded: None,
        ..fitted
    };
    assert!(!of_costs.is_outside(Rules::RONDE, &unfused));
}

#[test]
fn copies_of_large_buffers_that_fall_out_of_the_cache_are_told_from_others() {
    let truth = Copying {
        per_tensor_us: 3.0,
        us_per_byte: 1e-4,
        slowdown: 1.0,
        knee_bytes: 6e6,
        overlaps: false,
    };
    let sizes: Vec<u32> = (1..=40).collect();
    let copy = |bytes, tensors: f64| {
        if tensors > 1.0 {
            2.0 * truth.way_us(tensors as usize, bytes)
        } else {
            0.0
        }
    };
    let one = step(&sizes, |bytes| 100.0 + 1e-3 * bytes, copy);
    let trace = Trace {
        setting: setting(false),
        operations: Vec::new(),
        steps: vec![one; 3],
    };
    let fitted = fit(&[trace], Rules::RONDE, JobTopology::one_host(2)).unwrap();
    let Copying {
        slowdown,
        knee_bytes,
        us_per_byte,
        ..
    } = fitted.costs.copying;
    assert_eq!((slowdown, knee_bytes), (1.0, 6e6));
    assert!((us_per_byte / 1e-4 - 1.0).abs() < 0.05, "{us_per_byte}");
}

#[test]
fn nothing_seen_is_no_fit_and_a_strange_tensor_is_no_part_of_the_step() {
    assert!(fit(&[], Rules::RONDE, JobTopology::one_host(2)).is_none());
    let empty = Trace {
        setting: setting(false),
        operations: Vec::new(),
        steps: Vec::new(),
    };
    assert!(fit(&[empty], Rules::RONDE, JobTopology::one_host(2)).is_none());
    let mut trace = trace(false, |bytes| bytes * 1e-3);
    trace.steps[0].tensors[0].key = 7_777;
    let fitted = fit(&[trace], Rules::RONDE, JobTopology::one_host(2)).unwrap();
    assert_eq!(fitted.workload.tensors.len(), 35);
}

#[test]
fn how_long_a_step_is_and_how_surely() {
    let steps = |lengths: &[f64]| Trace {
        setting: setting(false),
        operations: Vec::new(),
        steps: lengths
            .iter()
            .map(|&step_us| TracedStep {
                step_us,
                ..TracedStep::default()
            })
            .collect(),
    };
    // Deviations 0, 100, 100, 200, 200, 300, 300, 400 and a pause: their median is 200, of 10,000.
    let nine = [
        9_600.0, 9_700.0, 9_800.0, 9_900.0, 10_000.0, 10_100.0, 10_200.0, 10_300.0, 90_000.0,
    ];
    let Length { us, error } = length(&steps(&nine)).unwrap();
    assert_eq!(us, 10_000.0);
    // 1.2533 · 1.4826 · 0.02 / √9
    assert!((error - 0.012_387).abs() < 1e-5, "{error}");
    // Four steps are too few for a noise estimate: 1.2533 · 0.05 / √4.
    let four = length(&steps(&[10_000.0; 4])).unwrap();
    assert!((four.error - 0.031_333).abs() < 1e-5, "{four:?}");
    // Even with equal steps, the step time of another run differs.
    assert_eq!(length(&steps(&[10_000.0; 100])).unwrap().error, ERROR_LEAST);
    assert_eq!(length(&steps(&[0.0; 9])).unwrap().error, ERROR_LEAST);
    assert_eq!(length(&steps(&[])), None);
}

#[test]
fn predictions_are_no_surer_than_the_recording_nor_than_the_model() {
    let mut fitted = fit(
        &[trace(false, |bytes| bytes * 1e-3)],
        Rules::RONDE,
        JobTopology::one_host(2),
    )
    .unwrap();
    let mut level = |measured_us, modelled_us, measured_error| {
        (
            fitted.measured_us,
            fitted.modelled_us,
            fitted.measured_error,
        ) = (measured_us, modelled_us, measured_error);
        fitted.level_error()
    };
    assert_eq!(level(50.0, 50.5, 0.03), 0.03);
    assert!((level(50.0, 48.0, 0.03) - 0.04).abs() < 1e-9);
    assert_eq!(level(50.0, 150.0, 0.03), 0.4);
    assert_eq!(level(0.0, 0.0, 0.03), 0.03);
}
