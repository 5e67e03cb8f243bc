//! Benchmark of a prediction: one simulated step, which is the tuner's inner loop, by number of
//! tensors.
//!
//! Steps are a model's own gradients over a backward pass of 40 ms, or an equal number of small
//! tensors; settings are a grid of ten thresholds and thirteen cycle times. Times are CPU times of
//! this thread. The last column is the sum of all predictions, which is the same on every machine.
//! Without `--bench`, which `cargo bench` passes and `cargo test` does not, it runs with little
//! data.

use ronde_job::fusion::Item;
use ronde_job::replay::{
    Collective, Costs, Negotiation, Rules, Setting, Simulator, WorkTensor, Workload,
};
use ronde_lab::bench::models;
use rustix::time::{ClockId, clock_gettime};

/// Returns the gradients of a model over a backward pass.
fn model(name: &str) -> Workload {
    let tensors = models::workload(name)
        .expect("a model of that name")
        .tensors;
    let tensor = |spec: &ronde_lab::bench::TensorSpec| {
        work(spec.bytes() as u64, 40_000.0 * spec.ready_fraction)
    };
    Workload {
        tensors: tensors.iter().map(tensor).collect(),
        tail_us: 500.0,
    }
}

fn work(bytes: u64, ready_us: f64) -> WorkTensor {
    WorkTensor {
        item: Item {
            class: 0,
            bytes,
            group: None,
        },
        pending_us: ready_us - 50.0,
        ready_us,
    }
}

fn grid() -> Vec<Setting> {
    let thresholds = [0]
        .into_iter()
        .chain((0..9).map(|power| 1u64 << (18 + power)));
    let cycles = |threshold| {
        (0..13).map(move |step| Setting {
            fusion_threshold_bytes: threshold,
            cycle_us: 100.0 * 1000f64.powf(f64::from(step) / 12.0),
            hierarchical: false,
            hierarchical_allgather: false,
            cache: true,
        })
    };
    thresholds.flat_map(cycles).collect()
}

fn thread_us() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}

fn main() {
    let rounds = if std::env::args().any(|argument| argument == "--bench") {
        20
    } else {
        1
    };
    let costs = Costs {
        cached: Negotiation {
            base_us: 50.0,
            per_tensor_us: 0.2,
        },
        flat: vec![Collective {
            alpha_us: 200.0,
            us_per_byte: 4e-4,
        }],
        ..Costs::default()
    };
    let settings = grid();
    println!(
        "{:<28} {:>7} {:>12} {:>10} {:>10} {:>16}",
        "workload", "tensors", "rules", "µs median", "µs worst", "sum of steps, µs"
    );
    for name in ["vgg16", "resnet50", "bert-base", "many-small"] {
        let workload = model(name);
        for (kind, rules) in [("ronde", Rules::RONDE), ("horovod", Rules::HOROVOD)] {
            let mut simulator = Simulator::new(&workload, rules);
            let mut sum = 0.0;
            let mut took: Vec<f64> = Vec::new();
            for setting in &settings {
                let began = thread_us();
                for _ in 0..rounds {
                    sum += simulator.step_us(&costs, setting);
                }
                took.push((thread_us() - began) / f64::from(rounds));
            }
            took.sort_by(f64::total_cmp);
            println!(
                "{name:<28} {:>7} {kind:>12} {:>10.2} {:>10.2} {:>16.0}",
                workload.tensors.len(),
                took[took.len() / 2],
                took[took.len() - 1],
                sum / f64::from(rounds)
            );
        }
    }
}
