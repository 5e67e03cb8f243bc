//! Lists of step-time processes. Constants of the tuner may be chosen with [`CHOSEN`] only
//! (`split.rs`).

use super::source::{Effect, Environment};
use super::{Process, STEPS};

/// Number of steps of a run of the process `I`, whose states last 300 steps.
const STEPS_LONG: u64 = 12_000;

const fn process(
    name: &'static str,
    environment: Environment,
    other: Effect,
    noise: f64,
) -> Process {
    Process {
        name,
        environment,
        other,
        noise,
        steps: STEPS,
        resolution_ms: 0.0,
    }
}

/// Others are slower by 2 %, so that leaving the start is an error.
const SLOWER: Effect = Effect::Factor(1.02);
/// Others are faster by 6 %.
const FASTER: Effect = Effect::Factor(0.94);
const EQUAL: Effect = Effect::Factor(1.0);

const fn long(mut process: Process) -> Process {
    process.steps = STEPS_LONG;
    process
}

const fn rounded(mut process: Process, ms: f64) -> Process {
    process.resolution_ms = ms;
    process
}

const MODES: Environment = Environment::Modes(1.09);
const NEIGHBOUR: Environment = Environment::Neighbour(1.09, 20.0);
const SQUARE: Environment = Environment::Square(1.09, 22);
const CORRELATED: Environment = Environment::Correlated(0.9, 0.04);
const SPIKES: Environment = Environment::Spikes(1.5, 0.03);

/// Processes with which constants of the guard and of the drift detection were chosen. A: two
/// modes, B: a neighbour, C: a square wave, D: AR(1), E and F: rare slow steps away from the start,
/// G: growth, H: every tenth step, I: a neighbour for 300 steps at a time.
pub(crate) const CHOSEN: [Process; 12] = [
    process("A", MODES, SLOWER, 0.003),
    process("B", NEIGHBOUR, SLOWER, 0.004),
    process("C", SQUARE, SLOWER, 0.004),
    process("D", CORRELATED, SLOWER, 0.004),
    process("E", Environment::Quiet, Effect::Rare(0.97, 2.0, 0.08), 0.01),
    process("F", Environment::Quiet, Effect::Rare(0.97, 8.0, 0.02), 0.01),
    process("G", Environment::Growth(0.0008, 1500), FASTER, 0.01),
    process("G0", Environment::Quiet, FASTER, 0.01),
    process("H", Environment::Every(1.4, 10), SLOWER, 0.01),
    long(process("I", Environment::Square(1.3, 600), SLOWER, 0.01)),
    process("flat", Environment::Quiet, EQUAL, 0.03),
    process("base", Environment::Quiet, SLOWER, 0.03),
];

/// Processes of other kinds. No constant was chosen with them.
pub(crate) const APART: [Process; 36] = [
    process("sine", Environment::Sine(0.08, 400.0), SLOWER, 0.01),
    process(
        "levels",
        Environment::Levels([1.0, 1.06, 1.15], 150.0),
        SLOWER,
        0.01,
    ),
    process(
        "collections",
        Environment::Sawtooth(0.004, 40.0),
        SLOWER,
        0.005,
    ),
    process("checkpoints", Environment::Epoch(9.0, 1, 250), SLOWER, 0.01),
    process("epochs", Environment::Epoch(1.4, 20, 300), SLOWER, 0.01),
    process("Pareto", Environment::Pareto(0.05, 1.5), SLOWER, 0.005),
    process("long memory", Environment::LongMemory(0.02), SLOWER, 0.005),
    process("walk", Environment::Walk(0.003), SLOWER, 0.005),
    process("decay", Environment::Decay(0.5, 300.0), SLOWER, 0.01),
    process("start-up, 3", Environment::Decay(2.0, 3.0), SLOWER, 0.01),
    process("start-up, 10", Environment::Decay(2.0, 10.0), SLOWER, 0.01),
    process("alternating", Environment::Square(1.5, 2), SLOWER, 0.01),
    rounded(
        process("coarse clock", Environment::Quiet, SLOWER, 0.01),
        10.0,
    ),
    process(
        "carry-over",
        Environment::Quiet,
        Effect::CarryOver(1.02, 0.1, 5),
        0.01,
    ),
    process(
        "bistable",
        Environment::Quiet,
        Effect::Bistable(0.96, 1.08),
        0.01,
    ),
    process("loaded", NEIGHBOUR, Effect::Loaded(0.97, 1.08), 0.004),
    process(
        "throttled",
        Environment::Quiet,
        Effect::Fresh(0.95, 20, 1.04),
        0.01,
    ),
    process(
        "degrading",
        Environment::Quiet,
        Effect::Degrading(0.95, 1e-4, 1.15),
        0.01,
    ),
    process(
        "throttled, 60",
        Environment::Quiet,
        Effect::Fresh(0.95, 60, 1.08),
        0.01,
    ),
    process(
        "throttled, 200",
        Environment::Quiet,
        Effect::Fresh(0.95, 200, 1.08),
        0.01,
    ),
    process(
        "degrading, fast",
        Environment::Quiet,
        Effect::Degrading(0.95, 1e-3, 1.15),
        0.01,
    ),
    process(
        "walk, later",
        Environment::Walk(0.002),
        Effect::Later(0.94, 600, 1.10),
        0.01,
    ),
    process(
        "carry-over, loss",
        Environment::Quiet,
        Effect::CarryOver(1.02, 0.3, 8),
        0.01,
    ),
    process(
        "bistable, gain",
        Environment::Quiet,
        Effect::Bistable(0.93, 1.02),
        0.01,
    ),
    process("loaded, gain", NEIGHBOUR, Effect::Loaded(1.06, 0.90), 0.004),
    process("gain, modes", MODES, FASTER, 0.003),
    process("gain, neighbour", NEIGHBOUR, FASTER, 0.004),
    process("gain, square", SQUARE, FASTER, 0.004),
    process("gain, AR(1)", CORRELATED, FASTER, 0.004),
    process(
        "later",
        Environment::Quiet,
        Effect::Later(0.94, 1000, 1.06),
        0.01,
    ),
    process(
        "rare stalls",
        Environment::Quiet,
        Effect::Rare(0.97, 20.0, 0.005),
        0.01,
    ),
    process(
        "gain, long memory",
        Environment::LongMemory(0.02),
        FASTER,
        0.005,
    ),
    process(
        "gain, start-up",
        Environment::Decay(2.0, 10.0),
        FASTER,
        0.01,
    ),
    process(
        "gain, Pareto",
        Environment::Pareto(0.05, 1.5),
        FASTER,
        0.005,
    ),
    process(
        "gain, levels",
        Environment::Levels([1.0, 1.06, 1.15], 150.0),
        FASTER,
        0.01,
    ),
    process(
        "gain, carry-over",
        Environment::Quiet,
        Effect::CarryOver(0.94, 0.1, 5),
        0.01,
    ),
];

/// True gains.
pub(crate) const GAINS: [Process; 4] = [
    process("20 %, spikes", SPIKES, Effect::Factor(0.8), 0.035),
    process("6 %, spikes", SPIKES, FASTER, 0.035),
    process("2.5 %", Environment::Quiet, Effect::Factor(0.975), 0.035),
    process("2.5 %, spikes", SPIKES, Effect::Factor(0.975), 0.035),
];

/// All settings are equal.
pub(crate) const FLAT: [Process; 8] = [
    process("1 %", Environment::Quiet, EQUAL, 0.01),
    process("3 %", Environment::Quiet, EQUAL, 0.03),
    process("5 %", Environment::Quiet, EQUAL, 0.05),
    process("3.5 % and spikes", SPIKES, EQUAL, 0.035),
    process("A", MODES, EQUAL, 0.003),
    process("B", NEIGHBOUR, EQUAL, 0.004),
    process("C", SQUARE, EQUAL, 0.004),
    process("D", CORRELATED, EQUAL, 0.004),
];

/// Environments of the drift table, in which the start is best.
pub(crate) const DRIFT: [Process; 5] = [
    process("base", Environment::Quiet, SLOWER, 0.03),
    process("A", MODES, SLOWER, 0.003),
    process("B", NEIGHBOUR, SLOWER, 0.004),
    process("C", SQUARE, SLOWER, 0.004),
    process("D", CORRELATED, SLOWER, 0.004),
];
