//! Change-point detection: separates start-up from steady state, at the step after which steps are
//! permanently shorter.
//!
//! The cost of a split is the sum of the absolute deviations of the log step lengths from the
//! median of their side. The change point is the split with the lowest cost, if that is lower by
//! more than noise explains and the steps before it are clearly longer. Medians make the result
//! insensitive to single slow steps; with logarithms, only ratios of lengths matter. This is the
//! single-change case of PELT (Killick, Fearnhead, Eckley 2012).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Maximum share of the steps that a start-up may take; beyond that, it is the normal state of the
/// job.
const SHARE_MOST: f64 = 0.5;
/// Minimum number of steady steps.
const STEADY_LEAST: usize = 4;
/// Minimum ratio of the median start-up step to the median steady step.
const RATIO_LEAST: f64 = 1.1;
/// Minimum noise, relative: rounding makes short recordings look smoother than they are.
const NOISE_LEAST: f64 = 0.01;

/// Number of start-up steps at the beginning.
pub(super) fn startup_steps(lengths: &[f64]) -> usize {
    let logs: Vec<f64> = lengths
        .iter()
        .map(|&length| length.max(1e-9).ln())
        .collect();
    let n = logs.len();
    let most = ((n as f64 * SHARE_MOST) as usize).min(n.saturating_sub(STEADY_LEAST));
    if most == 0 {
        return 0;
    }
    let before = costs(logs.iter().copied());
    let mut after = costs(logs.iter().rev().copied());
    after.reverse();
    // before[k - 1]: the first k steps; after[k]: the rest.
    let (split, cost) = (1..=most)
        .map(|k| (k, before[k - 1].0 + after[k].0))
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .unwrap_or((0, f64::INFINITY));
    let whole = before[n - 1].0;
    let noise = (after[split].0 / (n - split) as f64).max(NOISE_LEAST);
    let longer = (before[split - 1].1 - after[split].1).exp();
    // Each fitted median lowers the cost by about the noise of its side; the logarithm accounts for
    // the number of splits tried.
    let lowered = whole - cost > noise * (3.0 + (n as f64).ln());
    if lowered && longer >= RATIO_LEAST {
        split
    } else {
        0
    }
}

/// For every prefix of `values`: the sum of absolute deviations from its median, and that median.
fn costs(values: impl Iterator<Item = f64>) -> Vec<(f64, f64)> {
    let mut low: BinaryHeap<Ordered> = BinaryHeap::new();
    let mut high: BinaryHeap<Reverse<Ordered>> = BinaryHeap::new();
    let (mut sum_low, mut sum_high) = (0.0, 0.0);
    values
        .map(|value| {
            if low.peek().is_none_or(|top| value <= top.0) {
                low.push(Ordered(value));
                sum_low += value;
            } else {
                high.push(Reverse(Ordered(value)));
                sum_high += value;
            }
            // The lower half has the same number of values as the upper one, or one more.
            if low.len() > high.len() + 1
                && let Some(Ordered(moved)) = low.pop()
            {
                sum_low -= moved;
                sum_high += moved;
                high.push(Reverse(Ordered(moved)));
            } else if high.len() > low.len()
                && let Some(Reverse(Ordered(moved))) = high.pop()
            {
                sum_high -= moved;
                sum_low += moved;
                low.push(Ordered(moved));
            }
            let median = low.peek().map_or(value, |top| top.0);
            let cost =
                (median * low.len() as f64 - sum_low) + (sum_high - median * high.len() as f64);
            (cost.max(0.0), median)
        })
        .collect()
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Ordered(f64);

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_slow_first_stretch_is_found_to_the_step() {
        let mut steps = vec![250.0, 180.0, 190.0, 185.0, 188.0];
        steps.extend([
            100.0, 103.0, 98.0, 101.0, 99.0, 240.0, 100.0, 102.0, 97.0, 100.0, 101.0, 99.0,
        ]);
        assert_eq!(startup_steps(&steps), 5);
    }

    #[test]
    fn one_slow_first_step_is_start_up() {
        let mut steps = vec![900.0];
        steps.extend([100.0, 101.0, 99.0, 100.0, 102.0, 98.0]);
        assert_eq!(startup_steps(&steps), 1);
    }

    #[test]
    fn noise_a_late_slow_step_and_a_job_that_slows_down_are_no_start_up() {
        let noise: Vec<f64> = (0..60).map(|i| 100.0 + f64::from(i * 37 % 11)).collect();
        assert_eq!(startup_steps(&noise), 0);
        let mut late = noise.clone();
        late[7] = 500.0;
        assert_eq!(startup_steps(&late), 0);
        let slows: Vec<f64> = (0..60)
            .map(|i| if i < 15 { 100.0 } else { 150.0 })
            .collect();
        assert_eq!(startup_steps(&slows), 0);
    }

    #[test]
    fn little_or_odd_input_has_none() {
        assert_eq!(startup_steps(&[]), 0);
        assert_eq!(startup_steps(&[5.0]), 0);
        assert_eq!(startup_steps(&[900.0, 1.0, 1.0]), 0);
        assert_eq!(startup_steps(&[0.0; 20]), 0);
    }

    proptest! {
        #[test]
        fn costs_are_those_of_the_definition(values in proptest::collection::vec(-5.0f64..5.0, 1..40)) {
            for (index, (cost, _)) in costs(values.iter().copied()).into_iter().enumerate() {
                let mut prefix = values[..=index].to_vec();
                prefix.sort_by(f64::total_cmp);
                let median = prefix[index / 2];
                let expected: f64 = prefix.iter().map(|value| (value - median).abs()).sum();
                prop_assert!((cost - expected).abs() < 1e-9);
            }
        }
    }
}
