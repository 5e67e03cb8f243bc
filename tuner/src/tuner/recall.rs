//! Measurements of other runs, and their conversion to this one.
//!
//! A log, a sibling's state or the time before a resize holds step times (or scores) of settings,
//! all relative to a level that this job need not share. What carries over is by how much settings
//! differ. So each is taken relative to what was remembered of the start setting, measured there or
//! interpolated from its neighbours, and its variance is inflated by what another job, another day
//! and the interpolation may have changed.

use crate::space::{Coordinates, Point, Space};
use crate::tuner::sample::Seen;

/// Distance in coordinates (each about 0 to 1) over which neighbours say something of a setting.
const REACH: f64 = 0.15;
/// Standard deviation of what an interpolated reference may be off by, in log step time.
const INTERPOLATED: f64 = 0.05;

/// The settings of `memories` other than `start`, with their log step times less that of `start`,
/// and with `doubt` (a standard deviation, in log step time) added to their own variance. Visits of
/// one setting are averaged.
pub(crate) fn relative_to(
    space: &Space,
    start: &Point,
    memories: &[Seen],
    doubt: f64,
) -> Vec<Seen> {
    let mut settings: Vec<Seen> = Vec::new();
    for memory in memories
        .iter()
        .filter(|m| m.log_time.is_finite() && m.variance.is_finite())
    {
        match settings
            .iter_mut()
            .find(|known| known.point == memory.point)
        {
            Some(known) => *known = average(known, memory),
            None => settings.push(*memory),
        }
    }
    let Some((reference, variance)) = reference(space, start, &settings) else {
        return Vec::new();
    };
    let beside = settings.iter().filter(|memory| memory.point != *start);
    let relative = beside.map(|memory| Seen {
        log_time: memory.log_time - reference,
        variance: memory.variance + variance + doubt * doubt,
        ..*memory
    });
    relative.collect()
}

fn average(a: &Seen, b: &Seen) -> Seen {
    let (weight, other) = (1.0 / a.variance.max(1e-12), 1.0 / b.variance.max(1e-12));
    Seen {
        point: a.point,
        log_time: (weight * a.log_time + other * b.log_time) / (weight + other),
        variance: 1.0 / (weight + other),
    }
}

/// Log step time that is remembered of the start setting, and its variance.
fn reference(space: &Space, start: &Point, settings: &[Seen]) -> Option<(f64, f64)> {
    if let Some(known) = settings.iter().find(|memory| memory.point == *start) {
        return Some((known.log_time, known.variance));
    }
    let at = space.coordinates(start);
    let distances: Vec<f64> = settings
        .iter()
        .map(|memory| distance(&at, &space.coordinates(&memory.point)))
        .collect();
    let nearest = distances.iter().copied().reduce(f64::min)?;
    // Relative to the nearest, whose weight is then 1.
    let weights: Vec<f64> = distances
        .iter()
        .map(|d| (-0.5 * (d * d - nearest * nearest) / (REACH * REACH)).exp())
        .collect();
    let sum: f64 = weights.iter().sum();
    let mean: f64 = weights
        .iter()
        .zip(settings)
        .map(|(w, m)| w * m.log_time)
        .sum();
    let off = INTERPOLATED * (1.0 + nearest / REACH);
    Some((mean / sum, off * off))
}

fn distance(a: &Coordinates, b: &Coordinates) -> f64 {
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b) * (a - b))
        .sum::<f64>()
        .sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Parameter;

    fn space() -> Space {
        Space::new(vec![Parameter::linear("x", 0.0, 1.0, 11)]).unwrap()
    }

    fn memory(x: f64, log_time: f64) -> Seen {
        Seen {
            point: space().point(&[x]).unwrap(),
            log_time,
            variance: 0.01,
        }
    }

    #[test]
    fn relative_to_a_start_that_was_measured() {
        let start = space().point(&[0.5]).unwrap();
        let memories = [
            memory(0.5, 3.0),
            memory(0.1, 3.2),
            memory(0.1, 3.4),
            memory(0.9, f64::NAN),
        ];
        let recalled = relative_to(&space(), &start, &memories, 0.1);
        assert_eq!((recalled.len(), recalled[0].point.value(0)), (1, 0.1));
        // Two visits: mean 3.3, variance 0.005; plus the reference's 0.01, plus 0.1².
        assert!((recalled[0].log_time - 0.3).abs() < 1e-12);
        assert!((recalled[0].variance - 0.025).abs() < 1e-12);
    }

    #[test]
    fn relative_to_a_start_between_its_neighbours() {
        let start = space().point(&[0.5]).unwrap();
        let recalled = relative_to(&space(), &start, &[memory(0.4, 1.0), memory(0.6, 2.0)], 0.0);
        assert!(
            (recalled[0].log_time + 0.5).abs() < 1e-9 && (recalled[1].log_time - 0.5).abs() < 1e-9
        );
        // 0.01 of its own, (0.05 (1 + 0.1 / 0.15))² of the interpolation.
        assert!((recalled[0].variance - 0.01 - (0.25f64 / 3.0).powi(2)).abs() < 1e-9);
        assert_eq!(relative_to(&space(), &start, &[], 0.0), []);
    }
}
