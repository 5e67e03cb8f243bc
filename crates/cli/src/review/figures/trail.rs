//! Chart of the trials in order, with error bars and the values that the fitted surface expects.

use std::collections::BTreeMap;

use super::{Kind, measured};
use crate::chart::scale::Better;
use crate::chart::{Axis, Chart, Point, Rule, Series, Unit};
use crate::present::units::short;
use ronde_job::percentile::range;
use ronde_lab::review::{Estimate, Phase, Review, Setting, Trial, Writer};

/// Largest number of points of the model's line; of more trials, every n-th is used.
pub(super) const LINE_MOST: usize = 600;
/// Number of columns into which many trials are divided; of each column, only the highest and the
/// lowest are drawn.
const COLUMNS: usize = 310;
const CROWD: usize = 1200;
/// From this ratio of the highest to the lowest value, the axis is logarithmic.
const LOGARITHMIC: f64 = 12.0;

/// Draws the chart of a review's trials.
pub(super) fn trail(review: &Review) -> Chart {
    let (y_label, y_unit, better) = measured(review.measure);
    let noise = review.noise.sd().unwrap_or(0.0);
    let mut kinds: BTreeMap<Kind, Vec<Point>> = BTreeMap::new();
    for (index, trial) in review.trials.iter().enumerate() {
        // If the log has no confidence interval, use the noise of all trials.
        let half = trial.ci95.unwrap_or(1.96 * noise * trial.value);
        let setting = trial.setting.words(&review.varied);
        let text = format!(
            "trial {}: {} {y_unit}\n{setting}",
            index + 1,
            short(trial.value)
        );
        let point = Point {
            low: (trial.value - half).max(0.0),
            high: trial.value + half,
            ..Point::new((index + 1) as f64, trial.value, text)
        };
        kinds.entry(kind(review, trial)).or_default().push(point);
    }
    // A line through alternating windows of two settings would be a zigzag.
    let line = line(review).filter(|_| review.writer == Writer::Horovod);
    let rules = references(review);
    let y = heights(
        y_label,
        y_unit,
        &kinds,
        line.as_deref().unwrap_or_default(),
        &rules,
    );
    let crowded = review.trials.len() > CROWD;
    let points = kinds.into_iter().map(|(kind, mut points)| {
        if crowded {
            points = outline(points, review.trials.len());
        }
        for point in &mut points {
            point.low = point.low.max(y.from);
            point.high = point.high.min(y.to);
        }
        let (name, shape, colour) = kind.look();
        Series::points(name, colour, shape, points)
    });
    let expected = "expected by all trials together, 95 %";
    let line = line.map(|points| Series::line(expected, "--series-5", false, points));
    let description = match better {
        Better::Higher => "Higher is better. Error bars: 95 % of the scatter of one trial.",
        Better::Lower => "Lower is better. Error bars: 95 % intervals.",
    };
    Chart {
        description: description.to_owned(),
        height_px: 340,
        x: Axis::linear("trial", Unit::Count, 0.5, review.trials.len() as f64 + 0.5),
        series: line.into_iter().chain(points).collect(),
        y,
        rules,
        zoom: review.trials.len() > 40,
        ..Chart::new("", format!("{y_label} of each trial"))
    }
}

fn kind(review: &Review, trial: &Trial) -> Kind {
    let is =
        |setting: Option<&Setting>| setting.is_some_and(|setting| setting.is_near(&trial.setting));
    let is_default = is(review.gain.default.as_ref());
    match trial.phase {
        Phase::Ab if is_default => Kind::AbDefault,
        Phase::Ab => Kind::AbCandidate,
        _ if is_default => Kind::Default,
        _ if is(review.best.as_ref().map(|best| &best.choice.setting)) => Kind::Best,
        _ => Kind::Sample,
    }
}

/// Vertical axis from the lowest to the highest value. Error bars and bands that extend far beyond
/// are cut off.
fn heights(
    label: &str,
    unit: &str,
    kinds: &BTreeMap<Kind, Vec<Point>>,
    line: &[[f64; 4]],
    rules: &[Rule],
) -> Axis {
    let points = || kinds.values().flatten();
    let values = points().map(|point| point.y);
    let values = values.chain(line.iter().map(|[_, mean, ..]| *mean));
    let [low, high] = range(values.chain(rules.iter().map(|rule| rule.at)));
    let ends = points().flat_map(|point| [point.low, point.high]);
    let ends = ends.chain(line.iter().flat_map(|[_, _, low, high]| [*low, *high]));
    let [lowest, highest] = range(ends.chain([low, high]));
    let unit = match unit {
        "ms" => Unit::Ms,
        _ => Unit::Plain,
    };
    if low > 0.0 && high / low > LOGARITHMIC {
        return Axis::log(
            label,
            unit,
            lowest.max(low / 2.0) / 1.1,
            highest.min(high * 2.0) * 1.1,
        );
    }
    let span = (high - low).max(0.01 * high);
    let (from, to) = (lowest.max(low - span), highest.min(high + span));
    Axis::linear(label, unit, (from - 0.08 * span).max(0.0), to + 0.08 * span)
}

/// Highest and lowest point of each column, which keep the outline of many points.
fn outline(points: Vec<Point>, trials: usize) -> Vec<Point> {
    let mut columns: BTreeMap<usize, (Point, Point)> = BTreeMap::new();
    for point in points {
        let column = (point.x * COLUMNS as f64 / trials as f64) as usize;
        let ends = columns
            .entry(column)
            .or_insert_with(|| (point.clone(), point.clone()));
        if point.y < ends.0.y {
            ends.0 = point;
        } else if point.y > ends.1.y {
            ends.1 = point;
        }
    }
    let mut drawn: Vec<Point> = columns
        .into_values()
        .flat_map(|(low, high)| [low, high])
        .collect();
    drawn.dedup();
    drawn
}

/// Expected values of the surface fitted to all trials, at the setting of each trial: trial, mean,
/// and the ends of the 95 % interval.
fn line(review: &Review) -> Option<Vec<[f64; 4]>> {
    let every = review.trials.len().div_ceil(LINE_MOST).max(1);
    let chosen: Vec<(usize, &Trial)> = review.trials.iter().enumerate().step_by(every).collect();
    let settings: Vec<Setting> = chosen.iter().map(|(_, trial)| trial.setting).collect();
    let expected = review.surface.as_ref()?.at(&settings);
    let place = |((index, _), expected): (&(usize, &Trial), ronde_tuner::Expectation)| {
        let Estimate { value, low, high } =
            Estimate::new(review.measure, expected.mean, expected.sd);
        [(index + 1) as f64, value, low, high]
    };
    Some(chosen.iter().zip(expected).map(place).collect())
}

fn references(review: &Review) -> Vec<Rule> {
    let Some((best, surface)) = review.best.as_ref().zip(review.surface.as_ref()) else {
        return Vec::new();
    };
    let reference = |name: &str, at: f64| Rule {
        upright: false,
        at,
        name: format!("{name} {}", short(at)),
    };
    let mut references = vec![reference("choice, expected", best.choice.expected.value)];
    if let Some(default) = &review.gain.default
        && !default.is_near(&best.choice.setting)
        && let Some(expected) = surface.at(&[*default]).first()
    {
        references.push(reference(
            "default, expected",
            review.measure.value(expected.mean),
        ));
    }
    references
}
