//! What a trail's axes reach from and to, and which of very many points are drawn.

use std::collections::BTreeMap;

use super::{Trail, TrailPoint};
use crate::figure::Kind;
use crate::figure::spacing::{linear, tick};
use crate::html::chart::Axis;

/// More points than these are thinned out.
pub(super) const CROWD: usize = 1200;
/// From this ratio of the highest to the lowest, heights are logarithms: else all but the highest lie on the floor.
const LOGARITHMIC: f64 = 12.0;

/// Whether it can be drawn: no measurement is near the end of all numbers, where differences are none any more.
pub(super) fn sane(value: f64) -> bool {
    value.abs() < 1e300
}

/// From the lowest to the highest of what is drawn; error bars that go far beyond all points are cut off.
pub(super) fn heights(trail: &Trail, points: &[TrailPoint]) -> Axis {
    let line = trail
        .line
        .iter()
        .flat_map(|line| &line.points)
        .map(|place| place.mean);
    let references = trail.references.iter().map(|reference| reference.value);
    let values: Vec<f64> = points
        .iter()
        .map(|point| point.value)
        .chain(line)
        .chain(references)
        .collect();
    let (low, high) = range(values.into_iter()).unwrap_or((0.0, 1.0));
    let bands = trail
        .line
        .iter()
        .flat_map(|line| &line.points)
        .flat_map(|place| [place.low, place.high]);
    let bars = points.iter().flat_map(|point| [point.low, point.high]);
    let (lowest, highest) = range(bands.chain(bars)).unwrap_or((low, high));
    if low > 1e-300 && high / low > LOGARITHMIC {
        let (from, to) = (
            lowest.clamp(low / 2.0, low) / 1.1,
            highest.clamp(high, high * 2.0) * 1.1,
        );
        let axis = Axis::decades("", from, to, 8, tick);
        if axis.ticks.len() >= 2 {
            return axis;
        }
    }
    // Halves, as the difference of two huge numbers is none.
    let span = 2.0
        * (high / 2.0 - low / 2.0)
            .max(high.abs().max(low.abs()) * 0.005)
            .max(f64::MIN_POSITIVE);
    let from = lowest.clamp(low - span, low) - 0.08 * span;
    let to = highest.clamp(high, high + span) + 0.08 * span;
    // Times and scores are never below zero.
    let from = if low >= 0.0 { from.max(0.0) } else { from };
    linear(from, to, 10)
}

/// The axis of the places; counted ones have a little room at both ends and only whole numbers named.
pub(super) fn places(values: impl Iterator<Item = f64> + Clone) -> Axis {
    let (low, high) = range(values.clone()).unwrap_or((0.0, 1.0));
    let whole = values.clone().all(|x| x.fract() == 0.0);
    let room = if whole {
        0.5f64.max((high - low) * 0.015)
    } else {
        (high - low) * 0.02
    };
    let mut axis = linear(low - room, high + room, 12);
    if whole {
        axis.ticks.retain(|(value, _)| value.fract() == 0.0);
        for (value, name) in &mut axis.ticks {
            *name = tick(*value);
        }
    }
    axis
}

fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values
        .filter(|v| sane(*v))
        .fold(None, |range: Option<(f64, f64)>, v| {
            Some(range.map_or((v, v), |(low, high)| (low.min(v), high.max(v))))
        })
}

/// The highest and the lowest of each kind in each column of two units: what a crowd looks like from afar.
pub(super) fn thinned(points: &[TrailPoint], x: &Axis, width: f64) -> Vec<TrailPoint> {
    let mut columns: BTreeMap<(Kind, usize), (TrailPoint, TrailPoint)> = BTreeMap::new();
    for point in points {
        let column = (x.at(point.x) * width / 2.0) as usize;
        let (low, high) = columns.entry((point.kind, column)).or_insert((*point, *point));
        if point.value < low.value {
            *low = *point;
        }
        if point.value > high.value {
            *high = *point;
        }
    }
    columns
        .into_values()
        .flat_map(|(low, high)| [low, high])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_keeps_its_outline() {
        let point = |i: usize| TrailPoint {
            x: i as f64,
            value: if i == 70_000 { 9.0 } else { (i % 7) as f64 },
            low: 0.0,
            high: 0.0,
            kind: if i == 5 { Kind::Best } else { Kind::Sample },
        };
        let points: Vec<TrailPoint> = (0..100_000).map(point).collect();
        let x = places(points.iter().map(|p| p.x));
        let thinned = thinned(&points, &x, 620.0);
        assert!(thinned.len() < 700, "{}", thinned.len());
        assert!(thinned.iter().any(|p| p.value == 9.0) && thinned.iter().any(|p| p.kind == Kind::Best));
    }
}
