//! Measurements that fit nothing else: something else ran on the machine.
//!
//! The observation with the largest studentized residual is taken away, and so on, up to a tenth of all; left out are those up
//! to the last whose residual is larger than chance makes it (the generalized ESD test, see the module above). Looking past
//! one that is not finds two strays that hide each other.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::{Fit, Observation};

/// How often a sweep without strays is said to have one.
const FALSE_ALARMS: f64 = 0.01;
/// Of so many observations, one may be a stray.
const ONE_OF: usize = 10;
/// So many in a row that are none end the search.
const LOOK_AHEAD: usize = 3;
/// Of two measurements nobody can say which is the stray.
const COUNT_LEAST: usize = 3;

/// The fit of `observations` without their strays.
pub(super) fn without(points: usize, observations: &[Observation]) -> Fit {
    let mut fit = Fit::plain(points, observations, Vec::new());
    let mut removed: Vec<usize> = Vec::new();
    let mut trial = fit.clone();
    let most = observations.len() / ONE_OF;
    while removed.len() < most && removed.len() - fit.strays().len() < LOOK_AHEAD {
        let Some((kept, t)) = largest(&trial) else { break };
        let limit = limit(observations.len() - removed.len(), trial.freedom());
        removed.push(original(kept, &removed));
        trial = Fit::plain(points, observations, removed.clone());
        if t.abs() > limit {
            fit = trial.clone();
        }
    }
    fit
}

/// The observation farthest off, as an index among those that are kept, and its studentized residual.
fn largest(fit: &Fit) -> Option<(usize, f64)> {
    fit.studentized()
        .enumerate()
        .filter(|(_, (point, _))| fit.count(*point) >= COUNT_LEAST)
        .map(|(index, (_, t))| (index, t))
        .max_by(|(_, a), (_, b)| a.abs().total_cmp(&b.abs()))
}

/// What the largest of `count` residuals exceeds by chance in [`FALSE_ALARMS`] of all cases at most (Bonferroni).
fn limit(count: usize, freedom: usize) -> f64 {
    match StudentsT::new(0.0, 1.0, freedom as f64 - 1.0) {
        Ok(student) => student.inverse_cdf(1.0 - FALSE_ALARMS / (2.0 * count.max(1) as f64)),
        Err(_) => f64::INFINITY,
    }
}

/// The index among all of what has index `kept` among those without `removed`.
fn original(kept: usize, removed: &[usize]) -> usize {
    let mut sorted = removed.to_vec();
    sorted.sort_unstable();
    sorted.into_iter().fold(
        kept,
        |index, removed| if removed <= index { index + 1 } else { index },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten points in three blocks, with a little noise that is not drawn.
    fn grid() -> Vec<Observation> {
        (0..30)
            .map(|i| Observation {
                point: i % 10,
                block: i / 10,
                at_s: i as f64,
                ln_ms: (i % 10) as f64 + 0.01 * ((i * 7 % 11) as f64 - 5.0),
            })
            .collect()
    }

    #[test]
    fn indices_are_found_again() {
        assert_eq!([0, 1, 2, 3].map(|kept| original(kept, &[3, 1])), [0, 2, 4, 5]);
    }

    #[test]
    fn quiet_measurements_all_count() {
        assert!(Fit::new(10, &grid()).strays().is_empty());
    }

    #[test]
    fn a_stray_is_left_out_and_changes_nothing() {
        let mut observations = grid();
        let clean = Fit::new(10, &observations);
        observations[14].ln_ms += 1.0;
        let fit = Fit::new(10, &observations);
        assert_eq!(fit.strays(), [14]);
        let [before, after] = [&clean, &fit].map(|fit| fit.difference(4, 0).unwrap().value);
        assert!((before - after).abs() < 0.06, "{before} {after}");
        let expected = fit.expected(&observations[14]).unwrap();
        assert!((expected - 4.0).abs() < 0.1, "{expected}");
    }

    #[test]
    fn two_strays_do_not_hide_each_other() {
        let mut observations = grid();
        observations[14].ln_ms += 1.0;
        observations[27].ln_ms += 1.0;
        let mut strays = Fit::new(10, &observations).strays().to_vec();
        strays.sort_unstable();
        assert_eq!(strays, [14, 27]);
    }

    #[test]
    fn of_two_measurements_neither_is_a_stray() {
        let mut observations: Vec<_> = grid().into_iter().filter(|o| o.block < 2).collect();
        observations[14].ln_ms += 1.0;
        assert!(Fit::new(10, &observations).strays().is_empty());
    }
}
