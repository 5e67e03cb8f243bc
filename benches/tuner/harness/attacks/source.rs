//! Generator of step times: an environment, which all settings share, and the effect of leaving the
//! start.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::Process;

/// Step time of the start setting in a quiet environment, ms.
const BASE_MS: f64 = 100.0;
/// Correlation of consecutive steps of the parts of [`Environment::LongMemory`].
const MEMORIES: [f64; 3] = [0.9, 0.99, 0.999];

/// Effect of the environment on a step, equal for all settings.
#[derive(Clone, Copy, Debug)]
pub(super) enum Environment {
    Quiet,
    /// A factor on half of the steps, at random.
    Modes(f64),
    /// A factor that comes and goes; mean number of steps of either state.
    Neighbour(f64, f64),
    /// A factor on the first half of each period of this many steps, from a random phase.
    Square(f64, u64),
    /// AR(1) in log step time: correlation of consecutive steps, standard deviation.
    Correlated(f64, f64),
    /// Growth per step, for this many first steps.
    Growth(f64, u64),
    /// A factor on every n-th step.
    Every(f64, u64),
    /// A factor on this share of the steps, at random.
    Spikes(f64, f64),
    /// A sine: amplitude as a share, and period in steps.
    Sine(f64, f64),
    /// Three levels; a level lasts a geometric number of steps with this mean.
    Levels([f64; 3], f64),
    /// Growth per step until a reset, as of a heap between collections; mean steps between resets.
    Sawtooth(f64, f64),
    /// A Pareto variate of this shape, times this share, on each step; the variance is infinite
    /// below a shape of 2.
    Pareto(f64, f64),
    /// The sum of three AR(1) processes in log step time, each of this standard deviation: the
    /// autocorrelation decays like a power over a thousand steps.
    LongMemory(f64),
    /// A factor on the first steps of each period: factor, number, period.
    Epoch(f64, u64, u64),
    /// A random walk in log step time; standard deviation of a step's change.
    Walk(f64),
    /// A share that decays exponentially; share at the first step, and time constant in steps.
    Decay(f64, f64),
}

/// Effect of leaving the start on a step.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effect {
    /// A factor on every step.
    Factor(f64),
    /// A factor on every step, and a further factor on a share of them: factor, further, share.
    Rare(f64, f64, f64),
    /// A factor for the first steps of each stay at a setting, and another later: factor, number,
    /// other.
    Fresh(f64, u64, f64),
    /// A factor that grows with each step of a stay: factor, growth per step, most.
    Degrading(f64, f64, f64),
    /// One of two factors, drawn for each stay.
    Bistable(f64, f64),
    /// A factor while the environment's state is off, and one while it is on.
    Loaded(f64, f64),
    /// A factor, and another from this step on: factor, step, other.
    Later(f64, u64, f64),
    /// A factor; after each change of setting, in either direction, steps take longer by a share
    /// for some steps: factor, share, number.
    CarryOver(f64, f64, u64),
}

impl Effect {
    /// Mean gain of leaving the start, as a percentage of its step time; `None` if it changes
    /// during a run.
    pub(super) fn gain_pct(self, environment: Environment) -> Option<f64> {
        let factor = match self {
            Self::Factor(factor) | Self::CarryOver(factor, ..) => factor,
            Self::Rare(factor, rare, share) => factor * (1.0 + share * (rare - 1.0)),
            Self::Bistable(low, high) => (low + high) / 2.0,
            Self::Loaded(off, on) => match environment {
                Environment::Neighbour(factor, _) => (off + on * factor) / (1.0 + factor),
                _ => off,
            },
            Self::Fresh(..) | Self::Degrading(..) | Self::Later(..) => return None,
        };
        Some(100.0 * (1.0 - factor))
    }
}

/// A setting in force.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stay {
    pub(super) is_start: bool,
    /// Steps since the setting came into force, 0 for the first.
    pub(super) age: u64,
    /// Whether another setting was in force before.
    pub(super) was_changed: bool,
}

/// Generator of step times of one run.
pub(super) struct Source {
    process: Process,
    rng: Xoshiro256PlusPlus,
    on: bool,
    logs: [f64; 3],
    level: usize,
    grown: f64,
    phase: u64,
    step: u64,
    /// Whether the current stay has the first of two stable step times.
    is_low: bool,
}

impl Source {
    pub(super) fn new(process: Process, seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (on, phase) = (rng.random_bool(0.5), rng.random_range(0..1_000_000));
        let mut source = Self {
            process,
            rng,
            on,
            logs: [0.0; 3],
            level: phase as usize % 3,
            grown: 0.0,
            phase,
            step: 0,
            is_low: true,
        };
        source.logs[0] = source.normal();
        if matches!(process.environment, Environment::LongMemory(_)) {
            source.logs = [(); 3].map(|()| source.normal());
        }
        source
    }

    /// Standard normal number, by Box and Muller.
    fn normal(&mut self) -> f64 {
        let (u, v): (f64, f64) = (self.rng.random_range(1e-12..1.0), self.rng.random());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// Advances an AR(1) process of unit variance.
    fn correlated(&mut self, index: usize, kept: f64) -> f64 {
        self.logs[index] = kept * self.logs[index] + (1.0 - kept * kept).sqrt() * self.normal();
        self.logs[index]
    }

    /// Step time of the start setting, ms, and the factor of what is in force instead.
    pub(super) fn step(&mut self, stay: Stay) -> (f64, f64) {
        let factor = self.environment();
        let noise = (self.process.noise * self.normal()).exp();
        let factor_of_setting = self.effect(stay);
        self.step += 1;
        (BASE_MS * factor * noise, factor_of_setting)
    }

    fn environment(&mut self) -> f64 {
        let step = self.step;
        match self.process.environment {
            Environment::Quiet => 1.0,
            Environment::Modes(factor) => self.chance(0.5, factor),
            Environment::Spikes(factor, share) => self.chance(share, factor),
            Environment::Neighbour(factor, dwell) => {
                self.on ^= self.rng.random_bool(1.0 / dwell);
                if self.on { factor } else { 1.0 }
            }
            Environment::Square(factor, period) => {
                let is_on = (step + self.phase) % period < period / 2;
                if is_on { factor } else { 1.0 }
            }
            Environment::Epoch(factor, steps, period) => {
                let is_on = (step + self.phase) % period < steps;
                if is_on { factor } else { 1.0 }
            }
            Environment::Correlated(kept, sd) => (sd * self.correlated(0, kept)).exp(),
            Environment::LongMemory(sd) => {
                let logs = [0, 1, 2].map(|index| self.correlated(index, MEMORIES[index]));
                (sd * logs.iter().sum::<f64>()).exp()
            }
            Environment::Growth(growth, until) => 1.0 + growth * step.min(until) as f64,
            Environment::Every(factor, period) if step.is_multiple_of(period) => factor,
            Environment::Every(..) => 1.0,
            Environment::Sine(amplitude, period) => {
                let turns = (step + self.phase) as f64 / period;
                1.0 + amplitude * (std::f64::consts::TAU * turns).sin()
            }
            Environment::Levels(levels, dwell) => {
                if self.rng.random_bool(1.0 / dwell) {
                    self.level = (self.level + self.rng.random_range(1..3)) % 3;
                }
                levels[self.level]
            }
            Environment::Sawtooth(growth, period) => {
                let is_reset = self.rng.random_bool(1.0 / period);
                self.grown = if is_reset { 0.0 } else { self.grown + growth };
                1.0 + self.grown
            }
            Environment::Pareto(share, shape) => {
                let uniform: f64 = self.rng.random_range(1e-12..1.0);
                1.0 + share * uniform.powf(-1.0 / shape)
            }
            Environment::Walk(sd) => {
                self.logs[1] += sd * self.normal();
                self.logs[1].exp()
            }
            Environment::Decay(share, steps) => 1.0 + share * (-(step as f64) / steps).exp(),
        }
    }

    fn chance(&mut self, share: f64, factor: f64) -> f64 {
        let is_slow = self.rng.random_bool(share);
        if is_slow { factor } else { 1.0 }
    }

    fn effect(&mut self, stay: Stay) -> f64 {
        let (step, age) = (self.step, stay.age);
        if age == 0 && matches!(self.process.other, Effect::Bistable(..)) {
            self.is_low = self.rng.random_bool(0.5);
        }
        let carried = match self.process.other {
            Effect::CarryOver(_, share, steps) if stay.was_changed && age < steps => 1.0 + share,
            _ => 1.0,
        };
        let other = match self.process.other {
            Effect::Factor(factor) | Effect::CarryOver(factor, ..) => factor,
            Effect::Rare(factor, rare, share) => factor * self.chance(share, rare),
            Effect::Fresh(factor, steps, _) if age < steps => factor,
            Effect::Fresh(_, _, later) => later,
            Effect::Degrading(factor, growth, most) => (factor + growth * age as f64).min(most),
            Effect::Bistable(low, high) => [high, low][usize::from(self.is_low)],
            Effect::Loaded(off, on) => [off, on][usize::from(self.on)],
            Effect::Later(factor, from, _) if step < from => factor,
            Effect::Later(_, _, later) => later,
        };
        carried * if stay.is_start { 1.0 } else { other }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{APART, CHOSEN, FLAT, GAINS};
    use super::*;

    #[test]
    fn the_stated_gain_is_that_of_the_steps() {
        const STEPS: u64 = 400_000;
        for process in [&CHOSEN[..], &APART, &GAINS, &FLAT].concat() {
            let Some(gain_pct) = process.other.gain_pct(process.environment) else {
                continue;
            };
            let mut source = Source::new(process, 5);
            let (mut start, mut other) = (0.0, 0.0);
            for step in 0..STEPS {
                let stay = Stay {
                    is_start: false,
                    age: step % 10,
                    was_changed: false,
                };
                let (start_ms, factor) = source.step(stay);
                (start, other) = (start + start_ms, other + start_ms * factor);
            }
            let found_pct = 100.0 * (1.0 - other / start);
            assert!(
                (found_pct - gain_pct).abs() < 0.7,
                "{}: {found_pct} instead of {gain_pct}",
                process.name
            );
        }
    }

    #[test]
    fn effects_depend_on_the_stay() {
        let of = |name: &str| *APART.iter().find(|process| process.name == name).unwrap();
        let factor = |name: &str, is_start: bool, age: u64| {
            let was_changed = true;
            let stay = Stay {
                is_start,
                age,
                was_changed,
            };
            Source::new(of(name), 1).step(stay).1
        };
        assert_eq!(
            [
                factor("throttled", false, 19),
                factor("throttled", false, 20)
            ],
            [0.95, 1.04]
        );
        assert_eq!(
            [factor("carry-over", true, 4), factor("carry-over", true, 5)],
            [1.1, 1.0]
        );
        assert_eq!(factor("degrading", false, 10_000), 1.15);
        assert_eq!(factor("throttled", true, 0), 1.0);
    }
}
