//! Cost of a proposal: CPU time of the asking thread, for a job of the runtime's shape.
//!
//! The lattice has 17 × 13 × 2 + 1 points, the model 16 features; the surface is a smooth one that
//! the model has wrong by a third. `cargo bench -p ronde-tuner --bench ask` prints p50 and p99 over
//! many searches; the last column is a hash of the decisions, equal from run to run. As part of the
//! tests (`cargo test --benches`) each case runs a few times.

use std::sync::Arc;

use ronde_tuner::{Belief, Model, Next, Observation, Parameter, Point, Space, Tuner, TunerConfig};
use rustix::time::{ClockId, clock_gettime};

const OBSERVATIONS: [usize; 6] = [1, 2, 5, 12, 24, 50];
const FEATURES: usize = 16;
const RUNS: u64 = 400;
const RUNS_IN_TESTS: u64 = 3;

/// A belief of 16 features, worked out beforehand: ripples over the lattice, of waves that differ
/// by feature.
#[derive(Debug)]
struct Ripples(Belief);

impl Ripples {
    fn new(points: &[Point], start: &Point) -> Self {
        let at = |point: &Point, feature: usize| {
            let wave = 0.3 + 0.2 * feature as f64;
            0.05 * (wave * (point.value(0) + 1.0).ln() + point.value(1).ln() + point.value(2)).sin()
        };
        let features = |point| (0..FEATURES).map(|f| at(point, f) - at(start, f)).collect();
        let mean = |point| 0.7 * (surface(point) / surface(start)).ln();
        Self(Belief {
            mean: points.iter().map(mean).collect(),
            features: points.iter().map(features).collect(),
        })
    }
}

impl Model for Ripples {
    fn belief(&self, _: &[Point], _: &Point) -> Option<Belief> {
        Some(self.0.clone())
    }
}

fn surface(point: &Point) -> f64 {
    let fusion = (point.value(0) + 0.05).ln() - 4f64.ln();
    let cycle = point.value(1).ln();
    100.0 * (1.0 + 0.02 * fusion * fusion + 0.03 * cycle * cycle - 0.05 * point.value(2))
}

fn cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 * 1e-3
}

/// Observes `count` settings of the lattice in a seeded order, and times the next proposal.
fn ask(count: usize, seed: u64, with_model: bool) -> (f64, Next) {
    let space = Space::new(vec![
        Parameter::log("fusion_mb", 1.0 / 16.0, 256.0, 16)
            .with_zero()
            .rough(),
        Parameter::log("cycle_ms", 0.1, 100.0, 13),
        Parameter::boolean("hierarchical_allreduce"),
    ])
    .unwrap();
    let start = space.point(&[128.0, 3.3, 0.0]).unwrap();
    let lattice = space.lattice(&start);
    let config = TunerConfig {
        max_samples: 64,
        ..TunerConfig::default()
    };
    let mut tuner = Tuner::new(space, config, start).unwrap();
    let mut points = lattice.clone();
    for index in 0..count as u64 {
        let place = match index {
            0 => lattice.len() - 1,
            _ => ((index * 179 + seed * 61) % (lattice.len() as u64 - 1)) as usize,
        };
        let noise = 1.0 + 0.01 * ((index * 7 + seed * 3) % 5) as f64;
        let observation = Observation {
            value: surface(&lattice[place]) * noise,
            spread: 3.0,
            steps: 10,
        };
        tuner.tell(lattice[place], observation).unwrap();
        points.push(lattice[place]);
    }
    let mut job = tuner.job();
    if with_model {
        job = job.with_model(Arc::new(Ripples::new(&points, &start)));
    }
    let begin = cpu_us();
    let proposal = job.run();
    (cpu_us() - begin, proposal.next)
}

fn main() {
    let in_tests = std::env::args().any(|argument| argument == "--test")
        || !std::env::args().any(|argument| argument == "--bench");
    let runs = if in_tests { RUNS_IN_TESTS } else { RUNS };
    println!("observations  model  p50_us  p99_us  decisions");
    for with_model in [false, true] {
        for count in OBSERVATIONS {
            let mut times = Vec::new();
            let mut hash: u64 = 0;
            for seed in 0..runs {
                let (time, next) = ask(count, seed, with_model);
                times.push(time);
                if let Next::Sample(point) = next {
                    for value in point.values() {
                        hash = hash.rotate_left(5).wrapping_mul(31) ^ value.to_bits();
                    }
                }
            }
            times.sort_by(f64::total_cmp);
            let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
            let model = if with_model { "yes" } else { "no" };
            println!(
                "{count:>12}  {model:>5}  {:>6.0}  {:>6.0}  {hash:016x}",
                at(0.50),
                at(0.99)
            );
        }
    }
}
