//! Heat maps of the expected value over fusion threshold and cycle time, one for each combination
//! of switches.

use super::{DEFAULT, Kind, measured};
use crate::chart::scale::{self, Better, Shades};
use crate::chart::{Axis, Chart, Point, Rect, Series, Unit};
use crate::present::units::short;
use crate::setting::on;
use ronde_job::percentile::percentile;
use ronde_job::percentile::{geometric, range};
use ronde_lab::review::{Review, Setting, Switch, Writer};

/// Points of a surface's grid in either direction, without the point at 0.
const GRID: usize = 36;
/// Largest number of surfaces drawn for one review: the combinations of switches tried most often.
const SURFACES: usize = 4;
/// Largest number of settings on a surface that are labelled; more labels would overlap.
const LABELLED: usize = 14;
/// Largest number of settings drawn on a surface; of more settings, every n-th is drawn.
const SAMPLES_MOST: usize = 600;

/// Combinations of switches that are drawn: the choice's first, then those tried most often.
pub(super) fn combinations(review: &Review) -> Vec<[Option<bool>; 4]> {
    let mut counted: Vec<([Option<bool>; 4], usize)> = Vec::new();
    for switches in review.trials.iter().map(|trial| trial.setting.switches) {
        match counted.iter_mut().find(|(known, _)| *known == switches) {
            Some((_, count)) => *count += 1,
            None => counted.push((switches, 1)),
        }
    }
    let choice = review.best.as_ref();
    let choice = choice.map(|best| best.choice.setting.switches);
    counted.sort_by_key(|(switches, count)| (Some(*switches) != choice, usize::MAX - count));
    let switches = counted.into_iter().map(|(switches, _)| switches);
    switches.take(SURFACES).collect()
}

/// Draws the expected values over threshold and cycle time under one combination of switches.
pub(super) fn surface(review: &Review, switches: [Option<bool>; 4]) -> Option<Chart> {
    let (label, unit, better) = measured(review.measure);
    let (fusion, cycle) = (
        grid(review, |setting| setting.fusion_mb, DEFAULT.0),
        grid(review, |setting| setting.cycle_ms, DEFAULT.1),
    );
    let settings = Setting::grid(&fusion, &cycle, switches);
    let expected = review.surface.as_ref()?.at(&settings);
    let mean = expected.iter().map(|of| review.measure.value(of.mean));
    let mean: Vec<f64> = mean.collect();
    let shades = Shades::new(mean.iter().copied(), better, 0.0);
    let spread = spread(&mean);
    let rect = |(index, (mean, expected)): (usize, (&f64, &ronde_tuner::Expectation))| {
        let (x, y) = ((index % cycle.len()) as f64, (index / cycle.len()) as f64);
        let setting = &settings[index];
        let shade = scale::colour(shades.at(*mean));
        // Draw a cell paler where the model is less certain, relative to the spread of its means.
        let sure = 1.0 - (mean * expected.sd / spread * 2.0).clamp(0.0, 0.75);
        Rect {
            x: [x - 0.5, x + 0.5],
            y: [y - 0.5, y + 0.5],
            colour: format!("{shade}{:02x}", (sure * 255.0) as u8),
            text: format!(
                "{} MiB, {} ms\nexpected {} {unit} ± {}",
                short(setting.fusion_mb),
                short(setting.cycle_ms),
                short(*mean),
                short(1.96 * mean * expected.sd)
            ),
            label: String::new(),
        }
    };
    let boxes = mean.iter().zip(&expected).enumerate().map(rect).collect();
    let mut series = vec![Series::boxes("", "--series-5", boxes)];
    series.extend(samples(review, switches, &cycle, &fusion));
    let of = switches_in_words(review, switches);
    let key = match better {
        Better::Lower => format!("expected {label} above the best"),
        Better::Higher => format!("expected {label} below the best"),
    };
    Some(Chart {
        description: "By all trials together; paler where the model is less sure.".to_owned(),
        height_px: 420,
        x: axis("cycle time, ms", &cycle, 10.0),
        y: axis("fusion threshold, MiB", &fusion, 2.0),
        series,
        scale: Some(shades.key(key)),
        ..Chart::new(
            "",
            format!("expected {label} over threshold and cycle time{of}"),
        )
    })
}

/// Spread of the means: the 95th minus the 5th percentile, but at least 5 % of the median.
fn spread(mean: &[f64]) -> f64 {
    let mut means: Vec<f64> = mean.to_vec();
    means.retain(|mean| mean.is_finite());
    means.sort_by(f64::total_cmp);
    let at = |share| percentile(&means, share).unwrap_or(0.0);
    (at(0.95) - at(0.05))
        .max(at(0.5).abs() * 0.05)
        .max(f64::MIN_POSITIVE)
}

/// Axis of the grid: its points are at 0, 1, 2, …; ticks are at round values in base `base`, and at
/// 0 if the grid has it.
fn axis(label: &str, values: &[f64], base: f64) -> Axis {
    let zero = (values[0] == 0.0).then(|| (0.0, "0".to_owned()));
    let low = values[usize::from(zero.is_some())];
    let high = values[values.len() - 1];
    let (first, last) = (low.log(base).ceil() as i32, high.log(base).floor() as i32);
    let multiples: &[f64] = match base == 10.0 {
        true => &[1.0, 2.0, 5.0],
        false => &[1.0],
    };
    let round =
        (first - 1..=last).flat_map(|power| multiples.iter().map(move |m| m * base.powi(power)));
    let ticks = round
        .filter(|value| (low..=high).contains(value))
        .map(|value| (position(values, value), scale::tick(value)));
    Axis {
        ticks: zero.into_iter().chain(ticks).collect(),
        ..Axis::linear(label, Unit::Plain, -0.5, values.len() as f64 - 0.5)
    }
}

/// Position of a value on the grid, whose points above 0 are spaced by a constant factor.
fn position(values: &[f64], value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let first = usize::from(values.first() == Some(&0.0));
    let ratio = (values[values.len() - 1] / values[first]).ln() / (values.len() - 1 - first) as f64;
    first as f64 + (value / values[first]).ln() / ratio
}

/// States of the switches in this combination, of those switches that were tried both on and off:
/// `, hierarchical allreduce on`.
fn switches_in_words(review: &Review, switches: [Option<bool>; 4]) -> String {
    let word = |switch: &Switch| {
        let state = on(switches[*switch as usize]?);
        Some(format!(", {} {state}", switch.name()))
    };
    review.varied.iter().filter_map(word).collect()
}

/// Points of the grid, spaced by a constant factor, from the smallest to the largest value that was
/// tried, including the default, with a small margin. The first point is 0 if 0 was tried.
fn grid(review: &Review, of: impl Fn(&Setting) -> f64, default: f64) -> Vec<f64> {
    let values = || review.trials.iter().map(|trial| of(&trial.setting));
    let above = values().filter(|value| *value > 0.0);
    let [low, high] = range(above.chain([default]));
    let room = (high / low).powf(0.04).max(1.1);
    let zero = values().any(|value| value <= 0.0).then_some(0.0);
    let above = geometric([low / room, high * room], GRID);
    zero.into_iter().chain(above).collect()
}

/// Returns the tried settings as points, one series for each kind.
fn samples(
    review: &Review,
    switches: [Option<bool>; 4],
    cycle: &[f64],
    fusion: &[f64],
) -> Vec<Series> {
    let default = review.gain.default;
    let choice = review.best.as_ref().map(|best| best.choice.setting);
    let advised = review.advice.map(|advice| advice.setting);
    let is = |wanted: Option<Setting>, setting: &Setting| {
        wanted.is_some_and(|wanted| wanted.is_near(setting))
    };
    let kind_of = |setting: &Setting| match setting {
        setting if is(default, setting) => Kind::Default,
        setting if is(choice, setting) => Kind::Best,
        setting if is(advised, setting) => Kind::Other,
        _ => Kind::Sample,
    };
    let of_group = |group: &Vec<usize>| {
        let values = group.iter().map(|&trial| review.trials[trial].value);
        let mean = values.sum::<f64>() / group.len() as f64;
        (review.trials[group[0]].setting, mean)
    };
    let settings = review.groups.iter().map(of_group);
    let settings = settings.filter(|(setting, _)| setting.switches == switches);
    let settings: Vec<(Setting, f64)> = settings.collect();
    let every = settings.len().div_ceil(SAMPLES_MOST).max(1);
    let few = settings.len() <= LABELLED;
    let mut samples: Vec<(Kind, Setting, String, String)> = Vec::new();
    for (index, (setting, mean)) in settings.iter().enumerate() {
        let kind = kind_of(setting);
        let words = setting.words(&review.varied);
        let name = match kind {
            Kind::Default => format!("default: {words}"),
            Kind::Best if review.ending.finished => format!("chosen: {words}"),
            Kind::Best => format!("best so far: {words}"),
            Kind::Other => format!("expected best of those tried: {words}"),
            _ => String::new(),
        };
        let label = match few || kind != Kind::Sample {
            true => short(*mean),
            false => String::new(),
        };
        if index.is_multiple_of(every) || kind != Kind::Sample {
            samples.push((kind, *setting, name, label));
        }
    }
    // If the default was not tried, show its position.
    if default.is_none() && review.writer == Writer::Horovod {
        let setting = Setting {
            fusion_mb: DEFAULT.0,
            cycle_ms: DEFAULT.1,
            switches,
        };
        let name = "default: 128 MiB, 1 ms (never tried)".to_owned();
        samples.push((Kind::Default, setting, name, String::new()));
    }
    let of_kind = Kind::ALL.map(|kind| {
        let own = samples.iter().filter(|(other, ..)| *other == kind);
        let (mut series_name, shape, colour) = kind.look();
        let mut points = Vec::new();
        for (_, setting, name, label) in own {
            let words = setting.words(&review.varied);
            let lines = if name.is_empty() { &words } else { name };
            let (x, y) = (
                position(cycle, setting.cycle_ms),
                position(fusion, setting.fusion_mb),
            );
            let text = format!("{lines}\n{label}").trim_end().to_owned();
            points.push(Point {
                label: label.clone(),
                ..Point::new(x, y, text)
            });
            if !name.is_empty() {
                series_name = name;
            }
        }
        (!points.is_empty()).then(|| Series::points(series_name, colour, shape, points))
    });
    of_kind.into_iter().flatten().collect()
}
