//! Bandwidth of each collective by message size, with a fitted line α + β · bytes.
//!
//! The line minimizes the sum of |measured − line| / measured. The errors are relative, so that
//! small messages have the same weight as large ones, and absolute instead of squared, so that
//! outliers have little influence. The minimum is found by iteratively reweighted least squares,
//! with weights that undo the square.

use std::collections::BTreeMap;

use super::collect::RankRecord;
use super::quantiles::{Sample, median};
use super::report::{Bandwidth, BandwidthPoint, Fit, Quantiles};
use super::steady::SteadyStep;
use crate::{Kind, NameId, Phase};

/// Maximum number of points in a fit; more are thinned.
const POINTS_MOST: usize = 1 << 14;
const ROUNDS: usize = 60;
/// Range of plausible bandwidths, 10⁹ bytes a second.
const GB_PER_S_LEAST: f64 = 0.001;
const GB_PER_S_MOST: f64 = 2000.0;
/// Maximum median relative error of a plausible line.
const ERROR_MOST: f64 = 0.5;

/// Bandwidth of every collective in `steps` by name: one point for each batch, or for each
/// operation where nothing is fused.
pub(super) fn bandwidth(record: &RankRecord, steps: &[SteadyStep<'_>]) -> Vec<Bandwidth> {
    // Kernels of one name may run different collectives (`SendRecv`); each kind has its own points.
    let mut points: BTreeMap<(NameId, Kind), Sample<(u64, f64)>> = BTreeMap::new();
    for batch in steps.iter().flat_map(|step| &step.batches) {
        let (Some(bytes), Some(first)) = (batch.bytes, batch.members.first()) else {
            continue;
        };
        let kind = first.kind;
        // A hierarchical collective has several activities, one after another. The members of a
        // batch have the same activities.
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
            // Before all ranks are ready, a collective waits.
            let us = (ended - began.max(batch.all_ready)).max(0) as f64 / 1e3;
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
        // Messages between varying pairs of ranks, and unknown operations, do not follow one line.
        let one = !matches!(kind, Kind::PointToPoint | Kind::Other);
        Bandwidth {
            activity: format!("{}{of_kind}", record.name(name)),
            fit: fit(&points).filter(|fit| one && is_plausible(fit)),
            points: by_size(&points),
        }
    });
    rows.filter(|row| !row.points.is_empty()).collect()
}

/// Whether the line can describe a link or memory: its bandwidth is that of existing hardware
/// (1 MB/s to 2 TB/s a rank), and half of the points are within a factor of two of the line.
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
        let bytes = median(
            &mut of_size
                .iter()
                .map(|&(bytes, _)| bytes as f64)
                .collect::<Vec<_>>(),
        );
        BandwidthPoint {
            bytes: bytes as u64,
            n: us.n,
            us_p10: us.p10,
            us_p50: us.p50,
            us_p90: us.p90,
            gb_per_s: if us.p50 > 0.0 {
                bytes / us.p50 / 1e3
            } else {
                0.0
            },
        }
    });
    rows.collect()
}

/// Fits a line through `points`, pairs of bytes and microseconds; `None` with fewer than two sizes.
pub(super) fn fit(points: &[(u64, f64)]) -> Option<Fit> {
    // The duration of an empty bar is below the clock's resolution.
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
        let relative = points
            .iter()
            .map(|&(x, y)| (y - alpha - beta * x).abs() / y);
        relative.sum::<f64>()
    };
    // Neither coefficient may be negative: the best of three lines is used, through the origin,
    // flat, or unconstrained.
    let through_origin = weighted_median(
        points
            .iter()
            .filter(|p| p.0 > 0.0)
            .map(|&(x, y)| (y / x, x / y)),
    );
    let flat = weighted_median(points.iter().map(|&(_, y)| (y, 1.0 / y)));
    let candidates = [
        Some((0.0, through_origin)),
        Some((flat, 0.0)),
        free_line(&points, largest),
    ];
    let (alpha, beta) = candidates
        .into_iter()
        .flatten()
        .filter(|&(alpha, beta)| {
            alpha >= 0.0 && beta >= 0.0 && alpha.is_finite() && beta.is_finite()
        })
        .min_by(|a, b| error(a.0, a.1).total_cmp(&error(b.0, b.1)))?;
    let mut errors: Vec<f64> = points
        .iter()
        .map(|&(x, y)| (y - alpha - beta * x).abs() / y)
        .collect();
    Some(Fit {
        alpha_us: alpha,
        us_per_mib: beta * f64::from(1 << 20),
        // A flat line has no finite bandwidth; it is reported as 0.
        gb_per_s: if beta > 0.0 { 1e-3 / beta } else { 0.0 },
        relative_error: median(&mut errors),
    })
}

/// The line with the least relative error, without constraints on its coefficients.
fn free_line(points: &[(f64, f64)], largest: f64) -> Option<(f64, f64)> {
    let mut line: Option<(f64, f64)> = None;
    for _ in 0..ROUNDS {
        let (mut s, mut sx, mut sy, mut sxx, mut sxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for &(x, y) in points {
            let x = x / largest; // keeps the sums of squares at similar magnitudes
            // Weight 1/y² for the relative square, divided by the relative error to get its
            // absolute value.
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

/// Weighted median; 0 without values.
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
        // 200 µs + 1 µs per 2,500 bytes, which is 2.5 GB/s; a tenth of the points take five times
        // as long.
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
        // Steeper than proportional: the unconstrained line has a negative intercept.
        let steep = fit(&[(1_000, 1.0), (2_000, 4.0), (4_000, 16.0)]).unwrap();
        assert_eq!(steep.alpha_us, 0.0);
        let falling = fit(&[(1_000, 9.0), (2_000, 8.0), (4_000, 7.0)]).unwrap();
        assert_eq!((falling.us_per_mib, falling.gb_per_s), (0.0, 0.0));
        assert_eq!(fit(&[(5, 1.0), (5, 2.0)]), None);
        assert_eq!(fit(&[]), None);
        let odd = fit(&[(0, 0.0), (u64::MAX, 0.0), (1, f64::NAN)]).unwrap();
        assert!(
            odd.alpha_us.is_finite()
                && odd.us_per_mib.is_finite()
                && odd.relative_error.is_finite()
        );
    }
}
