//! How fast each collective is by message size, and the line α + β · bytes through it.
//!
//! The line minimizes the sum of |measured − line| / measured: relative, so that small messages count as much as large
//! ones, and absolute instead of squared, so that outliers do not. It is found by weighted least squares, repeated with
//! weights that undo the square (iteratively reweighted least squares).

use std::collections::BTreeMap;

use super::collect::RankRecord;
use super::quantiles::{Sample, median};
use super::report::{Bandwidth, BandwidthPoint, Fit, Quantiles};
use super::steady::SteadyStep;
use crate::{Kind, NameId, Phase};

/// Points that a line is fitted to; more are thinned.
const POINTS_MOST: usize = 1 << 14;
const ROUNDS: usize = 60;
/// Bandwidths of lines that are reported, 10⁹ bytes a second.
const GB_PER_S_LEAST: f64 = 0.001;
const GB_PER_S_MOST: f64 = 2000.0;
/// Median relative error of such a line.
const ERROR_MOST: f64 = 0.5;

/// Every collective of `steps` by name, one point for each batch; where nothing is fused, one for each operation.
pub(super) fn bandwidth(record: &RankRecord, steps: &[SteadyStep<'_>]) -> Vec<Bandwidth> {
    // Kernels of one name may do different collectives (`SendRecv`): each has its own points.
    let mut points: BTreeMap<(NameId, Kind), Sample<(u64, f64)>> = BTreeMap::new();
    for batch in steps.iter().flat_map(|step| &step.batches) {
        let (Some(bytes), Some(first)) = (batch.bytes, batch.members.first()) else {
            continue;
        };
        let kind = first.kind;
        // A hierarchical collective is several, one after another; members of a batch have the same.
        let mut spans: Vec<(NameId, i64, i64)> = Vec::new();
        for activity in batch.members.iter().flat_map(|op| &op.activities) {
            if activity.phase != Phase::Collective {
                continue;
            }
            match spans.iter_mut().find(|span| span.0 == activity.name) {
                Some(span) => {
                    span.1 = span.1.min(activity.span.began);
                    span.2 = span.2.max(activity.span.ended);
                }
                None => spans.push((activity.name, activity.span.began, activity.span.ended)),
            }
        }
        for (name, began, ended) in spans {
            let us = (ended - began) as f64 / 1e3;
            points
                .entry((name, kind))
                .or_insert_with(|| Sample::new(POINTS_MOST))
                .push((bytes, us));
        }
    }
    let mut kinds: BTreeMap<NameId, u32> = BTreeMap::new();
    for &(name, _) in points.keys() {
        *kinds.entry(name).or_default() += 1;
    }
    let rows = points.into_iter().map(|((name, kind), sample)| {
        let points = sample.into_kept();
        let of_kind = match kinds[&name] {
            1 => String::new(),
            _ => format!(" ({})", kind.name().to_ascii_lowercase()),
        };
        // Messages between varying pairs of ranks, or of unknown operations, follow no one line.
        let one = !matches!(kind, Kind::PointToPoint | Kind::Other);
        Bandwidth {
            activity: format!("{}{of_kind}", record.name(name)),
            fit: fit(&points).filter(|fit| one && is_plausible(fit)),
            points: by_size(&points),
        }
    });
    rows.filter(|row| !row.points.is_empty()).collect()
}

/// Whether a line describes a link or memory: its bandwidth is that of existing hardware (1 MB/s to 2 TB/s a rank), and half of
/// the points are within a factor of two of it.
pub(super) fn is_plausible(fit: &Fit) -> bool {
    (GB_PER_S_LEAST..=GB_PER_S_MOST).contains(&fit.gb_per_s) && fit.relative_error <= ERROR_MOST
}

fn by_size(points: &[(u64, f64)]) -> Vec<BandwidthPoint> {
    let mut sizes: BTreeMap<u32, Vec<(u64, f64)>> = BTreeMap::new();
    for &(bytes, us) in points.iter().filter(|(bytes, _)| *bytes > 0) {
        sizes.entry(bytes.ilog2()).or_default().push((bytes, us));
    }
    let rows = sizes.into_values().map(|of_size| {
        let us = Quantiles::of(of_size.iter().map(|&(_, us)| us));
        let bytes = median(&mut of_size.iter().map(|&(bytes, _)| bytes as f64).collect::<Vec<_>>());
        BandwidthPoint {
            bytes: bytes as u64,
            n: us.n,
            us_p10: us.p10,
            us_p50: us.p50,
            us_p90: us.p90,
            gb_per_s: if us.p50 > 0.0 { bytes / us.p50 / 1e3 } else { 0.0 },
        }
    });
    rows.collect()
}

/// The line through `points`, pairs of bytes and microseconds; none with fewer than two sizes.
pub(super) fn fit(points: &[(u64, f64)]) -> Option<Fit> {
    // A bar of no length took less than the clock can show.
    const LEAST_US: f64 = 0.1;
    let points: Vec<(f64, f64)> = points
        .iter()
        .filter(|(_, us)| us.is_finite())
        .map(|&(bytes, us)| (bytes as f64, us.max(LEAST_US)))
        .collect();
    let first = points.first()?.0;
    if points.iter().all(|&(bytes, _)| bytes == first) {
        return None;
    }
    let largest = points.iter().map(|&(bytes, _)| bytes).fold(1.0, f64::max);
    let error = |alpha: f64, beta: f64| {
        let relative = points.iter().map(|&(x, y)| (y - alpha - beta * x).abs() / y);
        relative.sum::<f64>()
    };
    // Neither may be negative: through the origin, flat, or the free line, whichever is nearest.
    let through_origin = weighted_median(points.iter().filter(|p| p.0 > 0.0).map(|&(x, y)| (y / x, x / y)));
    let flat = weighted_median(points.iter().map(|&(_, y)| (y, 1.0 / y)));
    let candidates = [
        Some((0.0, through_origin)),
        Some((flat, 0.0)),
        free_line(&points, largest),
    ];
    let (alpha, beta) = candidates
        .into_iter()
        .flatten()
        .filter(|&(alpha, beta)| alpha >= 0.0 && beta >= 0.0 && alpha.is_finite() && beta.is_finite())
        .min_by(|a, b| error(a.0, a.1).total_cmp(&error(b.0, b.1)))?;
    let mut errors: Vec<f64> = points
        .iter()
        .map(|&(x, y)| (y - alpha - beta * x).abs() / y)
        .collect();
    Some(Fit {
        alpha_us: alpha,
        us_per_mib: beta * f64::from(1 << 20),
        // A flat line has no bandwidth; zero says so without being infinite.
        gb_per_s: if beta > 0.0 { 1e-3 / beta } else { 0.0 },
        relative_error: median(&mut errors),
    })
}

/// The line with the least relative distance, wherever it lies.
fn free_line(points: &[(f64, f64)], largest: f64) -> Option<(f64, f64)> {
    let mut line: Option<(f64, f64)> = None;
    for _ in 0..ROUNDS {
        let (mut s, mut sx, mut sy, mut sxx, mut sxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for &(x, y) in points {
            let x = x / largest; // so that sums of squares stay near one another
            // 1/y² for the relative square; over the relative distance for its absolute value.
            let distance = line.map_or(1.0, |(a, b)| ((y - a - b * x) / y).abs().max(1e-6));
            let weight = 1.0 / (y * y * distance);
            s += weight;
            sx += weight * x;
            sy += weight * y;
            sxx += weight * x * x;
            sxy += weight * x * y;
        }
        let determinant = s * sxx - sx * sx;
        if !determinant.is_finite() || determinant <= f64::EPSILON * s * sxx {
            break;
        }
        let beta = (s * sxy - sx * sy) / determinant;
        line = Some(((sy - beta * sx) / s, beta));
    }
    line.map(|(alpha, beta)| (alpha, beta / largest))
}

/// The value with half of the weight below it; 0 of nothing.
fn weighted_median(values: impl Iterator<Item = (f64, f64)>) -> f64 {
    let mut values: Vec<(f64, f64)> = values.collect();
    values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let half = values.iter().map(|value| value.1).sum::<f64>() / 2.0;
    let mut below = 0.0;
    for &(value, weight) in &values {
        below += weight;
        if below >= half {
            return value;
        }
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_in_spite_of_outliers() {
        // 200 µs + 1 µs per 2,500 bytes, which is 2.5 GB/s; a tenth of the points took five times as long.
        let points: Vec<(u64, f64)> = (0..200u64)
            .map(|i| {
                let bytes = 1 << (10 + i % 14);
                let us = 200.0 + bytes as f64 / 2_500.0;
                (bytes, if i % 10 == 3 { us * 5.0 } else { us })
            })
            .collect();
        let fit = fit(&points).unwrap();
        assert!((fit.alpha_us - 200.0).abs() < 1.0, "{fit:?}");
        assert!((fit.gb_per_s - 2.5).abs() < 0.02, "{fit:?}");
        assert!((fit.us_per_mib - 419.43).abs() < 3.0, "{fit:?}");
        assert!(fit.relative_error < 0.001, "{fit:?}");
    }

    #[test]
    fn neither_part_is_negative() {
        // Steeper than proportional: the free line would cut the axis below zero.
        let steep = fit(&[(1_000, 1.0), (2_000, 4.0), (4_000, 16.0)]).unwrap();
        assert_eq!(steep.alpha_us, 0.0);
        let falling = fit(&[(1_000, 9.0), (2_000, 8.0), (4_000, 7.0)]).unwrap();
        assert_eq!((falling.us_per_mib, falling.gb_per_s), (0.0, 0.0));
        assert_eq!(fit(&[(5, 1.0), (5, 2.0)]), None);
        assert_eq!(fit(&[]), None);
        let odd = fit(&[(0, 0.0), (u64::MAX, 0.0), (1, f64::NAN)]).unwrap();
        assert!(odd.alpha_us.is_finite() && odd.us_per_mib.is_finite() && odd.relative_error.is_finite());
    }
}
