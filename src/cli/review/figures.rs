//! The pictures of a review: its trials one after the other, and the surface behind them.

use super::error::Error;
use crate::cli::figure::{
    self, AxisValues, Better, Figure, Kind, Reference, Scale, Stack, Surface, SurfaceSample, Trail,
    TrailLine, TrailLinePoint, TrailPoint,
};
use crate::review::words::number;
use crate::review::{Measure, Phase, Review, Setting, Switch, Trial, Writer};

/// Places of a surface's grid in either direction, beside 0.
const GRID: usize = 48;
/// Surfaces that are drawn of one review: of the combinations of switches, those that were tried most.
const SURFACES: usize = 4;
/// Trials on a surface that are labelled; more would cover each other.
const LABELLED: usize = 14;
/// Settings that are drawn on a surface; of more, evenly chosen ones.
const SAMPLES_MOST: usize = 600;
/// Trials through which the model's line is drawn; of more, evenly chosen ones.
const LINE_MOST: usize = 600;
/// The default of Horovod's and Ronde's knobs, MiB and ms.
const DEFAULT: (f64, f64) = (128.0, 1.0);

/// The pictures of one review.
pub(super) struct Pictures {
    /// Its trials.
    pub(super) trail: Trail,
    /// Its surfaces, each with what it is of: the choice's first.
    pub(super) surfaces: Vec<Surface>,
}

impl Pictures {
    /// Of a review with trials; their titles begin with `whose`.
    pub(super) fn of(review: &Review, whose: &str) -> Option<Self> {
        review.best.as_ref()?;
        let titled = |title: String| match whose {
            "" => title[..1].to_uppercase() + &title[1..],
            whose => format!("{whose}: {title}"),
        };
        let surfaces = combinations(review).into_iter().filter_map(|switches| {
            let surface = surface(review, switches)?;
            Some(Surface {
                title: titled(surface.title),
                ..surface
            })
        });
        let trail = trail(review);
        Some(Self {
            surfaces: surfaces.collect(),
            trail: Trail {
                title: titled(trail.title),
                ..trail
            },
        })
    }

    fn all(&self) -> impl Iterator<Item = &dyn Figure> {
        let surfaces = self.surfaces.iter().map(|surface| surface as &dyn Figure);
        std::iter::once(&self.trail as &dyn Figure).chain(surfaces)
    }
}

/// All pictures of all reviews, one below the other, as SVG.
///
/// # Errors
/// [`Error::NothingToDraw`], or what drawing says.
pub(super) fn svg(reviews: &[Review]) -> Result<String, Error> {
    let pictures = pictures(reviews, "svg")?;
    Ok(figure::svg(&stack(reviews, &pictures))?)
}

/// The same as PNG.
///
/// # Errors
/// As [`svg`].
pub(super) fn png(reviews: &[Review]) -> Result<Vec<u8>, Error> {
    let pictures = pictures(reviews, "png")?;
    Ok(figure::png(&stack(reviews, &pictures))?)
}

fn pictures(reviews: &[Review], format: &'static str) -> Result<Vec<Pictures>, Error> {
    let pictures: Vec<Pictures> = reviews
        .iter()
        .filter_map(|review| Pictures::of(review, &review.source))
        .collect();
    if pictures.is_empty() {
        return Err(Error::NothingToDraw { format });
    }
    Ok(pictures)
}

fn stack<'a>(reviews: &[Review], pictures: &'a [Pictures]) -> Stack<'a> {
    let names: Vec<&str> = reviews.iter().map(|review| review.source.as_str()).collect();
    Stack {
        title: format!("Review of {}", names.join(", ")),
        figures: pictures.iter().flat_map(Pictures::all).collect(),
    }
}

fn measured(measure: Measure) -> (&'static str, &'static str, Better) {
    match measure {
        Measure::StepMs => ("step time", "ms", Better::Lower),
        Measure::Score => ("score", "bytes/µs", Better::Higher),
    }
}

fn kind(review: &Review, trial: &Trial) -> Kind {
    let is = |setting: Option<&Setting>| setting.is_some_and(|setting| setting.is_near(&trial.setting));
    let is_default = is(review.gain.default.as_ref());
    match trial.phase {
        Phase::Ab if is_default => Kind::AbDefault,
        Phase::Ab => Kind::AbCandidate,
        _ if is_default => Kind::Default,
        _ if is(review.best.as_ref().map(|best| &best.choice.setting)) => Kind::Best,
        _ => Kind::Sample,
    }
}

fn trail(review: &Review) -> Trail {
    let (y_label, y_unit, better) = measured(review.measure);
    let noise = review.noise.sd().unwrap_or(0.0);
    let point = |(index, trial): (usize, &Trial)| {
        // What the log does not tell, the scatter of all trials does.
        let half = trial.ci95.unwrap_or(1.96 * noise * trial.value);
        TrailPoint {
            x: (index + 1) as f64,
            value: trial.value,
            low: (trial.value - half).max(0.0),
            high: trial.value + half,
            kind: kind(review, trial),
        }
    };
    let subtitle = match better {
        Better::Higher => "Higher is better. Bars: 95 % of what one trial scatters by.",
        Better::Lower => "Lower is better. Bars: 95 % intervals.",
    };
    Trail {
        title: format!("{y_label} of each trial"),
        subtitle: subtitle.to_owned(),
        x_label: "trial".to_owned(),
        y_label: y_label.to_owned(),
        y_unit: y_unit.to_owned(),
        points: review.trials.iter().enumerate().map(point).collect(),
        // Windows that alternate make a line through them a saw.
        line: line(review).filter(|_| review.writer == Writer::Horovod),
        references: references(review),
    }
}

/// What all trials together say of each one's setting.
fn line(review: &Review) -> Option<TrailLine> {
    let every = review.trials.len().div_ceil(LINE_MOST).max(1);
    let chosen: Vec<(usize, &Trial)> = review.trials.iter().enumerate().step_by(every).collect();
    let settings: Vec<Setting> = chosen.iter().map(|(_, trial)| trial.setting).collect();
    let expected = review.surface.as_ref()?.at(&settings);
    let place = |((index, _), expected): (&(usize, &Trial), ronde_tuner::Expectation)| {
        let ends = [-1.96, 1.96].map(|scores| review.measure.value(expected.mean + scores * expected.sd));
        TrailLinePoint {
            x: (index + 1) as f64,
            mean: review.measure.value(expected.mean),
            low: ends[0].min(ends[1]),
            high: ends[0].max(ends[1]),
        }
    };
    Some(TrailLine {
        name: "expected by all trials together, 95 %".to_owned(),
        points: chosen.iter().zip(expected).map(place).collect(),
    })
}

fn references(review: &Review) -> Vec<Reference> {
    let Some((best, surface)) = review.best.as_ref().zip(review.surface.as_ref()) else {
        return Vec::new();
    };
    let reference = |name: &str, value: f64| Reference {
        name: format!("{name} {}", number(value)),
        value,
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

/// The combinations of switches that are drawn: the choice's, then those that were tried most.
fn combinations(review: &Review) -> Vec<[Option<bool>; 4]> {
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
fn surface(review: &Review, switches: [Option<bool>; 4]) -> Option<Surface> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::{Known, review};
    use ronde_tuner::read_log;

    fn reviews(text: &str) -> Vec<Review> {
        review(&read_log(text).unwrap(), "a.csv", &Known::default())
    }

    const HEADER: &str = "hierarchical_allreduce,cycle_time_ms,tensor_fusion_threshold,score\n";

    #[test]
    fn a_surface_for_each_combination_and_the_default_where_it_would_be() {
        let reviews = reviews(&format!(
            "{HEADER}0,5,0,100\n0,50,32,120\n1,5,4,150\n0,20,10,110\n"
        ));
        let pictures = Pictures::of(&reviews[0], "").unwrap();
        assert_eq!((pictures.trail.points.len(), pictures.surfaces.len()), (4, 2));
        // The choice's combination comes first, though the other was tried more often.
        let [first, second] = &pictures.surfaces[..] else {
            panic!()
        };
        assert_eq!(pictures.trail.title, "Score of each trial");
        assert!(
            first.title.ends_with("hierarchical allreduce on")
                && second.title.ends_with("hierarchical allreduce off")
        );
        assert_eq!(
            (first.y.values[0], first.x.values.len(), first.y.values.len()),
            (0.0, GRID, GRID + 1)
        );
        assert_eq!(first.mean.len(), GRID * (GRID + 1));
        let default = second
            .samples
            .iter()
            .find(|sample| sample.kind == Kind::Default)
            .unwrap();
        assert_eq!((default.y, default.x), DEFAULT);
        assert!(
            first
                .samples
                .iter()
                .any(|sample| sample.kind == Kind::Best && sample.text == "150")
        );
        let picture = svg(&reviews).unwrap();
        assert!(picture.contains("Review of a.csv") && picture.matches("fusion threshold").count() >= 2);
    }

    #[test]
    fn of_many_trials_a_line_through_some() {
        let rows: String = (0..5000)
            .map(|i| format!("0,{},{},{}\n", 1 + i % 90, 1 + i % 60, 100 + i % 17))
            .collect();
        let reviews = reviews(&format!("{HEADER}{rows}"));
        let pictures = Pictures::of(&reviews[0], "").unwrap();
        let line = pictures.trail.line.unwrap();
        assert!(line.points.len() <= LINE_MOST && line.points.iter().all(|place| place.low <= place.mean));
        assert_eq!(pictures.trail.points.len(), 5000);
    }

    #[test]
    fn without_trials_there_is_no_picture() {
        let reviews = reviews(HEADER);
        assert!(Pictures::of(&reviews[0], "").is_none());
        assert_eq!(
            svg(&reviews).unwrap_err().to_string(),
            "--svg: there is nothing to draw: no log has a trial"
        );
    }
}
