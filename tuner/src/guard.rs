//! The guard: interleaved A/B windows of the winner against the default, and the rule by which the winner is kept.
//!
//! A search ends at the setting that looked best, and what looks best among many was also lucky. So the winner has to beat the
//! default again, on fresh steps only, in alternating windows (order reversed each round: default, winner, winner, default, …)
//! that a drift of the machine hits alike. With d the difference of the Huber centres of the log step times (winner − default)
//! and se its standard error, the winner is kept only if
//!
//! - P(it is more than 1 % slower than the default) = Φ((d − 0.01) / se) < 0.002, and
//! - it is faster: P(it is not faster) = Φ(d / se) < 0.025, that is, the 95 % interval of the gain excludes zero.
//!
//! The rule is read after every round from the second on; to keep the many looks from adding up to one lenient one, looks before the
//! last demand a quarter and a fifth of those probabilities. An undecided pair is extended up to [`ROUNDS_MAX`] rounds while there
//! is a fair chance that the last look accepts; otherwise the default stays. The guard is the one protection that depends on no
//! model being right.

use statrs::distribution::{ContinuousCDF, Normal};

use crate::center::{CENTER_INEFFICIENCY, huber_center, step_noise};

/// Rounds, each one window of either setting, after which an undecided winner is dropped.
pub const ROUNDS_MAX: u32 = 12;
/// Steps measured in a window.
pub const WINDOW_STEPS: u32 = 5;
/// Rounds before the first look: two windows of each are the least that show a scatter.
const ROUNDS_MIN: u32 = 2;
/// Rounds from which the scatter between rounds is believed.
const ROUNDS_FOR_SCATTER: usize = 4;
/// A slow-down, in log step time, that must be all but excluded.
const SLOWDOWN: f64 = 0.01;
/// Accepted probability of more than that slow-down: at the last look, and before.
const SLOWER_MAX: [f64; 2] = [0.002, 0.0005];
/// Accepted probability that the winner is not faster: at the last look, and before.
const NOT_FASTER_MAX: [f64; 2] = [0.025, 0.005];
/// Below this chance of being accepted at the last look, the rest of the rounds is saved.
const HOPE_MIN: f64 = 0.05;
/// Standard errors to either side in a 95 % interval.
const INTERVAL_95: f64 = 1.96;

/// One side of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// The default setting.
    Default,
    /// The setting that the search chose.
    Winner,
}

/// What the windows so far say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Another window is needed.
    Undecided,
    /// The winner passed the rule.
    KeepWinner,
    /// It did not, and further rounds would not help or are not left.
    KeepDefault,
}

/// The difference between the arms, in log step time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Centre of the winner minus centre of the default; negative if the winner is faster.
    pub mean: f64,
    /// Standard error of `mean`.
    pub se: f64,
}

impl Difference {
    /// The winner's gain in percent of the default's step time, as a 95 % interval [low, high].
    pub fn gain_pct(&self) -> [f64; 2] {
        let percent = |d: f64| 100.0 * (1.0 - d.exp());
        [
            percent(self.mean + INTERVAL_95 * self.se),
            percent(self.mean - INTERVAL_95 * self.se),
        ]
    }

    /// P(the true difference is above `bound`).
    fn above(&self, bound: f64) -> f64 {
        normal_cdf((self.mean - bound) / self.se)
    }
}

/// The comparison of a winner with the default.
#[derive(Clone, Debug)]
pub struct Guard {
    /// Noise of a step as the search saw it; the windows' own noise counts if it is larger.
    noise: f64,
    default: Vec<Vec<f64>>,
    winner: Vec<Vec<f64>>,
}

impl Guard {
    /// A comparison, with the noise of a single step (as a fraction) known from the search.
    pub fn new(noise: f64) -> Self {
        Self {
            noise,
            default: Vec::new(),
            winner: Vec::new(),
        }
    }

    /// The arm whose window comes next.
    pub fn next_arm(&self) -> Arm {
        // Default first in even rounds, winner first in odd ones: only every second window needs a change of setting.
        let first = if self.rounds().is_multiple_of(2) {
            Arm::Default
        } else {
            Arm::Winner
        };
        let second = if first == Arm::Default {
            Arm::Winner
        } else {
            Arm::Default
        };
        if self.default.len() == self.winner.len() {
            first
        } else {
            second
        }
    }

    /// Complete rounds.
    pub fn rounds(&self) -> u32 {
        self.default.len().min(self.winner.len()) as u32
    }

    /// Adds a window of the arm that was next: ln(step time in ms), [`WINDOW_STEPS`] values.
    pub fn push(&mut self, log_times: Vec<f64>) {
        match self.next_arm() {
            Arm::Default => self.default.push(log_times),
            Arm::Winner => self.winner.push(log_times),
        }
    }

    /// The Huber centre of one arm's log step times, NaN before its first window.
    pub fn center(&self, arm: Arm) -> f64 {
        huber_center(&self.windows(arm).concat())
    }

    fn windows(&self, arm: Arm) -> &[Vec<f64>] {
        match arm {
            Arm::Default => &self.default,
            Arm::Winner => &self.winner,
        }
    }

    /// The difference so far, once each arm has a window.
    pub fn difference(&self) -> Option<Difference> {
        if self.rounds() == 0 {
            return None;
        }
        let (default, winner) = (self.default.concat(), self.winner.concat());
        let noise = step_noise([default.as_slice(), winner.as_slice()].into_iter()).max(self.noise);
        let reciprocal = 1.0 / default.len() as f64 + 1.0 / winner.len() as f64;
        let within = noise * (CENTER_INEFFICIENCY * reciprocal).sqrt();
        Some(Difference {
            mean: huber_center(&winner) - huber_center(&default),
            se: within.max(self.scatter()),
        })
    }

    /// The standard error that the rounds' own differences show: larger than that of the steps where steps are correlated.
    fn scatter(&self) -> f64 {
        let pairs = self.default.iter().zip(&self.winner);
        let differences: Vec<f64> = pairs.map(|(d, w)| huber_center(w) - huber_center(d)).collect();
        let count = differences.len();
        if count < ROUNDS_FOR_SCATTER {
            return 0.0;
        }
        let mean = differences.iter().sum::<f64>() / count as f64;
        let squares: f64 = differences.iter().map(|d| (d - mean) * (d - mean)).sum();
        (squares / ((count - 1) * count) as f64).sqrt()
    }

    /// What the complete rounds say; `Undecided` inside a round.
    pub fn decision(&self) -> Decision {
        let rounds = self.rounds();
        let complete = self.default.len() == self.winner.len();
        let Some(difference) = self.difference().filter(|_| complete && rounds >= ROUNDS_MIN) else {
            return Decision::Undecided;
        };
        let last = rounds >= ROUNDS_MAX;
        let limits = if last { 0 } else { 1 };
        if difference.above(SLOWDOWN) < SLOWER_MAX[limits] && difference.above(0.0) < NOT_FASTER_MAX[limits] {
            return Decision::KeepWinner;
        }
        if last || hope(&difference, rounds) < HOPE_MIN {
            Decision::KeepDefault
        } else {
            Decision::Undecided
        }
    }
}

/// The chance that the last look accepts, were the difference seen so far the true one.
fn hope(difference: &Difference, rounds: u32) -> f64 {
    let share = f64::from(rounds) / f64::from(ROUNDS_MAX);
    let se_last = difference.se * share.sqrt();
    let slower = SLOWDOWN + quantile(SLOWER_MAX[0]) * se_last;
    let not_faster = quantile(NOT_FASTER_MAX[0]) * se_last;
    // The last mean is the present one, moved by what the remaining rounds have to say.
    let sd = difference.se * (1.0 - share).sqrt();
    normal_cdf((slower.min(not_faster) - difference.mean) / sd)
}

fn normal_cdf(z: f64) -> f64 {
    Normal::standard().cdf(z)
}

fn quantile(p: f64) -> f64 {
    Normal::standard().inverse_cdf(p)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt, SeedableRng};

    /// A log step time: centre, noise, 3 % spikes of half as long again.
    fn step(rng: &mut Xoshiro256PlusPlus, center: f64, noise: f64) -> f64 {
        let z = quantile(rng.random_range(1e-9..1.0));
        center + noise * z + if rng.random_bool(0.03) { 1.5f64.ln() } else { 0.0 }
    }

    /// Share of runs that keep a winner of this relative step time, and mean rounds.
    fn simulate(runs: u64, ratio: f64, noise: f64) -> (f64, f64) {
        let (mut kept, mut rounds) = (0, 0);
        for seed in 0..runs {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut guard = Guard::new(noise);
            let decision = loop {
                let center = if guard.next_arm() == Arm::Winner {
                    ratio.ln()
                } else {
                    0.0
                };
                guard.push((0..WINDOW_STEPS).map(|_| step(&mut rng, center, noise)).collect());
                match guard.decision() {
                    Decision::Undecided => {}
                    decision => break decision,
                }
            };
            kept += u64::from(decision == Decision::KeepWinner);
            rounds += u64::from(guard.rounds());
        }
        (kept as f64 / runs as f64, rounds as f64 / runs as f64)
    }

    #[test]
    fn a_slower_setting_is_never_kept() {
        assert!(simulate(2000, 1.011, 0.05).0 < 0.005);
        assert!(simulate(500, 1.011, 0.02).0 < 0.005);
        assert_eq!(simulate(200, 1.2, 0.08).0, 0.0);
    }

    #[test]
    fn an_equal_setting_is_rarely_kept_and_a_faster_one_nearly_always() {
        assert!(simulate(1000, 1.0, 0.03).0 < 0.05);
        assert!(simulate(300, 0.90, 0.05).0 > 0.99);
        assert!(simulate(300, 0.95, 0.03).0 > 0.95);
    }

    #[test]
    fn arms_alternate_with_the_order_reversed() {
        let mut guard = Guard::new(0.01);
        let arms: Vec<Arm> = (0..8)
            .map(|_| {
                let arm = guard.next_arm();
                guard.push(vec![0.0; 5]);
                arm
            })
            .collect();
        let (d, w) = (Arm::Default, Arm::Winner);
        assert_eq!(arms, [d, w, w, d, d, w, w, d]);
        assert_eq!(guard.rounds(), 4);
    }

    #[test]
    fn interval_by_hand() {
        // ln 0.9 ± 1.96 · 0.01.
        let [low, high] = Difference {
            mean: 0.9f64.ln(),
            se: 0.01,
        }
        .gain_pct();
        assert!((low - 100.0 * (1.0 - 0.9 * 0.0196f64.exp())).abs() < 1e-9);
        assert!(
            (low - 8.2186).abs() < 1e-3 && (high - 11.7468).abs() < 1e-3,
            "{low} {high}"
        );
        // Constant times, 10 steps each, noise 0.1: se 0.1 sqrt(2.6 / 10).
        let mut guard = Guard::new(0.1);
        (0..4).for_each(|_| guard.push(vec![1.0; 5]));
        let difference = guard.difference().unwrap();
        assert_eq!(difference.mean, 0.0);
        assert!((difference.se - 0.1 * 0.26f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn without_hope_the_default_stays_early() {
        let mut guard = Guard::new(0.01);
        for _ in 0..4 {
            let slow = if guard.next_arm() == Arm::Winner { 0.3 } else { 0.0 };
            assert_eq!(guard.decision(), Decision::Undecided);
            guard.push(vec![slow; 5]);
        }
        assert_eq!(guard.decision(), Decision::KeepDefault);
    }
}
