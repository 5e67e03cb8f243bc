//! Step-time processes that may mislead a tuner's guard: two modes, a neighbour, periods,
//! correlated noise, stalls, growth.
//!
//! All settings except the start share one effect, so each process has one right decision. A run
//! drives a session for a fixed number of steps, as `ronde tune` does, and records the cost for a
//! job. Tests of the crate `ronde-tuner` include this file, so it depends only on that crate and on
//! `rand`. A: two modes, B: a neighbour, C: a square wave, D: AR(1), E and F: rare slow steps away
//! from the start, G: growth, H: every tenth step, I: a neighbour for 300 steps at a time.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use ronde_tuner::{Action, Parameter, Phase, Session, SessionConfig, Space};

/// Slow-down of the first step after a change of setting, as a share.
const CHANGE: f64 = 0.25;
/// Step time of the start setting in a quiet environment, ms.
const BASE_MS: f64 = 100.0;
/// Number of steps of a run.
const STEPS: u64 = 3000;
/// Number of steps of a run of the process `I`, whose states last 300 steps.
const STEPS_LONG: u64 = 12_000;

/// Effect of the environment on a step, equal for all settings.
#[derive(Clone, Copy, Debug)]
enum Environment {
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
}

/// Effect of leaving the start on a step.
#[derive(Clone, Copy, Debug)]
struct Effect {
    /// Factor on every step, and a further factor on this share of the steps.
    factor: f64,
    rare: f64,
    share: f64,
}

/// A step-time process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    /// Name in tables.
    pub(crate) name: &'static str,
    environment: Environment,
    other: Effect,
    noise: f64,
    steps: u64,
}

const fn process(name: &'static str, environment: Environment, factor: f64, noise: f64) -> Process {
    Process {
        name,
        environment,
        other: Effect {
            factor,
            rare: 1.0,
            share: 0.0,
        },
        noise,
        steps: STEPS,
    }
}

const fn rare(mut process: Process, rare: f64, share: f64) -> Process {
    process.other.rare = rare;
    process.other.share = share;
    process
}

const fn long(mut process: Process) -> Process {
    process.steps = STEPS_LONG;
    process
}

/// All processes.
pub(crate) const PROCESSES: [Process; 12] = [
    process("A", Environment::Modes(1.09), 1.02, 0.003),
    process("B", Environment::Neighbour(1.09, 20.0), 1.02, 0.004),
    process("C", Environment::Square(1.09, 22), 1.02, 0.004),
    process("D", Environment::Correlated(0.9, 0.04), 1.02, 0.004),
    rare(process("E", Environment::Quiet, 0.97, 0.01), 2.0, 0.08),
    rare(process("F", Environment::Quiet, 0.97, 0.01), 8.0, 0.02),
    process("G", Environment::Growth(0.0008, 1500), 0.94, 0.01),
    process("G0", Environment::Quiet, 0.94, 0.01),
    process("H", Environment::Every(1.4, 10), 1.02, 0.01),
    long(process("I", Environment::Square(1.3, 600), 1.02, 0.01)),
    process("flat", Environment::Quiet, 1.0, 0.03),
    process("base", Environment::Quiet, 1.02, 0.03),
];

/// Results of one run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    /// Whether the run ended away from the start; whether a verdict ever left it.
    pub(crate) away: bool,
    pub(crate) left: bool,
    /// Cost of all steps relative to the start, as a share.
    pub(crate) paid: f64,
    /// Number of verdicts; of those whose gain's interval is above 0; of intervals without the true
    /// gain.
    pub(crate) verdicts: u32,
    pub(crate) claims: u32,
    pub(crate) missed: u32,
    /// Number of steps of the comparisons, and of drift alarms.
    pub(crate) guard_steps: u64,
    pub(crate) alarms: u32,
}

/// Generator of step times of one run.
struct Source {
    process: Process,
    rng: Xoshiro256PlusPlus,
    on: bool,
    log: f64,
    phase: u64,
    step: u64,
}

impl Source {
    fn new(process: Process, seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (on, phase) = (rng.random_bool(0.5), rng.random_range(0..1_000_000));
        let mut source = Self {
            process,
            rng,
            on,
            log: 0.0,
            phase,
            step: 0,
        };
        source.log = source.normal();
        source
    }

    /// Standard normal number, by Box and Muller.
    fn normal(&mut self) -> f64 {
        let (u, v): (f64, f64) = (self.rng.random_range(1e-12..1.0), self.rng.random());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// Step time of the start setting, ms, and the factor of leaving it.
    fn step(&mut self) -> (f64, f64) {
        let step = self.step;
        self.step += 1;
        let factor = match self.process.environment {
            Environment::Quiet => 1.0,
            Environment::Modes(factor) => {
                let is_slow = self.rng.random_bool(0.5);
                if is_slow { factor } else { 1.0 }
            }
            Environment::Neighbour(factor, dwell) => {
                self.on ^= self.rng.random_bool(1.0 / dwell);
                if self.on { factor } else { 1.0 }
            }
            Environment::Square(factor, period) => {
                let is_on = (step + self.phase) % period < period / 2;
                if is_on { factor } else { 1.0 }
            }
            Environment::Correlated(kept, sd) => {
                self.log = kept * self.log + (1.0 - kept * kept).sqrt() * self.normal();
                (sd * self.log).exp()
            }
            Environment::Growth(growth, until) => 1.0 + growth * step.min(until) as f64,
            Environment::Every(factor, period) if step.is_multiple_of(period) => factor,
            Environment::Every(..) => 1.0,
        };
        let noise = (self.process.noise * self.normal()).exp();
        let other = self.process.other;
        let is_rare = self.rng.random_bool(other.share);
        (
            BASE_MS * factor * noise,
            other.factor * if is_rare { other.rare } else { 1.0 },
        )
    }
}

impl Process {
    /// Mean gain of leaving the start, as a percentage of its step time.
    fn gain_pct(&self) -> f64 {
        let Effect {
            factor,
            rare,
            share,
        } = self.other;
        100.0 * (1.0 - factor * (1.0 + share * (rare - 1.0)))
    }

    /// Simulates one run; equal seeds give equal runs.
    pub(crate) fn run(&self, seed: u64) -> Result<Run, ronde_tuner::Error> {
        let space = Space::new(vec![
            Parameter::log("fusion_mb", 0.0625, 256.0, 16)
                .with_zero()
                .rough(),
            Parameter::log("cycle_ms", 0.1, 100.0, 13),
        ])?;
        let start = space.point(&[128.0, 1.0])?;
        let config = SessionConfig {
            seed,
            ..SessionConfig::default()
        };
        let mut session = Session::new(space, config, start)?;
        let mut source = Source::new(*self, seed);
        let mut run = Run::default();
        let (mut spent, mut base, mut setting, mut changed) = (0.0, 0.0, start, false);
        for _ in 0..self.steps {
            let (start_ms, factor) = source.step();
            let factor = if setting == start { 1.0 } else { factor };
            let step_ms = start_ms * factor * if changed { 1.0 + CHANGE } else { 1.0 };
            (spent, base) = (spent + step_ms, base + start_ms);
            run.guard_steps += u64::from(session.progress().phase == Phase::Ab);
            let mut action = session.on_step(step_ms);
            if action == Action::Ask {
                action = session.propose(session.proposal_job().run());
            }
            let next = match action {
                Action::Switch(point) => point,
                Action::Finished(verdict) => {
                    let [low, high] = verdict.gain_pct;
                    let is_left = !verdict.kept_default;
                    run.verdicts += 1;
                    run.left |= is_left;
                    run.claims += u32::from(is_left && low > 0.0);
                    run.missed += u32::from(is_left && !(low..=high).contains(&self.gain_pct()));
                    verdict.chosen
                }
                Action::Drifted(_) => {
                    run.alarms += 1;
                    setting
                }
                Action::Keep | Action::Ask => setting,
            };
            changed = next != setting;
            setting = next;
        }
        run.away = setting != start;
        run.paid = spent / base - 1.0;
        Ok(run)
    }
}

/// Header of the table.
pub(crate) const HEADER: &str = "| process | runs | away at the end | ever left | paid, mean | runs that claim a gain \
     | intervals that hold | guard steps, median | runs with a drift alarm |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |";

/// Formats a row of the table.
pub(crate) fn row(name: &str, runs: &[Run]) -> String {
    let count = runs.len().max(1) as f64;
    let share = |of: &dyn Fn(&Run) -> bool| {
        100.0 * runs.iter().filter(|run| of(run)).count() as f64 / count
    };
    let mut steps: Vec<u64> = runs.iter().map(|run| run.guard_steps).collect();
    steps.sort_unstable();
    let (claims, missed) = runs
        .iter()
        .filter(|run| run.left)
        .fold((0, 0), |(all, missed), run| {
            (all + 1, missed + u32::from(run.missed > 0))
        });
    let covered = if claims > 0 {
        format!(
            "{:.1} % of {claims}",
            100.0 * f64::from(claims - missed) / f64::from(claims)
        )
    } else {
        "none given".to_owned()
    };
    format!(
        "| {name} | {} | {:.1} % | {:.1} % | {:.2} % | {:.1} % | {covered} | {} | {:.1} % |",
        runs.len(),
        share(&|run| run.away),
        share(&|run| run.left),
        100.0 * runs.iter().map(|run| run.paid).sum::<f64>() / count,
        share(&|run| run.claims > 0),
        steps.get(steps.len() / 2).copied().unwrap_or(0),
        share(&|run| run.alarms > 0),
    )
}
