//! Draws one job of the ensemble: one sample of each of its costs.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use statrs::distribution::{ContinuousCDF, Normal};

use super::super::fit::{Fit, GUESS_SD, KNEES, SLOWDOWNS, uncached_guess};
use super::super::linear::Linear;
use super::super::{Collective, Copying, Costs, Negotiation};
use super::{Ensemble, Member};

/// Systematic error of a cost in a trace, in ln: only rank 0's view is recorded.
const SYSTEMATIC_SD: f64 = 0.15;
/// Systematic error of ready times and of the time before the first, in ln.
const READY_SD: f64 = 0.05;
/// Polling slows the computation by up to this share; simultaneous communication slows it by a
/// normally distributed share of its time.
const POLLING_MOST: f64 = 0.08;
const CONTENTION_SD: f64 = 0.06;

impl Ensemble {
    /// Draws job number `index`: always the same for the same seed, independent of earlier draws.
    pub(super) fn draw(&self, index: usize) -> Member {
        let seed = self
            .seed
            .wrapping_add((index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut dice = Dice(Xoshiro256PlusPlus::seed_from_u64(seed));
        let Fit { spread, place, .. } = &self.fit;
        let tree = dice.coin();
        let latency = dice.factor(SYSTEMATIC_SD);
        let per_byte = dice.factor(SYSTEMATIC_SD);
        let drawn = |linear: &Linear, dice: &mut Dice| {
            let [alpha, beta] = linear.draw([dice.normal(), dice.normal()]);
            Collective {
                alpha_us: alpha * latency,
                us_per_byte: beta * per_byte,
            }
        };
        let flat: Vec<Collective> = spread
            .flat
            .iter()
            .map(|linear| drawn(linear, &mut dice))
            .collect();
        let mut local = *place;
        local.local.alpha_us *= dice.factor(GUESS_SD);
        local.local.us_per_byte *= dice.factor(GUESS_SD);
        local.hierarchical_us *= dice.factor(GUESS_SD);
        let hierarchical = spread.hierarchical.iter().zip(&flat);
        let hierarchical = hierarchical
            .map(|(seen, &flat)| match seen {
                Some(linear) => drawn(linear, &mut dice),
                None => local.hierarchical(flat, tree),
            })
            .collect();
        let negotiation = |linear: &Linear, dice: &mut Dice| {
            let [base_us, per_tensor_us] = linear.draw([dice.normal(), dice.normal()]);
            let factor = dice.factor(SYSTEMATIC_SD);
            Negotiation {
                base_us: base_us * factor,
                per_tensor_us: per_tensor_us * factor,
            }
        };
        let cached = negotiation(&spread.cached, &mut dice);
        let uncached = match &spread.uncached {
            Some(linear) => negotiation(linear, &mut dice),
            None => {
                let guess = uncached_guess(cached);
                Negotiation {
                    base_us: guess.base_us * dice.factor(GUESS_SD),
                    per_tensor_us: guess.per_tensor_us * dice.factor(GUESS_SD),
                }
            }
        };
        let costs = Costs {
            cached,
            uncached,
            flat,
            hierarchical,
            operations: spread.operations.clone(),
            copying: self.copying(&mut dice),
            polling: POLLING_MOST * dice.uniform(),
            contention: CONTENTION_SD * dice.normal().abs(),
        };
        Member {
            costs,
            stretch: dice.factor(READY_SD),
        }
    }

    /// Draws a cost shape among those that fit nearly as well as the best one.
    fn copying(&self, dice: &mut Dice) -> Copying {
        let spread = &self.fit.spread;
        let overlaps = spread.overlaps.unwrap_or_else(|| dice.coin());
        let best = spread
            .copying
            .iter()
            .map(|(_, fitted)| fitted.loss)
            .fold(f64::INFINITY, f64::min);
        let likelihood = |fitted: &Linear| (best - fitted.loss).exp();
        let sum: f64 = spread
            .copying
            .iter()
            .map(|(_, fitted)| likelihood(fitted))
            .sum();
        let mut left = dice.uniform() * sum;
        let chosen = spread.copying.iter().find(|(_, fitted)| {
            left -= likelihood(fitted);
            left <= 0.0
        });
        let Some((shape, fitted)) = chosen.or(spread.copying.last()) else {
            return Copying::default();
        };
        let [per_tensor_us, us_per_byte] = fitted.draw([dice.normal(), dice.normal()]);
        let factor = dice.factor(SYSTEMATIC_SD);
        let mut copying = Copying {
            per_tensor_us: per_tensor_us * factor,
            us_per_byte: us_per_byte * factor,
            overlaps,
            ..*shape
        };
        if dice.uniform() < 0.5 {
            // A slow-down that the recorded sizes do not show may still occur at other sizes.
            copying.slowdown = *dice.of(&SLOWDOWNS);
            copying.knee_bytes = *dice.of(&KNEES);
        }
        copying
    }
}

struct Dice(Xoshiro256PlusPlus);

impl Dice {
    fn uniform(&mut self) -> f64 {
        self.0.random::<f64>()
    }

    fn coin(&mut self) -> bool {
        self.0.random::<bool>()
    }

    fn normal(&mut self) -> f64 {
        Normal::standard().inverse_cdf(self.uniform().clamp(1e-9, 1.0 - 1e-9))
    }

    /// Log-normal factor about 1.
    fn factor(&mut self, sd: f64) -> f64 {
        (sd * self.normal()).exp()
    }

    fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.0.random_range(0..choices.len())]
    }
}
