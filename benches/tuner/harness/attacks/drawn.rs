//! Processes with parameters that are drawn for each run, so that no constant of the tuner can be
//! chosen for them: an environment of every kind, beside an effect of every kind.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::source::{Effect, Environment};
use super::{Process, STEPS};

/// Kinds of environment.
pub(crate) const ENVIRONMENTS: [&str; 15] = [
    "noise",
    "modes",
    "neighbour",
    "square wave",
    "AR(1)",
    "every n-th step",
    "spikes",
    "sine",
    "levels",
    "sawtooth",
    "Pareto",
    "long memory",
    "epochs",
    "walk",
    "decay",
];

/// Effect of leaving the start.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Leaving {
    /// Slower by 0.2 to 5 %.
    Slower,
    /// No effect.
    Equal,
    /// Faster by 1 to 6 % except for rare slow steps, with which it is 0.5 to 6 % slower.
    Rare,
    /// Faster by 3 to 20 %.
    Faster,
}

pub(crate) const LEAVING: [Leaving; 4] = [
    Leaving::Slower,
    Leaving::Equal,
    Leaving::Rare,
    Leaving::Faster,
];

/// A number in a range, uniform in its logarithm.
fn between(rng: &mut Xoshiro256PlusPlus, low: f64, high: f64) -> f64 {
    low * (high / low).powf(rng.random())
}

impl Process {
    /// Draws a process with this kind of environment, an index of [`ENVIRONMENTS`].
    pub(crate) fn drawn(kind: usize, leaving: Leaving, seed: u64) -> Self {
        // Not the generator of the step times.
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x5eed);
        let environment = environment(ENVIRONMENTS[kind], &mut rng);
        let other = leaving.effect(&mut rng);
        Self {
            name: ENVIRONMENTS[kind],
            environment,
            other,
            noise: between(&mut rng, 0.003, 0.05),
            steps: STEPS,
            resolution_ms: 0.0,
        }
    }
}

fn environment(kind: &str, rng: &mut Xoshiro256PlusPlus) -> Environment {
    let factor = 1.0 + between(rng, 0.03, 0.5);
    let steps = between(rng, 3.0, 300.0);
    let period = between(rng, 4.0, 600.0) as u64;
    match kind {
        "modes" => Environment::Modes(factor),
        "neighbour" => Environment::Neighbour(factor, steps),
        "square wave" => Environment::Square(factor, period),
        "AR(1)" => {
            let kept = 1.0 - between(rng, 0.005, 0.5);
            Environment::Correlated(kept, between(rng, 0.01, 0.08))
        }
        "every n-th step" => {
            Environment::Every(1.0 + between(rng, 0.1, 4.0), rng.random_range(2..80))
        }
        "spikes" => Environment::Spikes(1.0 + between(rng, 0.2, 6.0), between(rng, 0.002, 0.1)),
        "sine" => Environment::Sine(between(rng, 0.02, 0.2), between(rng, 8.0, 1500.0)),
        "levels" => {
            let high = 1.0 + between(rng, 0.03, 0.4);
            Environment::Levels([1.0, f64::midpoint(1.0, high), high], 2.0 * steps)
        }
        "sawtooth" => Environment::Sawtooth(between(rng, 5e-4, 0.01), between(rng, 10.0, 150.0)),
        "Pareto" => Environment::Pareto(between(rng, 0.01, 0.1), rng.random_range(1.4..3.0)),
        "long memory" => Environment::LongMemory(between(rng, 0.005, 0.04)),
        "epochs" => {
            let period = rng.random_range(60..1000);
            let slow = rng.random_range(1..=period / 10);
            Environment::Epoch(1.0 + between(rng, 0.1, 2.0), slow, period)
        }
        "walk" => Environment::Walk(between(rng, 5e-4, 5e-3)),
        "decay" => Environment::Decay(between(rng, 0.1, 3.0), steps),
        "noise" => Environment::Quiet,
        other => unreachable!("no environment {other}"),
    }
}

impl Leaving {
    fn effect(self, rng: &mut Xoshiro256PlusPlus) -> Effect {
        match self {
            Self::Slower => Effect::Factor(1.0 + between(rng, 0.002, 0.05)),
            Self::Equal => Effect::Factor(1.0),
            Self::Rare => {
                let (usual, rare) = (rng.random_range(0.94..0.99), between(rng, 1.5, 12.0));
                let mean = 1.0 + between(rng, 0.005, 0.06);
                Effect::Rare(usual, rare, (mean / usual - 1.0) / (rare - 1.0))
            }
            Self::Faster => Effect::Factor(1.0 - between(rng, 0.03, 0.2)),
        }
    }
}
