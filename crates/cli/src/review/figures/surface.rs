//! What is expected over threshold and cycle time, for each combination of switches.

use super::{DEFAULT, measured};
use crate::figure::{AxisValues, Better, Kind, Scale, Surface, SurfaceSample};
use ronde_lab::review::words::number;
use ronde_lab::review::{Review, Setting, Switch, Writer};

/// HostLayout of a surface's grid in either direction, beside 0.
pub(super) const GRID: usize = 48;
/// Surfaces that are drawn of one review: of the combinations of switches, those that were tried most.
const SURFACES: usize = 4;
/// Trials on a surface that are labelled; more would cover each other.
const LABELLED: usize = 14;
/// Settings that are drawn on a surface; of more, evenly chosen ones.
const SAMPLES_MOST: usize = 600;

/// The combinations of switches that are drawn: the choice's, then those that were tried most.
pub(super) fn combinations(review: &Review) -> Vec<[Option<bool>; 4]> {
    let mut counted: Vec<([Option<bool>; 4], usize)> = Vec::new();
    for trial in &review.trials {
        match counted.iter_mut().find(|known| known.0 == trial.setting.switches) {
            Some(known) => known.1 += 1,
            None => counted.push((trial.setting.switches, 1)),
        }
    }
    let choice = review.best.as_ref().map(|best| best.choice.setting.switches);
    counted.sort_by_key(|(switches, count)| (Some(*switches) != choice, usize::MAX - count));
    counted.into_iter().map(|known| known.0).take(SURFACES).collect()
}

/// What is expected over threshold and cycle time under one combination of switches.
pub(super) fn surface(review: &Review, switches: [Option<bool>; 4]) -> Option<Surface> {
    let (label, _, better) = measured(review.measure);
    let (fusion, cycle) = (
        grid(review, |setting| setting.fusion_mb, DEFAULT.0),
        grid(review, |setting| setting.cycle_ms, DEFAULT.1),
    );
    let place = |&fusion_mb: &f64| {
        cycle.iter().map(move |&cycle_ms| Setting {
            fusion_mb,
            cycle_ms,
            switches,
        })
    };
    let settings: Vec<Setting> = fusion.iter().flat_map(place).collect();
    let expected = review.surface.as_ref()?.at(&settings);
    let mean: Vec<f64> = expected.iter().map(|e| review.measure.value(e.mean)).collect();
    let sd = expected.iter().zip(&mean).map(|(e, mean)| mean * e.sd).collect();
    let named: Vec<String> = switches_in_words(review, switches);
    let of = if named.is_empty() {
        String::new()
    } else {
        format!(", {}", named.join(", "))
    };
    Some(Surface {
        title: format!("expected {label} over threshold and cycle time{of}"),
        subtitle: "By all trials together; fainter where little is known.".to_owned(),
        x: AxisValues {
            label: "cycle time".to_owned(),
            unit: "ms".to_owned(),
            values: cycle,
        },
        y: AxisValues {
            label: "fusion threshold".to_owned(),
            unit: "MB".to_owned(),
            values: fusion,
        },
        mean,
        sd,
        samples: samples(review, switches),
        scale: Scale {
            label: match better {
                Better::Lower => format!("expected {label} above the best"),
                Better::Higher => format!("expected {label} below the best"),
            },
            better,
            noise: 0.0,
        },
    })
}

/// The switches that were tried both ways, as this combination has them.
fn switches_in_words(review: &Review, switches: [Option<bool>; 4]) -> Vec<String> {
    let word = |switch: &Switch| {
        let on = switches[*switch as usize]?;
        Some(format!("{} {}", switch.name(), if on { "on" } else { "off" }))
    };
    review.varied.iter().filter_map(word).collect()
}

/// Values a factor apart from the least to the largest that was tried, or the default, with a little room; 0 if it was tried.
fn grid(review: &Review, of: impl Fn(&Setting) -> f64, default: f64) -> Vec<f64> {
    let values: Vec<f64> = review.trials.iter().map(|trial| of(&trial.setting)).collect();
    let above = values
        .iter()
        .copied()
        .filter(|value| *value > 0.0)
        .chain([default]);
    let (low, high) = above.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), value| {
        (low.min(value), high.max(value))
    });
    let room = (high / low).powf(0.04).max(1.1);
    let (low, high) = (low / room, high * room);
    let ratio = (high / low).ln() / (GRID - 1) as f64;
    let zero = values.iter().any(|value| *value <= 0.0).then_some(0.0);
    zero.into_iter()
        .chain((0..GRID).map(|place| low * (ratio * place as f64).exp()))
        .collect()
}

fn samples(review: &Review, switches: [Option<bool>; 4]) -> Vec<SurfaceSample> {
    let default = review.gain.default;
    let choice = review.best.as_ref().map(|best| best.choice.setting);
    let is =
        |wanted: Option<Setting>, setting: &Setting| wanted.is_some_and(|wanted| wanted.is_near(setting));
    let of = review
        .groups
        .iter()
        .map(|group| (review.trials[group[0]].setting, group));
    let mut settings: Vec<(Setting, &Vec<usize>)> =
        of.filter(|(setting, _)| setting.switches == switches).collect();
    let every = settings.len().div_ceil(SAMPLES_MOST).max(1);
    let mut index = 0;
    settings.retain(|(setting, _)| {
        index += 1;
        (index - 1) % every == 0 || is(default, setting) || is(choice, setting)
    });
    let few = settings.len() <= LABELLED;
    let mut samples: Vec<SurfaceSample> = settings
        .iter()
        .map(|(setting, trials)| {
            let kind = if is(default, setting) {
                Kind::Default
            } else if is(choice, setting) {
                Kind::Best
            } else {
                Kind::Sample
            };
            let mean = trials
                .iter()
                .map(|&trial| review.trials[trial].value)
                .sum::<f64>()
                / trials.len() as f64;
            let words = setting.words(&review.varied);
            let name = match kind {
                Kind::Default => format!("default: {words}"),
                Kind::Best if review.ending.finished => format!("chosen: {words}"),
                Kind::Best => format!("best so far: {words}"),
                _ => String::new(),
            };
            SurfaceSample {
                x: setting.cycle_ms,
                y: setting.fusion_mb,
                text: if few || kind != Kind::Sample {
                    number(mean)
                } else {
                    String::new()
                },
                kind,
                name,
            }
        })
        .collect();
    // Where the default was not tried, it is shown where it would be.
    if default.is_none() && review.writer == Writer::Horovod {
        samples.push(SurfaceSample {
            x: DEFAULT.1,
            y: DEFAULT.0,
            text: String::new(),
            kind: Kind::Default,
            name: "default: 128 MB, 1 ms (never tried)".to_owned(),
        });
    }
    let advised = review
        .advice
        .map(|advice| advice.setting)
        .filter(|setting| setting.switches == switches);
    if let Some(setting) = advised
        && let Some(sample) = samples.iter_mut().find(|sample| {
            sample.kind == Kind::Sample
                && (sample.x - setting.cycle_ms).abs() <= 0.01 * setting.cycle_ms
                && (sample.y - setting.fusion_mb).abs() <= 0.01 * setting.fusion_mb
        })
    {
        sample.kind = Kind::Other;
        sample.name = format!("expected best of those tried: {}", setting.words(&review.varied));
    }
    samples
}
