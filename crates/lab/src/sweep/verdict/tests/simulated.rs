//! Error rates of verdicts on simulated sweeps with known truth and fixed seeds.

use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;

use super::*;

const SWEEPS: u64 = 300;
/// Thresholds in MiB; the default last.
const FUSION_MB: [u64; 10] = [0, 1, 2, 4, 8, 16, 32, 64, 256, 128];
const NOISE: f64 = 0.02;

/// Step time at each threshold, ms.
type Truth = [f64; 10];

/// Thresholds from 4 MiB on are equal, smaller ones are slower, and the default takes a tenth
/// longer than the best.
const PLATEAU: Truth = [
    140.0, 120.0, 110.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 110.0,
];

/// Other times, of which that at 16 MiB is `ms`.
fn with_best(mut others: Truth, ms: f64) -> Truth {
    others[5] = ms;
    others
}

/// Machine with drift, jumps between blocks, noise, and occasional disturbance by other processes.
struct Machine {
    dice: Xoshiro256PlusPlus,
    truth: Truth,
    strays: f64,
    at_s: f64,
}

impl Machine {
    fn new(seed: u64, truth: Truth, strays: f64) -> Self {
        Self {
            dice: Xoshiro256PlusPlus::seed_from_u64(seed),
            truth,
            strays,
            at_s: 0.0,
        }
    }

    /// One block of the points at `indices`, in random order, with the default in between, on a
    /// machine with its own state.
    fn block(&mut self, phase: Phase, block: u32, indices: &[usize]) -> Vec<Row> {
        let level = 0.03 * self.dice.sample::<f64, _>(StandardNormal);
        let mut order = indices.to_vec();
        order.shuffle(&mut self.dice);
        if phase == Phase::Grid {
            order.insert(order.len() / 2, FUSION_MB.len() - 1);
            order.push(FUSION_MB.len() - 1);
        }
        let measured = |index: usize| {
            self.at_s += 1.0;
            let stray = 0.5 * f64::from(self.dice.random_bool(self.strays));
            let noise = NOISE * self.dice.sample::<f64, _>(StandardNormal);
            let state = level + 0.0005 * self.at_s + noise + stray;
            let ms = (self.truth[index].ln() + state).exp();
            Row {
                at_s: self.at_s,
                ..row(phase, block, FUSION_MB[index], ms)
            }
        };
        order.into_iter().map(measured).collect()
    }

    /// Three repeats of the grid; if `confirmed`, then the best three points and the default in six
    /// rounds.
    fn sweep(&mut self, confirmed: bool) -> Finding {
        let all: Vec<usize> = (0..FUSION_MB.len()).collect();
        let grid = (0..3).flat_map(|block| self.block(Phase::Grid, block, &all));
        let mut rows: Vec<Row> = grid.collect();
        let finding = only(verdict(&rows));
        if !confirmed {
            return finding;
        }
        let best = others(&finding).take(3).map(index);
        let chosen: Vec<usize> = best.chain([FUSION_MB.len() - 1]).collect();
        rows.extend((0..6).flat_map(|round| self.block(Phase::Confirm, round, &chosen)));
        only(verdict(&rows))
    }
}

/// Points other than the default.
fn others(finding: &Finding) -> impl Iterator<Item = &Outcome> {
    let points = finding.points.iter();
    points.filter(|outcome| !outcome.point.is_default())
}

/// Index of a point among the thresholds.
fn index(of: &Outcome) -> usize {
    let mut points = FUSION_MB.iter().map(|&fusion_mb| point(fusion_mb));
    points.position(|point| point == of.point).unwrap()
}

/// Percentage of sweeps that satisfy the predicate.
fn percent_of(findings: impl Fn(u64) -> Finding, holds: impl Fn(&Finding) -> bool) -> f64 {
    let held = (0..SWEEPS).filter(|&seed| holds(&findings(seed))).count();
    let percent = held as f64 / SWEEPS as f64 * 100.0;
    println!("{percent:.1} %");
    percent
}

fn holds(estimate: Option<Estimate>, truth: f64) -> bool {
    let interval = estimate.and_then(|estimate| estimate.interval);
    interval.is_some_and(|[low, high]| (low..=high).contains(&truth))
}

#[test]
fn intervals_hold_in_95_of_100_sweeps() {
    let sweep = |confirmed| move |seed| Machine::new(seed, PLATEAU, 0.0).sweep(confirmed);
    // All intervals of a grid together.
    let percent = percent_of(sweep(false), |finding| {
        others(finding).all(|outcome| {
            let truth = PLATEAU[index(outcome)] / 110.0 - 1.0;
            holds(outcome.against_default, truth)
        })
    });
    assert!((92.0..=98.0).contains(&percent), "{percent} %");
    // The gain of a lone candidate.
    let lone = |seed| {
        let mut machine = Machine::new(seed, PLATEAU, 0.0);
        let rounds = (0..8).flat_map(|round| machine.block(Phase::Confirm, round, &[5, 9]));
        only(verdict(&rounds.collect::<Vec<_>>()))
    };
    let percent = percent_of(lone, |finding| holds(finding.gain, 1.0 - 100.0 / 110.0));
    assert!((92.0..=98.0).contains(&percent), "{percent} %");
    // The gain of whatever is chosen.
    let percent = percent_of(sweep(true), |finding| {
        let truth = 1.0 - PLATEAU[index(finding.best().unwrap())] / 110.0;
        holds(finding.gain, truth)
    });
    assert!(percent >= 93.0, "{percent} %");
}

#[test]
fn equal_settings_rarely_have_a_winner() {
    for confirmed in [true, false] {
        let sweep = |seed| Machine::new(seed, [100.0; 10], 0.0).sweep(confirmed);
        let percent = percent_of(sweep, |finding| finding.conclusion == Conclusion::Faster);
        assert!(percent <= 5.0, "{percent} %");
    }
}

#[test]
fn the_true_best_is_among_the_ties_and_what_is_clearly_worse_is_not() {
    // 16 MiB is two percent better than its neighbours: less than the scatter of one measurement.
    let sweep = |seed| Machine::new(seed, with_best(PLATEAU, 98.0), 0.0).sweep(true);
    let is_tied = |finding: &Finding, fusion_mb: u64| {
        let mut ties = finding.ties();
        ties.any(|outcome| outcome.point == point(fusion_mb))
    };
    assert!(percent_of(sweep, |finding| is_tied(finding, 16)) >= 95.0);
    assert!(percent_of(sweep, |finding| !is_tied(finding, 0)) >= 99.0);
}

#[test]
fn strays_spoil_little() {
    let sweep = |seed| Machine::new(seed, PLATEAU, 0.02).sweep(true);
    let percent = percent_of(sweep, |finding| {
        let gain = finding.gain.map_or(0.0, |gain| gain.value);
        finding.conclusion == Conclusion::Faster && (gain - 1.0 + 100.0 / 110.0).abs() < 0.04
    });
    assert!(percent >= 90.0, "{percent} %");
}

/// On these sweeps Dunnett's intervals and the generalized ESD test, which the paired method
/// replaced, found 94, 51 and 93 %; the paired method finds 93, 49 and 92 %.
#[test]
fn gains_beyond_the_noise_are_found() {
    for (best_ms, strays, confirmed, percent_least) in [
        (95.0, 0.0, true, 91.0),
        (96.0, 0.0, false, 47.0),
        (95.0, 0.02, true, 89.0),
    ] {
        let truth = with_best([100.0; 10], best_ms);
        let sweep = |seed| Machine::new(seed, truth, strays).sweep(confirmed);
        let percent = percent_of(sweep, |finding| {
            finding.conclusion == Conclusion::Faster && finding.best().unwrap().point == point(16)
        });
        assert!(percent >= percent_least, "{percent} %");
    }
}

/// Six settings are equal; Gupta's subset method also returned 5.8 of them on average.
#[test]
fn ties_are_few() {
    let sweep = |seed| Machine::new(seed, PLATEAU, 0.0).sweep(true);
    let ties: usize = (0..SWEEPS).map(|seed| sweep(seed).ties().count()).sum();
    let mean = ties as f64 / SWEEPS as f64;
    assert!((5.5..6.0).contains(&mean), "{mean}");
}
