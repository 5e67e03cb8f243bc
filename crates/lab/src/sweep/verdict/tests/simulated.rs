//! Error rates of verdicts on simulated sweeps with known truth and fixed seeds.

use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Normal};

use super::*;

const SWEEPS: usize = 300;
/// Thresholds in MiB; the default last.
const FUSION_MB: [u64; 10] = [0, 1, 2, 4, 8, 16, 32, 64, 256, DEFAULT];
const NOISE: f64 = 0.02;

/// Machine with drift, jumps between blocks, noise, and occasional disturbance by other processes.
struct Machine {
    dice: Xoshiro256PlusPlus,
    strays: f64,
    at_s: f64,
}

impl Machine {
    fn new(seed: usize, strays: f64) -> Self {
        Self {
            dice: Xoshiro256PlusPlus::seed_from_u64(seed as u64),
            strays,
            at_s: 0.0,
        }
    }

    fn normal(&mut self, sd: f64) -> f64 {
        Normal::new(0.0, sd).unwrap().sample(&mut self.dice)
    }

    /// One block of the points at `indices`, in random order, with the default in between, on a
    /// machine with its own state.
    fn block(
        &mut self,
        phase: Phase,
        block: u32,
        indices: &[usize],
        truth: impl Fn(usize) -> f64,
    ) -> Vec<Row> {
        let level = self.normal(0.03);
        let mut order = indices.to_vec();
        order.shuffle(&mut self.dice);
        if phase == Phase::Grid {
            order.insert(order.len() / 2, FUSION_MB.len() - 1);
            order.push(FUSION_MB.len() - 1);
        }
        let measured = |index: usize| {
            self.at_s += 1.0;
            let stray = 0.5 * f64::from(u8::from(self.dice.random_bool(self.strays)));
            let ln_ms = truth(index).ln() + level + 0.0005 * self.at_s + self.normal(NOISE) + stray;
            Row {
                at_s: self.at_s,
                ..row(phase, block, FUSION_MB[index], ln_ms.exp())
            }
        };
        order.into_iter().map(measured).collect()
    }

    /// Three repeats of the grid.
    fn grid(&mut self, truth: impl Fn(usize) -> f64 + Copy) -> Vec<Row> {
        let all: Vec<usize> = (0..FUSION_MB.len()).collect();
        (0..3)
            .flat_map(|block| self.block(Phase::Grid, block, &all, truth))
            .collect()
    }

    /// The grid, then the best three points and the default in six rounds.
    fn sweep(&mut self, truth: impl Fn(usize) -> f64 + Copy) -> Vec<Row> {
        let mut rows = self.grid(truth);
        let finding = only(verdict(&rows));
        let best = others(&finding).take(3);
        let mut chosen: Vec<usize> = best.map(|outcome| index(&outcome.point)).collect();
        chosen.push(FUSION_MB.len() - 1);
        let confirmed = (0..6).flat_map(|round| self.block(Phase::Confirm, round, &chosen, truth));
        rows.extend(confirmed.collect::<Vec<_>>());
        rows
    }

    /// A grid, or a whole sweep.
    fn rows(&mut self, confirmed: bool, truth: impl Fn(usize) -> f64 + Copy) -> Vec<Row> {
        match confirmed {
            true => self.sweep(truth),
            false => self.grid(truth),
        }
    }
}

/// Points other than the default.
fn others(finding: &Finding) -> impl Iterator<Item = &Outcome> {
    let points = finding.points.iter();
    points.filter(|outcome| !outcome.point.is_default())
}

/// Index of a point among the thresholds.
fn index(of: &Point) -> usize {
    FUSION_MB
        .iter()
        .position(|&fusion_mb| point(fusion_mb) == *of)
        .unwrap()
}

/// Percentage of [`SWEEPS`] sweeps that satisfy the predicate.
fn percent_of(holds: impl Fn(usize) -> bool) -> f64 {
    let percent = (0..SWEEPS).filter(|&seed| holds(seed)).count() as f64 / SWEEPS as f64 * 100.0;
    println!("{percent:.1} %");
    percent
}

fn holds(estimate: Estimate, truth: f64) -> bool {
    estimate
        .interval
        .is_some_and(|[low, high]| (low..=high).contains(&truth))
}

/// Thresholds from 4 MiB on are equal, smaller ones are slower, and the default takes a tenth
/// longer than the best.
fn plateau(index: usize) -> f64 {
    [
        140.0, 120.0, 110.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 110.0,
    ][index]
}

#[test]
fn intervals_hold_in_95_of_100_sweeps() {
    // All intervals of a grid together.
    let percent = percent_of(|seed| {
        let finding = only(verdict(&Machine::new(seed, 0.0).grid(plateau)));
        others(&finding).all(|outcome| {
            let truth = plateau(index(&outcome.point)) / 110.0 - 1.0;
            holds(outcome.against_default.unwrap(), truth)
        })
    });
    assert!((92.0..=98.0).contains(&percent), "{percent} %");
    // The gain of a lone candidate.
    let percent = percent_of(|seed| {
        let mut machine = Machine::new(seed, 0.0);
        let rounds =
            (0..8).flat_map(|round| machine.block(Phase::Confirm, round, &[5, 9], plateau));
        let rows: Vec<Row> = rounds.collect();
        holds(only(verdict(&rows)).gain.unwrap(), 1.0 - 100.0 / 110.0)
    });
    assert!((92.0..=98.0).contains(&percent), "{percent} %");
    // The gain of whatever is chosen.
    let percent = percent_of(|seed| {
        let finding = only(verdict(&Machine::new(seed, 0.0).sweep(plateau)));
        let truth = 1.0 - plateau(index(&finding.best().unwrap().point)) / 110.0;
        finding.gain.is_some_and(|gain| holds(gain, truth))
    });
    assert!(percent >= 93.0, "{percent} %");
}

#[test]
fn equal_settings_rarely_have_a_winner() {
    for confirmed in [true, false] {
        let percent = percent_of(|seed| {
            let rows = Machine::new(seed, 0.0).rows(confirmed, |_| 100.0);
            only(verdict(&rows)).conclusion == Conclusion::Faster
        });
        assert!(percent <= 5.0, "{percent} %");
    }
}

#[test]
fn the_true_best_is_among_the_ties_and_what_is_clearly_worse_is_not() {
    // 16 MiB is two percent better than its neighbours: less than the scatter of one measurement.
    let truth = |index: usize| if index == 5 { 98.0 } else { plateau(index) };
    let is_tied = |seed: usize, fusion_mb: u64| {
        let finding = only(verdict(&Machine::new(seed, 0.0).sweep(truth)));
        let mut ties = finding.ties();
        ties.any(|outcome| outcome.point == point(fusion_mb))
    };
    assert!(percent_of(|seed| is_tied(seed, 16)) >= 95.0);
    assert!(percent_of(|seed| !is_tied(seed, 0)) >= 99.0);
}

#[test]
fn strays_spoil_little() {
    let percent = percent_of(|seed| {
        let finding = only(verdict(&Machine::new(seed, 0.02).sweep(plateau)));
        let gain = finding.gain.map_or(0.0, |gain| gain.value);
        finding.conclusion == Conclusion::Faster && (gain - 1.0 + 100.0 / 110.0).abs() < 0.04
    });
    assert!(percent >= 90.0, "{percent} %");
}

/// Percentage of sweeps in which the default is replaced, if the best gains this share.
fn detected(gain: f64, strays: f64, confirmed: bool) -> f64 {
    let truth = move |index: usize| match index {
        5 => 100.0 * (1.0 - gain),
        _ => 100.0,
    };
    percent_of(|seed| {
        let rows = Machine::new(seed, strays).rows(confirmed, truth);
        let finding = only(verdict(&rows));
        finding.conclusion == Conclusion::Faster && finding.best().unwrap().point == point(16)
    })
}

/// On these sweeps Dunnett's intervals and the generalized ESD test, which the paired method
/// replaced, found 94, 51 and 93 %; the paired method finds 93, 49 and 92 %.
#[test]
fn gains_beyond_the_noise_are_found() {
    assert!(detected(0.05, 0.0, true) >= 91.0);
    assert!(detected(0.04, 0.0, false) >= 47.0);
    assert!(detected(0.05, 0.02, true) >= 89.0);
}

/// Six settings are equal; Gupta's subset method also returned 5.8 of them on average.
#[test]
fn ties_are_few() {
    let finding = |seed| only(verdict(&Machine::new(seed, 0.0).sweep(plateau)));
    let ties = |seed| finding(seed).ties().count();
    let mean = (0..SWEEPS).map(ties).sum::<usize>() as f64 / SWEEPS as f64;
    assert!((5.5..6.0).contains(&mean), "{mean}");
}
