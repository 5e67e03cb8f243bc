//! Property tests of predictions: finite, proportional to time, and no faster on a slower link.

use proptest::prelude::*;
use ronde_job::fusion::Item;
use ronde_job::replay::{
    Collective, Copying, Costs, Negotiation, Rules, Setting, Simulator, WorkTensor, Workload,
};

fn workload() -> impl Strategy<Value = Workload> {
    let tensor = (0u32..3, 0u64..1 << 28, 0.0..50_000.0f64, 0.0..2_000.0f64);
    (prop::collection::vec(tensor, 0..60), 0.0..5_000.0f64).prop_map(|(tensors, tail_us)| {
        let tensors = tensors
            .into_iter()
            .map(|(class, bytes, ready_us, early_us)| WorkTensor {
                item: Item {
                    class,
                    bytes,
                    group: None,
                },
                pending_us: f64::max(ready_us - early_us, 0.0),
                ready_us,
            });
        let mut tensors: Vec<WorkTensor> = tensors.collect();
        tensors.sort_by(|a, b| a.ready_us.total_cmp(&b.ready_us));
        Workload { tensors, tail_us }
    })
}

fn costs() -> impl Strategy<Value = Costs> {
    let negotiation =
        (0.0..500.0f64, 0.0..10.0f64).prop_map(|(base_us, per_tensor_us)| Negotiation {
            base_us,
            per_tensor_us,
        });
    let collective =
        (0.0..5_000.0f64, 0.0..1e-2f64).prop_map(|(alpha_us, us_per_byte)| Collective {
            alpha_us,
            us_per_byte,
        });
    let copying = (0.0..5.0f64, 0.0..1e-3f64, 0.0..1.5f64, any::<bool>()).prop_map(
        |(per_tensor_us, us_per_byte, slowdown, overlaps)| Copying {
            per_tensor_us,
            us_per_byte,
            slowdown,
            knee_bytes: 12e6,
            overlaps,
        },
    );
    (negotiation, collective, copying, 0.0..0.08f64, 0.0..0.2f64).prop_map(
        |(cached, flat, copying, polling, contention)| Costs {
            cached,
            uncached: cached,
            flat: vec![flat],
            hierarchical: vec![flat],
            operations: Vec::new(),
            copying,
            polling,
            contention,
        },
    )
}

fn setting() -> impl Strategy<Value = Setting> {
    (
        0u64..1 << 28,
        0.0..100_000.0f64,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(fusion_threshold_bytes, cycle_us, hierarchical, cache)| Setting {
                fusion_threshold_bytes,
                cycle_us,
                hierarchical,
                hierarchical_allgather: false,
                cache,
            },
        )
}

fn rules() -> impl Strategy<Value = Rules> {
    any::<[bool; 2]>().prop_map(|[ticking, early]| Rules {
        ticking,
        early,
        phases: if ticking { 3 } else { 1 },
    })
}

/// Multiplies the latencies of `costs` by `alpha` and the costs per byte by `beta`.
fn dearer(costs: &Costs, alpha: f64, beta: f64) -> Costs {
    let mut dearer = costs.clone();
    for collective in dearer.flat.iter_mut().chain(&mut dearer.hierarchical) {
        collective.alpha_us *= alpha;
        collective.us_per_byte *= beta;
    }
    dearer
}

proptest! {
    #[test]
    fn steps_are_finite_and_no_shorter_than_the_computation(
        workload in workload(), costs in costs(), setting in setting(), rules in rules(),
    ) {
        let step = Simulator::new(&workload, rules).step_us(&costs, &setting);
        let computed = workload.tensors.last().map_or(0.0, |tensor| tensor.ready_us);
        prop_assert!(step.is_finite());
        prop_assert!(step >= computed + workload.tail_us - 1e-6, "{step} {computed}");
    }

    /// If all tensors are ready at once there is one cycle, and its batches do not depend on their
    /// costs. (In general a slower link may shorten a step: while it is busy, more tensors become
    /// ready, and fewer messages are sent.)
    #[test]
    fn a_dearer_link_makes_no_cycle_shorter(
        workload in workload(), costs in costs(), setting in setting(), alpha in 1.0..10.0f64, beta in 1.0..10.0f64,
    ) {
        let mut workload = workload;
        workload.tensors.iter_mut().for_each(|tensor| (tensor.pending_us, tensor.ready_us) = (10_000.0, 10_000.0));
        let mut simulator = Simulator::new(&workload, Rules::RONDE);
        let step = simulator.step_us(&costs, &setting);
        for (alpha, beta) in [(alpha, 1.0), (1.0, beta), (alpha, beta)] {
            let slower = simulator.step_us(&dearer(&costs, alpha, beta), &setting);
            prop_assert!(slower >= step * (1.0 - 1e-9), "{slower} {step}");
        }
    }

    /// Without fusion the batches do not depend on timing either, and a queue that is never idle
    /// while it has work is only delayed.
    #[test]
    fn nor_a_step_without_fusion(workload in workload(), costs in costs(), alpha in 1.0..10.0f64, beta in 1.0..10.0f64) {
        let costs = Costs {
            cached: Negotiation::default(),
            polling: 0.0,
            ..costs
        };
        let setting = Setting {
            fusion_threshold_bytes: 0,
            cycle_us: 0.0,
            hierarchical: false,
            hierarchical_allgather: false,
            cache: true,
        };
        let mut simulator = Simulator::new(&workload, Rules::RONDE);
        let step = simulator.step_us(&costs, &setting);
        let slower = simulator.step_us(&dearer(&costs, alpha, beta), &setting);
        prop_assert!(slower >= step * (1.0 - 1e-9), "{slower} {step}");
    }

    /// If all times are doubled, the step time is doubled. A multiplication by two is exact, and a
    /// hold is rounded to nanoseconds.
    #[test]
    fn time_has_no_unit(workload in workload(), costs in costs(), setting in setting(), rules in rules()) {
        // Cycles wait from 500 µs of latency on.
        prop_assume!(!(250.0..500.0).contains(&costs.flat[0].alpha_us));
        // The shortest period, 1e-3 µs, is an absolute time; it matters if all other times are 0.
        let setting = Setting { cycle_us: setting.cycle_us.max(1.0), ..setting };
        let mut long = workload.clone();
        long.tail_us *= 2.0;
        for tensor in &mut long.tensors {
            tensor.pending_us *= 2.0;
            tensor.ready_us *= 2.0;
        }
        let mut dear = dearer(&costs, 2.0, 2.0);
        for negotiation in [&mut dear.cached, &mut dear.uncached] {
            negotiation.base_us *= 2.0;
            negotiation.per_tensor_us *= 2.0;
        }
        dear.copying.per_tensor_us *= 2.0;
        dear.copying.us_per_byte *= 2.0;
        let slow = Setting { cycle_us: 2.0 * setting.cycle_us, ..setting };
        let step = Simulator::new(&workload, rules).step_us(&costs, &setting);
        let twice = Simulator::new(&long, rules).step_us(&dear, &slow);
        prop_assert!((twice - 2.0 * step).abs() < 0.01, "{twice} {step}");
    }
}
